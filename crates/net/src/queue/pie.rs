//! PIE: a drop probability that a controller moves until the waiting time is what it should be.
//!
//! ```text
//! in --> (drop or mark with p) --> [ newest | ... | oldest ] --> out, whose waiting time
//!              ^---- p += alpha (delay - target) + beta (delay - old delay), each update ---'
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                     |
//! |-----------|---------|----------|-------------------------------------------------------------|
//! | `target`  | time    | 15 ms    | QDELAY_REF  (§4.2)                                          |
//! | `update`  | time    | 15 ms    | T_UPDATE  (§4.2)                                            |
//! | `burst`   | time    | 150 ms   | MAX_BURST, in which nothing is dropped  (§4.4)              |
//! | `alpha`   | 1/s     | 0.125    | weight of the deviation  (§4.2)                             |
//! | `beta`    | 1/s     | 1.25     | weight of its trend  (§4.2)                                 |
//! | `mark`    | 1       | 0.1      | up to this p packets are marked instead of dropped  (§5.1)  |
//! | `mean`    | size    | 1500 B   | MEAN_PKTSIZE: with two of these waiting none is dropped     |
//! | `ecn`     | flag    | false    | mark instead of dropping where both ends understand         |
//! | `packets` | packets | no limit | most packets that it holds (TAIL_DROP)                      |
//! | `bytes`   | size    | no limit | most bytes that it holds                                    |
//!
//! Source: RFC 8033, §4, §5.1, §5.2 and its appendix A; randomness is evened out (§5.4, between 0.85
//! and 8.5). Deviations: the delay is the waiting time of the packet that left last (timestamps, which
//! §5.2 allows), zero while empty. Updates that fall due while nobody calls are made up for at the next
//! call, all with the delay of then; after [`UPDATES_MAX`] of them the rest are skipped.

use super::flows::{BYTES, Bank, PACKETS, Room, of_bank};
use super::red::{ECN, MARKED, PROBABILITY};
use super::{Described, Queue, Site, Unit};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Ecn, Packet, Stream, Time, here};

/// Updates that one call makes up for: 0.98 to this is below the least p that matters.
const UPDATES_MAX: u32 = 1000;

/// What PIE is told; see the table above.
#[derive(Clone, Debug)]
pub struct PieOptions {
    /// The waiting time that it aims at.
    pub target: Duration,
    /// Between updates of p.
    pub update: Duration,
    /// In which nothing is dropped after rest.
    pub burst: Duration,
    /// Weight of the deviation, per second.
    pub alpha: f64,
    /// Weight of its trend, per second.
    pub beta: f64,
    /// Up to this p packets are marked.
    pub mark: f64,
    /// Length of a usual packet.
    pub mean: Bytes,
    /// Whether packets are marked.
    pub ecn: bool,
    /// The hard limit.
    pub room: Room,
}

impl PieOptions {
    /// The values of RFC 8033, without a hard limit.
    pub const RFC_8033: PieOptions = PieOptions {
        target: Duration::from_ms(15),
        update: Duration::from_ms(15),
        burst: Duration::from_ms(150),
        alpha: 0.125,
        beta: 1.25,
        mark: 0.1,
        mean: Bytes(1500),
        ecn: false,
        room: Room::UNLIMITED,
    };
}

/// A first-in, first-out queue under PIE.
#[derive(Debug)]
pub struct Pie {
    bank: Bank,
    options: PieOptions,
    random: Stream,
    p: f64,
    accumulated: f64,
    delay: Duration,
    delay_old: Duration,
    burst_left: Duration,
    update_at: Time,
    marked: u64,
}

impl Pie {
    /// Empty, drawing from `random`.
    pub fn new(options: PieOptions, random: Stream) -> Pie {
        let mut bank = Bank::new(options.room);
        bank.reach(0);
        let update_at = Time::START + options.update;
        Pie {
            bank,
            burst_left: options.burst,
            options,
            random,
            p: 0.0,
            accumulated: 0.0,
            delay: Duration::ZERO,
            delay_old: Duration::ZERO,
            update_at,
            marked: 0,
        }
    }

    fn catch_up(&mut self, now: Time) {
        for _ in 0..UPDATES_MAX {
            if self.update_at > now {
                return;
            }
            self.calculate();
            self.update_at = self.update_at.saturating_add(self.options.update);
        }
        self.update_at = now.saturating_add(self.options.update);
    }

    /// RFC 8033 §4.2 and appendix A, `calculate_drop_prob`.
    fn calculate(&mut self) {
        let (delay, old) = (self.delay.as_secs_f64(), self.delay_old.as_secs_f64());
        let target = self.options.target.as_secs_f64();
        let mut step = self.options.alpha * (delay - target) + self.options.beta * (delay - old);
        step *= match self.p {
            p if p < 0.000_001 => 1.0 / 2048.0,
            p if p < 0.000_01 => 1.0 / 512.0,
            p if p < 0.000_1 => 1.0 / 128.0,
            p if p < 0.001 => 1.0 / 32.0,
            p if p < 0.01 => 1.0 / 8.0,
            p if p < 0.1 => 1.0 / 2.0,
            _ => 1.0,
        };
        if self.p >= 0.1 {
            step = step.min(0.02);
        }
        self.p += step;
        if self.delay.is_zero() && self.delay_old.is_zero() {
            self.p *= 0.98;
        }
        self.p = self.p.clamp(0.0, 1.0);
        self.delay_old = self.delay;
        self.burst_left = self.burst_left.saturating_sub(self.options.update);
    }

    /// RFC 8033 §4.1 and §5.4, `drop_early`.
    fn drops(&mut self) -> bool {
        let half = self.options.target / 2;
        let calm = self.delay_old < half && self.p < 0.2;
        if calm || self.bank.fifo(0).length(Unit::Bytes) <= 2 * self.options.mean.0 {
            return false;
        }
        if self.p == 0.0 {
            self.accumulated = 0.0;
        }
        self.accumulated += self.p;
        let drop = match self.accumulated {
            low if low < 0.85 => false,
            high if high >= 8.5 => true,
            _ => self.random.chance(self.p),
        };
        if drop {
            self.accumulated = 0.0;
        }
        drop
    }
}

impl Queue for Pie {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        self.catch_up(now);
        if !self.bank.fits(packet.len) {
            return Err(packet);
        }
        let half = self.options.target / 2;
        if self.p == 0.0 && self.delay < half && self.delay_old < half {
            self.burst_left = self.options.burst;
        }
        if self.burst_left.is_zero() && self.drops() {
            if !(self.options.ecn && self.p <= self.options.mark && packet.ecn.is_capable()) {
                self.bank.discard(packet, "pie");
                return Ok(());
            }
            packet.ecn = Ecn::Ce;
            self.marked += 1;
        }
        packet.entered = now;
        self.bank.push(0, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.catch_up(now);
        let packet = self.bank.pop(0);
        self.delay = match &packet {
            Some(packet) if self.bank.packets > 0 => now.saturating_since(packet.entered),
            _ => Duration::ZERO,
        };
        packet
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

const GAIN: ParamKind = ParamKind::Number { min: 0.0, max: 1000.0 };

impl Described for Pie {
    const PAGE: &'static Page = &Page {
        name: "pie",
        family: Family::Queue,
        what: "PIE: drops at random so often that the waiting time is what it should be.",
        ports: "in --> (drop or mark with p) --> [ newest | ... | oldest ] --> out\n\
                drops: `pie`, `full`",
        params: &[
            Param::or("target", ParamKind::Time, "15 ms", "the waiting time that it aims at"),
            Param::or("update", ParamKind::Time, "15 ms", "between updates of p"),
            Param::or("burst", ParamKind::Time, "150 ms", "nothing is dropped so long after rest"),
            Param::or("alpha", GAIN, "0.125", "weight of the deviation, per second"),
            Param::or("beta", GAIN, "1.25", "weight of its trend, per second"),
            Param::or("mark", PROBABILITY, "0.1", "up to this p packets are marked, not dropped"),
            Param::or("mean", ParamKind::PACKET, "1500 B", "with two of these none is dropped"),
            ECN,
            PACKETS,
            BYTES,
        ],
        source: "RFC 8033, §4, §5.1, §5.2, §5.4, appendix A",
        deviations: &["Updates that fall due while nobody calls are made at the next call."],
        counters: &[MARKED],
        example: r#"
duration = "100 ms"
[nodes]
alice = { host = {} }
bob = { host = {} }
[[links]]
between = ["alice", "bob"]
rate = "10 Mbit/s"
queue = { pie = { packets = 1000 } }
[[traffic]]
name = "telemetry"
from = "alice"
to = "bob"
poisson = { rate = "9 Mbit/s", size = "1500 B" }
"#,
        place: here!(),
    };

    fn build(values: &Values, site: &Site<'_>) -> Pie {
        let options = PieOptions {
            target: values.get("target"),
            update: values.get::<Duration>("update").max(Duration::from_us(1)),
            burst: values.get("burst"),
            alpha: values.get("alpha"),
            beta: values.get("beta"),
            mark: values.get("mark"),
            mean: values.get("mean"),
            ecn: values.get("ecn"),
            room: Room::from_values(values, site),
        };
        Pie::new(options, site.stream())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet, victims};

    fn at(ms: u64) -> Time {
        Time::START + Duration::from_ms(ms)
    }
    fn pie(options: PieOptions) -> Pie {
        Pie::new(options, Stream::new(1, "pie"))
    }

    /// RFC 8033 §4.4: a burst shorter than the allowance passes whole.
    #[test]
    fn a_burst_within_the_allowance_loses_nothing() {
        let mut queue = pie(PieOptions::RFC_8033);
        (0..100).for_each(|_| queue.enqueue(at(0), packet(0, 1500)).unwrap());
        (1..=100).for_each(|ms| assert!(queue.dequeue(at(ms)).is_some()));
        assert_eq!(victims(&mut queue), []);
    }

    /// RFC 8033 §4.2: one step by hand, with the scale for small p.
    #[test]
    fn p_moves_by_the_formula() {
        let mut queue = pie(PieOptions::RFC_8033);
        (queue.p, queue.delay, queue.delay_old) =
            (0.05, Duration::from_ms(25), Duration::from_ms(20));
        queue.calculate();
        let step = (0.125 * 0.010 + 1.25 * 0.005) / 2.0;
        assert!((queue.p - 0.05 - step).abs() < 1e-12, "{}", queue.p);
        (queue.delay, queue.delay_old) = (Duration::ZERO, Duration::ZERO);
        let before = queue.p;
        queue.calculate();
        assert!((queue.p - (before - 0.125 * 0.015 / 2.0) * 0.98).abs() < 1e-12);
    }

    /// A source that does not give way, 20 % too fast: PIE has to lose a sixth of it, and keeps
    /// the delay near its target.
    #[test]
    fn an_unresponsive_overload_is_held_at_the_target() {
        let mut queue = pie(PieOptions::RFC_8033);
        let (mut delays, mut lost) = (Vec::new(), 0);
        for us in (0..60_000_000u64).step_by(100) {
            let now = Time::START + Duration::from_us(us);
            if us % 1000 == 0
                && let Some(packet) = queue.dequeue(now)
            {
                delays.push((now - packet.entered).as_secs_f64());
            }
            if us % 800 == 0 {
                queue.enqueue(now, packet(0, 1000)).unwrap();
            }
            let victims = victims(&mut queue).len();
            lost += if us > 30_000_000 { victims } else { 0 };
        }
        let late = &delays[delays.len() / 2..];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        assert!((0.010..0.020).contains(&mean), "{mean}");
        // 30 s at 1250 packets a second, of which 1000 pass.
        assert!((7_000..8_000).contains(&lost), "{lost}");
    }

    #[test]
    fn loses_nothing_unsaid() {
        let us = Duration::from_us;
        let quick =
            PieOptions { target: us(5), update: us(5), burst: us(10), ..PieOptions::RFC_8033 };
        check::holds(pie(PieOptions { room: Room::packets(50), ..quick.clone() }), &check::USUAL);
        check::holds(pie(PieOptions { ecn: true, mark: 1.0, ..quick }), &check::USUAL);
    }
}
