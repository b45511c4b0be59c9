//! Lookups by crates from crates.io, on the same table and addresses.

use lastmeter_net::lookup::{Key, NextHop, Prefix};
use prefix_trie::PrefixMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use treebitmap::IpLookupTable;

/// A key that those crates support.
pub(crate) trait Common: Key {
    /// An address, as `treebitmap` has it.
    type Address: treebitmap::address::Address + std::fmt::Display;
    /// DPDK's structures for such keys: the one that is also updated, and one that only looks up.
    const DPDK: [&'static str; 2];
    /// The key as those take it.
    fn dpdk(self) -> Vec<u8>;
    /// The same key.
    fn address(self) -> Self::Address;
    /// Finds the next hop of each address in the crate `prefix-trie`.
    fn in_prefix_trie(table: &[(Prefix<Self>, NextHop)]) -> Finder<Self>;
}

/// Looks keys up and gives the sum of the next hops.
pub(crate) type Finder<K> = Box<dyn Fn(&[K]) -> u64>;

macro_rules! common {
    ($key:ty, $address:ty, $dpdk:expr, $bytes:ident) => {
        impl Common for $key {
            type Address = $address;
            const DPDK: [&'static str; 2] = $dpdk;
            fn dpdk(self) -> Vec<u8> {
                self.$bytes().into()
            }
            fn address(self) -> $address {
                <$address>::from_bits(self)
            }
            fn in_prefix_trie(table: &[(Prefix<$key>, NextHop)]) -> Finder<$key> {
                let mut map: PrefixMap<($key, u8), NextHop> = PrefixMap::new();
                for &(prefix, hop) in table {
                    map.insert((prefix.key(), prefix.len()), hop);
                }
                let width = <$key>::BITS as u8;
                Box::new(move |keys| {
                    let found = |&key: &$key| map.get_lpm(&(key, width)).map(|(_, &hop)| hop);
                    keys.iter().map(|key| value(found(key))).sum()
                })
            }
        }
    };
}

common!(u32, Ipv4Addr, ["rte_fib", "rte_lpm"], to_ne_bytes);
common!(u128, Ipv6Addr, ["rte_fib6", "rte_lpm6"], to_be_bytes);

/// Finds the next hop of each address in the crate `ip_network_table-deps-treebitmap`.
fn in_treebitmap<K: Common>(table: &[(Prefix<K>, NextHop)]) -> Finder<K> {
    let mut tree = IpLookupTable::new();
    for &(prefix, hop) in table {
        tree.insert(prefix.key().address(), u32::from(prefix.len()), hop);
    }
    Box::new(move |keys| {
        let found = |key: &K| tree.longest_match(key.address()).map(|(_, _, &hop)| hop);
        keys.iter().map(|key| value(found(key))).sum()
    })
}

fn value(hop: Option<NextHop>) -> u64 {
    hop.map_or(0, |hop| u64::from(hop.get()))
}

/// A crate's name, and how a table gets into it.
pub(crate) type Load<K> = (&'static str, fn(&[(Prefix<K>, NextHop)]) -> Finder<K>);

/// Each crate; loaded one at a time, since two tables at once would share the caches.
pub(crate) fn all<K: Common>() -> [Load<K>; 2] {
    [("prefix-trie", K::in_prefix_trie), ("treebitmap", in_treebitmap)]
}
