//! What verdicts say: of one run, of sets that limit together, of gains above the speed that was added.

use lastmeter_engine::Serial;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::explain::{Decides, once};
use lastmeter_lab::library::{self, Builtin};
use lastmeter_lab::run::{FirstRun, Runner, Search, Watch, explain, ledger};
use lastmeter_ledger::{Confidence, Ledger};

/// Two links at their limit, declared as one entry.
const TWO: &str = r#"
duration = "500 ms"
[nodes]
a = { host = {} }
r = { router = {} }
b = { host = {} }
[[links]]
between = ["a", "r", "b"]
rate = "10 Mbit/s"
[[traffic]]
name = "stream"
from = "a"
to = "b"
constant = { rate = "15 Mbit/s", size = "1250 B" }
"#;

fn parsed(text: &str, changes: &[&str]) -> Experiment {
    let changes: Vec<Override> = changes.iter().map(|one| Override::parse(one).unwrap()).collect();
    Experiment::parse("experiment.toml", text, &changes, &Builtin).unwrap()
}

fn explained(text: &str, changes: &[&str]) -> Ledger {
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
    explain(&parsed(text, changes), Search::Rounds, 0, runner).unwrap().ledger
}

fn words(ledger: &Ledger) -> &str {
    &ledger.verdict.as_ref().unwrap().words
}

#[test]
fn a_single_run_says_what_is_busiest_and_what_would_decide() {
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
    let ledger = ledger(&parsed(TWO, &[]), runner).unwrap();
    let verdict = ledger.verdict.as_ref().unwrap();
    assert_eq!((&verdict.resource, verdict.confidence), (&None, Confidence::Undecided));
    assert_eq!(verdict.runner_up.as_deref(), Some("a->r"));
    assert!(verdict.words.starts_with("a->r is busiest: in use for 100 %"), "{}", verdict.words);
    assert!(verdict.words.contains("decided by what-ifs"), "{}", verdict.words);
}

#[test]
fn links_of_one_entry_that_limit_together_are_tried_together() {
    let ledger = explained(TWO, &[]);
    assert!(words(&ledger).starts_with("a->r and r->b limit together"), "{}", words(&ledger));
    let best = &ledger.what_ifs[0];
    assert_eq!(best.change, "a->r and r->b: both twice as fast");
    // All that is offered: half as much again.
    assert!((best.gain - 0.5).abs() < 0.02, "{}", best.gain);
    // Alone, neither brings anything.
    let alone = |name: &str| ledger.what_ifs.iter().find(|one| one.change == name).unwrap().gain;
    assert!(alone("a->r twice as fast").max(alone("r->b twice as fast")) < 0.005);
}

#[test]
fn a_set_is_not_tried_where_one_resource_helps() {
    let slow_first = TWO.replace("[\"a\", \"r\", \"b\"]", "[\"a\", \"r\"]")
        + "[[links]]\nbetween = [\"r\", \"b\"]\nrate = \"100 Mbit/s\"\n";
    let ledger = explained(&slow_first, &[]);
    assert_eq!(ledger.verdict.as_ref().unwrap().resource.as_deref(), Some("a->r"));
    assert!(ledger.what_ifs.iter().all(|one| !one.change.contains("both")));
}

#[test]
fn a_gain_above_the_speed_added_is_explained() {
    let text = library::experiment("first-path").unwrap();
    let ledger = explained(text, &[]);
    let why = "packets that are dropped later have already cost bob.cpu time";
    assert!(words(&ledger).contains(why), "{}", words(&ledger));
}

#[test]
fn where_nothing_limits_the_verdict_says_so_after_what_ifs_and_after_a_live_run() {
    let ledger = explained(&TWO.replace("15 Mbit/s", "5 Mbit/s"), &[]);
    let says = "Nothing limits throughput: what was offered arrived";
    assert!(words(&ledger).starts_with(says), "{}", words(&ledger));
    let live = |ledger: &Ledger| once(ledger, Decides::Live).unwrap();
    let verdict = live(&ledger);
    let says = "Nothing in the modelled network limits: nothing was lost";
    assert!(verdict.words.starts_with(says), "{}", verdict.words);
    assert!(verdict.words.contains("in themselves, their hosts, or the round trip"));
    assert_eq!((verdict.resource, verdict.confidence), (None, Confidence::Medium));
    // A busy one is named, and what would decide.
    let busy = live(&explained(TWO, &[]));
    assert!(busy.words.contains("->r is busiest") || busy.words.contains("->b is busiest"));
    assert!(busy.words.contains("another run in which it is faster, with --set"), "{}", busy.words);
}

#[test]
fn round_trips_and_full_links_have_words_of_their_own() {
    let text = TWO.replace("constant = { rate = \"15 Mbit/s\", size", "bulk = { window = 4, size");
    let few = explained(&text, &["links.0.delay=10 ms"]);
    assert!(words(&few).starts_with("Round trips limit"), "{}", words(&few));
}

/// TCP and Poisson traffic share two links in a row for long enough that no change is tried on all of the run.
const LONG: &str = r#"
duration = "120 s"
[nodes]
s0 = { host = {} }
s1 = { host = {} }
r0 = { router = {} }
r1 = { router = {} }
d0 = { host = {} }
d1 = { host = {} }
[[links]]
between = ["s0", "r0"]
rate = "100 Mbit/s"
delay = "100 us"
[[links]]
between = ["s1", "r0"]
rate = "100 Mbit/s"
delay = "100 us"
[[links]]
between = ["r0", "r1"]
rate = "20 Mbit/s"
delay = "2 ms"
queue = { drop-tail = { packets = 50 } }
[[links]]
between = ["r1", "d0"]
rate = "60 Mbit/s"
delay = "100 us"
[[links]]
between = ["r1", "d1"]
rate = "60 Mbit/s"
delay = "100 us"
[[traffic]]
name = "stream"
from = "s0"
to = "d0"
tcp = {}
[[traffic]]
name = "calls"
from = "s1"
to = "d1"
poisson = { rate = "5 Mbit/s", size = "1000 B" }
"#;

#[test]
fn a_search_in_rounds_finds_what_an_exhaustive_one_finds_for_less() {
    let explained = |search| {
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
        explain(&parsed(LONG, &[]), search, 0, runner).unwrap().ledger
    };
    let (ours, theirs) = (explained(Search::Rounds), explained(Search::Exhaustive));
    // The ledger of a long run is there before its verdict, that of a short one is not waited for.
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
    let (long, short) = (parsed(LONG, &[]), parsed(TWO, &[]));
    let long = FirstRun::new(&long, runner).unwrap();
    let before = long.before_the_verdict().unwrap();
    assert_eq!((&before.paths, &before.verdict), (&ours.paths, &None));
    assert_eq!(FirstRun::new(&short, runner).unwrap().before_the_verdict(), None);
    let (our, their) = (ours.verdict.as_ref().unwrap(), theirs.verdict.as_ref().unwrap());
    assert_eq!(our.resource.as_deref(), Some("r0->r1"));
    assert_eq!(our.resource, their.resource);
    assert_eq!(ours.paths, theirs.paths, "the run itself is not cut short");
    // Every change was tried by both; by rounds on a part of the run, the best on the longest.
    assert_eq!(ours.what_ifs.len(), theirs.what_ifs.len());
    let shares: Vec<f64> = ours.what_ifs.iter().map(|one| one.share.unwrap_or(1.0)).collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
    assert!(shares.iter().sum::<f64>() < shares.len() as f64 / 2.0, "{shares:?}");
    assert!(theirs.what_ifs.iter().all(|one| one.share.is_none()));
    for (our, their) in ours.what_ifs.iter().zip(&theirs.what_ifs).take(2) {
        let same = theirs.what_ifs.iter().find(|one| one.change == our.change).unwrap();
        assert!(same.gain >= their.gain - 0.005, "{our:?} {their:?}");
        assert!((our.gain - same.gain).abs() < 0.05, "{our:?} {same:?}");
    }
}
