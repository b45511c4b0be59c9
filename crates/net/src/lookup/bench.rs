//! The benchmarks of `lastmeter bench lookup`, on synthetic full tables.

use super::table::{IPV4_LENGTHS, IPV6_LENGTHS, Table, addresses, generate, load};
use super::{Key, NextHop, Options};
use lastmeter_base::bench::{Case, Work};

/// Number of prefixes of the real tables from which the lengths are taken.
const IPV4: usize = 900_000;
const IPV6: usize = 160_000;
const PREFIXES_QUICK: usize = 5_000;
const KEYS: usize = 1 << 20;
const KEYS_QUICK: usize = 1 << 12;
/// A forwarder's batch size.
const BATCH: usize = 64;
const UPDATES: usize = 100_000;

const IN: &str = "random addresses inside prefixes of a synthetic full table, 64 at a time";
const SINGLE: &str = "random addresses inside prefixes of a synthetic full table, one by one";
const UPDATE: &str = "removes and inserts random prefixes of a synthetic full table";

/// The benchmarks of this module.
pub const CASES: &[Case] = &[
    lookups("lookup/ipv4", IN, |quick| batched(&v4(quick), quick)),
    lookups("lookup/ipv4-single", SINGLE, |quick| single(&v4(quick), quick)),
    changes("lookup/ipv4-updates", |quick| updates(v4(quick), quick)),
    lookups("lookup/ipv6", IN, |quick| batched(&v6(quick), quick)),
    lookups("lookup/ipv6-single", SINGLE, |quick| single(&v6(quick), quick)),
    changes("lookup/ipv6-updates", |quick| updates(v6(quick), quick)),
];

const fn lookups(name: &'static str, what: &'static str, prepare: fn(bool) -> Rounds) -> Case {
    Case { name, unit: "lookups", what, prepare }
}
const fn changes(name: &'static str, prepare: fn(bool) -> Rounds) -> Case {
    Case { name, unit: "updates", what: UPDATE, prepare }
}

type Rounds = Box<dyn FnMut() -> Work>;

fn v4(quick: bool) -> Table<u32> {
    generate(if quick { PREFIXES_QUICK } else { IPV4 }, IPV4_LENGTHS, 1)
}
fn v6(quick: bool) -> Table<u128> {
    generate(if quick { PREFIXES_QUICK } else { IPV6 }, IPV6_LENGTHS, 1)
}

fn sum(hops: &[Option<NextHop>]) -> u64 {
    hops.iter().map(|hop| u64::from(hop.map_or(0, NextHop::get))).sum()
}

fn batched<K: Key>(table: &Table<K>, quick: bool) -> Rounds {
    let tree = load(table, Options::usual::<K>()).expect("a full table fits");
    let keys = addresses(table, if quick { KEYS_QUICK } else { KEYS }, 2);
    let mut reader = tree.reader();
    let mut hops = [None; BATCH];
    Box::new(move || {
        let mut hash = 0_u64;
        for keys in keys.chunks_exact(BATCH) {
            reader.lookup_batch(keys, &mut hops);
            hash = hash.wrapping_add(sum(&hops));
        }
        Work { units: keys.len() as u64, hash }
    })
}

fn single<K: Key>(table: &Table<K>, quick: bool) -> Rounds {
    let tree = load(table, Options::usual::<K>()).expect("a full table fits");
    let keys = addresses(table, if quick { KEYS_QUICK } else { KEYS }, 2);
    Box::new(move || {
        let hash = keys.iter().map(|&key| sum(&[tree.lookup(key)])).sum();
        Work { units: keys.len() as u64, hash }
    })
}

fn updates<K: Key>(table: Table<K>, quick: bool) -> Rounds {
    let mut tree = load(&table, Options::usual::<K>()).expect("a full table fits");
    let count = if quick { KEYS_QUICK } else { UPDATES };
    let order = lastmeter_base::Stream::new(3, "updates");
    Box::new(move || {
        let (mut order, mut hash) = (order.clone(), 0_u64);
        for _ in 0..count / 2 {
            let (prefix, hop) = table[order.below(table.len() as u64) as usize];
            hash = hash.wrapping_add(sum(&[tree.remove(prefix)]));
            tree.insert(prefix, hop).expect("it was installed before");
        }
        Work { units: count as u64, hash }
    })
}

#[cfg(test)]
mod tests {
    use super::CASES;

    #[test]
    fn every_round_of_a_case_gives_the_same_result() {
        for case in CASES {
            let mut work = (case.prepare)(true);
            let first = work();
            assert_eq!((work(), first.hash != 0), (first, true), "{}", case.name);
        }
    }
}
