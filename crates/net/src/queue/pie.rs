//! PIE: a controller adjusts the drop probability to keep the queueing delay at its target.
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
//! | `burst`   | time    | 150 ms   | MAX_BURST, the burst during which nothing is dropped (§4.4) |
//! | `alpha`   | 1/s     | 0.125    | gain for the deviation from the target  (§4.2)              |
//! | `beta`    | 1/s     | 1.25     | gain for the change of delay  (§4.2)                        |
//! | `mark`    | 1       | 0.1      | below this p packets are marked, not dropped  (§5.1)        |
//! | `mean`    | size    | 1500 B   | MEAN_PKTSIZE: up to two of these may wait without drops     |
//! | `ecn`     | flag    | false    | mark instead of dropping if both ends support ECN         |
//! | `packets` | packets | no limit | limit on packets held (TAIL_DROP)                      |
//! | `bytes`   | size    | no limit | limit on bytes held                                    |
//!
//! Source: RFC 8033, §4, appendix A, with the options of §5.1 (ECN), §5.4 (derandomisation, between
//! 0.85 and 8.5) and §5.5 (cap on a step of p) as appendix B has them.
//!
//! Deviations. The delay is the waiting time of the packet that left last (timestamps, §4.3), and zero
//! once the queue is empty, as in Linux; the RFC keeps the last one. §5.3 (active and inactive) is
//! omitted, as in appendix A: p decays while both delays are zero (§4.2; appendix B: below half the
//! target) and the burst allowance is checked before the draw (appendix B draws first). Updates that fall due
//! between calls are made at the next call, all with the delay at that time; beyond 1000
//! they are skipped.

use super::flows::{BYTES, Bank, PACKETS, Room, of_bank};
use super::red::{ECN, MARKED, PROBABILITY};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Ecn, Packet, Stream, Time, here};

/// Limit on overdue updates made by one call: 0.98 to this power is below the least p that matters.
const UPDATES_MAX: u32 = 1000;

/// Parameters of PIE; see the table above.
#[derive(Clone, Debug)]
pub struct PieOptions {
    /// Target queueing delay.
    pub target: Duration,
    /// Time between updates of p.
    pub update: Duration,
    /// Burst after an idle time during which nothing is dropped.
    pub burst: Duration,
    /// Gain for the deviation from the target, per second.
    pub alpha: f64,
    /// Gain for the change of delay, per second.
    pub beta: f64,
    /// Below this p packets are marked.
    pub mark: f64,
    /// Typical packet length.
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

    pub(super) fn from_values(values: &Values, site: &Site<'_>) -> PieOptions {
        PieOptions {
            target: values.get("target"),
            update: values.get::<Duration>("update").max(Duration::from_us(1)),
            burst: values.get("burst"),
            alpha: values.get("alpha"),
            beta: values.get("beta"),
            mark: values.get("mark"),
            mean: values.get("mean"),
            ecn: values.get("ecn"),
            room: Room::from_values(values, site),
        }
    }
}

/// The control law, for one queue of a bank.
#[derive(Clone, Debug)]
pub(super) struct Law {
    p: f64,
    accumulated: f64,
    delay: Duration,
    delay_old: Duration,
    burst_left: Duration,
    update_at: Time,
}

/// The reason for its drops.
pub(super) const REASON: &str = "pie";

impl Law {
    /// At rest, from `now` on.
    pub(super) fn new(now: Time, options: &PieOptions) -> Law {
        Law {
            p: 0.0,
            accumulated: 0.0,
            delay: Duration::ZERO,
            delay_old: Duration::ZERO,
            burst_left: options.burst,
            update_at: now + options.update,
        }
    }

    /// Makes the updates that are due.
    pub(super) fn catch_up(&mut self, now: Time, options: &PieOptions) {
        for _ in 0..UPDATES_MAX {
            if self.update_at > now {
                return;
            }
            self.calculate(options);
            self.update_at += options.update;
        }
        self.update_at = now + options.update;
    }

    /// RFC 8033 §4.2 and appendix A, `calculate_drop_prob`.
    fn calculate(&mut self, options: &PieOptions) {
        let (delay, old) = (self.delay.as_secs_f64(), self.delay_old.as_secs_f64());
        let target = options.target.as_secs_f64();
        let mut step = options.alpha * (delay - target) + options.beta * (delay - old);
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
        self.burst_left = self.burst_left.saturating_sub(options.update);
    }

    /// RFC 8033 §4.1 and §5.4, `drop_early`, with this much in the queue.
    fn drops(&mut self, options: &PieOptions, waiting: Bytes, random: &mut Stream) -> bool {
        let half = options.target / 2;
        let calm = self.delay_old < half && self.p < 0.2;
        if calm || waiting.0 <= 2 * options.mean.0 {
            return false;
        }
        if self.p == 0.0 {
            self.accumulated = 0.0;
        }
        self.accumulated += self.p;
        let drop = match self.accumulated {
            low if low < 0.85 => false,
            high if high >= 8.5 => true,
            _ => random.chance(self.p),
        };
        if drop {
            self.accumulated = 0.0;
        }
        drop
    }

    /// Whether an arrival is admitted, perhaps with a mark, which is counted in `marked`.
    pub(super) fn admits(
        &mut self,
        options: &PieOptions,
        waiting: Bytes,
        random: &mut Stream,
        packet: &mut Packet,
        marked: &mut u64,
    ) -> bool {
        let half = options.target / 2;
        if self.p == 0.0 && self.delay < half && self.delay_old < half {
            self.burst_left = options.burst;
        }
        if !self.burst_left.is_zero() || !self.drops(options, waiting, random) {
            return true;
        }
        let marks = options.ecn && self.p < options.mark && packet.ecn.is_capable();
        if marks {
            packet.ecn = Ecn::Ce;
            *marked += 1;
        }
        marks
    }

    /// Appendix B: a drop on overflow counts as an early drop.
    pub(super) fn overflowed(&mut self) {
        self.accumulated = 0.0;
    }

    /// What left, and the backlog that it left behind.
    pub(super) fn departed(&mut self, now: Time, packet: Option<&Packet>, behind: Bytes) {
        self.delay = match packet {
            Some(packet) if behind > Bytes::ZERO => now.saturating_since(packet.entered),
            _ => Duration::ZERO,
        };
    }
}

/// A first-in, first-out queue under PIE.
#[derive(Debug)]
pub struct Pie {
    bank: Bank,
    options: PieOptions,
    random: Stream,
    law: Law,
    marked: u64,
}

impl Pie {
    /// Empty, drawing from `random`.
    pub fn new(options: PieOptions, random: Stream) -> Pie {
        let mut bank = Bank::new(options.room);
        bank.reach(0);
        Pie { bank, law: Law::new(Time::START, &options), options, random, marked: 0 }
    }
}

impl Queue for Pie {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        self.law.catch_up(now, &self.options);
        if !self.bank.fits(packet.len) {
            self.law.overflowed();
            return Err(packet);
        }
        let Pie { law, options, random, marked, .. } = self;
        if !law.admits(options, self.bank.bytes, random, &mut packet, marked) {
            self.bank.discard(packet, REASON);
            return Ok(());
        }
        packet.entered = now;
        self.bank.push(0, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.law.catch_up(now, &self.options);
        let packet = self.bank.pop(0);
        self.law.departed(now, packet.as_ref(), self.bank.bytes);
        packet
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

const GAIN: ParamKind = ParamKind::Number { min: 0.0, max: 1000.0 };

/// The parameters of the control law.
pub(super) const OWN: [Param; 7] = [
    Param::or("target", ParamKind::Time, "15 ms").is("target queueing delay"),
    Param::or("update", ParamKind::Time, "15 ms").is("time between updates of p"),
    Param::or("burst", ParamKind::Time, "150 ms")
        .is("burst after an idle time during which nothing is dropped"),
    Param::or("alpha", GAIN, "0.125").is("gain for the deviation from the target, per second"),
    Param::or("beta", GAIN, "1.25").is("gain for the change of delay, per second"),
    Param::or("mark", PROBABILITY, "0.1").is("below this p packets are marked, not dropped"),
    Param::or("mean", ParamKind::PACKET, "1500 B")
        .is("up to two packets of this size may wait without drops"),
];

impl Described for Pie {
    const PAGE: &'static Page = &Page {
        name: "pie",
        family: Family::Queue,
        what: "PIE: a drop probability that keeps the queueing delay at its target.",
        ports: "in --> (drop or mark with p) --> [ newest | ... | oldest ] --> out",
        params: &[OWN[0], OWN[1], OWN[2], OWN[3], OWN[4], OWN[5], OWN[6], ECN, PACKETS, BYTES],
        source: "RFC 8033, §4, §5.1, §5.4, §5.5, appendices A and B",
        deviations: &[
            "The delay is zero once the queue is empty, as in Linux.",
            "It is always active (§5.3 is omitted).",
            "Updates that fall due between calls are made at the next call.",
        ],
        counters: &[MARKED],
        drops: &[FULL, ("pie", "packets dropped at random")],
        example: one_queue!("pie = { packets = 1000 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Pie {
        Pie::new(PieOptions::from_values(values, site), site.stream())
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
    fn drops(queue: &mut Pie) -> bool {
        queue.law.drops(&queue.options, queue.bank.bytes, &mut queue.random)
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
        (queue.law.p, queue.law.delay, queue.law.delay_old) =
            (0.05, Duration::from_ms(25), Duration::from_ms(20));
        queue.law.calculate(&queue.options);
        let step = (0.125 * 0.010 + 1.25 * 0.005) / 2.0;
        assert!((queue.law.p - 0.05 - step).abs() < 1e-12, "{}", queue.law.p);
        (queue.law.delay, queue.law.delay_old) = (Duration::ZERO, Duration::ZERO);
        let before = queue.law.p;
        queue.law.calculate(&queue.options);
        assert!((queue.law.p - (before - 0.125 * 0.015 / 2.0) * 0.98).abs() < 1e-12);
    }

    /// RFC 8033 §4.2: a step of alpha x 10 ms, divided according to the table of ranges of p, whose
    /// boundaries belong to the range above; §5.5 caps it from p = 0.1 up.
    #[test]
    fn the_step_is_scaled_by_the_table_of_ranges_of_p() {
        let (target, delay) = (Duration::from_ms(15), Duration::from_ms(25));
        let divisors: [(f64, f64); 9] = [
            (0.0, 2048.0),
            (0.000_001, 512.0),
            (0.000_01, 128.0),
            (0.000_1, 32.0),
            (0.000_9, 32.0),
            (0.001, 8.0),
            (0.01, 2.0),
            (0.099, 2.0),
            (0.1, 1.0),
        ];
        for (p, divisor) in divisors {
            let mut queue = pie(PieOptions { target, ..PieOptions::RFC_8033 });
            (queue.law.p, queue.law.delay, queue.law.delay_old) = (p, delay, delay);
            queue.law.calculate(&queue.options);
            assert!(
                (queue.law.p - p - 0.125 * 0.010 / divisor).abs() < 1e-15,
                "{p} {}",
                queue.law.p
            );
        }
        let mut steep = pie(PieOptions::RFC_8033);
        (steep.law.p, steep.law.delay, steep.law.delay_old) =
            (0.1, Duration::from_secs(1), Duration::ZERO);
        steep.law.calculate(&steep.options);
        assert!((steep.law.p - 0.12).abs() < 1e-12, "{}", steep.law.p);
    }

    /// RFC 8033 §4.1 and §4.4: packets that pass without a draw.
    #[test]
    fn packets_are_drawn_only_under_congestion_and_without_allowance() {
        let full = |bytes: u64| {
            let mut queue = pie(PieOptions::RFC_8033);
            for _ in 0..bytes / 100 {
                queue.bank.push(0, packet(0, 100));
            }
            (queue.law.p, queue.law.delay_old, queue.law.accumulated) =
                (0.5, Duration::from_ms(20), 8.0);
            queue
        };
        // At most two packets of MEAN_PKTSIZE wait: 3000 bytes.
        assert!(!drops(&mut full(3000)) && drops(&mut full(3100)));
        let mut low = full(9000);
        (low.law.p, low.law.delay_old) = (0.19, Duration::from_ms(7));
        assert!(!drops(&mut low), "a delay below half the target, and p below 0.2");
        (low.law.p, low.law.accumulated) = (0.5, 8.0);
        assert!(drops(&mut low), "p is 0.2 or more");
        let mut queue = full(9000);
        queue.law.update_at = Time::MAX;
        queue.law.burst_left = Duration::from_ms(15);
        queue.enqueue(at(0), packet(0, 100)).unwrap();
        assert_eq!(victims(&mut queue), [], "the allowance is not used up");
        queue.law.burst_left = Duration::ZERO;
        queue.law.accumulated = 8.0;
        queue.enqueue(at(0), packet(0, 100)).unwrap();
        assert_eq!(victims(&mut queue), [(0, "pie")]);
        // Congestion is over: the allowance is full again.
        (queue.law.p, queue.law.delay, queue.law.delay_old) =
            (0.0, Duration::from_ms(7), Duration::ZERO);
        queue.enqueue(at(0), packet(0, 100)).unwrap();
        assert_eq!(queue.law.burst_left, Duration::from_ms(150));
    }

    /// RFC 8033 §5.4: drops are at least 0.85/p and at most 8.5/p packets apart.
    #[test]
    fn gaps_between_drops_lie_between_the_thresholds() {
        let mut queue = pie(PieOptions::RFC_8033);
        (0..100).for_each(|_| queue.bank.push(0, packet(0, 100)));
        (queue.law.p, queue.law.delay_old) = (0.05, Duration::from_ms(20));
        let (mut gap, mut gaps) = (0, Vec::new());
        while gaps.len() < 2000 {
            gap += 1;
            if drops(&mut queue) {
                gaps.push(std::mem::take(&mut gap));
            }
        }
        assert!(gaps.iter().all(|gap| (17..=171).contains(gap)), "{:?}", gaps.iter().max());
        assert!(gaps.contains(&17));
    }

    /// RFC 8033 §5.1: below mark_ecnth packets are marked, from there on dropped.
    #[test]
    fn packets_are_marked_below_the_threshold_and_dropped_from_it_on() {
        for (p, marked) in [(0.099, 1), (0.1, 0)] {
            let mut queue = pie(PieOptions { ecn: true, ..PieOptions::RFC_8033 });
            (0..100).for_each(|_| queue.bank.push(0, packet(0, 100)));
            (queue.law.p, queue.law.delay_old, queue.law.accumulated) =
                (p, Duration::from_ms(20), 8.5);
            (queue.law.burst_left, queue.law.update_at) = (Duration::ZERO, Time::MAX);
            let mut capable = packet(1, 100);
            capable.ecn = Ecn::Ect0;
            queue.enqueue(at(0), capable).unwrap();
            assert_eq!((queue.marked, victims(&mut queue).len()), (marked, 1 - marked as usize));
            assert_eq!(queue.law.accumulated, 0.0);
        }
    }

    /// An unresponsive source, 20 % too fast: PIE has to drop a sixth of it, and keeps
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
        // 30 s at 1250 packets per second, of which 1000 pass.
        assert!((7_000..8_000).contains(&lost), "{lost}");
    }

    #[test]
    fn accounts_for_every_packet() {
        let us = Duration::from_us;
        let quick =
            PieOptions { target: us(5), update: us(5), burst: us(10), ..PieOptions::RFC_8033 };
        check::holds(pie(PieOptions { room: Room::packets(50), ..quick.clone() }), &check::USUAL);
        check::holds(pie(PieOptions { ecn: true, mark: 1.0, ..quick }), &check::USUAL);
    }
}
