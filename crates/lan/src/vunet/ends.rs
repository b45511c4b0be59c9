//! The ends of video on the VuNet: a camera at the sending host, a viewer at the receiving host.
//!
//! A viewer's route is what a topology daemon would have found: the ports on the path to its camera and back. The
//! port of a neighbour at a switch is its position in the order of its links.

use super::camera::{Answer, Board, CAPTURE, Camera};
use super::connection::{Connection, Hop, Route};
use super::element::Part;
use super::vci::{Block, SharedFile};
use super::viewer::{Viewer, Wishes};
use lastmeter_base::NodeId;
use lastmeter_engine::site::{Ends, Flow, Network, Resource, Site, TrafficKind};
use lastmeter_engine::{Element, Error, ResourceKind, StageInfo};
use std::collections::BTreeSet;

/// Builds them.
pub(super) const MAKER: TrafficKind =
    TrafficKind { responds: |_| true, ends, together: "vidboard", own: &() };

/// The advice for a viewer that cannot be built.
const RIGHT: &str =
    "attach both ends to switches of one VuNet, and name a channel that its zebras have";

fn ends(ends: &mut Ends<'_>) -> Result<(), Error> {
    let (host, network) = (ends.site.name, ends.site.network);
    let mut parts = BTreeSet::new();
    for flow in std::mem::take(&mut ends.sent) {
        let peer = network.name(flow.to);
        let board = board(&mut ends.site, &flow, &mut parts);
        let camera = Camera::new((flow.there, flow.id()), flow.to, flow.from.0 as u16, board);
        put(ends, &flow, format!("{host} sends {} of {peer}", flow.class), camera, false)?;
    }
    let mut file = None;
    for flow in std::mem::take(&mut ends.received) {
        let peer = network.name(flow.from);
        match viewer(network, &flow, &mut file) {
            Ok(viewer) => {
                put(ends, &flow, format!("{host} sees {} of {peer}", flow.class), viewer, true)?;
            }
            Err(found) => ends.refuse(&flow, found, RIGHT),
        }
    }
    Ok(())
}

fn put(
    ends: &mut Ends<'_>,
    flow: &Flow<'_>,
    name: String,
    element: impl Element + 'static,
    sees: bool,
) -> Result<(), Error> {
    let element = ends.site.graph.add(name, element)?;
    let mut takes = vec![(back(flow), Some(flow.id()))];
    takes.extend(sees.then_some((flow.there, Some(flow.id()))));
    ends.receives(element, takes);
    ends.sends(element);
    Ok(())
}

fn back(flow: &Flow<'_>) -> lastmeter_base::PathId {
    flow.back.expect("a camera has a flow of commands")
}

/// The parameters of the board at a host. A board with several viewers has a part for each; `parts` are the
/// existing ones.
fn board(site: &mut Site<'_>, flow: &Flow<'_>, parts: &mut BTreeSet<&'static str>) -> Board {
    let mut part = |what: &'static str, doing: &'static str| {
        let kind = ResourceKind::Engine;
        let resource = match parts.insert(what) {
            true => site.resource(what, &format!(".{what}"), kind),
            false => site.towards(what, &format!(".{what} to "), flow.to, kind),
        };
        let info = StageInfo::new(format!("{} {doing}", flow.class), None);
        let stage = site.names.stage(site.graph, StageInfo { place: site.place(doing), ..info });
        (resource, stage.id)
    };
    let values = &flow.kind.values;
    let dither: lastmeter_base::Duration = values.get("dither");
    let signal = part("signal", "capture");
    let firmware = (!dither.is_zero()).then(|| part("firmware", "dither"));
    let id = |(resource, stage): (Resource, _)| (resource.id, stage);
    Board {
        period: signal.0.time(CAPTURE),
        phase: values.get("phase"),
        answer: match values.get::<String>("answer").as_str() {
            "next" => Answer::Next,
            _ => Answer::Newest,
        },
        dither: firmware.map_or(dither, |(resource, _)| resource.time(dither)),
        signal: id(signal),
        firmware: firmware.map(id),
    }
}

/// The viewer of a flow, with channels from its host's file.
fn viewer(
    network: &dyn Network,
    flow: &Flow<'_>,
    file: &mut Option<SharedFile>,
) -> Result<Viewer, String> {
    let (me, camera) = (flow.to, flow.from);
    let route = route(network, flow)?;
    let block = Block::of(me.0 as usize, network.len())?;
    let file = file.get_or_insert_with(|| SharedFile::new(me.0 as u16, block));
    // Each application's token is unique over all hosts.
    let token = me.0 << 16 | flow.traffic as u32;
    let connection = Connection::new(route, token, file)?;
    let wishes = Wishes::new(&flow.kind.values, flow.start(), &connection)?;
    Ok(Viewer::new((back(flow), flow.id()), (me, camera), wishes, connection))
}

/// The channel of a zebra for a connection: the one that it names, or the next in turn.
fn channel(network: &dyn Network, flow: &Flow<'_>, zebra: NodeId) -> Result<u8, String> {
    let channels: u64 = network.kind(zebra).values.get("channels");
    let wanted = flow.kind.values.given::<u64>("channel");
    let channel = wanted.unwrap_or(flow.traffic as u64 % channels);
    let name = network.name(zebra);
    match channel < channels {
        true => Ok(channel as u8),
        false => Err(format!("`{name}` has {channels} channels, and no channel {channel}")),
    }
}

/// The ports on the path from a viewer to its camera and back; on the far side of a zebra, the port is a channel.
fn route(network: &dyn Network, flow: &Flow<'_>) -> Result<Route, String> {
    let (host, peer) = (flow.to, flow.from);
    let unattached = |node| format!("`{}` is attached to no switch", network.name(node));
    let port = |node: NodeId, neighbour: NodeId| {
        let mut neighbours = network.neighbours(node).into_iter();
        let place = neighbours.position(|known| known.node == neighbour);
        place.expect("a path consists of neighbours") as u8
    };
    // Ports of the last switch passed: the one by which the path goes on, and the one back.
    let (mut first, mut ahead_of_last, mut hops) = (None, None, Vec::<Hop>::new());
    let mut back = None;
    for around in network.way(host, peer).windows(3) {
        let &[before, node, after] = around else { continue };
        let part = Part::of(network.kind(node));
        if part == Some(Part::Switch) {
            let ahead = port(node, after);
            back = Some(port(node, before));
            match hops.last_mut() {
                Some(hop) => hop.ahead = ahead,
                None => first = Some(ahead),
            }
            ahead_of_last = Some(after);
        } else if part.is_some() {
            if first.is_none() {
                return Err(unattached(host));
            }
            // If two bridges meet, there is no switch between them, and ports have a meaning only to a zebra.
            let far = match part == Some(Part::Zebra) {
                true => channel(network, flow, node)?,
                false => 0,
            };
            hops.push(Hop { ahead: far, back: back.take().unwrap_or(far) });
        }
    }
    match (first, back) {
        (Some(first), Some(last_back)) if ahead_of_last == Some(peer) => {
            Ok(Route { first, hops, last_back })
        }
        _ => Err(unattached(peer)),
    }
}
