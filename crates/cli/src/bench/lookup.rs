//! Lookups in a table from a file, compared with DPDK on the same table and addresses.

use super::crates::{self, Common};
use super::{Measurement, Setting, peer};
use crate::Complaint;
use lastmeter_net::lookup::table::{addresses, load, split};
use lastmeter_net::lookup::{
    Direct, DirectKey, LongestPrefixMatch, NextHop, Options, Prefix, TreeBitmap,
};
use lastmeter_wire::routes::Routes;
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

/// What these names begin with.
const NAMES: [&str; 4] =
    ["lookup/full-ipv4", "lookup/ipv4-fast", "lookup/full-ipv6", "lookup/ipv6-fast"];
/// Addresses of a pass: random ones inside random prefixes.
const KEYS: usize = 1 << 22;
const KEYS_QUICK: usize = 1 << 16;
/// Destinations of the pass that repeats them.
const REPEATED: usize = 2048;
const BATCH: usize = 64;
/// How long each is repeated; the best pass counts.
const SECONDS: f64 = 1.0;
const SECONDS_QUICK: f64 = 0.05;
/// Pairs of windows per pass, and seconds of a window: twenty updates at 1,000 a second.
const PAIRS_LAST: f64 = 8.0;
const WINDOW: f64 = 0.02;
/// Updates a second while lookups go on.
const RATES: [u32; 3] = [1_000, 10_000, 100_000];

fn is_wanted(name: &str, wanted: &str) -> bool {
    name.starts_with(wanted) || wanted.starts_with(name)
}

/// Whether any of them is wanted.
pub(crate) fn wanted(wanted: &str) -> bool {
    NAMES.iter().any(|name| is_wanted(name, wanted))
}

/// Runs those that are wanted; each family that the file has.
pub(crate) fn all(
    path: &Path,
    setting: &Setting<'_>,
    wanted: &str,
) -> Result<Vec<Measurement>, Complaint> {
    let file = crate::lookup::read(path)?;
    let routes = Routes::parse(&file)
        .map_err(|error| Complaint(format!("`{}`, {error}", path.display())))?;
    let (v4, v6) = split(&routes);
    let mut results = Vec::new();
    for name in NAMES.into_iter().filter(|name| is_wanted(name, wanted)) {
        match name {
            "lookup/full-ipv4" if !v4.is_empty() => {
                Run::new(name, &v4, setting).results(&mut results)?;
            }
            "lookup/ipv4-fast" if !v4.is_empty() => {
                Run::new(name, &v4, setting).fast(&mut results)?;
            }
            "lookup/full-ipv6" if !v6.is_empty() => {
                Run::new(name, &v6, setting).results(&mut results)?;
            }
            "lookup/ipv6-fast" if !v6.is_empty() => {
                Run::new(name, &v6, setting).fast(&mut results)?;
            }
            _ => {}
        }
    }
    Ok(results)
}

/// A table's measurements.
struct Run<'a, K> {
    name: &'static str,
    table: &'a [(Prefix<K>, NextHop)],
    keys: Vec<K>,
    seconds: f64,
}

impl<'a, K: Common> Run<'a, K> {
    fn new(
        name: &'static str,
        table: &'a [(Prefix<K>, NextHop)],
        setting: &Setting<'_>,
    ) -> Run<'a, K> {
        let count = if setting.quick { KEYS_QUICK } else { KEYS };
        let keys = addresses(table, count, setting.seed.unwrap_or(2));
        Run { name, table, keys, seconds: if setting.quick { SECONDS_QUICK } else { SECONDS } }
    }
    fn result(&self, what: &str, value: f64, unit: &str, hash: u64, note: String) -> Measurement {
        let bench = format!("{}{what}", self.name);
        Measurement::new(bench, value, unit, format!("{hash:016x}"), note)
    }
    fn results(&self, results: &mut Vec<Measurement>) -> Result<(), Complaint> {
        let mut tree = load(self.table, Options::usual::<K>())?;
        let bytes = tree.memory().total() as f64;
        let each = bytes / self.table.len() as f64;
        let mut reader = tree.reader();
        let mut look = |keys: &[K], hops: &mut [Option<NextHop>]| reader.lookup_batch(keys, hops);
        let (rate, hash) = self.batched(&self.keys, &mut look);
        let repeated: Vec<K> = self.keys.iter().copied().take(REPEATED).collect();
        let (repeated_rate, repeated_hash) = self.batched(&repeated, &mut look);
        drop(reader);
        let singles = || self.keys.iter().map(|&key| sum(&[tree.lookup(key)])).sum();
        let (single_rate, single_hash) = self.best(self.keys.len(), singles);
        let prefixes = self.table.len();
        let note = format!("random addresses inside {prefixes} prefixes, {BATCH} at a time");
        let mut lookups = self.result("", rate, "lookups/s", hash, note);
        let note = format!("{REPEATED} destinations repeated, {BATCH} at a time");
        let repeated = self.result("-repeated", repeated_rate, "lookups/s", repeated_hash, note);
        let note = "the same addresses, one by one".to_owned();
        let single = self.result("-single", single_rate, "lookups/s", single_hash, note);
        let note = format!("{bytes} bytes in all");
        let mut memory = self.result("-memory", each, "B/prefix", hash, note).lower_is_better();
        let losses: Vec<Measurement> = RATES.map(|at| self.while_updated(&mut tree, at)).into();
        let (updated, update_hash) = self.updates(&mut tree);
        let note = "random prefixes removed and inserted".to_owned();
        let mut updates = self.result("-updates", updated, "updates/s", update_hash, note);
        let [updated, alone] = K::DPDK;
        if let Some(dpdk) = self.dpdk(updated, &mut lookups, hash)? {
            updates.beside(updated, dpdk.updates);
            memory.beside(updated, dpdk.bytes / prefixes as f64);
        }
        let note = format!("the same, compared with {alone}");
        let mut second = self.result(&format!("@{alone}"), rate, "lookups/s", hash, note);
        if let Some(dpdk) = self.dpdk(alone, &mut second, hash)? {
            let each = dpdk.bytes / prefixes as f64;
            let _ = write!(second.note, ", which takes {each:.0} B/prefix");
        }
        let beside = self.crates(&lookups, hash)?;
        results.extend([lookups, second, repeated, single, memory, updates]);
        results.extend(beside);
        results.extend(losses);
        Ok(())
    }
    /// The direct table, beside DPDK's structure that is updated, too.
    fn fast(&self, results: &mut Vec<Measurement>) -> Result<(), Complaint>
    where
        K: DirectKey,
    {
        let mut table = Direct::new();
        for &(prefix, hop) in self.table {
            table.insert(prefix, hop)?;
        }
        let bytes = table.memory().total() as f64;
        let each = bytes / self.table.len() as f64;
        let mut reader = table.reader();
        let look = |keys: &[K], hops: &mut [Option<NextHop>]| reader.lookup_batch(keys, hops);
        let (rate, hash) = self.batched(&self.keys, look);
        drop(reader);
        let prefixes = self.table.len();
        let note = format!("the same addresses in a direct table, {BATCH} at a time");
        let mut lookups = self.result("", rate, "lookups/s", hash, note);
        let note = format!("{bytes} bytes in all");
        let mut memory = self.result("/memory", each, "B/prefix", hash, note).lower_is_better();
        let (updated, update_hash) = self.updates(&mut table);
        let note = "random prefixes removed and inserted".to_owned();
        let mut updates = self.result("/updates", updated, "updates/s", update_hash, note);
        let [peer, _] = K::DPDK;
        if let Some(dpdk) = self.dpdk(peer, &mut lookups, hash)? {
            updates.beside(peer, dpdk.updates);
            memory.beside(peer, dpdk.bytes / prefixes as f64);
        }
        results.extend([lookups, memory, updates]);
        Ok(())
    }
    /// Compares `lookups` with one of DPDK's structures, or notes why that is not possible.
    fn dpdk(
        &self,
        structure: &str,
        lookups: &mut Measurement,
        hash: u64,
    ) -> Result<Option<peer::Dpdk>, Complaint> {
        match peer::dpdk_lookup(structure, self.table, &self.keys, self.seconds) {
            Ok(dpdk) if dpdk.sum != hash => {
                Err(Complaint(format!("{structure} and this table give different next hops")))
            }
            Ok(dpdk) => {
                lookups.beside(structure, dpdk.lookups);
                let _ = write!(lookups.note, "; {structure} loads in {:.1} s", dpdk.loaded);
                Ok(Some(dpdk))
            }
            Err(why) => {
                lookups.beside_if_there(structure, Err(why));
                Ok(None)
            }
        }
    }
    /// The same lookups in crates from crates.io, compared with our `lookups`.
    fn crates(&self, lookups: &Measurement, hash: u64) -> Result<Vec<Measurement>, Complaint> {
        let one = |(name, load): crates::Load<K>| {
            let find = load(self.table);
            let (rate, found) = self.best(self.keys.len(), || find(&self.keys));
            if found != hash {
                return Err(Complaint(format!("{name} and this table give different next hops")));
            }
            let note = format!("the same, compared with the crate {name}");
            let bench = format!("@{name}");
            let mut result = self.result(&bench, lookups.value, "lookups/s", hash, note);
            result.beside(name, rate);
            Ok(result)
        };
        crates::all().into_iter().map(one).collect()
    }
    /// The rate of lookups in batches, and the sum of the next hops.
    fn batched(
        &self,
        keys: &[K],
        mut look: impl FnMut(&[K], &mut [Option<NextHop>]),
    ) -> (f64, u64) {
        let mut hops = [None; BATCH];
        self.best(keys.len(), || {
            let batches = keys.chunks_exact(BATCH).map(|keys| {
                look(keys, &mut hops);
                sum(&hops)
            });
            batches.sum()
        })
    }
    /// The best rate of several passes, and what a pass gave.
    fn best(&self, count: usize, mut pass: impl FnMut() -> u64) -> (f64, u64) {
        let began = Instant::now();
        let (mut best, mut hash) = (0.0_f64, 0);
        while began.elapsed().as_secs_f64() < self.seconds {
            let start = Instant::now();
            hash = pass();
            best = best.max(count as f64 / start.elapsed().as_secs_f64());
        }
        (best, hash)
    }
    fn update(&self, tree: &mut impl LongestPrefixMatch<K>, at: &mut usize) -> u64 {
        // A stride coprime to most counts visits them in a scattered order.
        *at = (*at + 524_287) % self.table.len();
        let (prefix, hop) = self.table[*at];
        let removed = tree.remove(prefix);
        // It was there a moment ago, so there is room.
        let _ = tree.insert(prefix, hop);
        sum(&[removed])
    }
    fn updates(&self, tree: &mut impl LongestPrefixMatch<K>) -> (f64, u64) {
        const UPDATES: usize = 100_000;
        self.best(UPDATES, || {
            let mut at = 0;
            (0..UPDATES / 2).map(|_| self.update(tree, &mut at)).sum()
        })
    }
    /// The lookup rate left on the same core while the table changes.
    ///
    /// A machine's own speed drifts by more than updates cost. So windows with and without updates
    /// alternate, as does which of a pair comes first, and the median of the pairs' ratios counts.
    fn while_updated(&self, tree: &mut TreeBitmap<K>, rate: u32) -> Measurement {
        let (began, mut at, mut hash) = (Instant::now(), 0, 0_u64);
        let mut keys = self.keys.chunks_exact(16 * BATCH).cycle();
        let (mut left, mut rates) = (Vec::new(), Vec::new());
        while began.elapsed().as_secs_f64() < PAIRS_LAST * self.seconds || left.is_empty() {
            let mut pair = [0.0; 2];
            let first = left.len() % 2;
            for updated in [first, 1 - first] {
                let rate = if updated == 1 { rate } else { 0 };
                let (start, mut done, mut changed) = (Instant::now(), 0_usize, 0.0);
                let mut hops = [None; BATCH];
                let mut elapsed = 0.0;
                while elapsed < WINDOW {
                    let keys = keys.next().unwrap_or_default();
                    for keys in keys.chunks_exact(BATCH) {
                        tree.lookup_batch(keys, &mut hops);
                        hash = hash.wrapping_add(sum(&hops));
                    }
                    done += keys.len();
                    elapsed = start.elapsed().as_secs_f64();
                    while changed < elapsed * f64::from(rate) {
                        self.update(tree, &mut at);
                        changed += 2.0;
                    }
                }
                pair[updated] = done as f64 / start.elapsed().as_secs_f64();
            }
            left.push(pair[1] / pair[0]);
            rates.push(pair[1]);
        }
        let [low, middle, high] = quartiles(&mut left);
        // The standard error of a median of normal values, from their quartiles.
        let error = 0.93 * (high - low) / (left.len() as f64).sqrt();
        let note = format!(
            "{rate} updates/s on the same core take {:.1} % of the lookups, ± {:.1} \
             (median of {} pairs of windows)",
            100.0 * (1.0 - middle),
            100.0 * error,
            left.len()
        );
        let [_, value, _] = quartiles(&mut rates);
        self.result(&format!("-updated@{rate}"), value, "lookups/s", hash, note)
    }
}

/// The quartiles of at least one value.
fn quartiles(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[quarter * (values.len() - 1) / 4])
}

pub(super) fn sum(hops: &[Option<NextHop>]) -> u64 {
    hops.iter().map(|hop| u64::from(hop.map_or(0, NextHop::get))).sum()
}
