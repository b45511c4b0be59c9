//! Entry points for fuzzing the documents that users write: no input causes a panic, and errors are reported at
//! their place.
//!
//! | target | what it reads |
//! |---|---|
//! | [`fuzz_device`] | a described adapter, `profiles/devices` |
//! | [`fuzz_adapter`] | an adapter for a host, `profiles/adapters` |
//! | [`fuzz_experiment`] | an experiment, or the profile of a host |
//! | [`fuzz_run`] | an experiment, which also runs for some thousand events |
//!
//! The `fuzz` folder calls them; a test runs a few hundred inputs of each.

use crate::build::{Changes, build};
use crate::close::{Close, close};
use crate::document::{PROBLEMS_MAX, Problem};
use crate::experiment::{Experiment, Network};
use crate::library::Builtin;
use crate::profile::{self, device};
use lastmeter_base::Time;
use lastmeter_engine::{Clock, VirtualClock, Wake};
use lastmeter_host::profile::Profile;
use lastmeter_wire::fuzz::Target;
use std::sync::OnceLock;

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "fuzz_device", run: fuzz_device },
    Target { name: "fuzz_adapter", run: fuzz_adapter },
    Target { name: "fuzz_experiment", run: fuzz_experiment },
    Target { name: "fuzz_run", run: fuzz_running },
];

/// Limit on the length of one error message in bytes, however long the file's lines are.
const MESSAGE_LEN_MAX: usize = 16 << 10;
/// Limit on the length of an adapter's page in bytes.
const PAGE_LEN_MAX: usize = 64 << 10;

/// Checks that a rejected file has errors with a reason and a place, readable and not too many.
pub fn refused(file: &str, problems: &[Problem]) {
    assert!(!problems.is_empty(), "rejected without a reason");
    assert!(problems.len() <= PROBLEMS_MAX, "{} messages", problems.len());
    for problem in problems {
        assert!(problem.line > 0 && problem.column > 0, "line {}", problem.line);
        assert!(!problem.found.is_empty(), "{problem:?}");
        let text = problem.to_string();
        assert!(text.starts_with(&format!("{file}:{}:", problem.line)), "{text}");
        let shown = problem.render(true).len();
        assert!(text.len().max(shown) <= MESSAGE_LEN_MAX, "a message of {shown} B");
    }
}

/// An adapter in five sections: rejected, or one that can be drawn and sends two messages.
pub fn fuzz_device(bytes: &[u8]) {
    match device::device("fuzz.toml", bytes, &Builtin) {
        Err(problems) => refused("fuzz.toml", &problems),
        Ok(card) => {
            for card in [&card, &card.with_faster_processors(12), &card.with_two_banks()] {
                let page = device::describe("fuzz", card);
                let words = card.what.len() + card.source.len();
                assert!(page.len() <= PAGE_LEN_MAX + 2 * words, "a page of {} B", page.len());
            }
            let svg = device::svg(&card);
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        }
    }
}

/// The profile of an adapter in a host, and that of its link alone.
pub fn fuzz_adapter(bytes: &[u8]) {
    static HOST: OnceLock<Option<Profile>> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        let text = include_bytes!("../../../profiles/hosts/hp9000-730.toml");
        profile::host("host.toml", text, &Builtin).ok()
    });
    let host = host.as_ref().expect("a bundled profile is valid");
    match profile::adapter("fuzz.toml", bytes, host, &Builtin) {
        Err(problems) => refused("fuzz.toml", &problems),
        Ok(card) => {
            let both = host.with(&card);
            assert_eq!(both.send.len(), host.send.len() + card.send.len());
            assert_eq!(both.receive.len(), host.receive.len() + card.receive.len());
            assert!(profile::link("fuzz.toml", bytes).is_ok(), "its link alone is valid as well");
        }
    }
    if let Err(problems) = profile::link("fuzz.toml", bytes) {
        refused("fuzz.toml", &problems);
    }
}

/// Nodes and links above which an experiment is not run here: building it would take longer than running it.
const LARGE: usize = 400;
/// How often the clock is asked before a run is stopped: each time some thousand events have been handled.
const WAITS_MAX: u32 = 4;

/// A clock that stops a run after [`WAITS_MAX`] calls.
struct Soon {
    clock: VirtualClock,
    waits: u32,
}

impl Clock for Soon {
    fn wait(&mut self, deadline: Option<Time>) -> Wake {
        self.waits += 1;
        if self.waits > WAITS_MAX { Wake::Stop } else { self.clock.wait(deadline) }
    }
    fn jumps(&self) -> bool {
        true
    }
}

/// An experiment that is accepted runs, whatever its values, and its books balance; returns whether it was
/// accepted.
pub fn fuzz_run(bytes: &[u8]) -> bool {
    let Ok(experiment) = Experiment::parse("fuzz.toml", bytes, &[], &Builtin) else { return false };
    let network = Network::new(&experiment);
    if network.nodes.len().max(network.hops.len()) > LARGE {
        return true;
    }
    let Ok(built) = build(&experiment, &Changes::NONE, &Builtin) else { return false };
    let end = built.end;
    let mut engine = built.graph.build(1).expect("a built graph has room for its timers");
    let mut clock = Soon { clock: VirtualClock::default(), waits: 0 };
    // Endless events at one instant are reported, not a panic.
    if engine.run_until(end, &mut clock).is_ok() {
        let outcome = engine.finish().expect("the books balance");
        drop(close(&outcome, Close::default()));
    }
    true
}

/// [`fuzz_run`] as a target.
fn fuzz_running(bytes: &[u8]) {
    fuzz_run(bytes);
}

/// An experiment, or the profile of a host.
pub fn fuzz_experiment(bytes: &[u8]) {
    let problems = match Experiment::parse("fuzz.toml", bytes, &[], &Builtin) {
        Ok(experiment) => build(&experiment, &Changes::NONE, &Builtin).err().unwrap_or_default(),
        Err(problems) => {
            assert!(!problems.is_empty(), "rejected without a reason");
            problems
        }
    };
    let profile = profile::host("fuzz.toml", bytes, &Builtin).err().unwrap_or_default();
    let all = problems.iter().chain(&profile);
    all.for_each(|problem| drop((problem.render(true), problem.to_string())));
}
