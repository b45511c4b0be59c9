//! The routing tables of a port processor and their writer: routes of the control processor, and the networks to
//! which its ports are attached.

use super::hop::connected;
use lastmeter_net::lookup::{NextHop, Options, Prefix, Reader, TreeBitmap};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// A prefix of either family.
pub type Network = (IpAddr, u8);

/// Both tables.
pub struct Tables {
    v4: TreeBitmap<u32>,
    v6: TreeBitmap<u128>,
    /// Attached networks, which come back when a route to the same prefix goes.
    attached: HashMap<Network, u16>,
    /// Prefixes that were told since the beginning of a full set.
    told: Option<HashSet<Network>>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables::new()
    }
}

impl Tables {
    /// Empty.
    pub fn new() -> Tables {
        let attached = HashMap::new();
        Tables {
            v4: TreeBitmap::new(Options::usual::<u32>()),
            v6: TreeBitmap::new(Options::usual::<u128>()),
            attached,
            told: None,
        }
    }
    /// Readers of both.
    pub fn readers(&self) -> (Reader<u32>, Reader<u128>) {
        (self.v4.reader(), self.v6.reader())
    }
    /// How many prefixes they hold.
    pub fn len(&self) -> (u64, u64) {
        (self.v4.len(), self.v6.len())
    }
    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        self.v4.memory().total() + self.v6.memory().total()
    }
    /// The next hop of an address, as its number.
    pub fn lookup(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(v4) => self.v4.lookup(v4.into()),
            IpAddr::V6(v6) => self.v6.lookup(v6.into()),
        }
        .map(NextHop::get)
    }
    /// Routes a prefix to a hop, or removes its route with 0.
    ///
    /// # Errors
    /// If the table is full, or the length is too great.
    pub fn route(&mut self, network: Network, hop: u32) -> Result<(), String> {
        if let Some(told) = &mut self.told {
            told.insert(network);
        }
        let hop = match (hop, self.attached.get(&network)) {
            (0, Some(port)) => connected(*port),
            (hop, _) => hop,
        };
        self.store(network, hop)
    }
    fn store(&mut self, (address, len): Network, hop: u32) -> Result<(), String> {
        let wrong = || format!("{address}/{len}: no prefix");
        match address {
            IpAddr::V4(v4) => {
                let prefix = Prefix::new(v4.into(), len).ok_or_else(wrong)?;
                match NextHop::new(hop) {
                    Some(hop) => self.v4.insert(prefix, hop).map_err(|full| full.to_string())?,
                    None => self.v4.remove(prefix),
                };
            }
            IpAddr::V6(v6) => {
                let prefix = Prefix::new(v6.into(), len).ok_or_else(wrong)?;
                match NextHop::new(hop) {
                    Some(hop) => self.v6.insert(prefix, hop).map_err(|full| full.to_string())?,
                    None => self.v6.remove(prefix),
                };
            }
        }
        Ok(())
    }
    /// A port is attached to a network, or is not any more.
    ///
    /// # Errors
    /// If the table is full.
    pub fn attach(&mut self, network: Network, port: Option<u16>) -> Result<(), String> {
        match port {
            Some(port) => {
                self.attached.insert(network, port);
                self.store(network, connected(port))
            }
            None if self.attached.remove(&network).is_some() => self.store(network, 0),
            None => Ok(()),
        }
    }
    /// A full set of routes follows.
    pub fn begin(&mut self) {
        self.told = Some(HashSet::new());
    }
    /// The full set has been told: other routes go. How many went.
    ///
    /// # Errors
    /// If the table is full, which removing cannot cause.
    pub fn finish(&mut self) -> Result<usize, String> {
        let Some(told) = self.told.take() else { return Ok(0) };
        let v4 = self
            .v4
            .to_vec()
            .into_iter()
            .map(|(prefix, _)| (IpAddr::V4(prefix.key().into()), prefix.len()));
        let v6 = self
            .v6
            .to_vec()
            .into_iter()
            .map(|(prefix, _)| (IpAddr::V6(prefix.key().into()), prefix.len()));
        let stale: Vec<Network> = v4
            .chain(v6)
            .filter(|network| !told.contains(network) && !self.attached.contains_key(network))
            .collect();
        for network in &stale {
            self.store(*network, 0)?;
        }
        Ok(stale.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_processor::hop::FIRST;

    fn network(text: &str) -> Network {
        crate::config::prefix(text).expect("a prefix")
    }

    #[test]
    fn stale_routes_go_when_a_full_set_was_told_and_attached_networks_stay() {
        let mut tables = Tables::new();
        let lookup = |tables: &Tables, text: &str| tables.lookup(text.parse().expect("an address"));
        tables.attach(network("10.1.0.0/16"), Some(2)).expect("room");
        tables.route(network("192.0.2.0/24"), FIRST).expect("room");
        tables.route(network("198.51.100.0/24"), FIRST + 1).expect("room");
        tables.route(network("2001:db8::/32"), FIRST + 1).expect("room");
        tables.begin();
        tables.route(network("192.0.2.0/24"), FIRST + 5).expect("room");
        assert_eq!(lookup(&tables, "198.51.100.7"), Some(FIRST + 1), "until the set is told");
        assert_eq!(tables.finish(), Ok(2));
        assert_eq!(lookup(&tables, "192.0.2.7"), Some(FIRST + 5));
        assert_eq!(lookup(&tables, "198.51.100.7"), None);
        assert_eq!(lookup(&tables, "2001:db8::7"), None);
        assert_eq!(lookup(&tables, "10.1.9.9"), Some(connected(2)));
        // A route to the same prefix, and then without it.
        tables.route(network("10.1.0.0/16"), FIRST).expect("room");
        assert_eq!(lookup(&tables, "10.1.9.9"), Some(FIRST));
        tables.route(network("10.1.0.0/16"), 0).expect("room");
        assert_eq!(lookup(&tables, "10.1.9.9"), Some(connected(2)));
    }
}
