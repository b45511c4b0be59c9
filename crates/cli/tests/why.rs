//! `lastmeter why` as a user runs it: bad input, a short run, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "skips are reported")]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What predicts a change calibrates the host first.
const SHORT: [&str; 5] = ["--json", "--quick", "why", "--what-if", "mtu=9000"];

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
    let cases: [(&[&str], &str); 12] = [
        (&["--mtu", "9000", "--", "true"], "leave out the options before `--`"),
        (&["--what-if", "mtuu=4000"], "did you mean `mtu`?"),
        (&["--what-if", "mtu"], "write `mtu=9000`"),
        (&["--what-if", "cpu=2", "--apply"], "leave out --apply"),
        (&["--what-if", "mtu=1500"], "changes nothing"),
        (&["--what-if", "checksum=off"], "add --apply"),
        (&["--link", "1 Gbit/s", "--what-if", "mtu=9000"], "add --apply"),
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
    let ledger = ledger(&output);
    assert_eq!(ledger["schema"], "lastmeter.ledger/2");
    assert_eq!(ledger["verdict"]["confidence"], "undecided");
    assert!(String::from_utf8_lossy(&output.stderr).contains("to the user"));
    let killed = run(&["why", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(128 + 9));
}

/// The last of the ledgers that a command printed, a line each.
fn ledger(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}", words(output)))
}

/// A short run where nothing is known of the host: it calibrates it, for the other tests that need this, too.
fn first_run() -> &'static Output {
    static FIRST: OnceLock<Output> = OnceLock::new();
    FIRST.get_or_init(|| in_own_cache(&SHORT, "calibrated").output().unwrap())
}

/// The command where the host is calibrated.
fn on_calibrated_host(arguments: &[&str]) -> Command {
    first_run();
    in_own_cache(arguments, "calibrated")
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
    let output = first_run();
    assert!(output.status.success(), "{}", words(output));
    let first = String::from_utf8_lossy(&output.stdout).lines().next().unwrap().to_owned();
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first["provenance"]["partial"], true, "the first look is a line of its own");
    assert!(first["verdict"]["words"].is_string());
    let ledger = ledger(output);
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
    let notes = ledger["notes"].to_string();
    let refuted = notes.contains("predicts no changes");
    assert_eq!(ledger["what_ifs"].as_array().unwrap().len() > 8, !refuted, "{notes}");
    // Where the machine may be sampled, what it went into is known but for a little.
    if ledger["provenance"]["level"] != "L1" {
        eprintln!("SKIP: L1 needs root, CAP_PERFMON or a low kernel.perf_event_paranoid");
        assert!(notes.contains("L0: "), "{notes}");
        return;
    }
    let of = |name: &str| stages.iter().find(|stage| stage["name"] == name);
    let (copy_in, copy_out) = (of("copy in").unwrap(), of("copy out").unwrap());
    assert!(mean(&copy_in["service"]) > 0.0 && mean(&copy_out["service"]) > 0.0);
    let unknown = of("not attributed").map_or(0.0, |stage| mean(&stage["wait"]));
    assert!(unknown <= 0.1 * latency || ledger["verdict"]["confidence"] != "high", "{unknown}");
}

#[test]
fn changes_are_applied_in_turn_where_the_host_is_not_calibrated() {
    let began = Instant::now();
    let output = in_own_cache(&["--json", "--quick", "why"], "cold").output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let ledger = ledger(&output);
    let what_ifs = ledger["what_ifs"].as_array().unwrap();
    assert!(what_ifs.len() > 5, "{what_ifs:?}");
    for one in what_ifs {
        let value = |name: &str| one[name].as_f64();
        assert!(one["predicted"].is_null() && one["error"].is_null(), "{one}");
        let (now, then) = (value("baseline").unwrap(), value("measured").unwrap());
        assert!((value("gain").unwrap() - (then / now - 1.0)).abs() < 1e-9, "{one}");
    }
    let gains: Vec<f64> = what_ifs.iter().map(|one| one["gain"].as_f64().unwrap()).collect();
    assert!(gains.is_sorted_by(|a, b| a >= b), "best first: {gains:?}");
    let notes = ledger["notes"].to_string();
    assert!(notes.contains("lastmeter calibrate") && notes.contains("in turn"), "{notes}");
    println!("explained in {:.1} s", began.elapsed().as_secs_f64());
}

/// J-51: "required because TCP is called before the data is moved". With the adapter's checksums off the processors read all
/// data once more at either end, and the transfer is slower.
#[test]
fn j_51_checksums_by_the_processors_cost_what_an_adapter_saves() {
    let once = || {
        let asked =
            ["--json", "--quick", "why", "--no-offload", "--what-if", "checksum=off", "--apply"];
        let output = in_own_cache(&asked, "checksum").output().unwrap();
        assert!(output.status.success(), "{}", words(&output));
        let ledger = ledger(&output);
        let change = "checksums by the processors";
        let what_ifs = ledger["what_ifs"].as_array().unwrap();
        let Some(found) = what_ifs.iter().find(|one| one["change"] == change) else {
            return println!("SKIP: checksums cannot be switched here: {}", ledger["notes"]);
        };
        let value = |name: &str| found[name].as_f64().unwrap();
        let (with, without) = (value("baseline") / 1e9, value("measured") / 1e9);
        println!("  {with:.2} Gbit/s with the adapter's checksums, {without:.2} without");
        assert!(found["predicted"].is_null(), "{found}");
        attempts::in_time!(without < with, "{without} Gbit/s without, {with} with");
    };
    attempts::attempt(once).settle();
}

#[test]
fn a_command_is_sampled_where_that_is_allowed_and_says_why_not_elsewhere() {
    // Long enough for several looks on a fast machine, too.
    let busy = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done";
    let output = run(&["--json", "why", "--", "sh", "-c", busy]);
    let ledger = ledger(&output);
    if ledger["provenance"]["level"] == "L1" {
        let row = ledger["paths"].as_array().unwrap().last();
        let row = row.unwrap_or_else(|| panic!("no look fell into it: {}", ledger["duration"]));
        let stages = row["stages"].as_array().unwrap();
        let own = stages.iter().find(|stage| stage["name"] == "the program itself");
        let share = own.unwrap()["service"]["mean"].as_f64().unwrap();
        let cpu = stages.iter().filter_map(|stage| stage["service"]["mean"].as_f64()).sum::<f64>();
        assert!(share > 0.5 * cpu, "a loop in a shell is the program itself: {stages:?}");
    } else {
        eprintln!("SKIP: L1 needs root, CAP_PERFMON or a low kernel.perf_event_paranoid");
    }
    let output = run(&["--json", "why", "--no-sampling", "--", "true"]);
    let ledger = self::ledger(&output);
    assert_eq!(ledger["provenance"]["level"], "L0");
    assert!(ledger["notes"].to_string().contains("--no-sampling was given"));
}

/// Seconds since 1970 that a shell printed.
fn stamps(words: &str) -> Vec<f64> {
    words.lines().filter_map(|line| line.strip_prefix("at ")?.parse().ok()).collect()
}

#[test]
fn a_thousand_short_children_do_not_change_the_duration() {
    let children = "echo at $(date +%s.%N); i=0; while [ $i -lt 1000 ]; do /bin/true; \
                    i=$((i+1)); done; echo at $(date +%s.%N)";
    let began = Instant::now();
    let output = run(&["--json", "why", "--", "sh", "-c", children]);
    let took = began.elapsed().as_secs_f64();
    let stamps = stamps(&words(&output));
    let [from, to] = stamps[..] else { panic!("{}", words(&output)) };
    let duration = ledger(&output)["duration"].as_f64().unwrap();
    // The shell's own start and end, and a tick of a busy machine.
    assert!(duration >= to - from && duration <= took, "{duration} s of {} s", to - from);
    assert!(duration <= 1.01 * (to - from) + 0.1, "{duration} s of {} s", to - from);
}

#[test]
fn connections_shorter_than_a_look_are_counted() {
    const COUNT: u64 = 400;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.write_all(b"ten bytes\n");
        }
    });
    if Command::new("bash").arg("-c").arg("true").status().is_err() {
        eprintln!("SKIP: bash is not installed");
        return;
    }
    // Each lasts far less than a look's pause; the last stays for a look.
    let client = format!(
        "for i in $(seq {COUNT}); do exec 3<>/dev/tcp/127.0.0.1/{port}; read -r x <&3; exec 3>&-; \
         done; exec 3<>/dev/tcp/127.0.0.1/{port}; sleep 0.5"
    );
    let output = run(&["--json", "why", "--", "bash", "-c", &client]);
    let ledger = ledger(&output);
    let counters = ledger["counters"].as_array().cloned().unwrap_or_default();
    let value = |name: &str| {
        let found = counters.iter().find(|counter| counter["name"] == name);
        found.and_then(|counter| counter["value"].as_u64()).unwrap_or(0)
    };
    let paths = ledger["paths"].as_array().unwrap().len() as u64;
    let hidden = value("between two looks");
    assert!(hidden + paths + 20 >= COUNT * 9 / 10 && hidden <= COUNT + 1, "{hidden}: {ledger}");
    // The kernel counts the end of a stream as a byte.
    let bytes = value("bytes received by these");
    assert!((10 * hidden..=11 * hidden).contains(&bytes), "{counters:?}");
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
    let ledger = ledger(&output);
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
        let client = ["--json", "why", "--", "iperf3", "-c", "127.0.0.1", "-t", "2", "-p", &port];
        let theirs = verdict(&mut lastmeter(&client));
        let ours = verdict(&mut on_calibrated_host(&SHORT));
        // iperf3's server may still be busy with the connection that tested whether it listens.
        let both_said = !theirs[1].is_empty() && !ours[1].is_empty();
        let same = both_said
            && theirs[2].contains("sender") == ours[2].contains("sender")
            && theirs[2].contains("CPU") == ours[2].contains("CPU");
        attempts::in_time!(same, "{theirs:?} and {ours:?}");
    });
    server.kill().unwrap();
    server.wait().unwrap();
    outcome.settle();
}

#[test]
fn made_bottlenecks_are_named_and_never_wrongly() {
    const KEYS: [&str; 9] =
        ["case", "confidence", "knob", "said", "score", "severity", "side", "truth", "words"];
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
                let keys = line.as_object().unwrap().keys().map(String::as_str);
                // What was read of a side, where it judges alone and had a connection.
                let keys: Vec<&str> = keys.filter(|key| *key != "witnesses").collect();
                assert_eq!(keys, KEYS);
            }
            let both = lines.iter().any(|l| l["side"] == "both" && l["score"] == "right");
            let wrong = lines.iter().any(|l| l["score"] == "wrong");
            attempts::in_time!(skipped.get() || (both && !wrong), "{lines:?}");
        });
        outcome.settle();
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
    outcome.settle();
}
