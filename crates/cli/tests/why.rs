//! `lastmeter why` as a user runs it: bad input, a short run, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "skips are reported")]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;

use attempts::Outcome;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn lastmeter(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastmeter"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    lastmeter(arguments).output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn bad_input_gets_a_message_with_a_correction() {
    let cases: [(&[&str], &str); 10] = [
        (&["--mtu", "9000", "--", "true"], "leave out the options before `--`"),
        (&["--what-if", "mtuu=4000"], "did you mean `mtu`?"),
        (&["--what-if", "mtu"], "write `mtu=9000`"),
        (&["--what-if", "cpu=2", "--apply"], "leave out --apply"),
        (&["--what-if", "mtu=1500"], "changes nothing"),
        (&["--mtu", "12"], "between 576 B and 65535 B"),
        (&["--message", "10"], "write \"10 B\""),
        (&["--streams", "0"], "1 to 64"),
        (&["--explain", "copy ouch"], "did you mean `copy out`?"),
        (&["--", "no-such-program"], "cannot start `no-such-program`"),
    ];
    for (arguments, right) in cases {
        let output = run(&[&["why"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", words(&output));
        assert!(words(&output).contains(right), "{arguments:?}: {}", words(&output));
    }
}

#[test]
fn lists_and_definitions_need_no_run() {
    let list = run(&["why", "--what-if", "list"]);
    assert!(list.status.success() && words(&list).contains("zero-copy=sendfile"));
    let figure = run(&["why", "--explain", "residual"]);
    assert!(figure.status.success() && words(&figure).contains("less the sum of the stages"));
}

#[test]
fn a_command_keeps_its_exit_status_and_its_output_stays_out_of_the_ledger() {
    let output = run(&["--json", "why", "--", "sh", "-c", "echo to the user; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    let ledger: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ledger["schema"], "lastmeter.ledger/2");
    assert_eq!(ledger["provenance"]["level"], "L0");
    assert_eq!(ledger["verdict"]["confidence"], "undecided");
    assert!(String::from_utf8_lossy(&output.stderr).contains("to the user"));
    let killed = run(&["why", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(128 + 9));
}

/// The command with its own cache, which other runs cannot change.
fn in_own_cache(arguments: &[&str], name: &str) -> Command {
    let folder = std::env::temp_dir().join(format!("lastmeter-{name}-{}", std::process::id()));
    let mut command = lastmeter(arguments);
    command.env("XDG_CACHE_HOME", folder);
    command
}

#[test]
fn a_short_run_balances() {
    let arguments = ["--json", "--quick", "why", "--what-if", "mtu=9000"];
    let output = in_own_cache(&arguments, "short").output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let ledger: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = &ledger["paths"][0];
    // Figures that this privilege level cannot measure are absent, and add nothing.
    let mean = |value: &serde_json::Value| value["mean"].as_f64().unwrap_or(0.0);
    let stages = path["stages"].as_array().unwrap();
    let sum: f64 = stages
        .iter()
        .map(|stage| mean(&stage["wait"]) + mean(&stage["service"]) + mean(&stage["blocked"]))
        .sum();
    let residual = ledger["balance"]["latency_residual"].as_f64().unwrap();
    let latency = mean(&path["totals"]["latency"]);
    assert!(latency > 0.0 && sum > 0.0);
    assert!((latency - sum - residual).abs() < 1e-12, "{latency} {sum} {residual}");
    assert_eq!(ledger["balance"]["packets_residual"], 0);
    for resource in ledger["resources"].as_array().unwrap() {
        let share = |name: &str| resource[name].as_f64().unwrap();
        assert!((share("busy") + share("blocked") + share("idle") - 1.0).abs() < 1e-9);
        let parts = resource["by_stage"].as_object().unwrap();
        let parts: f64 = parts.values().map(|part| part.as_f64().unwrap()).sum();
        assert!((parts - share("busy")).abs() < 1e-9);
    }
    assert!(ledger["what_ifs"].as_array().unwrap().len() > 8);
}

/// The living children of these processes.
fn helpers(parents: &BTreeSet<u32>) -> BTreeSet<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let parent = after_name.split_whitespace().nth(1).and_then(|p| p.parse().ok());
        parent.is_some_and(|parent| parents.contains(&parent))
    };
    processes.filter_map(pid).filter(is_child).collect()
}

/// Whether SIGINT is ignored, as in commands that a shell starts in the background.
fn ignores_interrupts() -> bool {
    const INTERRUPT: u64 = 1 << (2 - 1);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & INTERRUPT != 0
}

fn interfaces() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/class/net").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nothing_is_left_behind_however_it_ends() {
    if !fs::exists("/proc/self/stat").unwrap_or(false) {
        eprintln!("SKIP: processes cannot be seen without /proc");
        return;
    }
    let before = interfaces();
    for signal in ["INT", "TERM", "KILL"] {
        if signal == "INT" && ignores_interrupts() {
            eprintln!("SKIP: SIGINT is ignored here, and children inherit that");
            continue;
        }
        let mut child = in_own_cache(&["why", "--duration", "30 s"], "killed")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let parent = BTreeSet::from([child.id()]);
        until("a helper", || !helpers(&parent).is_empty());
        // More helpers may start while the first is being detected.
        std::thread::sleep(Duration::from_millis(300));
        let started = helpers(&parent);
        let arguments = [format!("-{signal}"), child.id().to_string()];
        assert!(Command::new("kill").args(arguments).status().unwrap().success());
        assert!(!child.wait().unwrap().success(), "success in spite of SIG{signal}");
        let started: Vec<String> = started.iter().map(u32::to_string).collect();
        attempts::wait_until_gone(&started.join(" "));
        assert_eq!(interfaces(), before, "after SIG{signal}");
    }
}

/// The verdict of a command's ledger: resource, confidence, words; or the command's output if it failed.
fn verdict(command: &mut Command) -> [String; 3] {
    let output = command.output().unwrap();
    if !output.status.success() {
        return [String::new(), String::new(), words(&output)];
    }
    let ledger: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    ["resource", "confidence", "words"]
        .map(|key| ledger["verdict"][key].as_str().unwrap_or_default().to_owned())
}

#[test]
fn iperf3_and_our_own_stream_are_limited_by_the_same_side() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = port.to_string();
    let server = Command::new("iperf3")
        .args(["-s", "-p", &port])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut server) = server else {
        eprintln!("SKIP: iperf3 is not installed");
        return;
    };
    until("iperf3's server", || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    // Other programs on the machine can change either verdict.
    let outcome = attempts::attempt(|| {
        let client = ["--json", "why", "--", "iperf3", "-c", "127.0.0.1", "-t", "1", "-p", &port];
        let theirs = verdict(&mut lastmeter(&client));
        let stream = ["--json", "--quick", "why", "--what-if", "mtu=9000"];
        let ours = verdict(&mut in_own_cache(&stream, "beside"));
        // iperf3's server may still be busy with the connection that tested whether it listens.
        let both_said = !theirs[1].is_empty() && !ours[1].is_empty();
        let same = both_said
            && theirs[2].contains("sender") == ours[2].contains("sender")
            && theirs[2].contains("CPU") == ours[2].contains("CPU");
        attempts::in_time!(same, "{theirs:?} and {ours:?}");
    });
    server.kill().unwrap();
    server.wait().unwrap();
    match outcome {
        Outcome::Passed => {}
        // Not by a macro: the test harness would capture that from a test that passes.
        Outcome::Undecided(words) => writeln!(std::io::stderr(), "UNDECIDED: {words}").unwrap(),
        Outcome::Failed(words) => panic!("{words}"),
    }
}

#[test]
fn made_bottlenecks_are_named_and_never_wrongly() {
    const KEYS: [&str; 8] =
        ["case", "confidence", "knob", "said", "score", "severity", "side", "truth"];
    for case in ["no-network", "receiver-sleeps", "send-buffer"] {
        let skipped = std::cell::Cell::new(false);
        let outcome = attempts::attempt(|| {
            let run = run(&["--json", "why", "--truth", "--case", case, "--severity", "2"]);
            if words(&run).contains("making namespaces") {
                eprintln!("SKIP: namespaces are not allowed here");
                skipped.set(true);
            }
            let lines = String::from_utf8_lossy(&run.stdout).into_owned();
            let lines: Vec<serde_json::Value> =
                lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for line in &lines {
                let keys: Vec<&str> =
                    line.as_object().unwrap().keys().map(String::as_str).collect();
                assert_eq!(keys, KEYS);
            }
            let both = lines.iter().any(|l| l["side"] == "both" && l["score"] == "right");
            let wrong = lines.iter().any(|l| l["score"] == "wrong");
            attempts::in_time!(skipped.get() || (both && !wrong), "{lines:?}");
        });
        match outcome {
            Outcome::Passed => {}
            Outcome::Undecided(words) => writeln!(std::io::stderr(), "UNDECIDED: {words}").unwrap(),
            Outcome::Failed(words) => panic!("{words}"),
        }
    }
}

#[test]
fn the_slowest_stage_of_a_pipeline_is_named() {
    let pipeline = "head -c 300000000 /dev/zero | gzip -9 | cat >/dev/null";
    let outcome = attempts::attempt(|| {
        let [_, confidence, said] =
            verdict(&mut lastmeter(&["--json", "why", "--", "sh", "-c", pipeline]));
        let named = said.starts_with("`gzip` is the slowest of head | gzip | cat");
        attempts::in_time!(named && confidence == "high", "{said}");
    });
    match outcome {
        Outcome::Passed => {}
        Outcome::Undecided(words) => writeln!(std::io::stderr(), "UNDECIDED: {words}").unwrap(),
        Outcome::Failed(words) => panic!("{words}"),
    }
}
