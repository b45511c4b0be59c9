//! The bandwidth that PCI Express leaves for packets of each size, by transaction (E-40, E-126).
//!
//! ```text
//! write of n B:  ceil(n / payload) x 24 + n                 to the host
//! read of n B:   ceil(n / request) x 24                     to the host
//!                ceil(n / payload) x 20 + n                 from the host
//! ```
//!
//! 24 and 20 B are the overheads of a memory write or read request with 64-bit addresses, and of a completion with
//! data: 8 B of framing, sequence number and CRC, 4 B of common header, 12 or 8 B of the type's own.
//!
//! Source: Neugebauer et al., "Understanding PCIe performance for end host networking", SIGCOMM
//! 2018, §3 and its model (pcie-bench/pcie-model); rates and header lengths are from the specification. Deviation:
//! their programs omit the request that reads the descriptor of a received packet, 24 B; it is counted here.

use super::description::{Description, InterfaceKind};
use lastmeter_base::{Bytes, Duration, Rate};

/// A PCI Express link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// 3, 4 or 5: the generations with 128b/130b encoding.
    pub generation: u64,
    /// Number of lanes.
    pub lanes: u64,
    /// Maximum payload of a transaction packet.
    pub payload: Bytes,
    /// Largest read request.
    pub request: Bytes,
}

const WRITE: u64 = 24;
const READ: u64 = 24;
const COMPLETION: u64 = 20;
const POINTER: u64 = 4;
const INTERRUPT: u64 = 4;
/// Share of the link taken by acknowledgements, flow control and clock compensation, for a payload of 256 B and
/// eight lanes: 8 B in 203 for each of the first two (PCIe 3.0 to 5.0, tables of limits), 4 in 1538 for the third.
const OVERHEAD: f64 = 8.0 / 203.0 + 8.0 / 203.0 + 4.0 / 1538.0;

impl Link {
    /// Bits per second after encoding.
    pub fn raw(&self) -> f64 {
        let per_lane = match self.generation {
            3 => 8e9,
            4 => 16e9,
            _ => 32e9,
        };
        per_lane * 128.0 / 130.0 * self.lanes as f64
    }

    /// Bits per second of transaction packets, each way.
    ///
    /// ```
    /// use lastmeter_base::Bytes;
    /// use lastmeter_host::adapter::pcie::Link;
    /// let link = Link { generation: 3, lanes: 8, payload: Bytes(256), request: Bytes(512) };
    /// assert_eq!((link.transactions() / 1e7).round() / 100.0, 57.88);
    /// ```
    pub fn transactions(&self) -> f64 {
        self.raw() * (1.0 - OVERHEAD)
    }

    fn write(&self, len: u64) -> f64 {
        (len.div_ceil(self.payload.0.max(1)) * WRITE + len) as f64
    }

    /// Bytes to and from the host.
    fn read(&self, len: u64) -> [f64; 2] {
        let requests = len.div_ceil(self.request.0.max(1)) * READ;
        let completions = len.div_ceil(self.payload.0.max(1)) * COMPLETION + len;
        [requests as f64, completions as f64]
    }
}

/// The link of an adapter with descriptor rings.
fn rings(card: &Description) -> Option<Link> {
    card.transfer.pcie.filter(|_| card.host.kind == InterfaceKind::Rings)
}

/// Overhead per packet in each direction: a doorbell, a read of the head pointer, an interrupt, and fetching the
/// descriptors, `descriptors` of them.
fn handling(card: &Description, link: Link, descriptors: u64) -> [f64; 2] {
    let (host, batch) = (&card.host, card.host.batch);
    let share = |bytes: f64, of: u64| bytes / of.max(1) as f64;
    let fetched = link
        .read(host.descriptor.0 * batch.fetch)
        .map(|bytes| share(bytes, batch.fetch) * descriptors as f64);
    let to = share((POINTER + COMPLETION) as f64, batch.doorbell)
        + share((INTERRUPT + WRITE) as f64, host.coalescing);
    let from = share((POINTER + WRITE) as f64, batch.doorbell) + share(READ as f64, batch.doorbell);
    [to + fetched[0], from + fetched[1]]
}

/// Bytes over the link per packet sent: to the host, from the host.
///
/// `None` for an adapter without rings or not on PCI Express.
pub fn sent(card: &Description, len: Bytes) -> Option<[f64; 2]> {
    let link = rings(card)?;
    let parts = card.parts(len);
    let mut bytes = handling(card, link, parts.len() as u64);
    for part in parts {
        let data = link.read(part.0);
        bytes = [bytes[0] + data[0], bytes[1] + data[1]];
    }
    Some(bytes)
}

/// The same per packet received: the packet is written, then its descriptor.
pub fn received(card: &Description, len: Bytes) -> Option<[f64; 2]> {
    let link = rings(card)?;
    let (descriptor, batch) = (card.host.descriptor.0, card.host.batch.write_back);
    let parts = card.parts(len);
    let [to, from] = handling(card, link, parts.len() as u64);
    let written: f64 = parts.iter().map(|part| link.write(part.0)).sum();
    Some([to + written + link.write(descriptor * batch) / batch.max(1) as f64, from])
}

/// The same for one packet sent and one received.
pub fn per_packet(card: &Description, len: Bytes) -> Option<[f64; 2]> {
    let (sent, received) = (sent(card, len)?, received(card, len)?);
    Some([sent[0] + received[0], sent[1] + received[1]])
}

/// Bus time per packet sent, if the busier direction is in use all the time.
pub fn transfer_time(card: &Description, len: Bytes) -> Option<Duration> {
    time(card, sent(card, len)?)
}

/// The same per packet received.
pub fn reception_time(card: &Description, len: Bytes) -> Option<Duration> {
    time(card, received(card, len)?)
}

fn time(card: &Description, bytes: [f64; 2]) -> Option<Duration> {
    let seconds = 8.0 * bytes[0].max(bytes[1]) / rings(card)?.transactions();
    Some(Duration::from_ps((seconds * 1e12).ceil() as u64))
}

/// Throughput in bits per second, with packets of `len` sent and received at the same time: what the bus allows in
/// each direction, or the link if that is less.
pub fn throughput(card: &Description, len: Bytes) -> Option<(f64, f64)> {
    let link = card.transfer.pcie?;
    let bytes = per_packet(card, len)?;
    let bus = len.0 as f64 / bytes[0].max(bytes[1]) * link.transactions();
    let wire = card.network.rate.map_or(f64::INFINITY, |rate: Rate| {
        let framing = (len.0 + card.network.framing.0) as f64;
        rate.as_bits() as f64 * len.0 as f64 / framing
    });
    Some((bus, bus.min(wire)))
}

#[cfg(test)]
mod tests {
    use super::super::description::{Batch, cim};
    use super::*;

    /// The simple adapter of the source: every step for every packet, PCIe 3.0 x8, 40 Gbit/s.
    fn simple() -> Description {
        let mut card = cim();
        card.host.kind = InterfaceKind::Rings;
        card.host.descriptor = Bytes(16);
        card.host.batch = Batch { doorbell: 1, fetch: 1, write_back: 1 };
        card.host.coalescing = 1;
        let (payload, request) = (Bytes(256), Bytes(512));
        card.transfer.pcie = Some(Link { generation: 3, lanes: 8, payload, request });
        card.network.rate = Some(Rate::from_gbit(40));
        card.network.framing = Bytes(20);
        card
    }

    #[test]
    fn the_bytes_of_a_packet_of_512_by_hand() {
        // To the host: head 2 x 24, interrupts 2 x 28, descriptor reads 2 x 24, data request 24,
        // data 2 x 24 + 512, descriptor 24 + 16. From: doorbells 2 x 28, heads 2 x 24, descriptors
        // 2 x 36, data 2 x 20 + 512.
        assert_eq!(per_packet(&simple(), Bytes(512)), Some([776.0, 728.0]));
    }

    #[test]
    fn the_simple_adapter_reaches_40_gbit_only_beyond_512_bytes() {
        let reaches = |len| throughput(&simple(), Bytes(len)).is_some_and(|(bus, both)| both < bus);
        assert!(!reaches(256) && !reaches(512) && reaches(768) && reaches(1500));
    }

    #[test]
    fn e_126_a_packet_of_64_sent_by_hand() {
        // From the host: doorbell 28 / 32, head 24 / 32, descriptors (20 + 128) / 8, data 20 + 64.
        // To the host: head 24 / 32, interrupt 28 / 32, descriptors 24 / 8, request 24.
        let mut card = simple();
        card.host.batch = Batch { doorbell: 32, fetch: 8, write_back: 8 };
        card.host.coalescing = 32;
        assert_eq!(sent(&card, Bytes(64)), Some([28.625, 104.125]));
        let link = card.transfer.pcie.map_or(0.0, |link| link.transactions());
        let time = (104.125 * 8e12 / link).ceil() as u64;
        assert_eq!(transfer_time(&card, Bytes(64)), Some(Duration::from_ps(time)));
    }

    #[test]
    fn e_42_separate_headers_are_read_with_a_separate_descriptor() {
        let mut card = simple();
        card.buffers.separate_headers = true;
        card.buffers.header = Bytes(54);
        // One descriptor more, 20 + 16, and one completion more, 20, than 512 B in one piece.
        let [.., whole] = sent(&simple(), Bytes(512)).unwrap_or_default();
        let [.., apart] = sent(&card, Bytes(512)).unwrap_or_default();
        assert_eq!(apart - whole, 36.0 + 20.0);
    }

    #[test]
    fn an_adapter_on_another_bus_has_no_such_figures() {
        assert_eq!(throughput(&cim(), Bytes(512)), None);
    }
}
