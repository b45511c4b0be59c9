//! What a kind of traffic adds to the hosts that send and receive it.
//!
//! ```text
//! flows that begin here --> elements that send -----> out    (leaving)
//! flows that end here  <--- elements that take them <-- in   (receivers, by path and flow)
//! ```

use super::{Input, Output, Site};
use crate::{Element, ElementId, Error, PortId};
use lastmeter_base::kind::{Nested, Values};
use lastmeter_base::{Bytes, Duration, FlowId, NodeId, PathId, Time};
use std::any::Any;

/// Builds the endpoints of one kind of traffic.
pub struct TrafficKind {
    /// Whether receivers answer.
    pub responds: fn(&Values) -> bool,
    /// Builds the endpoints at one host for all flows of the kinds that share `together`.
    pub ends: fn(&mut Ends<'_>) -> Result<(), Error>,
    /// A name shared by the kinds whose flows are built together, by one call of `ends`.
    pub together: &'static str,
    /// What distinguishes these kinds from each other.
    pub own: &'static (dyn Any + Send + Sync),
}

/// The times and lengths of a capture's packets, and their bytes, if they were asked for.
pub type Records = Box<dyn Iterator<Item = (Duration, Bytes, Vec<u8>)> + Send>;

/// A flow that begins or ends at a host.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// The index of the declared traffic to which it belongs.
    pub traffic: usize,
    /// Its number within that traffic.
    pub number: u32,
    /// The name of that traffic.
    pub class: &'a str,
    /// The kind of traffic, with its parameters.
    pub kind: &'a Nested,
    /// The parameters that all traffic has.
    pub common: &'a Values,
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// How many links it passes.
    pub links: u64,
    /// Its path in the ledger.
    pub there: PathId,
    /// The path of the answers.
    pub back: Option<PathId>,
    /// For an established channel: the time after its logical arrival by which a packet has certainly left
    /// the first link.
    pub leaves: Option<Duration>,
}

impl Flow<'_> {
    /// Its number in packets.
    pub fn id(&self) -> FlowId {
        FlowId(self.number)
    }
    /// The earliest time at which it sends.
    pub fn start(&self) -> Time {
        Time::START + self.common.get::<Duration>("start")
    }
    /// The latest time at which it sends.
    pub fn stop(&self) -> Time {
        let stop = self.common.given::<Duration>("stop");
        stop.map_or(Time::MAX, |stop| Time::START + stop)
    }
    /// Whether the first packet comes after a random part of the first gap.
    pub fn random_phase(&self) -> bool {
        self.common.get::<String>("phase") == "random"
    }
    /// The most packets that it sends.
    pub fn packets_max(&self) -> u64 {
        self.common.given("packets").unwrap_or(u64::MAX)
    }
    /// Its packets' class of service.
    pub fn service(&self) -> u8 {
        self.common.get::<u64>("class") as u8
    }
    /// The name that its random numbers are drawn under.
    pub fn stream(&self) -> String {
        self.common.given("stream").unwrap_or_else(|| self.class.to_owned())
    }
    /// The number of hops that queues are told for its packets.
    pub fn hops(&self) -> u8 {
        self.common.given("hops").unwrap_or(self.links).min(u64::from(u8::MAX)) as u8
    }
}

/// What receives packets at a host, and which packets.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Where they enter.
    pub input: Input,
    /// The path, and the flow unless all flows of the path end there.
    pub takes: Vec<(PathId, Option<FlowId>)>,
}

/// A host at which flows begin and end.
pub struct Ends<'a> {
    /// The host.
    pub site: Site<'a>,
    /// The flows that it sends, in the order of declaration.
    pub sent: Vec<Flow<'a>>,
    /// The flows that it receives.
    pub received: Vec<Flow<'a>>,
    /// What receives packets here.
    pub receivers: &'a mut Vec<Receiver>,
    /// Where packets leave.
    pub leaving: &'a mut Vec<Output>,
    /// Opens a capture for the traffic of this index: all its records, or its IP packets with their bytes.
    pub capture: &'a mut dyn FnMut(usize, &str, bool) -> Result<Records, String>,
    /// Traffic that cannot be built: its index, what is wrong, and what would be right.
    pub refused: &'a mut Vec<(usize, String, String)>,
}

impl Ends<'_> {
    /// Adds an element of a flow's traffic, whose name contains that of the traffic; it draws under that of the
    /// traffic's stream.
    ///
    /// # Errors
    /// As [`Graph::add`](crate::Graph::add).
    pub fn add(
        &mut self,
        flow: &Flow<'_>,
        name: impl Fn(&str) -> String,
        element: impl Element + 'static,
    ) -> Result<ElementId, Error> {
        let id = self.site.graph.add(name(flow.class), element)?;
        self.site.graph.draw_as(id, name(&flow.stream()));
        Ok(id)
    }

    /// Declares that an element receives packets at its input 0.
    pub fn receives(&mut self, element: ElementId, takes: Vec<(PathId, Option<FlowId>)>) {
        self.receivers.push(Receiver { input: (element, PortId(0)), takes });
    }

    /// Declares that an element sends packets from its output 0.
    pub fn sends(&mut self, element: ElementId) {
        self.leaving.push((element, PortId(0)));
    }

    /// Declares that a flow's traffic cannot be built.
    pub fn refuse(&mut self, flow: &Flow<'_>, found: String, right: &str) {
        self.refused.push((flow.traffic, found, right.to_owned()));
    }
}
