//! Live runs between network namespaces: delays, counts, hostile frames, twins, nothing left behind.
//!
//! The helpers are this program run again, so it has its own `main`. Needs network namespaces: without
//! the rights each test prints `SKIP:` and why. A test that other programs disturb at every attempt
//! prints `UNDECIDED:`. `make test-long` runs these tests for longer, with `LASTMETER_CYCLES` and
//! `LASTMETER_HOSTILE` in the environment.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, reason = "a test")]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;
#[path = "live/classes.rs"]
mod classes;
#[path = "live/kernel.rs"]
mod kernel;
#[path = "live/layers.rs"]
mod layers;
#[path = "live/methods.rs"]
mod methods;
#[path = "live/stopwatch.rs"]
mod stopwatch;
#[path = "live/stretched.rs"]
mod stretched;
#[path = "live/striped.rs"]
mod striped;
#[path = "live/vunet.rs"]
mod vunet;

use attempts::{children, in_time, interfaces, wait_until_gone};
use lastmeter::emulate::{Demand, Options, Report, Started, run};
use lastmeter_base::Duration;
use lastmeter_engine::Control;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Builtin;
use lastmeter_linux::clock::WaitOptions;
use lastmeter_linux::port::Offload;
use lastmeter_live::flood::Flood;
use lastmeter_live::site::{HostOptions, Kind, Site, clean};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Tells this program to hold a site until it is killed.
const HOLD: &str = "LASTMETER_TEST_HOLD";

const KINDS: [Kind; 5] = [
    Kind::Xdp,
    Kind::Packet,
    Kind::Tap(Offload::None),
    Kind::Tap(Offload::Checksum),
    Kind::Tap(Offload::Segmentation),
];

fn main() {
    lastmeter::enter_if_asked();
    if std::env::var(HOLD).is_ok() {
        return hold();
    }
    if std::env::var(classes::SEND).is_ok() {
        return classes::send();
    }
    if let Err(e) = Site::open(&two(), Kind::Packet) {
        println!("SKIP: all live runs: {e}");
        return;
    }
    attempts::run_all(TESTS);
}

const TESTS: &[(&str, fn())] = &[
    ("a_ping_takes_twice_the_delay", ping_takes_twice_the_delay),
    ("every_kind_of_port_carries_every_frame_and_the_twin_agrees", every_port),
    ("tcp_gets_the_rate_less_headers", tcp_gets_the_rate),
    ("a_flood_beyond_the_link_rate_is_dropped_by_the_queue", queue_drops),
    (
        "packets_reach_every_leaf_of_a_tree_and_the_kernel_beside_shares_alike",
        classes::packets_reach_every_leaf_of_a_tree_and_the_kernel_beside_shares_alike,
    ),
    (
        "e_06_an_equation_a_machine_and_real_packets_agree",
        methods::e_06_an_equation_a_machine_and_real_packets_agree,
    ),
    (
        "n_42_the_bottleneck_moves_from_the_wire_to_the_hosts",
        methods::n_42_the_bottleneck_moves_from_the_wire_to_the_hosts,
    ),
    (
        "n_42_the_ledger_names_the_stage_of_the_host_that_limits",
        methods::n_42_the_ledger_names_the_stage_of_the_host_that_limits,
    ),
    (
        "a_59_whoever_takes_part_real_packets_stay_in_order",
        striped::a_59_whoever_takes_part_real_packets_stay_in_order,
    ),
    (
        "a_161_the_kernels_tcp_fills_a_link_and_its_queue_as_the_models_does",
        kernel::a_161_the_kernels_tcp_fills_a_link_and_its_queue_as_the_models_does,
    ),
    (
        "e_55_with_stretched_time_delays_grow_and_what_cpus_do_does_not",
        stretched::e_55_with_stretched_time_delays_grow_and_what_cpus_do_does_not,
    ),
    (
        "e_49_a_counter_that_wraps_around_keeps_the_time_where_it_is_read_within_a_round",
        stopwatch::e_49_a_counter_that_wraps_around_keeps_the_time_where_it_is_read_within_a_round,
    ),
    ("a_42_live_columns_are_those_of_the_model", layers::a_42_live_columns_are_those_of_the_model),
    (
        "a_68_jitter_and_waiting_are_where_packets_queue_up",
        layers::a_68_jitter_and_waiting_are_where_packets_queue_up,
    ),
    ("hostile_frames_are_counted_and_do_not_disturb_other_hosts", hostile),
    ("a_run_survives_a_port_that_disappears", port_disappears),
    ("children_that_leave_the_session_end_with_the_run", leaves_session),
    ("signals_and_lost_helpers_are_in_the_result", signals_and_helpers),
    ("a_strict_run_ends_at_the_first_violation", strict),
    ("nothing_is_left_behind_by_many_runs", cycles),
    ("what_a_killed_run_left_is_cleaned_up_by_the_next", killed),
    (
        "a_small_vunet_discovers_opens_watches_and_repairs_itself",
        vunet::a_small_site_discovers_opens_watches_and_repairs_itself,
    ),
    (
        "a_program_gets_its_pictures_through_the_switches",
        vunet::a_program_gets_its_pictures_through_the_switches,
    ),
    (
        "a_vunet_refuses_other_traffic_and_options",
        vunet::other_traffic_and_other_options_are_refused,
    ),
];

const EXPERIMENT: &str = r#"
title = "A link"
duration = "600 ms"
[nodes]
alice = { host = { live = true } }
bob = { host = { live = true } }
[[links]]
between = ["alice", "bob"]
rate = "100 Mbit/s"
delay = "5 ms"
queue = { drop-tail = { packets = 1000 } }
"#;

const STAR: &str = r#"
title = "A star"
duration = "2 s"
[nodes]
alice = { host = { live = true } }
bob = { host = { live = true, address = "10.9.0.2/24" } }
carol = { host = { live = true, address = "10.9.0.3/24" } }
r = { router = {} }
[[links]]
between = ["alice", "r"]
rate = "10 Mbit/s"
delay = "1 ms"
queue = { drop-tail = { packets = 100 } }
[[links]]
between = ["bob", "r", "carol"]
rate = "1 Gbit/s"
delay = "1 ms"
"#;

fn two() -> Vec<HostOptions> {
    let host = |name: &str, last| HostOptions {
        name: name.to_owned(),
        address: std::net::Ipv4Addr::new(10, 77, 0, last),
        prefix: 24,
    };
    vec![host("alice", 1), host("bob", 2)]
}

fn parse(text: &str, sets: &[&str]) -> Experiment {
    let overrides: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
    let shown = |problems: Vec<lastmeter_lab::document::Problem>| {
        problems.iter().map(|problem| problem.render(false)).collect::<String>()
    };
    Experiment::parse("live.toml", text, &overrides, &Builtin).map_err(shown).unwrap()
}

fn options(kind: Kind) -> Options {
    Options {
        kind,
        attached: Vec::new(),
        manner: WaitOptions::SLEEPING,
        // Tolerant, because other programs may build on the machine meanwhile.
        demand: Demand { share: 0.5, tolerance: Duration::from_ms(20) },
        programs: Vec::new(),
        twin: true,
        flood: None,
    }
}

fn shell(host: &str, script: &str, leads: bool) -> Started {
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    Started { host: Some(host.to_owned()), words, leads, silent: true }
}

fn flood(rate: f64, len: usize, lasts: f64) -> Flood {
    Flood { rate, len, lasts, hostile: false, core: None, ..Flood::default() }
}

fn go(experiment: &Experiment, options: &Options) -> Report {
    run(experiment, options, &Builtin, &Arc::new(Control::default())).unwrap()
}

fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    let found = command.arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("SKIP: `{program}` is not installed");
    }
    found
}

fn temporary(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("lastmeter-{name}-{}", std::process::id()))
}

fn ping_takes_twice_the_delay() {
    if !is_installed("ping") {
        return;
    }
    for kind in [Kind::Packet, Kind::Tap(Offload::Checksum)] {
        let file = temporary("ping");
        let script = format!("ping -c 8 -i 0.05 10.77.0.2 > {}", file.display());
        let programs = vec![shell("alice", &script, true)];
        let report = go(&parse(EXPERIMENT, &[]), &Options { programs, ..options(kind) });
        assert_eq!(report.status, Some(0));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let times = text.split("time=").skip(1);
        let mut times: Vec<f64> =
            times.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        in_time!(times.len() == 8, "{} replies of 8", times.len());
        println!("  ping {times:?} ms");
        assert!(times[0] >= 10.0, "never early: {times:?} ms");
        in_time!(times[4] < 14.0, "{times:?} ms");
        let twin = report.twin.unwrap();
        assert!(twin.order_identical && twin.early == 0 && twin.changed == 0, "{twin:?}");
    }
}

fn every_port() {
    for kind in kinds() {
        let flood = Some(flood(2_000.0, 1000, 0.3));
        let report = go(&parse(EXPERIMENT, &[]), &Options { flood, ..options(kind) });
        let flooded = report.measured.flooded.unwrap();
        let lost = report.measured.overruns;
        println!("  {kind:?}: {flooded:?}, overruns {lost}");
        in_time!(flooded.sent > 300, "{} frames in 0.3 s", flooded.sent);
        assert!(report.measured.received[1] >= flooded.sent - lost);
        assert_eq!(report.ledger.balance.packets_residual, 0);
        let twin = report.twin.unwrap();
        assert!(twin.both >= flooded.sent - lost && twin.alone == (0, 0), "{twin:?}");
        assert!(twin.order_identical && twin.early == 0 && twin.changed == 0, "{twin:?}");
        let certificate = report.ledger.certificate.unwrap();
        // The twin's differences are the certificate's lateness, less the wait before arrival.
        assert!(twin.differences.max().as_secs_f64() <= certificate.worst_lag + 1e-9);
    }
}

fn tcp_gets_the_rate() {
    if !is_installed("iperf3") {
        return;
    }
    let file = temporary("iperf");
    let client = format!("sleep 0.2; iperf3 -c 10.77.0.2 -t 2 -J > {}", file.display());
    let programs = vec![shell("bob", "exec iperf3 -s -1", false), shell("alice", &client, true)];
    let experiment = parse(EXPERIMENT, &["links.0.rate=20 Mbit/s"]);
    let report = go(&experiment, &Options { programs, ..options(Kind::Tap(Offload::Checksum)) });
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let goodput = result["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    println!("  {:.2} Mbit/s, {}", goodput / 1e6, report.ledger.certificate.unwrap().words);
    // 1448 bytes of data in a frame of 1514; slow start and a busy machine may cost a tenth.
    let expected = 20e6 * 1448.0 / 1514.0;
    // iperf3's clock may be late at both ends.
    let is_near = goodput < expected * 1.01 && goodput > expected * 0.9;
    in_time!(is_near, "{goodput} of {expected} bit/s");
}

fn queue_drops() {
    // 1000 frames of 1000 bytes a second are 8 Mbit/s: a link of 2 Mbit/s carries a quarter.
    let sets = ["links.0.rate=2 Mbit/s", "links.0.queue={ drop-tail = { packets = 10 } }"];
    let flood = Some(flood(1_000.0, 1000, 0.5));
    let report = go(&parse(EXPERIMENT, &sets), &Options { flood, ..options(Kind::Packet) });
    let path = report.ledger.paths.iter().find(|path| path.name == "alice->bob").unwrap();
    println!("  {:?}", path.totals);
    in_time!((0.6..0.85).contains(&path.totals.loss.unwrap_or(0.0)), "{:?}", path.totals);
    assert_eq!(report.measured.overruns, 0);
}

/// The kinds of ports that the user's privileges allow.
fn kinds() -> Vec<Kind> {
    let may = |kind: &Kind| {
        let opened = Site::open(&two(), *kind);
        if let Err(e) = &opened {
            println!("SKIP: {kind:?}: {e}");
        }
        opened.is_ok()
    };
    KINDS.into_iter().filter(may).collect()
}

/// The value of a documented environment variable, else `otherwise`.
fn longer(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Resident memory of this process, in pages.
fn pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

fn hostile() {
    let seconds = longer("LASTMETER_HOSTILE", 2);
    for kind in [Kind::Packet, Kind::Tap(Offload::Segmentation)] {
        let before = pages();
        // Ten times what alice's link carries: 10 Mbit/s are 1651 frames of 757 bytes a second.
        let flood = Some(Flood { hostile: true, ..flood(16_510.0, 1500, seconds as f64) });
        let mut programs = Vec::new();
        let (ping, file) = (is_installed("ping"), temporary("hostile"));
        if ping {
            let count = seconds * 10;
            let script = format!("ping -q -c {count} -i 0.1 10.9.0.3 > {}", file.display());
            programs.push(shell("bob", &script, false));
        }
        let experiment = parse(STAR, &[&format!("duration={} ms", seconds * 1000 + 500)]);
        let options = Options { flood, programs, twin: false, ..options(kind) };
        let report = go(&experiment, &options);
        let (flooded, counts) = (report.measured.flooded.unwrap(), report.measured.lines[0].counts);
        println!("  {kind:?}: {flooded:?} {counts:?}");
        let explained =
            counts.received + counts.truncated + counts.oversized + counts.garbled + counts.overrun;
        // A full interface may report its drops to the sender. ARP and the like come from the host itself.
        let offered = flooded.sent + flooded.refused;
        assert!(explained >= flooded.sent && explained <= offered + 100, "{explained}");
        in_time!(flooded.sent > seconds * 10_000, "the generator was too slow");
        let grown = pages().saturating_sub(before) * 4096;
        assert!(grown < 64 << 20, "memory grew by {grown} bytes");
        if ping {
            let text = std::fs::read_to_string(&file).unwrap();
            let _ = std::fs::remove_file(&file);
            println!("  {}", text.lines().find(|line| line.contains("loss")).unwrap_or(&text));
            in_time!(text.contains(" 0% packet loss") || text.is_empty(), "{text}");
        }
    }
}

fn port_disappears() {
    if !is_installed("ip") {
        return;
    }
    let programs = vec![
        shell("alice", "for i in $(seq 40); do ping -c 1 -W 1 10.77.0.2; sleep 0.01; done", false),
        shell("bob", "sleep 0.2; ip link delete eth0", false),
    ];
    for kind in [Kind::Packet, Kind::Tap(Offload::Checksum)] {
        let programs = programs.clone();
        let experiment = parse(EXPERIMENT, &["duration=900 ms"]);
        let report = go(&experiment, &Options { programs, twin: false, ..options(kind) });
        let counts = report.measured.lines[1].counts;
        println!("  {kind:?}: {counts:?} {}", report.measured.lines[1].gone);
        assert!(counts.failures + counts.unreachable > 0, "{counts:?}");
        assert!(report.ledger.duration > 0.89, "ended early: {}", report.ledger.duration);
        let certificate = report.ledger.certificate.unwrap();
        let verdict = report.ledger.verdict.unwrap();
        assert!(!certificate.kept_up, "{}", certificate.words);
        for words in [&certificate.words, &verdict.words] {
            assert!(words.contains("the interface of bob was gone"), "{words}");
        }
    }
}

/// `setsid` leaves the session and the process group, `env -i` drops the run's mark, and the shell is gone
/// before the run ends.
fn leaves_session() {
    let found = Command::new("setsid").arg("--version").stdout(Stdio::null()).status();
    if found.is_err() {
        return println!("SKIP: `setsid` is not installed");
    }
    let pid = temporary("escaped");
    let script = format!(
        "env -i setsid /bin/sh -c 'echo $$ > {0}; exec sleep 300' & \
         while ! [ -s {0} ]; do sleep 0.01; done",
        pid.display()
    );
    let programs = vec![shell("alice", &script, true)];
    let report = go(
        &parse(EXPERIMENT, &[]),
        &Options { programs, twin: false, ..options(Kind::Tap(Offload::Checksum)) },
    );
    assert_eq!(report.status, Some(0));
    let escaped = std::fs::read_to_string(&pid).unwrap();
    std::fs::remove_file(&pid).unwrap();
    wait_until_gone(escaped.trim());
}

/// The program's exit status is what a shell would report; no helper, no host.
fn signals_and_helpers() {
    let dies = |script: &str| {
        let programs = vec![shell("alice", script, true)];
        let options = Options { programs, twin: false, ..options(Kind::Tap(Offload::Checksum)) };
        go(&parse(EXPERIMENT, &[]), &options)
    };
    assert_eq!(dies("kill -9 $$").status, Some(128 + 9));
    assert_eq!(dies("exit 7").status, Some(7));
    // The helpers are this process's children; one that holds a namespace is killed.
    let own = std::process::id();
    let script = format!(
        "for p in $(cat /proc/{own}/task/*/children); do \
           [ $(readlink /proc/$p/ns/net) = $(readlink /proc/self/ns/net) ] && [ $p != $$ ] \
             && kill -9 $p; \
         done; sleep 0.3"
    );
    let report = dies(&script);
    let verdict = report.ledger.verdict.unwrap();
    assert!(verdict.words.contains("the helper process of alice ended"), "{}", verdict.words);
    assert!(!report.ledger.certificate.unwrap().kept_up);
}

fn strict() {
    let flood = Some(flood(2_000.0, 100, 0.3));
    let strict = Some(Duration::from_ns(1));
    let manner = WaitOptions { strict, ..WaitOptions::SLEEPING };
    let report = go(&parse(EXPERIMENT, &[]), &Options { flood, manner, ..options(Kind::Packet) });
    in_time!(report.ledger.duration < 0.3, "ended late: {} s", report.ledger.duration);
    let certificate = report.ledger.certificate.unwrap();
    assert!(!certificate.kept_up && certificate.words.contains("a frame left"));
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn cycles() {
    let cycles = longer("LASTMETER_CYCLES", 16);
    let experiment = parse(EXPERIMENT, &["duration=1 ms"]);
    let once = |kind| {
        let programs = vec![shell("bob", "sleep 30 & sleep 30", false)];
        go(&experiment, &Options { programs, twin: false, ..options(kind) });
    };
    let kinds = kinds();
    kinds.iter().copied().for_each(once);
    let before = (descriptors(), interfaces());
    let pages_before = pages();
    for cycle in 0..cycles {
        once(kinds[cycle as usize % kinds.len()]);
    }
    assert_eq!((descriptors(), interfaces()), before);
    assert_eq!(children(), "");
    assert_eq!(clean(), 0, "some programs were still running");
    let grown = pages().saturating_sub(pages_before) * 4096;
    println!("  {cycles} runs, memory grew by {grown} bytes");
    assert!(grown < 16 << 20, "memory grew by {grown} bytes");
}

/// Holds two hosts and a program that only the next run ends.
#[allow(clippy::zombie_processes, reason = "killed before it could wait for its child")]
fn hold() {
    let (mut site, _ports) = Site::open(&two(), Kind::Packet).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "setsid sleep 60 & echo $!; wait"]).stdout(Stdio::piped());
    let mut child = site.spawn(0, command, true, &[0]).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    println!("{}", line.trim());
    std::io::stdout().flush().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

fn killed() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let orphan = line.trim();
    child.kill().unwrap();
    child.wait().unwrap();
    let is_there = std::fs::exists(format!("/proc/{orphan}/stat")).unwrap();
    assert!(is_there, "nothing is left to clean up");
    // Opening a site cleans up first.
    drop(Site::open(&two(), Kind::Packet).unwrap());
    wait_until_gone(orphan);
}
