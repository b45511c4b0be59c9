//! Aurora's hosts and adapters as profiles: which pairs work, which are refused, and what limits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use lastmeter_base::{Bytes, Duration};
use lastmeter_engine::Serial;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::ledger::Ledger;
use lastmeter_lab::library::Builtin;
use lastmeter_lab::run::{Crew, Failure, Watch, ledger};
use lastmeter_lab::why::historic::{Pair, historic};

const DEC_5000: [&str; 2] = ["dec5000-200", "dec5000-240"];
const DEC: [&str; 4] = ["dec5000-200", "dec5000-240", "dec3000-400", "dec3000-800"];
const VUNET: [&str; 5] = ["vupboard", "vudboard", "vudboard-first-driver", "osiris", "null-device"];
/// Table 2.
const STUDY: [&str; 10] =
    ["vup", "vup1", "cop1", "cop2", "cop3", "cop4", "cop5", "cop6", "dma", "dma1"];

fn with_crew<T>(run: impl FnOnce(Crew<'_>) -> Result<T, Failure>) -> T {
    let watch = Watch::default();
    run(Crew { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch }).unwrap()
}

fn transfer(host: &str, adapter: &str) -> Ledger {
    let pair = Pair::read(host, adapter, &Builtin).unwrap();
    let packet = Bytes::from_kib(4);
    let text = pair.experiment(Bytes::from_kib(4), packet, Duration::from_ms(200)).unwrap();
    let experiment = Experiment::parse("pair", text, &[], &Builtin).unwrap();
    with_crew(|crew| ledger(&experiment, crew))
}

#[test]
fn every_sensible_pair_has_a_balanced_ledger() {
    let vunet = DEC.iter().flat_map(|host| VUNET.map(|adapter| (*host, adapter)));
    let study = DEC_5000.iter().flat_map(|host| STUDY.map(|adapter| (*host, adapter)));
    let osf1 = ["florb", "null-device"].map(|adapter| ("dec3000-400-osf1", adapter));
    for (host, adapter) in vunet.chain(study).chain(osf1) {
        let ledger = transfer(host, adapter);
        assert!(ledger.goodput() > 1e6, "{host} with {adapter}: {}", ledger.goodput());
        assert_eq!(ledger.balance.packets_residual, 0, "{host} with {adapter}");
        assert_eq!(ledger.loss(), 0.0, "{host} with {adapter}");
    }
}

#[test]
fn a_pair_that_makes_no_sense_is_refused_with_the_reason() {
    let cases = [
        ("dec3000-400", "cop3", "there is no resource `instructions`"),
        ("dec3000-800", "vup", "there is no resource `bus-read`"),
        ("dec5000-200", "florb", "there is no resource `turbochannel`"),
        ("dec3000-400-osf1", "vudboard", "there is no resource `copy`"),
        ("hp9000-730", "vupboard", "there is no resource `copy`"),
        ("dec3000-800", "afterburner", "the host has no stage `send call`"),
    ];
    for (host, adapter, reason) in cases {
        let problems = Pair::read(host, adapter, &Builtin).unwrap_err();
        let found: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
        assert!(found.contains(reason), "{host} with {adapter}: {found}");
    }
    let pair = Pair::read("harts", "null-device", &Builtin).unwrap();
    let problems = pair.experiment(Bytes(1000), Bytes(1000), Duration::from_ms(1)).unwrap_err();
    assert!(problems[0].found.contains("does not say how large its socket buffer is"));
}

#[test]
fn a_93_host_to_host_the_interrupt_for_each_page_limits() {
    let (message, packet) = (Bytes::from_kib(4), Bytes::from_kib(6));
    let ledger = with_crew(|crew| historic("dec3000-800", "vudboard", message, packet, crew));
    let verdict = ledger.verdict.unwrap();
    assert_eq!(verdict.resource.as_deref(), Some("sender.transmit-page"), "{}", verdict.words);
    let change = "sender interrupt for the page at no cost";
    let what_if = ledger.what_ifs.iter().find(|what_if| what_if.change == change).unwrap();
    assert!(what_if.gain > 0.4, "{what_if:?}");
}

#[test]
fn a_stage_that_only_crosses_a_bus_is_offered_at_no_cost() {
    let packet = Bytes::from_kib(4);
    let ledger = with_crew(|crew| historic("dec5000-240", "cop6", packet, packet, crew));
    let name = "sender load words";
    let stage = ledger.paths[0].stages.iter().find(|stage| stage.name == name).unwrap();
    assert!(stage.service.mean == 0.0 && stage.blocked.mean > 0.0, "{stage:?}");
    let change = format!("{name} at no cost");
    let what_if = ledger.what_ifs.iter().find(|what_if| what_if.change == change).unwrap();
    assert!(what_if.gain >= 0.0, "{what_if:?}");
}
