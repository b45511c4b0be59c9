//! What a kind of traffic puts at the hosts that send and receive it.
//!
//! ```text
//! flows that begin here --> elements that send -----> out    (leaving)
//! flows that end here  <--- elements that take them <-- in   (receivers, by path and flow)
//! ```

use super::{Input, Output, Site};
use crate::{ElementId, Error, PortId};
use lastmeter_base::kind::{Nested, Values};
use lastmeter_base::{Bytes, Duration, FlowId, NodeId, PathId, Time};
use std::any::Any;

/// What makes the ends of traffic of its kind.
pub struct TrafficKind {
    /// Whether packets come back.
    pub responds: fn(&Values) -> bool,
    /// Puts the ends of flows at a host: of all kinds that are `together`.
    pub ends: fn(&mut Ends<'_>) -> Result<(), Error>,
    /// A name that kinds share whose flows are put there together, by one `ends`.
    pub together: &'static str,
    /// What tells such kinds apart.
    pub own: &'static (dyn Any + Send + Sync),
}

/// Times and lengths of the packets of a capture.
pub type Records = Box<dyn Iterator<Item = (Duration, Bytes)> + Send>;

/// A flow that begins or ends at a host.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Which of the declared traffics it is a part of.
    pub traffic: usize,
    /// Its number within that.
    pub number: u32,
    /// The name of its traffic.
    pub class: &'a str,
    /// What is sent.
    pub kind: &'a Nested,
    /// What all traffic can say.
    pub common: &'a Values,
    /// Who sends.
    pub from: NodeId,
    /// Who receives.
    pub to: NodeId,
    /// How many links it passes.
    pub links: u64,
    /// Its path.
    pub there: PathId,
    /// The path of what comes back.
    pub back: Option<PathId>,
    /// Of a channel that was established: after its logical arrival, a packet has surely left the first
    /// link so long.
    pub leaves: Option<Duration>,
}

impl Flow<'_> {
    /// What packets call it.
    pub fn id(&self) -> FlowId {
        FlowId(self.number)
    }
    /// Not before this.
    pub fn start(&self) -> Time {
        Time::START + self.common.get::<Duration>("start")
    }
    /// Not after this.
    pub fn stop(&self) -> Time {
        let stop = self.common.given::<Duration>("stop");
        stop.map_or(Time::MAX, |stop| Time::START + stop)
    }
    /// Whether the first packet comes after a random part of the first gap.
    pub fn random_phase(&self) -> bool {
        self.common.get::<String>("phase") == "random"
    }
    /// No more packets than this.
    pub fn packets_max(&self) -> u64 {
        self.common.given("packets").unwrap_or(u64::MAX)
    }
    /// Its packets' class of service.
    pub fn service(&self) -> u8 {
        self.common.get::<u64>("class") as u8
    }
    /// Hops that its packets have to go, as queues are told.
    pub fn hops(&self) -> u8 {
        self.common.given("hops").unwrap_or(self.links).min(u64::from(u8::MAX)) as u8
    }
}

/// What takes packets at a host, and which.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Where they enter it.
    pub input: Input,
    /// The path, and the flow where not all of the path's flows end there.
    pub takes: Vec<(PathId, Option<FlowId>)>,
}

/// A host at which flows begin and end.
pub struct Ends<'a> {
    /// The host.
    pub site: Site<'a>,
    /// The flows that it sends, in the order in which they are declared.
    pub sent: Vec<Flow<'a>>,
    /// Those that it receives.
    pub received: Vec<Flow<'a>>,
    /// What takes packets.
    pub receivers: &'a mut Vec<Receiver>,
    /// Where packets leave.
    pub leaving: &'a mut Vec<Output>,
    /// Opens a capture for a traffic.
    pub capture: &'a mut dyn FnMut(usize, &str) -> Result<Records, String>,
    /// Traffics that cannot be built: what is wrong, and what would be right.
    pub refused: &'a mut Vec<(usize, String, String)>,
}

impl Ends<'_> {
    /// An element takes packets at its input 0.
    pub fn receives(&mut self, element: ElementId, takes: Vec<(PathId, Option<FlowId>)>) {
        self.receivers.push(Receiver { input: (element, PortId(0)), takes });
    }

    /// An element sends packets from its output 0.
    pub fn sends(&mut self, element: ElementId) {
        self.leaving.push((element, PortId(0)));
    }

    /// A traffic cannot be built.
    pub fn refuse(&mut self, flow: &Flow<'_>, found: String, right: &str) {
        self.refused.push((flow.traffic, found, right.to_owned()));
    }
}
