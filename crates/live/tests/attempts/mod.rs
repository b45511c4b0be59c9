//! Tests of real time. What others run on the machine may spoil an attempt, so there are several.
//!
//! An [`in_time!`] that fails in all of them is undecided if others kept the machine busy, and
//! says so; on an idle machine it has failed. A count or a sum that is wrong has nothing to do with
//! time: that is an `assert!`, and fails whatever others do.

#![allow(dead_code, reason = "not all that use this have tests of real time only")]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How often a test may be tried, with a longer pause before each further attempt.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// CPUs' worth of time that others use on a busy machine.
const BUSY: f64 = 0.5;

/// What [`in_time!`] panics with.
pub(crate) struct Late(pub(crate) String);

/// Like `assert!`, of something that a busy machine can spoil.
macro_rules! in_time {
    ($holds:expr, $($words:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            std::panic::panic_any($crate::attempts::Late(format!($($words)+)));
        }
    }};
}
pub(crate) use in_time;

/// What the attempts of a test have come to.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    /// Others kept the machine busy; the words of the last attempt.
    Undecided(String),
    Failed(String),
}

/// Runs one after the other the tests that the command line names, or all; `--skip` as elsewhere,
/// where each is called `real_time::NAME`. Fails if one failed.
pub(crate) fn run_all(tests: &[(&str, fn())]) {
    let (mut named, mut skipped) = (Vec::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--skip" => skipped.extend(arguments.next()),
            option if option.starts_with('-') => {}
            _ => named.push(argument),
        }
    }
    let is_wanted = |name: &str| {
        let name = format!("real_time::{name}");
        let has = |word: &String| name.contains(word.as_str());
        (named.is_empty() || named.iter().any(has)) && !skipped.iter().any(has)
    };
    let (mut passed, mut undecided, mut failed) = (0, 0, 0);
    for (name, test) in tests.iter().filter(|(name, _)| is_wanted(name)) {
        let from = std::time::Instant::now();
        println!("test {name}");
        let (count, words) = match attempt(test) {
            Outcome::Passed => (&mut passed, "ok".to_owned()),
            Outcome::Undecided(words) => (&mut undecided, format!("UNDECIDED: {words}")),
            Outcome::Failed(words) => (&mut failed, format!("FAILED: {words}")),
        };
        *count += 1;
        println!("test {name} ... {words} ({:.1} s)", from.elapsed().as_secs_f64());
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed; {undecided} undecided");
    assert_eq!(failed, 0, "tests of real time failed");
}

/// Tries a test until it passes.
pub(crate) fn attempt(test: impl Fn()) -> Outcome {
    attempt_beside(test, others)
}

/// With what tells how busy others are while this program waits so long.
fn attempt_beside(test: impl Fn(), others: impl Fn(Duration) -> f64) -> Outcome {
    let mut last = String::new();
    let (mut all_late, mut least_busy) = (true, f64::INFINITY);
    for number in 1..=ATTEMPTS {
        let Err(panic) = catch_unwind(AssertUnwindSafe(&test)) else { return Outcome::Passed };
        let late;
        (late, last) = words(&*panic);
        all_late &= late;
        least_busy = least_busy.min(others(PAUSE * number));
        println!("  attempt {number}: {last}");
    }
    if all_late && least_busy >= BUSY {
        let words = format!("others used {least_busy:.1} CPUs or more at all {ATTEMPTS} attempts");
        return Outcome::Undecided(format!("{words}; the last: {last}"));
    }
    Outcome::Failed(last)
}

/// Whether a panic is of time, and its message.
fn words(panic: &(dyn Any + Send)) -> (bool, String) {
    let text = |words: &str| (false, words.to_owned());
    if let Some(Late(words)) = panic.downcast_ref() {
        return (true, words.clone());
    }
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    text(owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words"))
}

/// CPUs' worth of time that others, and a hypervisor, use while this program waits.
fn others(wait: Duration) -> f64 {
    // User, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
    let read = || {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let cpus = text.lines().filter(|line| line.starts_with("cpu")).count() - 1;
        let ticks = text.lines().next().unwrap().split_ascii_whitespace().skip(1).take(8);
        let ticks: Vec<f64> = ticks.map(|word| word.parse().unwrap()).collect();
        (cpus as f64, ticks.iter().sum::<f64>(), ticks[3] + ticks[4])
    };
    let (cpus, all, idle) = read();
    std::thread::sleep(wait);
    let (_, all_then, idle_then) = read();
    cpus * (1.0 - (idle_then - idle) / (all_then - all).max(1.0))
}

/// The rules of this file, with made-up machines.
pub(crate) fn judges() {
    let (idle, busy) = (|_| 0.1, |_| 1.9);
    let late = || in_time!(1 + 1 == 3, "late by {} s", 2);
    let wrong = || assert_eq!(1 + 1, 3, "a wrong count");
    assert_eq!(attempt_beside(|| (), idle), Outcome::Passed);
    assert_eq!(attempt_beside(late, idle), Outcome::Failed("late by 2 s".to_owned()));
    let Outcome::Undecided(words) = attempt_beside(late, busy) else { panic!("it was busy") };
    assert!(words.contains("1.9 CPUs") && words.ends_with("late by 2 s"), "{words}");
    assert!(matches!(attempt_beside(wrong, busy), Outcome::Failed(_)));
    // Once quiet, and late all the same.
    let quiet_once = |wait: Duration| if wait == PAUSE { 0.0 } else { 2.0 };
    assert!(matches!(attempt_beside(late, quiet_once), Outcome::Failed(_)));
}
