//! Rate-controlled static priority: regulators hold packets until they are eligible, and the eligible
//! go by priority.
//!
//! ```text
//!      /-> regulator of flow 0 -\          /-> class 0 [ ... ] -\
//! in --+-> regulator of flow 1 --+--> E <= now? -> class 1 [ ... ] --+--> out, lowest class first
//!      \-> regulator of flow 2 -/          \-> class 2 [ ... ] -/
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                      |
//! |-----------|---------|----------|--------------------------------------------------------------|
//! | `by`      | word    | `flow`   | what gets its own regulator: `flow`, `path`, `class`         |
//! | `queues`  | queues  | one each | number of regulators onto which flows are hashed             |
//! | `control` | word    | `rate`   | `rate`: rate jitter, by gaps; `delay`: delay jitter          |
//! | `gap`     | time    | 0        | Xmin, minimum gap between packets of a flow                  |
//! | `mean`    | time    | `gap`    | Xave, minimum mean gap over `window`                         |
//! | `window`  | time    | none     | I, the averaging window                                      |
//! | `bound`   | time    | 1 ms     | d of class 0; that of class n is n + 1 times as long  (ours) |
//! | `levels`  | classes | 8        | priorities; classes beyond the last share it                 |
//! | `packets` | packets | no limit | limit on packets held, in regulators and classes             |
//! | `bytes`   | size    | no limit | limit on bytes held                                          |
//!
//! Rate-jitter regulator: packet k is eligible at E(k) = max(arrival, E(k-1) + Xmin, E(k-m) + I) with m =
//! I / Xave, rounded down, so that at most m packets pass in any time I. Delay-jitter regulator: E(k) = arrival +
//! the time by which the packet was early at the previous hop, which restores the spacing of its source. For
//! the next hop, a packet carries in `behind` how much earlier than E + d it left. Neither lets a
//! flow's packets pass each other. Not work-conserving: a packet that is not eligible is not sent, even
//! if the link idles. O(log n) in the number of packets held.
//!
//! Source: Zhang & Ferrari, Rate-Controlled Static-Priority Queueing, INFOCOM 1993, §3; E-04.
//! Deviation: bounds d are multiples of one parameter; in the paper, admission sets them.

use super::due::Agenda;
use super::flows::{BY, BYTES, By, Classifier, PACKETS, QUEUES, Room};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Packet, Time, here};
use std::collections::VecDeque;

/// Limit on levels: the bits of a machine word mark the non-empty ones.
const LEVELS_MAX: u64 = 64;
/// Limit on packets in an averaging window: what a regulator remembers of each flow.
const BURST_MAX: u64 = 1024;

/// What regulators control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Gaps: `gap` (Xmin), and at most m packets in any `window` (I).
    Rate {
        /// Xmin.
        gap: Duration,
        /// m and I, where there is such a bound.
        burst: Option<(usize, Duration)>,
    },
    /// Each packet is held for as long as it was early at the previous hop.
    Delay,
}

/// Parameters of RCSP; see the table above.
#[derive(Clone, Debug)]
pub struct RcspOptions {
    /// What gets its own regulator.
    pub by: By,
    /// The number of regulators to hash onto; `None`: one each.
    pub queues: Option<usize>,
    /// What they control.
    pub control: Control,
    /// d of class 0.
    pub bound: Duration,
    /// Priorities, up to 64.
    pub levels: usize,
    /// Limit on regulators and classes together.
    pub room: Room,
}

/// Of one flow: eligibility times of its last packets, the latest at the back.
#[derive(Clone, Debug, Default)]
struct Regulator {
    last: VecDeque<Time>,
}

/// Rate-controlled static priority.
#[derive(Debug)]
pub struct Rcsp {
    options: RcspOptions,
    classifier: Classifier,
    regulators: Vec<Regulator>,
    /// Not yet eligible, ordered by when they will be.
    held: Agenda,
    /// Eligible: a queue for each class, with the time at which each packet became so.
    classes: Vec<VecDeque<(Time, Packet)>>,
    /// What all classes hold.
    eligible: Room,
    /// Bit n is set while class n holds something.
    busy: u64,
}

impl Rcsp {
    /// Empty.
    pub fn new(options: RcspOptions) -> Rcsp {
        let levels = options.levels.clamp(1, LEVELS_MAX as usize);
        Rcsp {
            classifier: Classifier::new(options.by, options.queues),
            options: RcspOptions { levels, ..options },
            regulators: Vec::new(),
            held: Agenda::new(Room::UNLIMITED),
            classes: (0..levels).map(|_| VecDeque::new()).collect(),
            eligible: Room { packets: 0, bytes: Bytes::ZERO },
            busy: 0,
        }
    }
    /// E of a packet that arrives at regulator `at`.
    fn eligible(&mut self, now: Time, at: usize, packet: &Packet) -> Time {
        if at >= self.regulators.len() {
            self.regulators.resize(at + 1, Regulator::default());
        }
        let last = &mut self.regulators[at].last;
        let (due, kept) = match self.options.control {
            Control::Rate { gap, burst } => {
                let spaced = last.back().map_or(now, |&last| last + gap);
                let (m, window) = burst.unwrap_or((1, Duration::ZERO));
                let mean = last.len().checked_sub(m).map(|first| last[first]);
                (spaced.max(mean.map_or(now, |mean| mean + window)), m)
            }
            Control::Delay => {
                let early = u64::try_from(packet.behind.saturating_neg()).unwrap_or(0);
                let due = now + Duration::from_ps(early);
                (due.max(last.back().copied().unwrap_or(now)), 1)
            }
        };
        let due = due.max(now);
        if last.len() >= kept {
            last.pop_front();
        }
        last.push_back(due);
        due
    }
    /// Hands packets that are eligible now to their classes.
    fn mature(&mut self, now: Time) {
        while self.held.first().is_some_and(|due| due <= now) {
            let Some((due, packet)) = self.held.pop() else { return };
            let class = usize::from(packet.class).min(self.options.levels - 1);
            self.busy |= 1 << class;
            self.eligible.packets += 1;
            self.eligible.bytes += packet.len;
            self.classes[class].push_back((due, packet));
        }
    }
}

impl Queue for Rcsp {
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        let Room { packets, bytes } = self.options.room;
        if self.packets() >= packets || self.bytes() + packet.len > bytes {
            return Err(packet);
        }
        let at = self.classifier.queue_of(&packet);
        let due = self.eligible(now, at, &packet);
        self.held.push(due, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.mature(now);
        if self.busy == 0 {
            return None;
        }
        let class = self.busy.trailing_zeros() as usize;
        let (due, mut packet) = self.classes[class].pop_front()?;
        self.eligible.packets -= 1;
        self.eligible.bytes -= packet.len;
        if self.classes[class].is_empty() {
            self.busy &= !(1 << class);
        }
        if self.options.control == Control::Delay {
            let bound = self.options.bound * (class as u64 + 1);
            let stayed = now.saturating_since(due);
            packet.behind = -(bound.saturating_sub(stayed).as_ps() as i64);
        }
        Some(packet)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        match self.busy {
            0 => self.held.first().map(|due| due.max(now)),
            _ => Some(now),
        }
    }
    fn packets(&self) -> u64 {
        self.held.packets() + self.eligible.packets
    }
    fn bytes(&self) -> Bytes {
        self.held.bytes + self.eligible.bytes
    }
}

impl Described for Rcsp {
    const PAGE: &'static Page = &Page {
        name: "rcsp",
        family: Family::Queue,
        what: "Rate-controlled static priority: held until eligible, then sent by class.",
        ports: "in --> [ regulators ] --> eligible? --> [ class 0 ] [ class 1 ] ... --> out",
        params: &[
            BY,
            QUEUES,
            Param::or("control", ParamKind::Choice(&["rate", "delay"]), "rate")
                .is("what regulators restore: gaps between packets, or the delay from the source"),
            Param::or("gap", ParamKind::Time, "0 s").is("minimum gap between packets of a flow"),
            Param::optional("mean", ParamKind::Time, "`gap`").is("minimum mean gap over `window`"),
            Param::optional("window", ParamKind::Time, "none").is("averaging window of `mean`"),
            Param::or("bound", ParamKind::Time, "1 ms")
                .is("delay bound of class 0; that of class n is n + 1 times as long"),
            Param::or("levels", ParamKind::Integer { min: 1, max: LEVELS_MAX }, "8")
                .is("priorities; classes beyond the last share it"),
            PACKETS,
            BYTES,
        ],
        source: "Zhang & Ferrari, INFOCOM 1993, §3",
        deviations: &[
            "Delay bounds are multiples of one parameter; in the paper, admission sets them.",
        ],
        drops: &[FULL],
        example: one_queue!(r#"rcsp = { gap = "1300 us", packets = 50 }"#),
        ..Page::at(here!())
    };

    fn fit(values: &Values) -> Result<(), Misfit> {
        burst(values).map(drop)
    }
    fn build(values: &Values, site: &Site<'_>) -> Rcsp {
        let burst = burst(values).expect("the values are consistent");
        Rcsp::new(RcspOptions {
            by: By::from_values(values),
            queues: values.given::<u64>("queues").map(|queues| queues as usize),
            control: match values.get::<String>("control").as_str() {
                "delay" => Control::Delay,
                _ => Control::Rate { gap: values.get("gap"), burst },
            },
            bound: values.get("bound"),
            levels: values.get::<u64>("levels") as usize,
            room: Room::from_values(values, site),
        })
    }
}

/// m and I of the rate-jitter regulator.
fn burst(values: &Values) -> Result<Option<(usize, Duration)>, Misfit> {
    let gap: Duration = values.get("gap");
    let mean = values.given::<Duration>("mean");
    let Some(window) = values.given::<Duration>("window") else {
        return match mean {
            Some(mean) => Err(Misfit::new(
                "mean",
                format!("a mean of {mean} without a window"),
                "add the averaging window, window = \"100 ms\"",
            )),
            None => Ok(None),
        };
    };
    let mean = mean.unwrap_or(gap);
    match window.as_ps().checked_div(mean.as_ps()) {
        Some(m @ 1..=BURST_MAX) => Ok(Some((m as usize, window))),
        m => {
            let m = m.map_or("endless".to_owned(), |m| m.to_string());
            let found = format!("a window of {window} allows {m} packets");
            let right = format!("write between one and {BURST_MAX} times `mean`");
            Err(Misfit::new("window", found, right))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};
    use lastmeter_base::Stream;

    const US: fn(u64) -> Duration = Duration::from_us;

    fn at(us: u64) -> Time {
        Time::START + US(us)
    }
    fn options(control: Control) -> RcspOptions {
        RcspOptions {
            by: By::Flow,
            queues: None,
            control,
            bound: US(10),
            levels: 4,
            room: Room::UNLIMITED,
        }
    }
    /// Sends each packet as soon as it is eligible, several at one instant if they are.
    fn departures(queue: &mut Rcsp, from: Time) -> Vec<(Time, Packet)> {
        let (mut now, mut out) = (from, Vec::new());
        while let Some(ready) = queue.ready_at(now) {
            now = ready;
            out.push((now, queue.dequeue(now).unwrap()));
        }
        out
    }

    /// Zhang & Ferrari, §3: (Xmin, Xave, I) holds at the output, whatever the input.
    #[test]
    fn a_rate_regulator_enforces_gaps_and_means_whatever_arrives() {
        let control = Control::Rate { gap: US(2), burst: Some((3, US(20))) };
        let mut queue = Rcsp::new(options(control));
        let mut random = Stream::new(1, "rcsp");
        let mut now = 0;
        for _ in 0..500 {
            now += random.below(9);
            queue.enqueue(at(now), packet(0, 100)).unwrap();
        }
        let times: Vec<Time> = departures(&mut queue, at(0)).iter().map(|&(at, _)| at).collect();
        assert_eq!(times.len(), 500);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= US(2)));
        assert!(times.windows(4).all(|four| four[3] - four[0] >= US(20)));
        assert!(times.windows(4).any(|four| four[3] - four[0] == US(20)), "the bound is reached");
    }

    #[test]
    fn a_source_within_its_gaps_is_not_held() {
        let mut queue = Rcsp::new(options(Control::Rate { gap: US(5), burst: None }));
        for us in [0, 5, 11, 16] {
            queue.enqueue(at(us), packet(0, 100)).unwrap();
            assert_eq!(queue.ready_at(at(us)), Some(at(us)));
            assert!(queue.dequeue(at(us)).is_some());
        }
    }

    #[test]
    fn eligible_packets_go_by_class_and_urgent_ones_wait_until_eligible() {
        let mut queue = Rcsp::new(options(Control::Rate { gap: US(100), burst: None }));
        let put = |queue: &mut Rcsp, flow, class| {
            let mut packet = packet(flow, 100);
            packet.class = class;
            queue.enqueue(at(0), packet).unwrap();
        };
        for (flow, class) in [(0, 2), (1, 1), (2, 0), (2, 0)] {
            put(&mut queue, flow, class);
        }
        let order: Vec<(Time, u32)> =
            departures(&mut queue, at(0)).iter().map(|(at, packet)| (*at, packet.flow.0)).collect();
        assert_eq!(order, [(at(0), 2), (at(0), 1), (at(0), 0), (at(100), 2)]);
    }

    /// Zhang & Ferrari, §3: behind a delay-jitter regulator packets are spaced as at the source, later by
    /// a constant, however the first hop delayed them.
    #[test]
    fn a_delay_regulator_restores_the_spacing_of_the_source() {
        let mut random = Stream::new(1, "rcsp");
        let mut second = Rcsp::new(options(Control::Delay));
        let mut first = Rcsp::new(options(Control::Delay));
        let mut source = 0;
        for _ in 0..200 {
            source += 40 + random.below(30);
            first.enqueue(at(source), packet(0, 100)).unwrap();
            // The first hop delays by up to its bound of 10 us, and the link to the second by 7.
            let left = source + random.below(11);
            let packet = first.dequeue(at(left)).unwrap();
            second.enqueue(at(left + 7), packet).unwrap();
            let ideal = at(source + 10 + 7);
            assert_eq!(second.ready_at(at(left + 7)), Some(ideal));
            assert!(second.dequeue(ideal).is_some());
        }
    }

    #[test]
    fn an_inconsistent_window_is_refused() {
        use lastmeter_base::kind::Value;
        let fit = |window: u64, mean: u64| {
            let mut values = Values::default();
            values.insert("gap", Value::Time(US(0)));
            values.insert("mean", Value::Time(US(mean)));
            values.insert("window", Value::Time(US(window)));
            burst(&values)
        };
        assert_eq!(fit(100, 10), Ok(Some((10, US(100)))));
        assert_eq!(fit(5, 10).unwrap_err().param, "window");
        assert_eq!(fit(5, 0).unwrap_err().param, "window");
    }

    #[test]
    fn accounts_for_every_packet() {
        let conserving = check::Options { work_conserving: false, ..check::USUAL };
        let control = Control::Rate { gap: US(3), burst: Some((2, US(9))) };
        let room = Room::packets(30);
        check::holds(Rcsp::new(RcspOptions { room, ..options(control) }), &conserving);
        check::holds(Rcsp::new(options(Control::Delay)), &check::USUAL);
    }
}
