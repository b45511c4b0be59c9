//! A program whose bytes go by UDP, as any other program: its own sockets, its calls, what several packets travel as,
//! and what limits it; a QUIC program where there is one.
//!
//! QUIC needs a Python with aioquic: the one that `scripts/test-python prepare` makes, or `LASTMETER_QUIC` with the path
//! of another. Without it that test prints `SKIP:`.

use crate::attempts::in_time;
use lastmeter_ledger::Ledger;
use lastmeter_live::observe;
use lastmeter_why::observed;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("segments_that_travel_as_one_and_calls_are_counted", segments),
    ("datagrams_that_nobody_reads_are_dropped_at_its_socket", unread),
    ("a_quic_program_is_known_by_its_port_and_its_cpu_is_the_limit", quic),
];

/// Python itself: `python3` may be a script that starts it.
fn python() -> String {
    let ask = ["-c", "import sys; print(sys.executable)"];
    let said = Command::new("python3").args(ask).output().unwrap().stdout;
    String::from_utf8(said).unwrap().trim().to_owned()
}

/// What is said of a program of Python.
fn ledger(python: &str, program: &str) -> Ledger {
    let mut command = Command::new(python);
    command.args(["-c", program]).stdout(Stdio::null()).stderr(Stdio::null());
    let seen = observe::run(&mut command).unwrap();
    assert_eq!(seen.status, Some(0), "{program}");
    observed::ledger("program", &seen, "host".to_owned())
}

fn note<'a>(ledger: &'a Ledger, begins: &str) -> &'a str {
    ledger.notes.iter().find(|note| note.starts_with(begins)).map_or("", |note| note)
}

/// Sends 12,000 bytes with each call, as packets of 1200 (`UDP_SEGMENT`), to itself, for four seconds.
const SEGMENTS: &str = "\
import socket, time
r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(('127.0.0.1', 0)); r.setblocking(False)
r.setsockopt(17, 104, 1)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(r.getsockname())
s.setsockopt(17, 103, 1200)
end = time.monotonic() + 4
while time.monotonic() < end:
    s.send(bytes(12000))
    r.recv(65536)
";

fn segments() {
    let ledger = ledger(&python(), SEGMENTS);
    let words = ledger.verdict.as_ref().unwrap().words.clone();
    let said = note(&ledger, "UDP_");
    in_time!(said.starts_with("UDP_SEGMENT and UDP_GRO are in use"), "{:?}", ledger.notes);
    in_time!(words.contains("datagrams"), "{words}");
    // One call for each, in both directions, where calls can be counted.
    let counted = note(&ledger, "UDP:").contains("1.0 for each call");
    if lastmeter_linux::perf::tracepoint("syscalls/sys_enter_sendto").is_none() {
        println!("SKIP: calls cannot be counted here");
    } else {
        in_time!(counted, "{:?}", ledger.notes);
    }
}

/// Two threads, of which the one that reads is slow.
const UNREAD: &str = "\
import socket, threading, time
r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(('127.0.0.1', 0))
r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(r.getsockname())
end = time.monotonic() + 4
def send():
    while time.monotonic() < end:
        s.send(bytes(1000)); time.sleep(0.0005)
t = threading.Thread(target=send); t.start()
while time.monotonic() < end:
    r.recv(2000); time.sleep(0.01)
t.join()
";

fn unread() {
    let ledger = ledger(&python(), UNREAD);
    let dropped =
        ledger.counters.iter().find(|c| c.name == "dropped at its sockets").unwrap().value;
    in_time!(dropped > 100, "{:?}", ledger.counters);
    let words = &ledger.verdict.as_ref().unwrap().words;
    in_time!(words.contains("dropped because the program reads too slowly"), "{words}");
}

/// A server at port 443 and a client in one process, over loopback: 12 MB by QUIC streams.
const PROGRAM: &str = include_str!("quic.py");

fn quic() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin/python");
    let python = std::env::var("LASTMETER_QUIC").unwrap_or(root.display().to_string());
    let has = Command::new(&python).args(["-c", "import aioquic"]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        println!(
            "SKIP: no Python with aioquic: run `scripts/test-python prepare`, or set LASTMETER_QUIC"
        );
        return;
    }
    let ledger = ledger(&python, PROGRAM);
    let said = note(&ledger, "QUIC, by its port 443");
    assert!(said.contains("inside the program"), "{:?}", ledger.notes);
    let words = &ledger.verdict.as_ref().unwrap().words;
    in_time!(words.contains("computed: its thread ran"), "{words}");
    assert!(!words.contains("congestion window"), "nothing is known of it: {words}");
}
