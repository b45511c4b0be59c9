//! The camera's formats, as properties.

use lastmeter_wire::camera::cells::{self, Cells};
use lastmeter_wire::camera::h264::{self, NALS_MAX};
use lastmeter_wire::camera::rtp::{Payload, Scan};
use lastmeter_wire::camera::{Carrier, Code, Command, Fared, Format, Piece, Region, Shape, Status};
use lastmeter_wire::requests::{FIELDS_MAX, HEAD_MAX, Item, Transport, parse};
use proptest::prelude::*;

fn command() -> impl Strategy<Value = Command> {
    let region = any::<[u16; 4]>().prop_map(|[x, y, w, h]| Region { x, y, w, h });
    let numbers = any::<(u16, u32, u32, u32, u16, u16, u64)>();
    let shape = any::<(u16, u32, u16, u32, u16)>()
        .prop_map(|(lines, pause, burst, gap, packet)| Shape { lines, pause, burst, gap, packet });
    let code = prop::sample::select(vec![Code::Frames, Code::Rate, Code::Stop, Code::Diagnose]);
    let format = prop::sample::select(vec![Format::Grey, Format::Colour, Format::Jpeg]);
    let token = prop::collection::vec(any::<u8>(), 0..200);
    let fared = any::<[u32; 4]>().prop_map(|[decode, display, rest, lost]| Fared {
        decode,
        display,
        rest,
        lost,
    });
    let carrier = prop::sample::select(vec![Carrier::Datagrams, Carrier::Cells, Carrier::Units]);
    (code, (format, carrier), numbers, region, 0u8..=100, shape, (fared, token)).prop_map(
        |(code, (format, carrier), numbers, region, quality, shape, (fared, token))| {
            let (sequence, session, frames, millihertz, width, height, cookie) = numbers;
            Command {
                code,
                format,
                carrier,
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
                fared,
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
    fn pieces_come_out_of_their_cells_and_a_lost_datagram_costs_its_pieces_only(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3000), 1..6),
        session in any::<u32>(),
        lost in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut sent = Vec::new();
        for piece in &pieces {
            let mut cells = Vec::new();
            cells::segment(session, piece, &mut cells).unwrap();
            sent.extend(cells.chunks(cells::PER_DATAGRAM).map(cells::datagram));
        }
        let lost = lost.map(|at| at.index(sent.len()));
        let (mut receiver, mut got) = (Cells::new(session), Vec::new());
        for (at, datagram) in sent.iter().enumerate() {
            if Some(at) != lost {
                receiver.receive(datagram, |pdu| got.push(pdu.to_vec())).unwrap();
            }
        }
        match lost {
            None => prop_assert_eq!(got, pieces),
            // The piece that lost cells, and the next if the last cell is among them.
            Some(_) => {
                prop_assert!(got.len() + 2 >= pieces.len() && got.len() < pieces.len());
                prop_assert!(got.iter().all(|piece| pieces.contains(piece)));
            }
        }
    }

    #[test]
    fn h264_units_come_out_of_their_packets(
        units in prop::collection::vec(prop::collection::vec(1u8..=255, 2..4000), 1..8),
        most in 64usize..1400,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut units = units;
        // Types of single units.
        units.iter_mut().for_each(|unit| unit[0] = unit[0] & 0x60 | (unit[0] % 23 + 1));
        let mut stream = Vec::new();
        for (at, unit) in units.iter().enumerate() {
            stream.extend(if at % 2 == 0 { &[0, 0, 0, 1][..] } else { &[0, 0, 1] });
            stream.extend(unit);
        }
        // Cut anywhere, as a pipe gives it.
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let (mut splitter, mut got) = (h264::Splitter::default(), Vec::new());
        for pair in at.windows(2) {
            splitter.push(&stream[pair[0]..pair[1]]).unwrap();
            while let Some(unit) = splitter.next() {
                got.push(unit);
            }
        }
        got.extend(splitter.rest());
        prop_assert_eq!(&got, &units);
        for unit in &units {
            let mut joined: Vec<u8> = Vec::new();
            for payload in h264::payloads(unit, most) {
                prop_assert!(payload.len() <= most);
                match h264::open(&payload).unwrap() {
                    h264::Part::Whole(bytes) => joined.extend(bytes),
                    h264::Part::Piece { first, header, bytes } => {
                        if first {
                            joined.push(header);
                        }
                        joined.extend(bytes);
                    }
                }
            }
            prop_assert_eq!(&joined, unit);
        }
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

#[test]
fn a_unit_without_an_end_is_refused() {
    let mut splitter = h264::Splitter::default();
    splitter.push(&[0, 0, 1]).unwrap();
    let block = vec![7; 1 << 20];
    let told = (0..=NALS_MAX >> 20).map(|_| splitter.push(&block)).find(Result::is_err);
    assert!(told.is_some());
}

#[test]
fn cells_of_another_session_are_not_taken() {
    let mut cells = Vec::new();
    cells::segment(1, b"a piece", &mut cells).unwrap();
    let mut other = Cells::new(2);
    other.receive(&cells::datagram(&cells), |_| panic!("another's")).unwrap();
    assert!(Cells::new(1).receive(&[0; 52], |_| {}).is_err());
}
