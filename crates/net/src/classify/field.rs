//! The fields that rules examine: the row of a value.

use super::bits::{Block, Slot, Store};
use super::rows::Rows;
use super::rule::Address;
use super::trie::Trie;
use crate::lookup::Prefix;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// An address: each prefix has a row, with the rules of all prefixes that contain it.
#[derive(Debug)]
pub(super) struct Addresses<A> {
    /// The row's number, from 1, of the longest prefix.
    pub(super) trie: Trie<A>,
    pub(super) rows: Rows,
    free: Vec<u16>,
    /// The row of each prefix, and how many rules name it.
    prefixes: BTreeMap<Prefix<A>, (u16, u32)>,
}

impl<A: Address> Addresses<A> {
    pub(super) fn new() -> Addresses<A> {
        Addresses {
            trie: Trie::new(),
            // Row 0 is for addresses that no prefix covers.
            rows: Rows::new(1),
            free: Vec::new(),
            prefixes: BTreeMap::new(),
        }
    }
    /// The prefixes within one, including itself: their rows have its rules.
    fn within(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u16)> + use<'_, A> {
        let all = self.prefixes.range(prefix..);
        let inside = all.take_while(move |(inner, _)| inner.key() <= prefix.last());
        inside.map(|(&inner, &(row, _))| (inner, row))
    }
    /// Puts a rule in, or takes it out.
    pub(super) fn change(
        &mut self,
        store: &mut Store,
        prefix: Prefix<A>,
        change @ (_, is_in): (Slot, bool),
        others: &Block,
    ) {
        if is_in && !self.prefixes.contains_key(&prefix) {
            let row = self.rows.copy(store, self.around(prefix), self.free.pop());
            self.prefixes.insert(prefix, (row, 0));
            self.trie.insert(prefix, row);
        }
        let rows: Vec<u16> = self.within(prefix).map(|(_, row)| row).collect();
        rows.into_iter().for_each(|row| self.rows.change(store, row, change, others));
        let (row, rules) = self.prefixes.get_mut(&prefix).expect("the rule was installed");
        *rules = if is_in { *rules + 1 } else { *rules - 1 };
        if let (row, 0) = (*row, *rules) {
            self.prefixes.remove(&prefix);
            self.trie.remove(prefix, row, self.around(prefix));
            self.rows.release(store, row);
            self.free.push(row);
        }
    }
    /// The row of the longest prefix that contains this one; 0 if there is none.
    fn around(&self, prefix: Prefix<A>) -> u16 {
        let mut before = self.prefixes.range(..prefix).next_back();
        while let Some((near, &(row, _))) = before {
            if near.contains(prefix.key()) {
                return row;
            }
            // What contains the prefix contains this neighbour, too, so it is no longer than what they share.
            let shared = (near.key().left() ^ prefix.key().left()).leading_zeros() as u8;
            let shorter = Prefix::new(prefix.key(), shared).expect("they differ");
            before = self.prefixes.range(..=shorter).next_back();
        }
        0
    }
}

/// A port: all ports between two adjacent range ends share a row.
#[derive(Debug)]
pub(super) struct Ports {
    /// The row number of each port.
    numbers: Vec<u16>,
    pub(super) rows: Rows,
    /// Where each run of ports with the same row begins.
    starts: BTreeMap<u16, u16>,
}

impl Ports {
    pub(super) fn new() -> Ports {
        Ports { numbers: vec![0; 1 << 16], rows: Rows::new(1), starts: BTreeMap::from([(0, 0)]) }
    }
    /// The row of a port.
    #[inline(always)]
    pub(super) fn row(&self, port: u16) -> u16 {
        self.numbers[usize::from(port)]
    }
    /// Makes a run begin at `port`.
    fn cut(&mut self, store: &mut Store, port: u16) {
        let (&start, &number) = self.starts.range(..=port).next_back().expect("a run begins at 0");
        if start == port {
            return;
        }
        let next = self.starts.range(port..).next().map_or(1 << 16, |(&next, _)| usize::from(next));
        let new = self.rows.copy(store, number, None);
        self.numbers[usize::from(port)..next].fill(new);
        self.starts.insert(port, new);
    }
    /// Puts a rule in, or takes it out. Runs are kept: there are no more than there are ports.
    pub(super) fn change(
        &mut self,
        store: &mut Store,
        ports: &RangeInclusive<u16>,
        change @ (_, is_in): (Slot, bool),
    ) {
        if is_in {
            self.cut(store, *ports.start());
            ports.end().checked_add(1).into_iter().for_each(|after| self.cut(store, after));
        }
        for (_, &number) in self.starts.range(ports.clone()) {
            self.rows.change(store, number, change, &Block::EMPTY);
        }
    }
}
