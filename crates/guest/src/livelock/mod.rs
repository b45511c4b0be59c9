//! Livelock in a real kernel: datagrams to a guest faster than it can take them, by how its driver receives.
//!
//! ```text
//! load (0.1 to 10 times the guest's highest rate) --> virtio-net ---------> [ guest/driver: a mode ]
//!                                                                             stack --> guest/sink: work for each
//!                                                                             what is left --> a second program
//! ```
//!
//! One guest with one processor runs all modes, one after another. Each load lasts for a window, of which the program
//! in the guest is told by its own clock: pings before each step say how far that is ahead of ours, and the shortest of
//! their round trips bounds the error. What is left of the processor is what the second program gets done in the
//! window, compared with what it gets done alone.
//!
//! The adapter is QEMU's, or one that is described and then drops what it has no buffer for, at no cost to the guest.
//!
//! Rows: E-96, E-100, E-101, E-102, E-103, E-104, E-106.

mod far;
mod mode;
mod wire;

pub use far::Passed;
pub use mode::Mode;
pub use wire::{Datagram, Kind, Offered, Wire};

use crate::kit::{self, Error, Guest, Kit, Options};
use far::Far;
use lastmeter_host::adapter::description::Description;
use lastmeter_linux::clock::{Precedence, nanoseconds};
use std::time::{Duration, Instant};
use wire::{GUEST, GUEST_IP, PEER, PEER_IP, shifted};

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Modes, in order.
    pub modes: Vec<Mode>,
    /// Loads, in multiples of the guest's highest rate, at most [`LOADS_MAX`].
    pub loads: Vec<f64>,
    /// The program's work for each datagram, where nothing interrupts it.
    pub work: Duration,
    /// How long each load is measured.
    pub lasts: Duration,
    /// The time that all has.
    pub limit: Duration,
    /// The guest's adapter; without one, QEMU's.
    pub adapter: Option<Description>,
}

/// Time between two polls of [`Mode::Timed`].
pub const PERIOD: Duration = Duration::from_millis(2);

/// Loads of a plan, at most; each is a step of the program in the guest.
pub const LOADS_MAX: usize = 40;

/// A mode at a load. Rates are for each second in which the host ran the guest's processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The load as it was planned, in multiples of the guest's highest rate.
    pub load: f64,
    /// Datagrams a second that were offered.
    pub offered: f64,
    /// Datagrams a second that the program processed.
    pub processed: f64,
    /// The share of the processor that was left to the second program.
    pub left: f64,
    /// Seconds from sent to processed: half and 99 of 100 took less. 0 where nothing was processed.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// The share of the time in which the host ran the guest's processor, which was never idle.
    pub share: f64,
}

/// A mode at all loads.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The mode.
    pub mode: Mode,
    /// By load.
    pub points: Vec<Point>,
    /// What its driver counted, over all loads.
    pub driver: Counters,
    /// What was left of the processor without load.
    idle: f64,
    /// The lowest load, to another host.
    elsewhere: Point,
    /// Half of the datagrams at the highest load were processed within this many seconds of the one before.
    gap: f64,
    /// The mean share of the processor, by which times are multiplied.
    share: f64,
}

impl Curve {
    /// The point with the most datagrams processed.
    pub fn peak(&self) -> f64 {
        self.points.iter().map(|point| point.processed).fold(0.0, f64::max)
    }
}

/// What the driver counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Interrupts handled.
    pub interrupts: f64,
    /// Packets taken from the ring.
    pub packets: f64,
    /// Seconds in the handlers of [`Mode::Interrupts`].
    pub handler: f64,
    /// Seconds in polls, the stack included.
    pub receive: f64,
}

/// What reception costs the guest, in seconds of its processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// The interrupt handler for each packet, at overload: [`Mode::Interrupts`].
    pub accept: f64,
    /// The stack for each packet, up to the socket's queue: polls of [`Mode::Timed`] without `accept`.
    pub protocol: f64,
    /// The program for each datagram when the next one waits already: [`Mode::Timed`] at the highest load.
    pub application: f64,
    /// An interrupt that wakes nobody: what [`Mode::Interrupts`] takes for frames to another host beyond `accept`.
    pub interrupt: f64,
    /// To wake the program up and to go back: what [`Mode::Interrupts`] takes at the lowest load, where each datagram
    /// has its own interrupt, beyond all of the above.
    pub wake: f64,
    /// A poll that finds nothing, with its timer and the switch to its thread: [`Mode::Timed`] without load.
    pub poll: f64,
}

/// All that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The guest's highest rate, in datagrams a second: what adaptive backoff processed at most while it was looked
    /// for.
    pub highest: f64,
    /// The curves, in the plan's order.
    pub curves: Vec<Curve>,
    /// Seconds by which latencies may be wrong: half of the longest of the shortest round trips.
    pub clock: f64,
    /// What passed the plan's adapter.
    pub passed: Option<Passed>,
}

impl Measured {
    /// The guest's constants; `None` without the curves of [`Mode::Interrupts`] and [`Mode::Timed`].
    pub fn constants(&self) -> Option<Constants> {
        let of = |mode| self.curves.iter().find(|curve| curve.mode == mode);
        let (interrupts, timed) = (of(Mode::Interrupts)?, of(Mode::Timed)?);
        let each = |seconds: f64, curve: &Curve| {
            (curve.driver.packets > 0.0).then(|| seconds * curve.share / curve.driver.packets)
        };
        let accept = each(interrupts.driver.handler, interrupts)?;
        // A poll takes its packets from the ring, too.
        let protocol = (each(timed.driver.receive, timed)? - accept).max(0.0);
        // A median, which what the host took away does not change.
        let application = timed.gap;
        let work = accept + protocol + application;
        let elsewhere = interrupts.elsewhere;
        if elsewhere.offered <= 0.0 {
            return None;
        }
        let interrupt = (interrupts.idle - elsewhere.left) / elsewhere.offered - accept;
        let interrupt = interrupt.max(0.0);
        let low = interrupts.points.first().filter(|point| point.processed > 0.0)?;
        let each = (interrupts.idle - low.left) / low.processed;
        let wake = (each - work - interrupt).max(0.0);
        let poll = (1.0 - timed.idle) * PERIOD.as_secs_f64();
        Some(Constants { accept, protocol, application, interrupt, wake, poll })
    }
}

/// A step as it was offered.
#[derive(Clone, Copy, Debug)]
struct Step {
    load: f64,
    offered: Offered,
    seconds: f64,
    share: f64,
}

/// A line of the program in the guest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    processed: u64,
    burned: f64,
    p50: f64,
    p99: f64,
    gap: f64,
}

/// `step NAME STEP PROCESSED BURNED P50 P99 GAP`.
fn counted(line: &str, name: &str) -> Option<(usize, Counted)> {
    let mut words = line.strip_prefix("step ")?.strip_prefix(name)?.split_whitespace();
    let step = words.next()?.parse().ok()?;
    let processed = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    let burned = number()?;
    let (p50, p99, gap) = (number()? / 1e9, number()? / 1e9, number()? / 1e9);
    Some((step, Counted { processed, burned, p50, p99, gap }))
}

/// `driver NAME INTERRUPTS PACKETS HANDLER-NS RECEIVE-NS`.
fn driver(text: &str, name: &str) -> Counters {
    let of = |line: &str| {
        let mut words = line.strip_prefix("driver ")?.strip_prefix(name)?.split_whitespace();
        let mut number =
            || words.next()?.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        let (interrupts, packets) = (number()?, number()?);
        let (handler, receive) = (number()? / 1e9, number()? / 1e9);
        Some(Counters { interrupts, packets, handler, receive })
    };
    text.lines().find_map(of).unwrap_or_default()
}

/// The entry point of fuzzing: what a program in a guest sends and writes.
pub fn fuzz(bytes: &[u8]) {
    wire::fuzz(bytes);
    let text = String::from_utf8_lossy(bytes);
    for (_, counted) in text.lines().filter_map(|line| counted(line, "run0")) {
        assert!(counted.burned >= 0.0 && counted.p50.is_finite());
    }
    assert!(driver(&text, "run0").packets >= 0.0);
}

/// The first port; each run of the program has its own, so that an answer of one is not taken for another's.
const PORT: u16 = 9000;
/// How long a load runs before it counts.
const WARM: Duration = Duration::from_millis(150);
/// Pings before each step, and how long an answer is waited for.
const PINGS: usize = 10;
const ANSWER: Duration = Duration::from_millis(60);
/// How long a guest may take to be there, or to recover from a load.
const PATIENCE: Duration = Duration::from_secs(40);
/// Loads with which the highest rate is looked for: the first, in datagrams a second, and its growth.
const FIRST: f64 = 4000.0;
const GROWTH: f64 = 1.5;
const GROWN: usize = 6;
/// The load for constants, where the plan has no lower one: few packets share an interrupt.
const LOWEST: f64 = 0.1;

struct Bench<'a> {
    guest: Guest,
    wire: Wire,
    plan: &'a Plan,
    port: u16,
    clock: f64,
    /// What the second program does in 10 ms of its processor when nothing else wants it.
    alone: f64,
    progress: &'a mut dyn FnMut(&str),
}

fn wired<T>(result: std::io::Result<T>) -> kit::Result<T> {
    let doing = "talking to the program in the guest".to_owned();
    result.map_err(|source| Error::System { doing, source })
}

impl Bench<'_> {
    /// Waits for a datagram of the program that runs now.
    fn answer(
        &mut self,
        within: Duration,
        wanted: impl Fn(&Datagram) -> bool,
    ) -> kit::Result<Option<Datagram>> {
        self.guest.in_time()?;
        let until = Instant::now() + within;
        loop {
            while let Some((port, datagram)) = wired(self.wire.receive())? {
                if port == self.port && wanted(&datagram) {
                    return Ok(Some(datagram));
                }
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Nanoseconds by which the guest's clock is ahead of ours. Waits until the guest answers again.
    fn ahead(&mut self) -> kit::Result<i128> {
        let mut best: Option<(u64, i128)> = None;
        let (began, mut answered) = (Instant::now(), 0);
        while answered < PINGS {
            if began.elapsed() > PATIENCE {
                let found = "did not answer any more".to_owned();
                return Err(Error::Ended { found, console: self.guest.console() });
            }
            let sent = nanoseconds();
            let ping = Datagram { kind: Kind::Ping, step: 0, from: 0, until: 0, sent };
            wired(self.wire.send(&ping, 1))?;
            let wanted = |answer: &Datagram| answer.kind == Kind::Ping && answer.sent == sent;
            let Some(answer) = self.answer(ANSWER, wanted)? else { continue };
            let now = nanoseconds();
            answered += 1;
            let trip = now - sent;
            if best.is_none_or(|(shortest, _)| trip < shortest) {
                let guest = (i128::from(answer.from) + i128::from(answer.until)) / 2;
                best = Some((trip, guest - i128::from(sent / 2 + now / 2)));
            }
        }
        let (trip, ahead) = best.unwrap_or_default();
        self.clock = self.clock.max(trip as f64 / 2e9);
        Ok(ahead)
    }

    /// Offers a load; `rate` may be zero.
    fn step(&mut self, step: usize, load: f64, rate: f64) -> kit::Result<Step> {
        self.offer(step, load, rate, false)
    }

    fn offer(&mut self, step: usize, load: f64, rate: f64, other: bool) -> kit::Result<Step> {
        let ahead = self.ahead()?;
        let begin = nanoseconds();
        let from = begin + WARM.as_nanos() as u64;
        let until = from + self.plan.lasts.as_nanos() as u64;
        let datagram = Datagram {
            kind: Kind::Load,
            step: step as u64,
            from: shifted(from, ahead),
            until: shifted(until, ahead),
            sent: shifted(begin, ahead),
        };
        // The program learns of the window, whatever the rate.
        wired(self.wire.send(&datagram, 1))?;
        if other {
            wired(self.wire.aim_elsewhere(self.port))?;
        }
        let before = self.guest.processor_time();
        let offered = wired(self.wire.offer(datagram, rate, until, ahead))?;
        let seconds = (nanoseconds() - begin) as f64 / 1e9;
        let used = self.guest.processor_time().zip(before).map(|(after, before)| after - before);
        wired(self.wire.aim(self.port))?;
        let share = used.map_or(1.0, |used| used.as_secs_f64() / seconds);
        Ok(Step { load, offered, seconds, share })
    }

    /// Offers a load that is for another host.
    fn elsewhere(&mut self, step: usize, load: f64, rate: f64) -> kit::Result<Step> {
        self.offer(step, load, rate, true)
    }

    /// Ends the program, and reads what it counted.
    fn counts(&mut self, name: &str) -> kit::Result<(Vec<(usize, Counted)>, Counters)> {
        let end = Datagram { kind: Kind::End, step: 0, from: 0, until: 0, sent: 0 };
        let began = Instant::now();
        loop {
            wired(self.wire.send(&end, 1))?;
            if self.answer(ANSWER, |answer| answer.kind == Kind::Bye)?.is_some() {
                break;
            }
            if began.elapsed() > PATIENCE {
                let found = "did not end its program".to_owned();
                return Err(Error::Ended { found, console: self.guest.console() });
            }
        }
        let ended = format!("ended {name}\n");
        let text = self.guest.until(|guest| {
            let output = guest.output();
            output.contains(&ended).then_some(output)
        })?;
        let steps = text.lines().filter_map(|line| counted(line, name)).collect();
        Ok((steps, driver(&text, name)))
    }

    /// Waits until the program listens at the next port.
    fn begin(&mut self) -> kit::Result<()> {
        self.port += 1;
        wired(self.wire.aim(self.port))?;
        let began = Instant::now();
        while self.answer(ANSWER, |answer| answer.kind == Kind::Hello)?.is_none() {
            if began.elapsed() > PATIENCE {
                let found = "did not start its program".to_owned();
                return Err(Error::Ended { found, console: self.guest.console() });
            }
        }
        Ok(())
    }

    /// The guest's highest rate: of several loads, each greater than the one before, the most that was processed.
    fn highest(&mut self) -> kit::Result<f64> {
        (self.progress)("the highest rate");
        self.begin()?;
        let mut steps = vec![self.step(0, 0.0, 0.0)?];
        let mut rate = FIRST;
        for step in 1..=GROWN {
            let step = self.step(step, 0.0, rate)?;
            steps.push(step);
            rate *= GROWTH;
        }
        let (counts, _) = self.counts("highest")?;
        let lasts = self.plan.lasts.as_secs_f64();
        let rate = |(at, counted): &(usize, Counted)| {
            let share = steps.get(*at)?.share;
            Some(counted.processed as f64 / lasts / share)
        };
        let most = counts.iter().filter_map(rate).fold(0.0, f64::max);
        let alone = counts.iter().find(|(at, _)| *at == 0);
        self.alone = alone.map_or(0.0, |(_, counted)| counted.burned) / steps[0].share;
        if most > 0.0 && self.alone > 0.0 {
            return Ok(most);
        }
        let found = "processed nothing".to_owned();
        Err(Error::Ended { found, console: self.guest.console() })
    }

    fn curve(&mut self, at: usize, mode: Mode, highest: f64) -> kit::Result<Curve> {
        self.begin()?;
        (self.progress)(&format!("{} without load", mode.name()));
        let mut steps = vec![self.step(0, 0.0, 0.0)?];
        let lowest = self.plan.loads.iter().copied().fold(LOWEST, f64::min);
        steps.push(self.elsewhere(1, lowest, lowest * highest)?);
        for (step, load) in self.plan.loads.clone().into_iter().enumerate() {
            (self.progress)(&format!("{} at {load}", mode.name()));
            steps.push(self.step(step + 2, load, load * highest)?);
        }
        let (counts, driver) = self.counts(&format!("run{at}"))?;
        let of =
            |step: usize| counts.iter().find(|(at, _)| *at == step).map(|(_, counted)| counted);
        let lasts = self.plan.lasts.as_secs_f64();
        // Both are for a second of the processor.
        let burned = |at: usize| of(at).map_or(0.0, |counted| counted.burned) / steps[at].share;
        let left = |at: usize| (burned(at) / self.alone).min(1.0);
        let nothing = Counted { processed: 0, burned: 0.0, p50: 0.0, p99: 0.0, gap: 0.0 };
        let point = |(step, offered): (usize, &Step)| {
            let counted = of(step).unwrap_or(&nothing);
            Point {
                load: offered.load,
                offered: offered.offered.due as f64 / offered.seconds / offered.share,
                processed: counted.processed as f64 / lasts / offered.share,
                left: left(step),
                p50: counted.p50,
                p99: counted.p99,
                share: offered.share,
            }
        };
        let mut points = steps.iter().enumerate().skip(1).map(point);
        let Some(elsewhere) = points.next() else {
            let found = "was offered nothing".to_owned();
            return Err(Error::Ended { found, console: self.guest.console() });
        };
        let (points, idle) = (points.collect(), left(0));
        let gap = of(steps.len() - 1).map_or(0.0, |counted| counted.gap);
        let share = steps.iter().map(|step| step.share).sum::<f64>() / steps.len() as f64;
        Ok(Curve { mode, points, driver, idle, elsewhere, gap, share })
    }
}

/// What the guest does: for each mode the driver, the interface and the program.
fn command(plan: &Plan) -> String {
    let mut text = String::new();
    let highest = [("highest".to_owned(), Mode::Backoff)];
    let runs = plan.modes.iter().enumerate().map(|(at, mode)| (format!("run{at}"), *mode));
    for (run, (name, mode)) in highest.into_iter().chain(runs).enumerate() {
        let (parameters, settings) = mode.setting();
        let (work, port) = (plan.work.as_micros(), usize::from(PORT) + 1 + run);
        let polls = mode.polls_for();
        text += &format!(
            "insmod /lib/modules/lastmeter_net.ko {parameters} || exit 1\n\
             ip addr add {GUEST_IP}/24 dev eth0\n{settings}ip link set eth0 up\n\
             arp -i eth0 -s {PEER_IP} {PEER}\n\
             sink {name} {work} {PEER_IP} {port} {polls} || exit 2\n\
             cd /sys/module/lastmeter_net/parameters\n\
             echo driver {name} $(cat interrupts packets handler_ns receive_ns)\n\
             cd /\n\
             echo ended {name}\n\
             ip link set eth0 down\nrmmod lastmeter_net\n"
        );
    }
    text
}

/// Runs a plan; `progress` is told of each step.
///
/// # Errors
/// The kit is not there, or the guest does not do its part.
pub fn measure(kit: &Kit, plan: &Plan, progress: &mut dyn FnMut(&str)) -> kit::Result<Measured> {
    for piece in [kit.has("sink"), kit.has_module("lastmeter_net")] {
        if !piece {
            return Err(Error::Missing("the guest's driver or program".to_owned()));
        }
    }
    if plan.loads.len() > LOADS_MAX {
        let source = std::io::Error::other(format!("at most {LOADS_MAX} loads"));
        return Err(Error::System { doing: "planning".to_owned(), source });
    }
    let folder = kit::Folder::new()?;
    let socket = folder.path().join("wire");
    let (far, network) = wired(Far::new(plan.adapter.as_ref(), &socket))?;
    let modules = kit.modules()?.into_iter().filter(|module| module != "virtio_net").collect();
    let options = Options {
        network,
        mac: Some(GUEST.to_owned()),
        modules: Some(modules),
        command: command(plan),
        limit: plan.limit,
        nice: Some(NICE),
        ..Options::default()
    };
    progress("the guest starts");
    // What offers the load comes before other programs, too.
    let _precedence = Precedence::take();
    run(kit, plan, &options, far, progress)
}

fn run(
    kit: &Kit,
    plan: &Plan,
    options: &Options,
    far: Far,
    progress: &mut dyn FnMut(&str),
) -> kit::Result<Measured> {
    let guest = Guest::start(kit, options)?;
    // QEMU was connected before the guest's serial ports were.
    let (stream, adapter) = wired(far.connected())?;
    let wire = wired(Wire::new(stream))?;
    let mut bench = Bench { guest, wire, plan, port: PORT, clock: 0.0, alone: 1.0, progress };
    let highest = bench.highest()?;
    let mut curves = Vec::new();
    for (at, mode) in plan.modes.iter().enumerate() {
        curves.push(bench.curve(at, *mode, highest)?);
    }
    let clock = bench.clock;
    bench.guest.wait()?;
    Ok(Measured { highest, curves, clock, passed: adapter.and_then(far::end) })
}

/// Before other programs, with the rights for it.
const NICE: i32 = -10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_program_are_read() {
        let line = "step run1 3 1200 41.5 1000000 2500000000 500000";
        let expected = Counted { processed: 1200, burned: 41.5, p50: 1e-3, p99: 2.5, gap: 5e-4 };
        assert_eq!(counted(line, "run1"), Some((3, expected)));
        assert_eq!(counted(line, "run2"), None);
        assert_eq!(counted("step run1 3 1200 nan 1 1 1", "run1"), None);
        assert_eq!(counted("step run1 3", "run1"), None);
        let counts = Counters { interrupts: 5.0, packets: 9.0, handler: 2.0, receive: 1.0 };
        let text = "x\ndriver run1 5 9 2000000000 1000000000\n";
        assert_eq!(driver(text, "run1"), counts);
        assert_eq!(driver(text, "run2"), Counters::default());
    }

    #[test]
    fn constants_come_from_what_was_counted() {
        let point = |processed, left| Point {
            load: 0.1,
            offered: 1000.0,
            processed,
            left,
            p50: 0.0,
            p99: 0.0,
            share: 1.0,
        };
        let driver = Counters { interrupts: 1.0, packets: 1000.0, handler: 0.01, receive: 0.02 };
        let curve = |mode, left, share| Curve {
            mode,
            points: vec![point(1000.0, left)],
            driver,
            idle: 0.99,
            elsewhere: point(1000.0, 0.95),
            gap: 40e-6,
            share,
        };
        let curves = vec![curve(Mode::Interrupts, 0.85, 1.0), curve(Mode::Timed, 0.9, 1.0)];
        let measured = Measured { highest: 1.0, curves, clock: 0.0, passed: None };
        let found = measured.constants().unwrap();
        // 1000 frames to another host take 4 %, 40 us each, of which the handler has 10. 1000 datagrams take 14 %,
        // 140 us each, of which 60 are work and 30 the interrupt. 500 polls without load take 1 %.
        let expected = [10e-6, 10e-6, 40e-6, 30e-6, 50e-6, 20e-6];
        let found = [
            found.accept,
            found.protocol,
            found.application,
            found.interrupt,
            found.wake,
            found.poll,
        ];
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
        assert!(Measured { curves: Vec::new(), ..measured }.constants().is_none());
    }
}
