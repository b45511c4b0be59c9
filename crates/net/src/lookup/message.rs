//! Changes to a table as messages: the words that a change stores, sent in control cells, and the replica that
//! stores them, too (D-41).
//!
//! ```text
//! cell's body   address 4 | word 8 |   up to three times, 40 bytes at most
//! ```
//!
//! The writer keeps the table, and sends each word that it stored; each port's replica stores the same words in the
//! same order. The last store of a change publishes it, so a replica that looks up between two cells sees
//! the table before or after the change, if it takes the cells of one change with no lookup in progress.
//!
//! Source: WUCS description of the router §3.4, and §9.2 for the size: there, an update was 12 writes of 36
//! bits in 3 cells (D-138); here, a write is 64 bits and three fit into a cell. The layout is our choice.

use super::NextHop;
use super::key::Key;
use super::memory::RESERVED;
use super::search::Shape;
use super::tree_bitmap::Options;
use lastmeter_wire::control::der::{CELL_BODY_LEN, ControlCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cell's operation: store these words.
pub const STORE: u16 = 1;
/// Bytes of a write in a cell.
const WRITE_LEN: usize = 12;
/// Writes in a cell.
pub const WRITES_PER_CELL: usize = CELL_BODY_LEN / WRITE_LEN;

/// One store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The index of the word.
    pub address: u32,
    /// Its new value.
    pub word: u64,
}

/// The control cells that carry `writes` to `port`, numbered from `sequence`.
///
/// ```
/// use lastmeter_net::lookup::message::{Write, cells};
/// let writes = [Write { address: 4, word: 7 }; 12];
/// assert_eq!(cells(&writes, 2, 0).len(), 4);
/// ```
pub fn cells(writes: &[Write], port: u8, sequence: u16) -> Vec<ControlCell> {
    let cell = |(number, writes): (usize, &[Write])| {
        let mut body = [0; CELL_BODY_LEN];
        for (bytes, write) in body.chunks_exact_mut(WRITE_LEN).zip(writes) {
            bytes[..4].copy_from_slice(&write.address.to_be_bytes());
            bytes[4..].copy_from_slice(&write.word.to_be_bytes());
        }
        let (sequence, len) = (sequence.wrapping_add(number as u16), writes.len() * WRITE_LEN);
        ControlCell { operation: STORE, sequence, port, len: len as u8, body }
    };
    writes.chunks(WRITES_PER_CELL).enumerate().map(cell).collect()
}

/// Why a cell was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The cell has another operation: the sender must use [`STORE`].
    Operation(u16),
    /// Its length is not a whole number of writes.
    Length(u8),
    /// A word outside the range that a table may change.
    Address(u32),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Operation(found) => write!(f, "operation {found} is not {STORE}, store"),
            Refusal::Length(found) => {
                write!(f, "length {found} is not 12, 24 or 36: a write has 12 bytes")
            }
            Refusal::Address(found) => {
                write!(f, "word {found} is not among those from {RESERVED} to `words_max`")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// A port's copy of a table, kept in step by control cells.
///
/// Whatever the cells contain, it never panics, loops, or uses more memory than its options allow.
#[derive(Debug)]
pub struct Replica<K> {
    words: Vec<AtomicU64>,
    shape: Shape,
    words_max: u32,
    key: PhantomData<K>,
}

impl<K: Key> Replica<K> {
    /// A copy of an empty table with these options.
    pub fn new(options: Options) -> Replica<K> {
        let shape = Shape::new(options.initial, options.stride);
        Replica { words: Vec::new(), shape, words_max: options.words_max, key: PhantomData }
    }
    /// Applies a cell, as a whole or not at all.
    ///
    /// # Errors
    /// If [`cells`] cannot have made it, or a word is outside the limits.
    pub fn take(&mut self, cell: &ControlCell) -> Result<(), Refusal> {
        let len = usize::from(cell.len);
        if cell.operation != STORE {
            return Err(Refusal::Operation(cell.operation));
        }
        if len > CELL_BODY_LEN || !len.is_multiple_of(WRITE_LEN) {
            return Err(Refusal::Length(cell.len));
        }
        let within = RESERVED..self.words_max;
        let write = |bytes: &[u8]| {
            let (address, word) = bytes.split_first_chunk::<4>()?;
            let word = u64::from_be_bytes(*word.first_chunk::<8>()?);
            Some(Write { address: u32::from_be_bytes(*address), word })
        };
        let writes = || cell.body[..len].chunks_exact(WRITE_LEN).filter_map(write);
        if let Some(beyond) = writes().find(|write| !within.contains(&write.address)) {
            return Err(Refusal::Address(beyond.address));
        }
        writes().for_each(|write| self.store(write));
        Ok(())
    }
    fn store(&mut self, write: Write) {
        let at = write.address as usize;
        if at >= self.words.len() {
            let len = (at + 1 + at / 8).min(self.words_max as usize);
            self.words.resize_with(len, AtomicU64::default);
        }
        self.words[at].store(write.word, Ordering::Relaxed);
    }
    /// The next hop of the longest prefix that matches `key`.
    pub fn lookup(&self, key: K) -> Option<NextHop> {
        self.shape.lookup(&self.words, key)
    }
    /// The next hops of many keys, interleaved. Panics if `hops` is not as long as `keys`.
    pub fn lookup_batch(&self, keys: &[K], hops: &mut [Option<NextHop>]) {
        assert_eq!(keys.len(), hops.len(), "a next hop for each key");
        self.shape.lookup_batch(&self.words, keys, hops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::{Prefix, TreeBitmap};
    use lastmeter_base::Stream;

    fn hop(number: u32) -> NextHop {
        NextHop::new(number).expect("not zero")
    }

    #[test]
    fn a_replica_that_applies_the_cells_gives_the_same_answers_d_41() {
        [&[8][..], &[4, 3, 7]].into_iter().for_each(same_answers);
    }
    fn same_answers(initial: &'static [u8]) {
        let options = Options { initial, ..Options::IPV4 };
        let mut table = TreeBitmap::<u32>::new(options);
        let mut replica = Replica::new(options);
        table.record();
        let mut random = Stream::new(1, "cells");
        let mut prefixes = Vec::new();
        for round in 0..2_000 {
            if round % 3 == 2 {
                let at = random.below(prefixes.len() as u64) as usize;
                table.remove(prefixes.swap_remove(at));
            } else {
                let key = random.bits() as u32 & 0xf00f_ffff;
                let prefix = Prefix::new(key, 1 + random.below(32) as u8).expect("at most 32");
                table.insert(prefix, hop(1 + random.below(9) as u32)).expect("there is room");
                prefixes.push(prefix);
            }
            for cell in cells(&table.take_writes(), 3, round as u16) {
                let cell = ControlCell::parse(&cell.emit()).expect("it was made here");
                replica.take(&cell).expect("it was made here");
            }
            for _ in 0..8 {
                let key = random.bits() as u32 & 0xf00f_ffff;
                assert_eq!(replica.lookup(key), table.lookup(key), "{key:x}");
            }
        }
    }

    #[test]
    fn an_addition_in_the_hardware_s_shape_takes_a_few_cells_d_138() {
        let mut table = TreeBitmap::<u32>::new(Options::FIPL);
        table.insert(Prefix::new(0x0a00_0000, 8).expect("8"), hop(1)).expect("there is room");
        table.record();
        table.insert(Prefix::new(0x0a01_0200, 24).expect("24"), hop(2)).expect("there is room");
        let writes = table.take_writes();
        // Four nodes of 4 words below that of 10/8, that one rewritten with 6, and the pointer to it.
        assert_eq!((writes.len(), cells(&writes, 0, 0).len()), (4 * 4 + 6 + 1, 8));
    }

    #[test]
    fn refuses_cells_that_no_table_can_send() {
        let mut replica = Replica::<u32>::new(Options { words_max: 100, ..Options::FIPL });
        let [cell] = cells(&[Write { address: 99, word: u64::MAX }], 0, 0)[..] else { panic!() };
        assert_eq!(replica.take(&cell), Ok(()));
        assert_eq!(replica.take(&ControlCell { len: 13, ..cell }), Err(Refusal::Length(13)));
        assert_eq!(replica.take(&ControlCell { len: 48, ..cell }), Err(Refusal::Length(48)));
        assert_eq!(replica.take(&ControlCell { operation: 2, ..cell }), Err(Refusal::Operation(2)));
        let [beyond] = cells(&[Write { address: 100, word: 0 }], 0, 0)[..] else { panic!() };
        assert_eq!(replica.take(&beyond), Err(Refusal::Address(100)));
        // The empty node stays empty.
        let [before] = cells(&[Write { address: 3, word: 1 }], 0, 0)[..] else { panic!() };
        assert_eq!(replica.take(&before), Err(Refusal::Address(3)));
    }

    #[test]
    fn arbitrary_words_neither_panic_nor_loop() {
        let mut replica = Replica::<u128>::new(Options { words_max: 64, ..Options::FIPL });
        let mut random = Stream::new(1, "nonsense");
        for _ in 0..2_000 {
            let pointer = random.below(40) << 32 | random.below(40);
            let word = if random.chance(0.5) { random.bits() } else { pointer };
            for cell in cells(&[Write { address: 4 + random.below(60) as u32, word }], 0, 0) {
                replica.take(&cell).expect("within the limit");
            }
            let keys = [random.bits().into(), u128::MAX, 0];
            let mut hops = [None; 3];
            replica.lookup_batch(&keys, &mut hops);
            assert_eq!(hops, keys.map(|key| replica.lookup(key)));
        }
    }
}
