//! Lookup engines in hardware that share one memory: FIPL on the Field Programmable Port Extender.
//!
//! ```text
//! addresses --> [ first come ] --> engine 0 --\
//!                                  engine 1 ---+--> memory, a word a cycle
//! control cells (route updates) -----------------> memory, held while a cell is handled
//! ```
//!
//! An engine requests one word, waits for it and computes, then requests the next: a node of the
//! tree each time, and the next hop at the end. The memory delivers a word a cycle, in order of
//! requests. One engine leaves it idle most of the time; as many as fit between two requests of one
//! can use all of its cycles, each in a phase of its own, so that they hardly wait; more engines
//! only wait longer. All of it is one synchronous circuit: an address is handed over at an edge of
//! the clock, however long it took to come.
//!
//! | Option     | Unit   | Meaning                                                               |
//! |------------|--------|-----------------------------------------------------------------------|
//! | `engines`  |        | how many are in use                                                   |
//! | `cycle`    | time   | of the memory, which gives a word in each                             |
//! | `period`   | time   | from one request of an engine to when it can make its next            |
//! | `handover` | time   | of an address to an engine, and of its answer back                    |
//! | `supply`   | time   | from one address to the next, of whatever brings them                 |
//! | `in_order` |        | whether engines take addresses strictly in turn, so that packets stay in order |
//!
//! Nothing is lost when it is full: addresses wait. A control cell holds the memory from when it comes.
//!
//! Source: description of the Dynamically Extensible Router, sections 9.1 and 9.2, Figs 25 to 27 (D-133
//! to D-139): "the worst-case performance is deterministic", "with 8 engines the entire memory bandwidth
//! is consumed". Deviation: how the engines share the memory, and what keeps it during a control cell,
//! is not described: first come, first served is our reading, and the latter is a time.
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

/// What engines are; see the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many, at least one.
    pub engines: usize,
    /// Of the memory.
    pub cycle: Duration,
    /// From a request to when the next can be made.
    pub period: Duration,
    /// Of an address or an answer.
    pub handover: Duration,
    /// From one address to the next.
    pub supply: Duration,
    /// Whether engines take addresses in turn.
    pub in_order: bool,
}

/// A lookup that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its number, from 0 in the order of asking.
    pub number: u64,
    /// When its answer was there.
    pub at: Time,
    /// From when its engine had the address.
    pub latency: Duration,
}

/// Engines and their memory.
#[derive(Debug)]
pub struct Engines {
    options: Options,
    engines: Vec<Option<Search>>,
    /// Numbers and requests of lookups that no engine has taken yet.
    waiting: VecDeque<(u64, u64)>,
    asked: u64,
    taken: u64,
    /// Until when the memory gives a word, or a control cell holds it.
    memory_free: Time,
    /// For how long the memory gave words, and was held for control cells.
    memory_busy: Duration,
    memory_held: Duration,
    /// When there is a next address to hand out.
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
    /// Engines with nothing to do. Panics without any, or without a clock.
    pub fn new(options: Options) -> Engines {
        assert!(options.engines > 0, "at least one engine");
        assert!(!options.period.is_zero() && !options.cycle.is_zero(), "an engine takes time");
        Engines {
            options,
            engines: vec![None; options.engines],
            waiting: VecDeque::new(),
            asked: 0,
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
        self.waiting.push_back((self.asked, nodes + 1));
        self.asked += 1;
        self.hand_out(now);
    }

    /// A control cell arrives, and holds the memory for this long.
    pub fn control_cell(&mut self, now: Time, held: Duration) {
        self.advance(now);
        self.memory_free = self.memory_free.max(now) + held;
        self.memory_held += held;
    }

    /// When something happens next.
    pub fn ready_at(&self) -> Option<Time> {
        self.earliest().map(|(due, _)| due)
    }

    /// Does everything that is due by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some((due, engine)) = self.earliest().filter(|&(due, _)| due <= now) {
            self.step(due, engine);
        }
    }

    /// Takes the lookups that have ended since the last call.
    pub fn finished(&mut self) -> impl Iterator<Item = Finished> {
        self.finished.drain(..)
    }

    /// For how long the memory gave words, and for how long control cells held it.
    pub fn memory(&self) -> (Duration, Duration) {
        (self.memory_busy, self.memory_held)
    }

    fn earliest(&self) -> Option<(Time, usize)> {
        let due = self.engines.iter().enumerate();
        due.filter_map(|(at, engine)| Some((engine.as_ref()?.due, at))).min()
    }

    /// The first edge of the clock from `from` on: addresses are handed over at one.
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
            // Of those that wait for one cycle the first engine is served first.
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

    /// Gives addresses to free engines, as they come.
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
                self.hand_next = now; // One address is at hand, and no more.
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
    fn one_engine_asks_once_in_eight_cycles() {
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
    fn eight_engines_at_their_worst_pass_nine_million_a_second_d_139() {
        // Ten requests in as many periods of eight cycles, and six cycles of handing over in which all
        // other phases may be taken: from 86 to 88 cycles for each lookup of each engine.
        let rate = rate(options(8, true), &[9; 2048]);
        assert!((8.0 / 0.881e-6..8.0 / 0.859e-6).contains(&rate), "{rate}");
    }

    #[test]
    fn more_engines_than_phases_bring_little_without_a_faster_memory() {
        let rate =
            |options: Options| rate(Options { supply: Duration::ZERO, ..options }, &[9; 2048]);
        let eight = rate(options(8, true));
        // Ten words for each lookup: 10 million a second are all that the memory has.
        assert!((0.9..1.1).contains(&(rate(options(16, true)) / eight)));
        let faster = Options { cycle: Duration::from_ns(5), ..options(16, true) };
        assert!((1.9..2.1).contains(&(rate(faster) / eight)), "{}", rate(faster) / eight);
    }

    #[test]
    fn an_engine_more_never_costs_the_others_much_d_136() {
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
    fn a_control_cell_holds_up_every_engine() {
        let mut engines = Engines::new(options(1, true));
        engines.control_cell(Time::START, Duration::from_us(2));
        engines.lookup(Time::START, 1);
        engines.advance(Time::START + Duration::from_us(10));
        let done = engines.finished().next().expect("it is done");
        // Taken at 30 ns, it waits until 2000; two requests and the answer.
        assert_eq!(done.at, Time::START + Duration::from_ns(2190));
    }

    proptest! {
        #[test]
        fn every_lookup_ends_once_and_none_early(
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
