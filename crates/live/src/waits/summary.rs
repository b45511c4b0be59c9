//! What waited, in figures.

use super::Seen;
use super::matcher::Thread;
use serde::{Deserialize, Serialize};

/// The most interfaces that have a row, those with most packets first.
const DEVICES_MAX: usize = 6;
/// Nanoseconds.
const SECOND: f64 = 1e9;

/// How long something waited, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// What waited, and for what.
    pub name: String,
    /// How many waits.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Wait {
    /// Those of a kind, in nanoseconds; `None` if there was none.
    fn of(name: impl Into<String>, mut waits: Vec<u64>) -> Option<Wait> {
        waits.sort_unstable();
        let max = *waits.last()? as f64 / SECOND;
        let count = waits.len();
        let at =
            |share: f64| waits[((count as f64 * share) as usize).min(count - 1)] as f64 / SECOND;
        let sum: f64 = waits.iter().map(|wait| *wait as f64).sum();
        let mean = sum / SECOND / count as f64;
        let (p50, p99) = (at(0.5), at(0.99));
        Some(Wait { name: name.into(), count: count as u64, mean, p50, p99, max })
    }
}

/// What threads did in the looks, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Whose.
    pub name: String,
    /// They ran.
    pub ran: f64,
    /// They were ready and something else ran.
    pub waited: f64,
}

/// What waited in some looks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Seconds observed.
    pub observed: f64,
    /// In how many looks.
    pub looks: u32,
    /// Events recorded.
    pub events: u64,
    /// Events that found no room.
    pub lost: u64,
    /// Seconds of CPU time that recording and reading took, for each second observed; `None` where that is not known.
    pub cost: Option<f64>,
    /// Packets that the stack took, of the whole machine.
    pub packets: u64,
    /// Packets that found no room in a socket, of the whole machine.
    pub full: u64,
    /// Packets in the queues of these interfaces that were seen to leave, and those that were not.
    pub queued: [u64; 2],
    /// What waited.
    pub rows: Vec<Wait>,
    /// The threads of each group.
    pub busy: Vec<Busy>,
}

impl Seen {
    /// In figures: `groups` are the names of groups of processes, `group` says to which a process belongs, `device`
    /// which interfaces count.
    pub(crate) fn waits(
        &self,
        groups: &[&str],
        group: impl Fn(u32) -> Option<usize>,
        device: impl Fn(&str) -> bool,
    ) -> Waits {
        let seen = &self.delays;
        let (mut rows, mut busy) = (Vec::new(), Vec::new());
        for (place, name) in groups.iter().enumerate() {
            let is_ours = |process: u32| group(process) == Some(place);
            let all = || seen.threads.values().filter(|one| one.process.is_some_and(is_ours));
            let of = |waits: fn(&Thread) -> &Vec<u64>| -> Vec<u64> {
                all().flat_map(waits).copied().collect()
            };
            let (woken, displaced) = (of(|one| &one.woken), of(|one| &one.displaced));
            let sum = |waits: &[u64]| waits.iter().map(|wait| *wait as f64).sum::<f64>() / SECOND;
            busy.push(Busy {
                name: (*name).to_owned(),
                ran: all().map(|one| one.ran as f64).sum::<f64>() / SECOND,
                waited: sum(&woken) + sum(&displaced),
            });
            rows.extend(Wait::of(format!("{name} for a CPU, woken"), woken));
            rows.extend(Wait::of(format!("{name} for a CPU, displaced"), displaced));
            let sockets = seen.sockets.iter().filter(|(process, _)| is_ours(**process));
            let sockets = sockets.flat_map(|(_, waits)| waits).copied().collect();
            rows.extend(Wait::of(format!("packets for the {name}, in its socket"), sockets));
        }
        rows.extend(Wait::of("receive softirq", seen.receive.clone()));
        rows.extend(Wait::of("transmit softirq", seen.transmit.clone()));
        let mut devices: Vec<_> = seen.devices.iter().filter(|one| device(&one.name)).collect();
        devices.sort_by_key(|one| std::cmp::Reverse(one.queued.len()));
        let seen_to_leave = devices.iter().map(|one| one.queued.len() as u64).sum();
        let unseen = devices.iter().map(|one| one.unseen).sum();
        let queues = devices.into_iter().take(DEVICES_MAX);
        rows.extend(queues.filter_map(|one| {
            Wait::of(format!("packets in the queue of {}", one.name), one.queued.clone())
        }));
        rows.extend(Wait::of("packets in the backlog of a CPU", seen.backlog.clone()));
        let observed = seen.observed as f64 / SECOND;
        Waits {
            observed,
            looks: self.looks,
            events: seen.events,
            lost: seen.lost,
            cost: self.spent.filter(|_| observed > 0.0).map(|spent| spent / observed),
            packets: seen.packets,
            full: seen.full,
            queued: [seen_to_leave, unseen],
            rows,
            busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::matcher::{Delays, Device};
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn percentiles_are_those_of_all_waits_of_a_kind() {
        let wait = Wait::of("any", (1..=1000).rev().collect()).unwrap();
        assert_eq!((wait.count, wait.max), (1000, 1e-6));
        assert!((wait.mean - 500.5e-9).abs() < 1e-15, "{wait:?}");
        assert!((wait.p50 - 501e-9).abs() < 1e-15 && (wait.p99 - 991e-9).abs() < 1e-15, "{wait:?}");
        assert_eq!(Wait::of("none", Vec::new()), None);
    }

    #[test]
    fn threads_and_sockets_belong_to_their_processes_groups_and_others_to_none() {
        let thread = |process, woken: u64, ran| {
            let (process, woken, displaced) = (Some(process), vec![woken], vec![2_000]);
            Thread { process, woken, displaced, ran }
        };
        let unknown = Thread { process: None, ..thread(0, 9_000_000, 9) };
        let of_interest = [(11, thread(10, 1_000, 5_000)), (12, thread(10, 3_000, 0))];
        let others = [(21, thread(20, 8_000, 1)), (31, thread(30, 7_000, 1)), (41, unknown)];
        let device = |name: &str, queued| Device { name: name.to_owned(), queued, unseen: 3 };
        let delays = Delays {
            observed: 500_000_000,
            threads: of_interest.into_iter().chain(others).collect(),
            devices: vec![device("eth0", vec![1]), device("lm0", vec![4_000; 2])],
            sockets: HashMap::from([(10, vec![6_000]), (30, vec![1])]),
            ..Delays::default()
        };
        let seen = Seen { delays, looks: 1, spent: Some(0.01) };
        let group = |process| [10, 20].iter().position(|known| *known == process);
        let waits = seen.waits(&["receiver", "sender"], group, |name| name == "lm0");
        let row = |name: &str| waits.rows.iter().find(|row| row.name == name).unwrap().clone();
        let woken = row("receiver for a CPU, woken");
        assert_eq!((woken.count, woken.max), (2, 3e-6));
        assert_eq!(row("sender for a CPU, woken").max, 8e-6);
        assert_eq!(row("packets for the receiver, in its socket").count, 1);
        assert_eq!(row("packets in the queue of lm0").p50, 4e-6);
        assert_eq!(waits.rows.len(), 6, "{:?}", waits.rows);
        assert_eq!((waits.busy[0].ran, waits.busy[0].waited), (5e-6, 8e-6));
        assert_eq!((waits.observed, waits.cost), (0.5, Some(0.02)));
        assert_eq!(waits.queued, [2, 3]);
    }

    #[test]
    fn a_cost_is_that_of_all_looks_and_unknown_if_that_of_one_is() {
        let look = |spent| {
            let delays = Delays { observed: 100_000_000, ..Delays::default() };
            Seen { delays, looks: 1, spent }
        };
        let cost = |looks: [Option<f64>; 2]| {
            let mut all = Seen::default();
            looks.into_iter().for_each(|spent| all.add(look(spent)));
            all.waits(&[], |_| None, |_| true).cost
        };
        assert!(cost([Some(0.01), Some(0.03)]).is_some_and(|cost| (cost - 0.2).abs() < 1e-9));
        assert_eq!(cost([Some(0.01), None]), None);
        assert_eq!(cost([None, Some(0.01)]), None);
    }
}
