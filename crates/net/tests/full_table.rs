//! A whole table from a file, against a reference, under updates, and under readers.
//!
//! ```text
//! LASTMETER_TABLE=table.txt cargo test --release -p lastmeter-net --test all full_table
//! ```
//!
//! The file is text or MRT (`lastmeter_wire::routes`). Without it the same runs on a small made-up table.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

use lastmeter_base::Stream;
use lastmeter_net::lookup::table::{
    IPV4_LENGTHS, IPV6_LENGTHS, Table, addresses, generate, load, split,
};
use lastmeter_net::lookup::{
    Direct, Key, LongestPrefixMatch, NextHop, Options, Prefix, TreeBitmap,
};
use lastmeter_wire::routes::Routes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

const ADDRESSES: usize = 10_000_000;
const UPDATES: usize = 1_000_000;
const ADDRESSES_SMALL: usize = 60_000;
const UPDATES_SMALL: usize = 20_000;

/// The table of the file, or a made-up one; how many addresses and updates.
fn tables() -> (Table<u32>, Table<u128>, usize, usize) {
    match std::env::var_os("LASTMETER_TABLE") {
        Some(path) => {
            let (v4, v6) = split(&Routes::parse(&std::fs::read(path).unwrap()).unwrap());
            (v4, v6, ADDRESSES, UPDATES)
        }
        None => {
            eprintln!("LASTMETER_TABLE names no file: a small made-up table instead");
            let (v4, v6) = (generate(5_000, IPV4_LENGTHS, 1), generate(5_000, IPV6_LENGTHS, 1));
            (v4, v6, ADDRESSES_SMALL, UPDATES_SMALL)
        }
    }
}

/// Every length is tried, the longest first.
struct Reference<K>(HashMap<(u8, u128), (Prefix<K>, NextHop)>);

impl<K: Key> Reference<K> {
    fn insert(&mut self, prefix: Prefix<K>, hop: NextHop) {
        self.0.insert((prefix.len(), prefix.key().left()), (prefix, hop));
    }
    fn lookup(&self, key: K, lengths: &[u8]) -> Option<NextHop> {
        let at = |&len: &u8| {
            self.0.get(&(len, Prefix::new(key, len).unwrap().key().left())).map(|(_, hop)| *hop)
        };
        lengths.iter().find_map(at)
    }
}

fn random_key<K: Key>(random: &mut Stream) -> K {
    K::from_left(u128::from(random.bits()) << 64 | u128::from(random.bits()))
}

/// Random keys, keys inside prefixes, and those at and beside the ends of every prefix.
fn keys<K: Key>(table: &Table<K>, count: usize) -> Vec<K> {
    let step = 1_u128 << (128 - u32::from(K::BITS));
    let ends = |&(prefix, _): &(Prefix<K>, NextHop)| {
        let (first, last) = (prefix.key().left(), prefix.last().left());
        [first.wrapping_sub(step), first, last, last.wrapping_add(step)].map(K::from_left)
    };
    let mut keys: Vec<K> = table.iter().flat_map(ends).collect();
    let rest = count.saturating_sub(keys.len());
    keys.extend(addresses(table, rest / 2, 1));
    let mut random = Stream::new(2, "keys");
    keys.extend((0..rest.div_ceil(2)).map(|_| random_key::<K>(&mut random)));
    keys
}

fn agrees<K: Key>(tree: &impl LongestPrefixMatch<K>, reference: &Reference<K>, keys: &[K]) {
    let mut lengths: Vec<u8> = reference.0.keys().map(|&(len, _)| len).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths.reverse();
    let mut hops = [None; 64];
    for keys in keys.chunks(64) {
        tree.lookup_batch(keys, &mut hops[..keys.len()]);
        for (&key, hop) in keys.iter().zip(hops) {
            let expected = reference.lookup(key, &lengths);
            assert_eq!((hop, tree.lookup(key)), (expected, expected), "{key:x?}");
        }
    }
}

fn check<K: Key>(
    table: &Table<K>,
    mut tree: impl LongestPrefixMatch<K>,
    count: usize,
    updates: usize,
) {
    table.iter().for_each(|&(prefix, hop)| assert_eq!(tree.insert(prefix, hop), Ok(None)));
    let mut reference = Reference(HashMap::new());
    table.iter().for_each(|&(prefix, hop)| reference.insert(prefix, hop));
    let keys = keys(table, count);
    agrees(&tree, &reference, &keys);
    let bytes = tree.memory().total() as f64 / table.len() as f64;
    eprintln!("{} prefixes, {bytes:.1} bytes for each, {} keys", table.len(), keys.len());

    let mut random = Stream::new(3, "updates");
    for _ in 0..updates {
        let (near, _) = table[random.below(table.len() as u64) as usize];
        let hop = NextHop::new(1 + random.below(1000) as u32).unwrap();
        // Half of them one of the table's, half beside or inside one.
        let other = Prefix::new(near.last(), random.below(u64::from(K::BITS) + 1) as u8).unwrap();
        let prefix = if random.chance(0.5) { near } else { other };
        match random.chance(0.5) {
            true => {
                tree.insert(prefix, hop).unwrap();
                reference.insert(prefix, hop);
            }
            false => {
                let removed = reference.0.remove(&(prefix.len(), prefix.key().left()));
                assert_eq!(tree.remove(prefix), removed.map(|(_, hop)| hop));
            }
        }
    }
    agrees(&tree, &reference, &keys);
    assert_eq!(tree.prefixes(), reference.0.len() as u64);
    let bytes = tree.memory().total() as f64 / tree.prefixes() as f64;
    eprintln!("after {updates} updates {} prefixes, {bytes:.1} bytes for each", tree.prefixes());
}

#[test]
fn every_answer_is_the_reference_s_before_and_after_updates_ipv4() {
    let (v4, _, count, updates) = tables();
    if !v4.is_empty() {
        check(&v4, TreeBitmap::new(Options::IPV4), count, updates);
        check(&v4, Direct::new(), count, updates);
    }
}

#[test]
fn every_answer_is_the_reference_s_before_and_after_updates_ipv6() {
    let (_, v6, count, updates) = tables();
    if !v6.is_empty() {
        check(&v6, TreeBitmap::new(Options::IPV6), count, updates);
        check(&v6, Direct::new(), count, updates);
    }
}

#[test]
fn a_reader_sees_the_table_before_an_update_or_after_it() {
    let (v4, v6, ..) = tables();
    before_or_after(&v4);
    before_or_after(&v6);
}

fn before_or_after<K: Key>(table: &Table<K>) {
    if table.is_empty() {
        return;
    }
    // Prefixes go and come back, so a key has its own answer or that of the table without them.
    let mut tree = load(table, Options::usual::<K>()).unwrap();
    let keys = addresses(table, 4_096, 5);
    let mut without = load(table, Options::usual::<K>()).unwrap();
    let some: Vec<_> = table.iter().copied().filter(|(prefix, _)| prefix.len() > 16).collect();
    let mut random = Stream::new(6, "readers");
    let moving: Vec<_> = (0..200).map(|_| some[random.below(some.len() as u64) as usize]).collect();
    // A moving prefix is the only one of its key that moves.
    let moves = |key: K| moving.iter().filter(|(prefix, _)| prefix.contains(key)).count();
    let keys: Vec<K> = keys
        .into_iter()
        .chain(moving.iter().map(|(prefix, _)| prefix.key()))
        .filter(|&key| moves(key) <= 1)
        .collect();
    let with: Vec<_> = keys.iter().map(|&key| tree.lookup(key)).collect();
    for &(prefix, _) in &moving {
        // One picked twice is already gone.
        let _ = without.remove(prefix);
    }
    let without: Vec<_> = keys.iter().map(|&key| without.lookup(key)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut reader = tree.reader();
        let (stop, keys, with, without) = (&stop, &keys, &with, &without);
        scope.spawn(move || {
            let mut hops = vec![None; keys.len()];
            while !stop.load(Ordering::Relaxed) {
                reader.lookup_batch(keys, &mut hops);
                for ((hop, with), without) in hops.iter().zip(with).zip(without) {
                    assert!(hop == with || hop == without, "{hop:?}, not {with:?} or {without:?}");
                }
            }
        });
        for round in 0..100_000 {
            let (prefix, hop) = moving[round % moving.len()];
            tree.remove(prefix);
            tree.insert(prefix, hop).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
