//! Forwarding without state: each packet carries its path, and routers keep no state.
//!
//! ```text
//! host --> [ first router: writes the path ] --> [ reads one place, writes where it came from ] --> ... --> host
//!
//! header   0      1      2            2 + n
//!          | at   | n    | n outputs  |  the packet
//! ```
//!
//! The router at a host's link does what the host's resolver would do: it knows the paths of the hosts linked to it,
//! and of no others. All other routers have no table: they read an output, replace it by the input that the packet
//! came from, and advance `at`. So the path of a packet that has arrived leads, backwards, to its sender.
//!
//! | found | then |
//! |---|---|
//! | no header, or one that is too short for what it says | dropped, `no path` |
//! | no place left, or one that is no output | dropped, `bad path` |
//!
//! Source: Netstation's reports name it, "Datagram Forwarding via Stateless Internetwork Switching" (Finn, Van Meter,
//! Rogers, 1997), and say no more (N-38); the header is ours.

use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, NodeId, Packet, StageId, Time, here};
use lastmeter_engine::site::{Network, NodeKind, Ports, Site, own};
use lastmeter_engine::{Context, Element, Error, PortId, Report};
use std::collections::BTreeMap;

/// Most routers that a path may cross: what the header's count can say.
pub const HOPS_MAX: usize = 255;
/// Bytes of the header before the outputs.
const FIXED: usize = 2;

/// What is wrong with a packet's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is none, or its end is missing.
    NoPath,
    /// It has no place left.
    Ended,
}

/// The header of a path.
///
/// ```
/// use lastmeter_lan::paths::{Fault, header, step, strip};
/// let mut packet = header(&[3, 1]);
/// packet.extend(b"data");
/// assert_eq!(step(&mut packet, 7), Ok(3));
/// assert_eq!(step(&mut packet, 5), Ok(1));
/// assert_eq!(step(&mut packet, 0), Err(Fault::Ended));
/// assert_eq!(strip(&mut packet), Some(vec![7, 5]));
/// assert_eq!(packet, b"data");
/// ```
pub fn header(outputs: &[u8]) -> Vec<u8> {
    let count = outputs.len().min(HOPS_MAX);
    let mut header = vec![0, count as u8];
    header.extend(&outputs[..count]);
    header
}

/// The length of a whole header.
fn len(packet: &[u8]) -> Option<usize> {
    let len = FIXED + usize::from(*packet.get(1)?);
    (packet.len() >= len).then_some(len)
}

/// What a router does: it reads the output, and leaves the input in its place.
///
/// # Errors
/// If the packet has no path, or one that ended before.
pub fn step(packet: &mut [u8], input: u8) -> Result<u8, Fault> {
    let len = len(packet).ok_or(Fault::NoPath)?;
    let at = packet[0];
    let place = FIXED + usize::from(at);
    if place >= len {
        return Err(Fault::Ended);
    }
    packet[0] = at + 1;
    Ok(std::mem::replace(&mut packet[place], input))
}

/// Takes the header off, if there is one: the inputs by which the packet came, which lead back from the last to the
/// first.
pub fn strip(packet: &mut Vec<u8>) -> Option<Vec<u8>> {
    let len = len(packet)?;
    let inputs = packet[FIXED..len].to_vec();
    packet.drain(..len);
    Some(inputs)
}

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "path-router",
    family: Family::Node,
    what: "Forwards each packet by the path that it carries, without any table.",
    ports: "host   --> [ path written ] --> next router
router --> [ path read ]    --> next router, host",
    params: &[Param::or("time", ParamKind::Time, "0 s").is("transit time of a packet")],
    source: "Finn, Van Meter & Rogers, Datagram Forwarding via Stateless Internetwork Switching, \
             1997: cited by Touch et al., Netstation, without details",
    deviations: &[
        "The header is ours: two bytes, and one for each router.",
        "Paths have the fewest hops.",
    ],
    counters: &[
        ("forwarded", "packets sent on"),
        ("paths", "paths that it keeps, all of hosts linked to it"),
        ("header_bytes", "bytes of paths that it added to packets"),
    ],
    drops: &[
        ("no path", "packets without a path, or to a destination without one"),
        ("bad path", "packets whose path ended early, or names no output"),
    ],
    example: r#"
duration = "10 ms"
[nodes]
alice = { host = {} }
west = { path-router = {} }
middle = { path-router = {} }
east = { path-router = {} }
bob = { host = {} }
[[links]]
between = ["alice", "west", "middle", "east", "bob"]
rate = "100 Mbit/s"
[[traffic]]
name = "datagrams"
from = "alice"
to = "bob"
constant = { rate = "10 Mbit/s", size = "500 B" }
"#,
    ..Page::at(here!())
};

/// Marks routers that read paths.
struct ReadsPaths;

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind { build, own: &ReadsPaths });

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let count = site.neighbours.len();
    if count > HOPS_MAX {
        return Err(format!("it has {count} links; an output is one byte").into());
    }
    let outside: Vec<bool> = site
        .neighbours
        .iter()
        .map(|neighbour| own::<ReadsPaths>(neighbour.kind).is_none())
        .collect();
    let mut paths = BTreeMap::new();
    if outside.contains(&true) {
        for &(to, first) in &site.routes {
            paths.insert(to, path(site.network, site.node, to, first)?);
        }
    }
    let stage = site.stage("forwarding", None);
    let time = stage.time(values.get("time"));
    let router = PathRouter { outside, paths, time, stage: stage.id, forwarded: 0, added: 0 };
    let element = site.add(router)?;
    Ok(Ports::each(element, 0..count))
}

/// The outputs of all routers from one to a node, of which the first is known.
fn path(network: &dyn Network, from: NodeId, to: NodeId, first: usize) -> Result<Vec<u8>, String> {
    let mut outputs = vec![first as u8];
    for pair in network.way(from, to).windows(2).skip(1) {
        let (here, next) = (pair[0], pair[1]);
        if own::<ReadsPaths>(network.kind(here)).is_none() {
            break;
        }
        let output = network.neighbours(here).iter().position(|neighbour| neighbour.node == next);
        outputs.push(output.ok_or("a route has no link")? as u8);
    }
    match outputs.len() <= HOPS_MAX {
        true => Ok(outputs),
        false => Err(format!("a path crosses more than {HOPS_MAX} routers")),
    }
}

/// A router that reads paths.
struct PathRouter {
    /// For each neighbour, whether it is not such a router, and neither sends nor understands paths.
    outside: Vec<bool>,
    /// The paths of hosts that are linked to it; empty elsewhere.
    paths: BTreeMap<NodeId, Vec<u8>>,
    time: Duration,
    stage: StageId,
    forwarded: u64,
    added: u64,
}

impl PathRouter {
    /// The output of a packet that came by `input`, or why there is none.
    fn output(&mut self, input: usize, packet: &mut Packet) -> Result<usize, &'static str> {
        if self.outside[input] {
            let path = self.paths.get(&packet.destination).ok_or("no path")?;
            let header = header(path);
            packet.len += Bytes(header.len() as u64);
            self.added += header.len() as u64;
            packet.content.splice(0..0, header);
        }
        let output = match step(&mut packet.content, input as u8) {
            Ok(output) => usize::from(output),
            Err(Fault::NoPath) => return Err("no path"),
            Err(Fault::Ended) => return Err("bad path"),
        };
        if *self.outside.get(output).ok_or("bad path")? {
            let before = packet.content.len();
            strip(&mut packet.content).ok_or("no path")?;
            let header = (before - packet.content.len()) as u64;
            packet.len = Bytes(packet.len.0.saturating_sub(header));
        }
        Ok(output)
    }
}

impl Element for PathRouter {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        match self.output(usize::from(port.0), &mut packet) {
            Ok(output) => {
                self.forwarded += 1;
                if !self.time.is_zero() && cx.collecting() {
                    packet.visit(self.stage, Duration::ZERO, self.time, Duration::ZERO);
                }
                let departs: Time = cx.now() + self.time;
                cx.send_at(PortId(output as u16), packet, departs);
            }
            Err(reason) => cx.drop(packet, Some(self.stage), reason),
        }
    }
    fn timers(&self) -> u32 {
        0
    }
    fn report(&self, out: &mut Report) {
        out.count("forwarded", self.forwarded);
        out.count("paths", self.paths.len() as u64);
        out.count("header_bytes", self.added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// N-38: whatever arrives, a router reads no more than is there.
        #[test]
        fn any_bytes_are_a_path_or_a_fault(
            mut bytes in prop::collection::vec(any::<u8>(), 0..40),
            input: u8,
        ) {
            let before = bytes.clone();
            match step(&mut bytes, input) {
                Ok(_) => prop_assert_eq!(bytes[0], before[0] + 1),
                Err(_) => prop_assert_eq!(&bytes, &before),
            }
            let rest = bytes.len();
            if let Some(inputs) = strip(&mut bytes) {
                prop_assert_eq!(rest, bytes.len() + FIXED + inputs.len());
            }
        }

        /// N-38: on a random tree of routers, a packet arrives, and its path read backwards leads back.
        #[test]
        fn a_path_leads_there_and_back(
            parents in prop::collection::vec(0_usize..100, 1..30),
            from: usize,
            to: usize,
        ) {
            // Router n + 1 is linked to an earlier one; links of a router are numbered in order.
            let mut links = vec![Vec::new()];
            for (child, parent) in (1..).zip(parents) {
                let parent = parent % child;
                links.push(vec![parent]);
                links[parent].push(child);
            }
            let (from, to) = (from % links.len(), to % links.len());
            let outputs = |from: usize, to: usize| {
                // Towards the root until the paths meet.
                let up = |mut at: usize| {
                    let mut way = vec![at];
                    while at > 0 { at = links[at][0]; way.push(at); }
                    way
                };
                let (mut there, mut back) = (up(from), up(to));
                let before = |way: &[usize]| way.len().checked_sub(2).map(|at| way[at]);
                while before(&there).is_some() && before(&there) == before(&back) {
                    there.pop();
                    back.pop();
                }
                back.pop();
                there.extend(back.into_iter().rev());
                let step = |pair: &[usize]| {
                    links[pair[0]].iter().position(|&next| next == pair[1]).unwrap() as u8
                };
                there.windows(2).map(step).collect::<Vec<u8>>()
            };
            let follow = |mut at: usize, packet: &mut Vec<u8>, mut input: u8| {
                while let Ok(output) = step(packet, input) {
                    let next = links[at][usize::from(output)];
                    input = links[next].iter().position(|&one| one == at).unwrap() as u8;
                    at = next;
                }
                (at, input)
            };
            let mut packet = header(&outputs(from, to));
            let (end, last) = follow(from, &mut packet, 0);
            prop_assert_eq!(end, to);
            // What each router wrote is where the packet came from; the first wrote the host's link.
            let mut way = strip(&mut packet).unwrap();
            if !way.is_empty() {
                way.remove(0);
                way.push(last);
                way.reverse();
                let mut packet = header(&way);
                prop_assert_eq!(follow(to, &mut packet, 0).0, from);
            }
        }
    }
}
