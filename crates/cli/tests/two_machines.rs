//! `lastmeter why` on two machines: two hosts of our own with an emulated path between, an agent on one.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "skips are reported")]
#![allow(clippy::explicit_write, reason = "the harness captures what macros write")]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;

use lastmeter_live::staged::{End, Pattern, Play, Running, Side, Way, Work};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lastmeter");
/// The receiver's host; see the module of namespaces.
const FAR: &str = "10.91.0.2";
/// One that every user may run.
const PYTHON: &str = "/usr/bin/python3";
/// Nobody's user and group.
const NOBODY: [&str; 5] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];

/// Tests that measure come one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program where every user may run it.
struct ForAll(PathBuf);

impl ForAll {
    fn new() -> ForAll {
        let path = std::env::temp_dir().join(format!("lastmeter-for-all-{}", std::process::id()));
        if std::fs::hard_link(PROGRAM, &path).is_err() {
            std::fs::copy(PROGRAM, &path).unwrap();
        }
        ForAll(path)
    }
}

impl Drop for ForAll {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Two hosts with this path between, or why there are none here.
fn hosts(out: Way, back: Way) -> Option<Running> {
    lastmeter_live::worker::is_started_by(vec![PROGRAM.into()]);
    let idle = Side { work: Work::Sleep(100_000), ..Side::PLAIN };
    let (sender, receiver) = (idle, idle);
    let pattern = Pattern::Alone;
    let play = Play { pattern, sender, receiver, path: Some((out, back)), ..Play::PLAIN };
    let root = is_root();
    match Running::start(&play) {
        Ok(_) if !root => skip("entering another program's namespace needs root"),
        Ok(running) => {
            // Every kernel has it; the own one of this machine may be another.
            let words = ["sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control"];
            for end in [End::Sender, End::Receiver] {
                assert!(at(&running, end, &[], &words).status().unwrap().success());
            }
            Some(running)
        }
        Err(error) => skip(&error.to_string()),
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    uid.split_ascii_whitespace().nth(1) == Some("0")
}

fn skip<T>(why: &str) -> Option<T> {
    writeln!(std::io::stderr(), "SKIP: {why}").unwrap();
    None
}

/// A command in the network namespace of one host.
fn at(hosts: &Running, end: End, before: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &hosts.pid(end).to_string(), "-n", "--"]).args(before).args(words);
    command.stdin(Stdio::null());
    command
}

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An agent that runs, and its token.
struct Agent {
    process: Killed,
    _output: BufReader<ChildStdout>,
    token: String,
}

fn agent(hosts: &Running, before: &[&str]) -> Agent {
    agent_of(PROGRAM, hosts, before)
}

fn agent_of(program: &str, hosts: &Running, before: &[&str]) -> Agent {
    let listen = format!("{FAR}:7401");
    let words = [program, "--json", "why", "--agent", "--listen", &listen];
    let mut child = at(hosts, End::Receiver, before, &words)
        .env_remove("LASTMETER_TOKEN")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!(
        (&said["schema"], &said["address"]),
        (&"lastmeter.why-agent/1".into(), &listen.into())
    );
    let token = said["token"].as_str().unwrap().to_owned();
    Agent { process: Killed(child), _output: output, token }
}

/// What `why --to` says at the other host.
fn why(hosts: &Running, agent: &Agent, options: &[&str], command: &[&str]) -> Output {
    let dashes: &[&str] = if command.is_empty() { &[] } else { &["--"] };
    let first = [PROGRAM, "--json", "why", "--to", FAR];
    let words = [&first, options, dashes, command].concat();
    at(hosts, End::Sender, &[], &words).env("LASTMETER_TOKEN", &agent.token).output().unwrap()
}

fn ledger(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// What holds whatever the verdict: stages of both hosts, books that balance, what both kernels counted.
fn is_joined(ledger: &Value) {
    let path = &ledger["paths"][0];
    let stages = path["stages"].as_array().unwrap();
    let hosts: Vec<_> = stages.iter().map(|stage| stage["host"].as_str()).collect();
    assert_eq!(hosts, [Some("sender"), None, Some("receiver")], "{path}");
    assert!(ledger["balance"]["latency_residual"].as_f64().unwrap().abs() < 1e-9, "{ledger}");
    let count = |element: &str, name: &str| {
        let all = ledger["counters"].as_array().unwrap();
        let found = all.iter().find(|c| c["element"] == element && c["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {all:?}"))["value"].as_u64().unwrap()
    };
    let (sent, arrived) = (
        count("sender", "segments with data sent"),
        count("receiver", "segments with data arrived"),
    );
    // The last looks at both ends are not at one instant, on a busy machine less so.
    assert!(sent > 0 && arrived > 0 && arrived <= 2 * sent + 1000, "{sent} {arrived}");
    let notes = ledger["notes"].to_string();
    for word in ["The sender's side alone", "The receiver's side alone", "wall clock", "Round trip"]
    {
        assert!(notes.contains(word), "{word}: {notes}");
    }
}

/// Tries until the verdict has these words.
fn says(right: &str, ledger: impl Fn() -> Value) {
    attempts::attempt(|| {
        let ledger = ledger();
        is_joined(&ledger);
        let verdict = &ledger["verdict"];
        let words = verdict["words"].as_str().unwrap();
        attempts::in_time!(words.contains(right), "{right}: {verdict} {}", ledger["notes"]);
    })
    .settle();
}

fn link(rate: f64, delay: f64) -> Way {
    Way { rate: Some(rate), ..Way::wire(delay) }
}

#[test]
fn our_own_transfer_is_explained_from_both_ends() {
    let _alone = alone();
    let full = link(20e6, 0.005);
    let Some(running) = hosts(full, full) else { return };
    let agent = agent(&running, &[]);
    let run = |options: &[&str]| ledger(&why(&running, &agent, options, &[]));
    for way in [&[][..], &["--reverse"]] {
        says("A link is full", || {
            let ledger = run(&[&["--duration", "2 s"], way].concat());
            // Its queue lies on the way of the data, which both ends' clocks can tell.
            let there = &ledger["paths"][0]["stages"][1];
            let notes = &ledger["notes"];
            attempts::in_time!(there["name"] == "network, there", "{notes}");
            let seconds = there["wait"]["mean"].as_f64().unwrap();
            attempts::in_time!((0.01..0.3).contains(&seconds), "{there} {notes}");
            ledger
        });
    }
}

#[test]
fn delay_small_buffers_and_loss_are_told_apart_from_both_ends() {
    let _alone = alone();
    let far = Way::wire(0.02);
    let Some(running) = hosts(far, far) else { return };
    let agent = agent(&running, &[]);
    let run = |options: &[&str]| ledger(&why(&running, &agent, options, &[]));
    says("The send buffer of", || run(&["--duration", "2 s", "--send-buffer", "32 KiB"]));
    says("The receive buffer is too small", || {
        run(&["--duration", "2 s", "--receive-buffer", "32 KiB"])
    });
    drop((agent, running));
    let lossy = Way { loss: 0.01, ..Way::wire(0.01) };
    let Some(running) = hosts(lossy, Way::wire(0.01)) else { return };
    let agent = self::agent(&running, &[]);
    let run = |options: &[&str]| ledger(&why(&running, &agent, options, &[]));
    says("segments were lost", || {
        let ledger = run(&["--duration", "3 s"]);
        let all = ledger["counters"].as_array().unwrap();
        let out_of_order = all.iter().find(|c| c["name"] == "segments arrived out of order");
        let out_of_order = out_of_order.unwrap()["value"].as_u64().unwrap();
        attempts::in_time!(out_of_order > 0, "the receiver saw no gap: {ledger}");
        ledger
    });
}

/// A program that reads 64 KiB every 20 ms, or sends as fast as it can or every 20 ms.
const READER: &str = "
import socket, time
server = socket.create_server(('10.91.0.2', 9000))
while True:
    one = server.accept()[0]
    while one.recv(65536):
        time.sleep(0.02)
";
const PLAIN_READER: &str = "
import socket
server = socket.create_server(('10.91.0.2', 9001))
while True:
    one = server.accept()[0]
    while one.recv(65536):
        pass
";
const SENDER: &str = "
import socket, sys, time
port, pause = int(sys.argv[1]), float(sys.argv[2])
one = socket.create_connection(('10.91.0.2', port))
until = time.time() + 2
while time.time() < until:
    one.sendall(bytes(16384))
    time.sleep(pause) if pause else None
";

fn python(hosts: &Running, before: &[&str], text: &str) -> Option<Killed> {
    if !std::path::Path::new(PYTHON).exists() {
        return skip("there is no /usr/bin/python3");
    }
    let mut command = at(hosts, End::Receiver, before, &[PYTHON, "-c", text]);
    Some(Killed(command.stdout(Stdio::null()).spawn().unwrap()))
}

fn listens(hosts: &Running, port: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    let probe = format!("import socket; socket.create_connection(('{FAR}', {port})).close()");
    while !at(hosts, End::Sender, &[], &[PYTHON, "-c", &probe])
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
    {
        assert!(Instant::now() < until, "nobody listens at {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn somebodys_program_is_explained_from_both_ends_with_and_without_rights() {
    let _alone = alone();
    let near = Way::wire(0.001);
    let Some(running) = hosts(near, near) else { return };
    let Some(_slow) = python(&running, &[], READER) else { return };
    let Some(_plain) = python(&running, &NOBODY, PLAIN_READER) else { return };
    listens(&running, "9000");
    listens(&running, "9001");
    let client = |port, pause| [PYTHON, "-c", SENDER, port, pause];
    let may_see = agent(&running, &[]);
    let run = |agent: &Agent, port, pause| ledger(&why(&running, agent, &[], &client(port, pause)));
    says("The receiving program slept", || run(&may_see, "9000", "0"));
    says("The sending program slept", || run(&may_see, "9001", "0.02"));
    drop(may_see);
    // As nobody it may see its own user's process, and not root's.
    let program = ForAll::new();
    let nobody = agent_of(program.0.to_str().unwrap(), &running, &NOBODY);
    says("data lay unread at its side", || {
        let ledger = run(&nobody, "9000", "0");
        let notes = ledger["notes"].to_string();
        assert!(notes.contains("At the receiver only the socket's counters are known"), "{notes}");
        ledger
    });
    let ledger = run(&nobody, "9001", "0.02");
    assert!(!ledger["notes"].to_string().contains("only the socket's counters"), "{ledger}");
}

#[test]
fn an_agent_ends_when_asked_and_a_program_is_explained_without_it() {
    let _alone = alone();
    let near = Way::wire(0.001);
    let Some(running) = hosts(near, near) else { return };
    let mut agent = agent(&running, &[]);
    let right = std::mem::replace(&mut agent.token, "0".repeat(32));
    let refused = why(&running, &agent, &[], &[]);
    agent.token = right;
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("wrong token"), "{refused:?}");
    let pid = agent.process.0.id().to_string();
    // The agent leaves in the middle of the command.
    let command = ["sh", "-c", &format!("sleep 1.2; kill -TERM {pid}; sleep 1.5; exit 7")];
    let output = why(&running, &agent, &[], &command);
    assert_eq!(output.status.code(), Some(7));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().last().unwrap().contains("Seen from this end only"), "{text}");
    let ended = agent.process.0.wait().unwrap();
    assert!(ended.success(), "{ended}");
}

/// The letters of a text without its units of time, so that figures and line breaks may differ.
fn letters(text: &str) -> String {
    let letters = |word: &str| word.chars().filter(|c| c.is_alphabetic()).collect::<String>();
    let words = text.split_whitespace().map(letters);
    words.filter(|word| !["s", "ms", "us", "ns"].contains(&word.as_str())).collect()
}

#[test]
fn the_page_shows_what_is_said() {
    let _alone = alone();
    let page = include_str!("../../../docs/why/two-machines.md");
    let far = Way::wire(0.02);
    let Some(running) = hosts(far, far) else { return };
    let agent = agent(&running, &[]);
    let words = [PROGRAM, "why", "--to", FAR, "--receive-buffer", "32KiB"];
    let shown = page.split("\n```text\n").nth(1).unwrap().split("\n```").next().unwrap();
    attempts::attempt(|| {
        let mut command = at(&running, End::Sender, &[], &words);
        let output = command.env("LASTMETER_TOKEN", &agent.token).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        let said = letters(&text);
        for line in shown.lines().filter(|line| !line.is_empty()) {
            // Either clock may be ahead, by microseconds or milliseconds.
            let line = line.split_once("wall clock is").map_or(line, |(before, _)| before);
            let shown = said.contains(&letters(line));
            attempts::in_time!(shown, "`{line}` is not in:\n{text}");
        }
    })
    .settle();
}
