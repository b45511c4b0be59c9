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
//! | Parameter  | Unit    | Default  | Meaning                                                      |
//! |------------|---------|----------|--------------------------------------------------------------|
//! | `target`   | time    | 15 ms    | target delay of C                                            |
//! | `update`   | time    | 15 ms    | time between updates of p'                                   |
//! | `alpha`    | 1/s     | 0.15     | gain for the deviation from the target                       |
//! | `beta`     | 1/s     | 3        | gain for the change of delay                                 |
//! | `coupling` | 1       | 2        | k: L is marked with k p'                                     |
//! | `ramp-min` | time    | 800 us   | delay of L at which its marking ramp begins                  |
//! | `ramp`     | time    | 400 us   | width of the ramp: from its start to marking all             |
//! | `floor`    | packets | 1        | with no more than this in L, the ramp marks nothing (Th_len) |
//! | `classic`  | 1       | 0.0625   | minimum share of the link, in bytes, for C while both wait   |
//! | `packets`  | packets | no limit | limit on packets in both                                     |
//! | `bytes`    | size    | no limit | limit on bytes in both                                       |
//!
//! Marks and drops are spread evenly, not drawn at random (`recur` of Fig. 4): a queue adds up the likelihoods of its
//! packets, and a packet is marked or dropped each time the sum passes 1. From p'^2 = 1/k^2 up (overload, A.2),
//! packets of both queues are dropped with probability p'^2, and the rest of L are all marked.
//!
//! Source: RFC 9332, appendix A.2 (Figs. 3, 5, 7 and 8), with the defaults of Fig. 2: `update` is min(target,
//! RTT_max / 3), `alpha` 0.1 update / RTT_max^2 and `beta` 0.3 / RTT_max, for RTT_max = 100 ms. The text
//! below Fig. 6 has 0.16 and 3.2 for an update of 16 ms, "discrepancies due to rounding".
//!
//! Deviations: the scheduler, which the RFC leaves open, is weighted by credit in bytes as in Linux: it
//! changes only while both queues wait, and favours L after an idle time. L's length for `floor` counts the
//! departing packet, since the text speaks of a queue of "only 1 packet", although Fig. 7 tests after
//! removing it. Likelihoods are capped at 1. A full buffer refuses packets that do not fit instead of keeping an
//! MTU free. Updates that fall due between calls are made at the next call, at most 1000, with its heads.

use super::flows::{BYTES, Bank, PACKETS, Room, of_bank};
use super::red::{MARKED, PROBABILITY};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Ecn, Packet, Time, here};

/// Parameters of DualPI2; see the table above.
#[derive(Clone, Debug)]
pub struct DualPi2Options {
    /// Target delay of the classic queue.
    pub target: Duration,
    /// Time between updates.
    pub update: Duration,
    /// Gain for the deviation from the target, per second.
    pub alpha: f64,
    /// Gain for the change of delay, per second.
    pub beta: f64,
    /// k.
    pub coupling: f64,
    /// Delay at which L's marking ramp begins.
    pub ramp_min: Duration,
    /// Width of the ramp.
    pub ramp: Duration,
    /// With no more packets than this in L, the ramp marks nothing.
    pub floor: u64,
    /// Minimum share of the classic queue.
    pub classic: f64,
    /// Limit on both queues together.
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
            floor: 1,
            classic: 0.0625,
            room,
        }
    }
}

const L: usize = 0;
const C: usize = 1;
/// Limit on overdue updates made by one call.
const UPDATES_MAX: u32 = 1000;

/// What happens to a packet chosen to signal congestion.
enum Signal {
    Mark,
    Drop,
}

/// Two coupled queues.
#[derive(Debug)]
pub struct DualPi2 {
    bank: Bank,
    options: DualPi2Options,
    /// p' of the RFC.
    base: f64,
    delay_old: f64,
    update_at: Time,
    /// Bytes that C is owed; negative after it was served.
    credit: f64,
    /// Sums of likelihoods of both queues.
    counts: [f64; 2],
    marked: u64,
}

impl DualPi2 {
    /// Empty.
    pub fn new(options: DualPi2Options) -> DualPi2 {
        let mut bank = Bank::new(options.room);
        bank.reach(C);
        let update_at = Time::START + options.update;
        DualPi2 {
            bank,
            options,
            base: 0.0,
            delay_old: 0.0,
            update_at,
            credit: 0.0,
            counts: [0.0; 2],
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
            // Fig. 8, line 2a: the longer of the two, so that L alone is controlled, too.
            let delay = self.delay(self.update_at, C).max(self.delay(self.update_at, L));
            self.calculate(delay);
            self.update_at += self.options.update;
        }
        self.update_at = now + self.options.update;
    }
    fn calculate(&mut self, delay: f64) {
        let DualPi2Options { alpha, beta, target, .. } = self.options;
        let step = alpha * (delay - target.as_secs_f64()) + beta * (delay - self.delay_old);
        self.base = (self.base + step).clamp(0.0, 1.0);
        self.delay_old = delay;
    }
    /// L while it has packets, except for the share that C is owed.
    fn turn(&mut self) -> Option<usize> {
        match (self.bank.fifo(L).is_empty(), self.bank.fifo(C).is_empty()) {
            (true, true) => None,
            (false, true) => Some(L),
            (true, false) => Some(C),
            (false, false) => Some(if self.credit > 0.0 { C } else { L }),
        }
    }
    /// Moves the credit for a packet of `len` that is sent from queue `at`, while both waited.
    fn charge(&mut self, at: usize, low_latency: u64, len: Bytes) {
        let (classic, len) = (self.options.classic, len.0 as f64);
        match at {
            L if !self.bank.fifo(C).is_empty() => {
                self.credit += len * classic / (1.0 - classic).max(1e-9);
            }
            C if low_latency > 0 => self.credit -= len,
            _ => {}
        }
    }
    /// Fig. 4, `recur`: true for a fraction `likelihood` of calls, evenly spaced.
    fn recur(&mut self, at: usize, likelihood: f64) -> bool {
        let count = &mut self.counts[at];
        *count += likelihood.min(1.0);
        let full = *count > 1.0;
        if full {
            *count -= 1.0;
        }
        full
    }
    /// The probability of marking a packet of L that has waited this long.
    fn ramp(&self, delay: Duration) -> f64 {
        // Fig. 5. A ramp of no length is a step.
        match delay >= self.options.ramp_min + self.options.ramp {
            true => 1.0,
            false => {
                let above = delay.saturating_sub(self.options.ramp_min);
                above.as_secs_f64() / self.options.ramp.as_secs_f64().max(1e-12)
            }
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
    /// RFC 9332, Fig. 7.
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.catch_up(now);
        let DualPi2Options { coupling, floor, .. } = self.options;
        loop {
            let Some(at) = self.turn() else {
                self.credit = 0.0;
                return None;
            };
            let low_latency = self.bank.fifo(L).len();
            let mut packet = self.bank.pop(at)?;
            let (coupled, classic) = (coupling * self.base, self.base * self.base);
            let overload = coupled >= 1.0;
            let verdict = match at {
                L if !overload => {
                    let delay = now.saturating_since(packet.entered);
                    let own = if low_latency > floor { self.ramp(delay) } else { 0.0 };
                    self.recur(L, own.max(coupled)).then_some(Signal::Mark)
                }
                L if self.recur(L, classic) => Some(Signal::Drop),
                L => Some(Signal::Mark),
                _ if !self.recur(C, classic) => None,
                _ if overload || !packet.ecn.is_capable() => Some(Signal::Drop),
                _ => Some(Signal::Mark),
            };
            match verdict {
                Some(Signal::Drop) => {
                    self.bank.discard(packet, "dual-pi2");
                    continue;
                }
                Some(Signal::Mark) => {
                    packet.ecn = Ecn::Ce;
                    self.marked += 1;
                }
                None => {}
            }
            self.charge(at, low_latency, packet.len);
            return Some(packet);
        }
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

const COUNT: ParamKind = ParamKind::Integer { min: 0, max: i64::MAX as u64 };
const GAIN: ParamKind = ParamKind::Number { min: 0.0, max: 1000.0 };

impl Described for DualPi2 {
    const PAGE: &'static Page = &Page {
        name: "dual-pi2",
        family: Family::Queue,
        what: "DualPI2: coupled queues, one for scalable senders and one for all others.",
        ports: "in --> [ L: Ect1, Ce ] [ C: others ] --> mostly L first --> out",
        params: &[
            Param::or("target", ParamKind::Time, "15 ms").is("target delay of the classic queue"),
            Param::or("update", ParamKind::Time, "15 ms").is("time between updates of p'"),
            Param::or("alpha", GAIN, "0.15")
                .is("gain for the deviation from the target, per second"),
            Param::or("beta", GAIN, "3").is("gain for the change of delay, per second"),
            Param::or("coupling", GAIN, "2").is("k: the low-latency queue is marked with k p'"),
            Param::or("ramp-min", ParamKind::Time, "800 us")
                .is("delay at which its own marking ramp begins"),
            Param::or("ramp", ParamKind::Time, "400 us")
                .is("width of the ramp: from its start to marking all packets"),
            Param::or("floor", COUNT, "1")
                .is("with no more packets than this in L, the ramp marks nothing"),
            Param::or("classic", PROBABILITY, "0.0625").is("minimum share of the classic queue"),
            PACKETS,
            BYTES,
        ],
        source: "RFC 9332, appendix A.2",
        deviations: &[
            "The scheduler is weighted by credit in bytes, as in Linux; the RFC leaves it open.",
            "A full buffer refuses packets that do not fit; the RFC keeps an MTU free.",
        ],
        counters: &[MARKED],
        drops: &[FULL, ("dual-pi2", "packets dropped at random")],
        example: one_queue!("dual-pi2 = { packets = 1000 }"),
        ..Page::at(here!())
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
            floor: values.get("floor"),
            classic: values.get("classic"),
            room: Room::from_values(values, site),
        };
        DualPi2::new(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};

    fn dual() -> DualPi2 {
        DualPi2::new(DualPi2Options::usual(Room::UNLIMITED))
    }
    fn scalable(flow: u32) -> Packet {
        let mut packet = packet(flow, 1000);
        packet.ecn = Ecn::Ect1;
        packet
    }

    /// RFC 9332 §2.1 and Fig. 4: L is marked with k p', C is dropped from with p'^2, evenly.
    #[test]
    fn the_square_law_couples_the_queues() {
        let mut queue = dual();
        (queue.base, queue.update_at) = (0.2, Time::MAX);
        for _ in 0..1000 {
            queue.enqueue(Time::START, scalable(0)).unwrap();
            queue.enqueue(Time::START, packet(1, 1000)).unwrap();
        }
        let out = check::drain(&mut queue, Time::START);
        let drops = check::victims(&mut queue).len();
        // A sum of likelihoods passes 1 one packet after it reaches it.
        assert!(queue.marked.abs_diff(400) <= 1 && drops.abs_diff(40) <= 1, "{queue:?}");
        let marks = out.iter().filter(|packet| packet.flow.0 == 0).map(|p| p.ecn == Ecn::Ce);
        let marks: Vec<bool> = marks.collect();
        let pairs = marks.chunks_exact(5).filter(|five| five.iter().filter(|&&m| m).count() == 2);
        assert!(pairs.count() >= 198, "two of every five");
    }

    /// RFC 9332, Fig. 7, line 4b and 12b: from k p' = 1 on, both queues drop with probability p'^2, whether or not
    /// packets support ECN, and the rest of L are all marked.
    #[test]
    fn overload_drops_from_both_queues_and_marks_the_rest_of_l() {
        for (base, c_drops, l_drops) in [(0.49, 0, 0), (0.5, 250, 250)] {
            let mut queue = dual();
            (queue.base, queue.update_at) = (base, Time::MAX);
            for _ in 0..1000 {
                queue.enqueue(Time::START, scalable(0)).unwrap();
                let mut capable = packet(1, 1000);
                capable.ecn = Ecn::Ect0;
                queue.enqueue(Time::START, capable).unwrap();
            }
            let out = check::drain(&mut queue, Time::START);
            let victims = check::victims(&mut queue);
            let of = |flow| victims.iter().filter(|&&(victim, _)| victim == flow).count();
            assert!(of(1).abs_diff(c_drops) <= 1 && of(0).abs_diff(l_drops) <= 1, "{base}");
            let sent = |marked| {
                out.iter().filter(|p| p.flow.0 == 0 && (p.ecn == Ecn::Ce) == marked).count()
            };
            let unmarked = if base < 0.5 { 20 } else { 0 };
            assert!(sent(false).abs_diff(unmarked) <= 1, "{base}: {} are not", sent(false));
        }
    }

    /// RFC 9332, Fig. 5 and lines 5a to 5d of Fig. 7: it starts at 0.8 ms, and marks all 0.4 ms later.
    #[test]
    fn the_ramp_marks_by_delay_but_never_a_queue_of_one_packet() {
        let us = Duration::from_us;
        let queue = dual();
        for (delay, mark) in
            [(0, 0.0), (800, 0.0), (900, 0.25), (1100, 0.75), (1200, 1.0), (9000, 1.0)]
        {
            assert!((queue.ramp(us(delay)) - mark).abs() < 1e-12, "{delay}");
        }
        let step = DualPi2Options { ramp: us(0), ..DualPi2Options::usual(Room::UNLIMITED) };
        let step = DualPi2::new(step);
        assert_eq!((step.ramp(us(799)), step.ramp(us(800))), (0.0, 1.0));
        let marked = |packets: u32| {
            let mut queue = dual();
            queue.update_at = Time::MAX;
            (0..packets).for_each(|_| queue.enqueue(Time::START, scalable(0)).unwrap());
            check::drain(&mut queue, Time::START + us(5000));
            queue.marked
        };
        // The last one, alone, is not marked; and the sum has to pass 1 first.
        assert_eq!((marked(1), marked(10)), (0, 8));
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
    fn accounts_for_every_packet() {
        let us = Duration::from_us;
        let usual = DualPi2Options::usual(Room::packets(40));
        let quick = DualPi2Options { target: us(5), update: us(5), beta: 900.0, ..usual };
        check::holds(DualPi2::new(quick), &check::USUAL);
    }
}
