//! A forwarder: sends each packet out of the port towards its destination.
//!
//! ```text
//!             +--> out 0
//! any in -->--+--> out 1        drops: `no route`
//!             +--> ...
//! ```
//!
//! It takes no time; to model a cost of forwarding, put a server or a host before it.

use lastmeter_base::kind::{Family, Kind, Page, Values};
use lastmeter_base::{NodeId, Packet, here, one_way};
use lastmeter_engine::site::{Inputs, NodeKind, Output, Outputs, Ports, Router, Site};
use lastmeter_engine::{Context, Element, ElementId, Error, Foreseen, Look, PortId, Report};

/// Its page for experiments.
pub const PAGE: &Page = &Page {
    name: "router",
    family: Family::Node,
    what: "Forwards each packet to the link towards its destination, in no time.",
    ports: "            +--> link 0
any in -->--+--> link 1
            +--> ...",
    params: &[],
    deviations: &["Routes have the fewest hops; ties go to the link declared first."],
    counters: &[("forwarded", "packets sent on")],
    drops: &[("no route", "packets whose destination no link leads to")],
    example: one_way!("r1", "router = {}"),
    ..Page::at(here!())
};

/// Its line.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind { build, own: &Router });

fn build(_values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let (element, outputs) = add(site, site.name.to_owned())?;
    Ok(Ports { inputs: Inputs::One((element, PortId(0))), outputs: Outputs::Each(outputs) })
}

/// Adds a forwarder for a node's links, under this name: its output to each neighbour.
///
/// # Errors
/// If the name is taken or the graph is full.
pub fn add(site: &mut Site<'_>, name: String) -> Result<(ElementId, Vec<Output>), Error> {
    let leads_to = site.leads_to();
    let port = |neighbour: usize| leads_to.binary_search(&neighbour).ok();
    let routes = site.routes.iter();
    let forwarder = Forwarder::to(routes.filter_map(|&(to, by)| Some((to, port(by)?))));
    let element = site.graph.add(name, forwarder)?;
    // A node that no link leads to has no output.
    let output = |neighbour| (element, PortId(port(neighbour).unwrap_or(leads_to.len()) as u16));
    Ok((element, (0..site.neighbours.len()).map(output).collect()))
}

/// Forwards by destination.
pub struct Forwarder {
    /// The output for each destination, by [`NodeId`].
    table: Vec<Option<PortId>>,
    forwarded: u64,
}

impl Forwarder {
    /// A forwarder with the given table: entry `n` is the output towards node `n`.
    pub fn new(table: Vec<Option<PortId>>) -> Forwarder {
        Forwarder { table, forwarded: 0 }
    }

    /// A forwarder by the output towards each destination.
    pub fn to(routes: impl IntoIterator<Item = (NodeId, usize)>) -> Forwarder {
        let mut table = Vec::new();
        for (destination, port) in routes {
            let entry = destination.0 as usize;
            table.resize(table.len().max(entry + 1), None);
            table[entry] = Some(PortId(port as u16));
        }
        Forwarder::new(table)
    }

    fn output(&self, destination: NodeId) -> Option<PortId> {
        self.table.get(destination.0 as usize).copied().flatten()
    }
}

impl Element for Forwarder {
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        match self.output(packet.destination) {
            Some(port) => {
                self.forwarded += 1;
                cx.send(port, packet);
            }
            None => cx.drop(packet, None, "no route"),
        }
    }
    fn timers(&self) -> u32 {
        0
    }
    fn passes_on(&self) -> bool {
        true
    }
    #[inline]
    fn foresee(&self, next: Foreseen<'_>, _look: Look) -> Option<PortId> {
        match next {
            Foreseen::Packet(_, packet) => self.output(packet.destination),
            Foreseen::Timer | Foreseen::Neighbour(_) => None,
        }
    }
    fn report(&self, out: &mut Report) {
        out.count("forwarded", self.forwarded);
    }
}
