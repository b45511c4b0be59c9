//! A network of hosts, links and flows, as a live run and its model are told of it; and its traffic.

use crate::datagram::{CONTENT_LEN_MAX, MESSAGE_LEN_MAX};
use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
use lastmeter_linux::{Result, wrong};
use lastmeter_transport::channel::admission::Method;
use lastmeter_transport::channel::contract::{Contract, Link};
use lastmeter_transport::channel::message::Node as NodeId;
use lastmeter_transport::channel::node::{Address, Room};
use lastmeter_transport::channel::policing::Excess;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// The most nodes: each is a process.
pub const NODES_MAX: usize = 32;
/// The most flows: each has two threads, a channel three.
pub const FLOWS_MAX: usize = 256;
/// The most links: a byte of their addresses.
pub const LINKS_MAX: usize = 250;
/// When traffic begins: before, channels are established.
pub const BEGINS: Duration = Duration::from_secs(1);
/// Packets of passing channels for which a node has slots.
pub const SLOTS: u64 = 1 << 16;

/// A network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Names of the nodes; the first has number 0.
    pub nodes: Vec<String>,
    /// Its links.
    pub links: Vec<Line>,
    /// Its flows; channels are established in this order at each host.
    pub flows: Vec<Flow>,
    /// Packets of each channel, and of best effort, that may wait at the first link.
    pub room: u64,
    /// Of the random streams.
    pub seed: u64,
    /// For how long there is traffic, in ps.
    pub length: u64,
}

/// A link, alike both ways. Times are in ps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The nodes at its ends.
    pub ends: [NodeId; 2],
    /// In bit/s.
    pub rate: u64,
    /// For each packet, in addition to its bytes.
    pub per_packet: u64,
    /// The longest packet.
    pub packet_max: u64,
    /// Propagation.
    pub delay: u64,
    /// The scheduler's horizon.
    pub horizon: u64,
    /// Packets in the adapter.
    pub outstanding: u64,
    /// Whether admission is by the exact test.
    pub exact: bool,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Its first node.
    pub from: NodeId,
    /// Its last node.
    pub to: NodeId,
    /// When its source begins, in ps after [`BEGINS`].
    pub start: u64,
    /// When it ends.
    pub stop: u64,
    /// From one message to the next, in ps.
    pub gap: u64,
    /// What it is.
    pub what: What,
}

/// What a flow is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// A real-time channel. Times are in ps.
    Channel {
        /// S_max, in bytes.
        message: u64,
        /// I_min.
        interval: u64,
        /// B_max.
        burst: u64,
        /// The longest packet, in bytes.
        packet: u64,
        /// d.
        deadline: u64,
        /// What happens to excess.
        excess: Policy,
        /// Whether messages come in bursts of random length.
        bursty: bool,
    },
    /// Best effort.
    Effort {
        /// Bytes of a message, which is a packet.
        len: u64,
        /// Whether gaps are random (exponential).
        random: bool,
    },
}

/// What happens to excess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// It is dropped.
    Drop,
    /// It waits at its source.
    Delay,
    /// It is sent with a later deadline.
    Relax,
}

impl From<Policy> for Excess {
    fn from(policy: Policy) -> Excess {
        match policy {
            Policy::Drop => Excess::Drop,
            Policy::Delay => Excess::Delay,
            Policy::Relax => Excess::Relax,
        }
    }
}

impl Plan {
    /// Whether it can be run.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn check(&self) -> Result<()> {
        if self.nodes.len() > NODES_MAX || self.flows.len() > FLOWS_MAX {
            let found = format!("{} with {} flows", self.nodes.len(), self.flows.len());
            return wrong("nodes", found, format!("at most {NODES_MAX} with {FLOWS_MAX} flows"));
        }
        if self.links.len() > LINKS_MAX {
            return wrong("links", self.links.len().to_string(), format!("at most {LINKS_MAX}"));
        }
        for line in &self.links {
            if line.packet_max > CONTENT_LEN_MAX as u64 {
                let found = format!("{} B", line.packet_max);
                return wrong("longest", found, format!("at most {CONTENT_LEN_MAX} B"));
            }
        }
        for flow in &self.flows {
            let (longest, most) = match flow.what {
                What::Channel { message, .. } => (message, MESSAGE_LEN_MAX),
                What::Effort { len, .. } => (len, CONTENT_LEN_MAX as u64),
            };
            if longest > most {
                let found = format!("{longest} B in `{}`", flow.name);
                return wrong("message", found, format!("at most {most} B"));
            }
            if self.route(flow.from, flow.to).is_none() {
                let found = format!("`{}` without a way", flow.name);
                return wrong("links", found, "enough to reach its end");
            }
        }
        Ok(())
    }

    /// The nodes from one to another, with the fewest links.
    pub fn route(&self, from: NodeId, to: NodeId) -> Option<Vec<NodeId>> {
        let mut last: BTreeMap<NodeId, NodeId> = BTreeMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for (next, ..) in self.neighbours(at) {
                if let std::collections::btree_map::Entry::Vacant(place) = last.entry(next) {
                    place.insert(at);
                    queue.push_back(next);
                }
            }
        }
        let mut route = vec![to];
        while *route.last()? != from {
            route.push(*last.get(route.last()?)?);
        }
        route.reverse();
        (route.len() > 1).then_some(route)
    }

    /// A node's neighbours: which, over which link, and at which end of it the node is.
    pub fn neighbours(&self, node: NodeId) -> impl Iterator<Item = (NodeId, usize, usize)> + '_ {
        self.links.iter().enumerate().flat_map(move |(number, line)| {
            let sides = [0, 1].into_iter().filter(move |&side| line.ends[side] == node);
            sides.map(move |side| (line.ends[1 - side], number, side))
        })
    }

    /// The next node towards each other one.
    pub fn routes(&self, node: NodeId) -> Vec<(NodeId, NodeId)> {
        let others = (0..self.nodes.len() as NodeId).filter(|&other| other != node);
        others.filter_map(|other| Some((other, *self.route(node, other)?.get(1)?))).collect()
    }

    /// Packets that may wait.
    pub fn rooms(&self) -> Room {
        Room { channel: self.room, data: usize::try_from(self.room).unwrap_or(usize::MAX) }
    }

    /// Where a flow ends: queues are numbered in the order of the flows of their node.
    pub fn address(&self, flow: usize) -> Address {
        let node = self.flows[flow].to;
        let before = self.flows[..flow].iter().filter(|other| other.to == node).count();
        Address { node, queue: before as u32 }
    }
}

impl Line {
    /// As admission and adapters know it.
    pub fn link(&self) -> (Link, Method) {
        let link = Link {
            rate: Rate::from_bits(self.rate.max(1)),
            per_packet: Duration::from_ps(self.per_packet),
            packet_max: Bytes(self.packet_max),
            outstanding: self.outstanding.max(1),
            propagation: Duration::from_ps(self.delay),
            horizon: Duration::from_ps(self.horizon),
            skew: Duration::ZERO,
        };
        (link, if self.exact { Method::Edf } else { Method::DOrder })
    }
}

impl Flow {
    /// Its contract, if it is a channel, and what happens to excess.
    pub fn contract(&self) -> Option<(Contract, Excess)> {
        let What::Channel { message, interval, burst, packet, deadline, excess, .. } = self.what
        else {
            return None;
        };
        let contract = Contract {
            message_max: Bytes(message),
            interval_min: Duration::from_ps(interval),
            burst_max: burst,
            packet_max: Bytes(packet),
            deadline: Duration::from_ps(deadline),
        };
        Some((contract, excess.into()))
    }

    /// Bytes of each message.
    pub fn message_len(&self) -> usize {
        let (What::Channel { message: len, .. } | What::Effort { len, .. }) = self.what;
        usize::try_from(len).unwrap_or(usize::MAX)
    }
}

/// When a flow's messages come.
pub struct Source {
    flow: Flow,
    stream: Stream,
    next: Time,
    stop: Time,
}

impl Source {
    /// That of a flow of a plan.
    pub fn new(plan: &Plan, flow: usize) -> Source {
        let flow = plan.flows[flow].clone();
        let begins = Time::START + BEGINS;
        let stop = begins + Duration::from_ps(flow.stop.min(plan.length));
        let next = begins + Duration::from_ps(flow.start);
        Source { stream: Stream::new(plan.seed, &flow.name), flow, next, stop }
    }
}

impl Iterator for Source {
    /// The next messages: when, and how many.
    type Item = (Time, u64);

    fn next(&mut self) -> Option<(Time, u64)> {
        let (at, gap) = (self.next, Duration::from_ps(self.flow.gap.max(1)));
        if at >= self.stop {
            return None;
        }
        let (count, pause) = match self.flow.what {
            What::Channel { burst, bursty: true, .. } => {
                let count = 1 + self.stream.below(burst.max(1));
                (count, gap * count)
            }
            What::Effort { random: true, .. } => {
                let unit = -(1.0 - self.stream.unit()).ln();
                (1, Duration::from_secs_f64(gap.as_secs_f64() * unit))
            }
            _ => (1, gap),
        };
        self.next = at + pause.max(Duration::from_ps(1));
        Some((at, count))
    }
}

/// Byte `at` of a message with this number: what is received is compared with it.
pub fn content(message: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (message as usize).wrapping_add(at) as u8).collect()
}
