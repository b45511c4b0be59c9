//! The stages of a transfer of our own, from samples.
//!
//! Each end's samples divide the CPU time that the scheduler counted for it. A softirq that ran in an end's
//! time is a stage between the ends, whichever of them paid for it; one that ran in idle time or in the
//! kernel's own thread adds to it.

use super::{Class, Counts, Sampled, Share};
use crate::predict::work_of;
use crate::stages::{COPY_IN, COPY_OUT, Stage, Stages};
use crate::transfer::{Measurement, Side};

/// CPU time that no rule knows, and time that no stage accounts for.
pub const NOT_ATTRIBUTED: &str = "not attributed";

/// Whose calls a stage is in.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Sender,
    Softirq,
    Receiver,
}

impl At {
    fn stage(self, class: Class) -> String {
        match (self, class) {
            (_, Class::Unknown) => NOT_ATTRIBUTED.to_owned(),
            (At::Sender, Class::Copy) => COPY_IN.to_owned(),
            (At::Receiver, Class::Copy) => COPY_OUT.to_owned(),
            (At::Sender, Class::Program) => "sender's program".to_owned(),
            (At::Receiver, Class::Program) => "receiver's program".to_owned(),
            (At::Sender, class) => format!("sender {}", class.name()),
            (At::Softirq, class) => format!("softirq {}", class.name()),
            (At::Receiver, class) => format!("receiver {}", class.name()),
        }
    }
}

/// The names that stages may have.
pub fn names() -> Vec<String> {
    let all = [At::Sender, At::Softirq, At::Receiver]
        .into_iter()
        .flat_map(|at| Class::ALL.into_iter().map(move |class| at.stage(class)));
    let mut names: Vec<String> = all.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What an end's CPU went into: stages by name, in samples.
pub fn of_core(sampled: &Sampled, receiver: bool) -> Vec<(String, u64)> {
    let Some(group) = sampled.groups.get(usize::from(receiver)) else { return Vec::new() };
    let own = if receiver { At::Receiver } else { At::Sender };
    let cells = [(own, &group.own), (At::Softirq, &group.softirq)];
    let all = cells.into_iter().flat_map(|(at, counts)| {
        Class::ALL.into_iter().map(move |class| (at.stage(class), counts.of(class)))
    });
    all.filter(|(_, count)| *count > 0).collect()
}

/// The stages in path order; `None` if nothing was sampled.
pub fn stages(m: &Measurement) -> Option<Stages> {
    let sampled = m.sampled.as_ref()?;
    let [sender, receiver] = sampled.groups[..] else { return None };
    if sender.all().total() == 0 || receiver.all().total() == 0 {
        return None;
    }
    let message = m.setting.message.0 as f64;
    let cost = |side: &Side| side.run_per_byte.median * message;
    // Seconds per message of one sample.
    let one = [
        cost(&m.sender) / sender.all().total() as f64,
        cost(&m.receiver) / receiver.all().total() as f64,
        sampled.period / (m.message_rate * m.setting.duration.as_secs_f64()).max(1.0),
    ];
    let total = cost(&m.sender) + cost(&m.receiver) + one[2] * sampled.outside.total() as f64;
    let nothing = Counts::default();
    let late = receiver.softirq.total() > sender.softirq.total();
    let samples = sampled.all().total();
    let mut found = Found { m, total, samples, late, stages: Vec::new() };
    let forth = Class::ALL.into_iter().filter(|class| *class != Class::Unknown);
    for class in forth.clone() {
        found.push(At::Sender, class, [&sender.own, &nothing, &nothing], one);
    }
    for class in forth.clone() {
        found.push(At::Softirq, class, [&sender.softirq, &receiver.softirq, &sampled.outside], one);
    }
    for class in forth.rev() {
        found.push(At::Receiver, class, [&nothing, &receiver.own, &nothing], one);
    }
    let all = [&sender.all(), &receiver.all(), &sampled.outside];
    found.push(At::Softirq, Class::Unknown, all, one);
    let notes = notes(m, sampled);
    Some(Stages { total, stages: found.stages, residual: 0.0, notes, sampled: true })
}

struct Found<'a> {
    m: &'a Measurement,
    total: f64,
    samples: u64,
    /// Most softirqs ran in the receiver's time.
    late: bool,
    stages: Vec<Stage>,
}

impl Found<'_> {
    /// Adds the stage of a class, which has these samples in the sender's, the receiver's and nobody's time.
    fn push(&mut self, at: At, class: Class, in_whose: [&Counts; 3], one: [f64; 3]) {
        let counts = in_whose.map(|counts| counts.of(class));
        let count: u64 = counts.iter().sum();
        if count == 0 {
            return;
        }
        let per_message: f64 = counts.iter().zip(one).map(|(&n, one)| n as f64 * one).sum();
        let work = work_of(&self.m.setting);
        let packets = if self.m.setting.offload { work.handovers } else { work.segments };
        let side = match at {
            At::Sender => "sender",
            At::Receiver => "receiver",
            At::Softirq if self.late => "receiver",
            At::Softirq => "sender",
        };
        let context = match at {
            At::Sender => "in the sender's calls",
            At::Softirq if class == Class::Unknown => "in either end's time",
            At::Softirq => "in softirqs, whoever's time they ran in",
            At::Receiver => "in the receiver's calls",
        };
        self.stages.push(Stage {
            name: at.stage(class),
            class: Some(class),
            side: side.to_owned(),
            per_message,
            per_byte: per_message / work.bytes,
            per_packet: per_message / packets.max(f64::MIN_POSITIVE),
            uncertainty: Share::of(count, self.samples).error * self.total,
            method: format!(
                "{count} of {} samples of the CPU's clock, {context}, whose innermost known \
                 function counts as {}",
                self.samples,
                class.name()
            ),
        });
    }
}

fn notes(m: &Measurement, sampled: &Sampled) -> Vec<String> {
    let groups: u64 = sampled.groups.iter().map(|group| group.all().total()).sum();
    let seen = groups as f64 * sampled.period;
    let threads = m.sender.threads.len() as f64;
    let run = (m.sender.activity.run + m.receiver.activity.run) * threads * m.elapsed;
    let mut notes = vec![
        format!(
            "L1: {groups} samples stand for {seen:.3} s of CPU time; the scheduler counted \
             {run:.3} s; reading them took {:.2} % of a CPU",
            sampled.reading / m.elapsed * 100.0
        ),
        format!(
            "time with interrupts off is seen when they are on again: {:.1} % of the samples are \
             at an unlock, and count as what held the lock",
            sampled.unlocks as f64 / groups.max(1) as f64 * 100.0
        ),
    ];
    if sampled.lost > 0 {
        notes.push(format!("{} samples found no room", sampled.lost));
    }
    if !sampled.whole {
        notes.push("only both ends were sampled: softirqs outside them are not seen".to_owned());
    }
    notes
}
