//! Exact match: flows with a reservation or a pinned route (D-38).
//!
//! A hash table with open addressing, at most half full; removal leaves no tombstone. The hash is
//! seeded, so that senders cannot choose the slots of their flows.

use super::rule::{Header, Verdict};
use lastmeter_base::Stream;

/// Limit on the flows of a table.
pub const FLOWS_MAX: usize = 1 << 24;
const SLOTS_MIN: usize = 16;

/// Flows and the verdicts for their packets.
#[derive(Debug)]
pub struct Flows {
    /// A power of two.
    slots: Vec<Option<(Header, Verdict)>>,
    len: usize,
    seeds: [u64; 2],
}

impl Flows {
    /// Empty; the seed selects the hash.
    pub fn new(seed: u64) -> Flows {
        let mut random = Stream::new(seed, "flows");
        let seeds = [random.bits() | 1, random.bits() | 1];
        Flows { slots: vec![None; SLOTS_MIN], len: 0, seeds }
    }
    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    fn home(&self, flow: &Header) -> usize {
        let addresses = u64::from(flow.dst) << 32 | u64::from(flow.src);
        let ports = u64::from(flow.dst_port) << 48 | u64::from(flow.src_port) << 32;
        let rest = ports | u64::from(flow.protocol) << 16 | u64::from(flow.interface);
        // The middle bits of a product depend on all bits of both.
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            (product >> 64) as u64 ^ product as u64
        };
        let hash = fold(fold(addresses ^ self.seeds[0], self.seeds[1]) ^ rest, self.seeds[0]);
        hash as usize & (self.slots.len() - 1)
    }
    /// The flow's slot, or the free slot for it.
    fn find(&self, flow: &Header) -> usize {
        let mut at = self.home(flow);
        while self.slots[at].is_some_and(|(found, _)| found != *flow) {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }
    /// The verdict for a flow's packets.
    #[inline]
    pub fn get(&self, flow: &Header) -> Option<Verdict> {
        self.slots[self.find(flow)].map(|(_, verdict)| verdict)
    }
    /// Installs a flow or changes its verdict; returns the previous one. `Err` returns the verdict if
    /// there are already [`FLOWS_MAX`].
    pub fn insert(&mut self, flow: Header, verdict: Verdict) -> Result<Option<Verdict>, Verdict> {
        let at = self.find(&flow);
        if let Some((_, old)) = &mut self.slots[at] {
            return Ok(Some(std::mem::replace(old, verdict)));
        }
        if self.len >= FLOWS_MAX {
            return Err(verdict);
        }
        self.slots[at] = Some((flow, verdict));
        self.len += 1;
        if 2 * self.len > self.slots.len() {
            let slots = vec![None; 2 * self.slots.len()];
            for (flow, verdict) in std::mem::replace(&mut self.slots, slots).into_iter().flatten() {
                let at = self.find(&flow);
                self.slots[at] = Some((flow, verdict));
            }
        }
        Ok(None)
    }
    /// Removes a flow; returns its verdict.
    pub fn remove(&mut self, flow: &Header) -> Option<Verdict> {
        let mut hole = self.find(flow);
        let (_, verdict) = self.slots[hole].take()?;
        self.len -= 1;
        // A displaced entry behind the hole may have probed past it.
        let last = self.slots.len() - 1;
        let mut at = (hole + 1) & last;
        while let Some((other, _)) = self.slots[at] {
            let distance = at.wrapping_sub(self.home(&other)) & last;
            if distance >= at.wrapping_sub(hole) & last {
                self.slots.swap(hole, at);
                hole = at;
            }
            at = (at + 1) & last;
        }
        Some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::Action;
    use std::collections::BTreeMap;

    #[test]
    fn equals_an_ordered_map_under_insertions_and_removals_d_38() {
        let mut random = Stream::new(1, "churn");
        let (mut flows, mut map) = (Flows::new(7), BTreeMap::new());
        for round in 0..20_000_u32 {
            let flow = Header {
                dst: random.below(40) as u32,
                src: random.below(40) as u32,
                dst_port: 80,
                src_port: random.below(2) as u16,
                protocol: 6,
                interface: 0,
            };
            if random.chance(0.5) {
                let verdict = Verdict::of(Action::Reserved { queue: round });
                assert_eq!(flows.insert(flow, verdict), Ok(map.insert(flow, verdict)));
            } else {
                assert_eq!(flows.remove(&flow), map.remove(&flow));
            }
            assert_eq!((flows.get(&flow), flows.len()), (map.get(&flow).copied(), map.len()));
        }
        assert!(map.iter().all(|(flow, verdict)| flows.get(flow) == Some(*verdict)));
    }
}
