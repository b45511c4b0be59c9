//! Segmentation and reassembly: packets on one side, the cells of their AAL5 PDUs on the other.
//!
//! ```text
//! in 0 packet --> [ cut ] --> cells, the last with the trailer --> out 1
//! out 0 <-- packet <-- [ cells of each circuit ] <-- in 1      drops: `incomplete`
//! ```
//!
//! Models need lengths only, so a cell is a packet of 53 bytes with a real header, and the last cell of a
//! PDU is the packet itself, with its trailer. The other cells are made here and end where the PDU is
//! reassembled; they have no bytes of their own in the books, so that goodput stays that of packets.
//!
//! A PDU is complete if as many cells arrived as its length says, all of them its own, which is what AAL5's length
//! and CRC establish. Losing a last cell merges two PDUs, and both are lost.
//!
//! Source: ITU-T I.363.5 (08/96) §9.2; RFC 2684 (eight bytes of LLC and SNAP). Deviations: the payload is
//! not real, and so neither is the CRC; a circuit is VPI = path, VCI = 32 + flow.

use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Packet, PathId, StageId, here};
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{Context, Element, Error, PortId, Report};
use lastmeter_wire::aal::aal5::{PAYLOAD_LEN_MAX, TRAILER_LEN, cells};
use lastmeter_wire::atm::{
    CELL_LEN, Circuit, HEADER_LEN, Header, Interface, PayloadType, hec::hec,
};
use std::collections::BTreeMap;

/// Its page for experiments.
pub const PAGE: &Page = &Page {
    name: "aal5",
    family: Family::Node,
    what: "Segments packets into AAL5 cells towards one neighbour, and reassembles them.",
    ports: "neighbour --packets--> [ cut ] --cells--> neighbour\n\
            neighbour <--packets-- [ put together ] <--cells-- neighbour",
    params: &[
        Param::required("cells", ParamKind::Node).is("the neighbour on the cell side"),
        Param::or("encapsulation", ParamKind::Size { min: 0, max: 64 }, "8 B")
            .is("header before each packet, by default LLC and SNAP"),
    ],
    source: "ITU-T I.363.5, §9.2; RFC 2684",
    deviations: &[
        "Payloads have only lengths; a PDU is intact if all its cells are its own.",
        "All cells but the last are packets without bytes, on a separate path of the ledger.",
    ],
    counters: &[
        ("cut", "packets segmented into cells"),
        ("joined", "packets reassembled"),
        ("incomplete", "PDUs with missing cells, or two merged into one"),
        ("wasted", "cells received for incomplete PDUs"),
    ],
    drops: &[
        ("incomplete", "cells of PDUs with other cells missing"),
        ("too long", "packets longer than a PDU can hold"),
        ("not a cell", "packets other than cells from the cell side"),
    ],
    example: r#"
duration = "20 ms"
[nodes]
alice = { host = {} }
adapter-1 = { aal5 = { cells = "switch" } }
switch = { router = {} }
adapter-2 = { aal5 = { cells = "switch" } }
bob = { host = {} }
[[links]]
between = ["alice", "adapter-1"]
[[links]]
between = ["adapter-1", "switch", "adapter-2"]
rate = "149.76 Mbit/s"
queue = { cell-discard = { cells = 512 } }
[[links]]
between = ["adapter-2", "bob"]
[[traffic]]
name = "packets"
from = "alice"
to = "bob"
constant = { rate = "50 Mbit/s", size = "1500 B" }
"#,
    ..Page::at(here!())
};

/// Its line.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

/// Packets arrive and leave on port 0, cells on port 1.
fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let wanted: String = values.get("cells");
    let cells = site.between_two()?.map(|neighbour| neighbour.is_called(&wanted));
    let ports = match cells {
        [false, false] => {
            let shown: String = wanted.chars().take(80).collect();
            return Err(Error::Misfit(format!("`{shown}` is not a neighbour")));
        }
        [true, false] => [1, 0],
        _ => [0, 1],
    };
    let path = site.graph.path(site.name, "cells");
    let stage = site.stage("reassembly", None);
    let element = site.add(Sar::new(path, stage.id, values.get("encapsulation")))?;
    Ok(Ports::each(element, ports))
}

const CELL: Bytes = Bytes(CELL_LEN as u64);
/// The content of a cell that is modelled: header and its error control.
const CHECKED_LEN: usize = HEADER_LEN + 1;

/// The circuit of a packet that is a cell: one whose content begins with an intact header.
///
/// ```
/// use lastmeter_base::{Bytes, Packet};
/// assert_eq!(lastmeter_net::sar::circuit_of(&Packet::new(Bytes(53))), None);
/// ```
#[inline]
pub fn circuit_of(packet: &Packet) -> Option<Circuit> {
    let (&checked, _) = packet.content.split_first_chunk::<CHECKED_LEN>()?;
    let [a, b, c, d, check] = checked;
    let header = [a, b, c, d];
    (packet.len == CELL && hec(header) == check)
        .then(|| Header::parse(header, Interface::Uni).circuit)
}

/// Segments packets from port 0, and reassembles cells from port 1.
pub struct Sar {
    /// The path of all cells but the last of a PDU.
    path: PathId,
    stage: StageId,
    encapsulation: usize,
    /// Cells received of each circuit's current PDU.
    partial: BTreeMap<(u16, u16), Vec<Packet>>,
    cut: u64,
    joined: u64,
    incomplete: u64,
    wasted: u64,
}

impl Sar {
    /// An adapter that accounts its own cells to `path`, and the wait for a PDU's last cell to `stage`.
    pub fn new(path: PathId, stage: StageId, encapsulation: Bytes) -> Sar {
        let encapsulation = encapsulation.0 as usize;
        let partial = BTreeMap::new();
        Sar { path, stage, encapsulation, partial, cut: 0, joined: 0, incomplete: 0, wasted: 0 }
    }

    fn segment(&mut self, cx: &mut Context<'_>, mut packet: Packet) {
        let len = packet.len.0 as usize + self.encapsulation;
        let Some(length) = u16::try_from(len).ok().filter(|_| len <= PAYLOAD_LEN_MAX) else {
            return cx.drop(packet, Some(self.stage), "too long");
        };
        self.cut += 1;
        let vci = 32 + (packet.flow.0 % u32::from(u16::MAX - 32)) as u16;
        let circuit = Circuit { vpi: packet.path.0 as u16 & 0xff, vci };
        let header = |last| {
            let payload_type = PayloadType::User { congested: false, last };
            let header = Header { payload_type, ..Header::data(circuit) };
            let header = header.emit(Interface::Uni).expect("eight bits of path fit");
            let [a, b, c, d] = header;
            [a, b, c, d, hec(header)]
        };
        let middle = header(false);
        for _ in 1..cells(len) {
            let mut cell = cx.make(self.path, Bytes::ZERO);
            cell.len = CELL;
            (cell.flow, cell.destination, cell.class) =
                (packet.flow, packet.destination, packet.class);
            cell.tag = packet.id;
            cell.content.extend_from_slice(&middle);
            cx.send(PortId(1), cell);
        }
        let [l0, l1] = length.to_be_bytes();
        let trailer: [u8; TRAILER_LEN] = [0, 0, l0, l1, 0, 0, 0, 0];
        packet.content.splice(0..0, header(true).into_iter().chain(trailer));
        (packet.len, packet.ends) = (CELL, true);
        cx.send(PortId(1), packet);
    }

    fn cell(&mut self, cx: &mut Context<'_>, mut packet: Packet) {
        let Some(circuit) = circuit_of(&packet) else {
            return cx.drop(packet, Some(self.stage), "not a cell");
        };
        packet.entered = cx.now();
        let before = self.partial.entry((circuit.vpi, circuit.vci)).or_default();
        if !packet.ends {
            before.push(packet);
            return;
        }
        let trailer = packet.content.get(CHECKED_LEN..CHECKED_LEN + TRAILER_LEN);
        let length =
            trailer.map_or(0, |bytes| usize::from(u16::from_be_bytes([bytes[2], bytes[3]])));
        let whole =
            before.len() + 1 == cells(length) && before.iter().all(|cell| cell.tag == packet.id);
        let before = std::mem::take(before);
        if !whole {
            self.incomplete += 1;
            self.wasted += before.len() as u64 + 1;
        }
        for mut cell in before.into_iter().chain([packet]) {
            let (now, last) = (cx.now(), cell.ends);
            if !whole {
                cx.drop(cell, Some(self.stage), "incomplete");
                continue;
            }
            if cx.collecting() {
                cell.visit(self.stage, now - cell.entered, Duration::ZERO, Duration::ZERO);
            }
            if last {
                cell.content.drain(..CHECKED_LEN + TRAILER_LEN);
                (cell.len, cell.ends) = (Bytes((length - self.encapsulation) as u64), false);
                self.joined += 1;
                cx.send(PortId(0), cell);
            } else {
                cell.len = Bytes::ZERO;
                cx.deliver(cell);
            }
        }
    }
}

impl Element for Sar {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, packet: Packet) {
        match port.0 {
            0 => self.segment(cx, packet),
            _ => self.cell(cx, packet),
        }
    }
    fn timers(&self) -> u32 {
        0
    }
    fn report(&self, out: &mut Report) {
        out.held(self.partial.values().map(|cells| cells.len() as u64).sum());
        out.count("cut", self.cut);
        out.count("joined", self.joined);
        out.count("incomplete", self.incomplete);
        out.count("wasted", self.wasted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Sink;
    use crate::source::{Flow, Header as Carried, Pattern, Sizes, Source, Span};
    use lastmeter_base::{Draw, FlowId, NodeId, Rate, Stream, Time};
    use lastmeter_engine::{Graph, Outcome, StageInfo, VirtualClock};

    /// Loses given cells, by index.
    struct Loses {
        lost: fn(u64, &mut Stream) -> bool,
        seen: u64,
    }

    impl Element for Loses {
        fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
            self.seen += 1;
            match (self.lost)(self.seen, cx.rng()) {
                true => cx.drop(packet, None, "lost"),
                false => cx.send(PortId(0), packet),
            }
        }
    }

    /// Three flows of packets of several lengths over cells.
    fn run(lost: fn(u64, &mut Stream) -> bool) -> Outcome {
        let mut graph = Graph::new(1);
        let cells = graph.path("adapter", "cells");
        let name = "reassembly".to_owned();
        let stage = graph.stage(StageInfo::new(name, None));
        let [cut, join] =
            ["cut", "join"].map(|name| graph.add(name, Sar::new(cells, stage, Bytes(8))).unwrap());
        let loses = graph.add("loses", Loses { lost, seen: 0 }).unwrap();
        let sink = graph.add("sink", Sink::default()).unwrap();
        for flow in 0..3 {
            let path = graph.path(format!("{flow}"), "packets");
            let header = Carried::PLAIN;
            let flow = Flow { path, flow: FlowId(flow), destination: NodeId(1), header };
            let sizes = Sizes::Mix(vec![(Bytes(40), 1), (Bytes(1500), 2), (Bytes(9180), 1)]);
            let gap = Draw::Exponential(Rate::from_mbit(10).time_for(Bytes(1500)));
            let pattern = Pattern::Gaps { gap, sizes };
            let name = format!("source {}", path.0);
            let source = graph.add(name, Source::new(flow, pattern, Span::ALWAYS)).unwrap();
            graph.connect(source, PortId(0), cut, PortId(0)).unwrap();
        }
        graph.connect(cut, PortId(1), loses, PortId(0)).unwrap();
        graph.connect(loses, PortId(0), join, PortId(1)).unwrap();
        graph.connect(join, PortId(0), sink, PortId(0)).unwrap();
        let mut engine = graph.build(1).unwrap();
        let end = Time::START + Duration::from_ms(200);
        engine.run_until(end, &mut VirtualClock::default()).unwrap();
        engine.finish().unwrap()
    }

    #[test]
    fn without_loss_every_packet_arrives_unchanged() {
        let outcome = run(|_, _| false);
        let books = &outcome.books;
        let packets: u64 = books.paths[1..].iter().map(|path| path.delivered.packets).sum();
        assert!(packets > 300);
        for path in &books.paths[1..] {
            assert_eq!(path.delivered, path.offered);
            assert_eq!((path.corrupted, path.reordered), (0, 0));
        }
        assert_eq!((books.paths[0].offered.bytes, books.dropped), (0, 0));
    }

    #[test]
    fn a_packet_that_lost_a_cell_is_lost_and_no_other_is_corrupted() {
        let outcome = run(|_, random| random.chance(0.01));
        let books = &outcome.books;
        let packets: u64 = books.paths[1..].iter().map(|path| path.delivered.packets).sum();
        let offered: u64 = books.paths[1..].iter().map(|path| path.offered.packets).sum();
        assert!(packets > offered / 8 && packets < offered * 3 / 4, "{packets} of {offered}");
        assert!(books.paths[1..].iter().all(|path| path.corrupted == 0 && path.reordered == 0));
        let incomplete = outcome.elements.iter().find(|one| one.name == "join").unwrap();
        assert!(incomplete.counters.iter().any(|&(name, n)| name == "incomplete" && n > 50));
    }
}
