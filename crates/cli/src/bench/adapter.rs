//! `lastmeter bench adapter`: adapters that do not exist, under a real guest, beside what the model says of them.
//!
//! ```text
//! a turn:   guest on the reference --> on the first adapter --> on the second --> ...
//! each:     pings of three lengths, then TCP both ways, by `lastmeter live NAME --guest`
//! a row:    the middle of all turns, beside the reference's with what the model says that the adapter adds
//! ```
//!
//! The reference takes next to nothing, so what a ping takes there is the guest's, the peer's and this machine's.
//! The guest's driver is the stock one, with an interrupt for each ring where QEMU has vfio-user.
//!
//! Rows: E-44, E-60.

use crate::{Common, Complaint, Ended, output, progress, run};
use lastmeter_base::Bytes;
use lastmeter_bench::Measurement;
use lastmeter_guest::kit::Kit;
use lastmeter_guest::predict::{LONGEST, Predicted, predict};
use lastmeter_guest::seen::{self, middle};
use lastmeter_host::adapter::description::Description;
use lastmeter_lab::document::Override;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile::device;
use lastmeter_linux::load;
use std::process::Command;

/// The adapter that takes next to nothing.
const REFERENCE: &str = "simple-nic";
/// Bytes of a ping, and of its frame.
const PINGS: [(u64, Bytes); 3] = [(56, Bytes(98)), (472, Bytes(514)), (1400, Bytes(1442))];
/// What TCP's rows are called.
const WAYS: [&str; 2] = ["TCP from the guest", "TCP to the guest"];
/// Pings of each length.
const COUNT: usize = 40;
const COUNT_QUICK: usize = 10;
/// Seconds of TCP each way.
const SECONDS: u64 = 3;
/// Each adapter is measured so often.
const TURNS: usize = 3;
/// Bytes of TCP in the longest frame.
const PAYLOAD: f64 = 1448.0;
/// A frame without data, with time stamps.
const ACKNOWLEDGEMENT: Bytes = Bytes(66);
/// How long others are looked at before.
const LOOK: std::time::Duration = std::time::Duration::from_millis(500);
/// From this part of what the guest reaches with the reference, the guest limits TCP and not the adapter.
const GUEST_LIMITS: f64 = 0.8;
/// A guest that never sleeps takes the same time for each ping: waking an emulated processor takes longer than an
/// adapter, and varies more.
const AWAKE: [&str; 2] = ["--kernel", "idle=poll"];
/// The guest's driver is the stock one, on a PCI device with an interrupt for each ring.
const VIRTIO: [&str; 4] = ["--bus", "vfio", "--set", "host-interface.driver=virtio"];

/// Settings of the reference that are measured, too: a DMA of three speeds, late interrupts.
const SETTINGS: [(&str, &[&str]); 5] = [
    ("dma-0.25us", &["transfer.per-byte=0.25 us/B"]),
    ("dma-0.5us", &["transfer.per-byte=0.5 us/B"]),
    ("dma-1us", &["transfer.per-byte=1 us/B"]),
    ("late-50us", &["host-interface.coalescing=64", "host-interface.coalescing-time=50 us"]),
    ("late-500us", &["host-interface.coalescing=64", "host-interface.coalescing-time=500 us"]),
];

/// An adapter as it is measured.
struct Adapter {
    /// As in `cim`, `simple-nic/dma-1us`.
    name: String,
    bundled: String,
    sets: Vec<String>,
    card: Description,
    turns: Vec<Turn>,
}

/// What one guest saw.
#[derive(Clone, Copy)]
struct Turn {
    /// Median round-trip times, s.
    pings: [f64; PINGS.len()],
    /// From the guest, and to it, bit/s.
    tcp: [f64; 2],
    kept_up: bool,
}

/// A quantity of an adapter: what the model says, and what was measured.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    what: String,
    unit: &'static str,
    model: f64,
    measured: f64,
    /// The guest, not the adapter, decides.
    guest_limits: bool,
}

/// `part` is what follows `adapter/`.
pub(super) fn bench(common: &Common, part: &str) -> Result<Ended, Complaint> {
    let kit = Kit::find().map_err(|why| Complaint(why.to_string()))?;
    let bus: &[&str] = if kit.has_vfio() { &VIRTIO } else { &[] };
    let mut adapters = adapters(part)?;
    let turns = if common.quick { 1 } else { TURNS };
    let surroundings = load::others(LOOK)?;
    let bar = progress::bar((turns * adapters.len()) as u64);
    for _ in 0..turns {
        for adapter in &mut adapters {
            bar.set_message(adapter.name.clone());
            adapter.turns.push(turn(adapter, bus, common.quick)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let (reference, others) = adapters.split_first().expect("the reference is always measured");
    match common.json {
        true => reference.alone().iter().for_each(|one| {
            output::print(&serde_json::to_string(one).unwrap_or_default());
        }),
        false => output::print(&heading(reference)),
    }
    for adapter in others {
        let rows = adapter.rows(reference)?;
        match common.json {
            true => rows.iter().for_each(|row| {
                let one = row.measurement(adapter);
                output::print(&serde_json::to_string(&one).unwrap_or_default());
            }),
            false => output::print(&adapter.table(&rows)),
        }
    }
    if let Some(words) = load::words(surroundings) {
        output::note(&words);
    }
    Ok(Ended::Done)
}

/// The reference, and those whose names begin with `part`.
fn adapters(part: &str) -> Result<Vec<Adapter>, Complaint> {
    let bundled = Builtin.names(device::FOLDER).into_iter().filter(|name| *name != REFERENCE);
    let bundled = bundled.map(|name| (name.to_owned(), name.to_owned(), &[][..]));
    let settings = SETTINGS
        .map(|(name, sets)| (format!("{REFERENCE}/{name}"), REFERENCE.to_owned(), sets))
        .into_iter();
    let all: Vec<_> = settings.chain(bundled).collect();
    let wanted: Vec<_> = all.iter().filter(|(name, ..)| name.starts_with(part)).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        let names = names.join(", ");
        return Err(Complaint(format!("no adapter's name begins with `{part}`: {names}")));
    }
    let reference = (REFERENCE.to_owned(), REFERENCE.to_owned(), &[][..]);
    std::iter::once(&reference).chain(wanted).map(Adapter::new).collect()
}

impl Adapter {
    fn new((name, bundled, sets): &(String, String, &[&str])) -> Result<Adapter, Complaint> {
        let text = Builtin.profile(device::FOLDER, bundled).map_err(Complaint)?;
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let changes: Result<Vec<Override>, _> =
            sets.iter().map(|set| Override::parse(set)).collect();
        let card = changes
            .and_then(|changes| device::changed(bundled, text.as_bytes(), &changes, &Builtin))
            .map_err(|problems| run::rendered(&problems))?;
        let (name, bundled, turns) = (name.clone(), bundled.clone(), Vec::new());
        Ok(Adapter { name, bundled, sets, card, turns })
    }

    fn predict(&self, len: Bytes) -> Result<Predicted, Complaint> {
        let none = || Complaint(format!("{}: no room for frames of {len}", self.name));
        predict(&self.card, len).ok_or_else(none)
    }

    fn middle(&self, of: impl Fn(&Turn) -> f64) -> f64 {
        middle(self.turns.iter().map(of).collect())
    }

    /// What the model says beside what was measured.
    fn rows(&self, reference: &Adapter) -> Result<Vec<Row>, Complaint> {
        let mut rows = Vec::new();
        for (at, (_, frame)) in PINGS.into_iter().enumerate() {
            let takes = |adapter: &Adapter| {
                adapter.predict(frame).map(|one| (one.out + one.into).as_secs_f64())
            };
            let adds = takes(self)? - takes(reference)?;
            rows.push(Row {
                what: ping(frame),
                unit: "s",
                model: reference.middle(|turn| turn.pings[at]) + adds,
                measured: self.middle(|turn| turn.pings[at]),
                guest_limits: false,
            });
        }
        let (long, reply) = (self.predict(LONGEST)?, self.predict(ACKNOWLEDGEMENT)?);
        // An acknowledgement for every second segment goes the other way (RFC 5681, section 4.2).
        let rates = [long.rate.min(2.0 * reply.into_rate), long.into_rate.min(2.0 * reply.rate)];
        for (at, (way, frames)) in WAYS.iter().zip(rates).enumerate() {
            let model = frames * PAYLOAD * 8.0;
            rows.push(Row {
                what: (*way).to_owned(),
                unit: "bit/s",
                model,
                measured: self.middle(|turn| turn.tcp[at]),
                guest_limits: model > GUEST_LIMITS * reference.middle(|turn| turn.tcp[at]),
            });
        }
        Ok(rows)
    }

    /// What was measured, beside nothing.
    fn alone(&self) -> Vec<Measurement> {
        let new = |what: &str, value: f64, unit: &str| {
            let name = format!("adapter/{}/{what}", self.name);
            let note = format!("the reference; {}", self.certified());
            Measurement::new(name, value, unit, String::new(), note)
        };
        let pings = PINGS.iter().enumerate().map(|(at, (_, frame))| {
            let time = self.middle(|turn| turn.pings[at]);
            new(&ping(*frame), time, "s").lower_is_better()
        });
        let tcp = WAYS.iter().enumerate();
        let tcp = tcp.map(|(at, way)| new(way, self.middle(|turn| turn.tcp[at]), "bit/s"));
        pings.chain(tcp).collect()
    }

    fn certified(&self) -> String {
        let kept = self.turns.iter().filter(|turn| turn.kept_up).count();
        format!("{kept} of {} runs kept up", self.turns.len())
    }

    fn table(&self, rows: &[Row]) -> String {
        let mut text = format!("{}: {}\n", self.name, self.certified());
        text += &format!("  {:24} {:>14} {:>14}\n", "", "model", "measured");
        for row in rows {
            let [model, measured] =
                [row.model, row.measured].map(|value| super::quantity(value, row.unit));
            let beside = match row.guest_limits {
                true => "the guest limits".to_owned(),
                false => format!("{:+.1} %", 100.0 * (row.measured / row.model - 1.0)),
            };
            text += &format!("  {:24} {model:>14} {measured:>14}  {beside}\n", row.what);
        }
        text
    }
}

impl Row {
    fn measurement(&self, adapter: &Adapter) -> Measurement {
        let name = format!("adapter/{}/{}", adapter.name, self.what);
        let limits = if self.guest_limits { "the guest limits; " } else { "" };
        let note = format!("{limits}{}", adapter.certified());
        let mut one = Measurement::new(name, self.measured, self.unit, String::new(), note);
        one.beside("model", self.model);
        if self.unit == "s" { one.lower_is_better() } else { one }
    }
}

fn ping(frame: Bytes) -> String {
    format!("ping, frames of {frame}")
}

fn heading(reference: &Adapter) -> String {
    let pings = PINGS.iter().enumerate().map(|(at, (_, frame))| {
        let time = reference.middle(|turn| turn.pings[at]);
        format!("{} for a frame of {frame}", super::quantity(time, "s"))
    });
    let [out, into] =
        [0, 1].map(|at| super::quantity(reference.middle(|turn| turn.tcp[at]), "bit/s"));
    format!(
        "{REFERENCE}, the reference: pings take {}; TCP {out} from the guest, {into} to it; {}\n",
        pings.collect::<Vec<_>>().join(", "),
        reference.certified(),
    )
}

/// Has a guest measure once.
fn turn(adapter: &Adapter, bus: &[&str], quick: bool) -> Result<Turn, Complaint> {
    let failed = |why: String| Complaint(format!("{}: {why}", adapter.name));
    let count = if quick { COUNT_QUICK } else { COUNT };
    let pings = PINGS.map(|(len, _)| format!("ping -c {count} -i 0.05 -s {len} 10.77.0.1"));
    let tcp = ["", "-R"].map(|way| format!("iperf3 -c 10.77.0.1 -t {SECONDS} -f k {way}"));
    let script = [&pings[..], &tcp[..]].concat().join("; ");
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["--json", "live", &adapter.bundled, "--guest", "--spin", "200 us"]);
    command.args(AWAKE).args(bus);
    for set in &adapter.sets {
        command.args(["--set", set]);
    }
    let ended = command.args(["--", "sh", "-c", &script]).output();
    let ended = ended.map_err(|error| failed(error.to_string()))?;
    let value: serde_json::Value = serde_json::from_slice(&ended.stdout)
        .map_err(|_| failed(String::from_utf8_lossy(&ended.stderr).trim().to_owned()))?;
    let kept_up = value["certificate"]["kept_up"] == true;
    let output = value["guest"]["output"].as_str().unwrap_or_default();
    let missing = || failed(format!("its guest did not measure everything:\n{output}"));
    let seen = seen::read(output).ok_or_else(missing)?;
    let (Ok(pings), Ok(tcp)) = (seen.pings.try_into(), seen.tcp.try_into()) else {
        return Err(missing());
    };
    Ok(Turn { pings, tcp, kept_up })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_dma_adds_its_time_to_the_references() {
        let mut all = adapters("simple-nic/dma-1us").unwrap();
        let turn = Turn { pings: [1e-3; 3], tcp: [4e8; 2], kept_up: true };
        all.iter_mut().for_each(|adapter| adapter.turns.push(turn));
        let [reference, slow] = &all[..] else { panic!("one beside the reference") };
        let rows = slow.rows(reference).unwrap();
        // 98 bytes each way.
        assert!((rows[0].model - 1.196e-3).abs() < 1e-6, "{rows:?}");
        // 1448 of 1514 bytes at 1 us each.
        assert!((rows[3].model - 7.65e6).abs() < 1e5 && !rows[3].guest_limits, "{rows:?}");
        let alone: Vec<f64> = reference.alone().iter().map(|one| one.value).collect();
        assert_eq!(alone, [1e-3, 1e-3, 1e-3, 4e8, 4e8]);
        assert!(adapters("none").is_err());
    }
}
