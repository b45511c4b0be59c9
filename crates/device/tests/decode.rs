//! What tshark makes of sessions with the disk: nothing in them is malformed, and it finds every PDU. Skipped with a
//! message if tshark is not installed.

use crate::initiator::{Initiator, TEST, disk, raw_session, read, responses, write};
use lastmeter_base::{Bytes, Time};
use lastmeter_wire::capture::{LinkType, Writer};
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::internet::{ipv4, protocol, tcp};
use lastmeter_wire::iscsi::{Answer, Ask, NO_TAG, Request, function};
use lastmeter_wire::nbd;
use std::io::BufReader;
use std::process::Command;

/// Bytes of a segment.
const SEGMENT: usize = 1200;

/// A TCP connection: what the client says (true) and the server, in turn.
fn conversation(port: u16, turns: &[(bool, &[u8])]) -> Vec<Vec<u8>> {
    let (near, far) = ([10, 77, 0, 1].into(), [10, 77, 0, 2].into());
    let mut packets = Vec::new();
    let mut add = |from_client: bool, sequence: u32, acknowledgement: u32, data: &[u8]| {
        let (src, dst) = if from_client { (40_000, port) } else { (port, 40_000) };
        let (from, to) = if from_client { (near, far) } else { (far, near) };
        let flags = tcp::Flags::ACK.and(tcp::Flags::PSH);
        let window = u16::MAX;
        let urgent = 0;
        let header = tcp::Header { src, dst, sequence, acknowledgement, flags, window, urgent };
        let sum = |len| Sum::ipv4(from, to, protocol::TCP, len);
        let segment = header.emit(&[], data, sum).unwrap();
        let mut packet = Vec::new();
        ipv4::Header::new(from, to, protocol::TCP).emit(segment.len(), &mut packet).unwrap();
        packet.extend(segment);
        packets.push(packet);
    };
    let (mut sent, mut answered) = (1, 1);
    for (from_client, said) in turns {
        for part in said.chunks(SEGMENT) {
            let (own, other) =
                if *from_client { (&mut sent, answered) } else { (&mut answered, sent) };
            add(*from_client, *own, other, part);
            *own += part.len() as u32;
        }
    }
    packets
}

/// tshark's values of a field, in order, after it was asked what it finds wrong: nothing.
fn decode(packets: &[Vec<u8>], field: &str) -> Option<Vec<String>> {
    let mut writer = Writer::pcapng(Vec::new()).unwrap();
    writer.add_interface(LinkType::RAW, "disk", Bytes(65_535)).unwrap();
    for (at, packet) in packets.iter().enumerate() {
        let now = Time::from_ps(1_000_000_000 * at as u64);
        writer.write(now, 0, Bytes(packet.len() as u64), packet).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk.pcapng");
    std::fs::write(&file, writer.finish().unwrap()).unwrap();
    let run = |more: &[&str]| {
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=/s", "-r"]);
        tshark.arg(&file).args(more).output()
    };
    let Ok(wrong) = run(&[
        "-Y",
        "_ws.malformed or _ws.expert.severity >= 0x600000",
        "-e",
        "_ws.expert.message",
        "-e",
        "frame.number",
    ]) else {
        println!("SKIP: tshark is not installed");
        return None;
    };
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&wrong.stdout), "", "tshark finds this wrong");
    let found = run(&["-e", field]).unwrap();
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    Some(found.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn tshark_decodes_every_pdu_of_iscsi() {
    let disk = disk(None);
    let mut initiator = Initiator::new();
    initiator.begin(&[("HeaderDigest", "None"), ("MaxBurstLength", "1024")]);
    let short = |initiator: &mut Initiator, task: u32, cdb: &[u8], room: u32| {
        initiator.command(task, cdb, room, None);
    };
    short(&mut initiator, 2, &TEST, 0);
    initiator.command(3, &write(3, 1), 512, Some(&[0xab; 512]));
    // Its data are asked for, twice.
    initiator.command(4, &write(8, 4), 2048, Some(&[]));
    initiator.data_out(4, 1, (0, 0), true, &[1; 1024]);
    initiator.data_out(4, 2, (0, 1024), true, &[2; 1024]);
    short(&mut initiator, 5, &read(2, 2), 1024);
    short(&mut initiator, 6, &[0x12, 0, 0, 0, 96, 0], 96);
    for (task, page) in
        [(7, 0), (8, 0x80), (9, 0x83), (10, 0x86), (11, 0xb0), (12, 0xb1), (13, 0xb2)]
    {
        short(&mut initiator, task, &[0x12, 1, page, 0, 255, 0], 255);
    }
    short(&mut initiator, 14, &[0x1a, 0, 0x3f, 0, 255, 0], 255);
    short(&mut initiator, 15, &[0x25], 8);
    short(&mut initiator, 16, &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32], 32);
    short(&mut initiator, 17, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64], 64);
    short(&mut initiator, 18, &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 16, 0], 4096);
    short(&mut initiator, 19, &[0x5e, 2, 0, 0, 0, 0, 0, 0, 64], 64);
    short(&mut initiator, 20, &read(200, 1), 512);
    short(&mut initiator, 21, &[0x35], 0);
    let immediate = |ask| Request { immediate: true, ..Request::new(ask) };
    initiator.pdu(Request { task: 22, ..immediate(Ask::NopOut { transfer: NO_TAG }) }, b"ping");
    let manage = Ask::Manage { function: function::ABORT_TASK, referenced: 4, number: 0 };
    initiator.pdu(Request { task: 23, ..immediate(manage) }, &[]);
    let text = Ask::Text { last: true, continues: false, transfer: NO_TAG };
    initiator.pdu(Request { task: 24, ..immediate(text) }, b"SendTargets=\0");
    let logout = Ask::Logout { reason: 0, connection: 1 };
    initiator.pdu(Request { task: 25, ..immediate(logout) }, &[]);
    let (said, _) = raw_session(&disk, &initiator.bytes);
    let answers = responses(&said);
    assert!(matches!(answers.last().unwrap().0.answer, Answer::Logout { response: 0 }));
    let packets = conversation(3260, &[(true, &initiator.bytes), (false, &said)]);
    // Login, commands 2 to 21, two of data, ping, abort, text, logout.
    let asked = 1 + 20 + 2 + 4;
    if let Some(found) = decode(&packets, "iscsi.opcode") {
        assert_eq!(found.len(), asked + answers.len(), "{found:?}");
    }
}

/// Of NBD, tshark knows requests and simple replies, not options, nor that a read that failed has no data.
#[test]
fn tshark_decodes_requests_of_nbd() {
    let disk = disk(None);
    let mut options = vec![0, 0, 0, 3];
    options.extend(nbd::Option { kind: nbd::Kind::EXPORT_NAME, length: 0 }.emit());
    let mut requests = Vec::new();
    let mut ask = |command: nbd::Command, offset: u64, length: u32, data: &[u8]| {
        let (flags, cookie) = (0, 1 + offset);
        requests.extend(nbd::Request { flags, command, cookie, offset, length }.emit());
        requests.extend(data);
    };
    ask(nbd::Command::WRITE, 0, 512, &[1; 512]);
    ask(nbd::Command::READ, 512, 1024, &[]);
    ask(nbd::Command::WRITE, 1 << 30, 512, &[2; 512]);
    ask(nbd::Command::TRIM, 2048, 512, &[]);
    ask(nbd::Command::FLUSH, 4096, 0, &[]);
    let client = [&options[..], &requests].concat();
    let (mut input, mut output) = (BufReader::new(&client[..]), Vec::new());
    lastmeter_device::disk::nbd::serve(&disk, &mut input, &mut output, &Default::default(), || ());
    // Greeting; size and flags of the disk; replies, of which one has data.
    let (greeting, rest) = output.split_at(18);
    let (export, replies) = rest.split_at(10);
    assert_eq!(replies.len(), 5 * nbd::SIMPLE_LEN + 1024);
    let turns: [(bool, &[u8]); 5] =
        [(false, greeting), (true, &options), (false, export), (true, &requests), (false, replies)];
    if let Some(found) = decode(&conversation(10_809, &turns), "nbd.magic") {
        let of = |magic: &str| found.iter().filter(|own| *own == magic).count();
        assert_eq!((of("0x25609513"), of("0x67446698")), (5, 5), "{found:?}");
    }
}
