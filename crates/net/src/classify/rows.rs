//! The rows of a field, and, while there are few blocks, a copy of their bits for the search.
//!
//! The copy holds all rules in order of precedence, in parts of 512: those of a row are one cache line and one
//! vector, found by the row's number alone.

use super::bits::{BLOCK, BLOCKS_MAX, Block, Division, Row, Slot, Store};

/// This many blocks are few.
const FEW: usize = 8;
/// Rules in a part.
pub(super) const PART: usize = 512;

/// A row's bits of a part.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Part(pub(super) [u64; PART / 64]);

const NO_RULES: Part = Part([0; PART / 64]);

/// The ranks of blocks while there are few.
#[derive(Debug)]
pub(super) struct Ranks {
    ranks: [u8; BLOCKS_MAX],
    /// How many blocks there are; 0 if they are more than few.
    pub(super) few: usize,
}

impl Ranks {
    /// Of one block, the first.
    pub(super) fn new() -> Ranks {
        Ranks { ranks: [u8::MAX; BLOCKS_MAX], few: 1 }.next([0].into_iter())
    }
    /// The ranks of blocks in order of precedence, after others.
    pub(super) fn next(&self, blocks: impl ExactSizeIterator<Item = usize>) -> Ranks {
        // Many are few again only when there is room for one more, so that rows are not copied back and forth.
        let most = if self.few > 0 { FEW } else { FEW - 1 };
        let few = if blocks.len() <= most { blocks.len() } else { 0 };
        let mut ranks = [u8::MAX; BLOCKS_MAX];
        blocks.take(few).zip(0..).for_each(|(block, rank)| ranks[block] = rank);
        Ranks { ranks, few }
    }
    /// The rank of a block.
    pub(super) fn rank(&self, block: usize) -> Option<usize> {
        let rank = usize::from(self.ranks[block]);
        (rank < self.few).then_some(rank)
    }
    /// Whether each block that has a rank in both has the same.
    pub(super) fn agree(&self, other: &Ranks) -> bool {
        let both = |block| self.rank(block).zip(other.rank(block));
        self.few > 0 && (0..BLOCKS_MAX).filter_map(both).all(|(one, other)| one == other)
    }
}

/// The rows of a field.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    /// The copy: the parts in use, and in each of them all rows; empty unless there are few blocks.
    pub(super) parts: Vec<Vec<Part>>,
}

impl Rows {
    /// Empty ones.
    pub(super) fn new(count: usize) -> Rows {
        Rows { rows: vec![Row::default(); count], parts: vec![vec![NO_RULES; count]] }
    }
    #[inline(always)]
    pub(super) fn get(&self, number: u16) -> Row {
        self.rows[usize::from(number)]
    }
    /// Gives an empty row, or a new one, the rules of another.
    pub(super) fn copy(&mut self, store: &mut Store, like: u16, to: Option<u16>) -> u16 {
        let new = to.unwrap_or_else(|| {
            self.rows.push(Row::default());
            self.parts.iter_mut().for_each(|part| part.push(NO_RULES));
            u16::try_from(self.rows.len() - 1).expect("there are fewer rows than numbers")
        });
        let (like, to) = (usize::from(like), usize::from(new));
        self.rows[to] = store.copy(self.rows[like]);
        self.parts.iter_mut().for_each(|part| part[to] = part[like]);
        new
    }
    /// Empties a row.
    pub(super) fn release(&mut self, store: &mut Store, number: u16) {
        store.release(std::mem::take(&mut self.rows[usize::from(number)]));
        self.parts.iter_mut().for_each(|part| part[usize::from(number)] = NO_RULES);
    }
    /// Puts a rule into a row, or takes it out.
    pub(super) fn change(
        &mut self,
        store: &mut Store,
        number: u16,
        (slot, is_in): (Slot, bool),
        others: &Block,
    ) {
        store.change(&mut self.rows[usize::from(number)], slot, is_in, others);
        self.show(store, number.into(), slot.block);
    }
    /// Brings a block of a row's copy up to date.
    fn show(&mut self, store: &Store, number: usize, block: usize) {
        if let Some(rank) = store.ranks.rank(block) {
            let Block(words) = store.block(self.rows[number], block);
            let Part(part) = &mut self.parts[rank * BLOCK / PART][number];
            part.as_chunks_mut().0[rank % (PART / BLOCK)] = words;
        }
    }
    /// Splits a block; the copy must be made again.
    pub(super) fn divide(&mut self, store: &mut Store, division: &Division) {
        self.rows.iter_mut().for_each(|row| store.divide(row, division));
    }
    /// The ranks of blocks have changed: the copy is made `again`, or only blocks without rules have come or
    /// gone at its end.
    pub(super) fn rank(&mut self, store: &Store, again: bool) {
        if again {
            self.parts.clear();
        }
        let parts = (store.ranks.few * BLOCK).div_ceil(PART);
        self.parts.resize_with(parts, || vec![NO_RULES; self.rows.len()]);
        for block in (0..BLOCKS_MAX).filter(|&block| again && store.ranks.rank(block).is_some()) {
            (0..self.rows.len()).for_each(|number| self.show(store, number, block));
        }
    }
    pub(super) fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| size_of_val(&part[..]));
        size_of_val(&self.rows[..]) + parts.sum::<usize>()
    }
}
