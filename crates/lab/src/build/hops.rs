//! Links, routers and stations.

use super::{Builder, Input, Made, Output};
use crate::document::Fault;
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Cost, Draw, Duration, Rate, StageId};
use lastmeter_engine::{ElementId, Error, PortId, ResourceInfo, ResourceKind};
use lastmeter_net::forwarder::Forwarder;
use lastmeter_net::queue;
use lastmeter_net::server::Service;
use lastmeter_net::tap::{Tap, Tape};
use lastmeter_wire::capture::LinkType;
use std::collections::{BTreeMap, BTreeSet};

/// Packets that wait for a wire where the link says nothing of its queue.
const QUEUE_PACKETS: u64 = 1000;

/// What an output has to be joined to for its packets to take a hop.
#[derive(Clone, Copy)]
struct Entrance {
    input: Input,
    delay: Duration,
    stage: Option<StageId>,
}

impl Builder<'_, '_> {
    /// Builds every hop that is taken, and joins the outputs of nodes to the hops that they take.
    pub(super) fn join(
        &mut self,
        inputs: &BTreeMap<usize, Input>,
        outputs: &[(Output, usize)],
    ) -> Result<(), Error> {
        let mut entrances = BTreeMap::new();
        for &hop in &self.flows.hops {
            // A node that could not be built has been reported.
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
        let values = &self.experiment.links[hop.link].values;
        let propagation = format!("{} propagation", hop.group);
        let (delay, stage) = match values.get::<Duration>("delay") {
            Duration::ZERO => (Duration::ZERO, None),
            delay => {
                let free = self.is_free(&propagation);
                (if free { Duration::ZERO } else { delay }, Some(self.stage(propagation, None)))
            }
        };
        let Some(rate) = values.given::<Rate>("rate") else {
            return Ok(Entrance { input, delay, stage });
        };
        let transmit = format!("{} transmit", hop.group);
        let service = match self.is_free(&transmit) {
            true => Service::Cost(Cost::default()),
            false => {
                let (numerator, denominator) = self.speed(&hop.name);
                let rate = rate.scale_floor(numerator, denominator);
                let framing = values.given("framing").unwrap_or(Bytes::ZERO);
                Service::Line { rate, framing }
            }
        };
        let queue = values.given("queue").unwrap_or_else(default_queue);
        let shared = hop.shared;
        let server =
            self.serve(&hop.name, transmit, shared, ResourceKind::Wire, service, &queue)?;
        let last = self.tapped(&hop.name, server.0)?;
        self.graph.connect_after(last, PortId(0), input.0, input.1, delay, stage)?;
        Ok(Entrance { input: server, delay: Duration::ZERO, stage: None })
    }

    /// Puts a tap behind a link's transmitter, where somebody wants to see what crosses it.
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

    /// A server with its resource and its stage.
    fn serve(
        &mut self,
        name: &str,
        stage: String,
        shared: bool,
        kind: ResourceKind,
        service: Service,
        queue: &Nested,
    ) -> Result<Input, Error> {
        self.resources.insert(name.to_owned());
        let resource = self.graph.resource(ResourceInfo::new(name.to_owned(), kind));
        let stage = self.stage(stage, (!shared).then_some(resource));
        let (rate, framing) = match service {
            Service::Line { rate, framing } => (Some(rate), framing),
            Service::Cost(_) | Service::Draw(_) | Service::Table { .. } => (None, Bytes::ZERO),
        };
        let site = self.site(name, rate, framing);
        let server = queue::serve(queue, &site, service, stage, resource);
        Ok((self.graph.add_boxed(name.to_owned(), server)?, PortId(0)))
    }

    /// A router, an impairment, a ring, a fabric or a station.
    pub(super) fn forwarding_node(&mut self, node: usize) -> Result<Made, Error> {
        let network = self.network;
        let single = &network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        if declared.kind.page.name == lastmeter_net::forwarder::PAGE.name {
            let (input, outputs) = self.forwarder(node, single.name.clone())?;
            return Ok(Made { input: Some(input), outputs });
        }
        if let Some(kind) = lastmeter_net::impair::find(declared.kind.page) {
            return self.impairment(node, kind);
        }
        if declared.kind.page.name == lastmeter_lan::timed_token::element::PAGE.name {
            return self.ring(node);
        }
        if let Some(made) = self.vunet_node(node) {
            return made;
        }
        if let Some(made) = self.switching(node)? {
            return Ok(made);
        }
        let stage = format!("{} service", declared.name);
        let service = match self.is_free(&stage) {
            true => Service::Cost(Cost::default()),
            false => {
                let (numerator, denominator) = self.speed(&single.name);
                let draw: Draw = declared.kind.values.get("service");
                Service::Draw(draw.scale(denominator, numerator))
            }
        };
        let queue: Nested = declared.kind.values.get("queue");
        let shared = declared.count.is_some_and(|count| count > 1);
        let kind = ResourceKind::Engine;
        let input = self.serve(&single.name, stage, shared, kind, service, &queue)?;
        let served = (input.0, PortId(0));
        let outputs = self.spread(node, vec![served])?;
        Ok(Made { input: Some(input), outputs })
    }

    fn forwarder(
        &mut self,
        node: usize,
        name: String,
    ) -> Result<(Input, Vec<(Output, usize)>), Error> {
        let hops = self.hops_of(node);
        let port_of = |hop: &usize| {
            let port = hops.iter().position(|other| other == hop);
            PortId(port.expect("a table leads to hops of its node") as u16)
        };
        let entries = &self.flows.tables[&node];
        let mut table = vec![None; entries.keys().max().map_or(0, |&last| last + 1)];
        for (&destination, hop) in entries {
            table[destination] = Some(port_of(hop));
        }
        let element = self.graph.add(name, Forwarder::new(table))?;
        let outputs = hops.iter().map(|&hop| ((element, port_of(&hop)), hop)).collect();
        Ok(((element, PortId(0)), outputs))
    }

    /// Leads what leaves a node to its hops: straight where there is only one, else through a
    /// forwarder.
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
        let ((to, input), outputs) = self.forwarder(node, name)?;
        for (element, port) in leaving {
            self.graph.connect(element, port, to, input)?;
        }
        Ok(outputs)
    }

    /// The hops that packets take from a node, in order of declaration.
    fn hops_of(&self, node: usize) -> Vec<usize> {
        let table = self.flows.tables.get(&node);
        let hops: BTreeSet<usize> =
            table.into_iter().flat_map(|table| table.values()).copied().collect();
        hops.into_iter().collect()
    }
}

fn default_queue() -> Nested {
    use lastmeter_base::kind::{Value, Values};
    use lastmeter_net::queue::{Described, DropTail};
    let mut values = Values::default();
    values.insert("packets", Value::Integer(QUEUE_PACKETS));
    Nested { page: DropTail::PAGE, values }
}
