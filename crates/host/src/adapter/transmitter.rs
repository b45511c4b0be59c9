//! An adapter's transmit path as a machine: the host's part, the transfer, the network, and the
//! memory between them (E-58, E-61, E-65 to E-76).
//!
//! ```text
//! message --> [host: per message] --> [transfer] --> [network: set-up | rest] --> done, next message
//!                                        |                        |
//!                                        +---- one bank of memory-+    the network goes first
//! ```
//!
//! At most `depth` messages are on their way; a new one begins when one is done. With one bank the
//! network's rest takes the memory from a transfer, which goes on later with the time left (Fig
//! 5.6, message 2, case 2); with two they go on at once.
//!
//! Source: Indiresan 1997, §5.1.2, §5.1.3.2, §5.2.2. Deviation: how long the host takes may vary
//! (`variation`); the document's equations are for means.

use super::description::{Description, Side};
use crate::resource::{Discipline, Done, Job, Options, Priority, Resource};
use lastmeter_base::{Bytes, Draw, Duration, StageId, Stream, Time};
use lastmeter_engine::{Distribution, ResourceId};
use std::collections::VecDeque;

/// How the host's part of a message varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variation {
    /// Not at all.
    None,
    /// Exponentially about its mean.
    Exponential,
}

/// What a phase is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The host and the interface.
    Host,
    /// Between the host's memory and the adapter's.
    Transfer,
    /// The network's set-up that needs no memory.
    Setup,
    /// The rest of the network's phase.
    Network,
}

/// What is recorded of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Mean time between messages, over those after the warm-up.
    pub mean: Duration,
    /// From when a message begins until it is done.
    pub latency: Distribution,
    /// The first messages' phases: which message, what, from when, until when (Fig 5.6).
    pub timeline: Vec<(u64, Phase, Time, Time)>,
    /// The first message's commands, as they were given (Fig 5.1).
    pub commands: Vec<(Time, Side, &'static str)>,
    /// Share of the time for which the host's part, the transfer and the network were busy.
    pub busy: [f64; 3],
}

/// Messages whose phases are recorded.
const DRAWN: u64 = 4;
const HOST: usize = 0;
const MEMORY: usize = 1;
const OTHER_BANK: usize = 2;
const LINK: usize = 3;

struct Run<'a> {
    card: &'a Description,
    len: Bytes,
    resources: [Resource; 4],
    host: Draw,
    stream: Stream,
    begun: Vec<Time>,
    for_transfer: VecDeque<u64>,
    transferring: Option<u64>,
    for_network: VecDeque<u64>,
    sending: Option<u64>,
    done: Vec<Time>,
    outcome: Outcome,
}

/// Sends `messages` of `len`, at most `depth` at a time.
///
/// Panics without messages or depth.
pub fn run(
    card: &Description,
    len: Bytes,
    (depth, messages): (u64, usize),
    variation: Variation,
    seed: u64,
) -> Outcome {
    assert!(depth > 0 && messages > 0, "nothing to send");
    let per_message = card.host.per_message;
    let options = Options {
        units: 1,
        discipline: Discipline::Priority,
        context_switch: Duration::ZERO,
        interrupt: Duration::ZERO,
    };
    let mut run = Run {
        card,
        len,
        resources: [0, 1, 2, 3].map(|id| Resource::new(ResourceId(id), options)),
        host: match variation {
            Variation::None => Draw::Constant(per_message),
            Variation::Exponential => Draw::Exponential(per_message),
        },
        stream: Stream::new(seed, "host"),
        begun: Vec::new(),
        for_transfer: VecDeque::new(),
        transferring: None,
        for_network: VecDeque::new(),
        sending: None,
        done: Vec::new(),
        outcome: Outcome::default(),
    };
    (0..depth).for_each(|_| run.begin(Time::START));
    while run.done.len() < messages {
        let next = run.resources.iter().enumerate().filter_map(|(at, r)| Some((r.next()?, at)));
        let Some((now, at)) = next.min() else { break };
        if let Some(done) = run.resources[at].complete(now) {
            run.completed(at, &done);
        }
    }
    run.close()
}

impl Run<'_> {
    fn begin(&mut self, now: Time) {
        let id = self.begun.len();
        self.begun.push(now);
        let work = self.host.sample(&mut self.stream);
        self.submit(now, HOST, id as u64, Phase::Host, work);
        self.say(now, id as u64, &["write"]);
    }

    fn submit(&mut self, now: Time, resource: usize, id: u64, phase: Phase, work: Duration) {
        let priority = Priority::Thread(u8::from(phase == Phase::Network));
        let preemptive = phase == Phase::Network && self.card.transfer.preemptible;
        let job = Job {
            id: (id as usize) << 2 | phase as usize,
            stage: StageId(phase as u32),
            priority,
            preemptive,
            work,
        };
        self.resources[resource].submit(now, job);
    }

    /// The first message's commands of these words, if its interface has them.
    fn say(&mut self, now: Time, id: u64, words: &[&str]) {
        if id > 0 {
            return;
        }
        let said = self.card.transmission().into_iter().filter(|(_, word)| words.contains(word));
        self.outcome.commands.extend(said.map(|(side, word)| (now, side, word)));
    }

    fn completed(&mut self, resource: usize, done: &Done) {
        let (id, now) = ((done.id >> 2) as u64, done.at);
        let phase = match done.id & 3 {
            0 => Phase::Host,
            1 => Phase::Transfer,
            2 => Phase::Setup,
            _ => Phase::Network,
        };
        if id < DRAWN {
            self.outcome.timeline.push((id, phase, done.started, now));
        }
        match phase {
            Phase::Host => {
                self.say(now, id, &["write ack", "address list"]);
                self.for_transfer.push_back(id);
            }
            Phase::Transfer => {
                self.say(now, id, &["address ack"]);
                self.transferring = None;
                self.for_network.push_back(id);
            }
            Phase::Setup => {
                let (_, rest) = self.card.network_time(self.len);
                let two = self.card.buffers.banks > 1;
                self.submit(now, if two { OTHER_BANK } else { MEMORY }, id, Phase::Network, rest);
            }
            Phase::Network => {
                self.say(now, id, &["transmit ack"]);
                self.sending = None;
                self.done.push(now);
                self.outcome.latency.record(now - self.begun[id as usize]);
                self.begin(now);
            }
        }
        debug_assert!(resource < self.resources.len());
        self.go_on(now);
    }

    fn go_on(&mut self, now: Time) {
        if let (None, Some(&id)) = (self.transferring, self.for_transfer.front()) {
            self.for_transfer.pop_front();
            self.transferring = Some(id);
            self.submit(now, MEMORY, id, Phase::Transfer, self.card.transfer_time(self.len));
        }
        if let (None, Some(&id)) = (self.sending, self.for_network.front()) {
            self.for_network.pop_front();
            self.sending = Some(id);
            let (free, _) = self.card.network_time(self.len);
            self.submit(now, LINK, id, Phase::Setup, free);
        }
    }

    fn close(mut self) -> Outcome {
        let last = self.done.len() - 1;
        let first = last / 5;
        self.outcome.mean = match (last - first) as u64 {
            0 => self.done[last] - Time::START,
            between => (self.done[last] - self.done[first]) / between,
        };
        let elapsed = (self.done[last] - Time::START).as_secs_f64();
        let phases = [Phase::Host, Phase::Transfer, Phase::Network];
        let meters: Vec<_> = self.resources.iter().flat_map(Resource::meters).collect();
        let spent = |phase: Phase| {
            let stages = meters.iter().flat_map(|meter| meter.by_stage());
            let own = stages.filter(|(stage, _)| *stage == StageId(phase as u32));
            own.map(|(_, time)| time.as_secs_f64()).sum::<f64>() / elapsed
        };
        self.outcome.busy = phases.map(spent);
        self.outcome.busy[2] += spent(Phase::Setup);
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::super::cim::Cim;
    use super::super::description::cim;
    use super::*;
    use lastmeter_base::PerByte;

    const TABLE_5_1: Cim = Cim {
        message_overhead: Duration::from_us(1280),
        segment: Bytes(256),
        segment_overhead: Duration::from_ns(1_760),
        small: Bytes(4096),
        per_byte_small: PerByte::from_fs(420_000_000),
        per_byte_large: PerByte::from_fs(310_000_000),
        frame: Bytes(2048),
        transmit_overhead: Duration::from_us(1350),
        frame_delay: Duration::from_ns(79_750),
    };
    const SIZES: [u64; 6] = [44, 1024, 4096, 8192, 16_384, 65_536];

    fn mean(card: &Description, len: u64, depth: u64) -> Duration {
        run(card, Bytes(len), (depth, 400), Variation::None, 1).mean
    }

    #[test]
    fn e_65_depth_1_takes_exactly_eq_5_2() {
        for len in SIZES {
            assert_eq!(mean(&cim(), len, 1), TABLE_5_1.time_alone(Bytes(len)), "{len}");
        }
    }

    #[test]
    fn e_68_depth_2_takes_eq_5_5_where_two_messages_keep_the_memory_busy() {
        for len in [4096, 8192, 16_384, 65_536] {
            assert_eq!(mean(&cim(), len, 2), TABLE_5_1.time_overlapped(Bytes(len)), "{len}");
        }
        // Below, two messages cannot do what the equation promises.
        assert!(mean(&cim(), 1024, 2) > TABLE_5_1.time_overlapped(Bytes(1024)));
    }

    #[test]
    fn e_75_two_banks_take_eq_5_6_or_half_a_round() {
        let two = cim().with_two_banks();
        for len in SIZES {
            let len = Bytes(len);
            let bound = TABLE_5_1.time_two_banks(len).max(TABLE_5_1.time_least_of_two(len));
            assert_eq!(mean(&two, len.0, 2), bound, "{len}");
        }
        assert_eq!(mean(&two, 4096, 1), mean(&cim(), 4096, 1), "no gain at depth 1");
    }

    #[test]
    fn e_59_the_commands_come_in_the_order_of_fig_5_1() {
        let outcome = run(&cim(), Bytes(4096), (1, 1), Variation::None, 1);
        let words: Vec<&str> = outcome.commands.iter().map(|&(.., word)| word).collect();
        let fig_5_1 = ["write", "write ack", "address list", "address ack", "transmit ack"];
        assert_eq!(words, fig_5_1);
        let at: Vec<f64> = outcome.commands.iter().map(|c| c.0.as_ps() as f64 / 1e6).collect();
        assert_eq!(at, [0.0, 1280.0, 1280.0, 3028.48, 4537.98]);
    }

    #[test]
    fn e_70_a_transfer_is_split_by_the_message_before_it() {
        let outcome = run(&cim(), Bytes(4096), (2, 4), Variation::None, 1);
        let of = |id, phase| {
            let found = outcome.timeline.iter().find(|row| (row.0, row.1) == (id, phase));
            found.map(|&(.., from, to)| (from, to)).expect("the first messages are recorded")
        };
        let (transfer, network) = (of(1, Phase::Transfer), of(0, Phase::Network));
        assert!(transfer.0 < network.0 && network.1 < transfer.1, "message 2, case 2");
        let len = transfer.1 - transfer.0;
        assert_eq!(len, cim().transfer_time(Bytes(4096)) + (network.1 - network.0));
    }
}
