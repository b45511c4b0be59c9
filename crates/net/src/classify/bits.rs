//! Sets of rules as bits, in blocks: what a value of one field leaves possible.
//!
//! A row belongs to a class of values (those of one field that no rule tells apart). It says in which
//! blocks it has bits, and keeps these blocks alone, side by side. Rules that match any value of the
//! field stand in no row but in the field's common blocks.

/// Words of 64 rules in a block.
pub(super) const WORDS: usize = 4;
/// Rules in a block.
pub(super) const BLOCK: usize = 64 * WORDS;
/// Blocks: a summary is one word.
pub(super) const BLOCKS_MAX: usize = 64;

/// The rules of a block.
pub(super) type Block = [u64; WORDS];

/// Where a rule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) block: usize,
    pub(super) at: usize,
}

impl Slot {
    pub(super) fn index(self) -> usize {
        self.block * BLOCK + self.at
    }
}

pub(super) fn set(block: &mut Block, at: usize) {
    block[at / 64] |= 1 << (at % 64);
}
pub(super) fn clear(block: &mut Block, at: usize) {
    block[at / 64] &= !(1 << (at % 64));
}
pub(super) fn get(block: &Block, at: usize) -> bool {
    block[at / 64] >> (at % 64) & 1 != 0
}

/// Which blocks a class of values has bits in, and where they are kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    pub(super) summary: u64,
    pub(super) at: u32,
}

/// The blocks of all rows of all fields; the first is empty, for blocks that a row does not have.
#[derive(Debug)]
pub(super) struct Store {
    blocks: Vec<Block>,
    /// Free runs by length.
    free: Vec<Vec<u32>>,
}

impl Store {
    pub(super) fn new() -> Store {
        Store { blocks: vec![[0; WORDS]], free: vec![Vec::new(); BLOCKS_MAX + 1] }
    }
    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }
    pub(super) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
    }
    fn allocate(&mut self, len: usize) -> u32 {
        if let Some(at) = self.free[len].pop() {
            return at;
        }
        let at = self.blocks.len();
        self.blocks.resize(at + len, [0; WORDS]);
        at as u32
    }
    pub(super) fn release(&mut self, row: Row) {
        let len = row.summary.count_ones() as usize;
        if len > 0 {
            self.free[len].push(row.at);
        }
    }
    pub(super) fn copy(&mut self, row: Row) -> Row {
        let len = row.summary.count_ones() as usize;
        if len == 0 {
            return Row::default();
        }
        let at = self.allocate(len);
        self.blocks.copy_within(row.at as usize..row.at as usize + len, at as usize);
        Row { at, ..row }
    }
    /// The row with another set of blocks; those that it gains are empty.
    fn reshape(&mut self, row: Row, summary: u64) -> Row {
        let len = summary.count_ones() as usize;
        let at = if len > 0 { self.allocate(len) } else { 0 };
        let new = Row { summary, at };
        for block in (0..BLOCKS_MAX).filter(|block| summary >> block & 1 != 0) {
            let bits = self.blocks[row.find(block)];
            self.blocks[new.find(block)] = bits;
        }
        self.release(row);
        new
    }
    pub(super) fn block(&self, row: Row, block: usize) -> Block {
        self.blocks[row.find(block)]
    }
    pub(super) fn put(&mut self, row: &mut Row, block: usize, bits: Block) {
        let summary = match bits == [0; WORDS] {
            true => row.summary & !(1 << block),
            false => row.summary | 1 << block,
        };
        if summary != row.summary {
            *row = self.reshape(*row, summary);
        }
        if summary >> block & 1 != 0 {
            self.blocks[row.find(block)] = bits;
        }
    }
    pub(super) fn set(&mut self, row: &mut Row, slot: Slot) {
        let mut bits = self.block(*row, slot.block);
        set(&mut bits, slot.at);
        self.put(row, slot.block, bits);
    }
    pub(super) fn clear(&mut self, row: &mut Row, slot: Slot) {
        let mut bits = self.block(*row, slot.block);
        clear(&mut bits, slot.at);
        self.put(row, slot.block, bits);
    }
    /// Moves the rules of `moved` from one block to the same places of another.
    pub(super) fn divide(&mut self, row: &mut Row, from: usize, to: usize, moved: &Block) {
        if row.summary >> from & 1 == 0 {
            return;
        }
        let bits = self.block(*row, from);
        let part = |keep: bool| -> Block {
            std::array::from_fn(|word| bits[word] & if keep { !moved[word] } else { moved[word] })
        };
        self.put(row, to, part(false));
        self.put(row, from, part(true));
    }
}

impl Row {
    /// Where the row's block is kept; the empty block if it has none there.
    #[inline(always)]
    pub(super) fn find(self, block: usize) -> usize {
        let before = (self.summary & ((1 << (block & 63)) - 1)).count_ones();
        let at = self.at.wrapping_add(before) as usize;
        std::hint::select_unpredictable(self.summary >> (block & 63) & 1 != 0, at, 0)
    }
}
