//! Plugins in models, as users run them.

use crate::{PROGRAM, has, plugin, said};
use lastmeter_base::{Bytes, Duration, Stream, Time};
use lastmeter_wire::capture::{LinkType, Reader, Writer};
use lastmeter_wire::internet::ipv4;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

/// Half of the packets of `alice` are long; the node's program and its parameters follow.
fn experiment(program: &str) -> String {
    format!(
        r#"duration = "10 ms"
[nodes]
alice = {{ host = {{}} }}
gate = {{ plugin = {{ {program} }} }}
bob = {{ host = {{}} }}
[[links]]
between = ["alice", "gate"]
rate = "1 Gbit/s"
[[links]]
between = ["gate", "bob"]
rate = "8 Mbit/s"
[[traffic]]
name = "transfer"
from = "alice"
to = "bob"
constant = {{ rate = "100 Mbit/s", size = [["1500 B", 1], ["64 B", 1]] }}
"#
    )
}

fn run(folder: &Path, text: &str, more: &[&str], status: i32) -> String {
    std::fs::write(folder.join("e.toml"), text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["model", "--", "run", "e.toml"]).args(more).current_dir(folder);
    said(&command.output().unwrap(), status)
}

fn json(folder: &Path, text: &str) -> Value {
    serde_json::from_str(&run(folder, text, &["--json", "--quiet"], 0)).unwrap()
}

/// Of the only path: offered, delivered, dropped as denied.
fn fate(ledger: &Value) -> (u64, u64, u64) {
    let path = &ledger["paths"][0];
    let stages = path["stages"].as_array().unwrap().iter();
    let denied = stages.filter_map(|stage| stage["drops"]["denied"].as_u64()).sum();
    let count = |name: &str| path["totals"][name]["packets"].as_u64().unwrap();
    (count("offered"), count("delivered"), denied)
}

#[test]
fn a_plugin_in_a_model_decides_and_costs_and_can_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let text = experiment(r#"expression = "(< length 1000)", cost = "10 us""#);
    let ledger = json(folder.path(), &text);
    let (offered, delivered, denied) = fate(&ledger);
    assert!(denied > offered / 3 && delivered > 0, "{offered} {delivered} {denied}");
    assert_eq!(ledger, json(folder.path(), &text), "a run is deterministic");
    let gate = ledger["resources"].as_array().unwrap().iter().find(|one| one["name"] == "gate");
    assert!(gate.unwrap()["busy"].as_f64().unwrap() > 0.0, "{gate:?}");
    let what_ifs = ledger["what_ifs"].as_array().unwrap();
    let without = what_ifs.iter().find(|one| one["change"] == "gate without the plugin");
    let without = without.expect("a what-if without the plugin");
    assert!(without["predicted"].as_f64() > without["baseline"].as_f64(), "{without}");
}

/// Drops what comes while more than 3000 bytes wait on the link of number 1.
const SCALER: &str = r#"(module
  (import "lastmeter:request/1" "lm_queue" (func $queue (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global (export "lm_plugin") i32 (i32.const 16))
  (data (i32.const 16) "LMRQ\01\00\01\00\00\04\00\00\10\20\00\00\40\00\00\00")
  (func (export "lm_process") (param $batch i32) (result i32)
    (if (i32.ne (call $queue (i32.const 1) (i32.const 512)) (i32.const 0)) (then unreachable))
    (if (i64.ne (i64.load (i32.const 520)) (i64.const 500000)) (then unreachable))
    (if (i64.ne (i64.load (i32.const 528)) (i64.const 16000000)) (then unreachable))
    (i32.store8 offset=17 (local.get $batch)
      (i32.add (i32.const 1) (i64.gt_u (i64.load (i32.const 512)) (i64.const 3000))))
    (i32.const 0)))"#;

#[test]
fn a_plugin_in_a_model_sees_the_queue_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("scaler.wasm"), wat::parse_str(SCALER).unwrap()).unwrap();
    let text = experiment(r#"module = "scaler.wasm", cost = "10 ns", share = 0.5, fail = "open""#);
    let ledger = json(folder.path(), &text);
    let (offered, delivered, denied) = fate(&ledger);
    assert!(
        offered > 100 && denied > offered / 2 && delivered > 0,
        "{offered} {delivered} {denied}"
    );
}

#[test]
fn what_is_wrong_with_a_plugin_in_a_model_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = |program: &str, words: &str| {
        let found = run(folder.path(), &experiment(program), &[], 2);
        assert!(found.contains(words) && found.contains("gate"), "{found}");
    };
    wrong("", "either `module` or `expression`");
    wrong(r#"expression = "(< lengthh 1)", cost = "1 ns""#, "lengthh");
    wrong(r#"expression = "(< length 1)""#, "has not been measured");
    wrong(r#"module = "absent.wasm""#, "absent.wasm");
    std::fs::write(folder.path().join("bad.wasm"), b"\0asm\x01\0\0\0\x08").unwrap();
    wrong(r#"module = "bad.wasm", cost = "1 ns""#, "section 8");
    std::fs::write(folder.path().join("scaler.wasm"), wat::parse_str(SCALER).unwrap()).unwrap();
    wrong(r#"module = "scaler.wasm""#, "plugin bench MODULE --save");
}

/// Denies packets of more than 1000 bytes.
const SHORT: &str = r#"(module
  (memory (export "memory") 1)
  (global (export "lm_plugin") i32 (i32.const 16))
  (data (i32.const 16) "LMRQ\01\00\01\00\00\04\00\00\10\20\00\00\40\00\00\00")
  (func (export "lm_process") (param $batch i32) (result i32)
    (i32.store8 offset=17 (local.get $batch)
      (i32.add (i32.const 1) (i32.gt_u (i32.load offset=24 (local.get $batch)) (i32.const 1000))))
    (i32.const 0)))"#;

#[test]
fn a_host_can_have_a_plugin_as_its_last_stage() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("short.wasm"), wat::parse_str(SHORT).unwrap()).unwrap();
    let plugin = r#"plugin = "short.wasm", plugin-cost = "3 us""#;
    for host in [plugin.to_owned(), format!(r#"profile = "hp9000-730", {plugin}"#)] {
        let text = experiment(r#"expression = "(allow)", cost = "1 ns""#)
            .replace("bob = { host = {} }", &format!("bob = {{ host = {{ {host} }} }}"))
            .replace("100 Mbit/s", "4 Mbit/s");
        let ledger = json(folder.path(), &text);
        let (offered, delivered, denied) = fate(&ledger);
        assert!(denied > offered / 4 && delivered > 0, "{offered} {delivered} {denied}");
        let path = &ledger["paths"][0];
        let stage =
            path["stages"].as_array().unwrap().iter().find(|one| one["name"] == "bob plugin");
        let service = &stage.expect("a stage of the plugin")["service"];
        assert_eq!(service["mean"].as_f64().unwrap(), 3e-6, "{service}");
    }
}

/// A capture of UDP and TCP packets of some flows between hosts of two networks, one every 2 to 40 us, each with its
/// number as identification.
pub(crate) fn capture(packets: u16, from: [u8; 3], to: [u8; 3]) -> Vec<u8> {
    let mut random = Stream::new(1, "capture");
    let mut writer = Writer::pcapng(Vec::new()).unwrap();
    let port = writer.add_interface(LinkType::RAW, "port", Bytes(65_535)).unwrap();
    let mut at = Time::START;
    for number in 0..packets {
        at += Duration::from_us(2 + random.below(38));
        let tcp = random.below(2) == 0;
        let mut host = |[a, b, c]: [u8; 3]| Ipv4Addr::new(a, b, c, random.below(4) as u8);
        let (src, dst) = (host(from), host(to));
        let mut header = ipv4::Header::new(src, dst, if tcp { 6 } else { 17 });
        header.identification = number;
        header.traffic_class = 4 * random.below(64) as u8;
        let mut payload = vec![0u8; 20 + random.below(1400) as usize];
        payload[..4].copy_from_slice(&[0x30, 0, 0x13, random.below(3) as u8 + 0x88]);
        if tcp {
            // A header of 24 bytes with an MSS of 1460; every other one begins a connection.
            payload.resize(payload.len().max(40), 0);
            (payload[12], payload[13]) = (0x60, if random.below(2) == 0 { 2 } else { 16 });
            payload[20..24].copy_from_slice(&[2, 4, 5, 0xb4]);
        } else {
            let len = (payload.len() as u16 + 8).to_be_bytes();
            payload[4..6].copy_from_slice(&len);
            payload[8] = 0x80;
        }
        let mut packet = Vec::new();
        header.emit(payload.len(), &mut packet).unwrap();
        packet.extend(payload);
        writer.write(at, port, Bytes(packet.len() as u64), &packet).unwrap();
    }
    writer.finish().unwrap()
}

/// Bytes that a capture of a model keeps of each packet.
const KEPT: usize = 128;

/// The packets of a capture, by number.
pub(crate) fn numbered(bytes: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let reader = Reader::open(bytes).unwrap();
    let packets = reader.map(|record| record.unwrap().data);
    packets.map(|data| (u16::from_be_bytes([data[4], data[5]]), data)).collect()
}

pub(crate) fn bytes_of(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A module of a plugin of ours, built in a copy of its folder; relative to `folder`.
pub(crate) fn built(folder: &Path, name: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins").join(name);
    let copy = folder.join(name);
    std::fs::create_dir(&copy).unwrap();
    for file in ["plugin.toml", "plugin.c", "cases.toml"] {
        std::fs::copy(source.join(file), copy.join(file)).unwrap();
    }
    said(&plugin(folder, &["build", name]), 0);
    format!("{name}/{name}.wasm")
}

/// What a module decides about each packet of `in.pcapng`.
pub(crate) fn replayed(folder: &Path, module: &str, config: &str) -> Vec<Value> {
    let arguments = ["replay", module, "in.pcapng", "--config", config, "--json"];
    let said = said(&plugin(folder, &arguments), 0);
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What becomes of a packet by such a decision.
pub(crate) fn decided(before: &[u8], decision: &Value) -> Option<Vec<u8>> {
    match decision["verdict"].as_str().unwrap() {
        "changed" => {
            let seen = decision["seen"].as_u64().unwrap() as usize;
            let new = bytes_of(decision["changed"].as_str().unwrap());
            Some([new.as_slice(), &before[seen..]].concat())
        }
        word if word.starts_with("deny") => None,
        _ => Some(before.to_vec()),
    }
}

#[test]
fn a_model_decides_about_a_capture_as_a_device_does_packet_by_packet() {
    if !has("clang") || !has("wasm-ld") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let captured = capture(2000, [10, 0, 0], [10, 0, 0]);
    std::fs::write(folder.path().join("in.pcapng"), &captured).unwrap();
    let arrived = numbered(&captured);
    let plugins = [
        ("counter", ""),
        ("policer", "1000000 5000"),
        ("dscp", "46"),
        ("source-nat", "10.0.0.0/16 198.18.0.0"),
        ("tcp-mss", "1400"),
        ("syn-limiter", "1000 10"),
        ("rtp-sequence", "5001"),
    ];
    let (mut denied, mut changed) = (0, 0);
    for (name, config) in plugins {
        let module = built(folder.path(), name);
        let device = replayed(folder.path(), &module, config);
        let text =
            experiment(&format!(r#"module = "{module}", config = "{config}", cost = "1 ns""#))
                .replace("10 ms", "1 s")
                .replace("rate = \"1 Gbit/s\"\n", "")
                .replace("8 Mbit/s", "100 Gbit/s")
                .replace(
                    r#"constant = { rate = "100 Mbit/s", size = [["1500 B", 1], ["64 B", 1]] }"#,
                    r#"replay = { capture = "in.pcapng", bytes = true }"#,
                );
        run(
            folder.path(),
            &text,
            &["--no-what-ifs", "--quiet", "--pcap", "gate->bob=out.pcapng"],
            0,
        );
        let model = numbered(&std::fs::read(folder.path().join("out.pcapng")).unwrap());
        let mut compared = 0;
        for ((number, before), verdict) in arrived.iter().zip(device) {
            let after = decided(before, &verdict);
            denied += u32::from(after.is_none());
            changed += u32::from(verdict["verdict"] == "changed");
            let after = after.as_ref().map(|bytes| &bytes[..bytes.len().min(KEPT)]);
            let found = model.get(number).map(Vec::as_slice);
            assert!(found == after, "{name}: packet {number}: {verdict} {found:?} {after:?}");
            compared += 1;
        }
        assert_eq!(compared, arrived.len(), "{name}");
    }
    assert!(denied > 100 && changed > 1000, "{denied} denied, {changed} changed");
}
