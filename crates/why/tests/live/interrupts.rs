//! What a real transfer's ledger says of the network's interruptions.

use crate::attempts::in_time;
use lastmeter_base::{Duration, Rate};
use lastmeter_live::namespace::Hosts;
use lastmeter_live::stages::Stages;
use lastmeter_live::transfer::{Measurement, Setting};
use lastmeter_why::interrupts::MATTERS;
use lastmeter_why::own::{Account, ledger};

/// Why it cannot be told here.
pub(crate) fn lacks() -> Option<String> {
    let hosts = Hosts::open(false).map_err(|e| e.to_string());
    hosts.and_then(|mut hosts| hosts.sample()).err()
}

pub(crate) const TESTS: &[(&str, fn())] = &[(
    "j_04_the_ledger_says_what_interruptions_take_where_they_matter",
    j_04_the_ledger_says_what_interruptions_take_where_they_matter,
)];

/// A transfer whose CPU time is sampled, and what its ledger says of interruptions.
fn explained(setting: Setting) -> (Measurement, Option<String>) {
    let mut hosts = Hosts::open(false).unwrap();
    hosts.sample().unwrap();
    let measured = hosts.run(&setting).unwrap();
    let (notes, none) = (Vec::new(), Vec::new());
    let stages = Stages { total: 0.0, stages: none, residual: 0.0, notes, sampled: true };
    let (host, what_ifs) = ("here".to_owned(), Vec::new());
    let account = Account { measured: &measured, stages: &stages, what_ifs, host, profile: None };
    let mut said = ledger(account).notes.into_iter();
    let said = said.find(|note| note.starts_with("Receive softirqs took"));
    (measured, said)
}

/// HPL-93-37, §2.1: a cell comes every 0.7 us, and a host takes 20 us or more for an interrupt. Here a full core sends
/// packets one by one, and their cells come faster than the least part of a softirq that one can take; then one
/// megabit a second is sent, of which nothing is to be said.
fn j_04_the_ledger_says_what_interruptions_take_where_they_matter() {
    let short = Setting { duration: Duration::from_ms(600), ..Setting::PLAIN };
    let (full, said) = explained(Setting { offload: false, ..short.clone() });
    let sampled = full.sampled.as_ref().unwrap();
    in_time!(sampled.whole, "only the program could be sampled");
    let groups: u64 = sampled.groups.iter().map(|group| group.softirq.total()).sum();
    let spent = (groups + sampled.outside.total()) as f64 * sampled.period;
    let share = spent / full.elapsed;
    println!("  {share:.2} of a CPU: {said:?}");
    assert_eq!(said.is_some(), share >= MATTERS, "{share}: {said:?}");
    in_time!(share >= MATTERS, "{share} of a CPU in softirqs");
    let note = said.unwrap();
    let number = |before: &str| -> f64 {
        let (_, rest) = note.split_once(before).unwrap_or_else(|| panic!("no {before} in {note}"));
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let softirqs = full.counters.softirqs["NET_RX"] as f64;
    let segments = (full.sender.tcp.segments_in + full.receiver.tcp.segments_in) as f64;
    assert!((number("took ") - 100.0 * share).abs() <= 0.51, "{note} {share}");
    assert!((number("CPU: ") - softirqs / full.elapsed).abs() <= 0.51, "{note} {softirqs}");
    assert!((number("each, with ") - segments / softirqs).abs() <= 0.051, "{note}");
    let (_, cells) = note.split_once("In ATM cells").unwrap();
    assert!(cells.contains("faster than the host can be interrupted"), "{note}");
    let (_, said) = explained(Setting { sender_rate: Some(Rate::from_mbit(1)), ..short });
    assert_eq!(said, None, "nobody would gain by fewer");
}
