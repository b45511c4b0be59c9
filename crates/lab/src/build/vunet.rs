//! The VuNet's nodes, adapters of cells, striped trunks, and the applications at the VuNet's ends.
//!
//! A port of a switch is the place of a neighbour among its links, in their order. A viewer's route is what
//! a topology daemon would have found: the ports on the way to its camera and back.

use super::host::{Paths, Receiver};
use super::{Builder, Made, Output};
use crate::document::{Fault, shorten};
use lastmeter_base::kind::{Nested, Values};
use lastmeter_base::{Bytes, Duration, FlowId, NodeId, Rate, Time};
use lastmeter_engine::{Element, Error, PortId, ResourceInfo, ResourceKind};
use lastmeter_lan::stripe::element as stripe;
use lastmeter_lan::vunet::camera::{Answer, Board, CAPTURE, Camera};
use lastmeter_lan::vunet::card::Card;
use lastmeter_lan::vunet::channels::{self, Channels};
use lastmeter_lan::vunet::connection::{Connection, Hop, Route};
use lastmeter_lan::vunet::crossbar::Crossbar;
use lastmeter_lan::vunet::element::{BRIDGE, LINK, SWITCH, ZEBRA};
use lastmeter_lan::vunet::element::{Link, Switch};
use lastmeter_lan::vunet::vci::{Block, SharedFile};
use lastmeter_lan::vunet::viewer::{PAGE, Viewer, Wishes};
use lastmeter_net::sar::{self, Sar};
use lastmeter_wire::atm::vunet::VUNET_CELL_LEN;
use std::collections::BTreeSet;

/// Whether this traffic is a camera's.
pub(super) fn is(traffic: &Nested) -> bool {
    traffic.page.name == PAGE.name
}

/// How many times as fast a switch is whose crossbar costs nothing.
const FREE: u64 = 1_000_000;

impl Builder<'_, '_> {
    /// A switch, a link, a bridge, a trunk or an adapter; `None` for any other node.
    pub(super) fn vunet_node(&mut self, node: usize) -> Option<Result<Made, Error>> {
        let page = self.page(node);
        match page {
            page if page == SWITCH.name => Some(self.vunet_switch(node)),
            page if page == LINK.name => Some(self.vunet_link(node, false)),
            page if [BRIDGE.name, ZEBRA.name].contains(&page) => Some(self.vunet_link(node, true)),
            page if page == stripe::PAGE.name => Some(self.trunk(node)),
            page if page == sar::PAGE.name => Some(self.sar(node)),
            _ => None,
        }
    }

    fn page(&self, node: usize) -> &'static str {
        let single = &self.network.nodes[node];
        self.experiment.nodes[single.declared].kind.page.name
    }

    /// The neighbours of a node, in the order of their links; of a bridge the switch first, of an
    /// adapter the side of packets.
    fn neighbours(&self, node: usize) -> Vec<usize> {
        let hops = &self.network.hops;
        let leaving = self.network.leaving[node].iter();
        let mut neighbours: Vec<usize> = leaving.map(|&hop| hops[hop].to).collect();
        match self.page(node) {
            page if [BRIDGE.name, ZEBRA.name].contains(&page) => {
                neighbours.sort_by_key(|&neighbour| !self.is_switch(neighbour));
            }
            page if page == sar::PAGE.name => {
                let declared = self.network.nodes[node].declared;
                let cells: String = self.experiment.nodes[declared].kind.values.get("cells");
                neighbours.sort_by_key(|&neighbour| self.is_called(neighbour, &cells));
            }
            _ => {}
        }
        neighbours
    }

    fn is_switch(&self, node: usize) -> bool {
        self.page(node) == SWITCH.name
    }

    fn port(&self, node: usize, neighbour: usize) -> u16 {
        let place = self.neighbours(node).iter().position(|&known| known == neighbour);
        place.expect("a hop joins neighbours") as u16
    }

    fn vunet_switch(&mut self, node: usize) -> Result<Made, Error> {
        let single = &self.network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let values = &declared.kind.values;
        let ports = values.get::<u64>("ports") as usize;
        let attached = self.neighbours(node).len();
        if attached > ports {
            return Ok(
                self.misfit(node, &format!("{attached} neighbours do not fit {ports} ports"))
            );
        }
        let stage = format!("{} crossbar", declared.name);
        let (numerator, denominator) = match self.is_free(&stage) {
            true => (FREE, 1),
            false => self.speed(&single.name),
        };
        let rate = values.get::<Rate>("rate").scale_floor(numerator, denominator);
        let cell_time = rate.time_for(Bytes(VUNET_CELL_LEN as u64));
        let depth = values.get::<u64>("cells") as usize;
        let name = single.name.clone();
        let shared = declared.count.is_some();
        self.resources.insert(name.clone());
        let info =
            ResourceInfo { units: ports as u32, ..ResourceInfo::new(name, ResourceKind::Engine) };
        let resource = self.graph.resource(info);
        let stage = self.stage(stage, (!shared).then_some(resource));
        let crossbar = Crossbar::new(ports, depth, cell_time);
        self.attach(node, Box::new(Switch::new(crossbar, stage, resource)))
    }

    fn vunet_link(&mut self, node: usize, bridge: bool) -> Result<Made, Error> {
        let neighbours = self.neighbours(node);
        let attached = neighbours.len();
        if attached != 2 {
            return Ok(self.misfit(node, &format!("it joins two neighbours, not {attached}")));
        }
        let switches = neighbours.iter().filter(|&&neighbour| self.is_switch(neighbour)).count();
        if bridge && switches != 1 {
            let found = format!("one of its neighbours is a vunet-switch, not {switches}");
            return Ok(self.misfit(node, &found));
        }
        let single = &self.network.nodes[node];
        let values = &self.experiment.nodes[single.declared].kind.values;
        let restarts_at = values.given::<Duration>("restarts-at").map(|at| Time::START + at);
        let link = Link::new(Card::new(node as u16), bridge, restarts_at);
        if self.page(node) == ZEBRA.name {
            let channels = self.zebra_channels(node);
            return self.attach(node, Box::new(link.with_channels(channels)));
        }
        self.attach(node, Box::new(link))
    }

    /// Those by which cells leave a zebra's far side.
    fn zebra_channels(&mut self, node: usize) -> Channels {
        let single = &self.network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let (name, shared) = (single.name.clone(), declared.count.is_some());
        let stages = ["channel", "skew"].map(|what| format!("{} {what}", declared.name));
        let (numerator, denominator) = match self.is_free(&stages[0]) {
            true => (FREE, 1),
            false => self.speed(&name),
        };
        let values = &declared.kind.values;
        let skew = if self.is_free(&stages[1]) { Duration::ZERO } else { values.get("skew") };
        let options = channels::Options {
            channels: values.get::<u64>("channels") as usize,
            rate: values.get::<Rate>("rate").scale_floor(numerator, denominator),
            cells: values.get("cells"),
            skew,
        };
        self.resources.insert(name.clone());
        let units = options.channels as u32;
        let resource = self
            .graph
            .resource(ResourceInfo { units, ..ResourceInfo::new(name, ResourceKind::Wire) });
        let [transmit, skew] = stages;
        let stages = channels::Stages {
            transmit: self.stage(transmit, (!shared).then_some(resource)),
            skew: self.stage(skew, None),
        };
        Channels::new(options, stages, resource)
    }

    /// Packets come and go on port 0, cells on port 1.
    fn sar(&mut self, node: usize) -> Result<Made, Error> {
        let neighbours = self.neighbours(node);
        let single = &self.network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let wanted: String = declared.kind.values.get("cells");
        let (name, group) = (single.name.clone(), declared.name.clone());
        let encapsulation = declared.kind.values.get("encapsulation");
        if neighbours.len() != 2 {
            let attached = neighbours.len();
            return Ok(self.misfit(node, &format!("it joins two neighbours, not {attached}")));
        }
        if !neighbours.iter().any(|&neighbour| self.is_called(neighbour, &wanted)) {
            return Ok(self.misfit(node, &format!("`{}` is no neighbour", shorten(&wanted))));
        }
        let path = self.graph.path(name, "cells");
        let stage = self.stage(format!("{group} reassembly"), None);
        self.attach(node, Box::new(Sar::new(path, stage, encapsulation)))
    }

    /// Whether a node, or the group that it is a member of, has this name.
    fn is_called(&self, node: usize, name: &str) -> bool {
        let node = &self.network.nodes[node];
        node.name == name || self.experiment.nodes[node.declared].name == name
    }

    fn trunk(&mut self, node: usize) -> Result<Made, Error> {
        let attached = self.neighbours(node).len();
        if attached != 2 {
            return Ok(self.misfit(node, &format!("it joins two neighbours, not {attached}")));
        }
        let single = &self.network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let (name, shared) = (single.name.clone(), declared.count.is_some());
        let transmit = format!("{} transmit", declared.name);
        let speed = match self.is_free(&transmit) {
            true => (FREE, 1),
            false => self.speed(&name),
        };
        let mut options = stripe::Options::new(&declared.kind.values, speed);
        let propagation = format!("{} propagation", declared.name);
        if self.is_free(&propagation) {
            options.delays.fill(Duration::ZERO);
            options.jitter = None;
        }
        let order = format!("{} order", declared.name);
        self.resources.insert(name.clone());
        let units = 2 * options.delays.len() as u32;
        let resource = self
            .graph
            .resource(ResourceInfo { units, ..ResourceInfo::new(name, ResourceKind::Wire) });
        let stages = stripe::Stages {
            transmit: self.stage(transmit, (!shared).then_some(resource)),
            propagation: self.stage(propagation, None),
            order: self.stage(order, None),
        };
        match stripe::Trunk::new(options, stages, resource) {
            Ok(trunk) => self.attach(node, Box::new(trunk)),
            Err(found) => Ok(self.misfit(node, &found)),
        }
    }

    /// An element with an input and an output for each neighbour.
    fn attach(&mut self, node: usize, element: Box<dyn Element>) -> Result<Made, Error> {
        let name = self.network.nodes[node].name.clone();
        let element = self.graph.add_boxed(name, element)?;
        let (network, flows) = (self.network, self.flows);
        for &hop in flows.hops.iter().filter(|&&hop| network.hops[hop].to == node) {
            let port = self.port(node, network.hops[hop].from);
            self.ports.insert(hop, (element, PortId(port)));
        }
        let table = flows.tables.get(&node);
        let hops: BTreeSet<usize> =
            table.into_iter().flat_map(|table| table.values()).copied().collect();
        let outputs = hops
            .into_iter()
            .map(|hop| ((element, PortId(self.port(node, network.hops[hop].to))), hop));
        Ok(Made { input: Some((element, PortId(0))), outputs: outputs.collect() })
    }

    /// The cameras and viewers at a host.
    pub(super) fn vunet_ends(
        &mut self,
        node: usize,
        paths: &[Paths],
        receivers: &mut Vec<Receiver>,
        leaving: &mut Vec<Output>,
    ) -> Result<(), Error> {
        let flows = self.flows;
        for (ends, sends) in [(&flows.sent, true), (&flows.received, false)] {
            for &index in ends.get(&node).into_iter().flatten() {
                let flow = &flows.all[index];
                let entry = &self.experiment.traffic[flow.traffic];
                if !is(&entry.kind) {
                    continue;
                }
                let (id, Paths { there, back }) = (FlowId(flow.number), &paths[flow.traffic]);
                let (there, back) = (*there, back.expect("a camera is told what to send"));
                let (from, to) = (flow.from, flow.to);
                let peer = if sends { to } else { from };
                let network = self.network;
                let names = [node, peer].map(|node| network.nodes[node].name.as_str());
                let what = if sends { "sends" } else { "sees" };
                let name = format!("{} {what} {} of {}", names[0], entry.name, names[1]);
                let element: Box<dyn Element> = match sends {
                    true => {
                        let board = self.board(names, &entry.name, &entry.kind.values);
                        Box::new(Camera::new((there, id), NodeId(to as u32), from as u16, board))
                    }
                    false => match self.viewer(flow.traffic, (from, to), (back, id)) {
                        Ok(viewer) => Box::new(viewer),
                        Err(found) => {
                            let right = "attach both ends to switches of one VuNet, and name a \
                                         channel that its zebras have";
                            let right = right.to_owned();
                            let fault = Fault::new(found, right);
                            self.reporter.report(&entry.kind_mark, &entry.key, fault);
                            continue;
                        }
                    },
                };
                let element = self.graph.add_boxed(name, element)?;
                let mut takes = vec![(back, Some(id))];
                takes.extend((!sends).then_some((there, Some(id))));
                receivers.push(Receiver { input: (element, PortId(0)), takes });
                leaving.push((element, PortId(0)));
            }
        }
        Ok(())
    }

    /// What the board at `node` is made of, which is watched from `peer`.
    fn board(&mut self, [node, peer]: [&str; 2], traffic: &str, values: &Values) -> Board {
        let mut part = |what: &str, doing: &str| {
            let name = format!("{node}.{what}");
            // A board with several viewers has a part for each.
            let name = match self.resources.contains(&name) {
                true => format!("{name} to {peer}"),
                false => name,
            };
            self.resources.insert(name.clone());
            let speed = self.speed(&name);
            let info = ResourceInfo::new(name, ResourceKind::Engine);
            let resource = self.graph.resource(info);
            ((resource, self.stage(format!("{traffic} {doing}"), None)), speed)
        };
        let slower =
            |time: Duration, (numerator, denominator)| time.scale_ceil(denominator, numerator);
        let dither: Duration = values.get("dither");
        let (signal, signals) = part("signal", "capture");
        let firmware = (!dither.is_zero()).then(|| part("firmware", "dither"));
        Board {
            period: slower(CAPTURE, signals),
            phase: values.get("phase"),
            answer: match values.get::<String>("answer").as_str() {
                "next" => Answer::Next,
                _ => Answer::Newest,
            },
            dither: firmware.map_or(dither, |(_, speed)| slower(dither, speed)),
            signal,
            firmware: firmware.map(|(part, _)| part),
        }
    }

    fn viewer(
        &mut self,
        traffic: usize,
        (camera, me): (usize, usize),
        flow: (lastmeter_base::PathId, FlowId),
    ) -> Result<Viewer, String> {
        let route = self.vunet_route(traffic, (me, camera))?;
        let nodes = self.network.nodes.len();
        let block = Block::of(me, nodes)?;
        let file = self.files.entry(me).or_insert_with(|| SharedFile::new(me as u16, block));
        // An application's token is its own among all hosts'.
        let token = (me as u32) << 16 | traffic as u32;
        let connection = Connection::new(route, token, file)?;
        let entry = &self.experiment.traffic[traffic];
        let start = Time::START + entry.values.get::<Duration>("start");
        let wishes = Wishes::new(&entry.kind.values, start, &connection)?;
        let nodes = (NodeId(me as u32), NodeId(camera as u32));
        Ok(Viewer::new(flow, nodes, wishes, connection))
    }

    /// The channel of a zebra by which the connection of a traffic goes: the one that it names, or the next.
    fn channel(&self, traffic: usize, zebra: usize) -> Result<u8, String> {
        let node = &self.network.nodes[zebra];
        let channels: u64 = self.experiment.nodes[node.declared].kind.values.get("channels");
        let wanted = self.experiment.traffic[traffic].kind.values.given::<u64>("channel");
        let channel = wanted.unwrap_or(traffic as u64 % channels);
        match channel < channels {
            true => Ok(channel as u8),
            false => {
                Err(format!("`{}` has {channels} channels, and no channel {channel}", node.name))
            }
        }
    }

    /// The ports on the way from a host to a peer and back; a zebra's on its far side is a channel.
    fn vunet_route(&self, traffic: usize, (host, peer): (usize, usize)) -> Result<Route, String> {
        let mut way = vec![host];
        while way[way.len() - 1] != peer {
            let node = way[way.len() - 1];
            way.push(self.network.hops[self.flows.tables[&node][&peer]].to);
        }
        let name = |node: usize| &self.network.nodes[node].name;
        let is_card = |node: usize| [LINK.name, BRIDGE.name, ZEBRA.name].contains(&self.page(node));
        // Ports of the switch that was passed last: by which it goes on, and back.
        let (mut first, mut ahead_of_last, mut hops) = (None, None, Vec::<Hop>::new());
        let mut back = None;
        for place in 1..way.len() - 1 {
            let [before, node, after] = [way[place - 1], way[place], way[place + 1]];
            if self.is_switch(node) {
                let ahead = self.port(node, after) as u8;
                back = Some(self.port(node, before) as u8);
                match hops.last_mut() {
                    Some(hop) => hop.ahead = ahead,
                    None => first = Some(ahead),
                }
                ahead_of_last = Some(after);
            } else if is_card(node) {
                if first.is_none() {
                    return Err(format!("`{}` is attached to no switch", name(host)));
                }
                // Where two bridges meet there is no switch between them, and ports mean nothing but to a
                // zebra.
                let far = match self.page(node) {
                    page if page == ZEBRA.name => self.channel(traffic, node)?,
                    _ => 0,
                };
                hops.push(Hop { ahead: far, back: back.take().unwrap_or(far) });
            }
        }
        match (first, back) {
            (Some(first), Some(last_back)) if ahead_of_last == Some(peer) => {
                Ok(Route { first, hops, last_back })
            }
            _ => Err(format!("`{}` is attached to no switch", name(peer))),
        }
    }
}
