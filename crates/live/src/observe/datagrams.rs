//! The program's UDP sockets: what waits in them, what they dropped, and how often the program enters the kernel for
//! them.
//!
//! `sock_diag` lists the sockets, with or without a peer, and their drops (`SK_MEMINFO_DROPS`); the bytes are the
//! namespace's (`/proc/PID/net/netstat`), since no socket counts them. Calls are counted by tracepoints at the
//! entry of system calls, thread by thread, where this user may.

use super::diag::Datagrams;
use super::surroundings::Network;
use lastmeter_linux::perf::{Passes, tracepoint};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// Where QUIC listens, as a rule.
const QUIC: u16 = 443;
/// The most sockets kept.
const SOCKETS_MAX: usize = 4096;
/// The most threads whose calls are counted, with a descriptor for each call.
const THREADS_MAX: usize = 32;
/// A buffer counts as full from these shares of it, as TCP's does.
const FULL: (f64, f64) = (0.5, 2.0 / 3.0);
/// Calls that receive, then those that send.
const CALLS: [[&str; 3]; 2] =
    [["recvfrom", "recvmsg", "recvmmsg"], ["sendto", "sendmsg", "sendmmsg"]];

/// What was read of the program's datagrams; nothing without a UDP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Udp {
    /// Sockets of the program.
    pub sockets: usize,
    /// Bytes of IP for a datagram that arrived, and for one that left: more than a packet where several travel as one
    /// (`UDP_GRO`, `UDP_SEGMENT`).
    pub bytes: (f64, f64),
    /// Packets that arrived for each datagram.
    pub packets: f64,
    /// Datagrams for each call that receives, and for each that sends; `None` where they cannot be counted.
    pub per_call: Option<(f64, f64)>,
    /// Datagrams dropped at its own sockets.
    pub dropped: u64,
    /// The share of the looks with unread datagrams in one.
    pub unread: f64,
    /// With a receive buffer that is half full or more.
    pub full: f64,
    /// With a send buffer that is full.
    pub blocked: f64,
    /// One has an end at port 443.
    pub quic: bool,
}

/// A socket while it is followed: drops at the first look and at the last.
#[derive(Clone, Copy, Debug)]
struct One {
    drops: (u32, u32),
    quic: bool,
}

/// Everything known so far.
#[derive(Default)]
pub(super) struct Tally {
    sockets: BTreeMap<u32, One>,
    /// Looks with one at least, and of these, those with unread data, with a full receive and send buffer.
    looks: [u32; 4],
    calls: Option<Calls>,
}

/// Calls, counted from when the first thread was followed.
struct Calls {
    numbers: [Vec<u64>; 2],
    threads: BTreeMap<u32, [Vec<Passes>; 2]>,
    since: Network,
    /// At the last reading, which the program may have outlived.
    last: (Network, [u64; 2]),
}

impl Tally {
    /// Notes a look at the program's own sockets.
    pub(super) fn look(&mut self, seen: &[Datagrams]) {
        if seen.is_empty() {
            return;
        }
        let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1));
        let any = |is: &dyn Fn(&Datagrams) -> bool| u32::from(seen.iter().any(is));
        let found = [
            1,
            any(&|one| one.memory.receive > 0),
            any(&|one| share(one.memory.receive, one.memory.receive_max) >= FULL.0),
            any(&|one| share(one.memory.send, one.memory.send_max) >= FULL.1),
        ];
        self.looks.iter_mut().zip(found).for_each(|(sum, is)| *sum += is);
        for one in seen {
            if self.sockets.len() < SOCKETS_MAX || self.sockets.contains_key(&one.inode) {
                let quic = one.remote_port == QUIC || one.local_port == QUIC;
                let new = One { drops: (one.drops, one.drops), quic };
                let known = self.sockets.entry(one.inode).or_insert(new);
                known.drops.1 = one.drops;
                known.quic |= quic;
            }
        }
    }

    /// Counts the calls of these processes from now on, if they have UDP sockets and this user may.
    pub(super) fn count_calls(&mut self, pids: &[u32], network: Network) {
        if self.sockets.is_empty() {
            return;
        }
        let calls = self.calls.get_or_insert_with(|| Calls {
            numbers: CALLS.map(|names| {
                names
                    .iter()
                    .filter_map(|n| tracepoint(&format!("syscalls/sys_enter_{n}")))
                    .collect()
            }),
            threads: BTreeMap::new(),
            since: network,
            last: (network, [0; 2]),
        });
        calls.last = (network, [calls.so_far(0), calls.so_far(1)]);
        let tasks = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
        for task in tasks.flatten().flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if calls.threads.len() >= THREADS_MAX || calls.threads.contains_key(&tid) {
                continue;
            }
            let open = |numbers: &Vec<u64>| -> Vec<Passes> {
                numbers.iter().filter_map(|number| Passes::of(*number, tid).ok()).collect()
            };
            let [receive, send] = &calls.numbers;
            let opened = [open(receive), open(send)];
            if opened.iter().any(|one| !one.is_empty()) {
                calls.threads.insert(tid, opened);
            }
        }
    }

    /// What they say; `network` has the counters of the namespace since the first look.
    pub(super) fn of(&self, network: &Network) -> Udp {
        if self.sockets.is_empty() {
            return Udp::default();
        }
        let [looks, unread, full, blocked] = self.looks.map(f64::from);
        let each = |bytes: u64, count: u64| bytes as f64 / count.max(1) as f64;
        let drops =
            self.sockets.values().map(|one| u64::from(one.drops.1 - one.drops.0.min(one.drops.1)));
        Udp {
            sockets: self.sockets.len(),
            bytes: (
                each(network.octets_in, network.datagrams_in),
                each(network.octets_out, network.datagrams_out),
            ),
            packets: each(network.packets_in, network.datagrams_in),
            per_call: self.calls.as_ref().and_then(Calls::each),
            dropped: drops.sum(),
            unread: unread / looks.max(1.0),
            full: full / looks.max(1.0),
            blocked: blocked / looks.max(1.0),
            quic: self.sockets.values().any(|one| one.quic),
        }
    }
}

impl Calls {
    /// Calls of one kind.
    fn so_far(&self, way: usize) -> u64 {
        let events = self.threads.values().flat_map(|ways| &ways[way]);
        events.filter_map(|event| event.count().ok()).sum()
    }

    /// Datagrams for each call, since the calls were counted.
    fn each(&self) -> Option<(f64, f64)> {
        let (now, [received, sent]) = self.last;
        let moved = now.since(&self.since);
        let each = |datagrams: u64, calls: u64| datagrams as f64 / calls.max(1) as f64;
        (received + sent > 0)
            .then(|| (each(moved.datagrams_in, received), each(moved.datagrams_out, sent)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::diag::Memory;
    use super::*;

    fn socket(inode: u32, drops: u32, receive: u32) -> Datagrams {
        let memory = Memory { receive, receive_max: 1000, send: 0, send_max: 1000 };
        Datagrams { inode, local_port: 443, remote_port: 0, memory, drops }
    }

    #[test]
    fn drops_are_those_since_the_first_look_and_shares_of_the_looks_with_a_socket() {
        let mut tally = Tally::default();
        assert_eq!(tally.of(&Network::default()), Udp::default());
        tally.look(&[]);
        tally.look(&[socket(7, 10, 0)]);
        tally.look(&[socket(7, 15, 600), socket(8, 3, 0)]);
        let network =
            Network { datagrams_in: 10, octets_in: 12_000, packets_in: 80, ..Network::default() };
        let udp = tally.of(&network);
        assert_eq!((udp.sockets, udp.dropped, udp.unread, udp.full), (2, 5, 0.5, 0.5));
        assert_eq!((udp.bytes.0, udp.packets, udp.per_call), (1200.0, 8.0, None));
        assert!(udp.quic);
    }

    #[test]
    fn calls_of_this_thread_are_counted_where_that_is_allowed() {
        use std::net::UdpSocket;
        let mut tally = Tally::default();
        tally.look(&[socket(7, 0, 0)]);
        tally.count_calls(&[std::process::id()], Network::default());
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            a.send_to(&[0; 10], a.local_addr().unwrap()).unwrap();
        }
        let now = Network { datagrams_out: 100, ..Network::default() };
        tally.count_calls(&[], now);
        match tally.of(&Network::default()).per_call {
            // Other tests of this process send, too.
            Some((_, each)) => assert!(each > 0.0 && each <= 1.0, "{each}"),
            None => {
                let words = "SKIP: calls cannot be counted here";
                std::io::Write::write_all(&mut std::io::stderr(), words.as_bytes()).unwrap();
            }
        }
    }
}
