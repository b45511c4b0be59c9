//! Strict priority: the lowest class goes first.
//!
//! ```text
//!      /-> class 0 [ ... ] -\
//! in --+-> class 1 [ ... ] --+--> out      class n only while all before it are empty
//!      \-> class 2 [ ... ] -/
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                                       |
//! |-----------|---------|----------|-------------------------------------------------------------------------------|
//! | `levels`  | classes | 8        | number of classes; those beyond the last share it                             |
//! | `packets` | packets | no limit | limit on packets in all classes                                               |
//! | `bytes`   | bytes   | no limit | limit on bytes in all classes                                                 |
//! | `full`    | word    | `refuse` | what is dropped: the arrival, or the newest of the lowest priority (`lowest`) |
//! | `short`   | bytes   | none     | packets of at most this length count as class 0                               |
//!
//! With `short`, acknowledgements go first without inspection; but so do senders that cut their data
//! into small packets. (A-172)
//!
//! Not pre-emptive: a packet whose transmission has begun is sent whole. Within a class, first in,
//! first out. A class that is never empty starves all after it; that is what it is for.
//!
//! Source: Kleinrock, Queueing Systems, Volume 2, 1976, §3.6 (head-of-the-line priority).

use super::flows::{BYTES, Bank, By, Classifier, End, PACKETS, Room, of_bank};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, Time};

/// Limit on levels: the bits of a machine word mark the non-empty ones.
const LEVELS_MAX: u64 = 64;

/// A queue for each class, served in their order.
///
/// ```
/// use lastmeter_base::{Bytes, Packet, Time};
/// use lastmeter_net::queue::{Priority, Queue, Room};
/// let mut queue = Priority::new(2, Room::UNLIMITED, false);
/// let mut bulk = Packet::new(Bytes(1500));
/// bulk.class = 1;
/// queue.enqueue(Time::START, bulk)?;
/// queue.enqueue(Time::START, Packet::new(Bytes(64)))?;
/// assert_eq!(queue.dequeue(Time::START).map(|packet| packet.len), Some(Bytes(64)));
/// # Ok::<(), Packet>(())
/// ```
#[derive(Debug)]
pub struct Priority {
    bank: Bank,
    classifier: Classifier,
    /// Bit n is set while class n holds something.
    busy: u64,
    push_out: bool,
    /// Packets of at most this length count as class 0.
    short: Bytes,
}

impl Priority {
    /// Up to 64 `levels`. With `push_out`, a full buffer drops from the lowest priority.
    pub fn new(levels: usize, room: Room, push_out: bool) -> Priority {
        let levels = levels.clamp(1, LEVELS_MAX as usize);
        let mut bank = Bank::new(room);
        bank.reach(levels - 1);
        let classifier = Classifier::new(By::Class, Some(levels));
        Priority { bank, classifier, busy: 0, push_out, short: Bytes::ZERO }
    }
    /// Lets packets of at most this length go first, whatever their class.
    pub fn with_short(self, short: Bytes) -> Priority {
        Priority { short, ..self }
    }
    fn lowest(&self) -> Option<usize> {
        self.busy.checked_ilog2().map(|class| class as usize)
    }
}

impl Queue for Priority {
    fn enqueue(&mut self, _now: Time, packet: Packet) -> Result<(), Packet> {
        let class = match packet.len <= self.short {
            true => 0,
            false => self.classifier.queue_of(&packet),
        };
        if packet.len > self.bank.room.bytes {
            return Err(packet);
        }
        while !self.bank.fits(packet.len) {
            match self.lowest() {
                Some(lowest) if self.push_out && lowest > class => {
                    self.bank.drop_from(lowest, End::Tail, "pushed out");
                    if self.bank.fifo(lowest).is_empty() {
                        self.busy &= !(1 << lowest);
                    }
                }
                _ => return Err(packet),
            }
        }
        self.busy |= 1 << class;
        self.bank.push(class, packet);
        Ok(())
    }
    fn dequeue(&mut self, _now: Time) -> Option<Packet> {
        if self.busy == 0 {
            return None;
        }
        let class = self.busy.trailing_zeros() as usize;
        let packet = self.bank.pop(class);
        if self.bank.fifo(class).is_empty() {
            self.busy &= !(1 << class);
        }
        packet
    }
    of_bank!(ready_at, packets, bytes, dropped);
}

impl Described for Priority {
    const PAGE: &'static Page = &Page {
        name: "priority",
        family: Family::Queue,
        what: "Strict priority: class 0 goes first, then class 1, and so on.",
        ports: "in --> [ class 0 ] [ class 1 ] ... --> lowest class first --> out",
        params: &[
            Param::or("levels", ParamKind::Integer { min: 1, max: LEVELS_MAX }, "8")
                .is("number of classes; those beyond the last share it"),
            PACKETS,
            BYTES,
            Param::or("full", ParamKind::Choice(&["refuse", "lowest"]), "refuse")
                .is("which packet is dropped: the arrival, or the newest of the lowest priority"),
            Param::optional("short", ParamKind::BUFFER, "none")
                .is("packets of at most this length count as class 0"),
        ],
        source: "Kleinrock, Queueing Systems, Volume 2, 1976, §3.6",
        drops: &[FULL, ("pushed out", "packets dropped to make room for a higher priority")],
        example: one_queue!(r#"priority = { levels = 2, packets = 50, full = "lowest" }"#),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Priority {
        let push_out = values.get::<String>("full") == "lowest";
        let levels = values.get::<u64>("levels") as usize;
        let short = values.given::<Bytes>("short").unwrap_or(Bytes::ZERO);
        Priority::new(levels, Room::from_values(values, site), push_out).with_short(short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, drain, packet, victims};

    #[test]
    fn serves_classes_in_their_order_and_each_in_order_of_arrival() {
        let mut queue = Priority::new(3, Room::UNLIMITED, false);
        for (class, len) in [(2, 1), (0, 2), (1, 3), (0, 4), (7, 5)] {
            queue.enqueue(Time::START, packet(class, len)).unwrap();
        }
        let lens: Vec<u64> = drain(&mut queue, Time::START).iter().map(|p| p.len.0).collect();
        assert_eq!(lens, [2, 4, 3, 1, 5]);
    }

    /// A-172.
    #[test]
    fn short_packets_may_count_as_the_first_class() {
        let mut queue = Priority::new(2, Room::UNLIMITED, false).with_short(Bytes(100));
        for (class, len) in [(1, 1500), (1, 100), (0, 1000), (1, 101)] {
            queue.enqueue(Time::START, packet(class, len)).unwrap();
        }
        let lens: Vec<u64> = drain(&mut queue, Time::START).iter().map(|p| p.len.0).collect();
        assert_eq!(lens, [100, 1000, 1500, 101]);
    }

    #[test]
    fn a_full_buffer_drops_from_the_lowest_priority_only() {
        let mut queue = Priority::new(3, Room::packets(2), true);
        queue.enqueue(Time::START, packet(2, 100)).unwrap();
        queue.enqueue(Time::START, packet(1, 100)).unwrap();
        queue.enqueue(Time::START, packet(0, 100)).unwrap();
        assert_eq!(victims(&mut queue), [(2, "pushed out")]);
        assert!(queue.enqueue(Time::START, packet(1, 100)).is_err());
    }

    #[test]
    fn accounts_for_every_packet() {
        check::holds(Priority::new(4, Room::packets(20), true), &check::USUAL);
        let room = Room { packets: u64::MAX, bytes: Bytes(20_000) };
        check::holds(Priority::new(4, room, false), &check::USUAL);
    }
}
