//! The camera's formats, as properties.

use lastmeter_wire::camera::rtp::{Payload, Scan};
use lastmeter_wire::camera::text::{FIELDS_MAX, HEAD_MAX, Item, Transport, parse};
use lastmeter_wire::camera::{Code, Command, Format, Piece, Region, Shape, Status};
use proptest::prelude::*;

fn command() -> impl Strategy<Value = Command> {
    let region = any::<[u16; 4]>().prop_map(|[x, y, w, h]| Region { x, y, w, h });
    let numbers = any::<(u16, u32, u32, u32, u16, u16, u64)>();
    let shape = any::<(u16, u32, u16, u32, u16)>()
        .prop_map(|(lines, pause, burst, gap, packet)| Shape { lines, pause, burst, gap, packet });
    let code = prop::sample::select(vec![Code::Frames, Code::Rate, Code::Stop, Code::Diagnose]);
    let format = prop::sample::select(vec![Format::Grey, Format::Colour, Format::Jpeg]);
    let token = prop::collection::vec(any::<u8>(), 0..200);
    (code, format, numbers, region, 0u8..=100, shape, token).prop_map(
        |(code, format, numbers, region, quality, shape, token)| {
            let (sequence, session, frames, millihertz, width, height, cookie) = numbers;
            Command {
                code,
                format,
                sequence,
                session,
                frames,
                millihertz,
                region,
                width,
                height,
                quality,
                shape,
                cookie,
                token,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_command_comes_back(command in command()) {
        let bytes = command.emit().unwrap();
        prop_assert_eq!(Command::parse(&bytes), Ok(command));
        prop_assert!(Command::parse(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_piece_comes_back_and_damage_is_seen(
        data in prop::collection::vec(any::<u8>(), 0..1400),
        (frame, clock, session) in any::<(u32, u64, u32)>(),
        (at, bit) in (any::<prop::sample::Index>(), 0u8..8),
    ) {
        let piece = Piece {
            status: Status::Frame, format: Format::Grey, sequence: 3, session, frame, clock,
            width: 640, height: 480, length: 640 * 480, offset: 1400, skipped: 1, corner: (4, 5),
            receivers: 2, quality: 80, made: 900,
        };
        let mut bytes = Vec::new();
        piece.emit(&data, &mut bytes);
        prop_assert_eq!(Piece::parse(&bytes), Ok((piece, &data[..])));
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(Piece::parse(&bytes).is_err(), "byte {}", at);
    }

    #[test]
    fn a_scan_comes_out_of_its_packets(
        scan in prop::collection::vec(any::<u8>(), 1..5000),
        (w, h) in (1u16..=255, 1u16..=255),
        most in 150usize..1500,
        kind in 0u8..=1,
    ) {
        // A scan's own bytes do not end like the picture.
        prop_assume!(!scan.ends_with(&[0xff, 0xd9]));
        let mut jpeg = vec![0xff, 0xd8, 0xff, 0xdb, 0, 132];
        for table in 0..2u8 {
            jpeg.push(table);
            jpeg.extend((1..=64).map(|at: u8| at + table));
        }
        let sampling = if kind == 0 { 0x21 } else { 0x22 };
        jpeg.extend([0xff, 0xc0, 0, 17, 8]);
        jpeg.extend((h * 8).to_be_bytes());
        jpeg.extend((w * 8).to_be_bytes());
        jpeg.extend([3, 1, sampling, 0, 2, 0x11, 1, 3, 0x11, 1]);
        jpeg.extend([0xff, 0xda, 0, 12, 3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]);
        jpeg.extend(&scan);
        jpeg.extend([0xff, 0xd9]);
        let parsed = Scan::of(&jpeg).unwrap();
        prop_assert_eq!((parsed.kind, parsed.width, parsed.height), (kind, w * 8, h * 8));
        let mut got: Vec<u8> = Vec::new();
        let mut last = false;
        for (bytes, is_last) in parsed.payloads(most) {
            prop_assert!(!last && bytes.len() <= most);
            let payload = Payload::parse(&bytes).unwrap();
            prop_assert_eq!(payload.offset as usize, got.len());
            prop_assert_eq!(payload.tables.len(), if got.is_empty() { 128 } else { 0 });
            got.extend(payload.data);
            last = is_last;
        }
        prop_assert!(last);
        prop_assert_eq!(got, scan);
    }

    #[test]
    fn text_is_parsed_as_it_comes(cut in 0usize..58) {
        let bytes = b"SETUP rtsp://a/b RTSP/1.0\r\nCSeq: 3\r\nTransport: RTP/AVP\r\n\r\n";
        prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
        let Ok(Some((Item::Request(request), len))) = parse(bytes) else { panic!("complete") };
        prop_assert_eq!((request.header("TRANSPORT"), len), (Some("RTP/AVP"), bytes.len()));
    }
}

#[test]
fn long_heads_are_refused() {
    assert!(parse(&vec![b'a'; HEAD_MAX]).is_err());
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1));
    assert!(parse(many.as_bytes()).is_err());
    assert!(parse(b"GET / HTTP/1.1\r\ncontent-length: 99999\r\n\r\n").is_err());
    assert!(parse(b"GET  / HTTP/1.1\r\n\r\n").is_err());
}

#[test]
fn transports_are_chosen() {
    let choose = Transport::choose;
    assert_eq!(choose("RTP/AVP/TCP;unicast;interleaved=2-3"), Some(Transport::Interleaved(2)));
    assert_eq!(
        choose("RTP/AVP;multicast, RTP/AVP;unicast;client_port=5000-5001"),
        Some(Transport::Udp(5000))
    );
    assert_eq!(choose("RTP/AVP;unicast"), None);
    assert_eq!(choose("RTP/SAVP;unicast;client_port=5000-5001"), None);
}
