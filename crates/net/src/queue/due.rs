//! Packets ordered by an instant, earliest first.
//!
//! The disciplines that use it differ only in the instant that they
//! assign to a packet. Equal instants are served first in, first out.

use super::flows::Room;
use lastmeter_base::{Bytes, Packet, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A packet that is compared by when it is due, then by its order of arrival.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) key: (Time, u64),
    pub(super) packet: Packet,
}
impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.key == other.key
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// A buffer of packets ordered by their instants.
#[derive(Debug)]
pub(super) struct Agenda {
    waiting: BinaryHeap<Reverse<Due>>,
    room: Room,
    pub(super) bytes: Bytes,
    count: u64,
}

impl Agenda {
    pub(super) fn new(room: Room) -> Agenda {
        Agenda { waiting: BinaryHeap::new(), room, bytes: Bytes::ZERO, count: 0 }
    }
    #[inline]
    pub(super) fn fits(&self, len: Bytes) -> bool {
        self.packets() < self.room.packets && self.bytes + len <= self.room.bytes
    }
    /// Adds a packet that fits.
    #[inline]
    pub(super) fn push(&mut self, due: Time, packet: Packet) {
        self.bytes += packet.len;
        self.count += 1;
        self.waiting.push(Reverse(Due { key: (due, self.count), packet }));
    }
    /// When the first packet is due.
    #[inline]
    pub(super) fn first(&self) -> Option<Time> {
        self.waiting.peek().map(|Reverse(due)| due.key.0)
    }
    /// Takes the first packet, and when it was due.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Time, Packet)> {
        let Reverse(Due { key: (due, _), packet }) = self.waiting.pop()?;
        self.bytes -= packet.len;
        Some((due, packet))
    }
    #[inline]
    pub(super) fn packets(&self) -> u64 {
        self.waiting.len() as u64
    }
}
