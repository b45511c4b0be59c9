//! Processes that take messages through a protocol stack, and the cost of switching between them (E-12, E-80).
//!
//! ```text
//! message --> [ ready processes ] --> one CPU --> its packets, one after the other
//!                    ^-- after `granularity` packets, where another waits --'
//! ```
//!
//! | organisation | a process is | the CPU switches |
//! |---|---|---|
//! | per protocol | a layer of the stack | once a layer, for each message |
//! | per message | a message's, through all layers | once a message |
//! | per channel | a channel's, for all of its messages | when the channel changes |
//!
//! Processes run in the order in which they became ready. Only channel handlers yield: to a waiting one, after
//! `granularity` packets ("cooperative preemption").
//!
//! Source: Indiresan 1997, §3.1.2 and §6.1. The order here is first come first served; priorities and deadlines
//! are left to a channel scheduler.

use lastmeter_base::{Duration, Time};
use std::collections::VecDeque;

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Organisation {
    /// A layer of a stack.
    PerProtocol(u64),
    /// A message's path through all layers.
    PerMessage,
    /// All messages of a channel.
    PerChannel,
}

/// Costs of processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What a process is.
    pub organisation: Organisation,
    /// A switch to another process.
    pub switch: Duration,
    /// A message, whatever its length.
    pub per_message: Duration,
    /// Each packet.
    pub per_packet: Duration,
    /// Packets after which a channel handler yields, at least one.
    pub granularity: u64,
}

/// A message to be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The submitter's number for it.
    pub id: u64,
    /// Its channel.
    pub channel: u32,
    /// Its number of packets, at least one.
    pub packets: u64,
}

struct Process {
    channel: u32,
    /// Messages, each with its number of unprocessed packets.
    messages: VecDeque<(Message, u64)>,
}

/// A CPU that processes messages.
///
/// ```
/// use lastmeter_base::{Duration, Time};
/// use lastmeter_repro::machines::process::{Message, Options, Organisation, Processor};
/// let mut cpu = Processor::new(Options {
///     organisation: Organisation::PerChannel,
///     switch: Duration::from_us(20),
///     per_message: Duration::ZERO,
///     per_packet: Duration::from_us(100),
///     granularity: 4,
/// });
/// // Fifteen packets of one channel, then one of another: it waits for four.
/// cpu.submit(Time::START, Message { id: 0, channel: 0, packets: 15 });
/// cpu.submit(Time::START, Message { id: 1, channel: 1, packets: 1 });
/// let mut done = Vec::new();
/// while let Some(now) = cpu.ready_at() {
///     cpu.advance(now);
///     done.extend(cpu.done());
/// }
/// assert_eq!(done[0], (1, Time::START + Duration::from_us(20 + 4 * 100 + 20 + 100)));
/// assert_eq!(done[1].0, 0);
/// ```
pub struct Processor {
    options: Options,
    ready: VecDeque<Process>,
    /// When the current packet will be done.
    until: Option<Time>,
    /// The handler that ran last.
    last: Option<u32>,
    /// Packets since the last switch.
    run: u64,
    switches: u64,
    done: Vec<(u64, Time)>,
}

impl Processor {
    /// An idle CPU. Panics on a granularity of 0.
    pub fn new(options: Options) -> Processor {
        assert!(options.granularity > 0, "a handler does at least one packet");
        let ready = VecDeque::new();
        Processor { options, ready, until: None, last: None, run: 0, switches: 0, done: Vec::new() }
    }

    /// Submits a message. Panics if it has no packets.
    pub fn submit(&mut self, now: Time, message: Message) {
        assert!(message.packets > 0, "a message without packets");
        let own = |process: &&mut Process| process.channel == message.channel;
        let joins = self.options.organisation == Organisation::PerChannel;
        match self.ready.iter_mut().find(own).filter(|_| joins) {
            Some(handler) => handler.messages.push_back((message, message.packets)),
            None => {
                let messages = VecDeque::from([(message, message.packets)]);
                self.ready.push_back(Process { channel: message.channel, messages });
            }
        }
        if self.until.is_none() {
            self.begin(now);
        }
    }

    /// The time of the next event.
    pub fn ready_at(&self) -> Option<Time> {
        self.until
    }

    /// Processes all events due by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some(due) = self.until.filter(|&due| due <= now) {
            self.packet_done(due);
            self.begin(due);
        }
    }

    /// Takes the messages done since the last call, with their times.
    pub fn done(&mut self) -> impl Iterator<Item = (u64, Time)> + use<> {
        std::mem::take(&mut self.done).into_iter()
    }

    /// Number of context switches.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// The next packet of the process whose turn it is.
    fn begin(&mut self, now: Time) {
        self.until = None;
        let Options { organisation, switch, per_message, per_packet, .. } = self.options;
        let Some(process) = self.ready.front() else { return };
        let Some(&(message, left)) = process.messages.front() else { return };
        let begins = left == message.packets;
        let turns = match organisation {
            Organisation::PerProtocol(layers) => layers * u64::from(begins),
            Organisation::PerMessage => u64::from(begins),
            Organisation::PerChannel => u64::from(self.last != Some(process.channel)),
        };
        if turns > 0 {
            self.run = 0;
        }
        self.switches += turns;
        self.last = Some(process.channel);
        let message = if begins { per_message } else { Duration::ZERO };
        self.until = Some(now + switch * turns + message + per_packet);
    }

    fn packet_done(&mut self, now: Time) {
        self.run += 1;
        let waits = self.ready.len() > 1;
        let Some(process) = self.ready.front_mut() else { return };
        let Some((message, left)) = process.messages.front_mut() else { return };
        *left -= 1;
        if *left == 0 {
            self.done.push((message.id, now));
            process.messages.pop_front();
        }
        let yields = self.options.organisation == Organisation::PerChannel
            && waits
            && self.run >= self.options.granularity;
        match process.messages.is_empty() {
            true => drop(self.ready.pop_front()),
            false if yields => self.ready.rotate_left(1),
            false => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNELS: u64 = 4;

    fn options(organisation: Organisation) -> Options {
        Options {
            organisation,
            switch: Duration::from_us(20),
            per_message: Duration::from_us(50),
            per_packet: Duration::from_us(100),
            granularity: 4,
        }
    }

    /// Rounds of one message per channel, all at once; returns switches and when the last is done.
    fn processed(organisation: Organisation, rounds: u64, packets: u64) -> (u64, Time) {
        let mut cpu = Processor::new(options(organisation));
        for id in 0..rounds * CHANNELS {
            cpu.submit(Time::START, Message { id, channel: (id % CHANNELS) as u32, packets });
        }
        let mut last = Time::START;
        let mut ended = Vec::new();
        while let Some(now) = cpu.ready_at() {
            cpu.advance(now);
            ended.extend(cpu.done().map(|(id, _)| id));
            last = now;
        }
        ended.sort_unstable();
        assert_eq!(ended, (0..rounds * CHANNELS).collect::<Vec<_>>());
        (cpu.switches(), last)
    }

    #[test]
    fn e_12_a_process_for_each_message_turns_once_where_one_for_each_protocol_turns_per_layer() {
        let (by_message, at) = processed(Organisation::PerMessage, 10, 1);
        assert_eq!(by_message, 40);
        // 40 x (20 + 50 + 100) us.
        assert_eq!(at, Time::START + Duration::from_us(6800));
        let (by_protocol, later) = processed(Organisation::PerProtocol(5), 10, 1);
        assert_eq!(by_protocol, 200);
        assert_eq!(later - at, Duration::from_us(160 * 20));
    }

    #[test]
    fn e_80_a_handler_yields_after_its_packets_and_keeps_the_cpu_while_nobody_waits() {
        // Each handler processes 4 packets in a row, which are 4 messages: 10 messages take 3 turns.
        let (switches, _) = processed(Organisation::PerChannel, 10, 1);
        assert_eq!(switches, 3 * CHANNELS);
        let mut alone = Processor::new(options(Organisation::PerChannel));
        for id in 0..10 {
            alone.submit(Time::START, Message { id, channel: 7, packets: 15 });
        }
        while let Some(now) = alone.ready_at() {
            alone.advance(now);
        }
        assert_eq!(alone.switches(), 1);
        assert_eq!(alone.done().count(), 10);
    }
}
