//! What the nodes, links and traffic of an experiment become in a live run of channels.

use crate::Complaint;
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_lab::experiment::{Experiment, Network, Traffic};
use lastmeter_net::queue::{self, Edd};
use lastmeter_rtc::plan::{Flow, Line, Plan, Policy, What};
use lastmeter_transport::channel::admission::buffers;
use lastmeter_transport::channel::kind;

/// Slots for the packets of each source, unless a channel needs more to keep its contract (§3.5.1).
const SLOTS: u64 = 50;
/// Packets in an adapter, the one being sent included (§3.2.4).
const OUTSTANDING: u64 = 2;

/// The plan of an experiment.
pub(super) fn of(experiment: &Experiment) -> Result<Plan, Complaint> {
    let network = Network::new(experiment);
    for node in &network.nodes {
        let kind = experiment.nodes[node.declared].kind.page.name;
        if !["host", "router"].contains(&kind) {
            let name = &node.name;
            return Err(Complaint(format!(
                "`{name}` is a {kind}: a live run of channels has hosts and routers"
            )));
        }
    }
    let nodes: Vec<String> = network.nodes.iter().map(|node| node.name.clone()).collect();
    let hops = network.hops.iter().filter(|hop| !hop.back);
    let links = hops.map(|hop| {
        let values = experiment.links[hop.link].values(false);
        let wrong = |what: &str| Complaint(format!("`{}` {what}", hop.name));
        let rate = values.given::<Rate>("rate").ok_or_else(|| {
            wrong("has no rate: a live run of channels paces each link at its own")
        })?;
        let queue = values.given::<Nested>("queue").filter(queue::is::<Edd>);
        let queue = queue.ok_or_else(|| {
            wrong("has no `edd` queue: write queue = { edd = {} }, which schedules channels")
        })?;
        let framing = values.given::<Bytes>("framing").unwrap_or(Bytes::ZERO);
        Ok(Line {
            ends: [hop.from as u32, hop.to as u32],
            rate: rate.as_bits(),
            per_packet: rate.time_for(framing).as_ps(),
            packet_max: queue.values.get::<Bytes>("longest").0,
            delay: values.get::<Duration>("delay").as_ps(),
            horizon: queue.values.get::<Duration>("horizon").as_ps(),
            outstanding: OUTSTANDING,
            exact: queue.values.get::<String>("admission") == "edf",
        })
    });
    let links = links.collect::<Result<Vec<_>, Complaint>>()?;
    let flows = experiment.traffic.iter().map(|traffic| flow(experiment, &nodes, traffic));
    let flows = flows.collect::<Result<Vec<_>, Complaint>>()?;
    let slots = flows.iter().filter_map(Flow::contract).map(|(contract, _)| {
        buffers::slots(&contract, buffers::at_source(&contract, contract.interval_min))
    });
    let room = slots.max().unwrap_or(0).max(SLOTS);
    let length = experiment.duration.as_ps();
    Ok(Plan { nodes, links, flows, room, seed: experiment.seed, length })
}

/// What traffic becomes.
fn flow(experiment: &Experiment, nodes: &[String], traffic: &Traffic) -> Result<Flow, Complaint> {
    let name = &traffic.name;
    let number = |wanted: &str| {
        let found = nodes.iter().position(|node| node == wanted).map(|at| at as u32);
        found
            .ok_or_else(|| Complaint(format!("`{name}`: name one node, and not all of `{wanted}`")))
    };
    let values = &traffic.kind.values;
    let (what, gap) = match traffic.kind.page.name {
        _ if kind::is(&traffic.kind) => channel(traffic)?,
        found @ ("poisson" | "constant") => {
            let sizes: Vec<(Bytes, u64)> = values.get("size");
            let [(len, _)] = sizes[..] else {
                return Err(Complaint(format!("`{name}`: one length of packets in a live run")));
            };
            let gap = values.get::<Rate>("rate").time_for(len);
            (What::Effort { len: len.0, random: found == "poisson" }, gap)
        }
        found => {
            return Err(Complaint(format!(
                "`{name}` is {found}: a live run of channels has channel, poisson and constant"
            )));
        }
    };
    let length = experiment.duration;
    Ok(Flow {
        name: name.clone(),
        from: number(&traffic.from.name)?,
        to: number(&traffic.to.name)?,
        start: traffic.values.get::<Duration>("start").as_ps(),
        stop: traffic.values.given::<Duration>("stop").unwrap_or(length).as_ps(),
        gap: gap.as_ps(),
        what,
    })
}

/// A channel, and the time between its messages.
fn channel(traffic: &Traffic) -> Result<(What, Duration), Complaint> {
    let (name, values) = (&traffic.name, &traffic.kind.values);
    let deadline = traffic.values.given::<Duration>("deadline").ok_or_else(|| {
        Complaint(format!("`{name}` has no deadline: write deadline = \"20 ms\""))
    })?;
    let contract = kind::contract(values, deadline);
    contract.check().map_err(|flaw| Complaint(format!("`{name}`: {flaw}")))?;
    if !values.get::<bool>("promised") {
        let right = "live channels are always promised; leave out promised = false";
        return Err(Complaint(format!("`{name}`: {right}")));
    }
    let what = What::Channel {
        message: contract.message_max.0,
        interval: contract.interval_min.as_ps(),
        burst: contract.burst_max,
        packet: contract.packet_max.0,
        deadline: contract.deadline.as_ps(),
        excess: match values.get::<String>("excess").as_str() {
            "delay" => Policy::Delay,
            "relax" => Policy::Relax,
            _ => Policy::Drop,
        },
        bursty: values.get("bursty"),
    };
    Ok((what, kind::gap(values)))
}
