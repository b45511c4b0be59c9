//! Entry points for fuzzing: any bytes in, no panic, and parse and emit round-trip.
//!
//! Every function takes one input and asserts its invariants: lengths, balances, memory bounds, and that parsing
//! the emitted bytes gives the same value. The `fuzz` folder runs them with mutations of a corpus or under a
//! coverage-guided fuzzer; a test runs some thousand inputs for each.

use crate::aal::reassembly::{self, CircuitOptions, Reassembler};
use crate::aal::{aal5, aal34, encapsulation, vidboard};
use crate::atm::capture::Sunatm;
use crate::atm::delineation::{Delineator, Options, Slide};
use crate::atm::vunet::VunetCell;
use crate::atm::{CELL_LEN, Cell, Circuit, Interface, PAYLOAD_LEN};
use crate::capture::{INTERFACES_MAX, LinkType, RECORD_LEN_MAX, Reader, Record};
use crate::control;
use crate::internet::checksum::{self, Sum};
use crate::internet::embedded::Embedded;
use crate::internet::{arp, ethernet, icmp, ipv4, ipv6, protocol, tcp, udp};
use crate::routes::{self, ROUTES_MAX, Routes};
use crate::{atp, dtp, jetstream, myrinet, netlink, token, wave};
use lastmeter_base::{Bytes, Duration, Stream, Time};

mod audio;
mod camera;
mod display;
mod storage;
pub use audio::{fuzz_rtp, fuzz_rtsp_answer, fuzz_sdp, fuzz_wav};
pub use camera::{
    fuzz_camera, fuzz_camera_cells, fuzz_camera_h264, fuzz_camera_rtp, fuzz_camera_text, fuzz_dns,
};
pub use display::{fuzz_rfb, fuzz_websocket};
pub use storage::{fuzz_certificate, fuzz_iscsi, fuzz_nbd, fuzz_scsi, fuzz_ticket};

/// One entry point.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and the folder of its corpus.
    pub name: &'static str,
    /// Takes one input.
    pub run: fn(&[u8]),
}

impl Target {
    /// Runs it on each member of a corpus, and on this many mutations of them, the same each time.
    pub fn try_mutations(&self, corpus: &[Vec<u8>], count: u64) {
        corpus.iter().for_each(|member| (self.run)(member));
        let (mut random, mut input) = (Stream::new(0, self.name), Vec::new());
        for _ in 0..count {
            mutate(&mut random, corpus, &mut input);
            (self.run)(&input);
        }
    }
}

/// The longest input that [`mutate`] makes.
pub const INPUT_LEN_MAX: usize = 4096;

macro_rules! targets {
    ($($run:ident),* $(,)?) => {
        /// All of them.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($run), run: $run }),*];
    };
}

targets!(
    fuzz_capture,
    fuzz_cell,
    fuzz_delineation,
    fuzz_sunatm,
    fuzz_aal5,
    fuzz_reassembly,
    fuzz_aal34,
    fuzz_vidboard,
    fuzz_encapsulation,
    fuzz_jetstream,
    fuzz_control_vunet,
    fuzz_control_vidboard,
    fuzz_control_der,
    fuzz_control_dq,
    fuzz_dns,
    fuzz_dtp,
    fuzz_atp,
    fuzz_myrinet,
    fuzz_nbd,
    fuzz_iscsi,
    fuzz_scsi,
    fuzz_ticket,
    fuzz_certificate,
    fuzz_camera,
    fuzz_camera_cells,
    fuzz_camera_h264,
    fuzz_camera_rtp,
    fuzz_camera_text,
    fuzz_rtp,
    fuzz_rtsp_answer,
    fuzz_sdp,
    fuzz_wav,
    fuzz_netlink,
    fuzz_rfb,
    fuzz_token,
    fuzz_wave,
    fuzz_websocket,
    fuzz_ethernet,
    fuzz_arp,
    fuzz_ipv4,
    fuzz_ipv6,
    fuzz_udp,
    fuzz_icmp,
    fuzz_tcp,
    fuzz_checksum,
    fuzz_print,
    fuzz_routes,
);

/// Turns `input` into a mutation of one member of `corpus`, or of noise if that is empty: bits flipped, bytes and
/// lengths replaced, parts cut, repeated or taken from another member.
pub fn mutate(random: &mut Stream, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    const TELLING: [u8; 8] = [0, 1, 0x7f, 0x80, 0xfe, 0xff, 0x30, 0x40];
    input.clear();
    let pick = |random: &mut Stream| {
        let at = random.below(corpus.len().max(1) as u64) as usize;
        corpus.get(at).map_or(&[][..], Vec::as_slice)
    };
    input.extend_from_slice(pick(random));
    for _ in 0..1 + random.below(4) {
        let len = input.len() as u64;
        let at = random.below(len.max(1)) as usize;
        match random.below(8) {
            0 | 1 if len > 0 => input[at] ^= 1 << random.below(8),
            2 if len > 0 => input[at] = random.bits() as u8,
            3 if len > 0 => input[at] = TELLING[random.below(8) as usize],
            4 if len > 0 => input.truncate(at),
            5 if len > 0 => {
                let end = (at + 1 + random.below(64) as usize).min(input.len());
                input.extend_from_within(at..end);
            }
            6 => {
                let other = pick(random);
                let from = random.below(other.len().max(1) as u64) as usize;
                input.truncate(at);
                input.extend_from_slice(other.get(from..).unwrap_or(&[]));
            }
            _ => input.extend((0..random.below(16)).map(|_| random.bits() as u8)),
        }
        input.truncate(INPUT_LEN_MAX);
    }
}

/// Captures of both forms.
pub fn fuzz_capture(data: &[u8]) {
    let Ok(mut reader) = Reader::open(data) else { return };
    let mut record = Record::default();
    while let Ok(true) = reader.read(&mut record) {
        assert!(record.data.capacity() <= 2 * RECORD_LEN_MAX.min(data.len()).max(64));
        assert!(record.len_on_wire >= Bytes(record.data.len() as u64));
        assert!((record.interface as usize) < reader.interfaces().len());
    }
    assert!(reader.interfaces().len() <= INTERFACES_MAX);
    assert_eq!(reader.read(&mut record).ok(), Some(false), "an error ends the file");
}

/// Cells, their headers and their VuNet form.
pub fn fuzz_cell(data: &[u8]) {
    let Ok((cell, rest)) = Cell::parse(data) else { return };
    assert_eq!(rest.len() + CELL_LEN, data.len());
    for at in [Interface::Uni, Interface::Nni] {
        let header = cell.header(at);
        assert_eq!(header.emit(at), Ok(cell.header_bytes()));
        let _ = cell.kind(at);
    }
    assert_eq!(VunetCell::from_atm(&cell).to_atm(), cell);
    if let Ok((mut cell, _)) = VunetCell::parse(data) {
        cell.rewrite_vci(77);
        assert_eq!(cell.vci(), 77);
    }
}

/// Cell delineation on a line.
pub fn fuzz_delineation(data: &[u8]) {
    for slide in [Slide::Bit, Slide::Byte] {
        let mut delineator = Delineator::new(Options { slide, ..Options::I_432 });
        let mut cells = 0;
        delineator.receive(data, |cell| {
            assert!(cell.is_intact());
            cells += 1;
        });
        assert!(cells * CELL_LEN <= data.len());
    }
}

/// SunATM records.
pub fn fuzz_sunatm(data: &[u8]) {
    if let Ok((header, payload)) = Sunatm::parse(data) {
        let bytes = header.emit().expect("a parsed value fits");
        assert_eq!(Sunatm::parse(&[&bytes[..], payload].concat()), Ok((header, payload)));
    }
}

/// AAL5 PDUs.
pub fn fuzz_aal5(data: &[u8]) {
    if let Ok(pdu) = aal5::parse(data) {
        assert_eq!(aal5::cells(pdu.payload.len()) * PAYLOAD_LEN, data.len());
    }
    if let Ok(pdu) = aal5::emit(data, 3) {
        let parsed = aal5::parse(&pdu).expect("emitted bytes parse");
        assert_eq!((parsed.payload, parsed.user), (data, 3));
    }
}

/// Cells of four circuits in any order: 49 bytes each; the first byte selects header and time.
pub fn fuzz_reassembly(data: &[u8]) {
    let options = reassembly::Options {
        interface: Interface::Uni,
        timeout: Duration::from_ms(1),
        memory: Bytes(2048),
        circuits_max: 4,
    };
    let mut reassembler = Reassembler::new(options);
    for vci in 0..4 {
        let payload_max = 40 << vci;
        let deliver_faulty = vci == 3;
        let options = CircuitOptions { payload_max, deliver_faulty, ..CircuitOptions::AAL5 };
        reassembler.open(Circuit { vpi: 0, vci: 32 + vci }, options).expect("four may be open");
    }
    let bound = reassembler.memory_bound();
    let mut now = Time::START;
    let (chunks, _) = data.as_chunks::<{ PAYLOAD_LEN + 1 }>();
    for [control, payload @ ..] in chunks {
        let vci = 32 + u16::from(control & 7) % 5;
        let word = u32::from(vci) << 4 | u32::from(control >> 3 & 7) << 1;
        now += Duration::from_us(u64::from(control >> 6) * 300);
        let header = word.to_be_bytes();
        if control & 0x80 == 0 {
            let _ = reassembler.receive(now, &Cell::with_header(header, payload));
        } else {
            let _ = reassembler.receive_unchecked(now, header, payload);
        }
        reassembler.expire(now);
        assert!(reassembler.counts().balances());
        assert!(reassembler.memory() <= bound);
    }
}

/// Cells of AAL3/4, 48 bytes each; every other one gets a correct CRC, so that it is parsed further.
pub fn fuzz_aal34(data: &[u8]) {
    let options =
        aal34::Options { payload_max: 500, partials_max: 3, timeout: Duration::from_us(20) };
    let mut reassembler = aal34::Reassembler::new(options);
    let circuit = Circuit { vpi: 0, vci: 32 };
    let mut now = Time::START;
    for (at, chunk) in data.as_chunks::<PAYLOAD_LEN>().0.iter().enumerate() {
        let mut payload = *chunk;
        if at % 2 == 0 {
            crate::crc::seal10(&mut payload);
        }
        if let Ok(sar) = aal34::Sar::parse(&payload) {
            assert_eq!(sar.emit(), payload);
        }
        now += Duration::from_us(1);
        if let aal34::Event::Packet(packet) = reassembler.receive(now, circuit, &payload) {
            assert!(packet.len() <= options.payload_max);
        }
        reassembler.expire(now);
        let lost: u64 = reassembler.lost.values().sum();
        assert_eq!(reassembler.received, reassembler.delivered + reassembler.held() + lost);
        assert!(reassembler.memory() <= reassembler.memory_bound());
    }
}

/// The Vidboard's PDUs and frame headers.
pub fn fuzz_vidboard(data: &[u8]) {
    let _ = vidboard::parse(data);
    if let Ok(pdu) = vidboard::emit(data, 1) {
        assert_eq!(vidboard::parse(&pdu).map(|pdu| pdu.payload), Ok(data));
    }
    if let Ok((header, pixels)) = vidboard::FrameHeader::parse(data) {
        assert_eq!([&header.emit()[..], pixels].concat(), data);
    }
}

/// LLC/SNAP.
pub fn fuzz_encapsulation(data: &[u8]) {
    use encapsulation::{Llc, Multiplexed};
    if let Ok((llc, packet)) = Llc::parse(data) {
        let mut bytes = Vec::new();
        llc.emit(&mut bytes);
        bytes.extend(packet);
        assert_eq!(Llc::parse(&bytes), Ok((llc, packet)));
        assert_eq!(bytes.len(), data.len());
    }
    let _ = Multiplexed::Bridged.parse(data);
}

/// Jetstream's frames, and conversion between them and ATM.
pub fn fuzz_jetstream(data: &[u8]) {
    let _ = jetstream::parse_ring_up(data);
    let Ok(frame) = jetstream::Frame::parse(data) else { return };
    assert_eq!(frame.emit().as_deref(), Ok(data));
    let _ = frame.appended_crc();
    let mut cells = Vec::new();
    if jetstream::to_atm(&frame, &mut cells).is_ok() {
        assert_eq!(cells.len() * PAYLOAD_LEN, frame.pdu.len());
        let sent: Vec<u8> = cells.iter().flat_map(|cell| *cell.payload()).collect();
        assert_eq!(sent, frame.pdu);
    }
}

/// VuNet's control cells.
pub fn fuzz_control_vunet(data: &[u8]) {
    let Some(payload) = data.first_chunk::<PAYLOAD_LEN>() else { return };
    if let Ok(control) = control::vunet::Control::parse(payload) {
        assert!(control.entries.len() <= control::vunet::ENTRIES_MAX);
        assert_eq!(control.emit().as_ref(), Ok(payload));
    }
}

/// The Vidboard's command cells.
pub fn fuzz_control_vidboard(data: &[u8]) {
    let Some(payload) = data.first_chunk::<PAYLOAD_LEN>() else { return };
    if let Ok(command) = control::vidboard::Command::parse(payload) {
        assert_eq!(command.emit(), *payload);
    }
}

/// The router's messages and control cells.
pub fn fuzz_control_der(data: &[u8]) {
    if let Ok(message) = control::der::Message::parse(data) {
        assert_eq!(message.emit().as_deref(), Ok(data));
    }
    let Some(payload) = data.first_chunk::<PAYLOAD_LEN>() else { return };
    if let Ok(cell) = control::der::ControlCell::parse(payload) {
        assert_eq!(cell.emit(), *payload);
    }
}

/// Cells of backlogs.
pub fn fuzz_control_dq(data: &[u8]) {
    let Some(payload) = data.first_chunk::<PAYLOAD_LEN>() else { return };
    if let Ok(told) = control::dq::Backlogs::parse(payload) {
        assert_eq!(told.emit(), *payload);
    }
}

/// DTP.
pub fn fuzz_dtp(data: &[u8]) {
    if let Ok(packet) = dtp::Packet::parse(data) {
        let bytes = packet.emit().expect("a parsed value fits");
        assert_eq!(bytes, data[..bytes.len()]);
    }
}

/// Wave Video's packets.
pub fn fuzz_wave(data: &[u8]) {
    if let Ok(packet) = wave::Packet::parse(data) {
        assert_eq!(packet.emit().as_deref(), Ok(data));
    }
}

/// ATP.
pub fn fuzz_atp(data: &[u8]) {
    if let Ok(segment) = atp::Segment::parse(data) {
        let bytes = segment.emit().expect("a parsed value fits");
        assert_eq!(bytes, data[..bytes.len()]);
        let _ = segment.is_last();
    }
}

/// Myrinet packets on their way through switches.
pub fn fuzz_myrinet(data: &[u8]) {
    let mut packet = data.to_vec();
    let mut port = 3;
    while let Ok(next) = myrinet::hop(&mut packet, port, 8) {
        assert!(next < 8);
        port = next;
    }
    if let Ok(parsed) = myrinet::Packet::parse(&packet) {
        let again = myrinet::emit(&[], parsed.packet_type, parsed.payload);
        assert_eq!(again, Ok(packet.clone()));
    }
}

/// Netlink messages and FPM frames: prefixes have no bits beyond their length, and gateways are few.
pub fn fuzz_netlink(input: &[u8]) {
    let check = |message| {
        if let netlink::Message::Route(_, route) = message {
            assert_eq!(route.prefix, netlink::masked(route.prefix, route.len));
            assert!(route.gateways.len() <= netlink::GATEWAYS_MAX);
        }
    };
    let _ = netlink::each(input, check);
    if let Ok(Some((messages, len))) = netlink::fpm(input) {
        assert_eq!(messages.len() + netlink::FPM_HEADER_LEN, len);
        let _ = netlink::each(messages, check);
    }
}

/// Tokens.
pub fn fuzz_token(data: &[u8]) {
    if let Some(&bytes) = data.first_chunk()
        && let Ok(token) = token::Token::parse(bytes)
    {
        assert_eq!(token.emit(), bytes);
    }
}

/// Ethernet, and whatever it carries.
pub fn fuzz_ethernet(data: &[u8]) {
    let Ok(frame) = ethernet::Frame::parse(data) else { return };
    assert!(frame.header.tags.len() <= ethernet::TAGS_MAX);
    let mut bytes = Vec::new();
    frame.header.emit(&mut bytes).expect("a parsed value fits");
    bytes.extend(frame.payload);
    assert_eq!(ethernet::Frame::parse(&bytes), Ok(frame.clone()));
    match frame.header.ethertype {
        ethernet::ETHERTYPE_ARP => fuzz_arp(frame.payload),
        ethernet::ETHERTYPE_IPV4 => fuzz_ipv4(frame.payload),
        ethernet::ETHERTYPE_IPV6 => fuzz_ipv6(frame.payload),
        _ => {}
    }
}

/// ARP.
pub fn fuzz_arp(data: &[u8]) {
    if let Ok(packet) = arp::Packet::parse(data) {
        assert_eq!(packet.emit(), data[..arp::PACKET_LEN]);
    }
}

/// IPv4, with its checksum corrected so that it is parsed further, and what it carries.
pub fn fuzz_ipv4(data: &[u8]) {
    let _ = ipv4::Packet::parse(data);
    let mut bytes = data.to_vec();
    let header_len = bytes.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    if let Some(header) = bytes.get_mut(..header_len)
        && header_len >= ipv4::HEADER_LEN
    {
        header[10..12].fill(0);
        let checksum = Sum::of(header).checksum();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let Ok(packet) = ipv4::Packet::parse_start(&bytes) else { return };
    let header = packet.header();
    let mut again = Vec::new();
    let payload_len = packet.total_len() - header_len;
    let emitted = header.emit_with_options(packet.options, payload_len, &mut again);
    emitted.expect("a parsed value fits");
    again.extend(packet.payload);
    let again = ipv4::Packet::parse_start(&again).expect("emitted bytes parse");
    assert_eq!(
        (again.header(), again.options, again.payload),
        (header, packet.options, packet.payload)
    );
    assert!(packet.each_option().count() <= ipv4::OPTIONS_LEN_MAX);
    match header.protocol {
        protocol::TCP => fuzz_tcp(packet.payload),
        protocol::UDP => fuzz_udp(packet.payload),
        protocol::ICMP => fuzz_icmp(packet.payload),
        _ => {}
    }
    let mut forwarded = bytes.clone();
    if ipv4::forward(&mut forwarded).is_ok() {
        assert!(ipv4::Packet::parse_start(&forwarded).is_ok(), "the checksum is up to date");
    }
}

/// IPv6, and what it carries.
pub fn fuzz_ipv6(data: &[u8]) {
    let _ = ipv6::Packet::parse(data);
    let Ok(packet) = ipv6::Packet::parse_start(data) else { return };
    let header = packet.header.emit(packet.payload_len).expect("a parsed value fits");
    assert_eq!(header, data[..ipv6::HEADER_LEN]);
    match packet.upper() {
        Ok(upper) if upper.protocol == protocol::TCP => fuzz_tcp(upper.payload),
        Ok(upper) if upper.protocol == protocol::UDP => fuzz_udp(upper.payload),
        Ok(_) | Err(_) => {}
    }
}

/// UDP.
pub fn fuzz_udp(data: &[u8]) {
    let _ = udp::Datagram::parse_start(data);
    let Ok(datagram) = udp::Datagram::parse(data) else { return };
    let _ = datagram.is_intact(Sum::ZERO);
    let bytes = udp::emit(datagram.src, datagram.dst, datagram.payload, |_| Sum::word(7));
    let bytes = bytes.expect("a parsed value fits");
    let again = udp::Datagram::parse(&bytes).expect("emitted bytes parse");
    assert!(again.is_intact(Sum::word(7)));
    assert_eq!(again.payload, datagram.payload);
}

/// ICMP.
pub fn fuzz_icmp(data: &[u8]) {
    let _ = icmp::Message::parse(data, Sum::ZERO);
    if let Some((&[kind, code, _, _, rest @ ..], data)) = data.split_first_chunk::<8>() {
        let message = icmp::Message { kind, code, rest, data };
        assert_eq!(icmp::Message::parse(&message.emit(Sum::ZERO), Sum::ZERO), Ok(message));
    }
}

/// TCP.
pub fn fuzz_tcp(data: &[u8]) {
    let Ok(segment) = tcp::Segment::parse(data) else { return };
    let _ = segment.is_intact(Sum::ZERO);
    let options: Vec<tcp::TcpOption> = segment.options().filter_map(Result::ok).collect();
    assert!(options.len() <= tcp::OPTIONS_LEN_MAX);
    if let Ok(bytes) = segment.header.emit(&options, segment.payload, |_| Sum::word(9)) {
        let again = tcp::Segment::parse(&bytes).expect("emitted bytes parse");
        assert!(again.is_intact(Sum::word(9)));
        assert_eq!((again.header, again.payload), (segment.header, segment.payload));
        assert!(again.options().eq(options.into_iter().map(Ok)));
    }
}

/// The checksum in all its variants.
pub fn fuzz_checksum(data: &[u8]) {
    let whole = Sum::of(data);
    let mut copied = vec![0; data.len()];
    assert_eq!(checksum::copy(data, &mut copied), Ok(whole));
    assert_eq!(copied, data);
    let at = data.first().map_or(0, |&first| usize::from(first) % data.len());
    let (head, tail) = data.split_at(at);
    let parts = Sum::of(head).and_after(at, Sum::of(tail));
    assert_eq!(parts.value() % 0xffff, whole.value() % 0xffff);
    let embedded = Embedded { start: at, insert: at + 2, seed: whole };
    if embedded.transmit(data, &mut copied).is_ok() {
        assert_eq!(copied[..at], data[..at]);
    }
}

/// A line of text for any bytes; the first byte selects the link type.
pub fn fuzz_print(data: &[u8]) {
    const LINKS: [LinkType; 7] = [
        LinkType::ETHERNET,
        LinkType::ATM_RFC1483,
        LinkType::RAW,
        LinkType::SUNATM,
        LinkType::JETSTREAM,
        LinkType::VUNET,
        LinkType::ERF,
    ];
    let Some((&first, data)) = data.split_first() else { return };
    let text = crate::print::line(LINKS[usize::from(first) % LINKS.len()], data);
    assert!(!text.is_empty() && text.len() < 400);
}

/// Routing tables of both formats.
pub fn fuzz_routes(data: &[u8]) {
    match Routes::parse(data) {
        Ok(table) => {
            assert!(table.routes.len() <= data.len().min(ROUTES_MAX));
            assert!(table.next_hops.len() <= table.routes.len());
            assert_eq!(
                routes::text::parse(routes::text::emit(&table).as_bytes()),
                Ok(table.clone())
            );
            let hops = |routes: &Routes| routes.routes.iter().map(|r| r.prefix).collect::<Vec<_>>();
            let dumped =
                routes::mrt::parse(&routes::mrt::emit(&table)).expect("an emitted table parses");
            assert_eq!(hops(&dumped), hops(&table));
        }
        Err(error) => {
            assert!(error.line.is_some() != error.offset.is_some() && error.to_string().len() < 400)
        }
    }
}
