//! Samples, counted by whose time it was, in which context, and what it went into.

use super::classes::{self, Class, Context};
use super::record::{self, Chain, Record};
use super::symbols::Symbols;
use crate::waits::Waits;
use lastmeter_linux::perf::PERIOD;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The most processes of all groups; later ones are not followed.
const PROCESSES_MAX: usize = 65_536;
/// The most different addresses whose function is remembered.
const ADDRESSES_MAX: usize = 1 << 20;
/// Rounds in which forks that several rings report out of order are put together.
const FORK_ROUNDS: usize = 8;

/// Samples of each class, in the order of [`Class::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts([u64; Class::ALL.len()]);

impl Counts {
    /// Of one class.
    pub fn of(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// Of all classes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn add(&mut self, class: Class) {
        self.0[class as usize] += 1;
    }

    /// With those of another.
    #[must_use]
    pub fn with(mut self, other: &Counts) -> Counts {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
        self
    }
}

/// One group of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// In its own calls and in user mode.
    pub own: Counts,
    /// In softirqs that ran in its time, whoever they were for.
    pub softirq: Counts,
}

impl Group {
    /// Both.
    pub fn all(&self) -> Counts {
        self.own.with(&self.softirq)
    }
}

/// A share of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Between 0 and 1.
    pub value: f64,
    /// Its standard error, from the number of samples.
    pub error: f64,
}

impl Share {
    /// `part` of `all`; nothing of nothing is 0 with an error of 1.
    pub fn of(part: u64, all: u64) -> Share {
        let count = all.max(1) as f64;
        let value = part as f64 / count;
        // One more of each kind, so that none seen is not certainly none.
        let smoothed = (part as f64 + 1.0) / (all as f64 + 2.0);
        Share { value, error: (smoothed * (1.0 - smoothed) / count).sqrt() }
    }
}

/// What was sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Seconds of CPU time that a sample stands for.
    pub period: f64,
    /// In the order in which they were asked for.
    pub groups: Vec<Group>,
    /// The network's softirqs outside all programs: in idle time and in the kernel's own thread.
    pub outside: Counts,
    /// Samples of other programs.
    pub others: u64,
    /// Samples that found no room.
    pub lost: u64,
    /// Of the samples of the groups, those at the end of a section with interrupts off.
    pub unlocks: u64,
    /// Whether the whole machine was sampled, and with it softirqs outside the program.
    pub whole: bool,
    /// Seconds of CPU time that reading the samples took.
    pub reading: f64,
    /// What waited, where that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Why it could not be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<String>,
}

impl Sampled {
    /// Samples of the groups and of softirqs outside, together.
    pub fn all(&self) -> Counts {
        self.groups.iter().fold(self.outside, |sum, group| sum.with(&group.all()))
    }

    /// The share of a class in [`Sampled::all`].
    pub fn share(&self, class: Class) -> Share {
        let all = self.all();
        Share::of(all.of(class), all.total())
    }
}

/// What is known of an address.
#[derive(Clone, Copy, Default)]
struct Function {
    class: Option<Class>,
    context: Option<Context>,
}

/// The state of the counting.
pub(super) struct Tally {
    symbols: Symbols,
    functions: HashMap<u64, Function>,
    members: BTreeMap<u32, usize>,
    found: Sampled,
    run: f64,
    run_first: f64,
}

impl Tally {
    pub(super) fn new(symbols: Symbols, groups: &[u32], whole: bool) -> Tally {
        let found = Sampled {
            period: PERIOD as f64 * 1e-9,
            groups: vec![Group::default(); groups.len()],
            whole,
            ..Sampled::default()
        };
        let members = groups.iter().enumerate().map(|(group, &pid)| (pid, group)).collect();
        let functions = HashMap::new();
        Tally { symbols, functions, members, found, run: 0.0, run_first: 0.0 }
    }

    /// Forgets what was counted, not who is followed.
    pub(super) fn reset(&mut self) {
        let Sampled { period, whole, .. } = self.found;
        let groups = vec![Group::default(); self.found.groups.len()];
        self.found = Sampled { period, whole, groups, ..Sampled::default() };
        self.run_first = self.run;
    }

    /// The CPU time that the reading thread has used so far.
    pub(super) fn reading(&mut self, run: f64) {
        self.run = run;
    }

    pub(super) fn sampled(&self) -> Sampled {
        Sampled { reading: self.run - self.run_first, ..self.found.clone() }
    }

    pub(super) fn follow(&mut self, group: usize, pids: impl Iterator<Item = u32>) {
        for pid in pids {
            if self.members.len() < PROCESSES_MAX {
                self.members.entry(pid).or_insert(group);
            }
        }
    }

    /// The group of a process.
    pub(super) fn group(&self, process: u32) -> Option<usize> {
        self.members.get(&process).copied()
    }

    /// Counts the records of all rings since the last time.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let mut forks = Vec::new();
        record::read(bytes, |record| {
            if let Record::Fork { pid, parent } = record
                && pid != parent
            {
                forks.push((pid, parent));
            }
        });
        for _ in 0..FORK_ROUNDS {
            let before = self.members.len();
            for (pid, parent) in &forks {
                if let Some(&group) = self.members.get(parent) {
                    self.follow(group, std::iter::once(*pid));
                }
            }
            if self.members.len() == before {
                break;
            }
        }
        record::read(bytes, |record| match record {
            Record::Sample { pid, user, chain } => self.sample(pid, user, chain),
            Record::Lost(count) => self.found.lost = self.found.lost.saturating_add(count),
            Record::Fork { .. } => {}
        });
    }

    fn sample(&mut self, pid: u32, user: bool, chain: Chain<'_>) {
        let member = self.members.get(&pid).copied();
        if user {
            match member {
                Some(group) => self.found.groups[group].own.add(Class::Program),
                None => self.found.others += 1,
            }
            return;
        }
        let (mut class, mut softirq, mut network, mut idle) = (None, false, false, pid == 0);
        let mut unlock = None;
        for address in chain.addresses() {
            let function = self.function(address);
            unlock.get_or_insert(function.context == Some(Context::Unlock));
            class = class.or(function.class);
            match function.context {
                Some(Context::Softirq) => softirq = true,
                Some(Context::NetworkSoftirq) => (softirq, network) = (true, true),
                Some(Context::Idle | Context::SoftirqThread) => idle = true,
                Some(Context::Unlock) | None => {}
            }
        }
        let class = class.unwrap_or(Class::Unknown);
        match member {
            Some(group) => {
                let group = &mut self.found.groups[group];
                if softirq { &mut group.softirq } else { &mut group.own }.add(class);
                self.found.unlocks += u64::from(unlock == Some(true));
            }
            None if idle && network => self.found.outside.add(class),
            None if idle => {}
            None => self.found.others += 1,
        }
    }

    fn function(&mut self, address: u64) -> Function {
        if let Some(known) = self.functions.get(&address) {
            return *known;
        }
        let name = self.symbols.name(address);
        let class = name.and_then(classes::of_function);
        let function = Function { class, context: name.and_then(classes::context) };
        if self.functions.len() < ADDRESSES_MAX {
            self.functions.insert(address, function);
        }
        function
    }
}

/// Any bytes: every sample is counted at most once.
pub(super) fn fuzz(bytes: &[u8]) {
    let symbols = Symbols::parse("1 T tcp_ack\n100000 T net_rx_action\n200000 T do_idle\n");
    let mut tally = Tally::new(symbols, &[1], true);
    tally.take(bytes);
    let found = tally.sampled();
    let counted = found.all().total() + found.others;
    assert!(counted * 24 <= bytes.len() as u64);
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{record, sample};
    use super::*;

    const NAMES: [&str; 7] = [
        "_copy_to_iter",
        "tcp_recvmsg",
        "_raw_spin_unlock_irqrestore",
        "try_to_wake_up",
        "net_rx_action",
        "do_idle",
        "a_helper",
    ];

    fn address(name: &str) -> u64 {
        let place = NAMES.iter().position(|known| *known == name).unwrap();
        0xffff_ffff_8100_0000 + 0x1000 * place as u64
    }

    fn tally(groups: &[u32]) -> Tally {
        let line = |name: &&str| format!("{:x} T {name}\n", address(name));
        Tally::new(Symbols::parse(&NAMES.iter().map(line).collect::<String>()), groups, true)
    }

    fn chain(pid: u32, names: &[&str]) -> Vec<u8> {
        sample(pid, 1, &names.iter().map(|name| address(name) + 4).collect::<Vec<_>>())
    }

    #[test]
    fn each_sample_is_counted_once_by_owner_context_and_class() {
        let mut tally = tally(&[10, 20]);
        let bytes = [
            chain(10, &["_copy_to_iter", "tcp_recvmsg"]),
            chain(10, &["tcp_recvmsg", "net_rx_action"]),
            chain(20, &["_raw_spin_unlock_irqrestore", "try_to_wake_up"]),
            chain(20, &["a_helper"]),
            sample(20, 2, &[]),
            chain(0, &["tcp_recvmsg", "net_rx_action", "do_idle"]),
            chain(0, &["do_idle"]),
            chain(77, &["tcp_recvmsg"]),
            // Another program's own traffic.
            chain(77, &["tcp_recvmsg", "net_rx_action"]),
        ];
        tally.take(&bytes.concat());
        let found = tally.sampled();
        let [sender, receiver] = found.groups[..] else { panic!("two groups") };
        assert_eq!((sender.own.of(Class::Copy), sender.softirq.of(Class::Protocol)), (1, 1));
        assert_eq!(receiver.own.of(Class::Scheduling), 1);
        assert_eq!(receiver.own.of(Class::Unknown), 1);
        assert_eq!(receiver.own.of(Class::Program), 1);
        assert_eq!((found.outside.total(), found.others, found.unlocks), (1, 2, 1));
        assert_eq!(found.all().total(), 6);
        let shares: f64 = Class::ALL.iter().map(|&class| found.share(class).value).sum();
        assert!((shares - 1.0).abs() < 1e-12);
    }

    #[test]
    fn children_belong_to_their_parents_group_in_whatever_order_the_rings_say_it() {
        let mut tally = tally(&[10]);
        let fork = |pid: u32, parent: u32| {
            record(7, 0, &[pid.to_ne_bytes(), parent.to_ne_bytes()].concat())
        };
        let bytes = [chain(12, &["tcp_recvmsg"]), fork(12, 11), fork(11, 10), fork(31, 30)];
        tally.take(&bytes.concat());
        assert_eq!(tally.sampled().groups[0].own.total(), 1);
        tally.take(&chain(31, &["tcp_recvmsg"]));
        assert_eq!(tally.sampled().others, 1);
    }

    #[test]
    fn a_share_has_the_error_of_its_number_of_samples() {
        let share = Share::of(3300, 10_000);
        assert!((share.error - 0.0047).abs() < 0.0001, "{share:?}");
        assert!(Share::of(0, 10).error > 0.05);
    }
}
