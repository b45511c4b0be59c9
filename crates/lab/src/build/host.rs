//! Hosts: what sends, what receives, and, where a host has a profile, all that lies between them
//! and the wire.
//!
//! ```text
//! sources, clients, responders --> (forwarder, where there are several links) --> hops
//! sink, clients, responders <-- (demultiplexer, where there are several) <-- hops
//! ```

use super::{Builder, Input, LiveEnd, Made, Output, Peer, machine};
use lastmeter_base::kind::{Family, Kind, Misfit, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{NodeId, PathId, here, one_way};
use lastmeter_engine::site::{Receiver, TrafficKind};
use lastmeter_engine::{ElementId, Error, PortId};
use lastmeter_host::profile::Profile;
use lastmeter_host::receive;
use lastmeter_net::demultiplexer::Demultiplexer;
use std::sync::Arc;

/// How experiments describe it.
pub(crate) const PAGE: &Page = &Page {
    name: "host",
    family: Family::Node,
    what: "A computer that sends and receives; without a profile it costs nothing.",
    ports: "applications <--> host <--> links",
    params: &[
        Param::optional("profile", ParamKind::Profile("hosts"), "an ideal host")
            .is("the host that it is, with its processors and buses"),
        Param::optional(
            "adapter",
            ParamKind::Profile("adapters"),
            "whatever the host's profile has",
        )
        .is("the adapter in it, whose stages stand between the host's and the links"),
        Param::optional("message", ParamKind::BUFFER, "each packet is a message").is(
            "how much its applications send or read at once, which stages with a cost for each \
             message spread over",
        ),
        Param::optional(
            "reception",
            ParamKind::Nested(Family::Reception),
            "receiving costs what the profile says, in its order",
        )
        .is("how it receives: with interrupts, by polling, or in between; in models. With a \
             profile, its receive stages are what is scheduled so, at its costs"),
        Param::or("live", ParamKind::Flag, "false").is(
            "whether `lastmeter live` makes it a network namespace in which programs run; traffic \
             of the file from or to it stands for theirs in a model",
        ),
        Param::optional(
            "address",
            ParamKind::Text,
            "10.77.0.1/24 for the first live host, 10.77.0.2/24 for the second, and so on",
        )
        .is("its IPv4 address and the length of the network's prefix, when live"),
    ],
    source: "",
    deviations: &["It passes nothing on: routers do."],
    counters: &[("received", "packets received")],
    example: one_way! {
        "10 ms", "alice" [] "bob",
        [r#"rate = "1 Gbit/s""#],
        "both ways" [r#"request = { size = "100 B", response = "1000 B", window = 4 }"#]
    },
    place: here!(),
};

/// Its line.
pub(crate) static KINDS: &[Kind] = &[Kind { page: PAGE, fit, maker: &() }];

fn fit(values: &Values) -> Result<(), Misfit> {
    match values.given::<Nested>("reception").filter(|_| values.has("profile")) {
        Some(way) => receive::kind::fit_profile(&way),
        None => Ok(()),
    }
}

/// The paths of one declared traffic.
pub(super) struct Paths {
    pub(super) there: PathId,
    pub(super) back: Option<PathId>,
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
            let responds = (entry.kind.maker::<TrafficKind>().responds)(&entry.kind.values);
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
        let (receivers, leaving) = self.ends(node, paths)?;
        let input = self.demultiplex(node, receivers)?;
        let declared = &self.experiment.nodes[self.network.nodes[node].declared];
        let reception = declared.kind.values.given::<Nested>("reception");
        let (input, leaving) = match (self.profile(node), reception, input) {
            (Some(profile), reception, _) => {
                self.through_machine(node, &profile, reception.as_ref(), input, leaving)?
            }
            (None, Some(described), Some(applications)) => {
                (self.reception(node, &described, applications)?, leaving)
            }
            _ => (input, leaving),
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
            Some(profile) => self.through_machine(node, &profile, None, input, leaving)?,
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
        reception: Option<&Nested>,
        applications: Option<Input>,
        leaving: Vec<Output>,
    ) -> Result<(Option<Input>, Vec<Output>), Error> {
        let host = self.machine(node, profile, reception.filter(|_| applications.is_some()))?;
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
