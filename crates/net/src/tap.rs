//! A tap: writes passing packets into a capture, and changes nothing.
//!
//! ```text
//! in 0 --> out 0
//!      '-> pcapng, raw IP or Ethernet, nanoseconds of the run's own time
//! ```
//!
//! A modelled packet has a length and no bytes. The capture has an IPv4 and a UDP header of the right
//! length, of which the first bytes are kept: destination 10.0.x.y is node number x.y, source
//! 10.128.x.y is path number x.y, the source port is the flow, and the payload begins with the sequence
//! number in the flow and the content tag. Packets with bytes of their own are written as they are: in a live
//! run they are Ethernet frames, and the others get an Ethernet header without addresses.

use lastmeter_base::{Body, Bytes, Packet};
use lastmeter_engine::{Context, Element, PortId, Report};
use lastmeter_wire::capture::{CaptureError, LinkType, Writer};
use lastmeter_wire::internet::ipv4;
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of bytes kept of a packet: the synthetic headers, sequence number and tag.
const SNAP: Bytes = Bytes(128);
/// The discard port: no reply.
const PORT: u16 = 9;
const PROTOCOL_UDP: u8 = 17;
const HEADERS_LEN: u64 = 28;
/// An Ethernet header without addresses before an IPv4 packet.
const ETHERNET: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x00];

/// Where captures are written.
pub type Output = Box<dyn Write + Send>;

/// Writes passing packets.
pub struct Tap {
    tape: Tape,
    written: u64,
    bytes: Vec<u8>,
}

/// A capture being written, shared with the code that closes it after the run.
#[derive(Clone)]
pub struct Tape {
    state: Arc<Mutex<State>>,
    link_type: LinkType,
}

enum State {
    Writing(Writer<Output>),
    Failed(CaptureError),
    Ended,
}

impl Tape {
    /// A capture with one interface, called `name`: raw IP, or Ethernet where packets have bytes of
    /// their own.
    ///
    /// # Errors
    /// If nothing can be written.
    pub fn begin(output: Output, name: &str, link_type: LinkType) -> Result<Tape, CaptureError> {
        let mut writer = Writer::pcapng(output)?;
        writer.add_interface(link_type, name, SNAP)?;
        Ok(Tape { state: Arc::new(Mutex::new(State::Writing(writer))), link_type })
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// What went wrong while it was written.
    pub fn end(&self) -> Result<(), CaptureError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Ended) {
            State::Writing(writer) => writer.finish().map(|_| ()),
            State::Failed(error) => Err(error),
            State::Ended => Ok(()),
        }
    }

    fn write(&self, cx: &Context<'_>, len: Bytes, data: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Writing(writer) = &mut *state
            && let Err(error) = writer.write(cx.now(), 0, len, data)
        {
            *state = State::Failed(error);
        }
    }
}

impl Tap {
    /// A tap that writes to `tape`.
    pub fn new(tape: Tape) -> Tap {
        Tap { tape, written: 0, bytes: Vec::new() }
    }
}

impl Element for Tap {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        match packet.content.is_empty() {
            true => {
                self.bytes.clear();
                if self.tape.link_type == LinkType::ETHERNET {
                    self.bytes.extend(ETHERNET);
                }
                imagine(&packet, &mut self.bytes);
                self.tape.write(cx, packet.len, &self.bytes);
            }
            false => self.tape.write(cx, packet.len, &packet.content),
        }
        self.written += 1;
        cx.send(PortId(0), packet);
    }
    fn timers(&self) -> u32 {
        0
    }
    fn report(&self, out: &mut Report) {
        out.count("captured", self.written);
    }
}

/// Appends the first bytes of a synthetic packet of this length.
pub(crate) fn imagine(packet: &Body, bytes: &mut Vec<u8>) {
    let address = |net: u8, number: u32| Ipv4Addr::new(10, net, (number >> 8) as u8, number as u8);
    let (src, dst) = (address(128, packet.path.0), address(0, packet.destination.0));
    let start = bytes.len();
    let len = packet.len.0.clamp(HEADERS_LEN, u16::MAX.into()) as u16;
    let udp_len = len - ipv4::HEADER_LEN as u16;
    let header = ipv4::Header::new(src, dst, PROTOCOL_UDP);
    header.emit(udp_len.into(), bytes).expect("the length was cut to what fits");
    // No checksum: RFC 768 allows it, and there is no payload to sum.
    for half in [packet.flow.0 as u16, PORT, udp_len, 0] {
        bytes.extend(half.to_be_bytes());
    }
    bytes.extend(packet.seq.to_be_bytes());
    bytes.extend(packet.tag.to_be_bytes());
    bytes.truncate(start + packet.len.0 as usize);
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{FlowId, NodeId, PathId};
    use lastmeter_wire::internet::udp;

    #[test]
    fn a_synthetic_packet_has_the_right_length_and_flow() {
        let mut body = Packet::new(Bytes(1500));
        (body.destination, body.path) = (NodeId(258), PathId(3));
        (body.flow, body.seq) = (FlowId(7), 41);
        let mut bytes = Vec::new();
        imagine(&body, &mut bytes);
        let packet = ipv4::Packet::parse_start(&bytes).unwrap();
        assert_eq!(packet.header().dst, Ipv4Addr::new(10, 0, 1, 2));
        let datagram = udp::Datagram::parse_start(packet.payload).unwrap();
        assert_eq!((datagram.src, datagram.len), (7, 1480));
        assert_eq!(datagram.payload[..8], 41u64.to_be_bytes());
    }

    #[test]
    fn a_packet_too_short_for_headers_keeps_its_length() {
        let mut bytes = Vec::new();
        imagine(&Packet::new(Bytes(5)), &mut bytes);
        assert_eq!(bytes.len(), 5);
    }
}
