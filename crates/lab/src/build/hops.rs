//! Links, and how nodes are connected to them.

use super::{Builder, Input, Output};
use crate::document::Fault;
use crate::experiment::{Hop, Network};
use crate::tap::{Tap, Tape};
use lastmeter_base::kind::{Nested, Value, Values};
use lastmeter_base::{Bytes, Duration, NodeId, Rate, StageId};
use lastmeter_engine::site::{Resource, Stage};
use lastmeter_engine::{ElementId, Error, Place, PortId, ResourceInfo, ResourceKind, StageInfo};
use lastmeter_net::forwarder;
use lastmeter_net::queue::{self, Described, DropTail, Gauged};
use lastmeter_net::server::{Server, Service};
use lastmeter_wire::capture::LinkType;
use std::collections::{BTreeMap, BTreeSet};

/// The limit in packets of the queue of a link that declares none.
const QUEUE_PACKETS: u64 = 1000;

/// What to connect an output to so that its packets take a hop.
#[derive(Clone, Copy)]
struct Entrance {
    input: Input,
    delay: Duration,
    stage: Option<StageId>,
}

/// The node that a hop leaves, and its place among that node's links.
fn network_place(network: &Network, hop: usize) -> (NodeId, usize) {
    let from = network.hops[hop].from;
    let place = network.leaving[from].binary_search(&hop);
    (NodeId(from as u32), place.expect("a hop leaves its node"))
}

impl<'a> Builder<'a, '_> {
    /// Builds every hop in use, and connects the outputs of nodes to their hops.
    pub(super) fn join(
        &mut self,
        inputs: &BTreeMap<usize, Input>,
        outputs: &[(Output, usize)],
    ) -> Result<(), Error> {
        let mut entrances = BTreeMap::new();
        for &hop in &self.flows.hops {
            // A node that could not be built has already been reported.
            let Some(&input) = inputs.get(&self.network.hops[hop].to) else { continue };
            let input = self.ports.get(&hop).copied().unwrap_or(input);
            entrances.insert(hop, self.hop(hop, input)?);
        }
        for &((element, port), hop) in outputs {
            let Some(&entrance) = entrances.get(&hop) else { continue };
            let Entrance { input: (to, input), delay, stage } = entrance;
            self.graph.connect_after(element, port, to, input, delay, stage)?;
        }
        Ok(())
    }

    fn hop(&mut self, index: usize, input: Input) -> Result<Entrance, Error> {
        let network = self.network;
        let hop = &network.hops[index];
        let values = self.link_values(hop);
        let (delay, stage) = match values.get::<Duration>("delay") {
            Duration::ZERO => (Duration::ZERO, None),
            delay => {
                let stage = self.link_stage(hop, "propagation", None);
                (stage.time(delay), Some(stage.id))
            }
        };
        let Some(rate) = values.given::<Rate>("rate") else {
            return Ok(Entrance { input, delay, stage });
        };
        let framing = values.given("framing").unwrap_or(Bytes::ZERO);
        let queue = values.given("queue").unwrap_or_else(default_queue);
        let server = self.transmitter(index, Service::Line { rate, framing }, &queue)?;
        let last = self.tapped(&hop.name, server.0)?;
        self.graph.connect_after(last, PortId(0), input.0, input.1, delay, stage)?;
        Ok(Entrance { input: server, delay: Duration::ZERO, stage: None })
    }

    /// A stage of a hop, shared by all hops of its group.
    fn link_stage(&mut self, hop: &Hop, role: &'static str, resource: Option<&Resource>) -> Stage {
        let of = resource.filter(|_| !hop.shared).map(|resource| resource.id);
        let info = StageInfo::new(format!("{} {role}", hop.group), of);
        let place = self.link_place(hop, role);
        let stage = self.names.stage(&mut self.graph, StageInfo { place, ..info });
        resource.map_or(stage, |resource| stage.on(resource))
    }

    /// The parameters of a link in the direction of a hop.
    pub(super) fn link_values(&self, hop: &Hop) -> &'a Values {
        self.experiment.links[hop.link].values(hop.back)
    }

    fn link_place(&self, hop: &Hop, role: &'static str) -> Place {
        let source = self.experiment.links[hop.link].source.clone();
        Place { host: None, group: None, role: Some(role), source }
    }

    /// The transmitter of a link in one direction.
    fn transmitter(
        &mut self,
        index: usize,
        service: Service,
        queue: &Nested,
    ) -> Result<Input, Error> {
        let hop = &self.network.hops[index];
        let place = self.link_place(hop, "transmit");
        let place = Place { group: hop.like.clone(), ..place };
        let info = ResourceInfo::new(hop.name.clone(), ResourceKind::Wire);
        let wire = self.names.resource(&mut self.graph, ResourceInfo { place, ..info });
        let stage = self.link_stage(hop, "transmit", Some(&wire));
        let service = service.at(&stage);
        let (rate, framing) = match service {
            Service::Line { rate, framing } => (Some(rate), framing),
            _ => (None, Bytes::ZERO),
        };
        let records_length = self.link_values(hop).get("queue-length");
        let site = queue::Site { records_length, ..self.site(&hop.name, rate, framing) };
        let behind = network_place(self.network, index);
        let server = match self.names.gauged(behind.0, behind.1) {
            None => queue::serve(queue, &site, service, stage.id, wire.id),
            Some(gauge) => {
                let queue = Gauged::new(queue::build(queue, &site), &gauge);
                let server = Server::new(queue, service, stage.id, wire.id);
                Box::new(server.recording_length(records_length))
            }
        };
        Ok((self.graph.add_boxed(hop.name.clone(), server)?, PortId(0)))
    }

    /// Adds a tap after a link's transmitter, if its packets are to be captured.
    fn tapped(&mut self, link: &str, transmitter: ElementId) -> Result<ElementId, Error> {
        let Some(output) = self.library.tap(link) else { return Ok(transmitter) };
        let link_type = match self.ends {
            Some(_) => LinkType::ETHERNET,
            None => LinkType::RAW,
        };
        let tape = match Tape::begin(output, link, link_type) {
            Ok(tape) => tape,
            Err(error) => {
                let right = "choose another place for the capture";
                self.report_whole(Fault::new(format!("capture of `{link}`: {error}"), right));
                return Ok(transmitter);
            }
        };
        let tap = self.graph.add(format!("{link} tap"), Tap::new(tape.clone()))?;
        self.tapes.push((link.to_owned(), tape));
        self.graph.connect(transmitter, PortId(0), tap, PortId(0))?;
        Ok(tap)
    }

    /// Connects a node's output to its hops: directly if there is only one, else through a forwarder.
    pub(super) fn spread(
        &mut self,
        node: usize,
        leaving: Vec<Output>,
    ) -> Result<Vec<(Output, usize)>, Error> {
        let hops = self.hops_of(node);
        if let [hop] = hops.as_slice() {
            return Ok(leaving.into_iter().map(|output| (output, *hop)).collect());
        }
        if leaving.is_empty() {
            return Ok(Vec::new());
        }
        let name = format!("{} forwards", self.network.nodes[node].name);
        let around = self.around();
        let mut site = around.site(node, &mut self.graph, &mut self.names);
        let (to, outputs) = forwarder::add(&mut site, name)?;
        for (element, port) in leaving {
            self.graph.connect(element, port, to, PortId(0))?;
        }
        Ok(self.each(node, &outputs))
    }

    /// The hops that packets take from a node, in order of declaration.
    pub(super) fn hops_of(&self, node: usize) -> Vec<usize> {
        let table = self.flows.tables.get(&node);
        let hops: BTreeSet<usize> =
            table.into_iter().flat_map(|table| table.values()).copied().collect();
        hops.into_iter().collect()
    }
}

fn default_queue() -> Nested {
    let mut values = Values::default();
    values.insert("packets", Value::Integer(QUEUE_PACKETS));
    Nested::new(&DropTail::KIND, values)
}
