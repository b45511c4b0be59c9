//! Next hops and neighbours of a port processor: what a number in the routing table means.
//!
//! ```text
//! NextHop n --> hop: drop | connected link | one of several next routers (by the flow's hash) --> neighbour -->
//! port, MAC
//! ```

use std::collections::HashMap;
use std::net::IpAddr;

/// Numbers of hops below this are the router's own; those of routes begin here.
pub const FIRST: u32 = 128;
/// The number of the hop of packets to neighbours on a port.
pub const fn connected(port: u16) -> u32 {
    1 + port as u32
}
/// Packets are dropped silently.
pub const BLACKHOLE: u32 = 120;
/// Their sources are told that the destination cannot be reached.
pub const UNREACHABLE: u32 = 121;
/// Their sources are told that it is forbidden.
pub const PROHIBITED: u32 = 122;

/// A next router: its address on a port.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Next {
    /// The port.
    pub port: u16,
    /// Its address; absent where the destination is itself on the link.
    pub address: Option<IpAddr>,
}

/// A neighbour.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    /// The port.
    pub port: u16,
    /// Its address.
    pub address: IpAddr,
    /// Destination and source address of frames to it; unknown until it has answered.
    pub macs: Option<[u8; 12]>,
}

/// What is known of hops and neighbours.
#[derive(Debug, Default)]
pub struct Hops {
    /// By number, less [`FIRST`].
    hops: Vec<Vec<Next>>,
    /// Neighbours by number.
    neighbours: Vec<Neighbour>,
    numbers: HashMap<(u16, IpAddr), u32>,
    /// Numbers of neighbours that were forgotten.
    free: Vec<u32>,
    /// Neighbours of the members of each hop that have an address.
    members: Vec<Vec<Option<u32>>>,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To this neighbour.
    To(u32),
    /// To a neighbour that is the destination itself.
    OnLink(u16),
    /// Dropped.
    Blackhole,
    /// Told that it cannot be reached.
    Unreachable,
    /// Told that it is forbidden.
    Prohibited,
}

impl Hops {
    /// The most neighbours: a scan of an attached network may not fill memory.
    pub const NEIGHBOURS_MAX: usize = 1 << 17;

    /// What a number means, for a flow.
    #[inline]
    pub fn way(&self, number: u32, hash: u64) -> Way {
        let Some(at) = number.checked_sub(FIRST) else {
            return match number {
                BLACKHOLE => Way::Blackhole,
                PROHIBITED => Way::Prohibited,
                UNREACHABLE => Way::Unreachable,
                port => Way::OnLink((port - 1) as u16),
            };
        };
        let (hops, members) = (self.hops.get(at as usize), self.members.get(at as usize));
        let (Some(hops), Some(members)) = (hops, members) else { return Way::Unreachable };
        let chosen = match members.len() {
            0 => return Way::Unreachable,
            1 => 0,
            // Multiplying spreads flows evenly; a change of members moves few of them (RFC 2992 §3, hash-threshold).
            several => ((u128::from(hash) * several as u128) >> 64) as usize,
        };
        match members[chosen] {
            Some(neighbour) => Way::To(neighbour),
            None => Way::OnLink(hops[chosen].port),
        }
    }
    /// Sets what a number, at least [`FIRST`], means; nothing means that it cannot be reached.
    pub fn set(&mut self, number: u32, to: Vec<Next>) {
        let at = (number - FIRST) as usize;
        if at >= self.hops.len() {
            self.hops.resize(at + 1, Vec::new());
            self.members.resize(at + 1, Vec::new());
        }
        let member = |next: &Next| next.address.map(|address| (next.port, address));
        let wanted: Vec<_> = to.iter().map(member).collect();
        let members =
            wanted.into_iter().map(|key| key.map(|(port, address)| self.number(port, address)));
        self.members[at] = members.collect::<Vec<_>>().into_iter().map(Option::flatten).collect();
        self.hops[at] = to;
    }
    /// The number of a neighbour, which is made if it is new; `None` if there are too many.
    pub fn number(&mut self, port: u16, address: IpAddr) -> Option<u32> {
        if let Some(number) = self.numbers.get(&(port, address)) {
            return Some(*number);
        }
        let new = Neighbour { port, address, macs: None };
        let number = match self.free.pop() {
            Some(number) => {
                self.neighbours[number as usize] = new;
                number
            }
            None if self.neighbours.len() >= Hops::NEIGHBOURS_MAX => return None,
            None => {
                self.neighbours.push(new);
                self.neighbours.len() as u32 - 1
            }
        };
        self.numbers.insert((port, address), number);
        Some(number)
    }
    /// A neighbour has not answered, and nobody waits for it: its number is free, unless a route leads there. So a scan
    /// of an attached network leaves nothing behind.
    pub fn forget(&mut self, number: u32) {
        let Neighbour { port, address, macs } = *self.neighbour(number);
        let is_used = self.members.iter().flatten().any(|member| *member == Some(number));
        if macs.is_none() && !is_used && self.numbers.remove(&(port, address)).is_some() {
            self.free.push(number);
        }
    }
    /// A neighbour by number.
    #[inline]
    pub fn neighbour(&self, number: u32) -> &Neighbour {
        &self.neighbours[number as usize]
    }
    /// A port's own Ethernet address is another: frames to its neighbours come from there.
    pub fn readdress(&mut self, port: u16, own: [u8; 6]) {
        for neighbour in self.neighbours.iter_mut().filter(|neighbour| neighbour.port == port) {
            if let Some(macs) = &mut neighbour.macs {
                macs[6..].copy_from_slice(&own);
            }
        }
    }
    /// A neighbour is found, or lost.
    pub fn learn(&mut self, port: u16, address: IpAddr, macs: Option<[u8; 12]>) -> Option<u32> {
        let number = self.number(port, address)?;
        self.neighbours[number as usize].macs = macs;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_spread_over_equal_hops_and_stay_there() {
        let mut hops = Hops::default();
        let next =
            |last: u8| Next { port: u16::from(last), address: Some([10, 0, 0, last].into()) };
        hops.set(FIRST + 3, vec![next(1), next(2), next(3)]);
        let mut counts = [0; 3];
        for flow in 0..3000u64 {
            let hash = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let Way::To(neighbour) = hops.way(FIRST + 3, hash) else { panic!("a next router") };
            assert_eq!(hops.way(FIRST + 3, hash), Way::To(neighbour));
            counts[neighbour as usize] += 1;
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        assert_eq!(hops.way(FIRST + 2, 0), Way::Unreachable, "a number without meaning");
        hops.set(FIRST + 3, Vec::new());
        assert_eq!(hops.way(FIRST + 3, 0), Way::Unreachable);
    }

    #[test]
    fn neighbours_that_never_answer_are_forgotten() {
        let mut hops = Hops::default();
        let on_route = Next { port: 1, address: Some([10, 0, 0, 1].into()) };
        hops.set(FIRST, vec![on_route]);
        for scanned in 0..300_000u32 {
            let number = hops.number(0, IpAddr::V4(scanned.into())).expect("room");
            hops.forget(number);
        }
        assert!(hops.neighbours.len() <= 2);
        hops.forget(0);
        assert_eq!(hops.way(FIRST, 0), Way::To(0), "a route leads there");
        hops.learn(0, [10, 0, 0, 9].into(), Some([1; 12]));
        let known = hops.number(0, [10, 0, 0, 9].into()).expect("known");
        hops.forget(known);
        assert!(hops.neighbour(known).macs.is_some());
    }

    #[test]
    fn small_numbers_are_links_and_refusals() {
        let hops = Hops::default();
        assert_eq!(hops.way(connected(5), 0), Way::OnLink(5));
        assert_eq!(hops.way(BLACKHOLE, 0), Way::Blackhole);
        assert_eq!(hops.way(PROHIBITED, 0), Way::Prohibited);
    }
}
