//! The endpoints of traffic from sources and clients: elements that send at one host, a sink or responders
//! at the other.

use super::{Maker, Setting, Traffic};
use crate::request::{Client, Responder};
use crate::sink::Sink;
use crate::source::{self, Header, Source, Span};
use lastmeter_base::{Bytes, Ecn, FlowId, NodeId, PathId, Stream};
use lastmeter_engine::Error;
use lastmeter_engine::site::{Ends, Flow, TrafficKind};
use std::collections::BTreeMap;

/// Adds them to a host: first the senders, then what only receives or answers.
pub(super) fn ends(ends: &mut Ends<'_>) -> Result<(), Error> {
    senders(ends)?;
    receivers(ends)
}

fn senders(ends: &mut Ends<'_>) -> Result<(), Error> {
    for flow in std::mem::take(&mut ends.sent) {
        let (host, peer) = (ends.site.name, ends.site.network.name(flow.to));
        let name = |class: &str| format!("{host} sends {class} to {peer}");
        let span = Span {
            start: flow.start(),
            random_phase: flow.random_phase(),
            stop: flow.stop(),
            packets: flow.packets_max(),
        };
        let maker = flow.kind.maker::<TrafficKind>().own.downcast_ref::<Maker>();
        let Maker(build) = maker.expect("traffic combined at a host is of one kind");
        let stream =
            Stream::new(ends.site.seed, &format!("{}: conversations", name(&flow.stream())));
        let capture = &mut *ends.capture;
        let mut open = |path: &str, bytes: bool| capture(flow.traffic, path, bytes);
        let mut setting = Setting { span, stream, capture: &mut open };
        let traffic = match build(&flow.kind.values, &mut setting) {
            Ok(traffic) => traffic,
            Err(error) => {
                ends.refuse(&flow, error, "name a pcap or pcapng capture that can be read");
                continue;
            }
        };
        let packets = labels(&flow, flow.there, flow.to);
        let element = match traffic {
            Traffic::Source(pattern) => {
                ends.add(&flow, name, Source::new(packets, pattern, span))?
            }
            Traffic::Client(options, _) => {
                let client = ends.add(&flow, name, Client::new(packets, options))?;
                let back = flow.back.expect("a client has responses");
                ends.receives(client, vec![(back, Some(flow.id()))]);
                client
            }
        };
        ends.sends(element);
    }
    Ok(())
}

/// One sink for all, and a responder for each traffic.
fn receivers(ends: &mut Ends<'_>) -> Result<(), Error> {
    let host = ends.site.name;
    let mut sunk: Vec<(PathId, Option<FlowId>)> = Vec::new();
    let mut responders: BTreeMap<usize, (Responder, PathId, Flow<'_>)> = BTreeMap::new();
    for flow in std::mem::take(&mut ends.received) {
        let Some(back) = flow.back else {
            sunk.push((flow.there, None));
            continue;
        };
        // The way back has as many links as the way there.
        let (requests, responses) =
            (labels(&flow, flow.there, flow.to), labels(&flow, back, flow.from));
        let size: Bytes = flow.kind.values.get("response");
        let new = || (Responder::default(), flow.there, flow);
        let (responder, ..) = responders.entry(flow.traffic).or_insert_with(new);
        responder.answer(&requests, responses, size);
    }
    sunk.dedup();
    if !sunk.is_empty() {
        let sink = ends.site.graph.add(format!("{host} receives"), Sink::default())?;
        ends.receives(sink, sunk);
    }
    for (responder, there, flow) in responders.into_values() {
        let name = |class: &str| format!("{host} answers {class}");
        let responder = ends.add(&flow, name, responder)?;
        ends.receives(responder, vec![(there, None)]);
        ends.sends(responder);
    }
    Ok(())
}

/// What the packets of a flow carry one way.
fn labels(flow: &Flow<'_>, path: PathId, destination: NodeId) -> source::Flow {
    let header = Header {
        class: flow.service(),
        ecn: match flow.common.get::<String>("ecn").as_str() {
            "ect0" => Ecn::Ect0,
            "ect1" => Ecn::Ect1,
            _ => Ecn::NotCapable,
        },
        deadline: flow.common.given("deadline"),
        hops: flow.hops(),
        cells: flow.common.get("cells"),
    };
    source::Flow { path, flow: flow.id(), destination, header }
}
