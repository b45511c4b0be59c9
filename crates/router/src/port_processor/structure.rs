//! The structure of a routing table: Tree Bitmap or arrays ([`Direct`]), as the file says or whichever is faster here.
//!
//! | `lookup`      |                                                                                             |
//! |---------------|---------------------------------------------------------------------------------------------|
//! | `tree-bitmap` | small: about 10 B a prefix of IPv4                                                          |
//! | `direct`      | arrays: hardly any arithmetic, ten times the memory                                         |
//! | `auto`        | the router looks the same addresses up in both, and takes the one that is faster on its host |
//!
//! With `auto` a family begins with Tree Bitmap. When a full set of routes was told, or a table has twice the prefixes
//! of the last time, the other structure is made beside it and both are measured. The arrays have to be faster by a
//! tenth, and to have taken the table's routes fast enough. Packets are forwarded meanwhile, changes of routes wait:
//! about half a second with a full table.

use lastmeter_net::lookup::table::{Table as Routes, addresses};
use lastmeter_net::lookup::{
    Direct, DirectKey, DirectReader, Full, LongestPrefixMatch, NextHop, Options, Prefix, Reader,
    TreeBitmap,
};
use serde_json::{Value, json};
use std::time::Instant;

use super::BATCH;

/// Smaller tables stay in the caches nearest to a core, whatever their structure.
pub const MEASURED_FROM: u64 = 4096;
/// Addresses that are looked up.
const KEYS: usize = 1 << 15;
/// Passes over them; the best counts.
const PASSES: usize = 5;
/// How many times the rate of Tree Bitmap the arrays have to reach.
const GAIN: f64 = 1.1;
/// Routes a second that arrays have to take: a full table within 9 s.
const ROUTES_MIN: f64 = 100_000.0;

/// What a table is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// A trie whose nodes are bitmaps.
    TreeBitmap,
    /// Arrays indexed by the bits of an address.
    Direct,
}

/// What `router.toml` says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookup {
    /// The router measures.
    #[default]
    Auto,
    /// This one.
    Fixed(Structure),
}

impl Lookup {
    /// The words for them.
    pub const NAMES: &'static [&'static str] = &["auto", "tree-bitmap", "direct"];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Lookup> {
        match name {
            "auto" => Some(Lookup::Auto),
            "tree-bitmap" => Some(Lookup::Fixed(Structure::TreeBitmap)),
            "direct" => Some(Lookup::Fixed(Structure::Direct)),
            _ => None,
        }
    }
}

impl Structure {
    /// Its name in `router.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Structure::TreeBitmap => "tree-bitmap",
            Structure::Direct => "direct",
        }
    }
}

/// Which structure to take, and why: by lookups a second, and by how many routes a second arrays took that would be
/// new.
fn judged(tree: f64, direct: f64, taken: Option<f64>, prefixes: u64) -> (Structure, String) {
    let faster = direct >= GAIN * tree;
    let keeps_up = taken.is_none_or(|taken| taken >= ROUTES_MIN);
    let structure = if faster && keeps_up { Structure::Direct } else { Structure::TreeBitmap };
    let (tree, direct) = (tree / 1e6, direct / 1e6);
    let taken = taken.map(|taken| format!(", which took {:.2} M routes/s", taken / 1e6));
    let taken = taken.unwrap_or_default();
    let why = format!(
        "measured with {prefixes} prefixes: tree-bitmap {tree:.1} M lookups/s, direct {direct:.1} \
         M lookups/s{taken}"
    );
    (structure, why)
}

/// Any of the structures.
enum Table<K> {
    Tree(Box<TreeBitmap<K>>),
    Direct(Box<Direct<K>>),
}

impl<K: DirectKey> Table<K> {
    fn new(structure: Structure) -> Table<K> {
        match structure {
            Structure::TreeBitmap => Table::Tree(Box::new(TreeBitmap::new(Options::usual::<K>()))),
            Structure::Direct => Table::Direct(Box::default()),
        }
    }
    /// The structure with these routes.
    fn load(structure: Structure, routes: &Routes<K>) -> Result<Table<K>, Full> {
        let mut table = Table::new(structure);
        for &(prefix, hop) in routes {
            table.any_mut().insert(prefix, hop)?;
        }
        Ok(table)
    }
    fn structure(&self) -> Structure {
        match self {
            Table::Tree(_) => Structure::TreeBitmap,
            Table::Direct(_) => Structure::Direct,
        }
    }
    fn any(&self) -> &dyn LongestPrefixMatch<K> {
        match self {
            Table::Tree(table) => &**table,
            Table::Direct(table) => &**table,
        }
    }
    fn any_mut(&mut self) -> &mut dyn LongestPrefixMatch<K> {
        match self {
            Table::Tree(table) => &mut **table,
            Table::Direct(table) => &mut **table,
        }
    }
    /// Lookups a second.
    fn rate(&self, keys: &[K]) -> f64 {
        let mut hops = [None; BATCH];
        let mut best = f64::INFINITY;
        for _ in 0..PASSES {
            let began = Instant::now();
            for keys in keys.chunks_exact(BATCH) {
                self.any().lookup_batch(keys, &mut hops);
                std::hint::black_box(&hops);
            }
            best = best.min(began.elapsed().as_secs_f64());
        }
        (keys.len() / BATCH * BATCH) as f64 / best
    }
}

/// Looks addresses up in another thread than the writer's.
pub enum AnyReader<K> {
    /// In a Tree Bitmap.
    Tree(Reader<K>),
    /// In arrays.
    Direct(DirectReader<K>),
}

impl<K: DirectKey> AnyReader<K> {
    /// The next hop of an address.
    pub fn lookup(&mut self, key: K) -> Option<NextHop> {
        match self {
            AnyReader::Tree(reader) => reader.lookup(key),
            AnyReader::Direct(reader) => reader.lookup(key),
        }
    }
    /// The next hops of many. Panics if `hops` is not as long as `keys`.
    pub fn lookup_batch(&mut self, keys: &[K], hops: &mut [Option<NextHop>]) {
        match self {
            AnyReader::Tree(reader) => reader.lookup_batch(keys, hops),
            AnyReader::Direct(reader) => reader.lookup_batch(keys, hops),
        }
    }
}

/// The table of a family of addresses.
pub struct Family<K> {
    table: Table<K>,
    lookup: Lookup,
    /// Why it has this structure.
    why: String,
    /// How many prefixes there were when that was decided.
    judged_at: u64,
    /// Whether readers have to be replaced.
    moved: bool,
}

const AS_TOLD: &str = "as router.toml says";

impl<K: DirectKey> Family<K> {
    /// Empty.
    pub fn new(lookup: Lookup) -> Family<K> {
        let (structure, why) = match lookup {
            Lookup::Auto => (Structure::TreeBitmap, few()),
            Lookup::Fixed(structure) => (structure, AS_TOLD.to_owned()),
        };
        Family { table: Table::new(structure), lookup, why, judged_at: 0, moved: false }
    }
    /// A reader.
    pub fn reader(&self) -> AnyReader<K> {
        match &self.table {
            Table::Tree(table) => AnyReader::Tree(table.reader()),
            Table::Direct(table) => AnyReader::Direct(table.reader()),
        }
    }
    /// Whether readers have to be replaced since the last call.
    pub fn moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
    /// How many prefixes it holds.
    pub fn prefixes(&self) -> u64 {
        self.table.any().prefixes()
    }
    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.table.any().memory().total()
    }
    /// The next hop of an address.
    pub fn lookup(&self, key: K) -> Option<NextHop> {
        self.table.any().lookup(key)
    }
    /// Every prefix with its next hop.
    pub fn to_vec(&self) -> Routes<K> {
        self.table.any().to_vec()
    }
    /// Its structure and why it has that, for people.
    pub fn shown(&self) -> Value {
        json!({ "structure": self.table.structure().name(), "why": self.why })
    }

    /// Routes a prefix to a hop.
    ///
    /// # Errors
    /// If it is full.
    pub fn insert(&mut self, prefix: Prefix<K>, hop: NextHop) -> Result<(), Full> {
        match (self.table.any_mut().insert(prefix, hop), self.lookup) {
            (Ok(_), _) => Ok(()),
            // The other structure has other limits.
            (Err(full), Lookup::Auto) if self.table.structure() == Structure::Direct => {
                self.become_one(Structure::TreeBitmap, format!("direct: {full}"))?;
                self.judged_at = self.prefixes();
                self.table.any_mut().insert(prefix, hop).map(drop)
            }
            (Err(full), _) => Err(full),
        }
    }
    /// Removes a prefix's route.
    pub fn remove(&mut self, prefix: Prefix<K>) {
        self.table.any_mut().remove(prefix);
    }
    /// Another wish. The table stays as it is if it does not fit into that structure.
    ///
    /// # Errors
    /// If it does not.
    pub fn prefer(&mut self, lookup: Lookup) -> Result<(), Full> {
        if lookup == self.lookup {
            return Ok(());
        }
        match lookup {
            Lookup::Fixed(structure) => self.become_one(structure, AS_TOLD.to_owned())?,
            Lookup::Auto if self.prefixes() < MEASURED_FROM => {
                self.become_one(Structure::TreeBitmap, few())?;
            }
            Lookup::Auto => {}
        }
        (self.lookup, self.judged_at) = (lookup, 0);
        self.judge();
        Ok(())
    }
    fn become_one(&mut self, structure: Structure, why: String) -> Result<(), Full> {
        if structure != self.table.structure() {
            self.table = Table::load(structure, &self.table.any().to_vec())?;
            self.moved = true;
        }
        self.why = why;
        Ok(())
    }
    /// Measures both structures and takes the faster one, if that is wished and the table has grown to twice its size
    /// since, or shrunk to a quarter.
    pub fn judge(&mut self) {
        let prefixes = self.prefixes();
        let due =
            prefixes >= (2 * self.judged_at).max(MEASURED_FROM) || prefixes < self.judged_at / 4;
        if self.lookup != Lookup::Auto || !due {
            return;
        }
        if prefixes < MEASURED_FROM {
            self.judged_at = 0;
            // It has held more.
            let _ = self.become_one(Structure::TreeBitmap, few());
            return;
        }
        self.judged_at = prefixes;
        let routes = self.to_vec();
        let keys = addresses(&routes, KEYS, 1);
        let other = match self.table.structure() {
            Structure::TreeBitmap => Structure::Direct,
            Structure::Direct => Structure::TreeBitmap,
        };
        let began = Instant::now();
        let made = match Table::load(other, &routes) {
            Ok(made) => made,
            Err(full) => {
                self.why = format!("{}: {full}", other.name());
                return;
            }
        };
        let taken = routes.len() as f64 / began.elapsed().as_secs_f64().max(1e-9);
        let (mine, others) = (self.table.rate(&keys), made.rate(&keys));
        let (structure, why) = match other {
            Structure::Direct => judged(mine, others, Some(taken), prefixes),
            Structure::TreeBitmap => judged(others, mine, None, prefixes),
        };
        if structure == other {
            (self.table, self.moved) = (made, true);
        }
        self.why = why;
    }
}

fn few() -> String {
    format!("fewer than {MEASURED_FROM} prefixes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arrays_are_taken_where_they_are_faster_and_keep_up_with_changes() {
        let tree = 100e6;
        for (direct, taken, expected) in [
            (150e6, Some(1e6), Structure::Direct),
            (150e6, None, Structure::Direct),
            (109e6, Some(1e6), Structure::TreeBitmap),
            (150e6, Some(0.09e6), Structure::TreeBitmap),
        ] {
            let (structure, why) = judged(tree, direct, taken, 5000);
            assert_eq!(structure, expected, "{why}");
            assert!(
                why.contains("5000 prefixes: tree-bitmap 100.0 M lookups/s, direct 1"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_file_s_word_is_followed_and_few_prefixes_are_not_measured() {
        for name in Lookup::NAMES {
            assert!(Lookup::named(name).is_some());
        }
        let direct = Lookup::Fixed(Structure::Direct);
        let mut family: Family<u32> = Family::new(direct);
        let hop = |number| NextHop::new(number).expect("not zero");
        family.insert(Prefix::new(0x0a00_0000, 8).expect("8 <= 32"), hop(1)).expect("room");
        family.judge();
        assert_eq!(family.shown()["structure"], "direct");
        assert!(!family.moved());
        family.prefer(Lookup::Fixed(Structure::TreeBitmap)).expect("room");
        assert!(family.moved() && !family.moved());
        assert_eq!(family.shown(), json!({ "structure": "tree-bitmap", "why": AS_TOLD }));
        assert_eq!(family.lookup(0x0a01_0203), Some(hop(1)));
        family.prefer(direct).expect("room");
        family.prefer(Lookup::Auto).expect("room");
        assert_eq!(family.shown(), json!({ "structure": "tree-bitmap", "why": few() }));
    }
}
