//! Random early detection: drops or marks at random, depending on the mean length, before the queue is full.
//!
//! ```text
//!  probability
//!      1 |                      /|         gentle: rises to 1 between max and 2 max
//!        |                     / |         else:   all above max are dropped
//!      P |              ......'  |
//!      0 |_____________/.........|____ mean length
//!                     min  max  2 max
//! ```
//!
//! | Parameter     | Unit    | Default  | Meaning                                                  |
//! |---------------|---------|----------|----------------------------------------------------------|
//! | `min`         | packets | 5        | mean length below which nothing is dropped               |
//! | `max`         | packets | 15       | mean length at which `probability` is reached            |
//! | `min-bytes`   | size    | none     | replaces `min`, and counts lengths in bytes              |
//! | `max-bytes`   | size    | none     | replaces `max`                                           |
//! | `probability` | 1       | 0.1      | drop probability just below `max` (the paper: 0.02)      |
//! | `weight`      | 1       | 0.002    | w, weight of the current length in the mean              |
//! | `gentle`      | flag    | true     | the probability rises to 1 between `max` and twice `max` |
//! | `wait`        | flag    | true     | leave at least 1/p packets between drops (ns-2)          |
//! | `full-counts` | flag    | false    | a drop by a full buffer restarts the count, too          |
//! | `by-length`   | flag    | false    | probability in proportion to a packet's length           |
//! | `ecn`         | flag    | false    | mark instead of dropping if both ends support ECN        |
//! | `typical`     | size    | 1500 B   | reference packet of `by-length` and of the idle time s   |
//! | `packets`     | packets | no limit | limit on packets held                                    |
//! | `bytes`       | size    | no limit | limit on bytes held                                      |
//!
//! `min` and `max` grow with the buffers in a what-if. A full buffer refuses, whatever the mean. The
//! paper's byte mode (§6) is `min-bytes`, `max-bytes` and `by-length` together; each can be used alone.
//!
//! Source: Floyd & Jacobson, Random Early Detection Gateways, IEEE/ACM ToN 1(4), 1993, §4 and §7;
//! gentle: Floyd, 2000; wait: ns-2 `red.cc`. Deviations: after a drop `count` restarts from -1, as
//! initially; the paper's figure sets 0, which makes gaps uniform on 1 to 1/p - 1, not on 1 to
//! 1/p as derived in its §7. With `wait` it is 0 as in ns-2: gaps are uniform on 1/p to 2/p - 1. A drop
//! by a full buffer leaves `count` unchanged (the paper's figure has none; so does ns-3); with
//! `full-counts` it is as after an early drop (ns-2, unless its `ns1_compat_` is set). A packet that finds
//! at most one other waiting is kept whatever the mean, as in ns-2 and ns-3: a mean that lags
//! behind is no reason to let the link idle. Marks need `ecn`; above `max` (or twice `max`) drops
//! stay drops (RFC 3168 §7). The time s of a typical packet is that at the link's rate, or at 1 Gbit/s
//! if it has none. The line is idle once the last packet has been sent at that rate: until then an arrival
//! that finds nothing waiting counts as having found a length of 0, as in Linux, ns-2 and ns-3.
//!
//! Rows: D-74.

use super::flows::{BYTES, Bank, PACKETS, Room, Unit, of_bank};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Ecn, Packet, Rate, Stream, Time};

/// Parameters of RED; see the table above.
#[derive(Clone, Debug)]
pub struct RedOptions {
    /// The unit of lengths.
    pub unit: Unit,
    /// Mean length below which nothing is dropped.
    pub min: f64,
    /// Mean length at which `probability` is reached.
    pub max: f64,
    /// Probability of a drop just below `max`.
    pub probability: f64,
    /// Weight of the current length in the mean.
    pub weight: f64,
    /// Whether it rises to 1 between `max` and twice `max`.
    pub gentle: bool,
    /// Whether drops are at least 1/p packets apart.
    pub wait: bool,
    /// Whether a drop by a full buffer restarts the count.
    pub full_counts: bool,
    /// Whether long packets are more likely to be dropped.
    pub by_length: bool,
    /// Whether packets are marked.
    pub ecn: bool,
    /// The reference length of `by_length`.
    pub typical: Bytes,
    /// The transmission time of a typical packet: s.
    pub typical_time: Duration,
    /// The hard limit.
    pub room: Room,
}

/// With at most this many packets waiting, none is dropped early (ns-2).
const SPARED: u64 = 1;

/// What happens to an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// Early, so that a mark suffices.
    Early,
    /// The mean is too long for a mark.
    Forced,
}

/// A first-in, first-out queue with random early detection.
///
/// ```
/// use lastmeter_base::{Bytes, Packet, Stream, Time};
/// use lastmeter_net::queue::{Queue, Red, RedOptions, Room};
/// let options = RedOptions { weight: 1.0, max: 2.0, gentle: false, ..RedOptions::usual() };
/// let mut queue = Red::new(RedOptions { min: 1.0, ..options }, Stream::new(1, "red"));
/// for _ in 0..3 {
///     queue.enqueue(Time::START, Packet::new(Bytes(1500)))?;
/// }
/// assert_eq!(queue.dropped().map(|(_, reason)| reason), Some("red"));
/// # Ok::<(), Packet>(())
/// ```
#[derive(Debug)]
pub struct Red {
    bank: Bank,
    options: RedOptions,
    random: Stream,
    /// Mean length in the unit of the options.
    mean: f64,
    /// Packets since the last drop; -1 before the first.
    count: i64,
    /// When the line went idle, or will unless something arrives first.
    idle_since: Option<Time>,
    marked: u64,
}

impl RedOptions {
    /// The defaults, without a hard limit, on a link of 1 Gbit/s.
    pub fn usual() -> RedOptions {
        RedOptions {
            unit: Unit::Packets,
            min: 5.0,
            max: 15.0,
            probability: 0.1,
            weight: 0.002,
            gentle: true,
            wait: true,
            full_counts: false,
            by_length: false,
            ecn: false,
            typical: Bytes(1500),
            typical_time: Rate::from_gbit(1).time_for(Bytes(1500)),
            room: Room::UNLIMITED,
        }
    }
}

impl Red {
    /// An empty queue that draws from `random`.
    pub fn new(options: RedOptions, random: Stream) -> Red {
        let mut bank = Bank::new(options.room);
        bank.reach(0);
        let idle_since = Some(Time::START);
        Red { bank, options, random, mean: 0.0, count: -1, idle_since, marked: 0 }
    }

    /// §4, "calculate the average queue size": an idle time counts as m typical packets that found none.
    fn average(&mut self, now: Time) {
        let w = self.options.weight;
        match self.idle_since.filter(|&since| self.bank.packets == 0 && since <= now) {
            Some(since) => {
                let m = (now - since).as_ps() / self.options.typical_time.as_ps().max(1);
                self.mean *= (1.0 - w).powi(i32::try_from(m).unwrap_or(i32::MAX));
                // What has been counted is not counted again; the rest of a packet
                // time is kept for the next arrival.
                self.idle_since = Some(since + self.options.typical_time * m);
            }
            None => {
                let length = self.bank.fifo(0).length(self.options.unit) as f64;
                self.mean += w * (length - self.mean);
            }
        }
    }

    /// The result of [`Red::decide`], except for arrivals at a nearly empty queue.
    fn judge(&mut self, len: Bytes) -> Verdict {
        if self.bank.packets > SPARED {
            return self.decide(len);
        }
        self.count = -1;
        Verdict::Keep
    }

    fn decide(&mut self, len: Bytes) -> Verdict {
        let RedOptions { min, max, probability, gentle, .. } = self.options;
        let mut pb = if self.mean < min {
            self.count = -1;
            return Verdict::Keep;
        } else if self.mean < max {
            probability * (self.mean - min) / (max - min)
        } else if gentle && self.mean < 2.0 * max {
            probability + (1.0 - probability) * (self.mean - max) / max
        } else {
            self.count = -1;
            return Verdict::Forced;
        };
        if self.options.by_length {
            pb *= len.0 as f64 / self.options.typical.0.max(1) as f64;
        }
        self.count += 1;
        let (count, pb) = (self.count as f64, pb.clamp(0.0, 1.0));
        let passed = count * pb;
        let pa = match self.options.wait {
            true if passed < 1.0 => 0.0,
            true if passed < 2.0 => pb / (2.0 - passed),
            false if passed < 1.0 => pb / (1.0 - passed),
            _ => 1.0,
        };
        if self.random.unit() >= pa {
            return Verdict::Keep;
        }
        self.count_anew();
        Verdict::Early
    }

    fn count_anew(&mut self) {
        self.count = if self.options.wait { 0 } else { -1 };
    }
}

impl Red {
    /// The unit of lengths, and both limits.
    fn limits(values: &Values) -> (Unit, f64, f64) {
        let size = |name| values.given::<Bytes>(name).map(|size| size.0 as f64);
        match (size(MIN_BYTES), size(MAX_BYTES)) {
            (Some(min), Some(max)) => (Unit::Bytes, min, max),
            _ => (Unit::Packets, values.get("min"), values.get("max")),
        }
    }
}

const MIN_BYTES: &str = "min-bytes";
const MAX_BYTES: &str = "max-bytes";

impl Queue for Red {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        self.average(now);
        match self.judge(packet.len) {
            Verdict::Keep => {}
            Verdict::Early if self.options.ecn && packet.ecn.is_capable() => {
                packet.ecn = Ecn::Ce;
                self.marked += 1;
            }
            Verdict::Early | Verdict::Forced => {
                self.bank.discard(packet, "red");
                return Ok(());
            }
        }
        if !self.bank.fits(packet.len) {
            if self.options.full_counts {
                self.count_anew();
            }
            return Err(packet);
        }
        self.idle_since = None;
        self.bank.push(0, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        let packet = self.bank.pop(0);
        match &packet {
            // The line is idle now, whatever was computed.
            None => self.idle_since = Some(self.idle_since.map_or(now, |since| since.min(now))),
            Some(last) if self.bank.packets == 0 => {
                let RedOptions { typical, typical_time, .. } = self.options;
                let busy = typical_time.scale_ceil(last.len.0, typical.0.max(1));
                self.idle_since = Some(now + busy);
            }
            Some(_) => {}
        }
        packet
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

/// Whether packets are marked.
pub(super) const ECN: Param = Param::or("ecn", ParamKind::Flag, "false")
    .is("mark packets instead of dropping them, if both ends support ECN");
/// A counter of all marking disciplines.
pub(super) const MARKED: (&str, &str) = ("marked", "packets that were marked, not dropped");

impl Described for Red {
    const PAGE: &'static Page = &Page {
        name: "red",
        family: Family::Queue,
        what: "Random early detection: drops or marks at random, by the mean queue length.",
        ports: "in --> (mean length: keep, mark, drop) --> [ newest | ... | oldest ] --> out",
        params: &[
            Param::or("min", LENGTH, "5")
                .is("mean number of packets below which nothing is dropped"),
            Param::or("max", LENGTH, "15").is("mean number at which `probability` is reached"),
            Param::optional(MIN_BYTES, ParamKind::BUFFER, "`min`")
                .is("replaces `min`, and counts lengths in bytes"),
            Param::optional(MAX_BYTES, ParamKind::BUFFER, "`max`").is("replaces `max`"),
            Param::or("probability", PROBABILITY, "0.1").is("drop probability just below `max`"),
            Param::or("weight", PROBABILITY, "0.002")
                .is("weight of the current length in the mean"),
            Param::or("gentle", ParamKind::Flag, "true")
                .is("let the probability rise to 1 between `max` and twice `max`"),
            Param::or("wait", ParamKind::Flag, "true").is("at least 1/p packets between drops"),
            Param::or("full-counts", ParamKind::Flag, "false")
                .is("a drop by a full buffer restarts the count, too, as in ns-2"),
            Param::or("by-length", ParamKind::Flag, "false")
                .is("long packets are more likely to be dropped"),
            ECN,
            Param::or("typical", ParamKind::PACKET, "1500 B").is("length of a typical packet"),
            PACKETS,
            BYTES,
        ],
        source: "Floyd & Jacobson, IEEE/ACM ToN 1(4), 1993, §4, §7; gentle: Floyd 2000; wait: ns-2",
        deviations: &[
            "`count` restarts from -1 after a drop, so that gaps are uniform on 1 to 1/p (§7); \
             with `wait` from 0, as in ns-2.",
            "A packet that finds at most one other waiting is kept, as in ns-2 and ns-3.",
        ],
        counters: &[MARKED],
        drops: &[FULL, ("red", "packets dropped because of the mean length")],
        example: one_queue!("red = { packets = 50, min = 10, max = 30 }"),
        ..Page::at(here!())
    };

    fn fit(values: &Values) -> Result<(), Misfit> {
        for (name, other) in [(MIN_BYTES, MAX_BYTES), (MAX_BYTES, MIN_BYTES)] {
            if values.has(name) && !values.has(other) {
                let found = format!("`{name}` is given without `{other}`");
                return Err(Misfit::new(name, found, format!("add {other} = \"30 kB\"")));
            }
        }
        let (unit, min, max) = Red::limits(values);
        if min > max {
            let name = if unit == Unit::Bytes { MIN_BYTES } else { "min" };
            let found = format!("the lower limit, {min}, exceeds the upper one, {max}");
            return Err(Misfit::new(name, found, "raise the upper limit or lower this one"));
        }
        Ok(())
    }
    fn build(values: &Values, site: &Site<'_>) -> Red {
        let grown = f64::from(site.buffers.numerator as u32) / site.buffers.denominator as f64;
        let typical: Bytes = values.get("typical");
        let (unit, min, max) = Red::limits(values);
        let options = RedOptions {
            unit,
            min: min * grown,
            max: max * grown,
            probability: values.get("probability"),
            weight: values.get("weight"),
            gentle: values.get("gentle"),
            wait: values.get("wait"),
            full_counts: values.get("full-counts"),
            by_length: values.get("by-length"),
            ecn: values.get("ecn"),
            typical,
            typical_time: site.rate.unwrap_or(Rate::from_gbit(1)).time_for(typical),
            room: Room::from_values(values, site),
        };
        Red::new(options, site.stream())
    }
}

const LENGTH: ParamKind = ParamKind::Number { min: 0.0, max: 1e9 };
/// A number between 0 and 1.
pub(super) const PROBABILITY: ParamKind = ParamKind::Number { min: 0.0, max: 1.0 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet, victims};

    fn red(options: RedOptions) -> Red {
        Red::new(options, Stream::new(1, "red"))
    }

    /// Gaps between drops with the mean held constant.
    fn gaps(wait: bool, pb: f64, count: usize) -> Vec<u64> {
        let max = 10.0 / pb;
        let options = RedOptions { probability: 1.0, min: 0.0, max, wait, ..RedOptions::usual() };
        let mut red = red(options);
        red.mean = 10.0;
        let (mut gaps, mut gap) = (Vec::new(), 0);
        while gaps.len() < count {
            gap += 1;
            if red.decide(Bytes(1500)) == Verdict::Early {
                gaps.push(std::mem::take(&mut gap));
            }
        }
        gaps
    }

    /// Floyd & Jacobson, §7, method 2: gaps are uniform on 1 to 1/p, with mean (1/p + 1) / 2.
    #[test]
    fn gaps_between_drops_are_uniform() {
        const BINS: usize = 20;
        const DRAWS: usize = 20_000;
        let gaps = gaps(false, 1.0 / BINS as f64, DRAWS);
        let mut counts = [0f64; BINS];
        gaps.iter().for_each(|&gap| counts[gap as usize - 1] += 1.0);
        let expected = (DRAWS / BINS) as f64;
        let chi_square: f64 = counts.iter().map(|n| (n - expected).powi(2) / expected).sum();
        // 99.9 % point of chi-square with 19 degrees of freedom.
        assert!(chi_square < 43.8, "{chi_square} {counts:?}");
        let mean = gaps.iter().sum::<u64>() as f64 / DRAWS as f64;
        assert!((mean / 10.5 - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn with_wait_gaps_lie_between_one_and_two_times_the_reciprocal() {
        let gaps = gaps(true, 0.05, 2_000);
        // The first begins at -1.
        let (least, most) = (gaps[1..].iter().min(), gaps[1..].iter().max());
        assert_eq!((least, most), (Some(&20), Some(&39)));
    }

    #[test]
    fn a_drop_by_a_full_buffer_restarts_the_count_if_configured() {
        for (full_counts, expected) in [(false, 50), (true, 0)] {
            let room = Room { packets: 3, ..Room::UNLIMITED };
            let options =
                RedOptions { min: 0.0, max: 1e6, full_counts, room, ..RedOptions::usual() };
            let mut red = red(options);
            (0..3).for_each(|_| red.enqueue(Time::START, packet(0, 100)).unwrap());
            red.count = 49;
            red.enqueue(Time::START, packet(0, 100)).unwrap_err();
            assert_eq!(red.count, expected);
        }
    }

    #[test]
    fn an_idle_queue_decays_by_exactly_one_weight_per_packet_time() {
        let mut red = red(RedOptions { weight: 0.1, min: 1e6, max: 2e6, ..RedOptions::usual() });
        red.mean = 8.0;
        red.average(Time::START + red.options.typical_time * 7);
        assert!((red.mean - 8.0 * 0.9f64.powi(7)).abs() < 1e-12);
    }

    /// As in Linux, ns-2 and ns-3: a packet that finds none waiting while another is being sent counts as finding 0.
    #[test]
    fn an_empty_queue_behind_a_busy_line_lowers_the_mean_with_each_arrival() {
        let mut red = red(RedOptions { weight: 0.1, min: 1e6, max: 2e6, ..RedOptions::usual() });
        red.mean = 8.0;
        for _ in 0..3 {
            red.enqueue(Time::START, packet(0, 1500)).unwrap();
            assert!(red.dequeue(Time::START).is_some());
        }
        // The first finds the line idle, but for less than a packet time.
        assert!((red.mean - 8.0 * 0.9f64.powi(2)).abs() < 1e-12, "{}", red.mean);
        red.enqueue(Time::START + red.options.typical_time * 4, packet(0, 1500)).unwrap();
        // The line was busy for one of the four packet times.
        assert!((red.mean - 8.0 * 0.9f64.powi(5)).abs() < 1e-12, "{}", red.mean);
    }

    #[test]
    fn the_mean_follows_its_recurrence() {
        let mut red = red(RedOptions { weight: 0.5, min: 1e6, max: 2e6, ..RedOptions::usual() });
        (0..4).for_each(|_| red.enqueue(Time::START, packet(0, 100)).unwrap());
        // Lengths found: 0 (idle), 1, 2, 3.
        assert!((red.mean - (0.5 * 3.0 + 0.25 * 2.0 + 0.125)).abs() < 1e-12);
    }

    #[test]
    fn in_bytes_the_mean_follows_the_queued_bytes() {
        let usual = RedOptions { weight: 0.5, min: 1e6, max: 2e6, ..RedOptions::usual() };
        let mut red = red(RedOptions { unit: Unit::Bytes, ..usual });
        for len in [1000, 40, 500] {
            red.enqueue(Time::START, packet(0, len)).unwrap();
        }
        // Lengths found: 0 (idle), 1000, 1040.
        assert!((red.mean - (0.5 * 1040.0 + 0.25 * 1000.0)).abs() < 1e-9, "{}", red.mean);
    }

    /// Floyd & Jacobson, §6: in byte mode a small packet is dropped with its share of p_b.
    #[test]
    fn by_length_a_short_packet_is_dropped_in_proportion() {
        let drops = |len| {
            let usual = RedOptions { min: 0.0, max: 100.0, wait: false, ..RedOptions::usual() };
            let mut red = red(RedOptions { by_length: true, probability: 1.0, ..usual });
            red.mean = 10.0;
            (0..40_000).filter(|_| red.decide(Bytes(len)) == Verdict::Early).count() as f64
        };
        // Gaps are uniform on 1 to 1/p_b, with mean (1/p_b + 1) / 2: 5.5 and 50.5 packets.
        let (long, short) = (drops(1500), drops(150));
        assert!((long / 40_000.0 * 5.5 - 1.0).abs() < 0.03, "{long}");
        assert!((short / 40_000.0 * 50.5 - 1.0).abs() < 0.1, "{short}");
    }

    #[test]
    fn marks_packets_that_support_ecn_and_drops_the_others() {
        let always = RedOptions {
            min: 0.0,
            max: 0.5,
            weight: 1.0,
            ecn: true,
            wait: false,
            probability: 1.0,
            ..RedOptions::usual()
        };
        let mut red = red(always);
        red.enqueue(Time::START, packet(0, 100)).unwrap();
        let mut capable = packet(1, 100);
        capable.ecn = Ecn::Ect0;
        red.mean = 0.7;
        red.options.weight = 0.0;
        red.enqueue(Time::START, packet(2, 100)).unwrap();
        red.options.min = 0.0;
        red.count = 1_000_000;
        red.enqueue(Time::START, capable).unwrap();
        assert!(victims(&mut red).iter().all(|&(flow, reason)| flow != 1 && reason == "red"));
        let out = check::drain(&mut red, Time::START);
        assert!(out.iter().any(|packet| packet.flow.0 == 1 && packet.ecn == Ecn::Ce));
    }

    #[test]
    fn accounts_for_every_packet() {
        let room = Room::packets(40);
        for wait in [false, true] {
            let options = RedOptions { room, wait, weight: 0.02, ..RedOptions::usual() };
            check::holds(red(RedOptions { ecn: wait, by_length: wait, ..options }), &check::USUAL);
            let bytes = RedOptions { room, unit: Unit::Bytes, weight: 0.02, ..RedOptions::usual() };
            check::holds(red(RedOptions { min: 5e3, max: 15e3, ..bytes }), &check::USUAL);
        }
    }
}
