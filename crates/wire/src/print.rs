//! One line of text per packet, as in a trace or the listing of a capture.
//!
//! Any bytes give a line. If a layer cannot be parsed, the line ends with its error.
//!
//! ```
//! use lastmeter_wire::capture::LinkType;
//! use lastmeter_wire::print::line;
//! let cell = [0, 0, 4, 0xd2, 0x17];
//! assert_eq!(line(LinkType::VUNET, &cell), "VuNet cell: 5 bytes where 56 are needed");
//! ```

use crate::aal::encapsulation::Llc;
use crate::atm::capture::Sunatm;
use crate::atm::vunet::VunetCell;
use crate::atm::{Header, Interface};
use crate::capture::LinkType;
use crate::error::Error;
use crate::internet::{arp, ethernet, ipv4, ipv6, protocol, tcp, udp};
use crate::jetstream;
use std::fmt::Write;

/// The line for a packet of a link type; at most a few hundred characters.
pub fn line(link: LinkType, data: &[u8]) -> String {
    let mut text = String::new();
    let printed = match link {
        LinkType::ETHERNET => ethernet_line(data, &mut text),
        LinkType::RAW => ip_line(data, &mut text),
        LinkType::ATM_RFC1483 => llc_line(data, &mut text),
        LinkType::SUNATM => sunatm_line(data, &mut text),
        LinkType::JETSTREAM => jetstream_line(data, &mut text),
        LinkType::VUNET => vunet_line(data, &mut text),
        other => {
            push(&mut text, format_args!("{other}, {} bytes", data.len()));
            Ok(())
        }
    };
    if let Err(error) = printed {
        push(&mut text, format_args!("{error}"));
    }
    text
}

fn push(text: &mut String, piece: std::fmt::Arguments<'_>) {
    let space = if text.is_empty() { "" } else { " " };
    write!(text, "{space}{piece}").expect("writing to a string does not fail");
}

fn ethernet_line(data: &[u8], text: &mut String) -> Result<(), Error> {
    let frame = ethernet::Frame::parse(data)?;
    for tag in &frame.header.tags {
        push(text, format_args!("vlan {}", tag & 0xfff));
    }
    ethertype_line(frame.header.ethertype, frame.payload, text)
}

fn ethertype_line(ethertype: u16, payload: &[u8], text: &mut String) -> Result<(), Error> {
    match ethertype {
        ethernet::ETHERTYPE_IPV4 | ethernet::ETHERTYPE_IPV6 => return ip_line(payload, text),
        ethernet::ETHERTYPE_ARP => {
            let packet = arp::Packet::parse(payload)?;
            let (asks, answers) = (packet.target.1, packet.sender.1);
            match packet.operation {
                arp::Packet::REQUEST => push(text, format_args!("ARP who has {asks}? {answers}")),
                operation => push(text, format_args!("ARP operation {operation} of {answers}")),
            }
        }
        length if length < ethernet::ETHERTYPE_MIN => {
            push(text, format_args!("802.3 length {length}"));
        }
        other => push(text, format_args!("type {other:04x}, {} bytes", payload.len())),
    }
    Ok(())
}

fn ip_line(data: &[u8], text: &mut String) -> Result<(), Error> {
    if data.first().is_some_and(|first| first >> 4 == 6) {
        let packet = ipv6::Packet::parse_start(data)?;
        push(text, format_args!("{} > {}", packet.header.src, packet.header.dst));
        let upper = packet.upper()?;
        let is_middle = upper.fragment.is_some_and(|(offset, _)| offset > 0);
        let len = packet.payload_len - (packet.payload.len() - upper.payload.len());
        return upper_line(upper.protocol, upper.payload, len, is_middle, text);
    }
    let packet = ipv4::Packet::parse_start(data)?;
    let header = packet.header();
    push(text, format_args!("{} > {}", header.src, header.dst));
    let len = packet.total_len() - ipv4::HEADER_LEN - packet.options.len();
    upper_line(header.protocol, packet.payload, len, header.fragment_offset > 0, text)
}

/// `len` is the length on the wire; `payload` may be only the start.
fn upper_line(
    number: u8,
    payload: &[u8],
    len: usize,
    is_middle: bool,
    text: &mut String,
) -> Result<(), Error> {
    match number {
        _ if is_middle => push(text, format_args!("fragment of protocol {number}, {len} bytes")),
        protocol::TCP => {
            let segment = tcp::Segment::parse(payload)?;
            let header = segment.header;
            let (data, window) = (len - (payload.len() - segment.payload.len()), header.window);
            push(text, format_args!("TCP {} > {} {}", header.src, header.dst, header.flags));
            push(text, format_args!("seq {} ack {}", header.sequence, header.acknowledgement));
            push(text, format_args!("win {window} len {data}"));
        }
        protocol::UDP => {
            let datagram = udp::Datagram::parse_start(payload)?;
            let data = usize::from(datagram.len) - udp::HEADER_LEN;
            push(text, format_args!("UDP {} > {} len {data}", datagram.src, datagram.dst));
        }
        protocol::ICMP | protocol::ICMPV6 => {
            let kind = payload.first().copied().unwrap_or(0);
            push(text, format_args!("ICMP type {kind} len {len}"));
        }
        other => push(text, format_args!("protocol {other} len {len}")),
    }
    Ok(())
}

fn llc_line(data: &[u8], text: &mut String) -> Result<(), Error> {
    match Llc::parse(data)? {
        (Llc::Routed(ethertype), packet) => ethertype_line(ethertype, packet, text),
        (Llc::Bridged { .. }, frame) => ethernet_line(frame, text),
        (other, packet) => {
            push(text, format_args!("{other:?}, {} bytes", packet.len()));
            Ok(())
        }
    }
}

fn sunatm_line(data: &[u8], text: &mut String) -> Result<(), Error> {
    let (header, payload) = Sunatm::parse(data)?;
    push(text, format_args!("VPI {} VCI {}", header.circuit.vpi, header.circuit.vci));
    llc_line(payload, text)
}

fn vunet_line(data: &[u8], text: &mut String) -> Result<(), Error> {
    let (cell, _) = VunetCell::parse(data)?;
    let header = Header::parse(cell.header_bytes(), Interface::Uni);
    push(text, format_args!("VPI {} VCI {}", header.circuit.vpi, header.circuit.vci));
    push(text, format_args!("{:?}", header.payload_type));
    Ok(())
}

fn jetstream_line(data: &[u8], text: &mut String) -> Result<(), Error> {
    let (header, _) = jetstream::Header::parse(data)?;
    push(text, format_args!("RID {}", header.src));
    match header.kind {
        jetstream::Kind::Token => push(text, format_args!("token")),
        jetstream::Kind::RingUp => {
            push(text, format_args!("RING_UP {}", jetstream::parse_ring_up(data)?));
        }
        jetstream::Kind::Data => {
            let frame = jetstream::Frame::parse(data)?;
            let circuit = Header::parse(frame.bisdn, Interface::Uni).circuit;
            push(text, format_args!("VPI {} VCI {}", circuit.vpi, circuit.vci));
            push(text, format_args!("PDU of {} bytes", frame.pdu.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Reader;

    #[test]
    fn prints_the_packets_of_the_example_capture() {
        let file = include_bytes!("../../../examples/captures/mixed.pcapng");
        let lines: Vec<String> = Reader::open(&file[..])
            .unwrap()
            .map(|record| line(LinkType::ETHERNET, &record.unwrap().data))
            .collect();
        let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
        assert_eq!((count(" TCP "), count(" UDP "), count(" ICMP ")), (715, 125, 15));
        assert_eq!(count("needed") + count("allowed"), 0, "no packet is malformed");
        let first = &lines[0];
        assert!(first.starts_with("10.77.0.1 > 10.77.0.2 TCP 34714 > 5201 SYN seq "), "{first}");
        assert!(first.ends_with(" len 0"), "{first}");
        assert_eq!(count(" len 1448"), 420, "full segments, as tshark counts them");
    }
}
