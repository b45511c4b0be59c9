//! Internet formats, tested with a real capture and as properties.

use lastmeter_wire::capture::Reader;
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::internet::tcp::{Flags, Segment, TcpOption};
use lastmeter_wire::internet::{arp, ethernet, icmp, ipv4, ipv6, protocol, tcp, udp};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const MIXED: &[u8] = include_bytes!("../../../examples/captures/mixed.pcapng");

#[test]
fn reads_every_packet_of_the_example_capture_as_tshark_does() {
    let (mut tcp_count, mut udp_count, mut icmp_count, mut v6_count) = (0, 0, 0, 0);
    let (mut whole, mut with_timestamps, mut syns) = (0, 0, 0);
    for record in Reader::open(MIXED).unwrap() {
        let record = record.unwrap();
        let frame = ethernet::Frame::parse(&record.data).unwrap();
        if frame.header.ethertype == ethernet::ETHERTYPE_IPV6 {
            let packet = ipv6::Packet::parse_start(frame.payload).unwrap();
            let upper = packet.upper().unwrap();
            assert_eq!(upper.protocol, protocol::ICMPV6);
            assert_eq!(packet.payload_len as u64 + 54, record.len_on_wire.0);
            if upper.payload.len() == packet.payload_len {
                let (src, dst) = (packet.header.src, packet.header.dst);
                let len = upper.payload.len() as u32;
                let pseudo = Sum::ipv6(src, dst, protocol::ICMPV6, len);
                assert!(icmp::Message::parse(upper.payload, pseudo).is_ok());
            }
            v6_count += 1;
            continue;
        }
        let packet = ipv4::Packet::parse_start(frame.payload).unwrap();
        assert_eq!(packet.total_len() as u64 + 14, record.len_on_wire.0);
        let complete = packet.payload.len() + 20 == packet.total_len();
        let (src, dst) = (packet.src(), packet.dst());
        let pseudo = |len| Sum::ipv4(src, dst, packet.header().protocol, len);
        let len = packet.payload.len() as u16;
        match packet.header().protocol {
            protocol::TCP => {
                let segment = Segment::parse(packet.payload).unwrap();
                let options: Vec<TcpOption> = segment.options().map(Result::unwrap).collect();
                let timestamps =
                    |option: &TcpOption| matches!(option, TcpOption::Timestamps { .. });
                with_timestamps += usize::from(options.iter().any(timestamps));
                syns += usize::from(segment.header.flags.contains(Flags::SYN));
                if complete {
                    assert!(segment.is_intact(pseudo(len)));
                    whole += 1;
                }
                tcp_count += 1;
            }
            protocol::UDP => {
                let datagram = udp::Datagram::parse_start(packet.payload).unwrap();
                if complete {
                    assert!(datagram.is_intact(pseudo(len)));
                }
                udp_count += 1;
            }
            protocol::ICMP => icmp_count += 1,
            other => panic!("protocol {other}"),
        }
        let header = packet.header();
        let mut again = Vec::new();
        let payload_len = packet.total_len() - 20;
        header.emit(payload_len, &mut again).unwrap();
        assert_eq!(again, frame.payload[..20], "emitted as by Linux");
    }
    assert_eq!((tcp_count, udp_count, icmp_count, v6_count), (715, 125, 6, 9));
    // Nine connections; of all segments, only 26 resets have no timestamps.
    assert_eq!((syns, with_timestamps), (18, 689));
    assert!(whole > 200);
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..200)
}
fn option() -> impl Strategy<Value = TcpOption> {
    prop_oneof![
        any::<u16>().prop_map(TcpOption::MaximumSegment),
        any::<u8>().prop_map(TcpOption::WindowScale),
        Just(TcpOption::SackPermitted),
        any::<(u32, u32)>().prop_map(|(value, echo)| TcpOption::Timestamps { value, echo }),
        any::<[(u32, u32); 2]>()
            .prop_map(|[a, b]| TcpOption::Sack { blocks: [a, b, (0, 0), (0, 0)], count: 2 }),
    ]
}

proptest! {
    #[test]
    fn ipv4_parses_what_it_emits(
        src: [u8; 4], dst: [u8; 4], bits: (u8, u16, bool, bool), offset in 0u16..0x2000,
        hops in 2u8.., options in proptest::collection::vec(any::<u8>(), 0..=40), data in payload(),
    ) {
        let (traffic_class, identification, dont_fragment, more_fragments) = bits;
        let header = ipv4::Header {
            traffic_class, identification, dont_fragment, more_fragments, fragment_offset: offset,
            time_to_live: hops, protocol: 6, src: src.into(), dst: dst.into(),
        };
        let mut bytes = Vec::new();
        header.emit_with_options(&options, data.len(), &mut bytes).unwrap();
        bytes.extend(&data);
        let packet = ipv4::Packet::parse(&bytes).unwrap();
        prop_assert_eq!(packet.header(), header);
        prop_assert_eq!(packet.payload, &data);
        prop_assert!(packet.options.starts_with(&options));
        prop_assert_eq!(packet.is_fragment(), more_fragments || offset > 0);
        // A truncated packet is refused as a whole and can be parsed as a start.
        let short = &bytes[..bytes.len() - data.len().min(1)];
        prop_assert_eq!(ipv4::Packet::parse(short).is_ok(), data.is_empty());
        prop_assert!(ipv4::Packet::parse_start(short).is_ok());
        ipv4::forward(&mut bytes).unwrap();
        let forwarded = ipv4::Packet::parse(&bytes).unwrap().header();
        prop_assert_eq!(forwarded, ipv4::Header { time_to_live: hops - 1, ..header });
    }

    #[test]
    fn tcp_parses_what_it_emits(
        ports: (u16, u16), numbers: (u32, u32), bits: (u8, u16, u16),
        options in proptest::collection::vec(option(), 0..3), data in payload(), flip: prop::sample::Index,
    ) {
        let header = tcp::Header {
            src: ports.0, dst: ports.1, sequence: numbers.0, acknowledgement: numbers.1,
            flags: Flags(bits.0), window: bits.1, urgent: bits.2,
        };
        let pseudo = |len| Sum::ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST, 6, len);
        let mut bytes = header.emit(&options, &data, pseudo).unwrap();
        let len = bytes.len() as u16;
        let segment = Segment::parse(&bytes).unwrap();
        prop_assert_eq!(segment.header, header);
        prop_assert_eq!(segment.payload, &data);
        prop_assert!(segment.options().eq(options.into_iter().map(Ok)));
        prop_assert!(segment.is_intact(pseudo(len)));
        let at = flip.index(bytes.len());
        bytes[at] ^= 0x10;
        let damaged = Segment::parse(&bytes);
        prop_assert!(damaged.is_err() || !damaged.unwrap().is_intact(pseudo(len)));
    }

    #[test]
    fn arp_udp_and_ipv6_parse_what_they_emit(
        hardware: [u8; 12], addresses: [u8; 8], ports: (u16, u16), data in payload(), label in 0u32..0x10_0000,
    ) {
        let [s @ .., t0, t1, t2, t3] = addresses;
        let [h @ .., k0, k1, k2, k3, k4, k5] = hardware;
        let target = ([k0, k1, k2, k3, k4, k5], [t0, t1, t2, t3].into());
        let packet = arp::Packet { operation: 2, sender: (h, s.into()), target };
        prop_assert_eq!(arp::Packet::parse(&packet.emit()).unwrap(), packet);

        let pseudo = |len| Sum::ipv4(s.into(), [t0, t1, t2, t3].into(), 17, len);
        let bytes = udp::emit(ports.0, ports.1, &data, pseudo).unwrap();
        let datagram = udp::Datagram::parse(&bytes).unwrap();
        prop_assert!(datagram.is_intact(pseudo(datagram.len)));
        prop_assert_eq!((datagram.src, datagram.dst, datagram.payload), (ports.0, ports.1, &data[..]));
        prop_assert!(datagram.checksum != 0);

        let src = Ipv4Addr::from(s).to_ipv6_mapped();
        let header = ipv6::Header { flow_label: label, ..ipv6::Header::new(src, src, 17) };
        let bytes = [&header.emit(data.len()).unwrap()[..], &data].concat();
        let packet = ipv6::Packet::parse(&bytes).unwrap();
        prop_assert_eq!((packet.header, packet.payload), (header, &data[..]));
    }
}

#[test]
fn parses_a_limited_number_of_vlan_tags() {
    let header = |tags| ethernet::Header { dst: [1; 6], src: [2; 6], tags, ethertype: 0x0800 };
    for count in 0..=ethernet::TAGS_MAX {
        let mut bytes = Vec::new();
        header(vec![7; count]).emit(&mut bytes).unwrap();
        assert_eq!(ethernet::Frame::parse(&bytes).unwrap().header.tags.len(), count);
        assert_eq!(bytes.len(), 14 + 4 * count);
    }
    assert!(header(vec![7; 5]).emit(&mut Vec::new()).is_err());
    let five = [&[0; 12][..], &[0x81, 0, 0, 1].repeat(5), &[8, 0]].concat();
    assert!(ethernet::Frame::parse(&five).is_err());
}

#[test]
fn skips_extension_headers_up_to_a_limit() {
    let packet = |count: usize| {
        let mut chain: Vec<u8> = Vec::new();
        for at in 0..count {
            chain.extend([if at + 1 == count { 17 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
        }
        chain.extend(b"udp");
        let address = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        let first = if count == 0 { 17 } else { 60 };
        let header = ipv6::Header::new(address, address, first);
        [&header.emit(chain.len()).unwrap()[..], &chain].concat()
    };
    for count in 0..=ipv6::EXTENSIONS_MAX {
        let bytes = packet(count);
        let upper = ipv6::Packet::parse(&bytes).unwrap().upper().unwrap();
        assert_eq!((upper.protocol, upper.payload), (17, &b"udp"[..]));
    }
    assert!(ipv6::Packet::parse(&packet(9)).unwrap().upper().is_err());
}
