//! Following a run: what is shown balances and grows, and following changes nothing.

use lastmeter_engine::{Parallel, Serial};
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{Builtin, experiment};
use lastmeter_lab::run::{Runner, Watch, ledger};
use lastmeter_ledger::Ledger;
use std::sync::{Arc, Mutex, OnceLock};

fn run(name: &str, duration: &str, threads: usize, watch: &Watch) -> Ledger {
    let sets = [Override::parse(&format!("duration={duration}")).unwrap()];
    let experiment = Experiment::parse(name, experiment(name).unwrap(), &sets, &Builtin).unwrap();
    let parallel: &dyn Parallel = &Serial;
    ledger(&experiment, Runner { parallel, threads, library: &Builtin, watch }).unwrap()
}

#[test]
fn following_a_run_changes_no_result() {
    for (name, duration, threads) in
        [("first-path", "300 ms", 1), ("mm1", "3 ms", 1), ("chain", "2 ms", 3), ("wan", "1 s", 2)]
    {
        let alone = run(name, duration, threads, &Watch::default());
        let watch = Watch::followed(|so_far| drop(so_far.ledger().unwrap()));
        assert_eq!(run(name, duration, threads, &watch), alone, "{name}");
    }
}

#[test]
fn intermediate_ledgers_balance_and_grow() {
    let seen: Arc<Mutex<Vec<(f64, Ledger)>>> = Arc::default();
    let keep = seen.clone();
    let watch = Watch::followed(move |so_far| {
        keep.lock().unwrap().push((so_far.share, so_far.ledger().unwrap()));
    });
    let mut end = run("first-path", "300 ms", 1, &watch);
    // Only a whole run has a verdict.
    end.verdict = None;
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 256);
    for pair in seen.windows(2) {
        let ((before, earlier), (now, later)) = (&pair[0], &pair[1]);
        assert!(before < now && earlier.duration < later.duration);
        assert_eq!(later.balance.packets_residual, 0);
        assert_eq!(later.balance.latency_residual, 0.0);
        let delivered = |ledger: &Ledger| ledger.paths[0].totals.delivered.packets;
        assert!(delivered(earlier) <= delivered(later) && delivered(later) <= delivered(&end));
    }
    assert_eq!(seen.last(), Some(&(1.0, end)));
}

#[test]
fn a_run_stopped_between_two_steps_keeps_its_results() {
    let watch: Arc<OnceLock<Arc<Watch>>> = Arc::default();
    let stopping = watch.clone();
    let followed = Arc::new(Watch::followed(move |so_far| {
        if so_far.share >= 0.5 {
            stopping.get().unwrap().control.stop();
        }
    }));
    watch.set(followed.clone()).unwrap();
    // So few events that the engine itself would not check for a stop.
    let ledger = run("mm1", "2 us", 1, &followed);
    assert!(ledger.provenance.partial);
    assert_eq!(ledger.duration, 1e-6);
}
