//! Whole tables: read from files, generated, and compared.
//!
//! ```
//! use lastmeter_net::lookup::table::{IPV4_LENGTHS, diff, generate};
//! let table = generate::<u32>(1000, IPV4_LENGTHS, 1);
//! assert_eq!(table.len(), 1000);
//! let changes = diff(&table[1..], &table);
//! assert_eq!(changes[0].new, Some(table[0].1));
//! ```

use super::{Full, Key, NextHop, Options, Prefix, TreeBitmap};
use lastmeter_base::Stream;
use lastmeter_wire::routes::Routes;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Prefixes with their next hops, in order, each prefix once.
pub type Table<K> = Vec<(Prefix<K>, NextHop)>;

/// How many prefixes of each length a full IPv4 table of a tier-1 network had on 27 January 2024: 901,899
/// (prefix list of `gaissmai/bart`, `internal/tests/testdata`, MIT).
pub const IPV4_LENGTHS: &[(u8, u32)] = &[
    (8, 16),
    (9, 13),
    (10, 38),
    (11, 103),
    (12, 299),
    (13, 581),
    (14, 1203),
    (15, 2100),
    (16, 13490),
    (17, 8235),
    (18, 13798),
    (19, 24870),
    (20, 42611),
    (21, 50750),
    (22, 108_623),
    (23, 96510),
    (24, 537_698),
    (27, 11),
    (28, 18),
    (29, 17),
    (32, 886),
];

/// The same for its IPv6 table: 160,147, without lengths that have ten prefixes or fewer.
pub const IPV6_LENGTHS: &[(u8, u32)] = &[
    (20, 16),
    (24, 30),
    (26, 15),
    (27, 20),
    (28, 193),
    (29, 4371),
    (30, 650),
    (31, 284),
    (32, 22548),
    (33, 2926),
    (34, 2603),
    (35, 1043),
    (36, 5996),
    (37, 880),
    (38, 1617),
    (39, 1377),
    (40, 13418),
    (41, 903),
    (42, 2301),
    (43, 1001),
    (44, 14365),
    (45, 1553),
    (46, 3039),
    (47, 3153),
    (48, 75488),
    (56, 24),
    (58, 20),
    (64, 184),
    (126, 19),
    (127, 42),
];

/// Prefixes of each length in routing tables of mid-2001, per hundred thousand:
/// 57 % have 24 bits, most others 16 to 23 (Huston, "Analyzing the Internet's BGP routing table",
/// The Internet Protocol Journal 4(1), 2001). It stands in for the excerpt of Mae-West's table (D-135).
pub const LENGTHS_2001: &[(u8, u32)] = &[
    (8, 25),
    (9, 5),
    (10, 10),
    (11, 15),
    (12, 45),
    (13, 100),
    (14, 260),
    (15, 450),
    (16, 7200),
    (17, 1500),
    (18, 2600),
    (19, 7000),
    (20, 5800),
    (21, 4700),
    (22, 7000),
    (23, 8600),
    (24, 57_500),
];

/// Number of next hops in a generated table.
const HOPS: u64 = 64;
/// The share of prefixes that lie near an earlier one, and how many bits of its length they share at
/// least: chosen so that a full-size table has about as many nodes as the real one.
const NEAR: f64 = 0.93;
const SHARED: u8 = 8;

/// The first 12 bits of IPv6 addresses in use: the blocks that IANA has allocated to the regional registries ("IPv6
/// Global Unicast Address Assignments").
const IPV6_BLOCKS: [u16; 9] =
    [0x2001, 0x2400, 0x2600, 0x2610, 0x2620, 0x2800, 0x2a00, 0x2a10, 0x2c00];

/// A synthetic table with these prefix lengths: most prefixes lie near others, as in real tables.
pub fn generate<K: Key>(count: usize, lengths: &[(u8, u32)], seed: u64) -> Table<K> {
    let mut random = Stream::new(seed, "table");
    let total = lengths.iter().map(|&(_, weight)| u64::from(weight)).sum();
    let mut table = BTreeMap::new();
    let mut made: Vec<Prefix<K>> = Vec::new();
    // A table of only short prefixes may have fewer than requested.
    for _ in 0..count.saturating_mul(20) {
        if made.len() == count {
            break;
        }
        let mut at = random.below(total);
        let len = lengths.iter().find(|&&(_, weight)| {
            let here = at < u64::from(weight);
            at = at.saturating_sub(weight.into());
            here
        });
        let len = len.map_or(0, |&(len, _)| len.min(K::BITS));
        let bits = u128::from(random.bits()) << 64 | u128::from(random.bits());
        let shared = match made.is_empty() || !random.chance(NEAR) {
            true if K::BITS == 128 => {
                let block = IPV6_BLOCKS[random.below(IPV6_BLOCKS.len() as u64) as usize];
                (u128::from(block) << 112, 12)
            }
            true => (0, 0),
            false => {
                let near = made[random.below(made.len() as u64) as usize];
                (near.key().left(), len.min(near.len()).saturating_sub(SHARED))
            }
        };
        let mask = super::key::mask(shared.1);
        let key = K::from_left(shared.0 & mask | bits & !mask);
        let (Some(prefix), Some(hop)) =
            (Prefix::new(key, len), NextHop::new(1 + random.below(HOPS) as u32))
        else {
            continue;
        };
        if table.insert(prefix, hop).is_none() {
            made.push(prefix);
        }
    }
    table.into_iter().collect()
}

/// The IPv4 and the IPv6 table of a file, in order.
pub fn split(routes: &Routes) -> (Table<u32>, Table<u128>) {
    let (mut v4, mut v6) = (Table::new(), Table::new());
    for route in &routes.routes {
        let Some(hop) = NextHop::new(route.next_hop) else { continue };
        let len = route.prefix.len();
        match route.prefix.address() {
            IpAddr::V4(address) => {
                v4.extend(Prefix::new(address.to_bits(), len).map(|prefix| (prefix, hop)));
            }
            IpAddr::V6(address) => {
                v6.extend(Prefix::new(address.to_bits(), len).map(|prefix| (prefix, hop)));
            }
        }
    }
    v4.sort_unstable();
    v6.sort_unstable();
    (v4, v6)
}

/// A tree with a table's prefixes.
///
/// # Errors
/// If that exceeds the tree's memory limit.
pub fn load<K: Key>(
    table: &[(Prefix<K>, NextHop)],
    options: Options,
) -> Result<TreeBitmap<K>, Full> {
    let mut tree = TreeBitmap::new(options);
    for &(prefix, hop) in table {
        tree.insert(prefix, hop)?;
    }
    Ok(tree)
}

/// A prefix's old and new next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<K> {
    /// The prefix.
    pub prefix: Prefix<K>,
    /// The old next hop, if the prefix was present.
    pub old: Option<NextHop>,
    /// The new next hop, if the prefix is still present.
    pub new: Option<NextHop>,
}

/// The changes that turn one table into another (D-41). Both are in order, as [`split`] and
/// [`TreeBitmap::to_vec`] return them.
pub fn diff<K: Key>(old: &[(Prefix<K>, NextHop)], new: &[(Prefix<K>, NextHop)]) -> Vec<Change<K>> {
    let (mut old, mut new) = (old.iter().copied().peekable(), new.iter().copied().peekable());
    let mut changes = Vec::new();
    loop {
        let first = |next: Option<&(Prefix<K>, NextHop)>| next.map(|&(prefix, _)| prefix);
        let Some(prefix) = first(old.peek()).into_iter().chain(first(new.peek())).min() else {
            return changes;
        };
        let change = Change {
            prefix,
            old: old.next_if(|&(other, _)| other == prefix).map(|(_, hop)| hop),
            new: new.next_if(|&(other, _)| other == prefix).map(|(_, hop)| hop),
        };
        if change.old != change.new {
            changes.push(change);
        }
    }
}

/// Applies the changes.
///
/// # Errors
/// If that exceeds the tree's memory limit; earlier changes have been applied.
pub fn apply<K: Key>(tree: &mut TreeBitmap<K>, changes: &[Change<K>]) -> Result<(), Full> {
    for change in changes {
        match change.new {
            Some(hop) => tree.insert(change.prefix, hop)?,
            None => tree.remove(change.prefix),
        };
    }
    Ok(())
}

/// Random addresses, each inside a random prefix of a table.
pub fn addresses<K: Key>(table: &[(Prefix<K>, NextHop)], count: usize, seed: u64) -> Vec<K> {
    let mut random = Stream::new(seed, "addresses");
    let mut inside = |_| {
        let (prefix, _) = table.get(random.below(table.len().max(1) as u64) as usize)?;
        let bits = u128::from(random.bits()) << 64 | u128::from(random.bits());
        let beyond = bits & !super::key::mask(prefix.len());
        Some(K::from_left(prefix.key().left() | beyond))
    };
    (0..count).filter_map(&mut inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_turn_one_table_into_the_other_d_41() {
        let old = generate::<u32>(3_000, IPV4_LENGTHS, 1);
        let mut new = generate::<u32>(3_000, IPV4_LENGTHS, 2);
        new.extend(old.iter().step_by(2).map(|&(prefix, hop)| (prefix, hop)));
        new.sort_unstable();
        new.dedup_by_key(|(prefix, _)| *prefix);
        let changes = diff(&old, &new);
        assert!(changes.len() < old.len() + new.len());
        let options = Options { initial: &[12], ..Options::IPV4 };
        let mut tree = load(&old, options).expect("there is room");
        apply(&mut tree, &changes).expect("there is room");
        assert_eq!(tree.to_vec(), new);
        assert_eq!(diff(&new, &new), []);
    }

    #[test]
    fn a_generated_table_has_the_requested_lengths() {
        let table = generate::<u128>(5_000, IPV6_LENGTHS, 1);
        let share = table.iter().filter(|(prefix, _)| prefix.len() == 48).count();
        assert!((2_000..2_700).contains(&share), "{share}");
        assert!(table.is_sorted() && table.iter().all(|(prefix, _)| prefix.key() >> 125 == 1));
    }

    #[test]
    fn a_file_with_both_families_is_split_into_its_two_tables() {
        let file = b"10.0.0.0/8 1\n::/0 2\n9.0.0.0/8 3\n";
        let (v4, v6) = split(&Routes::parse(file).expect("right"));
        assert_eq!((v4.len(), v6.len(), v4[0].1.get()), (2, 1, 3));
    }
}
