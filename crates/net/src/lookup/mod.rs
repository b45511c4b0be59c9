//! Longest-prefix match: the next hop of a key, in a table that changes while it is read.
//!
//! * [`TreeBitmap`] is the table: one writer, any number of [`Reader`]s on other threads.
//! * [`Direct`] is another structure with the same interface ([`LongestPrefixMatch`]): faster, with ten times the
//!   memory.
//! * [`Key`] and [`Prefix`]: IPv4 addresses (`u32`), IPv6 addresses (`u128`), and the 104 bits of the
//!   router's longest-prefix filter ([`Concatenated`]).
//! * [`message`]: a change as the words that it stores, in control cells, and the replica that applies them.
//! * [`explain`]: what a lookup visits, node by node.
//!
//! # Where the nanoseconds go
//!
//! Measured on 21 November 2026 on a 2-core AMD EPYC VM (Zen 4: 32 KiB L1, 1 MiB L2 and 32 MiB shared L3), beside
//! other work, with random addresses inside prefixes of full tables, 64 at a time:
//!
//! | table                  | arrays' loads | nodes | node's cache lines | bytes a prefix | a lookup | one by one |
//! |------------------------|---------------|-------|--------------------|----------------|----------|------------|
//! | IPv4, 901,899 prefixes | 1             | 0.98  | 0.98               | 10.4           | 8.3 ns   | 17 ns      |
//! | IPv6, 160,147          | 4             | 2.38  | 2.64               | 31.5           | 17.8 ns  | 50 ns      |
//!
//! With 2,048 repeated destinations, which stay in L2, they take 6.1 and 12.8 ns: that is arithmetic and
//! moving lanes; the rest is L3. One core waits 12 ns for a line from L3 if each load depends on the one before,
//! and gets one at least every 1.9 ns if loads are independent. So the seven lines of an IPv6 lookup cost at most
//! 13 ns if none is in L2, about as much as the arithmetic, with which they mostly overlap: this structure can
//! gain another third at most. The virtual machine has no cache-miss counters (`perf stat` finds none). By clock
//! samples (`perf record`) with two random addresses to each repeated one, a batch of IPv6 lookups spends 26 % of
//! its time waiting for bitmaps, 17 % for entries of arrays, 7 % for the keys, and 5 % for half words. Before
//! nodes were aligned within cache lines, the last figure was 18 %.

pub mod array;
pub mod bench;
mod direct;
mod direct_search;
pub mod explain;
mod key;
mod memory;
pub mod message;
mod node;
mod ranges;
mod search;
pub mod table;
pub mod tree_bitmap;

pub use direct::{Direct, DirectKey};
pub use direct_search::DirectReader;
pub use key::{Concatenated, Key, Prefix};
pub use message::Replica;
pub use tree_bitmap::{MemoryUse, Options, Reader, TreeBitmap};

#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU32;

/// Where a packet goes: a number whose meaning the table's user defines; never zero.
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

/// A table of prefixes with one writer, whatever its structure; see the methods of the same names of [`TreeBitmap`].
pub trait LongestPrefixMatch<K> {
    /// Inserts a prefix, or changes its next hop; returns the previous one.
    ///
    /// # Errors
    /// If a limit is reached; the table is unchanged.
    fn insert(&mut self, prefix: Prefix<K>, hop: NextHop) -> Result<Option<NextHop>, Full>;
    /// Removes a prefix; returns its next hop.
    fn remove(&mut self, prefix: Prefix<K>) -> Option<NextHop>;
    /// The next hop of the longest prefix that matches `key`.
    fn lookup(&self, key: K) -> Option<NextHop>;
    /// The next hops of many keys, interleaved. Panics if `hops` is not as long as `keys`.
    fn lookup_batch(&self, keys: &[K], hops: &mut [Option<NextHop>]);
    /// How many prefixes it holds.
    fn prefixes(&self) -> u64;
    /// Its memory.
    fn memory(&self) -> MemoryUse;
    /// Every prefix with its next hop, in order.
    fn to_vec(&self) -> Vec<(Prefix<K>, NextHop)>;
}

/// Structures whose own methods are those of the trait.
macro_rules! longest_prefix_match {
    ($structure:ident, $key:ident) => {
        impl<K: $key> LongestPrefixMatch<K> for $structure<K> {
            fn insert(&mut self, prefix: Prefix<K>, hop: NextHop) -> Result<Option<NextHop>, Full> {
                self.insert(prefix, hop)
            }
            fn remove(&mut self, prefix: Prefix<K>) -> Option<NextHop> {
                self.remove(prefix)
            }
            fn lookup(&self, key: K) -> Option<NextHop> {
                self.lookup(key)
            }
            fn lookup_batch(&self, keys: &[K], hops: &mut [Option<NextHop>]) {
                self.lookup_batch(keys, hops);
            }
            fn prefixes(&self) -> u64 {
                self.len()
            }
            fn memory(&self) -> MemoryUse {
                self.memory()
            }
            fn to_vec(&self) -> Vec<(Prefix<K>, NextHop)> {
                self.to_vec()
            }
        }
    };
}
longest_prefix_match!(TreeBitmap, Key);
longest_prefix_match!(Direct, DirectKey);

/// A limit of a table that an insertion would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Words of 8 bytes that it may use.
    Words(u32),
    /// Different next hops that it may name.
    NextHops(u32),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Words(most) => write!(f, "the table is full: it may use {most} words of 8 bytes"),
            Full::NextHops(most) => {
                write!(f, "the table is full: it may name {most} different next hops")
            }
        }
    }
}

impl std::error::Error for Full {}
