//! What surrounds the program: the counters of its network namespace and of the machine, as changes
//! between the first look and the last.
//!
//! Sources: `/proc/PID/net/snmp`, `netstat`, `dev`; `/proc/net/softnet_stat`; `/proc/stat`;
//! `/proc/pressure/cpu`; queueing disciplines over netlink (`linux/rtnetlink.h`, `linux/gen_stats.h`).

use crate::transfer::meter::now;
use lastmeter_linux::Result;
use lastmeter_linux::netlink::{Message, Netlink};
use lastmeter_wire::netlink::attributes;
use std::fs;

const RTM_GETQDISC: u16 = 38;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
/// Bytes of `struct tcmsg`.
const TCMSG: usize = 20;
/// Offset of `drops` in `struct gnet_stats_queue`.
const DROPS: usize = 8;

/// Counters of a network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Network {
    /// Seconds of the monotonic clock; of a change, how long it took.
    pub(super) at: f64,
    pub(super) datagrams_in: u64,
    pub(super) datagrams_out: u64,
    /// Bytes of IP, of every protocol, and packets that arrived.
    pub(super) octets_in: u64,
    pub(super) octets_out: u64,
    pub(super) packets_in: u64,
    /// Datagrams dropped because a receive buffer was full.
    pub(super) overflows: u64,
    /// Datagrams not sent because a send buffer was full.
    pub(super) refused: u64,
    /// Connections opened and accepted.
    pub(super) opened: u64,
    pub(super) interface_drops: u64,
    pub(super) queue_drops: u64,
}

impl Network {
    /// Of the namespace of `pid`, whose queueing disciplines `route` can list.
    pub(super) fn of(pid: u32, route: Option<&mut Netlink>) -> Option<Network> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).ok();
        let snmp = read("snmp")?;
        let (six, more) = (read("snmp6").unwrap_or_default(), read("netstat").unwrap_or_default());
        let udp = |name: &str| named(&snmp, "Udp:", name) + of_six(&six, "Udp6", name);
        let ip = |name: &str| named(&more, "IpExt:", name) + of_six(&six, "Ip6", name);
        let tcp = |name: &str| named(&snmp, "Tcp:", name);
        let queue_drops = route.and_then(|route| queue_drops(route).ok()).unwrap_or(0);
        Some(Network {
            at: now(),
            datagrams_in: udp("InDatagrams"),
            datagrams_out: udp("OutDatagrams"),
            octets_in: ip("InOctets"),
            octets_out: ip("OutOctets"),
            packets_in: ECN.iter().map(|name| ip(name)).sum(),
            overflows: udp("RcvbufErrors"),
            refused: udp("SndbufErrors"),
            opened: tcp("ActiveOpens") + tcp("PassiveOpens"),
            interface_drops: read("dev").map_or(0, |text| interface_drops(&text)),
            queue_drops,
        })
    }

    pub(super) fn since(&self, first: &Network) -> Network {
        let change = |of: fn(&Network) -> u64| of(self).saturating_sub(of(first));
        Network {
            at: self.at - first.at,
            datagrams_in: change(|n| n.datagrams_in),
            datagrams_out: change(|n| n.datagrams_out),
            octets_in: change(|n| n.octets_in),
            octets_out: change(|n| n.octets_out),
            packets_in: change(|n| n.packets_in),
            overflows: change(|n| n.overflows),
            refused: change(|n| n.refused),
            opened: change(|n| n.opened),
            interface_drops: change(|n| n.interface_drops),
            queue_drops: change(|n| n.queue_drops),
        }
    }
}

/// Packets that arrived, by what their header says of congestion; together all of them, each counted by itself
/// where several travel as one.
const ECN: [&str; 4] = ["InNoECTPkts", "InECT1Pkts", "InECT0Pkts", "InCEPkts"];

/// A value of `/proc/net/snmp6`: a line for each.
fn of_six(text: &str, prefix: &str, name: &str) -> u64 {
    let of = |line: &str| {
        let (key, value) = line.split_once(char::is_whitespace)?;
        value.trim().parse().ok().filter(|_| key.strip_prefix(prefix) == Some(name))
    };
    text.lines().find_map(of).unwrap_or(0)
}

/// A value of `/proc/net/snmp`: a line of names, then one of values, with the same prefix.
fn named(text: &str, prefix: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(prefix));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let found = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    found.filter(|(key, _)| *key == name).find_map(|(_, v)| v.parse().ok()).unwrap_or(0)
}

/// `/proc/net/dev`: what every interface dropped, received and sent.
fn interface_drops(text: &str) -> u64 {
    const RECEIVED: usize = 3;
    const SENT: usize = 11;
    let of = |line: &str| {
        let (_, counts) = line.split_once(':')?;
        let counts: Vec<u64> =
            counts.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect();
        Some(counts.get(RECEIVED)? + counts.get(SENT)?)
    };
    text.lines().filter_map(of).sum()
}

fn queue_drops(route: &mut Netlink) -> Result<u64> {
    let mut drops = 0;
    let message = Message::new(RTM_GETQDISC, 0).fixed(&[0; TCMSG]);
    route.dump(message, "listing queueing disciplines", |answer| {
        let Some(rest) = answer.get(TCMSG..) else { return };
        attributes(rest, |kind, value| {
            if kind != TCA_STATS2 {
                return;
            }
            attributes(value, |kind, value| {
                let count = value.get(DROPS..DROPS + 4).and_then(|b| b.try_into().ok());
                if let (TCA_STATS_QUEUE, Some(count)) = (kind, count) {
                    drops += u64::from(u32::from_ne_bytes(count));
                }
            });
        });
    })?;
    Ok(drops)
}

/// Counters of the machine, in ticks, microseconds and packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Machine {
    /// Of each CPU: all ticks, idle ones, those in softirqs.
    cpus: Vec<[u64; 3]>,
    /// Time in which some thread waited for a CPU.
    pressure: u64,
    /// Packets dropped because a CPU's backlog was full.
    backlog_drops: u64,
}

impl Machine {
    pub(super) fn now() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Machine {
            cpus: read("/proc/stat").lines().filter_map(cpu).collect(),
            pressure: pressure(&read("/proc/pressure/cpu")),
            backlog_drops: read("/proc/net/softnet_stat").lines().filter_map(dropped).sum(),
        }
    }

    /// The greatest share that a CPU spent in softirqs, the idle share of all, the share of the time in
    /// which some thread waited for a CPU, and packets dropped, since `first`, `seconds` ago.
    pub(super) fn since(&self, first: &Machine, seconds: f64) -> MachineChange {
        let changes = self.cpus.iter().zip(&first.cpus).map(|(now, then)| {
            let change = |at: usize| now[at].saturating_sub(then[at]) as f64;
            [change(0).max(1.0), change(1), change(2)]
        });
        let mut all = MachineChange::default();
        let mut count = 0.0;
        for [ticks, idle, softirq] in changes {
            all.softirq = all.softirq.max(softirq / ticks);
            all.idle += idle / ticks;
            count += 1.0;
        }
        all.idle /= f64::max(count, 1.0);
        let waited = self.pressure.saturating_sub(first.pressure) as f64 * 1e-6;
        all.pressure = (waited / seconds.max(1e-3)).min(1.0);
        all.backlog_drops = self.backlog_drops.saturating_sub(first.backlog_drops);
        all
    }
}

/// See [`Machine::since`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MachineChange {
    pub(super) softirq: f64,
    pub(super) idle: f64,
    pub(super) pressure: f64,
    pub(super) backlog_drops: u64,
}

/// A line of `/proc/stat` about one CPU.
fn cpu(line: &str) -> Option<[u64; 3]> {
    let mut words = line.split_ascii_whitespace();
    words.next().filter(|name| name.starts_with("cpu") && name.len() > 3)?;
    // user nice system idle iowait irq softirq steal; guest time is part of user.
    let ticks: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
    Some([ticks.iter().sum(), ticks.get(3)? + ticks.get(4)?, *ticks.get(6)?])
}

/// The `total` of the line `some`.
fn pressure(text: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with("some")).unwrap_or_default();
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="));
    total.and_then(|total| total.parse().ok()).unwrap_or(0)
}

/// A line of `softnet_stat`: packets, then drops, in hexadecimal.
fn dropped(line: &str) -> Option<u64> {
    u64::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "Udp: InDatagrams NoPorts RcvbufErrors\nUdp: 12 0 3\n";
        assert_eq!(named(text, "Udp:", "RcvbufErrors"), 3);
        assert_eq!(named(text, "Udp:", "absent"), 0);
        assert_eq!(named("Udp: A\n", "Udp:", "A"), 0);
        let six = "Ip6InOctets   \t9\nUdp6InDatagrams 5\n";
        assert_eq!((of_six(six, "Udp6", "InDatagrams"), of_six(six, "Ip6", "InOctets")), (5, 9));
        assert_eq!(of_six(six, "Udp6", "Octets"), 0);
        let dev = "Inter-|\n face |\n lm0: 10 1 0 4 0 0 0 0 20 2 0 5 0 0 0 0\n";
        assert_eq!(interface_drops(dev), 9);
        assert_eq!(pressure("some avg10=0.00 total=42\nfull total=7\n"), 42);
        assert_eq!(dropped("00000010 0000000a 0 0"), Some(10));
    }

    #[test]
    fn shares_are_of_the_busiest_cpu_and_of_all() {
        let of = |cpus| Machine { cpus, ..Machine::default() };
        let (first, last) = (of(vec![[0; 3]; 2]), of(vec![[100, 20, 70], [100, 80, 5]]));
        let change = last.since(&first, 1.0);
        assert_eq!((change.softirq, change.idle), (0.7, 0.5));
    }

    #[test]
    fn this_machine_can_be_read() {
        assert!(!Machine::now().cpus.is_empty());
        let mut route = Netlink::route().unwrap();
        assert!(Network::of(std::process::id(), Some(&mut route)).is_some());
        assert!(Network::of(u32::MAX, None).is_none());
    }
}
