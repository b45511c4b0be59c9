//! Tree Bitmap: longest-prefix match in a multibit trie whose nodes are bitmaps.
//!
//! ```text
//! key      | bits of the arrays | stride | stride | ...
//! entry    | pointer to array or node | next hop of the longest match within the bits so far |
//! node     | next hops <- | internal bitmap | external bitmap | -> slots |
//! ```
//!
//! The internal bitmap has a one for each prefix that ends inside the node (l bits with value v at position
//! 2^l - 1 + v), the external bitmap one for each child. The number of ones before a position
//! gives the place of its next hop or child. A node without children is an end node: its external bitmap
//! holds the prefixes as long as the stride, and the slots their next hops.
//!
//! | Option      | Default                   | Meaning                                                     |
//! |-------------|---------------------------|-------------------------------------------------------------|
//! | `initial`   | 18; for IPv6 12, 12, 3, 3 | first bits, looked up in arrays; if none, a node is first   |
//! | `stride`    | 6                         | bits that a node examines, 1 to 6                           |
//! | `end_nodes` | true                      | whether nodes without children use their external bitmap    |
//! | `words_max` | 2^27 (1 GiB)              | limit in words of 8 bytes; insertions beyond it are refused |
//!
//! With 18 and 6, IPv4 prefixes of 24 bits are in end nodes: an address costs three memory accesses, entry,
//! node, next hop, the last two mostly in one cache line. The first 30 bits of the IPv6 addresses in use
//! have few values, so arrays in four steps (see `array.rs`) take less memory than one for 18 bits, and each
//! address visits two nodes fewer; prefixes of 48 bits are in end nodes.
//!
//! **Updates** write the changed node into a new block and publish it with one store (see `memory.rs`);
//! changing a prefix's next hop is one store. Readers on other threads see the table before or after
//! the change, never anything else, and never wait (D-132). A prefix within the initial bits is stored entry by
//! entry, so it appears at slightly different times for different keys, but atomically for each key.
//!
//! Source: Eatherton, Varghese and Dittia, "Tree Bitmap: hardware/software IP lookups with incremental
//! updates", CCR 34(2), 2004; WUCS description of the router §9.1, Figs 23 and 24 (D-128 to D-131).
//! Deviations: each child has its own pointer instead of being stored side by side, so that a change
//! moves one node and not its siblings; bitmaps have 64 bits whatever the stride, next hops have 32.
//!
//! ```
//! use lastmeter_net::lookup::{NextHop, Options, Prefix, TreeBitmap};
//! let mut table = TreeBitmap::new(Options::IPV4);
//! let hop = |number| NextHop::new(number).expect("not zero");
//! table.insert(Prefix::new(0x0a00_0000_u32, 8).expect("8 <= 32"), hop(1))?;
//! table.insert(Prefix::new(0x0a01_0000_u32, 16).expect("16 <= 32"), hop(2))?;
//! assert_eq!(table.lookup(0x0a01_0203), Some(hop(2)));
//! assert_eq!(table.lookup(0x0aff_0203), Some(hop(1)));
//! assert_eq!(table.lookup(0x0b00_0000), None);
//! # Ok::<(), lastmeter_net::lookup::Full>(())
//! ```
//!
//! Rows: D-130.

use super::array::Arrays;
use super::key::{Key, Prefix};
use super::memory::{Door, Memory, RESERVED, bitmaps};
use super::message::Write;
use super::node::{END, Node, TOP, hop_place, internal_bit, rank, slot_place};
use super::search::Shape;
use super::{Full, NextHop};
use std::marker::PhantomData;

/// The shape of a tree; see the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many bits index the first array, those that its entries point to, and so on: together at
    /// most [`super::array::INITIAL_MAX`] and fewer than the key's. If empty, a search begins with a node.
    pub initial: &'static [u8],
    /// Bits that a node examines, 1 to 6.
    pub stride: u8,
    /// Whether a node without children holds prefixes as long as the stride.
    pub end_nodes: bool,
    /// Limit on the table's memory, in words of 8 bytes.
    pub words_max: u32,
}

impl Options {
    /// For full tables of IPv4.
    pub const IPV4: Options =
        Options { initial: &[18], stride: 6, end_nodes: true, words_max: 1 << 27 };
    /// For full tables of IPv6.
    pub const IPV6: Options = Options { initial: &[12, 12, 3, 3], ..Options::IPV4 };
    /// As in the router's hardware: strides of 4 from the first bit on, no end nodes (§9.1).
    pub const FIPL: Options =
        Options { initial: &[], stride: 4, end_nodes: false, words_max: 1 << 27 };

    /// For full tables of these keys.
    pub const fn usual<K: Key>() -> Options {
        match K::BITS {
            0..=32 => Options::IPV4,
            _ => Options::IPV6,
        }
    }
}

/// The memory of a table, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// The initial array.
    pub initial: u64,
    /// Nodes with their next hops and slots.
    pub nodes: u64,
    /// Freed blocks that wait to be reused, and space that was never used.
    pub free: u64,
    /// The writer's own data: the prefixes within the initial bits, lists of free blocks.
    pub writer: u64,
}

impl MemoryUse {
    /// The total.
    pub fn total(&self) -> u64 {
        self.initial + self.nodes + self.free + self.writer
    }
}

/// A table of prefixes, owned by its one writer; see the top of the file.
#[derive(Debug)]
pub struct TreeBitmap<K> {
    memory: Memory,
    shape: Shape,
    options: Options,
    arrays: Arrays,
    prefixes: u64,
    key: PhantomData<K>,
}

/// A step down: the half word that points to a node, the node, and its depth.
#[derive(Clone, Copy)]
struct Visit {
    pointer: u32,
    node: u32,
    depth: u32,
}

impl<K: Key> TreeBitmap<K> {
    /// An empty table. Panics if the options exceed their limits.
    pub fn new(options: Options) -> TreeBitmap<K> {
        let arrays = Arrays::new(options.initial);
        assert!((1..=super::node::STRIDE_MAX).contains(&options.stride), "a stride is 1 to 6 bits");
        TreeBitmap {
            memory: Memory::new(Arrays::first_len(options.initial)),
            shape: Shape::new(options.initial, options.stride),
            options,
            arrays,
            prefixes: 0,
            key: PhantomData,
        }
    }
    /// How many prefixes it holds.
    pub fn len(&self) -> u64 {
        self.prefixes
    }
    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.prefixes == 0
    }
    /// The options that it was made with.
    pub fn options(&self) -> Options {
        self.options
    }
    /// The next hop of the longest prefix that matches `key`.
    pub fn lookup(&self, key: K) -> Option<NextHop> {
        self.shape.lookup(self.memory.words(), key)
    }
    /// The next hops of many keys, interleaved: several times as fast as one by one.
    ///
    /// Panics if `hops` is not as long as `keys`.
    pub fn lookup_batch(&self, keys: &[K], hops: &mut [Option<NextHop>]) {
        assert_eq!(keys.len(), hops.len(), "a next hop for each key");
        self.shape.lookup_batch(self.memory.words(), keys, hops);
    }
    /// Like [`TreeBitmap::lookup_batch`] for `N` keys, at most 64, all of them in flight together: to
    /// measure the gain of interleaving (D-131, D-136).
    pub fn lookup_in_flight<const N: usize>(&self, keys: &[K; N], hops: &mut [Option<NextHop>; N]) {
        self.shape.lookup_in_flight(self.memory.words(), keys, hops);
    }
    /// A reader for another thread.
    pub fn reader(&self) -> Reader<K> {
        Reader { door: self.memory.door(), shape: self.shape.clone(), key: PhantomData }
    }
    /// Its memory.
    pub fn memory(&self) -> MemoryUse {
        let used = u64::from(self.memory.used());
        let len = self.memory.words().len() as u64;
        let initial = u64::from(RESERVED) + self.arrays.words();
        MemoryUse {
            initial: initial * 8,
            nodes: (used - initial - self.memory.free_words()) * 8,
            free: (len - used + self.memory.free_words()) * 8,
            writer: self.arrays.writer_bytes() + self.memory.list_bytes(),
        }
    }
    /// From now on records every store, for [`TreeBitmap::take_writes`].
    pub fn record(&mut self) {
        self.memory.journal.get_or_insert_default();
    }
    /// The stores since the last call, in order: a replica that makes the same stores gives the same
    /// answers (D-41). Empty unless [`TreeBitmap::record`] was called.
    pub fn take_writes(&mut self) -> Vec<Write> {
        self.memory.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }
    pub(super) fn parts(&self) -> (&Memory, &Shape, &Arrays) {
        (&self.memory, &self.shape, &self.arrays)
    }

    /// Inserts a prefix, or changes its next hop; returns the previous one.
    ///
    /// # Errors
    /// If the table's memory limit is reached; it is unchanged.
    pub fn insert(&mut self, prefix: Prefix<K>, hop: NextHop) -> Result<Option<NextHop>, Full> {
        // At worst, nodes down to the last bit, and one node split into one for each prefix.
        let levels = u32::from(K::BITS) / u32::from(self.options.stride) + 66;
        let words = levels * 4 + 512 + self.arrays.words_for_one();
        if self.memory.used() + words > self.options.words_max {
            return Err(Full::Words(self.options.words_max));
        }
        let old = match self.arrays.holds(prefix) {
            true => self.arrays.insert(&mut self.memory, prefix, hop.get()),
            false => self.insert_long(prefix, hop.get()),
        };
        if old.is_none() {
            self.arrays.count(&self.memory, prefix);
            self.prefixes += 1;
        }
        Ok(old)
    }
    /// Removes a prefix; returns its next hop.
    pub fn remove(&mut self, prefix: Prefix<K>) -> Option<NextHop> {
        let old = match self.arrays.holds(prefix) {
            true => self.arrays.remove(&mut self.memory, prefix),
            false => self.remove_long(prefix),
        };
        if old.is_some() {
            self.arrays.close(&mut self.memory, prefix);
            self.prefixes -= 1;
        }
        old
    }
    fn insert_long(&mut self, prefix: Prefix<K>, hop: u32) -> Option<NextHop> {
        let stride = self.options.stride;
        let mut pointer = 2 * self.arrays.open(&mut self.memory, prefix) + 1;
        let mut depth = self.shape.initial;
        loop {
            let at = self.memory.half(pointer);
            if at == 0 {
                let chain = self.chain(prefix, depth, hop);
                self.memory.publish(pointer, chain);
                return None;
            }
            let mut node = Node::read(self.memory.words(), at);
            let value = self.shape.value(prefix.key().window(depth));
            let rest = u32::from(prefix.len()) - depth;
            let external = TOP << value;
            if rest < u32::from(stride) {
                let bit = internal_bit(rest as u8, value >> (u32::from(stride) - rest));
                let place = hop_place(at, rank(node.internal, bit));
                if node.internal & bit != 0 {
                    return self.replace_hop(place, hop);
                }
                self.doom(&node, at);
                node.insert_hop(bit, hop);
                self.replace(pointer, &node);
                return None;
            }
            if rest == u32::from(stride) && node.end {
                if node.external & external != 0 {
                    return self.replace_hop(slot_place(at, rank(node.external, external)), hop);
                }
                self.doom(&node, at);
                node.insert_slot(external, hop);
                self.replace(pointer, &node);
                return None;
            }
            if node.end && node.external != 0 {
                // The same prefixes with children; then continue with this one.
                self.doom(&node, at);
                self.split(&mut node);
                self.replace(pointer, &node);
                continue;
            }
            if node.external & external != 0 {
                pointer = slot_place(at, rank(node.external, external));
                depth += u32::from(stride);
                continue;
            }
            self.doom(&node, at);
            node.end = false;
            let chain = self.chain(prefix, depth + u32::from(stride), hop);
            node.insert_slot(external, chain);
            self.replace(pointer, &node);
            return None;
        }
    }
    /// The nodes that hold only `prefix`, from `depth` on.
    fn chain(&mut self, prefix: Prefix<K>, depth: u32, hop: u32) -> u32 {
        let stride = u32::from(self.options.stride);
        let rest = u32::from(prefix.len()) - depth;
        let value = self.shape.value(prefix.key().window(depth));
        let mut node = Node::new(self.options.end_nodes);
        if rest < stride {
            node.insert_hop(internal_bit(rest as u8, value >> (stride - rest)), hop);
        } else if rest == stride && node.end {
            node.insert_slot(TOP << value, hop);
        } else {
            node.end = false;
            let child = self.chain(prefix, depth + stride, hop);
            node.insert_slot(TOP << value, child);
        }
        node.write(&mut self.memory)
    }
    /// Turns an end node's longest prefixes into children.
    fn split(&mut self, node: &mut Node) {
        for slot in node.slots_mut() {
            let mut child = Node::new(true);
            child.insert_hop(TOP, *slot);
            *slot = child.write(&mut self.memory);
        }
        node.end = false;
    }
    fn doom(&mut self, node: &Node, at: u32) {
        let (block, len) = node.block(at);
        self.memory.doom(block, len);
    }
    fn replace(&mut self, pointer: u32, node: &Node) {
        let at = node.write(&mut self.memory);
        self.memory.publish(pointer, at);
    }
    fn replace_hop(&mut self, place: u32, hop: u32) -> Option<NextHop> {
        let old = self.memory.half(place);
        self.memory.publish(place, hop);
        NextHop::new(old)
    }

    fn remove_long(&mut self, prefix: Prefix<K>) -> Option<NextHop> {
        let stride = u32::from(self.options.stride);
        let mut way = Vec::new();
        let entry = self.arrays.last_entry(&self.memory, prefix.key())?;
        let mut visit = Visit { pointer: 2 * entry + 1, node: 0, depth: self.shape.initial };
        loop {
            visit.node = self.memory.half(visit.pointer);
            if visit.node == 0 {
                return None;
            }
            let mut node = Node::read(self.memory.words(), visit.node);
            let value = self.shape.value(prefix.key().window(visit.depth));
            let rest = u32::from(prefix.len()) - visit.depth;
            let external = TOP << value;
            let old = if rest < stride {
                let bit = internal_bit(rest as u8, value >> (stride - rest));
                (node.internal & bit != 0)
                    .then(|| (self.doom(&node, visit.node), bit))
                    .map(|(_, bit)| node.remove_hop(bit))
            } else if rest == stride && node.end {
                (node.external & external != 0)
                    .then(|| self.doom(&node, visit.node))
                    .map(|_| node.remove_slot(external))
            } else {
                if node.end || node.external & external == 0 {
                    return None;
                }
                way.push(visit);
                visit.pointer = slot_place(visit.node, rank(node.external, external));
                visit.depth += stride;
                continue;
            };
            let old = old?;
            self.withdraw(prefix.key(), visit, node, &mut way);
            return NextHop::new(old);
        }
    }
    /// Publishes a node that lost a prefix or child; empty nodes are removed, and so are children whose
    /// prefix the node above can hold.
    fn withdraw(&mut self, key: K, mut visit: Visit, mut node: Node, way: &mut Vec<Visit>) {
        while node.is_empty() {
            let Some(above) = way.pop() else {
                self.memory.publish(visit.pointer, 0);
                return;
            };
            visit = above;
            node = Node::read(self.memory.words(), visit.node);
            self.doom(&node, visit.node);
            node.remove_slot(TOP << self.shape.value(key.window(visit.depth)));
            node.end = self.options.end_nodes && node.external == 0;
        }
        self.replace(visit.pointer, &node);
        if node.is_top_only()
            && let Some(above) = way.pop()
        {
            self.merge(above);
        } else if !node.end {
            self.merge(visit);
        }
    }
    /// Makes a node an end node again if its children hold nothing but the prefix at which they begin.
    fn merge(&mut self, visit: Visit) {
        let at = self.memory.half(visit.pointer);
        let mut node = Node::read(self.memory.words(), at);
        if !self.options.end_nodes || node.end {
            return;
        }
        let mut hops = [0; 64];
        for (child, hop) in node.slots().iter().zip(&mut hops) {
            // Two words show whether the child must stay, without reading the rest of it.
            let (internal, external) = bitmaps(self.memory.words(), *child);
            if internal & !END != TOP || external != 0 {
                return;
            }
            *hop = self.memory.half(hop_place(*child, 0));
        }
        self.doom(&node, at);
        for child in node.slots() {
            self.memory.doom(child - 1, 2);
        }
        let count = node.slots().len();
        node.slots_mut().copy_from_slice(&hops[..count]);
        node.end = true;
        self.replace(visit.pointer, &node);
    }

    /// Every prefix with its next hop, in order.
    pub fn to_vec(&self) -> Vec<(Prefix<K>, NextHop)> {
        let mut found = Vec::new();
        for (bits, len, hop) in self.arrays.prefixes() {
            self.found(&mut found, bits, len.into(), hop);
        }
        for (node, bits) in self.arrays.nodes(&self.memory) {
            self.collect(&mut found, node, bits, self.shape.initial);
        }
        found.sort_unstable();
        found
    }
    fn found(&self, out: &mut Vec<(Prefix<K>, NextHop)>, bits: u128, len: u32, hop: u32) {
        let prefix = Prefix::new(K::from_left(bits), len as u8);
        out.extend(prefix.zip(NextHop::new(hop)));
    }
    fn collect(&self, out: &mut Vec<(Prefix<K>, NextHop)>, at: u32, bits: u128, depth: u32) {
        if at == 0 {
            return;
        }
        let node = Node::read(self.memory.words(), at);
        let under = |value: u32, len: u32| {
            bits | u128::from(value).checked_shl(128 - depth - len).unwrap_or(0)
        };
        for (place, &hop) in
            (0..63).filter(|place| node.internal & TOP << place != 0).zip(node.hops())
        {
            let len = (place + 1_u32).ilog2();
            self.found(out, under(place + 1 - (1 << len), len), depth + len, hop);
        }
        let stride = self.shape.stride;
        for (value, &slot) in
            (0..64).filter(|value| node.external & TOP << value != 0).zip(node.slots())
        {
            match node.end {
                true => self.found(out, under(value, stride), depth + stride, slot),
                false => self.collect(out, slot, under(value, stride), depth + stride),
            }
        }
    }
}

/// Looks up keys from another thread while the table's writer changes it.
///
/// A lookup and a batch each see one state of every key; the writer never waits for the reader, which never
/// waits for the writer.
#[derive(Debug)]
pub struct Reader<K> {
    door: Door,
    shape: Shape,
    key: PhantomData<K>,
}

impl<K: Key> Reader<K> {
    /// The next hop of the longest prefix that matches `key`.
    pub fn lookup(&mut self, key: K) -> Option<NextHop> {
        let shape = &self.shape;
        self.door.inside(|words| shape.lookup(words, key))
    }
    /// The next hops of many keys, interleaved. Panics if `hops` is not as long as `keys`.
    pub fn lookup_batch(&mut self, keys: &[K], hops: &mut [Option<NextHop>]) {
        assert_eq!(keys.len(), hops.len(), "a next hop for each key");
        let shape = &self.shape;
        self.door.inside(|words| shape.lookup_batch(words, keys, hops));
    }
}

impl<K: Key> Clone for Reader<K> {
    fn clone(&self) -> Reader<K> {
        Reader { door: self.door.another(), shape: self.shape.clone(), key: PhantomData }
    }
}
