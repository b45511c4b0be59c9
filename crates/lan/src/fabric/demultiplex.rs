//! What a circuit number saves: it tells a port what to do with a packet, where it would otherwise have to look at the
//! header (D-19).
//!
//! | way | what is read | what is done |
//! |---|---|---|
//! | by label | two bytes of the circuit | a comparison and a subtraction: [`super::vc::arrival`] |
//! | by header | IPv4 and UDP | parse, match 100 filters, look the address up among 16,564 routes |
//!
//! The second is what a packet's input port does once (Kuhns et al., §3.1, §4.1), with as many routes as
//! the document's table. Both ways give the same answer for every packet.

use super::vc::{Arrival, arrival};
use lastmeter_base::Stream;
use lastmeter_base::bench::{Case, Work};
use lastmeter_net::classify::generate::{ACCESS_LIST, rules};
use lastmeter_net::classify::{General, Header, Match};
use lastmeter_net::lookup::table::{LENGTHS_2001, addresses, generate, load};
use lastmeter_net::lookup::{NextHop, TreeBitmap, tree_bitmap};
use lastmeter_wire::control::der::VCI_IP;
use lastmeter_wire::internet::{ipv4, udp};
use std::net::Ipv4Addr;

/// Ports of the document's router, and routes of its table (§2, §9.2).
const PORTS: u16 = 8;
const ROUTES: usize = 16_564;
/// Filters: our choice.
const FILTERS: u32 = 100;
const PACKETS: usize = 1 << 14;
const PACKETS_QUICK: usize = 1 << 10;
/// Packets that a port processor takes together.
const BATCH: usize = 64;
/// A packet of one cell (§6.2).
const LEN: usize = 40;

/// The benchmarks of both ways.
pub const CASES: &[Case] = &[
    Case {
        name: "fabric/by-label",
        unit: "packets",
        what: "tells packets of 8 ports apart by their circuit numbers",
        prepare: |quick| {
            let input = Input::new(quick);
            Box::new(move || input.work(input.by_label()))
        },
    },
    Case {
        name: "fabric/by-header",
        unit: "packets",
        what: "does so by their headers: 100 filters, 16,564 routes, 64 packets at a time",
        prepare: |quick| {
            let input = Input::new(quick);
            Box::new(move || input.work(input.by_header()))
        },
    },
];

/// Packets with their circuits, and the tables that say the same.
struct Input {
    packets: Vec<(u16, [u8; LEN])>,
    filters: General,
    routes: TreeBitmap<u32>,
}

impl Input {
    fn new(quick: bool) -> Input {
        let mut random = Stream::new(1, "demultiplex");
        let mut table = generate::<u32>(ROUTES, LENGTHS_2001, 1);
        for (_, hop) in &mut table {
            let port = random.below(PORTS.into()) as u32;
            *hop = NextHop::new(1 + port).expect("it is not zero");
        }
        let routes = load(&table, tree_bitmap::Options::IPV4).expect("the table fits");
        let mut filters = General::new();
        for rule in rules(&ACCESS_LIST, FILTERS, 1) {
            filters.install(rule).expect("the filters fit");
        }
        let count = if quick { PACKETS_QUICK } else { PACKETS };
        let packet = |key: u32| {
            let port = routes.lookup(key).map_or(0, |hop| hop.get() - 1) as u16;
            let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::from(key));
            let mut bytes = Vec::with_capacity(LEN);
            let header = ipv4::Header::new(src, dst, 17);
            header.emit(LEN - 20, &mut bytes).expect("it is short");
            [5000u16, 53, LEN as u16 - 20, 0]
                .iter()
                .for_each(|half| bytes.extend(half.to_be_bytes()));
            bytes.resize(LEN, 0);
            (VCI_IP + port, bytes.try_into().expect("it was made that long"))
        };
        let packets = addresses(&table, count, 2).into_iter().map(packet).collect();
        Input { packets, filters, routes }
    }

    /// The port of each packet, summed with its place.
    fn by_label(&self) -> u64 {
        let port = |vci: u16| match arrival(PORTS, vci) {
            Some(Arrival::Packet { from }) => u64::from(from),
            _ => u64::from(u16::MAX),
        };
        let each = self.packets.iter().zip(1..);
        each.fold(0, |sum: u64, (packet, place)| sum.wrapping_add(place * port(packet.0)))
    }

    fn by_header(&self) -> u64 {
        let mut sum = 0u64;
        let mut place = 1;
        let mut headers = Vec::with_capacity(BATCH);
        let mut keys = [0; BATCH];
        for batch in self.packets.chunks(BATCH) {
            headers.clear();
            for ((_, bytes), key) in batch.iter().zip(&mut keys) {
                headers.push(header(bytes));
                *key = headers.last().map_or(0, |header| header.dst);
            }
            let mut found = [None::<Match>; BATCH];
            self.filters.classify_batch(&headers, &mut found[..batch.len()]);
            let mut hops = [None; BATCH];
            self.routes.lookup_batch(&keys[..batch.len()], &mut hops[..batch.len()]);
            for (found, hop) in found.iter().zip(hops).take(batch.len()) {
                // What filters say does not change where packets go: their verdicts are read all the same.
                std::hint::black_box(found);
                sum = sum.wrapping_add(place * hop.map_or(0, |hop| u64::from(hop.get() - 1)));
                place += 1;
            }
        }
        sum
    }

    fn work(&self, hash: u64) -> Work {
        Work { units: self.packets.len() as u64, hash }
    }
}

/// The fields that filters look at; zeros if a packet has none.
fn header(bytes: &[u8]) -> Header {
    let none = Header { dst: 0, src: 0, dst_port: 0, src_port: 0, protocol: 0, interface: 0 };
    let Ok(packet) = ipv4::Packet::parse(bytes) else { return none };
    let (src, dst) = (packet.src().to_bits(), packet.dst().to_bits());
    let ports = udp::Datagram::parse(packet.payload)
        .map_or((0, 0), |datagram| (datagram.src, datagram.dst));
    Header { dst, src, src_port: ports.0, dst_port: ports.1, protocol: 17, interface: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_19_labels_and_headers_say_the_same_of_every_packet() {
        let input = Input::new(true);
        let told = input.by_label();
        assert_eq!(told, input.by_header());
        assert!(told > 0, "packets belong to several ports");
    }
}
