//! Hosts' ends of TCP connections: one element for each traffic that a host takes part in.

use super::host::{Paths, Receiver};
use super::{Builder, Output};
use lastmeter_base::kind::Nested;
use lastmeter_base::{Duration, FlowId, NodeId, Stream, Time};
use lastmeter_engine::{Error, PortId};
use lastmeter_transport::tcp::kind;
use lastmeter_transport::tcp::{Application, Labels, TcpHost};
use std::collections::BTreeMap;

/// Whether this traffic is TCP.
pub(super) fn is(traffic: &Nested) -> bool {
    traffic.page.name == kind::PAGE.name
}

impl Builder<'_, '_> {
    /// The ends of all TCP connections at a host.
    pub(super) fn tcp_ends(
        &mut self,
        node: usize,
        paths: &[Paths],
        receivers: &mut Vec<Receiver>,
        leaving: &mut Vec<Output>,
    ) -> Result<(), Error> {
        let flows = self.flows;
        for (ends, sends) in [(&flows.sent, true), (&flows.received, false)] {
            let mut by_traffic: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for &flow in ends.get(&node).into_iter().flatten() {
                let traffic = flows.all[flow].traffic;
                if is(&self.experiment.traffic[traffic].kind) {
                    by_traffic.entry(traffic).or_default().push(flow);
                }
            }
            for (traffic, pairs) in by_traffic {
                let Paths { there, back } = paths[traffic];
                let back = back.expect("connections have a way back");
                let (out, taken) = if sends { (there, back) } else { (back, there) };
                let host = self.tcp_host(node, traffic, &pairs, (sends, out));
                let class = &self.experiment.traffic[traffic].name;
                let what = if sends { "sends" } else { "receives" };
                let name = format!("{} {what} {class}", self.network.nodes[node].name);
                let (first, count) = (host.first(), host.connections().count() as u32);
                let element = self.graph.add(name, host)?;
                let takes = (first.0..first.0 + count).map(|flow| (taken, Some(FlowId(flow))));
                receivers.push(Receiver { input: (element, PortId(0)), takes: takes.collect() });
                leaving.push((element, PortId(0)));
            }
        }
        Ok(())
    }

    /// The ends of one traffic's connections, which are numbered pair by pair.
    fn tcp_host(
        &self,
        node: usize,
        traffic: usize,
        pairs: &[usize],
        (sends, path): (bool, lastmeter_base::PathId),
    ) -> TcpHost {
        let entry = &self.experiment.traffic[traffic];
        let values = &entry.kind.values;
        let connections = kind::connections(values);
        let (class, class_acknowledging) = kind::classes(values);
        let labels = Labels { path, class, class_acknowledging };
        let first = FlowId(self.flows.all[pairs[0]].number * connections);
        let mut host = TcpHost::new(labels, kind::config(values), first);
        let start = Time::START + entry.values.get::<Duration>("start");
        let name = &self.network.nodes[node].name;
        let mut stream = Stream::new(self.experiment.seed, &format!("{name}/{}", entry.name));
        for &pair in pairs {
            let flow = &self.flows.all[pair];
            for _ in 0..connections {
                let (peer, application) = match sends {
                    true => (flow.to, kind::source(values, start, &mut stream)),
                    false => (flow.from, Application::Sink),
                };
                host.add(NodeId(peer as u32), application);
            }
        }
        host
    }
}
