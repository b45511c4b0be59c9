//! Questions of the documents asked of real packets, beside other methods.
//!
//! One question, three methods, and how well they agree (E-06): how long does a message alone take through END's
//! adapter? By the equation of the document, by the machine in virtual time, and by real packets through the same
//! description on a wall clock. And where the bottleneck is as a network becomes faster (N-42, Fig 2 of ATOMIC-2's
//! report).

use super::{go, in_time, is_installed, options, parse, shell, temporary};
use lastmeter::emulate::Options;
use lastmeter_base::{Bytes, Duration, Quantity, Rate};
use lastmeter_host::adapter::cim::Cim;
use lastmeter_host::adapter::pipeline;
use lastmeter_host::adapter::transmitter::Variation;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile::constants::Constants;
use lastmeter_lab::profile::device;
use lastmeter_linux::clock::WaitOptions;
use lastmeter_linux::port::Offload;
use lastmeter_live::namespace::Hosts;
use lastmeter_live::sample;
use lastmeter_live::site::Kind;
use lastmeter_live::stages;
use lastmeter_live::transfer::{Relay, Setting};
use lastmeter_why::own::{self, Account};

/// Data of an ICMP echo, and the bytes of its frame: headers of ICMP, IP and Ethernet are 42.
const DATA: u64 = 1000;
const FRAME: Bytes = Bytes(DATA + 42);
/// How long the adapter spins before a deadline: a timer alone ends its sleep late.
const SPIN: Duration = Duration::from_us(500);
/// How far methods may be apart.
const AGREE: f64 = 0.95;

const ADAPTER: &str = r#"
title = "Messages through an adapter"
duration = "2 s"
[nodes]
alice = { host = { live = true } }
card = { adapter = { device = "cim", depth = 1 } }
bob = { host = { live = true } }
[[links]]
between = ["alice", "card", "bob"]
"#;

/// Eq 5.2 with Table 5.1.
fn by_equation() -> f64 {
    let text = Builtin.profile("constants", "cim").unwrap();
    let table = Constants::of_profile("cim", &text).unwrap().0;
    let time = |name: &str| table.get::<Duration>(name).unwrap();
    let cim = Cim {
        message_overhead: time("message_overhead"),
        segment: table.get("segment").unwrap(),
        segment_overhead: time("segment_overhead"),
        small: table.get("small").unwrap(),
        per_byte_small: table.get("per_byte_small").unwrap(),
        per_byte_large: table.get("per_byte_large").unwrap(),
        frame: table.get("frame").unwrap(),
        transmit_overhead: time("transmit_overhead"),
        frame_delay: time("frame_delay"),
    };
    cim.time_alone(FRAME).as_secs_f64()
}

fn by_machine() -> f64 {
    let cim = device::read("cim", &Builtin).unwrap();
    pipeline::run(&cim, FRAME, (1, 50), Variation::None, 0).mean.as_secs_f64()
}

/// Half of the fastest round trip of real packets, which pass the adapter on either way. What others take of the
/// machine meanwhile makes a packet later, never earlier.
fn by_live_run() -> f64 {
    let file = temporary("methods");
    let script = format!("ping -c 20 -i 0.05 -s {DATA} 10.77.0.2 > {}", file.display());
    let programs = vec![shell("alice", &script, true)];
    let kind = Kind::Tap(Offload::Checksum);
    let manner = WaitOptions { spin: SPIN, ..WaitOptions::SLEEPING };
    let report = go(&parse(ADAPTER, &[]), &Options { programs, manner, ..options(kind) });
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(report.status, Some(0), "{text}");
    let times = text.split("time=").skip(1);
    let times = times.map(|rest| rest.split(' ').next().unwrap().parse::<f64>().unwrap());
    times.min_by(f64::total_cmp).unwrap() / 2000.0
}

/// The smaller over the larger: 1 where they agree.
fn score(one: f64, other: f64) -> f64 {
    (one / other).min(other / one)
}

pub(super) fn e_06_an_equation_a_machine_and_real_packets_agree() {
    if !is_installed("ping") {
        return;
    }
    let (equation, machine, live) = (by_equation(), by_machine(), by_live_run());
    println!(
        "  {:.3} ms by equation, {:.3} ms by machine (score {:.4}), {:.3} ms live (score {:.4})",
        equation * 1e3,
        machine * 1e3,
        score(machine, equation),
        live * 1e3,
        score(live, equation),
    );
    assert!(score(machine, equation) > 0.9999);
    assert!(live > equation, "a packet is never early: {live} s beside {equation} s");
    in_time!(score(live, equation) > AGREE, "{live} s beside {equation} s");
}

const LINK: &str = r#"
title = "A link that becomes faster"
duration = "3 s"
[nodes]
alice = { host = { live = true } }
bob = { host = { live = true } }
[[links]]
between = ["alice", "bob"]
rate = "10 Mbit/s"
queue = { drop-tail = { packets = 1000 } }
"#;

/// How busy the ledger's wire is with a TCP transfer over a link of this rate.
fn busy(rate: &str) -> f64 {
    let programs = vec![
        shell("bob", "exec iperf3 -s -1", false),
        shell("alice", "sleep 0.2; iperf3 -c 10.77.0.2 -t 1 > /dev/null", true),
    ];
    let experiment = parse(LINK, &[&format!("links.0.rate={rate}")]);
    let kind = Kind::Tap(Offload::Segmentation);
    let options = Options { programs, twin: false, ..options(kind) };
    let ledger = go(&experiment, &options).ledger;
    let wire = ledger.resources.iter().find(|known| known.name.starts_with("alice->bob"));
    wire.expect("the link has a wire").utilisation()
}

/// At 10 and 100 Mbit/s the wire is full, and limits; at 100 Gbit/s it idles, so what limits is in the hosts.
pub(super) fn n_42_the_bottleneck_moves_from_the_wire_to_the_hosts() {
    if !is_installed("iperf3") {
        return;
    }
    let found = ["10 Mbit/s", "100 Mbit/s", "100 Gbit/s"].map(|rate| (rate, busy(rate)));
    for (rate, busy) in &found {
        println!("  {rate:>10}: the wire is busy for {:.1} % of the run", 100.0 * busy);
    }
    // The transfer begins after 0.2 of 1.2 seconds.
    in_time!(found[0].1 > 0.7 && found[1].1 > 0.7, "the wire was not filled: {found:?}");
    assert!(found[2].1 < 0.5, "{found:?}");
}

/// What limits a transfer of our own over a link of this rate, and the stage that its processor works for most.
/// Stages are sampled, or found by leaving them out, without the link.
fn limited(rate: Option<&str>, sampled: bool) -> Option<(String, String)> {
    let rate = rate.map(|rate| Rate::parse(rate).unwrap());
    let relay = rate.map(|rate| Relay { delay: Duration::ZERO, rate: Some(rate) });
    let setting = Setting { relay, duration: Duration::from_ms(600), ..Setting::PLAIN };
    let mut hosts = Hosts::open(relay.is_some()).unwrap();
    if let Err(why) = hosts.sample() {
        println!("SKIP: stages are not sampled: {why}");
        return None;
    }
    let measured = hosts.run(&setting).unwrap();
    // A slow link leaves so little to do that an end may have no sample.
    let stages = match sample::stages::stages(&measured) {
        Some(stages) if sampled => stages,
        _ => stages::measure(&mut hosts, &setting).unwrap(),
    };
    let (host, profile) = (String::new(), None);
    let account =
        Account { measured: &measured, stages: &stages, what_ifs: Vec::new(), host, profile };
    let ledger = own::ledger(account);
    let limit = ledger.verdict.unwrap().resource.unwrap_or_default();
    let resource = ledger.resources.iter().find(|one| one.name == limit);
    let stage = resource.and_then(|one| one.by_stage.iter().max_by(|a, b| a.1.total_cmp(b.1)));
    let stage =
        stage.map_or(String::new(), |(stage, share)| format!("{stage}, {:.0} %", 100.0 * share));
    println!("  {rate:?}: {:.3} Gbit/s, limited by {limit} ({stage})", measured.goodput.mean / 1e9);
    Some((limit, stage))
}

/// The same question of `why`, which names what limits: slow links by themselves, and without one a processor and the
/// stage that it works for.
pub(super) fn n_42_the_ledger_names_the_stage_of_the_host_that_limits() {
    for (rate, sampled) in [("10 Mbit/s", false), ("100 Mbit/s", true)] {
        let Some((limit, _)) = limited(Some(rate), sampled) else { return };
        in_time!(limit == "network", "{rate}: {limit}");
    }
    let Some((limit, stage)) = limited(None, true) else { return };
    in_time!([own::SENDER_CORE, own::RECEIVER_CORE].contains(&limit.as_str()), "{limit}");
    assert!(!stage.is_empty(), "{limit} works for no stage");
}
