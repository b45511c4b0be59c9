//! The corpus: a few well-formed inputs for every target, emitted by the formats themselves.

use super::corpus_folder;
use lastmeter_base::{Bytes, Time};
use lastmeter_lan::vunet::{control_cell, data_cell, reserve};
use lastmeter_wire::aal::aal5::{self, Segmenter};
use lastmeter_wire::aal::encapsulation::Llc;
use lastmeter_wire::aal::{aal34, vidboard};
use lastmeter_wire::atm::train::{Form, Train};
use lastmeter_wire::atm::{Cell, Circuit, Header, Interface};
use lastmeter_wire::capture::{LinkType, Writer};
use lastmeter_wire::control::{der, dq, reservation, vidboard as command, vunet};
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::internet::{arp, ethernet, icmp, ipv4, ipv6, protocol, tcp, udp};
use lastmeter_wire::iscsi;
use lastmeter_wire::routes::{mrt, text};
use lastmeter_wire::scsi::Sense;
use lastmeter_wire::{
    Error, atp, camera, certificate, dns, dtp, jetstream, myrinet, nbd, rfb, rtp, ticket, token,
    wav, wave, websocket,
};

type Corpus = Vec<(&'static str, Vec<u8>)>;

/// Writes every member into its target's folder.
pub fn write() -> std::io::Result<()> {
    let all = [cells(), captures(), ring(), control(), transports(), internet(), texts(), tables()];
    for (name, bytes) in all.into_iter().flat_map(|part| part.expect("the seeds fit")) {
        let folder = corpus_folder(name);
        std::fs::create_dir_all(&folder)?;
        let number = std::fs::read_dir(&folder)?.count();
        std::fs::write(folder.join(format!("{number:02}")), bytes)?;
    }
    Ok(())
}

/// An iSCSI login's first header.
fn login() -> [u8; iscsi::HEADER_LEN] {
    iscsi::Request::new(iscsi::Ask::login(0, 1, [0x80, 0, 0, 1, 0, 0])).emit()
}

fn header(vci: u16) -> Header {
    Header::data(Circuit { vpi: 0, vci })
}

fn cells() -> Result<Corpus, Error> {
    let mut corpus: Corpus = Vec::new();
    let cell = Cell::new(&header(42), Interface::Uni, &[7; 48])?;
    corpus.push(("fuzz_cell", cell.0.to_vec()));
    corpus.push(("fuzz_cell", [&Cell::IDLE.0[..], &[0; 3]].concat()));
    corpus.push(("fuzz_delineation", vec![Cell::IDLE; 9].iter().flat_map(|cell| cell.0).collect()));
    let slipped = vec![cell; 9].iter().flat_map(|cell| cell.0).skip(11).collect();
    corpus.push(("fuzz_delineation", slipped));
    corpus.push(("fuzz_sunatm", vec![0x82, 0, 0, 42, 0xaa, 0xaa, 3]));
    corpus.push(("fuzz_aal5", aal5::emit(&[0; 40], 0)?));
    corpus.push(("fuzz_aal5", aal5::emit(&[1; 89], 9)?));
    for payload in [&[1u8; 40][..], &[2; 100], &[3; 300]] {
        let mut cells = Vec::new();
        Segmenter::new(&header(42), Interface::Uni)?.segment(payload, 0, &mut cells)?;
        let last = cells.len() - 1;
        let stream = cells.iter().enumerate().flat_map(|(at, cell)| {
            let control = 3 | u8::from(at == last) << 3;
            [&[control][..], cell.payload()].concat()
        });
        corpus.push(("fuzz_reassembly", stream.collect()));
    }
    for (len, mid) in [(10, 1), (100, 2), (300, 1)] {
        corpus.push(("fuzz_aal34", aal34::segment(&vec![5; len], mid, 1, 0)?.concat()));
    }
    corpus.push(("fuzz_vidboard", vidboard::emit(&[9; 64], 0)?));
    let line =
        vidboard::FrameHeader { frame: 1, line: 2, lines: 3, width: 4, depth: 8, timestamp: 5 };
    corpus.push(("fuzz_vidboard", [&line.emit()[..], &[1; 12]].concat()));
    for llc in [Llc::IPV4, Llc::Iso, Llc::Bridged { fcs: true }, Llc::Bpdu] {
        let mut bytes = Vec::new();
        llc.emit(&mut bytes);
        bytes.extend([1, 2, 3]);
        corpus.push(("fuzz_encapsulation", bytes));
    }
    Ok(corpus)
}

fn captures() -> Result<Corpus, Error> {
    let write = || {
        let mut pcap = Writer::pcap(Vec::new(), LinkType::ETHERNET, Bytes(64))?;
        let mut pcapng = Writer::pcapng(Vec::new())?;
        pcapng.add_interface(LinkType::ETHERNET, "a", Bytes(64))?;
        pcapng.add_interface(LinkType::JETSTREAM, "b", Bytes(64))?;
        for at in 0..3 {
            let now = Time::from_ps(at * 1_000_000);
            pcap.write(now, 0, Bytes(60), &[1; 20])?;
            pcapng.write(now, (at % 2) as u32, Bytes(60), &[2; 21])?;
        }
        Ok::<_, lastmeter_wire::capture::CaptureError>([pcap.finish()?, pcapng.finish()?])
    };
    let files = write().expect("memory does not fail");
    Ok(files.into_iter().map(|file| ("fuzz_capture", file)).collect())
}

fn texts() -> Result<Corpus, Error> {
    let table = b"time, rate\n# a comment\n0 s, 10 Mbit/s\n2.5 s, 800 kbit/s\n\n4 s, 0 bit/s\n";
    let rules = "@10.0.0.0/8 192.0.2.1/32 0 : 65535 80 : 81 0x06/0xFF 0x0000/0x0200\n# a remark\n\
        @0.0.0.0/0 0.0.0.0/0 53 : 53 0 : 65535 0x00/0x00\n";
    Ok(vec![
        ("fuzz_classbench", rules.into()),
        ("fuzz_vci_file", b"version 3\nblock 1 first 40 count 3\ntaken 40 by 7\n".to_vec()),
        ("fuzz_mahimahi", b"0\n5\n5\n12\n".to_vec()),
        ("fuzz_mahimahi", b"3\n 40\r\n100000000".to_vec()),
        ("fuzz_vci_file", b"version 3\nblock 2 first 100 count 8\ntaken 101 by 7\n".to_vec()),
        ("fuzz_rate_table", table.to_vec()),
        ("fuzz_rate_table", b"0 s, 1 GB/s\n0.000001 us,12_000 bit/s".to_vec()),
    ])
}

fn ring() -> Result<Corpus, Error> {
    let pdu = aal5::emit(&[4; 100], 0)?;
    let route = myrinet::emit(&[1, -2, 3], 4, b"payload")?;
    Ok(vec![
        ("fuzz_jetstream", jetstream::emit_aal5(3, &header(77), &pdu)?),
        ("fuzz_jetstream", jetstream::from_atm(2, &Cell::IDLE)?),
        ("fuzz_jetstream", jetstream::emit_ring_up(4)?.to_vec()),
        ("fuzz_token", token::Token { restricted: false }.emit().to_vec()),
        ("fuzz_token", token::Token { restricted: true }.emit().to_vec()),
        ("fuzz_myrinet", route),
        ("fuzz_myrinet", myrinet::emit(&[], 4, b"payload")?),
    ])
}

fn control() -> Result<Corpus, Error> {
    let entry = vunet::Entry { vci: 40, new_vci: 41, port: 3, flags: vunet::Entry::VALID };
    let write =
        vunet::Control { op: vunet::Op::Write, sequence: 1, token: 7, entries: vec![entry; 2] };
    let video = command::Command {
        code: command::Code::VideoRequest,
        depth: 8,
        sequence: 1,
        reply_vci: 100,
        width: 640,
        height: 480,
        lines: 16,
        burst: 28,
        burst_delay: 240,
        frame_delay: 70_000,
        mode: command::Mode::OnRequest,
        source: 1,
        crop: (2, 3),
        reply_port: 3,
    };
    let message = der::Message {
        message_type: der::Type::Request,
        operation: der::Operation::FilterAdd,
        port: 1,
        sequence: 2,
        body: b"filter",
    };
    let cell = der::ControlCell {
        operation: 1,
        sequence: 2,
        port: 3,
        len: 4,
        body: [5; der::CELL_BODY_LEN],
    };
    let inputs = [880_000, 0, 0, 0, 0, 0, 0, 0];
    let told = dq::Backlogs { port: 3, sequence: 9, output: 1_760_000, inputs };
    let ports = vec![(2, 1), (3, 0), (0, 4)];
    let path =
        reservation::Message { op: reservation::Op::Path, token: 7, at: 0, label: 40, ports };
    let cells = [
        control_cell(vunet::VCI_CONTROL, 0, &write)?,
        reserve::cell_of(&path, 2)?,
        data_cell(40, 1, true, &[9; 48]),
    ];
    Ok(vec![
        ("fuzz_vunet_link", Train::emit(Form::Vunet, 7, &cells)?),
        ("fuzz_vunet_link", Train::emit(Form::Atm, 8, &cells)?),
        ("fuzz_vunet_link", path.emit()?.to_vec()),
        ("fuzz_control_vunet", write.emit()?.to_vec()),
        ("fuzz_control_vidboard", video.emit().to_vec()),
        ("fuzz_control_der", message.emit()?),
        ("fuzz_control_der", cell.emit().to_vec()),
        ("fuzz_control_dq", told.emit().to_vec()),
    ])
}

fn transports() -> Result<Corpus, Error> {
    let flags = dtp::Flags { request: true, ack: true, ..dtp::Flags::default() };
    let packet = dtp::Packet { src: 1, dst: 2, sequence: 3, acknowledged: 2, flags, data: b"fill" };
    let segment = atp::Segment {
        src: 1,
        dst: 2,
        message: 3,
        offset: 4,
        message_len: 10,
        kind: atp::Kind::Data,
        data: b"abcdef",
    };
    let piece = wave::Packet {
        band: wave::Band::of_priority(3)?,
        frame: 300,
        slice: 1,
        last: false,
        width: 11,
        height: 9,
        row: 4,
        rows: 5,
        step: 2,
        planes: 8,
        floor: 1,
        code: b"code",
    };
    let (flags, command) = (nbd::flag::FUA, nbd::Command::WRITE);
    let request = nbd::Request { flags, command, cookie: 7, offset: 512, length: 4096 };
    let wanted = nbd::Wanted { name: "disk".to_owned(), information: vec![0, 3] };
    let option = nbd::Option { kind: nbd::Kind::GO, length: 14 };
    let copying = ticket::Ticket {
        id: [7; 16],
        expires: 1_900_000_000,
        rate: 0,
        interval: 0,
        source: [1; 32],
        destination: [2; 32],
        source_address: "10.0.0.1:10811".to_owned(),
        destination_address: "10.0.0.2:10811".to_owned(),
        from: ticket::From::Blocks { offset: 0, length: 4096 },
        to: ticket::To::Blocks { offset: 8192, length: 4096 },
    };
    let area = rfb::Area { x: 10, y: 20, w: 320, h: 240 };
    let filming = ticket::Ticket {
        rate: 1 << 20,
        interval: 40_000,
        from: ticket::From::Frames { count: 100, width: 320, height: 240 },
        to: ticket::To::Area(area),
        ..copying.clone()
    };
    let signed = ticket::Signed { ticket: copying.emit()?, signature: "a signature".to_owned() };
    let format = rfb::PixelFormat::NATIVE;
    let screen = rfb::Init { w: 640, h: 480, format, name: "wall".to_owned() };
    let asked = camera::Command { token: b"a long secret".to_vec(), ..camera::Command::default() };
    let spoken =
        rtp::Report { source: 9, clock: 0xe900_0000 << 32, timestamp: 480, packets: 1, bytes: 960 };
    let sound = wav::Format { rate: 48_000, channels: 2 };
    let mut sent = Vec::new();
    let part = camera::Piece {
        status: camera::Status::Frame,
        format: camera::Format::Grey,
        sequence: 1,
        session: 2,
        frame: 3,
        clock: 4,
        width: 4,
        height: 2,
        length: 8,
        offset: 4,
        skipped: 0,
        corner: (0, 0),
        receivers: 1,
        quality: 80,
        made: 900,
    };
    part.emit(b"abcd", &mut sent);
    Ok(vec![
        ("fuzz_dtp", packet.emit()?),
        ("fuzz_atp", segment.emit()?),
        ("fuzz_wave", piece.emit()?),
        ("fuzz_nbd", request.emit().to_vec()),
        ("fuzz_nbd", option.emit().to_vec()),
        ("fuzz_nbd", wanted.emit()),
        ("fuzz_iscsi", login().to_vec()),
        ("fuzz_iscsi", b"InitiatorName=iqn.2026-11.a:b\0CHAP_C=0x00ff\0CHAP_R=0bAAEC\0".to_vec()),
        ("fuzz_scsi", vec![0x28, 8, 0, 0, 0, 16, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]),
        ("fuzz_scsi", Sense::MISCOMPARED.fixed()),
        ("fuzz_ticket", copying.emit()?),
        ("fuzz_ticket", filming.emit()?),
        ("fuzz_ticket", signed.emit()?),
        ("fuzz_ticket", ticket::Head { kind: ticket::Kind::Data, length: 4096 }.emit().to_vec()),
        ("fuzz_ticket", ticket::record(7, b"a frame")),
        ("fuzz_certificate", certificate::unsigned(&["alice"], &["a@b", "alice.example", "urn:a"])),
        (
            "fuzz_rfb",
            rfb::Message::Encodings(vec![rfb::encoding::ZRLE, rfb::encoding::COPY]).emit(),
        ),
        ("fuzz_rfb", rfb::Message::Cut(b"text".to_vec()).emit()),
        ("fuzz_rfb", screen.emit()),
        ("fuzz_websocket", frame(websocket::opcode::BINARY, b"RFB 003.008\n")),
        ("fuzz_websocket", [frame(websocket::opcode::PING, b"?"), frame(2, &[7; 200])].concat()),
        ("fuzz_camera", asked.emit()?),
        ("fuzz_camera", sent),
        ("fuzz_camera_cells", camera_cells()?),
        (
            "fuzz_camera_h264",
            [&[0, 0, 0, 1, 0x67, 66, 0, 30, 0, 0, 1, 0x65][..], &[9; 200]].concat(),
        ),
        ("fuzz_camera_rtp", jpeg()),
        ("fuzz_camera_text", b"GET /stream.mjpg?rate=5 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        (
            "fuzz_camera_text",
            b"SETUP rtsp://a/ RTSP/1.0\r\nTransport: RTP/AVP/TCP;interleaved=0-1\r\n\r\n".to_vec(),
        ),
        ("fuzz_rtp", [&rtp::header(97, true, 7, 480, 9)[..], &[0xff, 0xfe, 0, 1]].concat()),
        ("fuzz_rtp", [&[0xb1, 11][..], &[7; 14], &[0, 0, 0, 1], &[5; 12], &[0, 0, 0, 4]].concat()),
        ("fuzz_rtp", spoken.emit().to_vec()),
        (
            "fuzz_rtsp_answer",
            b"RTSP/1.0 200 OK\r\nTransport: RTP/AVP;server_port=4-5\r\n\r\n".to_vec(),
        ),
        ("fuzz_rtsp_answer", b"RTSP/1.0 401 No\r\nContent-Length: 4\r\n\r\nwho?".to_vec()),
        ("fuzz_sdp", b"v=0\r\nm=audio 0 RTP/AVP 97\r\na=rtpmap:97 L16/48000/2\r\n".to_vec()),
        ("fuzz_sdp", b"m=video 0 RTP/AVP 26\r\nm=audio 5004 RTP/AVP 10\r\n".to_vec()),
        ("fuzz_wav", [&wav::header(sound, 8)[..], &[1, 0, 2, 0, 3, 0, 4, 0]].concat()),
        ("fuzz_dns", service()?),
        ("fuzz_netlink", route_message()),
        ("fuzz_netlink", [&[1, 1, 0, 48], &route_message()[..]].concat()),
    ])
}

/// A frame of a browser.
fn frame(opcode: u8, data: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let head = websocket::Head { last: true, opcode, mask: Some(mask), len: data.len() as u64 };
    let mixed = data.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]);
    head.emit().into_iter().chain(mixed).collect()
}

/// A piece in cells.
fn camera_cells() -> Result<Vec<u8>, Error> {
    let mut cells = Vec::new();
    camera::cells::segment(7, &[9; 100], &mut cells)?;
    Ok(camera::cells::datagram(&cells))
}

/// A service that announces itself.
fn service() -> Result<Vec<u8>, Error> {
    let kind = dns::Name::of("_rtsp._tcp.local")?;
    let name = kind.below("door")?;
    let host = dns::Name::of("door.local")?;
    let record = |name: &dns::Name, data| dns::Record { name: name.clone(), seconds: 120, data };
    let records = vec![
        record(&kind, dns::Data::Pointer(name.clone())),
        record(&name, dns::Data::Service { port: 8554, host: host.clone() }),
        record(&name, dns::Data::Text(vec![b"path=/".to_vec()])),
        record(&host, dns::Data::Address([127, 0, 0, 1].into())),
    ];
    let questions = vec![dns::Question { name: kind, kind: dns::POINTER }];
    dns::Message { id: 0, is_response: true, questions, records }.emit()
}

/// A JPEG of 8 by 8 pixels that RTP can carry, with tables of ones.
fn jpeg() -> Vec<u8> {
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xdb, 0, 132];
    for table in 0..2 {
        bytes.push(table);
        bytes.extend([1; 64]);
    }
    bytes.extend([0xff, 0xc0, 0, 17, 8, 0, 8, 0, 8, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1]);
    bytes.extend([0xff, 0xda, 0, 12, 3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]);
    bytes.extend([0x12, 0x34, 0x56, 0xff, 0xd9]);
    bytes
}

/// A route of BGP to 203.0.113.0/24 via 10.2.0.2, as FRR sends it.
fn route_message() -> Vec<u8> {
    let mut bytes = vec![44, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([2, 24, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0]);
    bytes.extend([8, 0, 1, 0, 203, 0, 113, 0, 8, 0, 5, 0, 10, 2, 0, 2]);
    bytes
}

fn internet() -> Result<Corpus, Error> {
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let datagram = udp::emit(1, 2, b"data", |len| Sum::ipv4(a, b, protocol::UDP, len))?;
    let options = [
        tcp::TcpOption::MaximumSegment(1460),
        tcp::TcpOption::SackPermitted,
        tcp::TcpOption::Timestamps { value: 1, echo: 2 },
        tcp::TcpOption::WindowScale(7),
    ];
    let segment = tcp::Header {
        src: 1,
        dst: 2,
        sequence: 3,
        acknowledgement: 4,
        flags: tcp::Flags::SYN,
        window: 5,
        urgent: 0,
    };
    let segment = segment.emit(&options, b"xyz", |len| Sum::ipv4(a, b, protocol::TCP, len))?;
    let echo = icmp::Message { kind: icmp::Message::ECHO, code: 0, rest: [1; 4], data: b"ping" };
    let echo = echo.emit(Sum::ZERO);
    let mut packets = Vec::new();
    for (number, payload) in
        [(protocol::UDP, &datagram), (protocol::TCP, &segment), (protocol::ICMP, &echo)]
    {
        let mut bytes = Vec::new();
        let options = if number == protocol::UDP { &[0x94, 4, 0, 0][..] } else { &[] };
        let header = ipv4::Header::new(a, b, number);
        header.emit_with_options(options, payload.len(), &mut bytes)?;
        bytes.extend(payload);
        packets.push(bytes);
    }
    let (c, d) = (a.to_ipv6_mapped(), b.to_ipv6_mapped());
    // A hop-by-hop header, then a fragment header, then UDP.
    let extensions = [[44, 0, 1, 4, 0, 0, 0, 0], [protocol::UDP, 0, 0, 1, 0, 0, 0, 9]].concat();
    let len = extensions.len() + datagram.len();
    let long = [&ipv6::Header::new(c, d, 0).emit(len)?[..], &extensions, &datagram].concat();
    let plain =
        [&ipv6::Header::new(c, d, protocol::TCP).emit(segment.len())?[..], &segment].concat();
    let request = arp::Packet { operation: 1, sender: ([2; 6], a), target: ([0; 6], b) }.emit();

    let mut corpus: Corpus = vec![
        ("fuzz_udp", datagram),
        ("fuzz_tcp", segment),
        ("fuzz_icmp", echo),
        ("fuzz_ipv6", long.clone()),
        ("fuzz_ipv6", plain),
        ("fuzz_arp", request.to_vec()),
        ("fuzz_checksum", (0..200).collect()),
    ];
    let carried = [(0x0800, &packets[1]), (0x86dd, &long), (0x0806, &request.to_vec())];
    for (ethertype, payload) in carried {
        let header = ethernet::Header { dst: [2; 6], src: [4; 6], tags: vec![100], ethertype };
        let mut bytes = Vec::new();
        header.emit(&mut bytes)?;
        bytes.extend(payload);
        corpus.push(("fuzz_print", [&[0], &bytes[..]].concat()));
        corpus.push(("fuzz_ethernet", bytes));
    }
    let mut llc = vec![1];
    Llc::IPV4.emit(&mut llc);
    llc.extend(&packets[1]);
    let sunatm = [&[3, 2, 0, 0, 42], &llc[1..]].concat();
    let ring =
        [&[4][..], &jetstream::emit_aal5(3, &header(77), &aal5::emit(&[4; 100], 0)?)?].concat();
    corpus.extend([llc, sunatm, ring].map(|bytes| ("fuzz_print", bytes)));
    corpus.extend(packets.into_iter().map(|packet| ("fuzz_ipv4", packet)));
    Ok(corpus)
}

fn tables() -> Result<Corpus, Error> {
    let text = "# a table\n10.0.0.0/8 192.0.2.1\n2001:db8::/32 2001:db8::1\n0.0.0.0/0 192.0.2.2\n";
    let table = text::parse(text.as_bytes()).expect("the seed is a table");
    Ok(vec![
        ("fuzz_routes", text.into()),
        ("fuzz_routes", b"10.0.0.0/8 1\n10.1.0.0/16 2\n::/0 3\n".to_vec()),
        ("fuzz_routes", mrt::emit(&table)),
    ])
}
