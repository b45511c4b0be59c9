//! The kernel's counters in procfs, and their change between two readings.
//!
//! CPU times have the resolution of the kernel's tick (10 ms as printed), and softirqs that run while
//! a thread is in the kernel are charged to that thread: so stages are measured by difference and not
//! read here.

use crate::error::{Doing, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// `USER_HZ`: the unit in which procfs prints CPU times, fixed at 100 a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds that one CPU spent in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Running programs.
    pub user: f64,
    /// In the kernel on behalf of programs.
    pub system: f64,
    /// Idle, including waiting for disks.
    pub idle: f64,
    /// In hardware interrupts.
    pub interrupt: f64,
    /// In softirqs outside any thread.
    pub softirq: f64,
    /// Stolen by the hypervisor.
    pub steal: f64,
}

/// One reading of the counters of the machine and of one or more network namespaces.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    cpus: Vec<CpuTime>,
    interrupts: u64,
    context_switches: u64,
    softirqs: BTreeMap<String, u64>,
    network: Vec<BTreeMap<String, u64>>,
}

/// The change between two readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterChange {
    /// Per CPU, in order.
    pub cpus: Vec<CpuTime>,
    /// Hardware interrupts on all CPUs.
    pub interrupts: u64,
    /// Context switches on all CPUs.
    pub context_switches: u64,
    /// Softirqs on all CPUs, by kind (`NET_RX`).
    pub softirqs: BTreeMap<String, u64>,
    /// Drops, retransmissions and the like, by name, summed over the namespaces.
    pub troubles: BTreeMap<String, u64>,
}

/// Counters in /proc/net/snmp and /proc/net/netstat that mean lost or repeated work.
const TROUBLES: &str = "Tcp:RetransSegs Tcp:InErrs Tcp:OutRsts Ip:InDiscards Ip:OutDiscards \
                        TcpExt:TCPTimeouts TcpExt:TCPLossProbes TcpExt:TCPBacklogDrop \
                        TcpExt:TCPRcvQDrop TcpExt:TCPOFODrop TcpExt:PruneCalled TcpExt:RcvPruned \
                        TcpExt:TCPRcvCollapsed TcpExt:TCPZeroWindowDrop \
                        TcpExt:TCPToZeroWindowAdv TcpExt:TCPWantZeroWindowAdv";

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).doing(|| format!("reading {path}"))
}

impl Counters {
    /// Reads the counters; `processes` identify the network namespaces to read.
    pub fn now(processes: &[u32]) -> Result<Counters> {
        let mut counters = Counters::default();
        counters.read_stat(&read("/proc/stat")?);
        counters.softirqs = softirqs(&read("/proc/softirqs")?);
        for pid in processes {
            let mut pairs = BTreeMap::new();
            for file in ["snmp", "netstat"] {
                name_value_lines(&read(&format!("/proc/{pid}/net/{file}"))?, &mut pairs);
            }
            counters.network.push(pairs);
        }
        Ok(counters)
    }

    fn read_stat(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let Some(name) = words.next() else { continue };
            let mut number = || words.next().and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
            match name {
                "intr" => self.interrupts = number(),
                "ctxt" => self.context_switches = number(),
                _ if name.starts_with("cpu") && name.len() > 3 => {
                    let mut seconds = || number() as f64 / TICKS_PER_SECOND;
                    let (user, nice, system) = (seconds(), seconds(), seconds());
                    let (idle, disk) = (seconds(), seconds());
                    let (interrupt, softirq, steal) = (seconds(), seconds(), seconds());
                    let (user, idle) = (user + nice, idle + disk);
                    self.cpus.push(CpuTime { user, system, idle, interrupt, softirq, steal });
                }
                _ => {}
            }
        }
    }

    /// The change since `before`.
    pub fn since(&self, before: &Counters) -> CounterChange {
        let cpus = self.cpus.iter().zip(&before.cpus).map(|(now, then)| now.since(then)).collect();
        let mut troubles = BTreeMap::new();
        for (now, then) in self.network.iter().zip(&before.network) {
            for (name, change) in difference(now, then) {
                if TROUBLES.split(' ').any(|trouble| trouble == name) {
                    *troubles.entry(name).or_insert(0) += change;
                }
            }
        }
        CounterChange {
            cpus,
            interrupts: self.interrupts.saturating_sub(before.interrupts),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
            softirqs: difference(&self.softirqs, &before.softirqs),
            troubles,
        }
    }
}

/// Threads running or ready at this instant, excluding the caller.
pub fn runnable_others() -> Result<u64> {
    let text = read("/proc/stat")?;
    let line = text.lines().find_map(|l| l.strip_prefix("procs_running "));
    Ok(line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(1).saturating_sub(1))
}

impl CpuTime {
    fn since(&self, then: &CpuTime) -> CpuTime {
        CpuTime {
            user: self.user - then.user,
            system: self.system - then.system,
            idle: self.idle - then.idle,
            interrupt: self.interrupt - then.interrupt,
            softirq: self.softirq - then.softirq,
            steal: self.steal - then.steal,
        }
    }
}

/// The counters that grew, by name.
fn difference(now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let grown = |(name, &value): (&String, &u64)| {
        let change = value.saturating_sub(then.get(name).copied().unwrap_or(0));
        (change > 0).then(|| (name.clone(), change))
    };
    now.iter().filter_map(grown).collect()
}

/// `/proc/softirqs`: a row per kind, a column per CPU.
fn softirqs(text: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let sum = counts.split_ascii_whitespace().filter_map(|w| w.parse::<u64>().ok()).sum();
        Some((name.trim().to_owned(), sum))
    };
    text.lines().filter_map(row).collect()
}

/// `/proc/net/snmp`: a line of names, then a line of values, both with the same prefix.
fn name_value_lines(text: &str, into: &mut BTreeMap<String, u64>) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let mut values = pair[1].split_ascii_whitespace();
        let Some(protocol) = values.next() else { continue };
        for (name, value) in pair[0].split_ascii_whitespace().skip(1).zip(values) {
            if let Ok(value) = value.parse() {
                into.insert(format!("{protocol}{name}"), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_values() {
        let mut pairs = BTreeMap::new();
        name_value_lines("Tcp: A B\nTcp: 1 -1\nIp: C\nIp: 7\n", &mut pairs);
        assert_eq!(pairs, BTreeMap::from([("Tcp:A".into(), 1), ("Ip:C".into(), 7)]));
    }

    #[test]
    fn adds_the_columns_of_softirqs() {
        let sums = softirqs("      CPU0 CPU1\n  NET_RX:  3   4\n");
        assert_eq!(sums, BTreeMap::from([("NET_RX".into(), 7)]));
    }

    #[test]
    fn reports_only_counters_that_grew() {
        let mut before = Counters::default();
        before.read_stat("cpu  1 0 0 0\ncpu0 100 0 50 800 0 1 2 3\nintr 10 4 6\nctxt 5\n");
        let mut after = Counters::default();
        after.read_stat("cpu0 200 0 50 900 0 1 2 3\nintr 17 4 6\nctxt 5\n");
        let change = after.since(&before);
        assert_eq!(change.interrupts, 7);
        assert_eq!(change.context_switches, 0);
        assert_eq!(change.cpus[0].user, 1.0);
        assert_eq!(change.cpus[0].idle, 1.0);
    }
}
