//! Tables against a linear scan, with updates and concurrent readers.

use super::*;
use lastmeter_base::Stream;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Bits of the arrays, of a node, and whether there are end nodes.
type Shape = (&'static [u8], u8, bool);
const SHAPES: [Shape; 12] = [
    (&[], 4, false),
    (&[], 4, true),
    (&[8], 4, true),
    (&[12], 5, true),
    (&[18], 6, true),
    (&[16], 6, false),
    (&[13], 1, true),
    (&[], 6, true),
    (&[12, 12, 3, 3], 6, true),
    (&[2, 1, 3, 12], 6, true),
    (&[7, 8, 9], 3, false),
    (&[0, 12], 6, true),
];

fn options((initial, stride, end_nodes): Shape) -> Options {
    Options { initial, stride, end_nodes, words_max: 1 << 22 }
}

/// A table that is scanned linearly.
#[derive(Default)]
struct Linear<K>(BTreeMap<Prefix<K>, NextHop>);

impl<K: Key> Linear<K> {
    fn lookup(&self, key: K) -> Option<NextHop> {
        let matching = self.0.iter().filter(|(prefix, _)| prefix.contains(key));
        matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, &hop)| hop)
    }
}

/// A key near those of other calls: only few bits vary, so that prefixes nest.
fn near<K: Key>(random: &mut Stream) -> K {
    let few = 1_u128 << random.below(128) | 1_u128 << (127 - random.below(30));
    K::from_left((u128::from(random.bits()) << 64 | u128::from(random.bits())) & few)
}

fn agrees<K: Key>(table: &impl LongestPrefixMatch<K>, linear: &Linear<K>, keys: &[K]) {
    let mut hops = vec![None; keys.len()];
    table.lookup_batch(keys, &mut hops);
    for (&key, hop) in keys.iter().zip(hops) {
        let expected = linear.lookup(key);
        assert_eq!(table.lookup(key), expected, "{key:x?}");
        assert_eq!(hop, expected, "batched {key:x?}");
    }
}

/// What only Tree Bitmap has: a fixed number in flight, and an explanation.
fn tree_agrees<K: Key>(table: &TreeBitmap<K>, linear: &Linear<K>, keys: &[K]) {
    // The result is the same with as many in flight as the document's engines have, or fewer.
    for keys in keys.as_chunks::<8>().0 {
        let mut few = [None; 8];
        table.lookup_in_flight(keys, &mut few);
        assert_eq!(few, keys.map(|key| linear.lookup(key)));
        let mut one = [None; 1];
        table.lookup_in_flight(&[keys[3]], &mut one);
        assert_eq!(one[0], few[3]);
    }
    for &key in keys {
        let explained = table.explain(key).longest;
        assert_eq!(explained.map(|(_, hop)| hop), linear.lookup(key), "explained {key:x?}");
    }
}

/// Before the first key of a prefix, the first, the last, and after it.
fn edges<K: Key>(prefix: Prefix<K>) -> [K; 4] {
    let step = 1_u128 << (128 - u32::from(K::BITS));
    let (first, last) = (prefix.key().left(), prefix.last().left());
    [first.wrapping_sub(step), first, last, last.wrapping_add(step)].map(K::from_left)
}

fn churn_tree<K: Key>(shape: Shape, rounds: u32) {
    churn(|| TreeBitmap::<K>::new(options(shape)), tree_agrees, near, rounds);
}

/// Changes at random, of prefixes of keys that `key` gives; `also` checks more.
fn churn<K: Key, T: LongestPrefixMatch<K>>(
    new: impl Fn() -> T,
    also: impl Fn(&T, &Linear<K>, &[K]),
    key: impl Fn(&mut Stream) -> K,
    rounds: u32,
) {
    let mut table = new();
    let mut linear = Linear(BTreeMap::new());
    let mut random = Stream::new(1, "churn");
    for round in 0..rounds {
        let prefix = Prefix::new(key(&mut random), random.below(u64::from(K::BITS) + 1) as u8);
        let prefix = prefix.expect("at most the key's bits");
        if random.chance(0.6) {
            let hop = NextHop::new(1 + random.below(1000) as u32).expect("not zero");
            let old = table.insert(prefix, hop).expect("there is room");
            assert_eq!(old, linear.0.insert(prefix, hop));
        } else {
            let present = linear.0.keys().nth(random.below(linear.0.len() as u64 + 1) as usize);
            let prefix = present.copied().filter(|_| random.chance(0.8)).unwrap_or(prefix);
            assert_eq!(table.remove(prefix), linear.0.remove(&prefix), "{prefix:x?}");
        }
        assert_eq!(table.prefixes(), linear.0.len() as u64);
        if round % 16 == 0 {
            let mut keys = edges(prefix).to_vec();
            keys.extend((0..90).map(|_| key(&mut random)));
            keys.extend(linear.0.keys().take(4).flat_map(|&prefix| edges(prefix)));
            agrees(&table, &linear, &keys);
            also(&table, &linear, &keys);
        }
    }
    let all: Vec<_> = linear.0.iter().map(|(&prefix, &hop)| (prefix, hop)).collect();
    assert_eq!(table.to_vec(), all);
    let fresh = new().memory();
    for (prefix, hop) in all {
        assert_eq!(table.remove(prefix), Some(hop));
    }
    // Empty again: no nodes, only freed blocks remain.
    assert_eq!((table.memory().nodes, table.prefixes()), (0, 0));
    assert_eq!(table.memory().initial, fresh.initial);
}

#[test]
fn equals_a_linear_scan_under_changes_ipv4_d_128() {
    SHAPES.into_iter().for_each(|shape| churn_tree::<u32>(shape, 1_500));
}
#[test]
fn equals_a_linear_scan_under_changes_ipv6_d_128() {
    SHAPES.into_iter().for_each(|shape| churn_tree::<u128>(shape, 1_000));
}
#[test]
fn equals_a_linear_scan_on_104_concatenated_bits_d_36() {
    SHAPES.into_iter().for_each(|shape| churn_tree::<Concatenated>(shape, 1_000));
}

#[test]
fn direct_tables_equal_a_linear_scan_under_changes_d_128() {
    churn(Direct::<u32>::new, |_, _, _| (), near, 2_000);
    churn(Direct::<u128>::new, |_, _, _| (), near, 3_000);
    // Many prefixes within few networks: nodes of ranges become arrays of nodes.
    churn(Direct::<u128>::new, |_, _, _| (), crowded, 3_000);
    // After a next hop that is not its own number, a batch needs the table of next hops.
    let renumbered = || {
        let mut table = Direct::<u128>::new();
        let large = NextHop::new(1 << 20).expect("not zero");
        table.insert(Prefix::all(), large).expect("there is room");
        table.remove(Prefix::all());
        table
    };
    churn(renumbered, |_, _, _| (), crowded, 1_000);
}

#[test]
fn next_hops_that_are_not_their_own_numbers_are_found_d_128() {
    let mut table = Direct::<u32>::new();
    let mut linear = Linear(BTreeMap::new());
    let mut keys = Vec::new();
    // The largest number goes to the first next hop beyond it, so that the next hop 32,767 needs another.
    for (at, hop) in (0..).zip([5, 1 << 15, 32_767, u32::MAX, 32_766, 32_765, 6, 1 << 15, 5]) {
        let hop = NextHop::new(hop).expect("not zero");
        let prefix = Prefix::new(at << 24, 8 + (at % 3) as u8 * 10).expect("at most 28");
        assert_eq!(table.insert(prefix, hop), Ok(linear.0.insert(prefix, hop)));
        keys.extend(edges(prefix));
        agrees(&table, &linear, &keys);
    }
}

/// A key of one of two networks of 32 bits, most in one part of it.
fn crowded(random: &mut Stream) -> u128 {
    let wide = if random.chance(0.3) { 0xffff_ff00_0000 } else { 0x0f0f_0f00_0000 };
    let network = 0x2001_0db8 + (random.below(4) / 3) as u128;
    network << 96 | u128::from(random.bits() & wide) << 48
}

#[test]
fn sixteen_ranges_fit_into_a_line_and_more_become_an_array_d_128() {
    let mut table = Direct::<u128>::new();
    let hop = |number| NextHop::new(number).expect("not zero");
    let network = 0x2001_0db8_u128 << 96;
    let prefix = |at: u128| Prefix::new(network | (2 * at + 1) << 80, 48).expect("48");
    let first = table.memory().nodes;
    // Each prefix is a range, and so is what follows it.
    for at in 0..7 {
        table.insert(prefix(at), hop(at as u32 + 1)).expect("there is room");
    }
    let line = table.memory().nodes - (first + (1 << 16) * 4);
    assert_eq!(line, 64);
    for at in 7..300 {
        table.insert(prefix(at), hop(at as u32 + 1)).expect("there is room");
    }
    assert!(table.memory().nodes > first + (1 << 16) * 4 + 1024);
    for at in 0..300 {
        assert_eq!(table.lookup(prefix(at).key() | 5), Some(hop(at as u32 + 1)));
        assert_eq!(table.lookup(prefix(at).last() + 1), None);
    }
    for at in 0..300 {
        assert_eq!(table.remove(prefix(at)), Some(hop(at as u32 + 1)));
    }
    assert_eq!(table.memory().nodes, first);
}

#[test]
fn direct_tables_refuse_what_does_not_fit_and_stay_unchanged() {
    let mut table = Direct::<u32>::new();
    let hop = |number| NextHop::new(number).expect("not zero");
    let prefix = |at: u32| Prefix::new(at << 8 | 1, 32).expect("32");
    // A slot of 16 bits points to one of 2^15 arrays, or names one of 2^15 - 1 next hops.
    for at in 0..1 << 15 {
        table.insert(prefix(at), hop(1)).expect("there is room");
    }
    assert!(matches!(table.insert(prefix(1 << 15), hop(1)), Err(Full::Words(_))));
    for number in 2..1 << 15 {
        table.insert(prefix(number), hop(number)).expect("there is room");
    }
    assert_eq!(table.insert(prefix(0), hop(1 << 15)), Err(Full::NextHops((1 << 15) - 1)));
    assert_eq!(
        (table.len(), table.lookup(1), table.lookup(7 << 8 | 1)),
        (1 << 15, Some(hop(1)), Some(hop(7)))
    );
    assert_eq!(table.lookup((1 << 15) << 8 | 1), None);
    // Removal makes room, once nobody reads what was removed.
    table.remove(prefix(5));
    table.insert(prefix(1 << 15), hop(1)).expect("there is room again");
    assert_eq!(table.lookup((1 << 15) << 8 | 1), Some(hop(1)));
}

#[test]
fn holds_every_length_from_zero_to_all_bits() {
    for shape in SHAPES {
        let mut table = TreeBitmap::new(options(shape));
        for len in 0..=32_u8 {
            let prefix = Prefix::new(u32::MAX, len).expect("at most 32");
            table
                .insert(prefix, NextHop::new(u32::from(len) + 1).expect("not zero"))
                .expect("room");
        }
        for len in 0..=32_u32 {
            let key = u32::MAX ^ 0x8000_0000_u32.checked_shr(len).unwrap_or(0);
            assert_eq!(table.lookup(key), NextHop::new(len + 1), "{shape:?} {len}");
        }
    }
}

#[test]
fn a_prefix_inserted_and_removed_leaves_every_answer_unchanged() {
    let mut random = Stream::new(3, "restore");
    let mut table = TreeBitmap::<u32>::new(options((&[8], 4, true)));
    let hop = |number| NextHop::new(number).expect("not zero");
    let mut prefix = || Prefix::new(near::<u32>(&mut random), random.below(33) as u8).expect("32");
    for number in 1..500 {
        table.insert(prefix(), hop(number)).expect("there is room");
    }
    let before = table.to_vec();
    let others: Vec<_> =
        (0..500).map(|_| prefix()).filter(|p| before.iter().all(|b| b.0 != *p)).collect();
    let nodes = table.memory().nodes;
    for &other in &others {
        table.insert(other, hop(9999)).expect("there is room");
    }
    for &other in &others {
        table.remove(other);
    }
    assert_eq!(table.to_vec(), before);
    assert_eq!(table.memory().nodes, nodes, "end nodes are end nodes again");
}

#[test]
fn refuses_what_does_not_fit_and_stays_unchanged() {
    let mut table = TreeBitmap::<u32>::new(Options { words_max: 2_000, ..Options::FIPL });
    let mut random = Stream::new(1, "full");
    let full = (0..2_000).find_map(|_| {
        let prefix = Prefix::new(random.bits() as u32, 32).expect("32");
        table.insert(prefix, NextHop::new(1).expect("not zero")).err()
    });
    assert_eq!(full, Some(Full::Words(2_000)));
    assert_eq!(table.to_vec().len() as u64, table.len());
}

/// A thread's lookups.
#[cfg(test)]
type Find = Box<dyn FnMut(&[u32], &mut [Option<NextHop>]) + Send>;

#[test]
fn readers_see_the_old_answer_or_the_new_one_d_132() {
    let table = TreeBitmap::<u32>::new(options((&[8], 6, true)));
    let readers = [table.reader(), table.reader().clone()];
    let find = readers
        .map(|mut reader| -> Find { Box::new(move |keys, hops| reader.lookup_batch(keys, hops)) });
    old_or_new(table, find);
    let table = Direct::<u32>::new();
    let readers = [table.reader(), table.reader().clone()];
    let find = readers
        .map(|mut reader| -> Find { Box::new(move |keys, hops| reader.lookup_batch(keys, hops)) });
    old_or_new(table, find);
}

#[test]
fn readers_never_take_a_number_for_a_next_hop_d_132() {
    let large = NextHop::new(1 << 20).expect("not zero");
    for _ in 0..1_500 {
        let mut table = Direct::<u128>::new();
        let mut reader = table.reader();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut hops = [None; 64];
                while hops[0].is_none() {
                    reader.lookup_batch(&[7; 64], &mut hops);
                    assert!(hops.iter().all(|hop| hop.is_none_or(|hop| hop == large)), "{hops:?}");
                }
            });
            table.insert(Prefix::all(), large).expect("there is room");
        });
    }
}

#[test]
fn readers_never_miss_while_nodes_become_arrays_and_go_d_132() {
    let mut table = Direct::<u128>::new();
    let hop = |number| NextHop::new(number).expect("not zero");
    table.insert(Prefix::all(), hop(1)).expect("there is room");
    let mut random = Stream::new(1, "keys");
    let keys: Vec<u128> = (0..64).map(|_| crowded(&mut random)).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for mut reader in [table.reader(), table.reader()] {
            let (stop, keys) = (&stop, &keys);
            scope.spawn(move || {
                let mut hops = [None; 64];
                let mut rounds = 0_u32;
                while rounds < 10 || !stop.load(order) {
                    reader.lookup_batch(keys, &mut hops);
                    for ((number, found), &key) in (2..).zip(&hops).zip(keys) {
                        let found = found.map_or(0, NextHop::get);
                        assert!(found == 1 || found == number, "{key:x} {found}");
                        assert!(reader.lookup(key).is_some());
                    }
                    rounds += 1;
                }
            });
        }
        // A key's own prefixes, which cover no other key, come and go.
        let own = |at: usize| {
            let near = keys.iter().filter(|key| **key != keys[at]);
            near.map(|key| (key ^ keys[at]).leading_zeros() as u8 + 1).max().unwrap_or(1)
        };
        let own: Vec<u8> = (0..64).map(own).collect();
        for round in 0..20_000 {
            let at = random.below(64) as usize;
            if keys.iter().filter(|key| **key == keys[at]).count() > 1 {
                continue;
            }
            let len = own[at].max(20) + random.below(60) as u8;
            let prefix = Prefix::new(keys[at], len.min(128)).expect("at most 128");
            match round % 3 {
                2 => table.remove(prefix),
                _ => table.insert(prefix, hop(at as u32 + 2)).expect("there is room"),
            };
        }
        stop.store(true, order);
    });
}

fn old_or_new(mut table: impl LongestPrefixMatch<u32>, find: [Find; 2]) {
    // Two next hops alternate for each prefix, and a longer prefix is added and removed above other keys.
    let hop = |number| NextHop::new(number).expect("not zero");
    let prefixes: Vec<_> =
        (0..512_u32).map(|n| Prefix::new(0x0a00_0000 | n << 7, 25).expect("25")).collect();
    for (number, &prefix) in (1_u32..).zip(&prefixes) {
        table.insert(prefix, hop(number)).expect("there is room");
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for mut find in find {
            let (stop, prefixes) = (&stop, &prefixes);
            scope.spawn(move || {
                let keys: Vec<u32> = prefixes.iter().map(|prefix| prefix.key() | 5).collect();
                let mut hops = vec![None; keys.len()];
                let mut rounds = 0_u32;
                while rounds < 10 || !stop.load(order) {
                    find(&keys, &mut hops);
                    for (number, found) in (1_u32..).zip(&hops) {
                        let found = found.map_or(0, NextHop::get);
                        assert!([number, number + 1000, number + 2000].contains(&found), "{found}");
                    }
                    rounds += 1;
                }
            });
        }
        let mut random = Stream::new(1, "writer");
        for _ in 0..40_000 {
            let at = random.below(512) as u32;
            let prefix = prefixes[at as usize];
            let longer = Prefix::new(prefix.key() | 4, 26 + random.below(7) as u8).expect("32");
            match random.below(4) {
                0 => table.insert(prefix, hop(at + 1 + 1000)).ok().flatten(),
                1 => table.insert(longer, hop(at + 1 + 2000)).ok().flatten(),
                2 => table.remove(longer),
                _ => table.insert(prefix, hop(at + 1)).ok().flatten(),
            };
        }
        stop.store(true, order);
    });
}

#[test]
fn readers_never_miss_while_arrays_are_made_and_removed_d_132() {
    let mut table = TreeBitmap::<u128>::new(options((&[4, 6, 8], 6, true)));
    let hop = |number| NextHop::new(number).expect("not zero");
    let prefix = |key: u128, len| Prefix::new(key, len).expect("at most 128");
    // Everything has next hop 1; changing prefixes within the arrays have 2, beyond them 3.
    table.insert(prefix(0, 0), hop(1)).expect("there is room");
    let mut random = Stream::new(1, "keys");
    let keys: Vec<u128> = (0..64).map(|_| near(&mut random)).collect();
    let come_and_go = |table: &mut TreeBitmap<u128>, random: &mut Stream| {
        let key = keys[random.below(64) as usize];
        let len = 1 + random.below(48) as u8;
        let new = hop(if len > 18 { 3 } else { 2 });
        table.insert(prefix(key, len), new).expect("there is room");
        assert_eq!(table.remove(prefix(key, len)), Some(new));
    };
    let empty = table.memory();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        let mut reader = table.reader();
        let (stop, keys) = (&stop, &keys);
        scope.spawn(move || {
            let mut hops = [None; 64];
            let mut rounds = 0_u32;
            while rounds < 10 || !stop.load(order) {
                reader.lookup_batch(keys, &mut hops);
                for (found, &key) in hops.iter().zip(keys) {
                    assert!((1..4).contains(&found.map_or(0, NextHop::get)), "{key:x} {found:?}");
                    assert!(reader.lookup(key).is_some());
                }
                rounds += 1;
            }
        });
        for _ in 0..10_000 {
            come_and_go(&mut table, &mut random);
        }
        stop.store(true, order);
    });
    assert_eq!((table.memory().initial, table.memory().nodes), (empty.initial, empty.nodes));
    // Now that no reader is active, freed blocks are reused.
    (0..1_000).for_each(|_| come_and_go(&mut table, &mut random));
    let free = table.memory().free;
    (0..1_000).for_each(|_| come_and_go(&mut table, &mut random));
    assert_eq!(table.memory().free, free);
}

#[test]
fn refuses_arrays_that_do_not_fit_and_stays_unchanged() {
    let arrays = Options { initial: &[4, 12], words_max: 20_000, ..Options::IPV6 };
    let mut table = TreeBitmap::<u128>::new(arrays);
    let results: Vec<_> = (0..16_u128)
        .map(|first| Prefix::new(first << 124, 16).expect("16"))
        .map(|prefix| table.insert(prefix, NextHop::new(1).expect("not zero")))
        .collect();
    let fit = results.iter().filter(|result| result.is_ok()).count();
    assert!((2..5).contains(&fit) && results[15] == Err(Full::Words(20_000)), "{results:?}");
    assert_eq!(table.to_vec().len(), fit);
}

proptest! {
    #[test]
    fn any_table_equals_a_linear_scan(
        routes in prop::collection::vec((any::<u32>(), 0..=32_u8, 1..50_u32), 0..200),
        keys in prop::collection::vec(any::<u32>(), 100),
        shape in 0..SHAPES.len(),
    ) {
        let mut table = TreeBitmap::new(options(SHAPES[shape]));
        let mut linear = Linear(BTreeMap::new());
        for (key, len, hop) in routes {
            let prefix = Prefix::new(key & 0xff0f_0f0f, len).expect("at most 32");
            let hop = NextHop::new(hop).expect("not zero");
            prop_assert_eq!(table.insert(prefix, hop), Ok(linear.0.insert(prefix, hop)));
        }
        let keys: Vec<u32> = keys.into_iter().map(|key| key & 0xff0f_0f0f).collect();
        agrees(&table, &linear, &keys);
        tree_agrees(&table, &linear, &keys);
    }

    #[test]
    fn any_direct_table_equals_a_linear_scan(
        routes in prop::collection::vec((any::<u64>(), 0..=128_u8, 1..50_u32), 0..200),
        keys in prop::collection::vec(any::<u64>(), 100),
    ) {
        let key = |bits: u64| {
            u128::from(bits & 0x0101_0f0f_000f_0f0f) << 64 | u128::from(bits & 3) << 40
        };
        let mut table = Direct::<u128>::new();
        let mut linear = Linear(BTreeMap::new());
        for (bits, len, hop) in routes {
            let prefix = Prefix::new(key(bits), len).expect("at most 128");
            let hop = NextHop::new(hop).expect("not zero");
            prop_assert_eq!(table.insert(prefix, hop), Ok(linear.0.insert(prefix, hop)));
        }
        let keys: Vec<u128> = keys.into_iter().map(key).collect();
        agrees(&table, &linear, &keys);
    }
}
