//! Messages from packets, at a receiver of an unreliable channel (E-21).
//!
//! ```text
//! packets --> [ message 7: 0 1 _ 3 ] --> complete messages
//!             [ message 8: _ _ 2 _ ]     one that lacks a packet is given up
//! ```
//!
//! There are no retransmissions, so a message that lost a packet is never complete. It is kept while its
//! packets may still arrive late, and given up when more than `open_max` messages are open. Packets may
//! arrive in any order and more than once. Packets that are inconsistent, or of a message that is over, are
//! counted and otherwise ignored.
//!
//! Source: Indiresan 1997, §3.2.3. The document's network keeps packets in order; the handling of
//! reordering is ours.
//!
//! ```
//! use lastmeter_base::Bytes;
//! use lastmeter_transport::channel::reassembly::{Accepted, Part, Reassembly};
//! let mut receiver = Reassembly::new(2);
//! let part = |index| Part { message: 0, index, count: 2 };
//! assert_eq!(receiver.accept(part(1), Bytes(904)), Accepted::Part);
//! assert_eq!(receiver.accept(part(0), Bytes(2048)), Accepted::Message(Bytes(2952)));
//! ```

use super::contract::PACKETS_MAX;
use lastmeter_base::{Bytes, Packet};
use std::collections::{BTreeMap, BTreeSet};

/// Finished messages remembered, so that late copies of their packets are recognised.
const OVER_MAX: usize = 64;

/// Which packet of which message of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub message: u64,
    /// From 0.
    pub index: u32,
    /// Packets of the message.
    pub count: u32,
}

impl Part {
    /// Writes it into the packet's transport header.
    pub fn write(self, packet: &mut Packet) {
        packet.transport[0] = self.message;
        packet.transport[1] = u64::from(self.index) << 32 | u64::from(self.count);
    }
    /// Reads it from there; `None` where no channel has written one.
    pub fn read(packet: &Packet) -> Option<Part> {
        let [message, place, ..] = packet.transport;
        let part = Part { message, index: (place >> 32) as u32, count: place as u32 };
        (part.count > 0).then_some(part)
    }
}

/// The result of a packet's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Its message still lacks others.
    Part,
    /// It completes its message, which has this many bytes.
    Message(Bytes),
    /// It is a duplicate, or its message is over.
    Late,
    /// It contradicts itself or another packet of its message.
    Nonsense,
}

#[derive(Clone, Debug)]
struct Open<B> {
    have: Vec<Option<B>>,
    missing: u32,
    bytes: Bytes,
}

/// The receiver of one channel; `B` is what each packet contains: nothing in a model.
#[derive(Clone, Debug)]
pub struct Reassembly<B = ()> {
    open: BTreeMap<u64, Open<B>>,
    open_max: usize,
    /// All messages before this one are over.
    floor: u64,
    /// Later ones that are over.
    over: BTreeSet<u64>,
    given_up: u64,
}

impl Reassembly {
    /// A packet of `len` has arrived.
    pub fn accept(&mut self, part: Part, len: Bytes) -> Accepted {
        self.take(part, len, ()).0
    }
}

impl<B> Reassembly<B> {
    /// A receiver that keeps at most this many messages open, at least one.
    pub fn new(open_max: usize) -> Reassembly<B> {
        Reassembly {
            open: BTreeMap::new(),
            open_max: open_max.max(1),
            floor: 0,
            over: BTreeSet::new(),
            given_up: 0,
        }
    }

    /// A packet of `len` has arrived; also returns, in order, the contents of the packets of a message that it
    /// completes.
    pub fn take(&mut self, part: Part, len: Bytes, content: B) -> (Accepted, Vec<B>) {
        let accepted = self.place(part, len, content);
        let Accepted::Message(_) = accepted else { return (accepted, Vec::new()) };
        let open = self.open.remove(&part.message);
        self.over.insert(part.message);
        while self.over.remove(&self.floor) {
            self.floor += 1;
        }
        if self.over.len() > OVER_MAX
            && let Some(&first) = self.over.first()
        {
            self.end_up_to(first);
        }
        let contents = open.into_iter().flat_map(|open| open.have);
        (accepted, contents.flatten().collect())
    }

    /// Puts a packet in its place.
    fn place(&mut self, part: Part, len: Bytes, content: B) -> Accepted {
        let Part { message, index, count } = part;
        if index >= count || u64::from(count) > PACKETS_MAX {
            return Accepted::Nonsense;
        }
        if message < self.floor || self.over.contains(&message) {
            return Accepted::Late;
        }
        if !self.open.contains_key(&message) && self.open.len() >= self.open_max {
            let first = self.open.first_key_value().map_or(message, |(&first, _)| first);
            if message < first {
                return Accepted::Late;
            }
            self.end_up_to(first);
        }
        let new = || {
            let have = (0..count).map(|_| None).collect();
            Open { have, missing: count, bytes: Bytes::ZERO }
        };
        let open = self.open.entry(message).or_insert_with(new);
        let right = open.have.len() == count as usize;
        match open.have.get_mut(index as usize) {
            Some(place) if right && place.is_none() => *place = Some(content),
            Some(_) if right => return Accepted::Late,
            _ => return Accepted::Nonsense,
        }
        open.missing -= 1;
        open.bytes += len;
        match open.missing {
            0 => Accepted::Message(open.bytes),
            _ => Accepted::Part,
        }
    }

    /// Messages given up after receiving a part.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Messages received in part.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Gives up all up to `message`, which is a known one.
    fn end_up_to(&mut self, message: u64) {
        let after = message.saturating_add(1);
        let later = self.open.split_off(&after);
        self.given_up += self.open.len() as u64;
        self.open = later;
        self.over = self.over.split_off(&after);
        self.floor = after;
        while self.over.remove(&self.floor) {
            self.floor += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn e_21_what_misses_a_packet_is_given_up_when_later_messages_need_its_place() {
        let mut receiver = Reassembly::new(2);
        let part = |message, index| Part { message, index, count: 3 };
        for (message, index) in [(0, 0), (0, 2), (1, 0), (1, 1)] {
            assert_eq!(receiver.accept(part(message, index), Bytes(10)), Accepted::Part);
        }
        assert_eq!(receiver.accept(part(2, 0), Bytes(10)), Accepted::Part);
        assert_eq!((receiver.given_up(), receiver.open()), (1, 2));
        assert_eq!(receiver.accept(part(0, 1), Bytes(10)), Accepted::Late);
        assert_eq!(receiver.accept(part(1, 2), Bytes(10)), Accepted::Message(Bytes(30)));
        assert_eq!(receiver.accept(part(1, 2), Bytes(10)), Accepted::Late);
    }

    #[test]
    fn e_21_contents_are_in_the_order_of_the_message_and_not_of_arrival() {
        let mut receiver = Reassembly::new(2);
        let mut take =
            |index, content| receiver.take(Part { message: 0, index, count: 3 }, Bytes(1), content);
        assert_eq!(take(2, 'c'), (Accepted::Part, vec![]));
        assert_eq!(take(0, 'a'), (Accepted::Part, vec![]));
        assert_eq!(take(0, 'x'), (Accepted::Late, vec![]));
        assert_eq!(take(1, 'b'), (Accepted::Message(Bytes(3)), vec!['a', 'b', 'c']));
    }

    #[test]
    fn e_21_nonsense_leaves_no_trace() {
        let mut receiver = Reassembly::new(2);
        for (index, count) in [(3, 3), (0, 0), (9, u32::MAX), (0, 1 << 17)] {
            let part = Part { message: 0, index, count };
            assert_eq!(receiver.accept(part, Bytes(1)), Accepted::Nonsense);
        }
        assert_eq!(receiver.open(), 0);
        receiver.accept(Part { message: 4, index: 0, count: 2 }, Bytes(1));
        let other = Part { message: 4, index: 1, count: 5 };
        assert_eq!(receiver.accept(other, Bytes(1)), Accepted::Nonsense);
    }

    proptest! {
        /// With loss, duplication, and reordering by less than `open_max` messages, exactly the messages whose
        /// packets all arrived are completed, once each.
        #[test]
        fn e_21_just_those_are_whole_of_which_every_packet_came(
            counts in prop::collection::vec(1u32..6, 1..40),
            fates in prop::collection::vec((0u8..10, 0usize..6), 240),
        ) {
            let mut wire = Vec::new();
            let mut lost = BTreeSet::new();
            let mut fates = fates.into_iter().cycle();
            for (message, &count) in counts.iter().enumerate() {
                for index in 0..count {
                    let (fate, later) = fates.next().unwrap();
                    let part = Part { message: message as u64, index, count };
                    let at = wire.len();
                    match fate {
                        0 => drop(lost.insert(part.message)),
                        1 => wire.extend([(at, part), (at + later, part)]),
                        _ => wire.push((at + later, part)),
                    }
                }
            }
            wire.sort_by_key(|&(at, _)| at);
            let mut receiver = Reassembly::new(16);
            let mut whole = BTreeSet::new();
            for (_, part) in wire {
                if let Accepted::Message(len) = receiver.accept(part, Bytes(7)) {
                    prop_assert_eq!(len, Bytes(7 * u64::from(part.count)));
                    prop_assert!(whole.insert(part.message), "once each");
                }
            }
            let all = (0..counts.len() as u64).filter(|message| !lost.contains(message));
            prop_assert_eq!(whole, all.collect::<BTreeSet<_>>());
        }
    }
}
