//! Hosts: what sends, what receives, and, where a host has a profile, all that lies between them
//! and the wire.
//!
//! ```text
//! sources, clients, responders --> (forwarder, where there are several links) --> hops
//! sink, clients, responders <-- (demultiplexer, where there are several) <-- hops
//! ```

use super::{Builder, Capture, Input, LiveEnd, Made, Output, Peer, channel, machine, tcp, vunet};
use crate::document::{Fault, shorten};
use crate::experiment::Traffic;
use crate::replay;
use lastmeter_base::kind::{Family, Page, Param, ParamKind};
use lastmeter_base::{Bytes, Duration, Ecn, FlowId, NodeId, PathId, Stream, Time, here};
use lastmeter_engine::{ElementId, Error, PortId};
use lastmeter_host::profile::Profile;
use lastmeter_net::demultiplexer::Demultiplexer;
use lastmeter_net::request::{Client, Responder};
use lastmeter_net::sink::Sink;
use lastmeter_net::source::{Flow, Header, Source, Span};
use lastmeter_net::traffic::{self, Records, Setting};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How experiments describe it.
pub(crate) const PAGE: &Page = &Page {
    name: "host",
    family: Family::Node,
    what: "A computer that sends and receives; without a profile it costs nothing.",
    ports: "applications <--> host <--> links",
    params: &[
        Param::optional(
            "profile",
            ParamKind::Profile("hosts"),
            "an ideal host",
            "the host that it is, with its processors and buses",
        ),
        Param::optional(
            "adapter",
            ParamKind::Profile("adapters"),
            "whatever the host's profile has",
            "the adapter in it, whose stages stand between the host's and the links",
        ),
        Param::optional(
            "message",
            ParamKind::BUFFER,
            "each packet is a message",
            "how much its applications send or read at once, which stages with a cost for each \
             message spread over",
        ),
        Param::optional(
            "reception",
            ParamKind::Nested(Family::Reception),
            "receiving costs nothing but what the profile says",
            "how it receives: with interrupts, by polling, or in between; in models, for a host \
             without a profile",
        ),
        Param::or(
            "live",
            ParamKind::Flag,
            "false",
            "whether `lastmeter live` makes it a network namespace in which programs run; traffic \
             of the file from or to it stands for theirs in a model",
        ),
        Param::optional(
            "address",
            ParamKind::Text,
            "10.77.0.1/24 for the first live host, 10.77.0.2/24 for the second, and so on",
            "its IPv4 address and the length of the network's prefix, when live",
        ),
    ],
    source: "",
    deviations: &["It passes nothing on: routers do."],
    counters: &[("received", "packets received")],
    example: r#"
duration = "10 ms"
[nodes]
alice = { host = {} }
bob = { host = {} }
[[links]]
between = ["alice", "bob"]
rate = "1 Gbit/s"
[[traffic]]
name = "both ways"
from = "alice"
to = "bob"
request = { size = "100 B", response = "1000 B", window = 4 }
"#,
    place: here!(),
};

/// The paths of one declared traffic.
pub(super) struct Paths {
    pub(super) there: PathId,
    pub(super) back: Option<PathId>,
}

/// What receives at a host, and which flows.
pub(super) struct Receiver {
    pub(super) input: Input,
    /// The path, and the flow where not all of the path's flows end there.
    pub(super) takes: Vec<(PathId, Option<FlowId>)>,
}

impl Builder<'_, '_> {
    /// Declares a path for each pair of live hosts, each traffic, and the responses to it.
    pub(super) fn declare_paths(&mut self) -> Vec<Paths> {
        for &from in &self.flows.live {
            let others = self.flows.live.iter().filter(|&&to| to != from);
            let mut paths = Vec::new();
            for &to in others {
                let name = |node: usize| &self.network.nodes[node].name;
                let path = format!("{}->{}", name(from), name(to));
                paths.push((to, self.graph.path(path, "live")));
            }
            self.live_paths.insert(from, paths);
        }
        let mut paths = Vec::new();
        for entry in &self.experiment.traffic {
            let (from, to) = (&entry.from.name, &entry.to.name);
            let there = self.graph.path(format!("{from}->{to}"), entry.name.clone());
            let responds =
                traffic::responds(&entry.kind) || tcp::is(&entry.kind) || vunet::is(&entry.kind);
            let back = responds.then(|| {
                self.graph.path(format!("{to}->{from}"), format!("{} responses", entry.name))
            });
            paths.push(Paths { there, back });
        }
        paths
    }

    /// A host with all that sends and receives at it.
    pub(super) fn host(&mut self, node: usize, paths: &[Paths]) -> Result<Made, Error> {
        if let Some(port) = self.live_end(node)? {
            return self.live_host(node, port);
        }
        let mut receivers = Vec::new();
        let mut leaving = Vec::new();
        self.senders(node, paths, &mut receivers, &mut leaving)?;
        self.receivers(node, paths, &mut receivers, &mut leaving)?;
        self.tcp_ends(node, paths, &mut receivers, &mut leaving)?;
        self.vunet_ends(node, paths, &mut receivers, &mut leaving)?;
        self.channel_ends(node, paths, &mut receivers, &mut leaving)?;
        let input = self.demultiplex(node, receivers)?;
        let input = self.reception(node, input)?;
        let (input, leaving) = match self.profile(node) {
            Some(profile) => self.through_machine(node, &profile, input, leaving)?,
            None => (input, leaving),
        };
        let outputs = self.spread(node, leaving)?;
        Ok(Made { input, outputs })
    }

    /// The element of a host that a live run connects, under the host's name.
    fn live_end(&mut self, node: usize) -> Result<Option<ElementId>, Error> {
        let Some(peers) = self.live_paths.get(&node) else { return Ok(None) };
        let peer = |&(node, path): &(usize, PathId)| Peer { node: NodeId(node as u32), path };
        let peers = peers.iter().map(peer).collect();
        let index = self.live_paths.keys().position(|&known| known == node);
        let index = index.expect("the host is one of those that are live");
        let Some(ends) = self.ends.as_mut() else { return Ok(None) };
        let element = ends(LiveEnd { index, node: NodeId(node as u32), peers });
        let name = format!("{} port", self.network.nodes[node].name);
        self.graph.add_boxed(name, element).map(Some)
    }

    /// A live host: its port takes the place of everything that sends and receives.
    fn live_host(&mut self, node: usize, port: ElementId) -> Result<Made, Error> {
        let (input, leaving) = (Some((port, PortId(0))), vec![(port, PortId(0))]);
        let (input, leaving) = match self.profile(node) {
            Some(profile) => self.through_machine(node, &profile, input, leaving)?,
            None => (input, leaving),
        };
        let outputs = self.spread(node, leaving)?;
        Ok(Made { input, outputs })
    }

    fn profile(&self, node: usize) -> Option<Arc<Profile>> {
        let declared = &self.experiment.nodes[self.network.nodes[node].declared];
        self.experiment.profiles.get(&declared.profile()?).cloned()
    }

    /// Puts the host's machine between its applications and its links.
    fn through_machine(
        &mut self,
        node: usize,
        profile: &Profile,
        applications: Option<Input>,
        leaving: Vec<Output>,
    ) -> Result<(Option<Input>, Vec<Output>), Error> {
        let host = self.machine(node, profile)?;
        let sends = !leaving.is_empty();
        for (element, port) in leaving {
            self.graph.connect(element, port, host, machine::FROM_APPLICATIONS)?;
        }
        if let Some((element, port)) = applications {
            self.graph.connect(host, machine::TO_APPLICATIONS, element, port)?;
        }
        let input = applications.map(|_| (host, machine::FROM_LINKS));
        let leaving = if sends { vec![(host, machine::TO_LINKS)] } else { Vec::new() };
        Ok((input, leaving))
    }

    /// Everything that sends first: sources and clients.
    fn senders(
        &mut self,
        node: usize,
        paths: &[Paths],
        receivers: &mut Vec<Receiver>,
        leaving: &mut Vec<Output>,
    ) -> Result<(), Error> {
        let (network, flows) = (self.network, self.flows);
        for &index in flows.sent.get(&node).into_iter().flatten() {
            let flow = &flows.all[index];
            let entry = &self.experiment.traffic[flow.traffic];
            if tcp::is(&entry.kind) || vunet::is(&entry.kind) || channel::is(&entry.kind) {
                continue;
            }
            let (host, peer) = (&network.nodes[node].name, &network.nodes[flow.to].name);
            let name = format!("{host} sends {} to {peer}", entry.name);
            let id = FlowId(flow.number);
            let there = paths[flow.traffic].there;
            let destination = NodeId(flow.to as u32);
            let header = header(entry, flows.links(network, flow));
            let packets = Flow { path: there, flow: id, destination, header };
            let element = match self.traffic(entry, &name) {
                None => continue,
                Some(traffic::Traffic::Source(pattern)) => {
                    self.graph.add(name, Source::new(packets, pattern, span(entry)))?
                }
                Some(traffic::Traffic::Client(options, _)) => {
                    let client = self.graph.add(name, Client::new(packets, options))?;
                    let back = paths[flow.traffic].back.expect("a client has responses");
                    let input = (client, PortId(0));
                    receivers.push(Receiver { input, takes: vec![(back, Some(id))] });
                    client
                }
            };
            leaving.push((element, PortId(0)));
        }
        Ok(())
    }

    /// What the experiment describes, or `None` with its problem reported.
    fn traffic(&mut self, entry: &Traffic, name: &str) -> Option<traffic::Traffic> {
        let (mark, key) = (&entry.kind_mark, &entry.key);
        let (library, captures) = (self.library, &mut self.captures);
        let mut capture = |path: &str| -> Result<Records, String> {
            let wrong = |error: String| format!("`{}`: {error}", shorten(path));
            let (records, slot) =
                library.open(path).and_then(|reader| replay::open(reader, path)).map_err(wrong)?;
            captures.push(Capture { mark: mark.clone(), key: key.clone(), slot });
            Ok(records)
        };
        let stream = Stream::new(self.experiment.seed, &format!("{name}: conversations"));
        let mut setting = Setting { span: span(entry), stream, capture: &mut capture };
        traffic::build(&entry.kind, &mut setting)
            .map_err(|error| {
                let fault = Fault::new(error, "name a pcap or pcapng capture that can be read");
                self.reporter.report(mark, key, fault);
            })
            .ok()
    }

    /// Everything that only receives or answers: one sink, and a responder for each traffic.
    fn receivers(
        &mut self,
        node: usize,
        paths: &[Paths],
        receivers: &mut Vec<Receiver>,
        leaving: &mut Vec<Output>,
    ) -> Result<(), Error> {
        let (network, flows) = (self.network, self.flows);
        let host = &network.nodes[node].name;
        let mut sunk = Vec::new();
        let mut responders: BTreeMap<usize, Responder> = BTreeMap::new();
        for &index in flows.received.get(&node).into_iter().flatten() {
            let flow = &flows.all[index];
            let kind = &self.experiment.traffic[flow.traffic].kind;
            if tcp::is(kind) || vunet::is(kind) || channel::is(kind) {
                continue;
            }
            let Paths { there, back } = paths[flow.traffic];
            let id = FlowId(flow.number);
            let Some(back) = back.filter(|_| flow.responds) else {
                sunk.push((there, None));
                continue;
            };
            let entry = &self.experiment.traffic[flow.traffic];
            // Links lead both ways, so the way back is as long.
            let header = header(entry, flows.links(network, flow));
            let requests = Flow { path: there, flow: id, destination: NodeId(node as u32), header };
            let destination = NodeId(flow.from as u32);
            let responses = Flow { path: back, flow: id, destination, header };
            let size: Bytes = entry.kind.values.get("response");
            responders.entry(flow.traffic).or_default().answer(&requests, responses, size);
        }
        sunk.dedup();
        if !sunk.is_empty() {
            let sink = self.graph.add(format!("{host} receives"), Sink::default())?;
            receivers.push(Receiver { input: (sink, PortId(0)), takes: sunk });
        }
        for (traffic, responder) in responders {
            let class = &self.experiment.traffic[traffic].name;
            let responder = self.graph.add(format!("{host} answers {class}"), responder)?;
            let takes = vec![(paths[traffic].there, None)];
            receivers.push(Receiver { input: (responder, PortId(0)), takes });
            leaving.push((responder, PortId(0)));
        }
        Ok(())
    }

    /// Leads what arrives at a host to who takes it.
    fn demultiplex(
        &mut self,
        node: usize,
        receivers: Vec<Receiver>,
    ) -> Result<Option<Input>, Error> {
        if let [] | [_] = receivers.as_slice() {
            return Ok(receivers.first().map(|receiver| receiver.input));
        }
        let takes = receivers.iter().enumerate().flat_map(|(port, receiver)| {
            receiver.takes.iter().map(move |&(path, flow)| (path, flow, PortId(port as u16)))
        });
        let name = format!("{} demultiplexes", self.network.nodes[node].name);
        let element = self.graph.add(name, Demultiplexer::new(takes))?;
        for (port, receiver) in receivers.iter().enumerate() {
            let (to, input) = receiver.input;
            self.graph.connect(element, PortId(port as u16), to, input)?;
        }
        Ok(Some((element, PortId(0))))
    }
}

pub(super) fn span(entry: &Traffic) -> Span {
    let values = &entry.values;
    Span {
        start: Time::START + values.get::<Duration>("start"),
        random_phase: values.get::<String>("phase") == "random",
        stop: values.given::<Duration>("stop").map_or(Time::MAX, |stop| Time::START + stop),
        packets: values.given("packets").unwrap_or(u64::MAX),
    }
}

/// What the packets of a flow over so many links carry.
pub(super) fn header(entry: &Traffic, links: u64) -> Header {
    let values = &entry.values;
    Header {
        class: values.get::<u64>("class") as u8,
        ecn: match values.get::<String>("ecn").as_str() {
            "ect0" => Ecn::Ect0,
            "ect1" => Ecn::Ect1,
            _ => Ecn::NotCapable,
        },
        deadline: values.given("deadline"),
        hops: values.given("hops").unwrap_or(links).min(u64::from(u8::MAX)) as u8,
        cells: values.get("cells"),
    }
}
