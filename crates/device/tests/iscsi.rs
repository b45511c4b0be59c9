//! A disk that listens for iSCSI, and the initiators of others where they are installed.
//!
//! Rows: N-36.

use crate::initiator::Initiator;
use lastmeter_device::disk::server::{Config, Server};
use lastmeter_plugin::host::{Host, Limits};
use lastmeter_wire::iscsi::{self, Answer, HEADER_LEN, Response, stage};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TARGET: &str = "iqn.2026-11.local.lastmeter:disk";

fn start(text: &str) -> Server {
    let config = Config::parse(text).unwrap();
    let host = Arc::new(Host::new(Limits { instances: 4, ..Limits::default() }).unwrap());
    let folder = std::env::temp_dir();
    let disk = config.disk(&folder, host).unwrap();
    Server::start(&config, &folder, disk, |why| println!("a session ended: {why}")).unwrap()
}

fn url(server: &Server, user: &str) -> String {
    format!("iscsi://{user}{}/{TARGET}/0", server.portal.unwrap())
}

/// What a program says; none, aloud, if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(program).args(arguments).output();
    if output.is_err() {
        println!("SKIP: no {program}");
    }
    output.ok()
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Tests of libiscsi that do not wait for time to pass. All of them: `scripts/test-long iscsi`.
const FAST: &[&str] = &[
    "CompareAndWrite",
    "ExtendedCopy",
    "GetLBAStatus",
    "Inquiry",
    "Mandatory",
    "ModeSense6",
    "OrWrite",
    "Prefetch10",
    "Prefetch16",
    "PrinReadKeys",
    "PrinServiceactionRange",
    "PrinReportCapabilities",
    "ProutRegister",
    "ProutReserve",
    "ProutClear",
    "ProutPreempt",
    "Read6",
    "Read10",
    "Read12",
    "Read16",
    "ReadCapacity10",
    "ReadCapacity16",
    "ReadDefectData10",
    "ReceiveCopyResults",
    "ReportSupportedOpcodes",
    "StartStopUnit",
    "TestUnitReady",
    "Unmap",
    "Verify10",
    "Verify16",
    "Write10",
    "Write12",
    "Write16",
    "WriteSame10",
    "WriteSame16",
    "WriteVerify10",
    "WriteVerify16",
    "iSCSIResiduals",
    "iSCSITMF",
    "MultipathIO",
];

/// Runs a family of tests; none fails. What the tool says, or nothing if it is not installed.
fn passes(family: &str, url: &str) -> Option<String> {
    // A second path to the same disk, for the tests that need one.
    let output = run("iscsi-test-cu", &["-d", "-n", "-f", "-t", family, url, url])?;
    let said = text(&output);
    let tests = said.lines().find(|line| line.trim_start().starts_with("tests "));
    let numbers: Vec<u32> =
        tests.unwrap_or("").split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Total, run, passed, failed, inactive.
    assert!(numbers.len() >= 4 && numbers[1] > 0, "{family}: {said}");
    assert_eq!((numbers[3], numbers[2]), (0, numbers[1]), "{family}: {said}");
    Some(said)
}

/// The conformance tests of libiscsi on a disk with such blocks.
fn conforms(block: u32) {
    let disk = format!("memory = true\nsize = '64 MiB'\nblock = {block}\n");
    let server = start(&format!("{disk}[iscsi]\nlisten = '127.0.0.1:0'\n"));
    let url = url(&server, "");
    if std::env::var("LASTMETER_ISCSI").is_ok_and(|all| all == "all") {
        let said = passes("ALL", &url);
        println!("blocks of {block}: {}", said.unwrap_or_default());
        return;
    }
    for family in FAST {
        let Some(_) = passes(&format!("ALL.{family}"), &url) else { return };
    }
}

#[test]
fn the_tests_of_libiscsi_pass() {
    conforms(512);
}

#[test]
fn the_tests_of_libiscsi_pass_with_long_blocks() {
    conforms(4096);
}

/// Those of a disk that nobody may write.
#[test]
fn the_tests_of_libiscsi_of_a_read_only_disk_pass() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 20).unwrap();
    let disk = format!("file = {:?}\nread-only = true\n", file.path());
    let server = start(&format!("{disk}[iscsi]\nlisten = '127.0.0.1:0'\n"));
    let _ = passes("ALL.ReadOnly", &url(&server, ""));
}

/// A session of its own port, logged in as anyone.
fn begin(server: &Server, number: u32) -> (TcpStream, Initiator) {
    let mut stream = TcpStream::connect(server.portal.unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut initiator = Initiator::new();
    let name = format!("iqn.2026-11.local.test:{number}");
    let names = [("InitiatorName", name.as_str()), ("TargetName", TARGET)];
    initiator.login((stage::OPERATIONAL, stage::FULL), true, &names);
    say(&mut stream, &mut initiator);
    assert!(matches!(next(&mut stream).answer, Answer::Login { transit: true, status: 0, .. }));
    // The first command is told that the unit is new.
    initiator.command(1, &[0], 0, None);
    say(&mut stream, &mut initiator);
    assert!(matches!(next(&mut stream).answer, Answer::Command { status: 2, .. }));
    (stream, initiator)
}

fn say(stream: &mut TcpStream, initiator: &mut Initiator) {
    stream.write_all(&std::mem::take(&mut initiator.bytes)).unwrap();
}

/// The next response; its data are skipped.
fn next(stream: &mut TcpStream) -> Response {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).unwrap();
    let (_, len) = iscsi::lengths(&header);
    stream.read_exact(&mut vec![0; iscsi::padded(len)]).unwrap();
    Response::parse(&header).unwrap()
}

/// One that asks for much and reads nothing, and many that say nothing, delay nobody. More of them: `LASTMETER_CLIENTS`.
#[test]
fn a_slow_reader_harms_nobody() {
    let count = std::env::var("LASTMETER_CLIENTS").ok().and_then(|text| text.parse().ok());
    let server = start("memory = true\nsize = '64 MiB'\n[iscsi]\nlisten = '127.0.0.1:0'\n");
    let idle: Vec<_> = (0..count.unwrap_or(100)).map(|number| begin(&server, number)).collect();
    let (mut slow, mut asks) = begin(&server, 100_000);
    for task in 0..60 {
        // 8 MiB each.
        asks.command(task, &[0x28, 0, 0, 0, 0, 0, 0, 0x40, 0, 0], 8 << 20, None);
    }
    say(&mut slow, &mut asks);
    let (mut stream, mut initiator) = begin(&server, 100_001);
    let began = Instant::now();
    for task in 0..100 {
        initiator.command(task, &[0x28, 0, 0, 0, 0, task as u8, 0, 0, 8, 0], 4096, None);
        say(&mut stream, &mut initiator);
        let answer = next(&mut stream).answer;
        assert!(matches!(answer, Answer::DataIn { status: Some(0), .. }), "{answer:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?} for 100 reads", began.elapsed());
    drop(idle);
}
