//! Routing by more than the destination: the first policy that matches a packet's source, port and DSCP sends it to a
//! next router, or has another table looked at first (D-42).

use super::parse::{Addresses, Seen};
use crate::config::{Policy, PolicyTo};
use lastmeter_net::lookup::{NextHop, Options, Prefix, TreeBitmap};
use std::net::IpAddr;

/// A table besides the main one.
pub struct Table {
    v4: TreeBitmap<u32>,
    v6: TreeBitmap<u128>,
}

impl Table {
    /// With these routes: first bits, how many, hop.
    ///
    /// # Errors
    /// If it is full, or a length is impossible.
    pub fn new(routes: &[(IpAddr, u8, u32)]) -> Result<Table, String> {
        let v4 = TreeBitmap::new(Options::usual::<u32>());
        let mut table = Table { v4, v6: TreeBitmap::new(Options::usual::<u128>()) };
        for (address, len, hop) in routes {
            let wrong = || format!("{address}/{len}: no route");
            let hop = NextHop::new(*hop).ok_or_else(wrong)?;
            match *address {
                IpAddr::V4(v4) => {
                    let prefix = Prefix::new(v4.into(), *len).ok_or_else(wrong)?;
                    table.v4.insert(prefix, hop).map_err(|full| full.to_string())?;
                }
                IpAddr::V6(v6) => {
                    let prefix = Prefix::new(v6.into(), *len).ok_or_else(wrong)?;
                    table.v6.insert(prefix, hop).map_err(|full| full.to_string())?;
                }
            }
        }
        Ok(table)
    }
    fn lookup(&self, seen: &Seen) -> u32 {
        match seen.addresses {
            Addresses::V4(_, dst) => self.v4.lookup(dst),
            Addresses::V6(_, dst) => self.v6.lookup(dst),
        }
        .map_or(0, NextHop::get)
    }
}

/// Policies in order.
#[derive(Default)]
pub struct Policies {
    /// Each with its hop, if it names a next router.
    pub rules: Vec<(Policy, u32)>,
    /// The tables that they name.
    pub tables: Vec<Table>,
}

impl Policies {
    /// The hop of a packet that arrived on `port`; 0 if the main table decides.
    pub fn hop(&self, port: u16, seen: &Seen) -> u32 {
        let Some((policy, hop)) = self.rules.iter().find(|(policy, _)| holds(policy, port, seen))
        else {
            return 0;
        };
        match policy.to {
            PolicyTo::Via(_) => *hop,
            PolicyTo::Table(at) => self.tables.get(at).map_or(0, |table| table.lookup(seen)),
        }
    }
}

fn holds(policy: &Policy, port: u16, seen: &Seen) -> bool {
    let source = |(address, len): (IpAddr, u8)| match (address, seen.addresses) {
        (IpAddr::V4(prefix), Addresses::V4(src, _)) => {
            Prefix::new(u32::from(prefix), len).is_some_and(|prefix| prefix.contains(src))
        }
        (IpAddr::V6(prefix), Addresses::V6(src, _)) => {
            Prefix::new(u128::from(prefix), len).is_some_and(|prefix| prefix.contains(src))
        }
        _ => false,
    };
    policy.port.is_none_or(|own| own == port)
        && policy.dscp.is_none_or(|dscp| dscp == seen.traffic_class >> 2)
        && policy.from.is_none_or(source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::prefix;

    #[test]
    fn the_first_policy_that_matches_applies_and_a_table_without_a_route_leaves_it_to_the_main_one_d_42()
     {
        let routes = [prefix("192.0.2.0/24"), prefix("2001:db8::/32")].map(|found| {
            let (address, len) = found.expect("a prefix");
            (address, len, 200)
        });
        let any = Policy { from: None, port: None, dscp: None, to: PolicyTo::Table(0) };
        let via = PolicyTo::Via([10, 0, 0, 9].into());
        let policies = Policies {
            rules: vec![
                (Policy { dscp: Some(46), to: via, ..any }, 300),
                (Policy { from: prefix("10.1.0.0/16"), port: Some(1), ..any }, 0),
                (Policy { from: prefix("fd01::/64"), ..any }, 0),
            ],
            tables: vec![Table::new(&routes).expect("routes")],
        };
        let packet = |src: IpAddr, dst: IpAddr, dscp: u8| Seen {
            addresses: match (src, dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => Addresses::V4(src.into(), dst.into()),
                (IpAddr::V6(src), IpAddr::V6(dst)) => Addresses::V6(src.into(), dst.into()),
                _ => panic!("of one family"),
            },
            traffic_class: dscp << 2,
            ports: (0, 0),
            protocol: 17,
            hops: 64,
            len: 100,
            is_fragment: false,
            may_fragment: true,
            has_options: false,
            source_routed: false,
        };
        let hop = |port: u16, src: &str, dst: &str, dscp: u8| {
            let address = |text: &str| text.parse().expect("an address");
            policies.hop(port, &packet(address(src), address(dst), dscp))
        };
        assert_eq!(hop(0, "10.9.0.1", "8.8.8.8", 46), 300);
        assert_eq!(hop(1, "10.1.0.1", "192.0.2.7", 0), 200);
        assert_eq!(hop(0, "10.1.0.1", "192.0.2.7", 0), 0, "another port");
        assert_eq!(hop(1, "10.1.0.1", "8.8.8.8", 0), 0, "no route in the table");
        assert_eq!(hop(0, "fd01::5", "2001:db8::1", 0), 200);
        assert_eq!(hop(0, "fd02::5", "2001:db8::1", 0), 0);
    }
}
