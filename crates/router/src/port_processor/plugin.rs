//! Plugins of a router: the packets of a batch that pass one, and its decisions.

use super::parse::{ETHERNET, Seen, parse};
use lastmeter_base::Time;
use lastmeter_linux::dataplane::{Frame, Frames};
use lastmeter_plugin::instance::Queue;
use lastmeter_plugin::request::{Answers, Body, Policy, Request, Verdict};
use lastmeter_plugin::setting::Program;

/// Number of words kept for the flows of a plugin; flows with the same hash share one.
const MARKS: usize = 1 << 14;

/// A plugin of this router.
pub struct Plugin {
    /// Its name in `router.toml`.
    pub name: String,
    program: Program,
    marks: Vec<u64>,
    answers: Answers,
    /// Packets that it saw.
    pub seen: u64,
    /// Of these, denied.
    pub denied: u64,
    /// Of these, changed.
    pub changed: u64,
}

/// A packet on its way through a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// Its frame.
    pub frame: Frame,
    /// What is known of it.
    pub seen: Seen,
    /// Its flow's hash.
    pub hash: u64,
}

/// A plugin's decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing in particular.
    Pass,
    /// Dropped.
    Deny,
    /// Its bytes were changed.
    Changed(Seen),
    /// Leaves on this port.
    Port(u16),
    /// Joins this flow.
    Flow(u32),
    /// Passes, and a copy leaves on this port.
    Copy(u16),
}

impl Plugin {
    /// Before any packet.
    pub fn new(program: Program) -> Plugin {
        let (marks, answers) = (vec![0; MARKS], Answers::default());
        let name = program.name().to_owned();
        Plugin { name, program, marks, answers, seen: 0, denied: 0, changed: 0 }
    }
    /// What it reports of itself.
    pub fn report(&mut self, now: Time) -> String {
        self.program.report(now)
    }
    /// Whether it asks about queues: then each call is about packets of one flow.
    pub fn asks_queues(&self) -> bool {
        self.program.asks_queues()
    }
    /// What `lm_queue` returns in the next call, by port.
    pub fn set_queues(&mut self, queues: impl IntoIterator<Item = Option<Queue>>) {
        self.program.set_queues(queues);
    }
    /// How often it failed, and its last failure.
    pub fn failures(&self) -> (u64, Option<String>) {
        self.program.failures()
    }
    /// Asks it about packets that arrived on `port`; a decision for each is appended to `wishes`.
    pub fn pass(
        &mut self,
        now: Time,
        port: u16,
        packets: &[Passing],
        frames: &mut Frames,
        wishes: &mut Vec<Wish>,
    ) {
        let place = |hash: u64| (hash >> 32) as usize % MARKS;
        {
            let requests: Vec<Request<'_>> = packets
                .iter()
                .map(|packet| {
                    let end = ETHERNET + usize::from(packet.seen.len);
                    Request {
                        body: Body::Packet { interface: port },
                        flow: packet.hash,
                        arrival: now,
                        mark: self.marks[place(packet.hash)],
                        length: packet.seen.len.into(),
                        data: &frames.bytes(packet.frame)[ETHERNET..end],
                    }
                })
                .collect();
            self.program.process(now, &requests, &mut self.answers);
        }
        self.seen += packets.len() as u64;
        for (packet, answer) in packets.iter().zip(&self.answers.answers) {
            self.marks[place(packet.hash)] = answer.mark;
            wishes.push(match answer.verdict {
                Verdict::Deny { .. } => Wish::Deny,
                Verdict::ToInterface(to) => Wish::Port(to),
                Verdict::ToFlow(to) => Wish::Flow(to),
                Verdict::Clone(to) => Wish::Copy(to),
                Verdict::Changed => {
                    let data = self.answers.data(answer);
                    let bytes = &mut frames.bytes_mut(packet.frame)[ETHERNET..];
                    let len = data.len().min(bytes.len());
                    bytes[..len].copy_from_slice(&data[..len]);
                    self.changed += 1;
                    // Only its new content is forwarded.
                    parse(frames.bytes(packet.frame)).map_or(Wish::Deny, Wish::Changed)
                }
                _ => Wish::Pass,
            });
            if wishes.last() == Some(&Wish::Deny) {
                self.denied += 1;
            }
        }
    }
}
