//! Longest-prefix match: which next hop a key has, in a table that changes while it is read.
//!
//! * [`TreeBitmap`] is the table: one writer, any number of [`Reader`]s on other threads.
//! * [`Key`] and [`Prefix`]: IPv4 addresses (`u32`), IPv6 addresses (`u128`), and the 104 bits of the
//!   router's longest-prefix filter ([`Concatenated`]).
//! * [`message`]: a change as the words that it stores, in control cells, and the replica that takes them.
//! * [`explain`]: what a lookup visits, node by node.

pub mod array;
pub mod bench;
pub mod explain;
mod key;
mod memory;
pub mod message;
mod node;
mod search;
pub mod table;
pub mod tree_bitmap;

pub use key::{Concatenated, Key, Prefix};
pub use message::Replica;
pub use tree_bitmap::{MemoryUse, Options, Reader, TreeBitmap};

#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU32;

/// Where a packet goes: a number that the table's user gives a meaning, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHop(NonZeroU32);

impl NextHop {
    /// The next hop of this number, `None` for zero.
    #[inline]
    pub const fn new(number: u32) -> Option<NextHop> {
        match NonZeroU32::new(number) {
            Some(number) => Some(NextHop(number)),
            None => None,
        }
    }
    /// Its number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A table may not use more memory; its options give the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Words that it may use.
    pub words: u32,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the table is full: it may use {} words of 8 bytes (`words_max`)", self.words)
    }
}

impl std::error::Error for Full {}
