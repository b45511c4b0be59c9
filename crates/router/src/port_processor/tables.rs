//! The routing tables of a port processor and their writer: routes of the control processor, and the networks to
//! which its ports are attached.

use super::hop::connected;
use super::structure::{AnyReader, Family, Lookup};
use lastmeter_net::lookup::{NextHop, Prefix};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// A prefix of either family.
pub type Network = (IpAddr, u8);

/// Both tables.
pub struct Tables {
    v4: Family<u32>,
    v6: Family<u128>,
    /// Attached networks, which come back when a route to the same prefix goes.
    attached: HashMap<Network, u16>,
    /// Prefixes that were told since the beginning of a full set.
    told: Option<HashSet<Network>>,
}

/// Readers of both tables.
pub type Readers = (AnyReader<u32>, AnyReader<u128>);

impl Tables {
    /// Empty.
    pub fn new(lookup: Lookup) -> Tables {
        let attached = HashMap::new();
        Tables { v4: Family::new(lookup), v6: Family::new(lookup), attached, told: None }
    }
    /// Readers of both.
    pub fn readers(&self) -> Readers {
        (self.v4.reader(), self.v6.reader())
    }
    /// Readers of both, if a table has another structure since the last call: earlier readers see no more changes.
    pub fn moved(&mut self) -> Option<Readers> {
        let (v4, v6) = (self.v4.moved(), self.v6.moved());
        (v4 || v6).then(|| self.readers())
    }
    /// Which structure the tables are to have.
    ///
    /// # Errors
    /// If a table does not fit into it; it stays as it is.
    pub fn prefer(&mut self, lookup: Lookup) -> Result<(), String> {
        let v4 = self.v4.prefer(lookup);
        v4.and(self.v6.prefer(lookup)).map_err(|full| format!("lookup: {full}"))
    }
    /// Their structures, and why they have these.
    pub fn structures(&self) -> Value {
        json!({ "v4": self.v4.shown(), "v6": self.v6.shown() })
    }
    /// How many prefixes they hold.
    pub fn len(&self) -> (u64, u64) {
        (self.v4.prefixes(), self.v6.prefixes())
    }
    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        self.v4.bytes() + self.v6.bytes()
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
        self.store(network, hop)?;
        // While a full set is told, the tables are judged at its end.
        if self.told.is_none() {
            self.judge(network.0);
        }
        Ok(())
    }
    fn judge(&mut self, of: IpAddr) {
        match of {
            IpAddr::V4(_) => self.v4.judge(),
            IpAddr::V6(_) => self.v6.judge(),
        }
    }
    fn store(&mut self, (address, len): Network, hop: u32) -> Result<(), String> {
        let wrong = || format!("{address}/{len}: no prefix");
        match address {
            IpAddr::V4(v4) => {
                let prefix = Prefix::new(v4.into(), len).ok_or_else(wrong)?;
                match NextHop::new(hop) {
                    Some(hop) => self.v4.insert(prefix, hop).map_err(|full| full.to_string())?,
                    None => self.v4.remove(prefix),
                }
            }
            IpAddr::V6(v6) => {
                let prefix = Prefix::new(v6.into(), len).ok_or_else(wrong)?;
                match NextHop::new(hop) {
                    Some(hop) => self.v6.insert(prefix, hop).map_err(|full| full.to_string())?,
                    None => self.v6.remove(prefix),
                }
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
        self.v4.judge();
        self.v6.judge();
        Ok(stale.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_processor::hop::FIRST;
    use crate::port_processor::structure::{MEASURED_FROM, Structure};
    use lastmeter_base::Stream;

    fn network(text: &str) -> Network {
        crate::config::prefix(text).expect("a prefix")
    }

    #[test]
    fn stale_routes_go_when_a_full_set_was_told_and_attached_networks_stay() {
        let mut tables = Tables::new(Lookup::default());
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

    /// A change of a random route, and an address near it.
    fn change(random: &mut Stream) -> (Network, u32, IpAddr) {
        let hop = if random.chance(0.3) { 0 } else { FIRST + random.below(60) as u32 };
        let near = random.bits() as u32 & 0x000f_ffff;
        if random.chance(0.5) {
            let (bits, len) = (0x0a00_0000 | near, 12 + random.below(21) as u8);
            let whole = IpAddr::V4(bits.into());
            return ((lastmeter_wire::netlink::masked(whole, len), len), hop, whole);
        }
        let bits = 0x2001_0db8 << 96 | u128::from(near) << 72 | u128::from(random.bits() & 0xff);
        let len = if random.chance(0.02) { 128 } else { 32 + random.below(33) as u8 };
        let whole = IpAddr::V6(bits.into());
        ((lastmeter_wire::netlink::masked(whole, len), len), hop, whole)
    }

    #[test]
    fn every_structure_gives_the_same_answers_while_routes_change_and_one_becomes_the_other() {
        let fixed = [Structure::TreeBitmap, Structure::Direct].map(Lookup::Fixed);
        let mut all = [fixed[0], fixed[1], Lookup::Auto].map(Tables::new);
        let mut readers = all.each_ref().map(Tables::readers);
        let mut random = Stream::new(1, "structures");
        let mut addresses = Vec::new();
        for step in 0..6 * MEASURED_FROM {
            let (network, hop, address) = change(&mut random);
            for (tables, readers) in all.iter_mut().zip(&mut readers) {
                tables.route(network, hop).expect("room");
                if let Some(moved) = tables.moved() {
                    *readers = moved;
                }
            }
            addresses.push(address);
            if step % 64 == 63 {
                // The readers see what the writers do.
                for address in addresses.drain(..) {
                    let expected = all[0].lookup(address);
                    for (tables, (v4, v6)) in all.iter().zip(&mut readers) {
                        let read = match address {
                            IpAddr::V4(address) => v4.lookup(address.into()),
                            IpAddr::V6(address) => v6.lookup(address.into()),
                        };
                        assert_eq!(tables.lookup(address), expected, "{address}");
                        assert_eq!(read.map(NextHop::get), expected, "{address}");
                    }
                }
            }
            // Whatever was measured, both changes are tried.
            if step % MEASURED_FROM == 0 {
                let wish = fixed[(step / MEASURED_FROM) as usize % 2];
                all[2].prefer(wish).expect("room");
                all[2].prefer(Lookup::Auto).expect("room");
                readers[2] = all[2].moved().unwrap_or_else(|| all[2].readers());
            }
        }
        assert_eq!(all[0].len(), all[1].len());
        assert_eq!(all[0].len(), all[2].len());
        let shown = all[2].structures();
        for family in ["v4", "v6"] {
            let why = shown[family]["why"].as_str().expect("a reason");
            assert!(why.contains("tree-bitmap") && why.contains("direct"), "{shown}");
        }
    }
}
