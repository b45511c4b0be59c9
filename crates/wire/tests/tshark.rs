//! How tshark decodes captures that we write: ATM, AAL5, LLC/SNAP, IP, TCP, and, with the dissector script,
//! Jetstream and VuNet. Skipped with a message if tshark is not installed.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use lastmeter_base::{Bytes, Time};
use lastmeter_wire::aal::aal5::{self, Segmenter};
use lastmeter_wire::aal::encapsulation::Llc;
use lastmeter_wire::atm::capture::{Sunatm, Traffic, emit_erf_aal5, emit_erf_cell};
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::atm::{Cell, Circuit, Header, Interface};
use lastmeter_wire::capture::{LinkType, Writer};
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::internet::{ethernet, ipv4, protocol, tcp};
use lastmeter_wire::jetstream;
use std::process::Command;

const CIRCUIT: Circuit = Circuit { vpi: 1, vci: 100 };

/// An IPv4 packet with a TCP segment of `data`.
fn packet(data: &[u8]) -> Vec<u8> {
    let (src, dst) = ([10, 77, 0, 1].into(), [10, 77, 0, 2].into());
    let header = tcp::Header {
        src: 40_000,
        dst: 5201,
        sequence: 1,
        acknowledgement: 1,
        flags: tcp::Flags::ACK.and(tcp::Flags::PSH),
        window: 512,
        urgent: 0,
    };
    let timestamps = tcp::TcpOption::Timestamps { value: 1, echo: 2 };
    let segment =
        header.emit(&[timestamps], data, |len| Sum::ipv4(src, dst, protocol::TCP, len)).unwrap();
    let mut bytes = Vec::new();
    ipv4::Header::new(src, dst, protocol::TCP).emit(segment.len(), &mut bytes).unwrap();
    bytes.extend(segment);
    bytes
}

fn in_llc(packet: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Llc::IPV4.emit(&mut bytes);
    bytes.extend(packet);
    bytes
}

/// Writes `records` of one link type and returns tshark's values of `fields`, one line per record, after a column
/// with anything that it complains about.
fn decode(
    link: LinkType,
    records: &[Vec<u8>],
    options: &[&str],
    fields: &[&str],
) -> Option<String> {
    if Command::new("tshark").arg("-v").output().is_err() {
        eprintln!("SKIP: tshark is not installed");
        return None;
    }
    let mut writer = Writer::pcapng(Vec::new()).unwrap();
    writer.add_interface(link, "test", Bytes(65_535)).unwrap();
    for (at, record) in records.iter().enumerate() {
        let now = Time::from_ps(1_000_000_000 * at as u64);
        writer.write(now, 0, Bytes(record.len() as u64), record).unwrap();
    }
    let name = format!("lastmeter-{}-{}.pcapng", std::process::id(), link.0);
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, writer.finish().unwrap()).unwrap();
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-T", "fields", "-E", "separator=/s", "-E", "occurrence=a", "-r"])
        .arg(&file);
    command.args(["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"]);
    command.args(options).args(["-e", "_ws.expert.message", "-e", "_ws.malformed"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().map(str::trim).collect::<Vec<_>>().join("\n"))
}

#[test]
fn tshark_decodes_ethernet_ip_and_tcp() {
    let mut frame = Vec::new();
    let tags = vec![0x0064];
    let header =
        ethernet::Header { dst: [2; 6], src: [4; 6], tags, ethertype: ethernet::ETHERTYPE_IPV4 };
    header.emit(&mut frame).unwrap();
    frame.extend(packet(&[0; 100]));
    let fields = ["vlan.id", "ip.dst", "tcp.dstport", "tcp.len", "tcp.checksum.status"];
    if let Some(text) = decode(LinkType::ETHERNET, &[frame], &[], &fields) {
        assert_eq!(text, "100 10.77.0.2 5201 100 1");
    }
}

#[test]
fn tshark_decodes_aal5_payloads_with_their_circuit() {
    let head = Sunatm { sent: true, traffic: Traffic::Llc, circuit: CIRCUIT }.emit().unwrap();
    let record = [&head[..], &in_llc(&packet(&[1; 64]))].concat();
    let fields = ["atm.vpi", "atm.vci", "llc.type", "ip.dst", "tcp.len", "tcp.checksum.status"];
    if let Some(text) = decode(LinkType::SUNATM, &[record], &[], &fields) {
        assert_eq!(text, "1 100 0x0800 10.77.0.2 64 1");
    }
    let record = in_llc(&packet(&[2; 64]));
    let fields = ["llc.type", "ip.dst", "tcp.len", "tcp.checksum.status"];
    if let Some(text) = decode(LinkType::ATM_RFC1483, &[record], &[], &fields) {
        assert_eq!(text, "0x0800 10.77.0.2 64 1");
    }
}

#[test]
fn tshark_decodes_whole_pdus_and_agrees_with_their_crc() {
    let header = Header::data(CIRCUIT).emit(Interface::Uni).unwrap();
    let mut pdu = aal5::emit(&in_llc(&packet(&[3; 64])), 0).unwrap();
    let good = emit_erf_aal5(Time::START, header, &pdu).unwrap();
    let fields = ["atm.vpi", "atm.vci", "atm.aal", "ip.dst", "tcp.len"];
    let options = ["-o", "erf.aal5_type:LLC multiplexed"];
    if let Some(text) = decode(LinkType::ERF, std::slice::from_ref(&good), &options, &fields) {
        // 4 is tshark's number for AAL5.
        assert_eq!(text, "1 100 4 10.77.0.2 64");
    }
    pdu[50] ^= 1;
    let bad = emit_erf_aal5(Time::START, header, &pdu).unwrap();
    if let Some(text) = decode(LinkType::ERF, &[bad], &options, &["atm.vci"]) {
        assert_ne!(text, "100", "tshark checks the CRC; otherwise the correct one proves nothing");
    }
}

#[test]
fn tshark_decodes_cells() {
    let mut cells = Vec::new();
    let segmenter = Segmenter::new(&Header::data(CIRCUIT), Interface::Uni).unwrap();
    segmenter.segment(&in_llc(&packet(&[])), 0, &mut cells).unwrap();
    let records: Vec<Vec<u8>> =
        cells.iter().map(|cell| emit_erf_cell(Time::START, cell).to_vec()).collect();
    if let Some(text) = decode(LinkType::ERF, &records, &[], &["atm.vpi", "atm.vci"]) {
        assert_eq!(text, vec!["1 100"; cells.len()].join("\n"));
    }
}

#[test]
fn the_dissector_script_decodes_jetstream_and_vunet() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/wireshark/lastmeter.lua");
    let script = format!("lua_script:{script}");
    let options = ["-X", script.as_str()];
    let version = Command::new("tshark").arg("-v").output();
    if version.is_ok_and(|output| !String::from_utf8_lossy(&output.stdout).contains("with Lua")) {
        eprintln!("SKIP: this tshark has no Lua");
        return;
    }
    let bisdn = Header::data(Circuit { vpi: 0, vci: jetstream::vci(3, 9).unwrap() });
    let pdu = aal5::emit(&in_llc(&packet(&[4; 1000])), 0).unwrap();
    let mut damaged = jetstream::emit_aal5(3, &bisdn, &pdu).unwrap();
    damaged[7] ^= 1;
    let records = [
        jetstream::emit_aal5(3, &bisdn, &pdu).unwrap(),
        jetstream::from_atm(2, &Cell::IDLE).unwrap(),
        jetstream::emit_ring_up(5).unwrap().to_vec(),
        damaged,
    ];
    let fields = ["jetstream.src_rid", "jetstream.vci", "jetstream.hop_count", "tcp.len"];
    if let Some(text) = decode(LinkType::JETSTREAM, &records, &options, &fields) {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["3", "6153", "1000"]);
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["2", "0"]);
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["0", "5"]);
        assert!(lines[3].starts_with("Header error control is wrong"), "{text}");
    }
    let header = Header::data(Circuit { vpi: 0, vci: 77 }).emit(Interface::Uni).unwrap();
    let cell = VunetCell::new(header, &[7; 48], true);
    let fields = ["vunet.vci", "vunet.pt"];
    if let Some(text) = decode(LinkType::VUNET, &[cell.0.to_vec()], &options, &fields) {
        assert_eq!(text, "77 0");
    }
}
