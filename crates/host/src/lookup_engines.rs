//! Hardware lookup engines that share one memory: FIPL on the Field Programmable Port Extender.
//!
//! ```text
//! addresses --> [ first come ] --> engine 0 --\
//!                                  engine 1 ---+--> memory, a word a cycle
//! control cells (route updates) -----------------> memory, held while a cell is handled
//! ```
//!
//! An engine requests one word, waits for it and computes, then requests the next: one node of the tree each time,
//! and finally the next hop. The memory delivers one word per cycle, in order of requests. A single engine leaves
//! it mostly idle. As many engines as there are cycles between two requests of one engine can use all cycles, each
//! in a phase of its own, so that they hardly wait; with more engines, requests only wait longer. All of this is
//! one synchronous circuit: an address is handed over at a clock edge, however long it took to arrive.
//!
//! | Option     | Unit   | Meaning                                                               |
//! |------------|--------|-----------------------------------------------------------------------|
//! | `engines`  |        | number of engines in use                                              |
//! | `cycle`    | time   | memory cycle; each delivers a word                                    |
//! | `period`   | time   | from one request of an engine until it can make the next              |
//! | `handover` | time   | handing an address to an engine, and handing its answer back          |
//! | `supply`   | time   | from one address to the next, whatever supplies them                  |
//! | `in_order` |        | whether engines take addresses strictly in turn, so that packets stay in order |
//!
//! Nothing is lost under overload: addresses wait. A control cell holds the memory from its arrival on.
//!
//! Source: description of the Dynamically Extensible Router, sections 9.1 and 9.2, Figs 25 to 27 (D-133
//! to D-139): "the worst-case performance is deterministic", "with 8 engines the entire memory bandwidth
//! is consumed". Deviation: the document does not describe how the engines share the memory, nor what uses it
//! during a control cell. We assume first come, first served, and a fixed time per control cell.
//!
//! ```
//! use lastmeter_base::{Duration, Time};
//! use lastmeter_host::lookup_engines::{Engines, Options};
//! let options = Options {
//!     engines: 1,
//!     cycle: Duration::from_ns(10),
//!     period: Duration::from_ns(80),
//!     handover: Duration::from_ns(30),
//!     supply: Duration::from_ns(10),
//!     in_order: true,
//! };
//! let mut engines = Engines::new(options);
//! engines.lookup(Time::START, 7); // Seven nodes and the next hop: 8 requests.
//! engines.advance(Time::START + Duration::from_us(1));
//! let done = engines.finished().next().expect("30 + 640 + 30 ns have passed");
//! assert_eq!(done.latency, Duration::from_ns(670));
//! ```

use lastmeter_base::{Duration, Time};
use std::collections::VecDeque;

/// Parameters of the engines; see the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of engines, at least one.
    pub engines: usize,
    /// Memory cycle.
    pub cycle: Duration,
    /// From a request until the next can be made.
    pub period: Duration,
    /// Time to hand over an address or an answer.
    pub handover: Duration,
    /// From one address to the next.
    pub supply: Duration,
    /// Whether engines take addresses strictly in turn.
    pub in_order: bool,
}

/// A completed lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its number, from 0, in the order of requests.
    pub number: u64,
    /// When its answer was available.
    pub at: Time,
    /// Time since its engine received the address.
    pub latency: Duration,
}

/// Engines and their memory.
#[derive(Debug)]
pub struct Engines {
    options: Options,
    engines: Vec<Option<Search>>,
    /// Numbers and requests of the lookups not yet taken by an engine.
    waiting: VecDeque<(u64, u64)>,
    requested: u64,
    taken: u64,
    /// The end of the last word delivered or of the last hold by a control cell.
    memory_free: Time,
    /// Total time for which the memory delivered words, and for which control cells held it.
    memory_busy: Duration,
    memory_held: Duration,
    /// When the next address can be handed out.
    hand_next: Time,
    finished: VecDeque<Finished>,
}

#[derive(Clone, Copy, Debug)]
struct Search {
    number: u64,
    started: Time,
    /// When it requests its next word, or is done if none is left.
    due: Time,
    requests: u64,
}

impl Engines {
    /// Idle engines. Panics if there are none, or if a cycle or period is zero.
    pub fn new(options: Options) -> Engines {
        assert!(options.engines > 0, "at least one engine");
        assert!(
            !options.period.is_zero() && !options.cycle.is_zero(),
            "cycle and period are more than zero"
        );
        Engines {
            options,
            engines: vec![None; options.engines],
            waiting: VecDeque::new(),
            requested: 0,
            taken: 0,
            memory_free: Time::START,
            memory_busy: Duration::ZERO,
            memory_held: Duration::ZERO,
            hand_next: Time::START,
            finished: VecDeque::new(),
        }
    }

    /// Requests the lookup of an address whose path down the tree has this many nodes.
    pub fn lookup(&mut self, now: Time, nodes: u64) {
        self.advance(now);
        self.waiting.push_back((self.requested, nodes + 1));
        self.requested += 1;
        self.hand_out(now);
    }

    /// A control cell arrives, and holds the memory for this long.
    pub fn control_cell(&mut self, now: Time, held: Duration) {
        self.advance(now);
        self.memory_free = self.memory_free.max(now) + held;
        self.memory_held += held;
    }

    /// When the next event is due.
    pub fn ready_at(&self) -> Option<Time> {
        self.earliest().map(|(due, _)| due)
    }

    /// Handles everything due by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some((due, engine)) = self.earliest().filter(|&(due, _)| due <= now) {
            self.step(due, engine);
        }
    }

    /// Takes the lookups completed since the last call.
    pub fn finished(&mut self) -> impl Iterator<Item = Finished> {
        self.finished.drain(..)
    }

    /// Total time for which the memory delivered words, and for which control cells held it.
    pub fn memory(&self) -> (Duration, Duration) {
        (self.memory_busy, self.memory_held)
    }

    fn earliest(&self) -> Option<(Time, usize)> {
        let due = self.engines.iter().enumerate();
        due.filter_map(|(at, engine)| Some((engine.as_ref()?.due, at))).min()
    }

    /// The first clock edge at or after `from`: addresses are handed over at clock edges.
    fn edge(&self, from: Time) -> Time {
        let cycle = self.options.cycle.as_ps();
        Time::from_ps(from.as_ps().div_ceil(cycle) * cycle)
    }

    fn step(&mut self, now: Time, engine: usize) {
        let Options { cycle, period, handover, .. } = self.options;
        let Some(mut search) = self.engines[engine] else { return };
        if search.requests == 0 {
            let latency = now - search.started;
            self.finished.push_back(Finished { number: search.number, at: now, latency });
            self.engines[engine] = None;
            self.hand_out(now);
            return;
        }
        if self.memory_free > now {
            // Of several engines waiting for the same cycle, the first is served first.
            search.due = self.edge(self.memory_free);
        } else {
            search.requests -= 1;
            self.memory_busy += cycle;
            self.memory_free = now + cycle;
            search.due = match search.requests {
                0 => now + period + handover,
                _ => now + period,
            };
        }
        self.engines[engine] = Some(search);
    }

    /// Hands addresses to free engines as they arrive.
    fn hand_out(&mut self, now: Time) {
        while let Some(&(number, requests)) = self.waiting.front() {
            let free = match self.options.in_order {
                true => Some((self.taken % self.engines.len() as u64) as usize)
                    .filter(|&turn| self.engines[turn].is_none()),
                false => self.engines.iter().position(Option::is_none),
            };
            let Some(engine) = free else { return };
            self.waiting.pop_front();
            self.taken += 1;
            let handed = self.edge(now.max(self.hand_next));
            self.hand_next += self.options.supply;
            if self.hand_next < now {
                self.hand_next = now; // One address is ready, and no more.
            }
            let started = handed + self.options.handover;
            let due = self.edge(started);
            self.engines[engine] = Some(Search { number, started, due, requests });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(engines: usize, in_order: bool) -> Options {
        let ns = Duration::from_ns;
        Options {
            engines,
            cycle: ns(10),
            period: ns(80),
            handover: ns(30),
            supply: ns(10),
            in_order,
        }
    }

    fn run(options: Options, nodes: &[u64]) -> (Vec<Finished>, Engines) {
        let mut engines = Engines::new(options);
        nodes.iter().for_each(|&nodes| engines.lookup(Time::START, nodes));
        while let Some(next) = engines.ready_at() {
            engines.advance(next);
        }
        let finished = engines.finished().collect();
        (finished, engines)
    }

    #[test]
    fn one_engine_makes_a_request_every_eight_cycles() {
        let (finished, _) = run(options(1, true), &[9, 9]);
        assert_eq!(finished[0].latency, Duration::from_ns(830));
        assert_eq!(finished[1].at - finished[0].at, Duration::from_ns(860));
    }

    fn rate(options: Options, nodes: &[u64]) -> f64 {
        let (finished, _) = run(options, nodes);
        let end = finished.iter().map(|done| done.at).max().expect("all are done");
        nodes.len() as f64 / (end - Time::START).as_secs_f64()
    }

    #[test]
    fn eight_engines_do_nine_million_worst_case_lookups_per_second_d_139() {
        // Ten requests in as many periods of eight cycles, plus six cycles of handover, during which all other
        // phases may be taken: 86 to 88 cycles per lookup and engine.
        let rate = rate(options(8, true), &[9; 2048]);
        assert!((8.0 / 0.881e-6..8.0 / 0.859e-6).contains(&rate), "{rate}");
    }

    #[test]
    fn more_engines_than_phases_gain_little_without_a_faster_memory() {
        let rate =
            |options: Options| rate(Options { supply: Duration::ZERO, ..options }, &[9; 2048]);
        let eight = rate(options(8, true));
        // Ten words per lookup: the memory can deliver 10 million lookups per second at most.
        assert!((0.9..1.1).contains(&(rate(options(16, true)) / eight)));
        let faster = Options { cycle: Duration::from_ns(5), ..options(16, true) };
        assert!((1.9..2.1).contains(&(rate(faster) / eight)), "{}", rate(faster) / eight);
    }

    #[test]
    fn one_more_engine_never_slows_the_others_much_d_136() {
        let mean = |engines: usize| {
            let supply = Duration::from_ns(99);
            let options = Options { supply, ..options(engines, true) };
            let nodes: Vec<u64> = (0..1024).map(|at| 5 + at * at % 4).collect();
            let (finished, _) = run(options, &nodes);
            let sum: Duration = finished.iter().map(|done| done.latency).sum();
            sum.as_secs_f64() / finished.len() as f64
        };
        for engines in 2..=8 {
            assert!(mean(engines) < 1.06 * mean(1), "{engines}: {} {}", mean(engines), mean(1));
        }
    }

    #[test]
    fn a_control_cell_delays_every_engine() {
        let mut engines = Engines::new(options(1, true));
        engines.control_cell(Time::START, Duration::from_us(2));
        engines.lookup(Time::START, 1);
        engines.advance(Time::START + Duration::from_us(10));
        let done = engines.finished().next().expect("it is done");
        // Taken at 30 ns, it waits until 2000 ns; then two requests and the answer.
        assert_eq!(done.at, Time::START + Duration::from_ns(2190));
    }

    proptest! {
        #[test]
        fn every_lookup_ends_once_and_never_early(
            nodes in prop::collection::vec(1_u64..10, 1..60),
            engines in 1_usize..9,
            in_order: bool,
        ) {
            let (finished, machine) = run(options(engines, in_order), &nodes);
            let mut numbers: Vec<u64> = finished.iter().map(|done| done.number).collect();
            numbers.sort_unstable();
            prop_assert!(numbers.iter().copied().eq(0..nodes.len() as u64));
            for done in &finished {
                let least = Duration::from_ns(80) * (nodes[done.number as usize] + 1) + Duration::from_ns(30);
                prop_assert!(done.latency >= least);
            }
            let words: u64 = nodes.iter().map(|nodes| nodes + 1).sum();
            prop_assert_eq!(machine.memory().0, Duration::from_ns(10) * words);
        }
    }
}
