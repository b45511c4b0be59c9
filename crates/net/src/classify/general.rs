//! General match: of all rules that match a packet, the one with the highest priority.
//!
//! ```text
//! dst  --> row --+
//! src  --> row --+    rows hold the rules that each field may match; their
//! dst port -> row +--> intersection, block by block, is the set of matching rules
//! src port -> row +
//! protocol -> row-+    blocks are bands of priorities: the search ends at the first match
//! interface > row +
//! ```
//!
//! Rules are kept in blocks by priority; a full block is split. Each field's value has a row of bits, one
//! for each rule that it may match, and a summary of the blocks with any bits. A search finds the six rows,
//! intersects the summaries, and examines the blocks that remain. An update touches only the rows of its rule.
//! While there are few blocks, a search examines all rules instead (`few.rs`).
//!
//! | Limit | Value  | Meaning                                           |
//! |-------|--------|---------------------------------------------------|
//! | rules | 16,384 | 64 blocks of 256, all full if rules come in order |
//!
//! **Where the nanoseconds go** (28 November 2026, 2-core AMD EPYC VM beside other work, by samples of `perf
//! record`; the machine has no cache-miss counters): of the 16 ns or so that a packet takes with 1,000 rules of an
//! IP chain, the headers and the two address tries take two fifths, the tables of ports a tenth, the examination of
//! the rules two fifths, and the results a twentieth. No packet waits for another's load.
//!
//! Source: Lakshman and Stiliadis, SIGCOMM 1998 (bit vectors); Baboescu and Varghese, SIGCOMM 2001
//! (summaries). Deviations: rows store only the blocks in which they have bits, wildcards are stored separately, and
//! bands of priorities allow rules to be added and removed.

use super::bits::{BLOCK, BLOCKS_MAX, Block, Division, Row, Slot, Store, WORDS, get, ones, write};
use super::field::{Addresses, Ports};
use super::rows::Rows;
use super::rule::{Address, Filter, Header, INTERFACES_MAX, Rule, Verdict};
use pulp::{Arch, Simd, WithSimd};
use std::collections::BTreeMap;
use std::fmt;
use std::hint::select_unpredictable;

/// Identifies a rule; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(u32);

impl RuleId {
    /// Its number: the number of rules installed before it.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The rule that applies to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Which.
    pub rule: RuleId,
    /// What it says.
    pub verdict: Verdict,
}

/// Why a rule was not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no block left: remove rules first.
    Full,
    /// A range of ports ends before it begins.
    Ports,
    /// The interface's number is not below [`INTERFACES_MAX`].
    Interface(u16),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Full => write!(f, "no room for another rule: {BLOCKS_MAX} blocks are in use"),
            Refusal::Ports => write!(f, "a port range ends before it begins"),
            Refusal::Interface(found) => {
                write!(f, "interface {found} is not below {INTERFACES_MAX}")
            }
        }
    }
}

impl std::error::Error for Refusal {}

const FIELDS: usize = 6;
const DST: usize = 0;
const SRC: usize = 1;
const DST_PORT: usize = 2;
const PROTOCOL: usize = 3;
// The last two are not looked at while no rule names them.
const SRC_PORT: usize = 4;
const INTERFACE: usize = 5;

/// The number of packets whose rows are looked up together.
pub(super) const ROW: usize = 64;

/// A set of rules, for IPv4 or for IPv6.
#[derive(Debug)]
pub struct General<A = u32> {
    pub(super) store: Store,
    pub(super) dst: Addresses<A>,
    src: Addresses<A>,
    dst_ports: Ports,
    src_ports: Ports,
    protocols: Rows,
    /// The last row is that of all interfaces that no rule can name.
    interfaces: Rows,
    /// How many rules name an interface, and how many source ports.
    interfaced: usize,
    ported: usize,
    /// For each block and field, the rules that match any value; and which blocks have such rules.
    pub(super) any: Vec<[Block; FIELDS]>,
    any_summary: [u64; FIELDS],
    /// The blocks with rules that match any address at both ends.
    anywhere: u64,
    /// For each slot, its rule's priority and number: the lowest wins.
    pub(super) keys: Vec<u64>,
    /// For each slot, the match to return; at [`NONE`], none.
    pub(super) matches: Vec<Option<Match>>,
    used: Vec<Block>,
    /// The least key of each block's band, and the block, in order.
    pub(super) bands: Vec<(u64, usize)>,
    /// For each block, those whose rules take precedence over its own.
    earlier: [u64; BLOCKS_MAX],
    /// Blocks whose rules are in order.
    pub(super) sorted: u64,
    rules: BTreeMap<RuleId, (Rule<A>, Slot)>,
    next: u32,
    arch: Arch,
}

impl<A: Address> Default for General<A> {
    fn default() -> General<A> {
        General::new()
    }
}

impl<A: Address> General<A> {
    /// No rules.
    pub fn new() -> General<A> {
        General {
            store: Store::new(),
            dst: Addresses::new(),
            src: Addresses::new(),
            dst_ports: Ports::new(),
            src_ports: Ports::new(),
            protocols: Rows::new(256),
            interfaces: Rows::new(usize::from(INTERFACES_MAX) + 1),
            interfaced: 0,
            ported: 0,
            any: vec![[Block::EMPTY; FIELDS]; BLOCKS_MAX],
            any_summary: [0; FIELDS],
            anywhere: 0,
            keys: vec![0; BLOCKS_MAX * BLOCK],
            matches: vec![None; BLOCKS_MAX * BLOCK + 1],
            used: vec![Block::EMPTY; BLOCKS_MAX],
            bands: vec![(0, 0)],
            earlier: [0; BLOCKS_MAX],
            sorted: u64::MAX,
            rules: BTreeMap::new(),
            next: 0,
            arch: Arch::new(),
        }
    }
    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
    /// An installed rule.
    pub fn rule(&self, id: RuleId) -> Option<&Rule<A>> {
        self.rules.get(&id).map(|(rule, _)| rule)
    }
    /// Bytes that the search reads: rows and their blocks, tries, tables of ports.
    pub fn bytes(&self) -> u64 {
        let rows = self.fields().map(Rows::bytes).iter().sum::<usize>() + self.store.bytes();
        let tries = self.dst.trie.bytes() + self.src.trie.bytes();
        let slots = self.rules.len() * (size_of::<u64>() + size_of::<Match>());
        (rows + tries) as u64 + 4 * (1 << 16) + slots as u64
    }

    /// Installs a rule.
    ///
    /// # Errors
    /// If it can match nothing, its interface does not exist, or there is no room; nothing is changed.
    pub fn install(&mut self, rule: Rule<A>) -> Result<RuleId, Refusal> {
        if rule.filter.dst_ports.is_empty() || rule.filter.src_ports.is_empty() {
            return Err(Refusal::Ports);
        }
        if let Some(interface) = rule.filter.interface.filter(|&number| number >= INTERFACES_MAX) {
            return Err(Refusal::Interface(interface));
        }
        let after = self.next.checked_add(1).ok_or(Refusal::Full)?;
        let key = u64::from(rule.priority) << 32 | u64::from(self.next);
        let slot = self.room(key)?;
        let id = RuleId(self.next);
        self.next = after;
        self.keys[slot.index()] = key;
        self.matches[slot.index()] = Some(Match { rule: id, verdict: rule.verdict });
        write(&mut self.used[slot.block], slot.at, true);
        self.change(&rule.filter, (slot, true));
        self.rules.insert(id, (rule, slot));
        Ok(id)
    }
    /// Removes a rule.
    pub fn remove(&mut self, id: RuleId) -> Option<Rule<A>> {
        let (rule, slot) = self.rules.remove(&id)?;
        self.change(&rule.filter, (slot, false));
        write(&mut self.used[slot.block], slot.at, false);
        if self.used[slot.block] == Block::EMPTY {
            self.sorted |= 1 << slot.block;
            if self.bands.len() > 1 {
                self.bands.retain(|&(_, block)| block != slot.block);
                self.bands[0].0 = 0;
                self.reorder(false);
            }
        }
        Some(rule)
    }

    /// The fields of which a filter matches any value.
    fn wildcards(filter: &Filter<A>) -> [bool; FIELDS] {
        let mut any = [false; FIELDS];
        any[DST] = filter.dst.len() == 0;
        any[SRC] = filter.src.len() == 0;
        any[DST_PORT] = filter.dst_ports == (0..=u16::MAX);
        any[SRC_PORT] = filter.src_ports == (0..=u16::MAX);
        any[PROTOCOL] = filter.protocol.is_none();
        any[INTERFACE] = filter.interface.is_none();
        any
    }
    /// Puts a rule in, or takes it out.
    fn change(&mut self, filter: &Filter<A>, change @ (slot, is_in): (Slot, bool)) {
        let any = General::wildcards(filter);
        for (bits, any) in self.any[slot.block].iter_mut().zip(any) {
            write(bits, slot.at, is_in && any);
        }
        self.summarize(slot.block);
        let (store, others) = (&mut self.store, self.any[slot.block]);
        let count = |rules: &mut usize| *rules = if is_in { *rules + 1 } else { *rules - 1 };
        if !any[DST] {
            self.dst.change(store, filter.dst, change, &others[SRC]);
        }
        if !any[SRC] {
            self.src.change(store, filter.src, change, &others[DST]);
        }
        if !any[DST_PORT] {
            self.dst_ports.change(store, &filter.dst_ports, change);
        }
        if !any[SRC_PORT] {
            count(&mut self.ported);
            self.src_ports.change(store, &filter.src_ports, change);
        }
        if let Some(protocol) = filter.protocol {
            self.protocols.change(store, protocol.into(), change, &Block::EMPTY);
        }
        if let Some(interface) = filter.interface {
            count(&mut self.interfaced);
            self.interfaces.change(store, interface, change, &Block::EMPTY);
        }
    }
    /// Updates which fields of a block have wildcards.
    fn summarize(&mut self, block: usize) {
        for (summary, bits) in self.any_summary.iter_mut().zip(&self.any[block]) {
            *summary &= !(1 << block);
            *summary |= u64::from(*bits != Block::EMPTY) << block;
        }
        let (dst, src) = (self.any[block][DST], self.any[block][SRC]);
        let both = dst.0.iter().zip(src.0).any(|(dst, src)| dst & src != 0);
        self.anywhere &= !(1 << block);
        self.anywhere |= u64::from(both) << block;
    }
    /// A free slot in the band of `key`.
    fn room(&mut self, key: u64) -> Result<Slot, Refusal> {
        let at = self.bands.partition_point(|&(least, _)| least <= key) - 1;
        let block = self.bands[at].1;
        if self.used[block] != Block::FULL {
            return Ok(self.place(block, key));
        }
        let taken = self.bands.iter().fold(0_u64, |taken, &(_, block)| taken | 1 << block);
        if taken == u64::MAX {
            return Err(Refusal::Full);
        }
        let new = taken.trailing_ones() as usize;
        let mut keys: Vec<u64> = (0..BLOCK).map(|at| self.keys[block * BLOCK + at]).collect();
        keys.sort_unstable();
        // Rules installed in order fill one block after another.
        let least = if key > keys[BLOCK - 1] { key } else { keys[BLOCK / 2] };
        self.bands.insert(at + 1, (least, new));
        let moved = self.divide(block, new, least);
        self.reorder(moved);
        Ok(self.place(if key >= least { new } else { block }, key))
    }
    /// Moves the rules from `least` on to the same positions in another block; whether there are any.
    fn divide(&mut self, from: usize, to: usize, least: u64) -> bool {
        let mut moved = Block::EMPTY;
        for at in 0..BLOCK {
            if get(&self.used[from], at) && self.keys[from * BLOCK + at] >= least {
                write(&mut moved, at, true);
                self.keys[to * BLOCK + at] = self.keys[from * BLOCK + at];
                self.matches[to * BLOCK + at] = self.matches[from * BLOCK + at];
            }
        }
        self.sorted &= !(1 << to);
        self.sorted |= (self.sorted >> from & 1) << to;
        if moved == Block::EMPTY {
            self.sorted |= 1 << to;
            return false;
        }
        for field in 0..FIELDS {
            for (word, moved) in moved.0.iter().enumerate() {
                let bits = self.any[from][field].0[word];
                self.any[to][field].0[word] = bits & moved;
                self.any[from][field].0[word] = bits & !moved;
            }
        }
        self.summarize(from);
        self.summarize(to);
        let others = |field: usize| [self.any[from][field], self.any[to][field]];
        let division = |others| Division { from, to, moved, others };
        let plain = division([Block::EMPTY; 2]);
        let store = &mut self.store;
        self.dst.rows.divide(store, &division(others(SRC)));
        self.src.rows.divide(store, &division(others(DST)));
        self.dst_ports.rows.divide(store, &plain);
        self.src_ports.rows.divide(store, &plain);
        self.protocols.divide(store, &plain);
        self.interfaces.divide(store, &plain);
        for (word, moved) in moved.0.into_iter().enumerate() {
            self.used[to].0[word] |= moved;
            self.used[from].0[word] &= !moved;
        }
        for (_, slot) in self.rules.values_mut().filter(|(_, slot)| slot.block == from) {
            if get(&moved, slot.at) {
                slot.block = to;
            }
        }
        true
    }
    /// The order of blocks has changed, and `moved` says whether rules have moved.
    fn reorder(&mut self, moved: bool) {
        let mut before = 0;
        for &(_, block) in &self.bands {
            self.earlier[block] = before;
            before |= 1 << block;
        }
        let store = &mut self.store;
        let ranks = store.ranks.next(self.bands.iter().map(|&(_, block)| block));
        let again = moved || !store.ranks.agree(&ranks);
        store.ranks = ranks;
        let addresses = [&mut self.dst.rows, &mut self.src.rows];
        let ports = [&mut self.dst_ports.rows, &mut self.src_ports.rows];
        let others = [&mut self.protocols, &mut self.interfaces];
        let all = addresses.into_iter().chain(ports).chain(others);
        all.for_each(|rows| rows.rank(store, again));
    }
    /// The rows of all fields.
    pub(super) fn fields(&self) -> [&Rows; FIELDS] {
        let (dst_ports, src_ports) = (&self.dst_ports.rows, &self.src_ports.rows);
        [&self.dst.rows, &self.src.rows, dst_ports, &self.protocols, src_ports, &self.interfaces]
    }
    /// A free slot in a block, if possible one that keeps the rules in order.
    fn place(&mut self, block: usize, key: u64) -> Slot {
        let used = |at: &usize| get(&self.used[block], *at);
        let at_key = |at: usize| self.keys[block * BLOCK + at];
        let before = (0..BLOCK).rev().filter(used).find(|&at| at_key(at) < key);
        let after = (0..BLOCK).filter(used).find(|&at| at_key(at) > key).unwrap_or(BLOCK);
        let from = before.map_or(0, |before| before + 1);
        // The middle of a gap leaves room on both sides; at the end no room is needed.
        let first = if after == BLOCK { from } else { from.max((from + after) / 2) };
        let free = |at: &usize| !get(&self.used[block], *at);
        let fits = (first..after).find(free).filter(|_| self.sorted >> block & 1 != 0);
        if let Some(at) = fits {
            return Slot { block, at };
        }
        let at = (0..BLOCK).find(free).expect("the block has room");
        self.sorted &= !(1 << block);
        Slot { block, at }
    }

    /// The rule that applies to a packet.
    pub fn classify(&self, header: &Header<A>) -> Option<Match> {
        let mut found = [None];
        self.classify_batch(std::slice::from_ref(header), &mut found);
        found[0]
    }
    /// The rules that apply to many packets. Panics if `found` is not as long as `headers`.
    pub fn classify_batch(&self, headers: &[Header<A>], found: &mut [Option<Match>]) {
        assert_eq!(headers.len(), found.len(), "a place for each packet's rule");
        self.arch.dispatch(Many { rules: self, headers, found });
    }

    /// The numbers of packets' rows in all fields.
    #[inline(always)]
    pub(super) fn numbers<const N: usize>(&self, headers: &[Header<A>]) -> [[u16; ROW]; N] {
        let count = headers.len().min(ROW);
        let mut numbers = [[0; ROW]; N];
        numbers[DST] = self.dst.trie.lookup(&column(headers, |header| header.dst), count);
        numbers[SRC] = self.src.trie.lookup(&column(headers, |header| header.src), count);
        for (at, header) in headers.iter().enumerate().take(count) {
            numbers[DST_PORT][at] = self.dst_ports.row(header.dst_port);
            numbers[PROTOCOL][at] = header.protocol.into();
            if N > SRC_PORT {
                numbers[SRC_PORT][at] = self.src_ports.row(header.src_port);
            }
            if N > INTERFACE {
                numbers[INTERFACE][at] = header.interface.min(INTERFACES_MAX);
            }
        }
        numbers
    }
    /// The rows of packets in all fields, and the blocks in which all these rows have bits.
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "plain loops fill vectors, zipped ones may not")]
    fn rows<const N: usize>(&self, headers: &[Header<A>], rows: &mut [Found; N]) -> [u64; ROW] {
        let count = headers.len().min(ROW);
        let (numbers, fields) = (self.numbers::<N>(headers), self.fields());
        // Most rules name an address at one end, so both ends are handled together: both named, one, none.
        let mut blocks = [self.anywhere; ROW];
        for field in 0..N {
            for at in 0..count {
                let row = fields[field].get(numbers[field][at]);
                if field <= SRC {
                    blocks[at] |= row.wide;
                }
                rows[field].put(at, row);
            }
        }
        for at in 0..ROW {
            blocks[at] |= rows[DST].summaries[at] & rows[SRC].summaries[at];
        }
        for field in DST_PORT..N {
            for at in 0..ROW {
                blocks[at] &= rows[field].summaries[at] | self.any_summary[field];
            }
        }
        blocks
    }

    /// Which rules of a block match a packet.
    #[inline(always)]
    fn look<const N: usize>(&self, block: usize, rows: &[Found; N], number: usize) -> Block {
        let store = self.store.blocks();
        let any = &self.any[block];
        let mut both = Block::FULL;
        for (found, any) in rows.iter().zip(any) {
            let row = Row { summary: found.summaries[number], wide: 0, at: found.places[number] };
            both = both.and_either(&store[row.find(block)], any);
        }
        both
    }
    /// The slot of highest priority among those in a block.
    #[inline(always)]
    fn counts(&self, block: usize, matching: &Block) -> u32 {
        match self.sorted >> block & 1 != 0 {
            true => first(block, matching),
            false => {
                let slots = ones(&matching.0).map(|at| block * BLOCK + at);
                slots.min_by_key(|&slot| self.keys[slot]).map_or(NONE, |slot| slot as u32)
            }
        }
    }

    /// The rules of at most [`ROW`] packets, which go from block to block in step, without waiting for one another:
    /// no branch depends on a packet.
    #[inline(always)]
    fn row<const N: usize>(&self, headers: &[Header<A>], found: &mut [Option<Match>]) {
        let mut rows = [Found::NONE; N];
        let mut blocks = self.rows(headers, &mut rows);
        let (mut best, mut numbers) = ([NONE; ROW], [0_u8; ROW]);
        let mut matching = [Block::EMPTY; ROW];
        let mut going = 0;
        for (number, blocks) in blocks.iter().enumerate().take(headers.len()) {
            numbers[going % ROW] = number as u8;
            going += usize::from(*blocks != 0);
        }
        while going > 0 {
            // A separate loop stores the blocks, so that the loads overlap and the words fill vectors.
            for at in 0..going.min(ROW) {
                let number = usize::from(numbers[at]) % ROW;
                let block = blocks[number].trailing_zeros() as usize % BLOCKS_MAX;
                matching[at] = self.look(block, &rows, number);
            }
            let mut still = 0;
            for at in 0..going.min(ROW) {
                let number = usize::from(numbers[at]) % ROW;
                let block = blocks[number].trailing_zeros() as usize % BLOCKS_MAX;
                let slot = self.counts(block, &matching[at]);
                let earlier = select_unpredictable(slot != NONE, self.earlier[block], u64::MAX);
                best[number] = select_unpredictable(slot != NONE, slot, best[number]);
                blocks[number] &= blocks[number].wrapping_sub(1) & earlier;
                numbers[still % ROW] = number as u8;
                still += usize::from(blocks[number] != 0);
            }
            going = still;
        }
        for (found, slot) in found.iter_mut().zip(best) {
            *found = self.matches[slot as usize];
        }
    }
}

/// One field of at most [`ROW`] packets.
#[inline(always)]
fn column<A: Address>(headers: &[Header<A>], field: impl Fn(&Header<A>) -> A) -> [A; ROW] {
    let mut column = [A::from_left(0); ROW];
    for (value, header) in column.iter_mut().zip(headers) {
        *value = field(header);
    }
    column
}

/// The rows of packets in one field.
struct Found {
    summaries: [u64; ROW],
    places: [u32; ROW],
}

impl Found {
    const NONE: Found = Found { summaries: [0; ROW], places: [0; ROW] };

    #[inline(always)]
    fn put(&mut self, at: usize, row: Row) {
        (self.summaries[at % ROW], self.places[at % ROW]) = (row.summary, row.at);
    }
}

/// No slot.
pub(super) const NONE: u32 = (BLOCKS_MAX * BLOCK) as u32;

/// The first slot of a block whose bit is set.
#[inline(always)]
fn first(block: usize, bits: &Block) -> u32 {
    let filled = |at: usize| u32::from(bits.0[at] != 0) << at;
    let words = filled(0) | filled(1) | filled(2) | filled(3);
    let word = words.trailing_zeros() as usize % WORDS;
    let slot = (block * BLOCK + word * 64) as u32 + bits.0[word].trailing_zeros();
    select_unpredictable(words != 0, slot, NONE)
}

/// A search for many packets, compiled for several processors.
struct Many<'a, A> {
    rules: &'a General<A>,
    headers: &'a [Header<A>],
    found: &'a mut [Option<Match>],
}

impl<A: Address> WithSimd for Many<'_, A> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (headers, found) in self.headers.chunks(ROW).zip(self.found.chunks_mut(ROW)) {
            // Constants save instructions.
            match (self.rules.store.ranks.few > 0, self.rules.interfaced, self.rules.ported) {
                (true, 0, 0) => self.rules.row_of_few::<SRC_PORT, S>(simd, headers, found),
                (true, 0, _) => self.rules.row_of_few::<INTERFACE, S>(simd, headers, found),
                (true, ..) => self.rules.row_of_few::<FIELDS, S>(simd, headers, found),
                (false, 0, 0) => self.rules.row::<SRC_PORT>(headers, found),
                (false, 0, _) => self.rules.row::<INTERFACE>(headers, found),
                (false, ..) => self.rules.row::<FIELDS>(headers, found),
            }
        }
    }
}
