//! The workloads of `lastmeter bench engine/fabric` and `engine/fat-tree`, fabrics of any number of ports at full
//! load, and those of `lastmeter bench fabric`.

use super::allocation::Rule;
use super::port::Place;
use super::{fat_tree, network};
use lastmeter_base::bench::{Case, Work};
use lastmeter_base::{Bytes, Duration, FlowId, NodeId, Packet, PathId, Rate, StageId, Time};
use lastmeter_engine::{
    Context, Element, Error, Graph, PortId, ResourceId, ResourceInfo, ResourceKind, StageInfo,
    TimerId,
};

const LEN: Bytes = Bytes(1500);
const LINK: Rate = Rate::from_gbit(1);

/// Destinations of a port's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// Uniformly random.
    Anybody(u32),
    /// Always the same one.
    Node(NodeId),
}

/// Sends packets back to back; the first one at a random phase.
#[repr(align(64))]
struct Blaster {
    path: PathId,
    flow: FlowId,
    to: To,
    gap: Duration,
    next: Time,
    seq: u64,
    /// Destination of the next packet.
    destination: NodeId,
}

impl Blaster {
    fn choose(&mut self, cx: &mut Context<'_>) {
        self.destination = match self.to {
            To::Node(node) => node,
            To::Anybody(count) => NodeId(cx.rng().below(count.into()) as u32),
        };
    }
}

impl Element for Blaster {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.next = Time::START + Duration::from_ps(cx.rng().below(self.gap.as_ps()));
        self.choose(cx);
        cx.arm(TimerId(0), self.next);
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        cx.deliver(packet);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        let mut packet = cx.make(self.path, LEN);
        packet.flow = self.flow;
        packet.seq = self.seq;
        packet.destination = self.destination;
        self.choose(cx);
        self.seq += 1;
        cx.send(PortId(0), packet);
        self.next += self.gap;
        cx.arm(TimerId(0), self.next);
    }
    fn is_end(&self) -> bool {
        true
    }
    fn sends_next(&self) -> Option<NodeId> {
        Some(self.destination)
    }
}

fn stage(graph: &mut Graph, name: &str) -> StageId {
    let name = name.to_owned();
    graph.stage(StageInfo::new(name, None))
}

fn resource(graph: &mut Graph, name: String) -> ResourceId {
    graph.resource(ResourceInfo::new(name, ResourceKind::Wire))
}

fn blast(
    graph: &mut Graph,
    path: PathId,
    ports: &[Place],
    to: impl Fn(u32) -> To,
) -> Result<(), Error> {
    for (number, &((input, into), (output, from))) in ports.iter().enumerate() {
        let number = number as u32;
        let (flow, gap) = (FlowId(number), LINK.time_for(LEN));
        let (to, next, seq, destination) = (to(number), Time::START, 0, NodeId::default());
        let blaster = Blaster { path, flow, to, gap, next, seq, destination };
        let blaster = graph.add(format!("host {number}"), blaster)?;
        graph.connect(blaster, PortId(0), input, into)?;
        graph.connect(output, from, blaster, PortId(0))?;
    }
    Ok(())
}

/// A fabric with distributed queueing and a speed-up of 2. Every port sends packets of 1500 B at 1 Gbit/s to
/// uniformly random ports.
///
/// Bmin is 1/N of what a link carries in a period. With a whole packet as Bmin, the reserve for idle queues alone
/// would delay a second packet to the same output by N packet times, and each port's backlog would grow with the
/// number of ports.
///
/// # Errors
/// If there are more ports than a graph has room for.
pub fn fabric(ports: usize, seed: u64) -> Result<Graph, Error> {
    let mut graph = Graph::new(seed);
    let stages = network::Stages {
        input: stage(&mut graph, "input"),
        transit: stage(&mut graph, "transit"),
        trunk: stage(&mut graph, "trunk"),
        output: stage(&mut graph, "output"),
        queue: stage(&mut graph, "queue"),
    };
    let period = Duration::from_us(500);
    let carried = u128::from(LINK.as_bits()) * u128::from(period.as_ps()) / 8_000_000_000_000;
    let backlog_min = Bytes((carried as u64 / ports.max(1) as u64).max(1));
    let options = network::Options {
        link: LINK,
        capacity: LINK.scale_floor(2, 1),
        rule: Some(Rule::Responsive { backlog_min }),
        period,
        transit: Duration::from_us(10),
        room: Bytes::from_mib(8),
    };
    let of: Vec<network::PortOptions> = (0..ports)
        .map(|port| {
            let mut one = |what: &str| (resource(&mut graph, format!("{what} {port}")), (1, 1));
            network::PortOptions { input: one("input"), output: one("output"), link: one("link") }
        })
        .collect();
    let (records, path) = (graph.path("fabric", "backlogs"), graph.path("all", "packets"));
    let nodes: Vec<(NodeId, usize)> = (0..ports).map(|i| (NodeId(i as u32), i)).collect();
    let mut trunk =
        |graph: &mut Graph, number: usize| (resource(graph, format!("trunk {number}")), (1, 1));
    let to = (stages, records);
    let made = network::assemble(&mut graph, "fabric", &options, &of, &nodes, to, &mut trunk)?;
    blast(&mut graph, path, &made, |_| To::Anybody(ports as u32))?;
    Ok(graph)
}

/// A full fat tree of switches with `radix` ports, at 1 Gbit/s. Every host sends packets of 1500 B
/// to the host with an index N/2 away.
///
/// # Errors
/// If there are more hosts than a graph has room for.
pub fn fat_tree(radix: usize, seed: u64) -> Result<Graph, Error> {
    let mut graph = Graph::new(seed);
    let stages = fat_tree::Stages {
        line: stage(&mut graph, "line"),
        propagation: stage(&mut graph, "propagation"),
    };
    let (rate, delay) = (LINK, Duration::from_us(5));
    let options = fat_tree::Options { radix, rate, delay, packets_max: 1000 };
    let hosts = options.hosts();
    let path = graph.path("all", "packets");
    let nodes: Vec<(NodeId, usize)> = (0..hosts).map(|i| (NodeId(i as u32), i)).collect();
    let mut line =
        |graph: &mut Graph, name: &str| (resource(graph, format!("tree {name}")), (1, 1));
    let made = fat_tree::assemble(&mut graph, "tree", &options, hosts, &nodes, stages, &mut line)?;
    let (count, half) = (hosts as u32, hosts as u32 / 2);
    blast(&mut graph, path, &made, |host| To::Node(NodeId((host + half) % count)))?;
    Ok(graph)
}

/// The benchmarks of distributed queueing alone.
pub const CASES: &[Case] = &[
    Case {
        name: "fabric/allocate@64",
        unit: "rates",
        what: "computes every rate of 64 ports with backlogs everywhere, both equation sets",
        prepare: allocate,
    },
    Case {
        name: "fabric/cells@1024",
        unit: "cell-hops",
        what: "cells through three stages of 32 switches, back-pressure and resequencing, load \
               0.9: what engine/fabric, which moves packets whole, leaves out",
        prepare: cells,
    },
];

/// Cells of uniform random traffic through the stages of [`super::multistage`], then resequenced.
fn cells(quick: bool) -> Box<dyn FnMut() -> Work> {
    use super::multistage::{Cell, Fabric, Resequencer};
    /// Age of resequencing, in slots.
    const AGE: u64 = 64;
    let slots = if quick { 50 } else { 500 };
    Box::new(move || {
        let mut random = lastmeter_base::Stream::new(1, "cells");
        let mut fabric = Fabric::new(32, 2, 8 * 32);
        let (ports, stages) = (fabric.ports() as u64, fabric.stages() as u64);
        let mut order: Vec<Resequencer> = (0..ports).map(|_| Resequencer::new(AGE)).collect();
        let (mut units, mut hash, mut id) = (0, 0u64, 0);
        for slot in 0..slots {
            for input in 0..ports as u32 {
                if random.chance(0.9) && fabric.has_room(input as usize) {
                    id += 1;
                    let output = random.below(ports) as u32;
                    let entered = fabric.inject(Cell { entered: slot, id, input, output });
                    debug_assert!(entered.is_ok(), "there was room");
                }
            }
            for cell in fabric.step() {
                units += stages;
                order[cell.output as usize].put(slot, cell);
            }
            for (output, order) in order.iter_mut().enumerate() {
                while let Some(cell) = order.take(slot) {
                    hash = (hash ^ cell.id ^ (output as u64) << 40).wrapping_mul(0x0100_0000_01b3);
                }
            }
        }
        Work { units, hash }
    })
}

fn allocate(quick: bool) -> Box<dyn FnMut() -> Work> {
    use super::allocation::{Allocation, Summary};
    const PORTS: usize = 64;
    let mut random = lastmeter_base::Stream::new(1, "allocate");
    let inputs: Vec<Vec<(usize, u64)>> = (0..PORTS)
        .map(|_| (0..PORTS).map(|output| (output, random.below(1 << 20))).collect())
        .collect();
    let mut summary = Summary::empty(PORTS);
    inputs.iter().for_each(|row| summary.add(row.iter().copied()));
    summary.output.iter_mut().for_each(|bytes| *bytes = random.below(1 << 22));
    let rounds = if quick { 1 } else { 50 };
    Box::new(move || {
        let mut hash = 0u64;
        let mut units = 0;
        for rule in [Rule::Base, Rule::Responsive { backlog_min: LEN }].repeat(rounds) {
            let allocation = Allocation { rule, ports: PORTS, capacity: Rate::from_gbit(2) };
            for row in &inputs {
                let total = allocation.total(row.iter().copied(), &summary);
                for &(output, own) in row {
                    let rate = allocation.rate(own, output, &summary, total);
                    hash = (hash ^ rate).wrapping_mul(0x0100_0000_01b3);
                    units += 1;
                }
            }
        }
        Work { units, hash }
    })
}

/// Packets delivered, dropped and held after this time, and a hash of the books.
#[cfg(test)]
fn run(graph: Graph, parts: usize, length: Duration) -> (u64, u64, u64, String) {
    use lastmeter_engine::{Serial, VirtualClock};
    let mut engine = graph.build(parts).unwrap();
    let end = Time::START + length;
    match parts {
        1 => engine.run_until(end, &mut VirtualClock::default()).unwrap(),
        _ => engine.run_parallel(end, &Default::default(), &Serial).unwrap(),
    }
    let outcome = engine.finish().unwrap();
    let books = &outcome.books;
    let sums: Vec<u128> = books.paths.iter().map(|path| path.latency.sum()).collect();
    (books.delivered, books.dropped, outcome.held, format!("{sums:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fabric_of_three_stages_carries_full_load_without_loss() {
        let length = Duration::from_ms(4);
        for ports in [8, 40, 100] {
            let (delivered, dropped, held, _) = run(fabric(ports, 1).unwrap(), 1, length);
            let offered = ports as u64 * length.as_ps() / LINK.time_for(LEN).as_ps();
            assert_eq!(dropped, 0, "{ports}");
            // Uniform random traffic at full load leaves a backlog.
            let carried = delivered as f64 / offered as f64;
            assert!(carried > 0.85, "{ports}: {carried}, {held} held");
        }
    }

    #[test]
    fn a_fat_tree_carries_a_shift_at_the_full_rate() {
        let length = Duration::from_ms(2);
        let (delivered, dropped, _, _) = run(fat_tree(8, 1).unwrap(), 1, length);
        // Five switches and six lines: at most 110 us of each host's packets are in flight.
        let each = (length - Duration::from_us(110)).as_ps() / LINK.time_for(LEN).as_ps();
        assert!(dropped == 0 && delivered >= 128 * each, "{delivered} {}", 128 * each);
    }

    #[test]
    fn the_result_does_not_depend_on_partitioning() {
        let length = Duration::from_ms(2);
        let one = run(fabric(40, 1).unwrap(), 1, length);
        for parts in [2, 3] {
            assert_eq!(run(fabric(40, 1).unwrap(), parts, length), one);
        }
        let one = run(fat_tree(6, 1).unwrap(), 1, length);
        assert_eq!(run(fat_tree(6, 1).unwrap(), 2, length), one);
    }

    #[test]
    fn every_case_does_the_same_each_time() {
        for case in CASES {
            assert_eq!((case.prepare)(true)(), (case.prepare)(true)(), "{}", case.name);
        }
    }
}
