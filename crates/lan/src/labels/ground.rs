//! What the machine of RSVP needs of its router, in a model: addresses, routes, and what its links have to grant.
//!
//! ```text
//! address   10 | node 16 | link + 1      10 | node 16 | 254: the router, at whatever link
//! ```

use super::admission::Admission;
use super::rsvp::machine::{Admit, Ground, State};
use lastmeter_base::{NodeId, Rate};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The flow for which a router asks itself.
pub(super) const OWN: &str = "tunnel";
/// Limit on the links of a router.
pub(super) const LINKS_MAX: usize = 250;
/// Limit on the nodes of a network: what an address can say.
pub(super) const NODES_MAX: u32 = 1 << 16;

/// A place beyond all links.
const EVERYWHERE: u16 = 253;
/// The first octet of addresses.
const NETWORK: u8 = 10;

/// The address of a router at a link.
fn address(node: NodeId, link: u16) -> Ipv4Addr {
    let [high, low] = (node.0 as u16).to_be_bytes();
    [NETWORK, high, low, (link + 1) as u8].into()
}
/// The address of a router at whatever link.
pub(super) fn router(node: NodeId) -> Ipv4Addr {
    address(node, EVERYWHERE)
}
/// The router that has an address.
fn node(address: Ipv4Addr) -> Option<NodeId> {
    let [network, high, low, _] = address.octets();
    (network == NETWORK).then(|| NodeId(u16::from_be_bytes([high, low]).into()))
}

/// The router at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its number in packets.
    pub(super) node: NodeId,
    /// The link's place among its own.
    pub(super) link: u16,
}

/// A flow that has a reservation here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    /// Its packets arrive with this label, by this link; none if they come from a host.
    pub(super) arrives: Option<(u32, u16)>,
    /// They leave by this link, with this label if they have one; none at the tunnel's end.
    pub(super) leaves: Option<(u16, Option<u32>)>,
    /// What is reserved there.
    pub(super) rate: Rate,
}

/// A message that is to leave: by which link, to whom.
pub(super) type Leaving = (u16, NodeId, Vec<u8>);

/// The router, as the machine sees it.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) node: NodeId,
    /// For each link, who is there and takes part.
    pub(super) peers: Vec<Option<Peer>>,
    /// The link towards each node.
    pub(super) routes: BTreeMap<NodeId, u16>,
    pub(super) admission: Admission,
    pub(super) granted: BTreeMap<String, Granted>,
    /// How it is with the tunnel that begins here.
    pub(super) state: Option<State>,
    pub(super) out: Vec<Leaving>,
    /// Whether `granted` or `state` are others than before.
    pub(super) changed: bool,
    /// How often it had not what was asked for.
    pub(super) refused: u64,
    /// How often the tunnel that begins here has come up, and how often it was said why it is not there.
    pub(super) ups: u64,
    pub(super) denied: u64,
}

impl Here {
    pub(super) fn new(
        node: NodeId,
        peers: Vec<Option<Peer>>,
        routes: BTreeMap<NodeId, u16>,
        admission: Admission,
    ) -> Here {
        let (granted, out) = (BTreeMap::new(), Vec::new());
        let (state, changed, refused, ups, denied) = (None, false, 0, 0, 0);
        Here { node, peers, routes, admission, granted, state, out, changed, refused, ups, denied }
    }
    /// The router at the other end of a link.
    pub(super) fn peer(&self, link: u16) -> Option<Peer> {
        self.peers.get(usize::from(link)).copied().flatten()
    }
    /// Grants what a flow reserves, in place of what it had.
    pub(super) fn grant(&mut self, flow: &str, granted: Granted) -> Result<(), String> {
        self.take_back(flow);
        if let Some((link, _)) = granted.leaves
            && let Err(refusal) = self.admission.admit(flow, None, Some(link), granted.rate)
        {
            self.refused += 1;
            return Err(refusal.to_string());
        }
        self.granted.insert(flow.to_owned(), granted);
        self.changed = true;
        Ok(())
    }
    /// Takes back what a flow had.
    pub(super) fn take_back(&mut self, flow: &str) {
        if self.granted.remove(flow).is_some() {
            self.admission.release(flow);
            self.changed = true;
        }
    }
}

impl Ground for Here {
    fn is_own(&self, asked: Ipv4Addr) -> bool {
        node(asked) == Some(self.node)
    }
    fn address(&self, port: u16) -> Option<Ipv4Addr> {
        self.peer(port).map(|_| address(self.node, port))
    }
    fn way(&mut self, to: Ipv4Addr) -> Option<(u16, Ipv4Addr)> {
        let at = |(link, peer): (usize, &Option<Peer>)| {
            peer.map(|Peer { node, link: there }| (link as u16, address(node, there)))
        };
        let mut next = self.peers.iter().enumerate().filter_map(at);
        // What is at the other end of a link needs no route.
        if let Some(known) = next.clone().find(|&(_, address)| address == to) {
            return Some(known);
        }
        let link = *self.routes.get(&node(to)?)?;
        next.find(|&(own, _)| own == link)
    }
    fn admit(&mut self, wanted: &Admit) -> Result<(), String> {
        let leaves = match wanted.next {
            None => None,
            Some((next, label)) => match self.way(next) {
                Some((link, _)) => Some((link, Some(label))),
                None => return Err(format!("no link leads to {next}")),
            },
        };
        let arrives = Some((wanted.label, wanted.from));
        self.grant(&wanted.flow, Granted { arrives, leaves, rate: wanted.rate })
    }
    fn has(&self, flow: &str) -> bool {
        self.granted.contains_key(flow)
    }
    fn release(&mut self, flow: &str, _why: &str) {
        self.take_back(flow);
    }
    fn tell(&mut self, _flow: &str, state: Option<State>) {
        let is_up = |state: &Option<State>| matches!(state, Some(State::Up(..)));
        self.ups += u64::from(is_up(&state) && !is_up(&self.state));
        self.denied += u64::from(matches!(state, Some(State::Asked(Some(_)))));
        self.state = state;
        self.changed = true;
    }
    fn send(&mut self, port: u16, _to: Ipv4Addr, packet: Vec<u8>) {
        if let Some(peer) = self.peer(port) {
            self.out.push((port, peer.node, packet));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbit(6);

    /// Router 300 between router 7, whose second link leads here, and router 9 at its first; a route to 11 over 9.
    fn here() -> Here {
        let peer = |node, link| Some(Peer { node: NodeId(node), link });
        let routes = [(7, 0), (9, 1), (11, 1), (12, 2)].map(|(to, by)| (NodeId(to), by));
        let lines = ["west", "east", "host"].map(|name| (name, Some(Rate::from_mbit(10)), 0.8));
        let peers = vec![peer(7, 1), peer(9, 0), None];
        Here::new(NodeId(300), peers, routes.into(), Admission::new(lines))
    }

    #[test]
    fn addresses_lead_to_the_next_router_and_to_no_host_d_43() {
        let mut here = here();
        assert_eq!(router(NodeId(300)), Ipv4Addr::new(10, 1, 44, 254));
        assert!(here.is_own(router(NodeId(300))) && here.is_own([10, 1, 44, 2].into()));
        assert!(!here.is_own([11, 1, 44, 2].into()) && !here.is_own(router(NodeId(9))));
        assert_eq!(here.address(1), Some([10, 1, 44, 2].into()));
        assert_eq!((here.address(2), here.address(3)), (None, None), "nobody there takes part");
        let next = Ipv4Addr::new(10, 0, 9, 1);
        assert_eq!(here.way(next), Some((1, next)));
        assert_eq!(here.way(router(NodeId(11))), Some((1, next)));
        assert_eq!(here.way([10, 0, 7, 2].into()), Some((0, [10, 0, 7, 2].into())));
        for nobody in [[10, 0, 12, 254], [10, 0, 13, 254], [192, 0, 2, 1]] {
            assert_eq!(here.way(nobody.into()), None, "{nobody:?}");
        }
    }

    #[test]
    fn a_line_grants_no_more_than_its_share_and_what_ends_is_free_again_d_43() {
        let mut here = here();
        let admit = |flow: &str, label| Admit {
            flow: flow.to_owned(),
            label,
            from: 0,
            next: Some(([10, 0, 9, 1].into(), 17)),
            rate: RATE,
            burst: lastmeter_base::Bytes(1500),
        };
        assert_eq!(here.admit(&admit("a", 20)), Ok(()));
        let why = here.admit(&admit("b", 21)).expect_err("6 of 8 Mbit/s are taken");
        assert!(why.contains("output port east refuses 6 Mbit/s"), "{why}");
        assert!(here.has("a") && !here.has("b") && here.refused == 1);
        // The same flow with another label is not counted twice.
        assert_eq!(here.admit(&admit("a", 22)), Ok(()));
        assert_eq!(here.granted["a"].arrives, Some((22, 0)));
        here.release("a", "it ends");
        assert_eq!(here.admit(&admit("b", 21)), Ok(()));
        // The end of a tunnel has no line of it.
        assert_eq!(here.admit(&Admit { next: None, ..admit("c", 23) }), Ok(()));
        let lost = Admit { next: Some(([192, 0, 2, 1].into(), 17)), ..admit("d", 24) };
        assert!(here.admit(&lost).is_err() && !here.has("d"));
    }
}
