//! DualPI2: a low-latency queue for scalable senders beside one for all others, coupled so that they
//! share the link as if it were one.
//!
//! ```text
//!      /-> L (Ect1, Ce) [ ... ] mark with max(ramp of its delay, k p') -\
//! in --+                                                                +--> out, mostly L first
//!      \-> C (others)   [ ... ] drop or mark with p'^2 -----------------/
//!                        p' += alpha (delay - target) + beta (delay - old delay), each update
//! ```
//!
//! | Parameter  | Unit    | Default  | Meaning                                                    |
//! |------------|---------|----------|------------------------------------------------------------|
//! | `target`   | time    | 15 ms    | delay of C that it aims at                                 |
//! | `update`   | time    | 15 ms    | between updates of p'                                      |
//! | `alpha`    | 1/s     | 0.15     | weight of the deviation                                    |
//! | `beta`     | 1/s     | 3        | weight of its trend                                        |
//! | `coupling` | 1       | 2        | k: L is marked with k p'                                   |
//! | `ramp-min` | time    | 800 us   | delay of L at which its ramp begins                        |
//! | `ramp`     | time    | 400 us   | from there to marking all                                  |
//! | `classic`  | 1       | 0.0625   | least share of the link for C while it waits (ours: bytes) |
//! | `packets`  | packets | no limit | most packets of both                                       |
//! | `bytes`    | size    | no limit | most bytes of both                                         |
//!
//! Source: RFC 9332, §4 and appendix A, with its defaults as far as we have them from memory: check
//! `alpha`, `beta` and the ramp against the appendix before a result rests on them. Deviations: delays
//! are waiting times of heads at updates and of packets as they leave; the scheduler is priority for L
//! with a share in bytes kept for C (the RFC allows weighted round robin); above p' = 1/k drops take
//! the place of marks in both queues, with p'^2, as its overload rule asks in other words.

use super::flows::{BYTES, Bank, PACKETS, Room, of_bank};
use super::red::{MARKED, PROBABILITY};
use super::{Described, Queue, Site};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Duration, Ecn, Packet, Stream, Time, here};

/// What DualPI2 is told; see the table above.
#[derive(Clone, Debug)]
pub struct DualPi2Options {
    /// Delay of the classic queue that it aims at.
    pub target: Duration,
    /// Between updates.
    pub update: Duration,
    /// Weight of the deviation, per second.
    pub alpha: f64,
    /// Weight of its trend, per second.
    pub beta: f64,
    /// k.
    pub coupling: f64,
    /// Where the ramp of L begins.
    pub ramp_min: Duration,
    /// How long it is.
    pub ramp: Duration,
    /// Least share of the classic queue.
    pub classic: f64,
    /// Of both queues.
    pub room: Room,
}

impl DualPi2Options {
    /// The defaults of the table.
    pub fn usual(room: Room) -> DualPi2Options {
        DualPi2Options {
            target: Duration::from_ms(15),
            update: Duration::from_ms(15),
            alpha: 0.15,
            beta: 3.0,
            coupling: 2.0,
            ramp_min: Duration::from_us(800),
            ramp: Duration::from_us(400),
            classic: 0.0625,
            room,
        }
    }
}

const L: usize = 0;
const C: usize = 1;
/// Updates that one call makes up for.
const UPDATES_MAX: u32 = 1000;

/// Two coupled queues.
#[derive(Debug)]
pub struct DualPi2 {
    bank: Bank,
    options: DualPi2Options,
    random: Stream,
    /// p' of the RFC.
    base: f64,
    delay_old: f64,
    update_at: Time,
    /// Bytes that C may still claim; negative after it was served.
    credit: f64,
    marked: u64,
}

impl DualPi2 {
    /// Empty, drawing from `random`.
    pub fn new(options: DualPi2Options, random: Stream) -> DualPi2 {
        let mut bank = Bank::new(options.room);
        bank.reach(C);
        let update_at = Time::START + options.update;
        DualPi2 {
            bank,
            options,
            random,
            base: 0.0,
            delay_old: 0.0,
            update_at,
            credit: 0.0,
            marked: 0,
        }
    }
    /// How long the head of a queue has waited.
    fn delay(&self, now: Time, at: usize) -> f64 {
        self.bank
            .fifo(at)
            .head()
            .map_or(0.0, |head| now.saturating_since(head.entered).as_secs_f64())
    }
    fn catch_up(&mut self, now: Time) {
        for _ in 0..UPDATES_MAX {
            if self.update_at > now {
                return;
            }
            // The longer of both, so that L alone is controlled too.
            let delay = self.delay(self.update_at, C).max(self.delay(self.update_at, L));
            self.calculate(delay);
            self.update_at = self.update_at.saturating_add(self.options.update);
        }
        self.update_at = now.saturating_add(self.options.update);
    }
    fn calculate(&mut self, delay: f64) {
        let DualPi2Options { alpha, beta, target, .. } = self.options;
        let step = alpha * (delay - target.as_secs_f64()) + beta * (delay - self.delay_old);
        self.base = (self.base + step).clamp(0.0, 1.0);
        self.delay_old = delay;
    }
    /// L while it has anything, but for the share that C is owed.
    fn turn(&mut self) -> Option<usize> {
        match (self.bank.fifo(L).is_empty(), self.bank.fifo(C).is_empty()) {
            (true, true) => None,
            (false, true) => Some(L),
            (true, false) => Some(C),
            (false, false) => Some(if self.credit > 0.0 { C } else { L }),
        }
    }
    /// The mark that a packet of L deserves after it has waited for so long.
    fn ramp(&self, delay: Duration) -> f64 {
        let above = delay.saturating_sub(self.options.ramp_min).as_secs_f64();
        match self.options.ramp.is_zero() {
            true => f64::from(u8::from(above > 0.0)),
            false => (above / self.options.ramp.as_secs_f64()).min(1.0),
        }
    }
}

impl Queue for DualPi2 {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        self.catch_up(now);
        if !self.bank.fits(packet.len) {
            return Err(packet);
        }
        packet.entered = now;
        let at = if matches!(packet.ecn, Ecn::Ect1 | Ecn::Ce) { L } else { C };
        self.bank.push(at, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.catch_up(now);
        loop {
            let at = self.turn()?;
            let both = !self.bank.fifo(L).is_empty() && !self.bank.fifo(C).is_empty();
            let mut packet = self.bank.pop(at)?;
            let len = packet.len.0 as f64;
            self.credit += match (both, at) {
                (false, _) => -self.credit,
                (true, L) => len * self.options.classic / (1.0 - self.options.classic).max(1e-9),
                (true, _) => -len,
            };
            let classic = self.base * self.base;
            let coupled = self.options.coupling * self.base;
            if at == L && coupled <= 1.0 {
                let ramp = self.ramp(now.saturating_since(packet.entered));
                if self.random.chance(ramp.max(coupled)) {
                    packet.ecn = Ecn::Ce;
                    self.marked += 1;
                }
                return Some(packet);
            }
            if !self.random.chance(classic) {
                return Some(packet);
            }
            if packet.ecn.is_capable() && coupled <= 1.0 {
                packet.ecn = Ecn::Ce;
                self.marked += 1;
                return Some(packet);
            }
            self.bank.discard(packet, "dual-pi2");
        }
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

const GAIN: ParamKind = ParamKind::Number { min: 0.0, max: 1000.0 };

impl Described for DualPi2 {
    const PAGE: &'static Page = &Page {
        name: "dual-pi2",
        family: Family::Queue,
        what: "DualPI2: a queue for scalable senders beside one for all others, coupled.",
        ports: "in --> [ L: Ect1, Ce ] [ C: others ] --> mostly L first --> out\n\
                drops: `dual-pi2`, `full`",
        params: &[
            Param::or("target", ParamKind::Time, "15 ms", "delay of the classic queue to aim at"),
            Param::or("update", ParamKind::Time, "15 ms", "between updates of p'"),
            Param::or("alpha", GAIN, "0.15", "weight of the deviation, per second"),
            Param::or("beta", GAIN, "3", "weight of its trend, per second"),
            Param::or("coupling", GAIN, "2", "k: the low-latency queue is marked with k p'"),
            Param::or("ramp-min", ParamKind::Time, "800 us", "delay at which its own ramp begins"),
            Param::or("ramp", ParamKind::Time, "400 us", "from there to marking all"),
            Param::or("classic", PROBABILITY, "0.0625", "least share of the classic queue"),
            PACKETS,
            BYTES,
        ],
        source: "RFC 9332, §4, appendix A",
        deviations: &[
            "Priority for L with a share in bytes for C is the scheduler.",
            "The defaults stand as remembered, not as checked against the appendix.",
        ],
        counters: &[MARKED],
        example: r#"
duration = "100 ms"
[nodes]
alice = { host = {} }
bob = { host = {} }
[[links]]
between = ["alice", "bob"]
rate = "10 Mbit/s"
queue = { dual-pi2 = { packets = 1000 } }
[[traffic]]
name = "telemetry"
from = "alice"
to = "bob"
poisson = { rate = "9 Mbit/s", size = "1500 B" }
"#,
        place: here!(),
    };

    fn build(values: &Values, site: &Site<'_>) -> DualPi2 {
        let options = DualPi2Options {
            target: values.get("target"),
            update: values.get::<Duration>("update").max(Duration::from_us(1)),
            alpha: values.get("alpha"),
            beta: values.get("beta"),
            coupling: values.get("coupling"),
            ramp_min: values.get("ramp-min"),
            ramp: values.get("ramp"),
            classic: values.get("classic"),
            room: Room::from_values(values, site),
        };
        DualPi2::new(options, site.stream())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};

    fn dual() -> DualPi2 {
        DualPi2::new(DualPi2Options::usual(Room::UNLIMITED), Stream::new(1, "dual"))
    }
    fn scalable(flow: u32) -> Packet {
        let mut packet = packet(flow, 1000);
        packet.ecn = Ecn::Ect1;
        packet
    }

    /// RFC 9332 §2.1: L is marked with k p', C is dropped from with p'^2.
    #[test]
    fn the_law_of_squares_couples_the_queues() {
        let mut queue = dual();
        (queue.base, queue.update_at) = (0.2, Time::MAX);
        for _ in 0..40_000 {
            queue.enqueue(Time::START, scalable(0)).unwrap();
            queue.enqueue(Time::START, packet(1, 1000)).unwrap();
        }
        check::drain(&mut queue, Time::START);
        let drops = check::victims(&mut queue).len() as f64;
        assert!((queue.marked as f64 / 40_000.0 - 0.4).abs() < 0.01, "{}", queue.marked);
        assert!((drops / 40_000.0 - 0.04).abs() < 0.004, "{drops}");
    }

    #[test]
    fn the_low_latency_queue_goes_first_but_does_not_starve_the_other() {
        let mut queue = dual();
        queue.update_at = Time::MAX;
        for _ in 0..320 {
            queue.enqueue(Time::START, scalable(0)).unwrap();
            queue.enqueue(Time::START, packet(1, 1000)).unwrap();
        }
        let first: Vec<u32> =
            (0..160).filter_map(|_| queue.dequeue(Time::START)).map(|p| p.flow.0).collect();
        let classic = first.iter().sum::<u32>();
        assert!((9..=11).contains(&classic), "{classic} of 160");
    }

    #[test]
    fn p_moves_by_the_formula() {
        let mut queue = dual();
        queue.calculate(0.025);
        assert!((queue.base - (0.15 * 0.010 + 3.0 * 0.025)).abs() < 1e-12);
    }

    #[test]
    fn loses_nothing_unsaid() {
        let us = Duration::from_us;
        let usual = DualPi2Options::usual(Room::packets(40));
        let quick = DualPi2Options { target: us(5), update: us(5), beta: 900.0, ..usual };
        check::holds(DualPi2::new(quick, Stream::new(1, "dual")), &check::USUAL);
    }
}
