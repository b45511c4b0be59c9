//! `lastmeter bench receive/guest`: ways to receive in a real kernel, a guest's, beside the model with its constants.
//!
//! Rows: E-96, E-100 to E-104, E-106.

use super::{Arguments, LOOK, Measurement};
use crate::{Common, Complaint, Ended, output, progress, results};
use lastmeter_base::{Bytes, Duration};
use lastmeter_guest::kit::Kit;
use lastmeter_guest::livelock::{self, Constants, Measured, Mode, Plan};
use lastmeter_host::receive::backoff::{Backoff, Parameters};
use lastmeter_host::receive::interrupt::Interrupt;
use lastmeter_host::receive::napi::{self, Deferral, Napi};
use lastmeter_host::receive::polling::Polling;
use lastmeter_host::receive::suspension::{self, Suspension};
use lastmeter_host::receive::timed::Timed;
use lastmeter_host::receive::{Commands, Costs, InterfaceOptions, Policy, Scheduling};
use lastmeter_lab::library::Builtin;
use lastmeter_lab::profile::device;
use lastmeter_ledger::figures;
use lastmeter_linux::load;
use lastmeter_repro::reception::sweep::{self, Curve, Machine, Point};
use lastmeter_repro::reception::{Era, Setup, Way, chart};
use std::time::Duration as Wait;

/// The program's work for a datagram, a little less than what the emulated kernel takes for it.
const WORK: Wait = Wait::from_micros(20);
const LOADS: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 7.0, 10.0];
const LOADS_QUICK: [f64; 4] = [0.1, 0.5, 1.0, 8.0];
const LASTS: Wait = Wait::from_millis(800);
const LASTS_QUICK: Wait = Wait::from_millis(300);
const LIMIT: Wait = Wait::from_secs(300);
/// Below this share of the processor, a point is not the guest's own.
const SHARE_MIN: f64 = 0.8;
/// Packets in QEMU's ring, and in the socket's buffer.
const RING: u64 = 256;
const BUFFERS: u64 = 128;
/// Least time that a program of the guest runs before another does.
const SLICE: Duration = Duration::from_ms(3);

/// The driver's mode in the model, with the driver's parameters. A full socket drops after the stack's work.
fn way(mode: Mode) -> Way {
    fn late(setup: &Setup, policy: impl Policy + 'static) -> InterfaceOptions {
        InterfaceOptions { accepts: None, ..setup.interface(Box::new(policy)) }
    }
    let interface: fn(&Setup, Duration) -> InterfaceOptions = match mode {
        Mode::Interrupts => |setup, _| late(setup, Interrupt),
        Mode::Napi => |setup, _| late(setup, Napi::new(napi::Options::LINUX)),
        Mode::Deferred => |setup, _| {
            let deferral = Some(Deferral { polls: 2, interval: Duration::from_us(200) });
            late(setup, Napi::new(napi::Options { deferral, ..napi::Options::LINUX }))
        },
        Mode::Threaded => |setup, _| {
            late(setup, Napi::new(napi::Options { threaded: true, ..napi::Options::LINUX }))
        },
        // The model's program suspends interrupts while it finds something, and polls as long.
        Mode::Busy => |setup, _| late(setup, Suspension::new(suspension::Options::LINUX)),
        Mode::Polling => |setup, _| late(setup, Polling { quota: 64 }),
        Mode::Timed => |setup, _| late(setup, Timed::new(period(), 32)),
        Mode::Backoff => |setup, _| {
            let parameters = Parameters {
                period_min: Duration::from_us(500),
                period_max: Duration::from_ms(10),
                factor: (3, 2),
                restore: (4, 5),
                quota: 16,
            };
            late(setup, Backoff::new(parameters))
        },
    };
    let era = match mode {
        Mode::Napi | Mode::Deferred | Mode::Threaded | Mode::Busy => Era::Now,
        _ => Era::Then,
    };
    Way { name: mode.name(), era, interface }
}

fn period() -> Duration {
    Duration::from_secs_f64(livelock::PERIOD.as_secs_f64())
}

/// The guest as a model.
fn machine(constants: &Constants) -> Machine {
    let time = Duration::from_secs_f64;
    let costs = Costs {
        interrupt: time(constants.interrupt),
        switch: time(constants.poll),
        wake: time(constants.wake),
        accept: time(constants.accept),
        protocol: time(constants.protocol),
        application: time(constants.application),
        ..Costs::NOTHING
    };
    let setup = Setup {
        costs,
        scheduling: Scheduling::Fair(SLICE),
        commands: Commands::One,
        adapter_buffers: RING,
        announced_max: RING,
        host_buffers: BUFFERS,
        transfer: Duration::ZERO,
        len: Bytes(64),
    };
    Machine::with("its model, with the constants above".to_owned(), setup)
}

fn modes(part: &str) -> Result<Vec<Mode>, Complaint> {
    let part = part.split('@').next().unwrap_or_default();
    let modes: Vec<Mode> =
        Mode::ALL.into_iter().filter(|mode| mode.name().starts_with(part)).collect();
    if modes.is_empty() {
        let names: Vec<&str> = Mode::ALL.iter().map(|mode| mode.name()).collect();
        let names = names.join(", ");
        return Err(Complaint(format!("no way to receive in a guest is called {part:?}: {names}")));
    }
    Ok(modes)
}

/// `part` is what follows `receive/guest/`.
pub(super) fn bench(
    common: &Common,
    arguments: &Arguments,
    part: &str,
) -> Result<Ended, Complaint> {
    let mut modes = modes(part)?;
    // The model needs constants of these.
    for needed in [Mode::Interrupts, Mode::Timed] {
        if arguments.out.is_some() && !modes.contains(&needed) {
            modes.push(needed);
        }
    }
    let kit = Kit::find().map_err(|error| Complaint(error.to_string()))?;
    let adapter = arguments.adapter.as_ref().map(|name| device::read(name, &Builtin));
    let surroundings = load::others(LOOK)?;
    let loads: &[f64] = if common.quick { &LOADS_QUICK } else { &LOADS };
    let plan = Plan {
        modes,
        loads: loads.to_vec(),
        work: WORK,
        lasts: if common.quick { LASTS_QUICK } else { LASTS },
        limit: LIMIT,
        adapter: adapter.transpose().map_err(Complaint)?,
    };
    let bar = progress::bar((2 + plan.modes.len() * (1 + plan.loads.len())) as u64);
    let mut told = |step: &str| {
        bar.set_message(step.to_owned());
        bar.inc(1);
    };
    let measured = livelock::measure(&kit, &plan, &mut told);
    bar.finish_and_clear();
    let measured = measured.map_err(|error| Complaint(error.to_string()))?;
    let seed = common.seed.unwrap_or(1);
    let model = measured.constants().map(|constants| machine(&constants));
    let modelled: Vec<Curve> =
        model.iter().flat_map(|machine| curves(machine, &plan, seed)).collect();
    let busy = if surroundings.is_busy() { "; BUSY machine" } else { "" };
    let all = measurements(&measured, &modelled, busy);
    if common.json {
        for one in &all {
            output::print(&serde_json::to_string(one).unwrap_or_default());
        }
    } else {
        output::print(&table(&measured, &modelled));
    }
    if let Some(words) = load::words(surroundings) {
        output::note(&words);
    }
    if let (Some(path), Some(machine)) = (&arguments.out, &model) {
        results::file(path, page(&measured, machine, &modelled).as_bytes())?;
    }
    Ok(Ended::Done)
}

fn curves(machine: &Machine, plan: &Plan, seed: u64) -> Vec<Curve> {
    plan.modes.iter().map(|mode| sweep::curve(machine, &way(*mode), seed)).collect()
}

/// What the model keeps of its peak at the highest load.
fn kept(modelled: &[Curve], mode: Mode) -> Option<f64> {
    let curve = modelled.iter().find(|curve| curve.name == mode.name())?;
    let peak = curve.points.iter().map(|point| point.throughput).fold(0.0, f64::max);
    let last = curve.points.last().filter(|_| peak > 0.0)?;
    Some(last.throughput / peak)
}

fn measurements(measured: &Measured, modelled: &[Curve], busy: &str) -> Vec<Measurement> {
    let note = format!("what adaptive backoff processed at most while it was looked for{busy}");
    let highest = Measurement::new(
        "receive/guest/highest",
        measured.highest,
        "packets/s",
        String::new(),
        note,
    );
    let mut all = vec![highest];
    for curve in &measured.curves {
        let (name, peak) = (curve.mode.name(), curve.peak().max(1.0));
        let last = curve.points.len() - 1;
        for (at, point) in curve.points.iter().enumerate() {
            let note = format!(
                "{}; {:.0} of {:.0} packets/s, p99 {}, {:.0} % of the processor left; the host \
                 ran it for {:.0} % of the time{busy}",
                curve.mode.what(),
                point.processed,
                point.offered,
                figures::time(point.p99),
                100.0 * point.left,
                100.0 * point.share,
            );
            let name = format!("receive/guest/{name}@{}", point.load);
            let value = point.processed / peak;
            let mut one = Measurement::new(name, value, "share of peak", String::new(), note);
            if let Some(kept) = kept(modelled, curve.mode).filter(|_| at == last) {
                one.beside("model", kept);
            }
            all.push(one);
        }
        if let Some(half) = curve.points.iter().find(|point| point.load == 0.5) {
            let name = format!("receive/guest/{name}/cpu-left");
            let note = format!("at half of the highest rate{busy}");
            all.push(Measurement::new(name, half.left, "share", String::new(), note));
        }
    }
    all
}

fn constants(constants: &Constants) -> String {
    let time = figures::time;
    format!(
        "a packet: {} to take it from the ring, {} in the stack, {} in the program; {} an \
         interrupt, {} a poll, {} a wake-up of the program",
        time(constants.accept),
        time(constants.protocol),
        time(constants.application),
        time(constants.interrupt),
        time(constants.poll),
        time(constants.wake)
    )
}

fn table(measured: &Measured, modelled: &[Curve]) -> String {
    let mut text = format!(
        "a guest under QEMU, one processor; highest rate {:.0} packets/s, latencies to {}\n",
        measured.highest,
        figures::time(measured.clock)
    );
    if let Some(found) = measured.constants() {
        text += &constants(&found);
        text.push('\n');
    }
    if let Some(passed) = measured.passed {
        text += &format!(
            "the adapter: {} frames into the guest's memory, {} dropped without a buffer\n",
            passed.received, passed.lost
        );
    }
    let Some(first) = measured.curves.first() else { return text };
    let loads: String = first.points.iter().map(|point| format!("{:>7}", point.load)).collect();
    text += &format!("{:22}{loads}   of peak  model  left at most  share\n", "processed/s, at");
    for curve in &measured.curves {
        let each: String =
            curve.points.iter().map(|point| format!("{:>7.0}", point.processed)).collect();
        let Some(last) = curve.points.last() else { continue };
        let kept = kept(modelled, curve.mode).map_or("-".to_owned(), |kept| format!("{kept:.2}"));
        let share = curve.points.iter().map(|point| point.share).fold(1.0, f64::min);
        let disturbed = if share < SHARE_MIN { "  disturbed" } else { "" };
        text += &format!(
            "{:22}{each}   {:>7.2}  {kept:>5}  {:>10.0} %  {share:>5.2}{disturbed}\n",
            curve.mode.name(),
            last.processed / curve.peak().max(1.0),
            100.0 * last.left,
        );
    }
    text + "rates are for each second in which the host ran the guest's processor; `share`: how \
            much of the time that was, at least\n"
}

/// The guest and its model, on one page.
fn page(measured: &Measured, machine: &Machine, modelled: &[Curve]) -> String {
    let capacity = machine.capacity();
    let here: Vec<Curve> = measured
        .curves
        .iter()
        .map(|curve| {
            let points = curve.points.iter().map(|point| Point {
                load: point.offered / capacity,
                throughput: point.processed / capacity,
                p50: point.p50,
                p99: point.p99,
                idle: point.left,
                interrupts: 0.0,
            });
            let era = way(curve.mode).era;
            Curve { name: curve.mode.name(), era, points: points.collect() }
        })
        .collect();
    let found = measured.constants().map_or(String::new(), |found| constants(&found));
    let what = format!("a guest of Debian's kernel under QEMU, measured; {found}");
    let guest = Machine { what, ..machine.clone() };
    chart::html(&[(&guest, &here), (machine, modelled)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSTANTS: Constants = Constants {
        accept: 5e-6,
        protocol: 20e-6,
        application: 30e-6,
        poll: 10e-6,
        wake: 10e-6,
        interrupt: 10e-6,
    };

    #[test]
    fn in_the_model_interrupts_collapse_and_a_clock_does_not() {
        let machine = machine(&CONSTANTS);
        let kept = |mode: Mode| {
            let curve = sweep::curve(&machine, &way(mode), 1);
            kept(&[curve], mode).unwrap()
        };
        assert!(kept(Mode::Interrupts) < 0.1 && kept(Mode::Timed) > 0.9);
    }

    #[test]
    fn ways_are_chosen_by_their_beginning() {
        assert_eq!(modes("").unwrap().len(), Mode::ALL.len());
        assert_eq!(modes("NAPI@10").unwrap(), [Mode::Napi, Mode::Deferred]);
        assert_eq!(modes("threaded").unwrap(), [Mode::Threaded]);
        assert!(modes("none").unwrap_err().0.contains("adaptive backoff"));
    }
}
