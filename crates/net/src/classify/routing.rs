//! Routes from several protocols, and the selection among them (D-42).
//!
//! The longest prefix wins; among routes for one prefix, the lowest cost; at equal
//! cost, the lowest source. A rule's next hop takes precedence over the table's: that is policy routing.
//!
//! ```
//! use lastmeter_net::classify::{Routing, Verdict};
//! use lastmeter_net::lookup::{NextHop, Options, Prefix};
//! let mut routing = Routing::new(Options::IPV4);
//! let prefix = Prefix::new(0x0a00_0000_u32, 8).expect("8 <= 32");
//! let hop = |number| NextHop::new(number).expect("not zero");
//! routing.add(prefix, 1, 20, hop(1))?;
//! routing.add(prefix, 2, 10, hop(2))?;
//! assert_eq!(routing.route(&Verdict::PERMIT, 0x0a01_0203), Some(hop(2)));
//! routing.withdraw(prefix, 2)?;
//! assert_eq!(routing.route(&Verdict::PERMIT, 0x0a01_0203), Some(hop(1)));
//! let policy = Verdict { next_hop: Some(hop(9)), ..Verdict::PERMIT };
//! assert_eq!(routing.route(&policy, 0x0a01_0203), Some(hop(9)));
//! # Ok::<(), lastmeter_net::lookup::Full>(())
//! ```

use super::rule::{Action, Verdict};
use crate::lookup::{Full, Key, NextHop, Options, Prefix, TreeBitmap};
use std::collections::BTreeMap;

/// Routes by prefix and source, and the table of the selected ones.
#[derive(Debug)]
pub struct Routing<K> {
    routes: BTreeMap<(Prefix<K>, u32), (u32, NextHop)>,
    table: TreeBitmap<K>,
}

impl<K: Key> Routing<K> {
    /// No routes.
    pub fn new(options: Options) -> Routing<K> {
        Routing { routes: BTreeMap::new(), table: TreeBitmap::new(options) }
    }
    /// The selected routes.
    pub fn table(&self) -> &TreeBitmap<K> {
        &self.table
    }
    /// Adds a source's route, or changes it.
    ///
    /// # Errors
    /// If the table's memory limit is reached; nothing is changed.
    pub fn add(
        &mut self,
        prefix: Prefix<K>,
        source: u32,
        cost: u32,
        next_hop: NextHop,
    ) -> Result<(), Full> {
        let old = self.routes.insert((prefix, source), (cost, next_hop));
        let settled = self.settle(prefix);
        if settled.is_err() {
            match old {
                Some(old) => self.routes.insert((prefix, source), old),
                None => self.routes.remove(&(prefix, source)),
            };
        }
        settled
    }
    /// Withdraws a source's route, if there is one.
    ///
    /// # Errors
    /// If the table's memory limit is reached; nothing is changed.
    pub fn withdraw(&mut self, prefix: Prefix<K>, source: u32) -> Result<(), Full> {
        let Some(old) = self.routes.remove(&(prefix, source)) else { return Ok(()) };
        let settled = self.settle(prefix);
        if settled.is_err() {
            self.routes.insert((prefix, source), old);
        }
        settled
    }
    /// Selects the best route of a prefix.
    fn settle(&mut self, prefix: Prefix<K>) -> Result<(), Full> {
        let routes = self.routes.range((prefix, 0)..=(prefix, u32::MAX));
        let best = routes.min_by_key(|((_, source), (cost, _))| (*cost, *source));
        match best {
            Some((_, &(_, next_hop))) => self.table.insert(prefix, next_hop)?,
            None => self.table.remove(prefix),
        };
        Ok(())
    }
    /// The next hop of a packet to `dst` with this verdict; `None` if it is denied or has no route.
    pub fn route(&self, verdict: &Verdict, dst: K) -> Option<NextHop> {
        match verdict.action {
            Action::Deny => None,
            _ => verdict.next_hop.or_else(|| self.table.lookup(dst)),
        }
    }
}
