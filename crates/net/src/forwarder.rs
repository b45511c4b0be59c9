//! A forwarder: sends each packet out of the port that its destination asks for.
//!
//! ```text
//!             +--> out 0
//! any in -->--+--> out 1        drops: `no route`
//!             +--> ...
//! ```
//!
//! It takes no time; where forwarding costs something, a server or a host stands before it.

use lastmeter_base::kind::{Family, Page};
use lastmeter_base::{NodeId, Packet, here};
use lastmeter_engine::{Context, Element, PortId, Report};

/// How experiments describe it.
pub const PAGE: &Page = &Page {
    name: "router",
    family: Family::Node,
    what: "Sends each packet out of the link that its destination asks for, in no time.",
    ports: "            +--> link 0
any in -->--+--> link 1        drops: `no route`
            +--> ...",
    params: &[],
    source: "",
    deviations: &["Routes are the fewest hops; of equal ones, the link that is declared first."],
    counters: &[("forwarded", "packets sent on")],
    example: r#"
duration = "10 ms"
[nodes]
alice = { host = {} }
r1 = { router = {} }
bob = { host = {} }
[[links]]
between = ["alice", "r1", "bob"]
rate = "1 Gbit/s"
[[traffic]]
name = "transfer"
from = "alice"
to = "bob"
constant = { rate = "100 Mbit/s", size = "1500 B" }
"#,
    place: here!(),
};

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
    fn report(&self, out: &mut Report) {
        out.count("forwarded", self.forwarded);
    }
}
