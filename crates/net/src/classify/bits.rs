//! Sets of rules as bitmaps, in blocks: the rules that a value of one field may match.
//!
//! A row belongs to a class of values (those of one field that no rule distinguishes). It says in which
//! blocks it has bits, and stores only these blocks, side by side. Rules that match any value of the field are
//! in no row, but in the field's common blocks.

use super::rows::Ranks;

/// Words, of 64 rules each, in a block.
pub(super) const WORDS: usize = 4;
/// Rules in a block.
pub(super) const BLOCK: usize = 64 * WORDS;
/// Blocks: a summary is one word.
pub(super) const BLOCKS_MAX: usize = 64;

/// The rules of a block, within one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(32))]
pub(super) struct Block(pub(super) [u64; WORDS]);

impl Block {
    pub(super) const EMPTY: Block = Block([0; WORDS]);
    pub(super) const FULL: Block = Block([u64::MAX; WORDS]);

    /// Those of its rules that are in either of two other blocks.
    #[inline(always)]
    pub(super) fn and_either(self, Block(one): &Block, Block(other): &Block) -> Block {
        let [a, b, c, d] = self.0;
        Block([
            a & (one[0] | other[0]),
            b & (one[1] | other[1]),
            c & (one[2] | other[2]),
            d & (one[3] | other[3]),
        ])
    }
    fn meets(&self, other: &Block) -> bool {
        self.0.iter().zip(other.0).any(|(bits, other)| bits & other != 0)
    }
}

/// Position of a rule.
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

/// Sets or clears a bit.
pub(super) fn write(block: &mut Block, at: usize, is_in: bool) {
    block.0[at / 64] &= !(1 << (at % 64));
    block.0[at / 64] |= u64::from(is_in) << (at % 64);
}
/// The places of the bits that are set.
pub(super) fn ones(words: &[u64]) -> impl Iterator<Item = usize> {
    words.iter().enumerate().flat_map(|(word, &bits)| {
        let rest = std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
        let ones = rest.take_while(|&bits| bits != 0);
        ones.map(move |bits| word * 64 + bits.trailing_zeros() as usize)
    })
}
pub(super) fn get(block: &Block, at: usize) -> bool {
    block.0[at / 64] >> (at % 64) & 1 != 0
}

/// In which blocks a class of values has bits, and where they are kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    pub(super) summary: u64,
    /// In an address's row, the blocks with rules that match any address at the other end.
    pub(super) wide: u64,
    pub(super) at: u32,
}

/// The blocks of all rows of all fields; the first is empty, and stands for blocks that a row lacks.
#[derive(Debug)]
pub(super) struct Store {
    blocks: Vec<Block>,
    /// By which the copies of rows are ordered.
    pub(super) ranks: Ranks,
    /// Free runs by length.
    free: Vec<Vec<u32>>,
}

impl Store {
    pub(super) fn new() -> Store {
        let free = vec![Vec::new(); BLOCKS_MAX + 1];
        Store { blocks: vec![Block::EMPTY], ranks: Ranks::new(), free }
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
        self.blocks.resize(at + len, Block::EMPTY);
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
    /// The row with a different set of blocks; added ones are empty.
    fn reshape(&mut self, row: Row, summary: u64) -> Row {
        let len = summary.count_ones() as usize;
        let at = if len > 0 { self.allocate(len) } else { 0 };
        let new = Row { summary, at, ..row };
        let mut rest = summary;
        for to in at as usize..at as usize + len {
            self.blocks[to] = self.blocks[row.find(rest.trailing_zeros() as usize)];
            rest &= rest - 1;
        }
        self.release(row);
        new
    }
    pub(super) fn block(&self, row: Row, block: usize) -> Block {
        self.blocks[row.find(block)]
    }
    /// Changes the bits of a row's block; `others` are the rules that match any address at the other end.
    fn put(&mut self, row: &mut Row, block: usize, bits: Block, others: &Block) {
        row.wide &= !(1 << block);
        row.wide |= u64::from(bits.meets(others)) << block;
        let summary = match bits == Block::EMPTY {
            true => row.summary & !(1 << block),
            false => row.summary | 1 << block,
        };
        if summary != row.summary {
            *row = self.reshape(*row, summary);
        }
        // Without a block, the row has nothing of its own.
        if summary >> block & 1 != 0 {
            let at = row.find(block);
            self.blocks[at] = bits;
        }
    }
    /// Puts a rule into a row, or takes it out.
    pub(super) fn change(&mut self, row: &mut Row, slot: Slot, is_in: bool, others: &Block) {
        let mut bits = self.block(*row, slot.block);
        write(&mut bits, slot.at, is_in);
        self.put(row, slot.block, bits, others);
    }
    /// Moves rules from one block to the same positions in another.
    pub(super) fn divide(&mut self, row: &mut Row, division: &Division) {
        let Division { from, to, moved, .. } = division;
        let (from, to) = (*from, *to);
        if row.summary >> from & 1 == 0 {
            return;
        }
        let bits = self.block(*row, from);
        let part = |keep: bool| -> Block {
            let part = |word: usize| if keep { !moved.0[word] } else { moved.0[word] };
            Block(std::array::from_fn(|word| bits.0[word] & part(word)))
        };
        self.put(row, to, part(false), &division.others[1]);
        self.put(row, from, part(true), &division.others[0]);
    }
}

/// How a full block is split.
#[derive(Clone, Copy, Debug)]
pub(super) struct Division {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The rules that move.
    pub(super) moved: Block,
    /// Which rules of both blocks match any address at the other end, after the split.
    pub(super) others: [Block; 2],
}

impl Row {
    /// Where the row's block is stored; the empty block if it has none.
    #[inline(always)]
    pub(super) fn find(self, block: usize) -> usize {
        let before = (self.summary & ((1 << (block & 63)) - 1)).count_ones();
        let at = self.at.wrapping_add(before) as usize;
        std::hint::select_unpredictable(self.summary >> (block & 63) & 1 != 0, at, 0)
    }
}
