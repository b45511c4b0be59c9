//! Tests in real time. Other programs may spoil an attempt, so each test has several.
//!
//! A test whose [`in_time!`] fails at every attempt is reported as undecided if other programs kept the
//! machine busy, and as failed on an idle machine. An attempt that says itself that others disturbed it
//! ([`disturbed!`]) does not count, nor one that is late while the hypervisor took time away, and fewer than three
//! that count decide nothing. A wrong count or sum has nothing to do with time: it is an `assert!`, and fails in any
//! case.

#![allow(
    dead_code,
    clippy::print_stdout,
    reason = "some users of this module have other tests as well"
)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Maximum attempts; the pause before each is longer than the one before.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// Fewer attempts that others left alone do not say that a test is late.
const DECIDING: u32 = 3;

/// The machine is busy if other programs use this many CPUs.
const BUSY: f64 = 0.5;

/// The hypervisor disturbs if it takes this share of the time that would have been run.
const STOLEN: f64 = 0.05;

/// The panic of [`in_time!`].
pub(crate) struct Late(pub(crate) String);

/// Like `assert!`, for a condition that a busy machine can spoil.
macro_rules! in_time {
    ($holds:expr, $($words:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            std::panic::panic_any($crate::attempts::Late(format!($($words)+)));
        }
    }};
}
pub(crate) use in_time;

/// The panic of [`disturbed!`].
pub(crate) struct Disturbed(pub(crate) String);

/// Ends an attempt in which others took from the test what it needs to decide anything.
macro_rules! disturbed {
    ($($words:tt)+) => {
        std::panic::panic_any($crate::attempts::Disturbed(format!($($words)+)))
    };
}
#[allow(unused_imports, reason = "some users of this module need it")]
pub(crate) use disturbed;

/// The outcome of a test after all its attempts.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    /// Other programs kept the machine busy; the message of the last attempt.
    Undecided(String),
    Failed(String),
}

impl Outcome {
    /// Ends a test of libtest, which shows what it prints with `--show-output`, as `make test` does.
    pub(crate) fn settle(self) {
        match self {
            Outcome::Passed => {}
            Outcome::Undecided(words) => println!("UNDECIDED: {words}"),
            Outcome::Failed(words) => panic!("{words}"),
        }
    }
}

/// Runs the tests selected on the command line, or all, one after the other. Names are `real_time::NAME`;
/// `--skip` works as in libtest. Panics if a test failed.
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
        let from = Instant::now();
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
    assert_eq!(failed, 0, "real-time tests failed");
}

/// Tries a test until it passes.
pub(crate) fn attempt(test: impl Fn()) -> Outcome {
    attempt_beside(test, others, ran)
}

/// `others` measures for a given time how many CPUs other programs use; `ran` is the time that all CPUs have run since
/// they were started, and what the hypervisor took away.
fn attempt_beside(
    test: impl Fn(),
    others: impl Fn(Duration) -> f64,
    ran: impl Fn() -> (f64, f64),
) -> Outcome {
    let mut last = (Kind::Disturbed, String::new());
    let (mut all_late, mut least_busy, mut alone) = (true, f64::INFINITY, 0);
    for number in 1..=ATTEMPTS {
        let before = ran();
        let Err(panic) = catch_unwind(AssertUnwindSafe(&test)) else { return Outcome::Passed };
        let after = ran();
        let (mut kind, mut words) = kind(&*panic);
        let taken = after.1 - before.1;
        let share = taken / (after.0 - before.0 + taken).max(1e-9);
        if kind == Kind::Late && share >= STOLEN {
            kind = Kind::Disturbed;
            words += &format!("; the hypervisor took {:.0} % of the time", share * 100.0);
        }
        let busy = others(PAUSE * number);
        println!("  attempt {number}: {words}");
        if kind != Kind::Disturbed {
            all_late &= kind == Kind::Late;
            least_busy = least_busy.min(busy);
            alone += 1;
        }
        if kind != Kind::Disturbed || last.0 == Kind::Disturbed {
            last = (kind, words);
        }
    }
    match last {
        (Kind::Disturbed, words) => Outcome::Undecided(words),
        (_, words) if all_late && least_busy >= BUSY => Outcome::Undecided(format!(
            "others used {least_busy:.1} CPUs or more at all attempts that were late; the last: {words}"
        )),
        (_, words) if all_late && alone < DECIDING => Outcome::Undecided(format!(
            "others left alone only {alone} of {ATTEMPTS} attempts, which were late; the last: {words}"
        )),
        (_, words) => Outcome::Failed(words),
    }
}

/// How an attempt ended that did not pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Wrong,
    Late,
    Disturbed,
}

/// What a panic says, and from which of the macros it is.
fn kind(panic: &(dyn Any + Send)) -> (Kind, String) {
    if let Some(Late(words)) = panic.downcast_ref() {
        return (Kind::Late, words.clone());
    }
    if let Some(Disturbed(words)) = panic.downcast_ref() {
        return (Kind::Disturbed, words.clone());
    }
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    let words = owned.or_else(|| panic.downcast_ref::<&str>().copied());
    (Kind::Wrong, words.unwrap_or("a panic without message").to_owned())
}

/// How many CPUs there are, and their ticks as user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
fn ticks() -> (usize, [f64; 8]) {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let cpus = text.lines().filter(|line| line.starts_with("cpu")).count() - 1;
    let words = text.lines().next().unwrap().split_ascii_whitespace().skip(1).take(8);
    let ticks: Vec<f64> = words.map(|word| word.parse().unwrap()).collect();
    (cpus, ticks.try_into().unwrap())
}

/// CPUs that other programs and the hypervisor use while this program waits.
fn others(wait: Duration) -> f64 {
    let (cpus, before) = ticks();
    std::thread::sleep(wait);
    let (_, after) = ticks();
    let all: f64 = after.iter().sum::<f64>() - before.iter().sum::<f64>();
    let idle = after[3] + after[4] - before[3] - before[4];
    cpus as f64 * (1.0 - idle / all.max(1.0))
}

/// Ticks that all CPUs ran, and that the hypervisor took.
fn ran() -> (f64, f64) {
    let (_, [user, nice, system, _, _, irq, softirq, steal]) = ticks();
    (user + nice + system + irq + softirq, steal)
}

/// The children of this process.
pub(crate) fn children() -> String {
    let path = format!("/proc/self/task/{}/children", std::process::id());
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Lines about network interfaces.
pub(crate) fn interfaces() -> usize {
    std::fs::read_to_string("/proc/net/dev").unwrap().lines().count()
}

/// Waits until these processes have ended; a zombie has.
pub(crate) fn wait_until_gone(pids: &str) {
    let gone = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.rsplit_once(')').unwrap().1.trim().starts_with('Z')
    };
    let until = Instant::now() + Duration::from_secs(20);
    while !pids.split_ascii_whitespace().all(gone) {
        assert!(Instant::now() < until, "still there: {pids}");
        std::thread::yield_now();
    }
}

/// Tests this module's rules on made-up loads.
pub(crate) fn judges() {
    let (idle, busy) = (|_| 0.1, |_| 1.9);
    let late = || in_time!(1 + 1 == 3, "late by {} s", 2);
    let wrong = || assert_eq!(1 + 1, 3, "a wrong count");
    let alone = || (1.0, 0.0);
    assert_eq!(attempt_beside(|| (), idle, alone), Outcome::Passed);
    assert_eq!(attempt_beside(late, idle, alone), Outcome::Failed("late by 2 s".to_owned()));
    let Outcome::Undecided(words) = attempt_beside(late, busy, alone) else {
        panic!("it was busy")
    };
    assert!(words.contains("1.9 CPUs") && words.ends_with("late by 2 s"), "{words}");
    assert!(matches!(attempt_beside(wrong, busy, alone), Outcome::Failed(_)));
    // It says itself that it was disturbed, at each attempt or after some that were late or wrong.
    let disturbed = || {
        disturbed!("others took {}", 0.3);
    };
    let first = |count: u32, test: fn()| {
        let number = std::cell::Cell::new(0);
        let one = move || {
            number.set(number.get() + 1);
            if number.get() <= count { test() } else { disturbed() }
        };
        attempt_beside(one, idle, alone)
    };
    assert_eq!(
        attempt_beside(disturbed, idle, alone),
        Outcome::Undecided("others took 0.3".to_owned())
    );
    assert_eq!(first(3, late), Outcome::Failed("late by 2 s".to_owned()));
    let Outcome::Undecided(words) = first(2, late) else { panic!("too few") };
    assert!(words.contains("only 2 of 5") && words.ends_with("late by 2 s"), "{words}");
    assert!(matches!(first(1, wrong), Outcome::Failed(_)));
    // The machine was quiet at one attempt, which was late nevertheless.
    let quiet_once = |wait: Duration| if wait == PAUSE { 0.0 } else { 2.0 };
    assert!(matches!(attempt_beside(late, quiet_once, alone), Outcome::Failed(_)));
    // The hypervisor took 6 of 100 during each attempt, or 4.
    let taking = |taken: f64| {
        let calls = std::cell::Cell::new(0.0);
        move || {
            calls.set(calls.get() + 1.0);
            (calls.get() * (100.0 - taken), calls.get() * taken)
        }
    };
    let outcome = attempt_beside(late, idle, taking(6.0));
    let words = "late by 2 s; the hypervisor took 6 % of the time";
    assert_eq!(outcome, Outcome::Undecided(words.to_owned()));
    assert!(matches!(attempt_beside(late, idle, taking(4.0)), Outcome::Failed(_)));
    assert!(matches!(attempt_beside(wrong, idle, taking(6.0)), Outcome::Failed(_)));
}
