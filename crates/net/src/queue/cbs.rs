//! Credit-based shaper: two classes limited to the rates reserved for them (IEEE 802.1Qav).
//!
//! ```text
//!      /-> class 0: A, credit -\   A while its credit is not negative,
//! in --+-> class 1: B, credit --+--> then B while its is not,
//!      \-> others, in order ---/     then all others
//! ```
//!
//! | Parameter | Unit    | Default    | Meaning                                 |
//! |-----------|---------|------------|-----------------------------------------|
//! | `a`       | rate    | not shaped | idleSlope of class 0: its reserved rate |
//! | `b`       | rate    | not shaped | idleSlope of class 1                    |
//! | `packets` | packets | no limit   | limit on packets in all classes         |
//! | `bytes`   | size    | no limit   | limit on bytes in all classes           |
//!
//! Credit grows with idleSlope while packets of the class wait, falls with idleSlope - portTransmitRate
//! while one is sent, and goes to zero when none waits and it is positive; a negative one recovers with
//! idleSlope. A class without a reservation is one of the others. If the link has no constant rate,
//! sending costs no credit and nothing is shaped.
//!
//! A's credit needs no clamping to stay within maxInterferenceSize x idleSlope / portTransmitRate (hiCredit)
//! and maxFrameSize x sendSlope / portTransmitRate (loCredit).
//!
//! Source: IEEE 802.1Q-2018 §8.6.8.2 and Annex L (802.1Qav-2009), names as there.
//!
//! ```
//! use lastmeter_base::{Bytes, Packet, Rate, Time};
//! use lastmeter_net::queue::{Cbs, Queue, Room};
//! // 10 Mbit/s of 100 are reserved: a packet of 125 bytes takes 10 us, and 90 more until the next.
//! let slopes = [Some(Rate::from_mbit(10)), None];
//! let mut queue = Cbs::new(slopes, Some((Rate::from_mbit(100), Bytes::ZERO)), Room::UNLIMITED);
//! queue.enqueue(Time::START, Packet::new(Bytes(125)))?;
//! queue.enqueue(Time::START, Packet::new(Bytes(125)))?;
//! assert!(queue.dequeue(Time::START).is_some());
//! assert_eq!(queue.ready_at(Time::START), Some(Time::from_ps(100_000_000)));
//! # Ok::<(), Packet>(())
//! ```

use super::flows::{BYTES, PACKETS, Room};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Packet, Rate, Time, here, one_way};
use std::collections::VecDeque;

/// Classes A and B; the third queue is for all others.
const SHAPED: usize = 2;

/// Credit-based shaper.
#[derive(Debug)]
pub struct Cbs {
    waiting: [VecDeque<Packet>; SHAPED + 1],
    /// idleSlopes, in bits per second.
    slopes: [Option<u64>; SHAPED],
    /// In 10^-12 bit, as of `at`: a slope times picoseconds is exact.
    credit: [i128; SHAPED],
    at: Time,
    /// portTransmitRate, and the framing of each packet.
    port: Option<(Rate, Bytes)>,
    /// The class of the last packet sent, and when its transmission ends.
    sending: Option<(usize, Time)>,
    room: Room,
    held: Bytes,
    /// Greatest and least credits so far.
    most: [i128; SHAPED],
    least: [i128; SHAPED],
}

impl Cbs {
    /// Empty, with these idleSlopes at a port of this rate and framing.
    pub fn new(slopes: [Option<Rate>; SHAPED], port: Option<(Rate, Bytes)>, room: Room) -> Cbs {
        Cbs {
            waiting: [const { VecDeque::new() }; SHAPED + 1],
            slopes: slopes.map(|slope| slope.map(Rate::as_bits)),
            credit: [0; SHAPED],
            at: Time::START,
            port,
            sending: None,
            room,
            held: Bytes::ZERO,
            most: [0; SHAPED],
            least: [0; SHAPED],
        }
    }

    fn class(&self, packet: &Packet) -> usize {
        match usize::from(packet.class) {
            class if self.slopes.get(class).is_some_and(Option::is_some) => class,
            _ => SHAPED,
        }
    }

    /// Credits at `to`, or when the last packet has been sent, if that is later.
    fn credits(&self, to: Time) -> ([i128; SHAPED], Time) {
        let mut credit = self.credit;
        let mut at = self.at;
        if let Some((class, end)) = self.sending {
            self.grow(&mut credit, end.saturating_since(at), Some(class));
            at = at.max(end);
        }
        let to = to.max(at);
        self.grow(&mut credit, to - at, None);
        (credit, to)
    }

    fn grow(&self, credit: &mut [i128; SHAPED], time: Duration, sending: Option<usize>) {
        let time = i128::from(time.as_ps());
        let port = self.port.map_or(0, |(rate, _)| i128::from(rate.as_bits()));
        for (class, credit) in credit.iter_mut().enumerate() {
            let Some(slope) = self.slopes[class].map(i128::from) else { continue };
            if sending == Some(class) {
                *credit += (slope - port) * time;
            } else if !self.waiting[class].is_empty() {
                *credit += slope * time;
            } else {
                *credit = (*credit + slope * time).min(0).max((*credit).min(0));
            }
        }
    }

    /// Brings credits up to `now`, if nothing is being sent.
    fn advance(&mut self, now: Time) {
        match self.sending {
            Some((class, end)) if now < end => {
                let mut credit = self.credit;
                self.grow(&mut credit, now.saturating_since(self.at), Some(class));
                (self.credit, self.at) = (credit, self.at.max(now));
            }
            _ => {
                (self.credit, self.at) = self.credits(now);
                self.sending = None;
            }
        }
        for (class, &credit) in self.credit.iter().enumerate() {
            self.most[class] = self.most[class].max(credit);
            self.least[class] = self.least[class].min(credit);
        }
    }
}

impl Queue for Cbs {
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        let held = self.held + packet.len;
        if self.packets() >= self.room.packets || held > self.room.bytes {
            return Err(packet);
        }
        self.advance(now);
        self.held = held;
        self.waiting[self.class(&packet)].push_back(packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.advance(now);
        if self.sending.is_some() {
            return None;
        }
        let may = |class: usize| class == SHAPED || self.credit[class] >= 0;
        let class = (0..=SHAPED).find(|&class| !self.waiting[class].is_empty() && may(class))?;
        let packet = self.waiting[class].pop_front()?;
        self.held -= packet.len;
        if let Some((rate, framing)) = self.port {
            self.sending = Some((class, now + rate.time_for(packet.len + framing)));
        }
        Some(packet)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        let (credit, from) = self.credits(now);
        let ready = |class: usize| {
            self.waiting[class].front()?;
            let slope = self.slopes.get(class).copied().flatten();
            Some(match slope.zip(credit.get(class)) {
                Some((slope, &credit)) if credit < 0 => {
                    let wait = (-credit).unsigned_abs().div_ceil(u128::from(slope.max(1)));
                    let wait = u64::try_from(wait).unwrap_or(u64::MAX);
                    from + Duration::from_ps(wait)
                }
                _ => from,
            })
        };
        (0..=SHAPED).filter_map(ready).min()
    }
    fn packets(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.len() as u64).sum()
    }
    fn bytes(&self) -> Bytes {
        self.held
    }
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        let bits = |credit: i128| (credit.unsigned_abs() / 1_000_000_000_000) as u64;
        count("a_credit_most", bits(self.most[0]));
        count("a_credit_least", bits(self.least[0]));
        count("b_credit_most", bits(self.most[1]));
        count("b_credit_least", bits(self.least[1]));
    }
}

impl Described for Cbs {
    const PAGE: &'static Page = &Page {
        name: "cbs",
        family: Family::Queue,
        what: "Credit-based shaper of two classes above best effort (IEEE 802.1Qav).",
        ports: "in --> [ class 0: A ] [ class 1: B ] [ others ] --> by credit --> out",
        params: &[
            Param::optional("a", ParamKind::Rate, "class 0 is not shaped")
                .is("idleSlope of class 0 (SR class A)"),
            Param::optional("b", ParamKind::Rate, "class 1 is not shaped")
                .is("idleSlope of class 1 (SR class B)"),
            PACKETS,
            BYTES,
        ],
        source: "IEEE 802.1Q-2018 §8.6.8.2, Annex L (802.1Qav-2009)",
        deviations: &[
            "A class without a reservation shares the best-effort queue, in order of arrival.",
            "On a link without a constant rate, nothing is shaped.",
        ],
        counters: &[
            ("a_credit_most", "greatest credit of class A, in bits"),
            ("a_credit_least", "greatest debt of class A, in bits"),
            ("b_credit_most", "greatest credit of class B, in bits"),
            ("b_credit_least", "greatest debt of class B, in bits"),
        ],
        drops: &[FULL],
        example: one_way! {
            "100 ms", "camera" ["switch" = "router = {}"] "screen",
            [
                r#"rate = "100 Mbit/s""#,
                r#"framing = "24 B""#,
                r#"queue = { cbs = { a = "20 Mbit/s" } }"#,
            ],
            "video" [r#"constant = { rate = "16 Mbit/s", size = "1000 B" }"#],
            "files" ["class = 2", r#"poisson = { rate = "90 Mbit/s", size = "1500 B" }"#]
        },
        ..Page::at(here!())
    };

    fn fit(values: &Values) -> Result<(), Misfit> {
        match values.has("a") || values.has("b") {
            true => Ok(()),
            false => Err(Misfit::new(
                "a",
                "no class has a reservation".to_owned(),
                "write a = \"20 Mbit/s\", or use another queue",
            )),
        }
    }

    fn build(values: &Values, site: &Site<'_>) -> Cbs {
        let slopes = [values.given("a"), values.given("b")];
        let port = site.rate.map(|rate| (rate, site.framing));
        Cbs::new(slopes, port, Room::from_values(values, site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};
    use lastmeter_base::Stream;

    const PORT: Rate = Rate::from_mbit(100);
    const LONGEST: u64 = 1522;

    fn shaper(a: u64, b: u64) -> Cbs {
        let slopes = [a, b].map(|mbit| (mbit > 0).then(|| Rate::from_mbit(mbit)));
        Cbs::new(slopes, Some((PORT, Bytes::ZERO)), Room::UNLIMITED)
    }

    /// Serves the queue as a port does, with random arrivals; returns the bytes sent of each class, and the time.
    fn served(queue: &mut Cbs, seed: u64, load: [f64; 3]) -> ([u64; 3], Duration) {
        let mut random = Stream::new(seed, "cbs");
        let end = Time::START + Duration::from_ms(40);
        let mut arrivals = Vec::new();
        for (class, load) in load.into_iter().enumerate() {
            let mut at = Time::START;
            while at < end {
                let burst = 1 + random.below(6);
                let lens: Vec<u64> = (0..burst).map(|_| 64 + random.below(LONGEST - 63)).collect();
                let sum = lens.iter().sum();
                arrivals.extend(lens.into_iter().map(|len| (at, class, len)));
                let gap = PORT.time_for(Bytes(sum)).as_ps() as f64 / load;
                at += Duration::from_ps((gap * (0.5 + random.unit())) as u64);
            }
        }
        arrivals.sort();
        let mut next = arrivals.into_iter().peekable();
        let (mut now, mut free) = (Time::START, Time::START);
        let mut sent = [0; 3];
        loop {
            while let Some((at, class, len)) = next.next_if(|&(at, ..)| at <= now) {
                queue.enqueue(at, packet(class as u32, len)).unwrap();
            }
            if now >= free
                && let Some(packet) = queue.dequeue(now)
            {
                sent[usize::from(packet.class)] += packet.len.0;
                free = now + PORT.time_for(packet.len);
            }
            let ready = queue.ready_at(now).map(|ready| ready.max(free));
            let arrival = next.peek().map(|&(at, ..)| at);
            match ready.into_iter().chain(arrival).min().filter(|&at| at < end) {
                Some(at) => now = at,
                None => return (sent, end.since_start()),
            }
        }
    }

    /// Annex L: hiCredit and loCredit of A; for B, what A's longest burst adds.
    #[test]
    fn credits_stay_within_the_bounds_of_annex_l() {
        let port = i128::from(PORT.as_bits());
        let longest = i128::from(PORT.time_for(Bytes(LONGEST)).as_ps());
        let (mut high, mut low) = (false, false);
        for seed in 0..40 {
            let (a, b) = (10 + seed % 4 * 10, 5 + seed % 5 * 5);
            let mut queue = shaper(a, b);
            served(&mut queue, seed, [0.5, 0.4, 0.9]);
            let (a, b) = (i128::from(a) * 1_000_000, i128::from(b) * 1_000_000);
            // One frame of another class may be in transmission.
            assert!(queue.most[0] <= a * longest, "hiCredit of A, seed {seed}");
            assert!(queue.least[0] >= (a - port) * longest, "loCredit of A, seed {seed}");
            assert!(queue.least[1] >= (b - port) * longest, "loCredit of B, seed {seed}");
            // B waits for one of the others and then while A goes from hiCredit to loCredit.
            let burst = (a * longest + (port - a) * longest) / (port - a);
            assert!(queue.most[1] <= b * (longest + burst + 1), "hiCredit of B, seed {seed}");
            high |= queue.most[0] > a * longest / 2;
            low |= queue.least[0] < (a - port) * longest / 2;
        }
        assert!(high && low, "the bounds are nearly reached");
    }

    #[test]
    fn each_class_gets_its_reserved_rate_and_no_more() {
        for seed in 0..10 {
            let mut queue = shaper(30, 20);
            let (sent, time) = served(&mut queue, seed, [0.9, 0.9, 0.9]);
            let share = |class: usize| {
                sent[class] as f64 * 8.0 / time.as_secs_f64() / PORT.as_bits() as f64
            };
            assert!((share(0) - 0.3).abs() < 0.02, "{}", share(0));
            assert!((share(1) - 0.2).abs() < 0.02, "{}", share(1));
            assert!(share(2) > 0.45, "the others get the rest: {}", share(2));
        }
    }

    #[test]
    fn an_idle_class_saves_no_credit_and_a_class_in_debt_recovers() {
        let mut queue = shaper(50, 0);
        let at = |us| Time::START + Duration::from_us(us);
        // 125 bytes are 10 us: half of that is still to be repaid.
        queue.enqueue(at(100), packet(0, 125)).unwrap();
        assert!(queue.dequeue(at(100)).is_some());
        queue.enqueue(at(112), packet(0, 125)).unwrap();
        assert!(queue.dequeue(at(112)).is_none());
        assert_eq!(queue.ready_at(at(112)), Some(at(120)));
        assert!(queue.dequeue(at(120)).is_some());
        // After a long idle time it may start at once, but has saved nothing.
        for _ in 0..2 {
            queue.enqueue(at(900), packet(0, 125)).unwrap();
        }
        assert!(queue.dequeue(at(900)).is_some());
        assert_eq!(
            (queue.dequeue(at(910)).is_some(), queue.ready_at(at(910))),
            (false, Some(at(920)))
        );
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = check::Options { work_conserving: false, ..check::USUAL };
        check::holds(shaper(30, 20), &options);
        let slopes = [Some(Rate::from_mbit(30)), None];
        check::holds(Cbs::new(slopes, None, Room::packets(20)), &check::USUAL);
    }
}
