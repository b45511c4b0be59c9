//! A whole router in virtual time: virtual output queues, fabric, output queues, and in parallel the ideal that
//! distributed queueing imitates, in which all arrivals go to their output queue at once.
//!
//! ```text
//! offer(i, j, len) --> [ VOQ i,j ] --S L--> [ fabric to j ] --S L--> [ output j ] --L--> gone
//!                 '--> [ ideal output j ] --L--> gone
//! ```
//!
//! The fabric carries S L from any input and to any output; any excess to an output waits in the fabric.
//! Distributed queueing must keep the maximum of this excess small. Cell headers are not counted: rates count the
//! bits of packets, as in the document.
//!
//! Source: Kuhns et al., §3.6, §8; the ideal is output queueing at N times the link rate (D-59).

use super::allocation::{Allocation, Rule, Shares, Summary};
use super::voq::{Rules, Voqs};
use lastmeter_base::{Bytes, Duration, Rate, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// Parameters of a router.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// N.
    pub ports: usize,
    /// L.
    pub link: Rate,
    /// S, as numerator and denominator.
    pub speed_up: (u64, u64),
    /// D.
    pub period: Duration,
    /// The equations of distributed queueing; `None` if inputs send whatever they have.
    pub rule: Option<Rule>,
    /// Buffer of an input for all outputs, and of an output.
    pub room: Bytes,
}

impl Options {
    /// S L.
    pub fn capacity(&self) -> Rate {
        self.link.scale_floor(self.speed_up.0, self.speed_up.1)
    }
    /// Distributed queueing, if any.
    pub fn allocation(&self) -> Option<Allocation> {
        let (ports, capacity) = (self.ports, self.capacity());
        self.rule.map(|rule| Allocation { rule, ports, capacity })
    }
}

/// Totals of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Bytes that arrived for it at all inputs.
    pub offered: u64,
    /// Bytes that its link has carried.
    pub carried: u64,
    /// Most bytes that waited in the fabric for it: congestion.
    pub congestion_max: u64,
    /// Most bytes in its queue.
    pub backlog_max: u64,
    /// Bytes lost at inputs or at the output because a buffer was full.
    pub lost: u64,
    /// Most bytes that the ideal had carried and this router had not yet.
    pub behind_max: u64,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    output: usize,
    len: Bytes,
    arrived: Time,
    /// When it would have left the ideal router.
    ideal: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet has left an output's link.
    Gone(usize),
    /// A packet has passed the fabric to an output.
    Passed(usize),
    /// An input may have something to send.
    Input(usize),
    /// Backlogs are exchanged.
    Period,
}

/// A server that serves one packet after the other.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Packet>,
    bytes: u64,
    busy: bool,
}

/// The ideal of one output: its backlog at the last update.
#[derive(Clone, Copy, Debug, Default)]
struct Ideal {
    free_at: Time,
    offered: u64,
}

/// Delays of packets, compared with the ideal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Packets that have left.
    pub packets: u64,
    /// From arrival to departure in picoseconds, summed over packets.
    pub sum: u128,
    /// The same in the ideal.
    pub ideal_sum: u128,
    /// The longest time by which a packet left later than it would have in the ideal.
    pub later_max: Duration,
}

/// The router.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate, Time};
/// use lastmeter_lan::fabric::allocation::Rule;
/// use lastmeter_lan::fabric::model::{Model, Options};
/// let mut router = Model::new(Options {
///     ports: 8,
///     link: Rate::from_mbit(70),
///     speed_up: (2, 1),
///     period: Duration::from_us(500),
///     rule: Some(Rule::Responsive { backlog_min: Bytes(1500) }),
///     room: Bytes::from_mib(8),
/// });
/// router.offer(0, 3, Bytes(520));
/// router.advance(Time::START + Duration::from_ms(1));
/// assert_eq!(router.output(3).carried, 520);
/// ```
#[derive(Debug)]
pub struct Model {
    options: Options,
    capacity: Rate,
    now: Time,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    inputs: Vec<Voqs<Packet>>,
    /// When each input's line into the fabric becomes free, and when its event is due.
    input_free: Vec<(Time, Option<Time>)>,
    fabric: Vec<Line>,
    queues: Vec<Line>,
    outputs: Vec<Output>,
    ideals: Vec<Ideal>,
    delays: Delays,
}

impl Model {
    /// An idle router.
    pub fn new(options: Options) -> Model {
        let ports = options.ports;
        let capacity = options.capacity();
        let allocation = options.allocation();
        let rules = Rules { allocation, period: options.period, room: options.room };
        let rules = Arc::new(rules);
        let voqs = || Voqs::new(rules.clone());
        let mut events = BinaryHeap::new();
        if allocation.is_some() {
            events.push(Reverse((Time::START + options.period, Event::Period)));
        }
        Model {
            options,
            capacity,
            now: Time::START,
            events,
            inputs: (0..ports).map(|_| voqs()).collect(),
            input_free: vec![(Time::START, None); ports],
            fabric: (0..ports).map(|_| Line::default()).collect(),
            queues: (0..ports).map(|_| Line::default()).collect(),
            outputs: vec![Output::default(); ports],
            ideals: vec![Ideal::default(); ports],
            delays: Delays::default(),
        }
    }

    /// A packet arrives now at `input` for `output`.
    pub fn offer(&mut self, input: usize, output: usize, len: Bytes) {
        let ideal = &mut self.ideals[output];
        ideal.free_at = ideal.free_at.max(self.now) + self.options.link.time_for(len);
        ideal.offered += len.0;
        self.outputs[output].offered += len.0;
        let packet = Packet { output, len, arrived: self.now, ideal: ideal.free_at };
        if self.inputs[input].enqueue(self.now, output, len, packet).is_err() {
            self.outputs[output].lost += len.0;
        }
        self.wake(input);
    }

    /// Advances to `end`.
    pub fn advance(&mut self, end: Time) {
        while let Some(&Reverse((at, event))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            match event {
                Event::Gone(output) => self.gone(output),
                Event::Passed(output) => self.passed(output),
                Event::Input(input) => self.send(input),
                Event::Period => self.tell(),
            }
        }
        self.now = end;
    }

    /// Schedules an event for when an input can next send, if that is sooner than its pending event.
    fn wake(&mut self, input: usize) {
        let (free, set) = self.input_free[input];
        let Some(ready) = self.inputs[input].ready_at() else { return };
        let at = ready.max(free).max(self.now);
        if set.is_none_or(|set| at < set) {
            self.input_free[input].1 = Some(at);
            self.events.push(Reverse((at, Event::Input(input))));
        }
    }

    fn send(&mut self, input: usize) {
        // An event superseded by a sooner one finds nothing to do.
        if self.input_free[input].1 == Some(self.now) {
            self.input_free[input].1 = None;
        }
        if self.input_free[input].0 <= self.now
            && let Some((output, len, packet)) = self.inputs[input].dequeue(self.now)
        {
            self.input_free[input].0 = self.now + self.capacity.time_for(len);
            let line = &mut self.fabric[output];
            line.waiting.push_back(packet);
            line.bytes += len.0;
            let congestion = &mut self.outputs[output].congestion_max;
            *congestion = (*congestion).max(line.bytes);
            if !line.busy {
                self.pass(output);
            }
        }
        self.wake(input);
    }

    /// Begins to transfer the first packet in the fabric for an output.
    fn pass(&mut self, output: usize) {
        let line = &mut self.fabric[output];
        line.busy = line.waiting.front().is_some();
        if let Some(packet) = line.waiting.front() {
            let at = self.now + self.capacity.time_for(packet.len);
            self.events.push(Reverse((at, Event::Passed(output))));
        }
    }

    fn passed(&mut self, output: usize) {
        let line = &mut self.fabric[output];
        let packet = line.waiting.pop_front().expect("a packet in transfer was waiting");
        line.bytes -= packet.len.0;
        self.pass(output);
        let queue = &mut self.queues[output];
        if queue.bytes + packet.len.0 > self.options.room.0 {
            self.outputs[output].lost += packet.len.0;
            return;
        }
        queue.bytes += packet.len.0;
        queue.waiting.push_back(packet);
        let most = &mut self.outputs[output].backlog_max;
        *most = (*most).max(queue.bytes);
        if !queue.busy {
            self.leave(output);
        }
    }

    /// Begins to send the first packet of an output's queue.
    fn leave(&mut self, output: usize) {
        let queue = &mut self.queues[output];
        queue.busy = queue.waiting.front().is_some();
        if let Some(packet) = queue.waiting.front() {
            let at = self.now + self.options.link.time_for(packet.len);
            self.events.push(Reverse((at, Event::Gone(output))));
        }
    }

    fn gone(&mut self, output: usize) {
        let queue = &mut self.queues[output];
        let packet = queue.waiting.pop_front().expect("a departing packet was waiting");
        queue.bytes -= packet.len.0;
        self.delays.packets += 1;
        self.delays.sum += u128::from((self.now - packet.arrived).as_ps());
        self.delays.ideal_sum += u128::from((packet.ideal - packet.arrived).as_ps());
        let later = self.now.saturating_since(packet.ideal);
        self.delays.later_max = self.delays.later_max.max(later);
        self.outputs[packet.output].carried += packet.len.0;
        let behind = self.ideal_carried(output).saturating_sub(self.outputs[output].carried);
        let most = &mut self.outputs[output].behind_max;
        *most = (*most).max(behind);
        self.leave(output);
    }

    /// Every port broadcasts its backlogs, and every input computes its rates.
    fn tell(&mut self) {
        let Some(allocation) = self.options.allocation() else { return };
        let mut summary = Summary::empty(self.options.ports);
        let own: Vec<Vec<(usize, u64)>> = self.inputs.iter().map(Voqs::backlogs).collect();
        own.iter().for_each(|row| summary.add(row.iter().copied()));
        for (output, bytes) in summary.output.iter_mut().enumerate() {
            *bytes = self.backlog(output);
        }
        let shares = Arc::new(Shares::new(&allocation, summary));
        for (input, own) in own.iter().enumerate() {
            self.inputs[input].allocate(self.now, own, shares.clone());
            self.wake(input);
        }
        let next = self.now + self.options.period;
        self.events.push(Reverse((next, Event::Period)));
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.now
    }
    /// Backlog of an output, in bytes.
    pub fn backlog(&self, output: usize) -> u64 {
        self.queues[output].bytes
    }
    /// Backlog at an input for an output, in bytes.
    pub fn input_backlog(&self, input: usize, output: usize) -> u64 {
        self.inputs[input].backlog(output).0
    }
    /// Backlog of all inputs, in bytes.
    pub fn inputs_backlog(&self) -> u64 {
        self.inputs.iter().map(|voqs| voqs.bytes().0).sum()
    }
    /// r(i,j) in bits per second.
    pub fn rate(&self, input: usize, output: usize) -> Option<u64> {
        self.inputs[input].rate(output)
    }
    /// Totals of an output.
    pub fn output(&self, output: usize) -> Output {
        self.outputs[output]
    }
    /// Bytes that the ideal has carried through an output up to now.
    pub fn ideal_carried(&self, output: usize) -> u64 {
        let Ideal { free_at, offered } = self.ideals[output];
        let left = u128::from(free_at.saturating_since(self.now).as_ps());
        let bits = left * u128::from(self.options.link.as_bits()) / 1_000_000_000_000;
        offered.saturating_sub((bits / 8) as u64)
    }
    /// Delays of packets.
    pub fn delays(&self) -> Delays {
        self.delays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;
    use proptest::prelude::*;

    pub(super) const L: Rate = Rate::from_mbit(70);
    const D: Duration = Duration::from_us(500);
    const LEN: Bytes = Bytes(520);

    fn options(ports: usize, speed_up: (u64, u64), rule: Option<Rule>) -> Options {
        Options { ports, link: L, speed_up, period: D, rule, room: Bytes::from_mib(64) }
    }

    const RULES: [Rule; 2] = [Rule::Base, Rule::Responsive { backlog_min: Bytes(1000) }];

    /// Offers random traffic in which each input prefers some outputs, which change over time.
    fn random(router: &mut Model, seed: u64, load: f64, periods: u64) {
        let mut random = Stream::new(seed, "traffic");
        let gap = L.time_for(LEN);
        let ports = router.options.ports;
        let mut target = vec![0; ports];
        let mut at = Time::START;
        while at < Time::START + D * periods {
            router.advance(at);
            for (input, target) in target.iter_mut().enumerate() {
                if random.chance(0.01) {
                    *target = random.below(ports as u64) as usize;
                }
                if random.chance(load) {
                    let output = if random.chance(0.7) { *target } else { input };
                    router.offer(input, output, LEN);
                }
            }
            at += gap;
        }
        router.advance(at + D * 4000);
    }

    #[test]
    fn everything_offered_is_carried_exactly_once() {
        for rule in RULES {
            let mut router = Model::new(options(8, (2, 1), Some(rule)));
            random(&mut router, 3, 0.9, 400);
            for output in 0..8 {
                let Output { offered, carried, lost, .. } = router.output(output);
                assert_eq!((offered, lost), (carried, 0), "{rule:?} {output}");
                assert_eq!(router.ideal_carried(output), carried);
            }
            assert_eq!(router.inputs_backlog(), 0);
        }
    }

    /// The fabric is never congested for longer than its information is old: no output has more in flight than two
    /// periods of its capacity and one packet of each input (D-59).
    #[test]
    fn the_fabric_is_never_offered_more_than_it_carries() {
        for rule in RULES {
            for (seed, speed_up) in [(1, (2, 1)), (2, (5, 4)), (3, (1, 1)), (4, (4, 1))] {
                let mut router = Model::new(options(8, speed_up, Some(rule)));
                random(&mut router, seed, 0.95, 400);
                let capacity = options(8, speed_up, None).capacity().as_bits();
                let period = capacity * 500 / 8 / 1_000_000;
                let bound = 2 * period + 8 * LEN.0;
                let most = (0..8).map(|output| router.output(output).congestion_max).max();
                assert!(most <= Some(bound), "{rule:?} {speed_up:?}: {most:?} > {bound}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Over any number of periods, no input sends more than S L and a packet, and no output is sent more than
        /// S L, one period of catching up and one packet of each input (D-59), under any load.
        #[test]
        fn never_above_the_capacity_of_the_fabric_on_any_input_or_output(
            seed in 0u64..10_000, ports in 2usize..9, hundredths in 100u64..300,
            load in 0.3f64..1.0, change in 0.0f64..0.2, skew in 0.0f64..1.0, base: bool,
        ) {
            const PERIODS: usize = 80;
            let rule = RULES[usize::from(!base)];
            let mut router = Model::new(options(ports, (hundredths, 100), Some(rule)));
            let mut random = Stream::new(seed, "traffic");
            let (gap, mut at) = (L.time_for(LEN), Time::START);
            let (mut target, mut offered) = (vec![0; ports], vec![vec![0u64; ports]; ports]);
            // Bytes sent by each input and to each output, at the end of each period.
            let mut sent: Vec<Vec<u64>> = vec![vec![0; 2 * ports]];
            for period in 1..=PERIODS as u64 {
                while at < Time::START + D * period {
                    router.advance(at);
                    for (input, target) in target.iter_mut().enumerate() {
                        if random.chance(change) {
                            *target = random.below(ports as u64) as usize;
                        }
                        if random.chance(load) {
                            let output = if random.chance(skew) { 0 } else { *target };
                            router.offer(input, output, LEN);
                            offered[input][output] += LEN.0;
                        }
                    }
                    at += gap;
                }
                router.advance(Time::START + D * period);
                let gone = |i: usize, j: usize| offered[i][j] - router.input_backlog(i, j);
                let by = (0..ports).map(|i| (0..ports).map(|j| gone(i, j)).sum());
                let to = (0..ports).map(|j| (0..ports).map(|i| gone(i, j)).sum());
                sent.push(by.chain(to).collect());
            }
            let a_period = L.as_bits() as f64 * hundredths as f64 / 100.0 * D.as_secs_f64() / 8.0;
            for (began, ended) in (0..PERIODS).flat_map(|a| (a + 1..=PERIODS).map(move |b| (a, b))) {
                let carries = a_period * (ended - began) as f64;
                for (port, (after, before)) in sent[ended].iter().zip(&sent[began]).enumerate() {
                    let bytes = (after - before) as f64;
                    let spare = match port < ports {
                        true => LEN.0 as f64,
                        false => a_period + (ports as u64 * LEN.0) as f64,
                    };
                    prop_assert!(bytes <= carries + spare, "{port}: {bytes} in {began}..{ended}");
                }
            }
        }
    }

    #[test]
    fn without_distributed_queueing_overload_congests_the_fabric() {
        let mut router = Model::new(options(8, (2, 1), None));
        for step in 0..2000 {
            router.advance(Time::START + L.time_for(LEN) * step);
            (0..8).for_each(|input| router.offer(input, 0, LEN));
        }
        // Eight links into two: six of eight packets are in the fabric.
        let most = router.output(0).congestion_max;
        assert!(most > 5 * 2000 * LEN.0, "{most}");
    }
}
