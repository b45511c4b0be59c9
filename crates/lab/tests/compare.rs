//! Two ledgers side by side: the changes, in text and as a page.

use lastmeter_engine::Serial;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{Builtin, experiment};
use lastmeter_lab::run::{Runner, Watch, ledger};
use lastmeter_ledger::Ledger;
use lastmeter_ledger::compare::Comparison;
use lastmeter_ledger::html;

fn tandem(sets: &[&str]) -> Ledger {
    let text = experiment("tandem").unwrap();
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
    let experiment = Experiment::parse("tandem", text, &sets, &Builtin).unwrap();
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
    ledger(&experiment, runner).unwrap()
}

#[test]
fn the_largest_change_comes_first() {
    let plain = tandem(&["duration=5 ms"]);
    let slower = tandem(&["duration=5 ms", "nodes.s4.station.service={exponential=\"1.2 us\"}"]);
    let comparison = Comparison::new(["plain", "slower"], [&plain, &slower]);
    assert!(comparison.stages[0].of.starts_with("s4"), "{:?}", comparison.stages[0]);
    assert_eq!(comparison.resources[0].of, "s4");
    assert!(!comparison.same_experiment);
    let latency = &comparison.totals[1];
    assert_eq!((latency.what.as_str(), latency.first), ("latency", Some(plain.latency())));
    assert!(latency.change().starts_with('+'), "{}", latency.change());
}

#[test]
fn entries_of_only_one_ledger_are_listed_but_not_compared() {
    let plain = tandem(&["duration=1 ms"]);
    let mut other = plain.clone();
    other.resources.retain(|resource| resource.name != "s3");
    other.paths[0].class = "others".to_owned();
    let comparison = Comparison::new(["a", "b"], [&plain, &other]);
    let gone = comparison.resources.iter().find(|line| line.of == "s3").unwrap();
    assert_eq!((gone.second, gone.change().as_str()), (None, "gone"));
    assert!(comparison.totals.iter().any(|line| line.change() == "new"));
    assert!(comparison.text(80).lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn the_page_is_complete_and_escapes_all_text() {
    let mut plain = tandem(&["duration=1 ms"]);
    plain.title = "</script><script>alert(1)</script>".to_owned();
    let page = html::compare::render(&Comparison::new(["<a>", "b"], [&plain, &plain]));
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(!page.contains("<script>alert") && !page.contains("<a>"));
    assert_eq!(page.matches("<section").count(), page.matches("</section>").count());
    assert!(!page.contains("http://") && !page.contains("https://"));
}
