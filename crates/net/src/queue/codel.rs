//! CoDel: drops from the head so that a standing queue drains.
//!
//! ```text
//! in --> [ newest | ... | oldest ] --> waited longer than target for an interval? drop : out
//! ```
//!
//! | Parameter  | Unit    | Default  | Meaning                                            |
//! |------------|---------|----------|----------------------------------------------------|
//! | `target`   | time    | 5 ms     | acceptable standing queueing delay  (§4.3)         |
//! | `interval` | time    | 100 ms   | how long it may be exceeded before a drop  (§4.3)  |
//! | `mtu`      | size    | 1500 B   | with no more backlog than this, nothing is dropped |
//! | `ecn`      | flag    | false    | mark instead of dropping if both ends support ECN  |
//! | `packets`  | packets | no limit | limit on packets held                              |
//! | `bytes`    | size    | no limit | limit on bytes held                                |
//!
//! Source: RFC 8289, names and order as in §5; Nichols & Jacobson, ACM Queue 10(5), 2012.
//! Deviations: time is exact in picoseconds, and `interval / sqrt(count)` is an integer square root,
//! rounded down. `mtu` is 1500 bytes, where §5.3 writes 512 and says that it should be the interface's.
//! A mark takes the place of a drop and ends the `dequeue`, as in Linux, because the RFC leaves
//! marking open.

use super::flows::{BYTES, Bank, PACKETS, Room, of_bank};
use super::red::{ECN, MARKED};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Ecn, Packet, Time};

/// Parameters of the control law.
#[derive(Clone, Copy, Debug)]
pub struct CodelOptions {
    /// Acceptable standing queueing delay.
    pub target: Duration,
    /// How long it may be exceeded.
    pub interval: Duration,
    /// With no more backlog than this, nothing is dropped.
    pub mtu: Bytes,
    /// Whether packets are marked.
    pub ecn: bool,
}

impl CodelOptions {
    /// The values of RFC 8289, §4.3.
    pub const RFC_8289: CodelOptions = CodelOptions {
        target: Duration::from_ms(5),
        interval: Duration::from_ms(100),
        mtu: Bytes(1500),
        ecn: false,
    };

    pub(super) fn from_values(values: &Values) -> CodelOptions {
        CodelOptions {
            target: values.get("target"),
            interval: values.get("interval"),
            mtu: values.get("mtu"),
            ecn: values.get("ecn"),
        }
    }
}

pub(super) const TARGET: Param =
    Param::or("target", ParamKind::Time, "5 ms").is("acceptable standing queueing delay");
pub(super) const INTERVAL: Param =
    Param::or("interval", ParamKind::Time, "100 ms").is("how long `target` may be exceeded");
pub(super) const MTU: Param = Param::or("mtu", ParamKind::PACKET, "1500 B")
    .is("with no more backlog than this, nothing is dropped");

/// The control law, for one queue of a bank.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Law {
    first_above_time: Option<Time>,
    drop_next: Time,
    count: u64,
    lastcount: u64,
    dropping: bool,
}

const REASON: &str = "codel";

/// RFC 8289 §5.6, `control_law`: t + interval / sqrt(count).
pub(super) fn next(from: Time, interval: Duration, count: u64) -> Time {
    let interval = u128::from(interval.as_ps());
    let gap = (interval * interval / u128::from(count.max(1))).isqrt();
    from + Duration::from_ps(u64::try_from(gap).unwrap_or(u64::MAX))
}

impl Law {
    /// RFC 8289 §5.5, `dodequeue`: the head, and whether it may be dropped.
    #[inline]
    fn take(
        &mut self,
        now: Time,
        options: &CodelOptions,
        bank: &mut Bank,
        at: usize,
    ) -> Option<(Packet, bool)> {
        let Some(packet) = bank.pop(at) else {
            self.first_above_time = None;
            return None;
        };
        let sojourn = now.saturating_since(packet.entered);
        if sojourn < options.target || bank.fifo(at).length(super::Unit::Bytes) <= options.mtu.0 {
            self.first_above_time = None;
            return Some((packet, false));
        }
        match self.first_above_time {
            None => {
                self.first_above_time = Some(now + options.interval);
                Some((packet, false))
            }
            Some(above) => Some((packet, now >= above)),
        }
    }

    fn next(&self, from: Time, options: &CodelOptions) -> Time {
        next(from, options.interval, self.count)
    }

    /// RFC 8289 §5.4, `deque`. Victims go to the bank; marks are counted in `marked`.
    #[inline]
    pub(super) fn dequeue(
        &mut self,
        now: Time,
        options: &CodelOptions,
        bank: &mut Bank,
        at: usize,
        marked: &mut u64,
    ) -> Option<Packet> {
        let Some((packet, ok_to_drop)) = self.take(now, options, bank, at) else {
            self.dropping = false;
            return None;
        };
        if !ok_to_drop {
            self.dropping = false;
            return Some(packet);
        }
        if self.dropping && now < self.drop_next {
            return Some(packet);
        }
        self.act(now, options, bank, at, packet, marked)
    }

    #[cold]
    fn act(
        &mut self,
        now: Time,
        options: &CodelOptions,
        bank: &mut Bank,
        at: usize,
        mut packet: Packet,
        marked: &mut u64,
    ) -> Option<Packet> {
        let marks = |packet: &Packet| options.ecn && packet.ecn.is_capable();
        if !self.dropping {
            self.dropping = true;
            // If the last dropping state ended recently, its rate was about right.
            let delta = self.count.saturating_sub(self.lastcount);
            let recent =
                now.saturating_since(self.drop_next).as_ps() < 16 * options.interval.as_ps();
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.lastcount = self.count;
            self.drop_next = self.next(now, options);
            if marks(&packet) {
                packet.ecn = Ecn::Ce;
                *marked += 1;
                return Some(packet);
            }
            bank.discard(packet, REASON);
            return self.take(now, options, bank, at).map(|(packet, _)| packet);
        }
        while self.dropping && now >= self.drop_next {
            self.count += 1;
            if marks(&packet) {
                packet.ecn = Ecn::Ce;
                *marked += 1;
                self.drop_next = self.next(self.drop_next, options);
                return Some(packet);
            }
            bank.discard(packet, REASON);
            let Some((next, ok_to_drop)) = self.take(now, options, bank, at) else {
                self.dropping = false;
                return None;
            };
            packet = next;
            match ok_to_drop {
                true => self.drop_next = self.next(self.drop_next, options),
                false => self.dropping = false,
            }
        }
        Some(packet)
    }
}

/// A first-in, first-out queue under CoDel.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Packet, Time};
/// use lastmeter_net::queue::{Codel, CodelOptions, Queue, Room};
/// let mut queue = Codel::new(CodelOptions::RFC_8289, Room::UNLIMITED);
/// queue.enqueue(Time::START, Packet::new(Bytes(1500)))?;
/// let soon = Time::START + Duration::from_ms(1);
/// assert!(queue.dequeue(soon).is_some()); // Below target: kept.
/// # Ok::<(), Packet>(())
/// ```
#[derive(Debug)]
pub struct Codel {
    bank: Bank,
    options: CodelOptions,
    law: Law,
    marked: u64,
}

impl Codel {
    /// Empty.
    pub fn new(options: CodelOptions, room: Room) -> Codel {
        let mut bank = Bank::new(room);
        bank.reach(0);
        Codel { bank, options, law: Law::default(), marked: 0 }
    }
}

impl Queue for Codel {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        if !self.bank.fits(packet.len) {
            return Err(packet);
        }
        packet.entered = now;
        self.bank.push(0, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.law.dequeue(now, &self.options, &mut self.bank, 0, &mut self.marked)
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

impl Described for Codel {
    const PAGE: &'static Page = &Page {
        name: "codel",
        family: Family::Queue,
        what: "CoDel: drops from the head so that a standing queue drains.",
        ports: "in --> [ newest | ... | oldest ] --> (too long above target: drop) --> out",
        params: &[TARGET, INTERVAL, MTU, ECN, PACKETS, BYTES],
        source: "RFC 8289, §5; Nichols & Jacobson, ACM Queue 10(5), 2012",
        deviations: &["Time is exact; the square root of the control law is rounded down."],
        counters: &[MARKED],
        drops: &[FULL, ("codel", "packets dropped from a standing queue")],
        example: one_queue!("codel = { packets = 1000 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Codel {
        Codel::new(CodelOptions::from_values(values), Room::from_values(values, site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet, victims};

    fn at(ms: u64) -> Time {
        Time::START + Duration::from_ms(ms)
    }

    /// When packets are dropped from a queue that receives one packet a millisecond, but two during the
    /// first `extra` milliseconds, and sends one a millisecond.
    fn drops(options: CodelOptions, extra: u64, end: u64) -> (Vec<u64>, Codel) {
        let mut queue = Codel::new(options, Room::UNLIMITED);
        let mut times = Vec::new();
        for ms in 0..end {
            for _ in 0..(if ms < extra { 2 } else { 1 }) {
                let mut packet = packet(0, 1000);
                packet.ecn = Ecn::Ect0;
                queue.enqueue(at(ms), packet).unwrap();
            }
            queue.dequeue(at(ms));
            times.extend(victims(&mut queue).iter().map(|_| ms));
        }
        (times, queue)
    }

    #[test]
    fn a_burst_that_drains_within_an_interval_loses_nothing() {
        let mut queue = Codel::new(CodelOptions::RFC_8289, Room::UNLIMITED);
        (0..90).for_each(|_| queue.enqueue(at(0), packet(0, 1000)).unwrap());
        (1..=90).for_each(|ms| assert!(queue.dequeue(at(ms)).is_some()));
        assert_eq!(victims(&mut queue), []);
    }

    /// RFC 8289 §3.3 and §5.6: an interval after target was first exceeded the first packet is
    /// dropped, the next after interval / sqrt(n), n = 1, 2, 3, ...
    #[test]
    fn drops_from_a_standing_queue_follow_the_square_root_law() {
        let (times, _) = drops(CodelOptions::RFC_8289, 60, 700);
        let first = times[0];
        assert!((105..=115).contains(&first), "{first}");
        let mut due = first as f64;
        for (n, &time) in times.iter().enumerate().skip(1).take(8) {
            due += 100.0 / (n as f64).sqrt();
            assert!((time as f64 - due).abs() <= 1.0, "drop {n} at {time}, due {due}");
        }
    }

    #[test]
    fn it_leaves_the_dropping_state_when_waiting_is_below_target() {
        let (times, queue) = drops(CodelOptions::RFC_8289, 20, 3000);
        assert!(!queue.law.dropping && times.last().unwrap() < &2000, "{times:?}");
        // The rest stays just below target.
        assert!(queue.packets() <= 6);
    }

    /// RFC 8289 §5.5: a new cycle starts from the drop count that the last one reached beyond its own
    /// start, if that ended at most 16 intervals ago, else from 1. By hand: a queue that stands from 0
    /// loses packets at 100, 200, 270.7, 328.4 ms, ... (interval / sqrt(n)).
    #[test]
    fn a_cycle_soon_after_another_starts_at_its_drop_rate() {
        let law = |pause: u64| {
            let mut queue = Codel::new(CodelOptions::RFC_8289, Room::UNLIMITED);
            let stand = |queue: &mut Codel, from: u64, to: u64| {
                // Every departing packet has waited 6 ms, and much more waits behind it.
                let mut drops = Vec::new();
                for ms in from..to {
                    while queue.packets() < 20 {
                        queue.enqueue(at(ms - 6), packet(0, 1000)).unwrap();
                    }
                    queue.dequeue(at(ms));
                    drops.extend(victims(queue).iter().map(|_| ms - from));
                }
                drops
            };
            let first = stand(&mut queue, 1000, 1420);
            assert_eq!(first, [100, 200, 271, 329, 379]);
            assert_eq!((queue.law.count, queue.law.lastcount), (5, 1));
            check::drain(&mut queue, at(1420));
            victims(&mut queue);
            stand(&mut queue, 1420 + pause, 1420 + pause + 102);
            (queue.law.count, queue.law.lastcount)
        };
        assert_eq!(law(100), (4, 4), "5 - 1 drops of the last cycle");
        assert_eq!(law(2000), (1, 1), "too long ago");
    }

    #[test]
    fn marks_take_the_place_of_drops() {
        let (times, queue) = drops(CodelOptions { ecn: true, ..CodelOptions::RFC_8289 }, 60, 700);
        assert!(times.is_empty() && queue.marked > 8);
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = CodelOptions {
            target: Duration::from_us(5),
            interval: Duration::from_us(100),
            ..CodelOptions::RFC_8289
        };
        check::holds(Codel::new(options, Room::packets(100)), &check::USUAL);
        check::holds(
            Codel::new(CodelOptions { ecn: true, ..options }, Room::UNLIMITED),
            &check::USUAL,
        );
    }
}
