//! Another program: its TCP connections and its threads, observed from outside.
//!
//! The kernel's socket diagnostics report the state of each connection; procfs shows which sockets
//! belong to the command and its children, their threads' CPU time, and where a thread sleeps.
//! Nothing is attached, traced or preloaded. It samples every 20 ms; where a sample takes long (a
//! machine with many sockets), less often, so that observing never takes more than a small share of
//! one CPU. All sockets are listed as often as that is cheap, and the program's own asked for in between.
//! The end of the command ends a pause at once.
//!
//! This module reads facts ([`Witnesses`]); what follows from them is said elsewhere.

mod closed;
mod datagrams;
mod diag;
mod far;
pub mod lift;
mod listing;
mod pipes;
mod polled;
mod processes;
mod surroundings;
mod tally;
mod timeline;
mod witness;

pub use closed::Closed;
pub use datagrams::Udp;
pub(crate) use far::{peers, process};
pub use pipes::Stage;
pub use timeline::{Interval, Timeline};
pub use witness::Witnesses;

use crate::sample::Sampler;
use crate::transfer::meter::now;
use closed::Closings;
use diag::Diagnostics;
use lastmeter_linux::clock::thread_cpu;
use lastmeter_linux::tcp_info::TcpInfo;
use lastmeter_linux::{Doing, Result};
use listing::Listing;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;
use surroundings::{Machine, Network};
use tally::{Connection, Thread};
use witness::Around;

/// Seconds between samples.
const EVERY: f64 = 0.02;
/// The longest pause, where a sample takes long.
const EVERY_MAX: f64 = 0.5;
/// The share of one CPU that sampling may take.
const COST_MAX: f64 = 0.005;
/// The same of the first samples, as many as a sure verdict takes: with fewer a short transfer says little, and a
/// sample on the core of a busy sender takes long, since interrupts there are in its time.
const COST_FIRST: f64 = 0.02;
const FIRST: u32 = 20;
/// The longest pause between these, unless a sample takes so long that even that would be a greater share of one CPU
/// than the second number: on a virtual machine a sample after a pause takes many times as long as one after another.
const EVERY_FIRST: f64 = 0.1;
const COST_FIRST_MAX: f64 = 0.03;
/// The part of that share in which all connections are listed.
const LISTING: f64 = 0.25;
/// Samples between two searches for new processes and sockets, which cost more than a sample.
const SEARCH_EVERY: u32 = 8;
/// Where names are looked up.
const NAME_SERVER: u16 = 53;
/// The most connections reported, those with most data first.
const CONNECTIONS_MAX: usize = 64;
/// The most connections and threads kept while observing.
const KEPT_MAX: usize = 65_536;
/// Marks are kept while there are no more connections than this.
const MARKED_MAX: usize = 256;
/// The most network namespaces of one program that are entered.
const NAMESPACES_MAX: usize = 16;

/// One connection of the observed program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// Its own end.
    pub local: String,
    /// The other end.
    pub remote: String,
    /// Seconds between its first and last sample.
    pub seen: f64,
    /// Bytes that the other end acknowledged.
    pub sent: u64,
    /// Bytes that arrived.
    pub received: u64,
    /// Mean smoothed round-trip time, seconds.
    pub rtt: f64,
    /// Mean bytes written and not sent yet.
    #[serde(default)]
    pub not_sent: f64,
    /// Mean bytes sent and not acknowledged.
    #[serde(default)]
    pub in_flight: f64,
    /// Mean bytes that arrived and were not read.
    #[serde(default)]
    pub unread: f64,
    /// The first sample.
    pub first: TcpInfo,
    /// The last sample.
    pub last: TcpInfo,
    /// How far its data had come at the last few hundred samples; kept of the connection with most data.
    #[serde(default)]
    pub marks: Vec<Mark>,
}

/// How far a connection's data had come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Seconds of the host's monotonic clock.
    pub at: f64,
    /// Bytes that had left this end for the first time.
    pub sent: u64,
    /// Bytes that the other end had acknowledged.
    pub acked: u64,
    /// Bytes that had arrived in order.
    pub received: u64,
}

/// The observation of a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Seconds from start to end.
    pub elapsed: f64,
    /// Its exit status, if it has one.
    pub status: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Number of samples.
    pub looks: u32,
    /// Fraction of one CPU that sampling took.
    pub cost: f64,
    /// Processes seen.
    pub processes: usize,
    /// Seconds in user mode and in the kernel, all processes, until the last sample.
    pub user: f64,
    /// See `user`.
    pub system: f64,
    /// Connections, those with most data first.
    pub connections: Vec<Observed>,
    /// What was read of the connections to the remote host with most data, if there were any.
    pub witnesses: Option<Witnesses>,
    /// Processes that pass data on through pipes, in their order; empty without.
    #[serde(default)]
    pub pipeline: Vec<Stage>,
    /// Connections that began and ended between two looks.
    #[serde(default)]
    pub closed: Closed,
    /// What the thread that moves the data did over time.
    #[serde(default)]
    pub timeline: Option<Timeline>,
    /// Seconds that reading the sockets takes, mean: the instant of a sample lies within.
    #[serde(default)]
    pub reading: f64,
}

/// Ends of connections in this process's network namespace, which the kernel reports from now on. A command may have
/// ended hundreds before the first look at it.
pub struct Reports(Option<(u64, Closings)>);

impl Reports {
    /// Asks for them; a kernel that has none is no error.
    pub fn open() -> Reports {
        Reports(processes::network(std::process::id()).zip(Closings::open(None).ok()))
    }
}

/// Who is told while a command is followed.
pub struct Watch<'a> {
    /// What samples the command, and has to know of its processes.
    pub sampler: Option<&'a Sampler>,
    /// When the command was started.
    pub begun: Instant,
    /// Opened before that.
    pub reports: Reports,
    /// Seconds between two tellings.
    pub every: f64,
    /// Gets the observation so far.
    pub each: &'a mut dyn FnMut(Observation) -> Result<()>,
}

/// Everything known so far.
#[derive(Default)]
struct Follower {
    /// The sockets, each with a process that holds it.
    inodes: BTreeMap<u32, u32>,
    pids: Vec<u32>,
    /// The network namespaces of these processes.
    homes: BTreeMap<u32, u64>,
    seen: BTreeSet<u32>,
    networks: BTreeMap<u64, Diagnostics>,
    closings: BTreeMap<u64, Closings>,
    connections: BTreeMap<(u32, String, String), Connection>,
    threads: BTreeMap<u32, Thread>,
    processes: BTreeMap<u32, (f64, f64)>,
    /// Of each process, the first and the last reading.
    throttled: BTreeMap<u32, (processes::Throttle, processes::Throttle)>,
    /// Of each network namespace, the same.
    surroundings: BTreeMap<u64, (Network, Network)>,
    machine: Option<Machine>,
    /// Sockets that are not the program's.
    foreign: BTreeSet<u32>,
    /// Looks with a socket to a name server.
    names: u32,
    pipes: BTreeMap<u32, pipes::Ends>,
    /// Sockets, and whether they are of this host alone.
    local: BTreeMap<u32, bool>,
    datagrams: datagrams::Tally,
    listing: Listing,
    looks: u32,
    /// Seconds that reading sockets took, all looks.
    reading: f64,
}

/// Starts `command` and follows it until it ends.
///
/// # Errors
/// When it cannot be started or the kernel refuses socket diagnostics.
pub fn run(command: &mut Command) -> Result<Observation> {
    let (reports, begun) = (Reports::open(), Instant::now());
    let child = command.spawn().doing(|| format!("starting {:?}", command.get_program()))?;
    let every = f64::INFINITY;
    follow(child, Watch { sampler: None, begun, reports, every, each: &mut |_| Ok(()) })
}

/// Interrupts the command `pid`, as Ctrl-C would; one that has ended already needs none.
pub fn interrupt(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }
}

/// A description of this machine.
///
/// # Errors
/// When it does not identify itself.
pub fn host() -> Result<String> {
    let model = crate::calibrate::cpu_model()?;
    let cores = lastmeter_linux::cores::allowed()?.len();
    Ok(format!("{model}, {cores} cores, Linux {}", crate::transfer::kernel()?))
}

/// Follows a child and its descendants until it ends.
///
/// # Errors
/// When the kernel refuses socket diagnostics.
pub fn follow(mut child: Child, watch: Watch<'_>) -> Result<Observation> {
    let what = "waiting for the command";
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has an id");
    let ended = pidfd_open(pid, PidfdFlags::empty()).doing(what)?;
    let from = now() - watch.begun.elapsed().as_secs_f64();
    let mut status = None;
    let mut told = from;
    // A look may take long; the command's own end is noted by a thread that does nothing else.
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| wait(&ended, f64::INFINITY).map(|()| now()));
        let (mut follower, _, cost) =
            look_until(child.id(), watch.reports, |follower, cost, pause| {
                if let Some(sampler) = watch.sampler {
                    sampler.follow(&follower.seen);
                }
                wait(&ended, pause)?;
                status = child.try_wait().doing(what)?;
                if status.is_none() && now() - told >= watch.every {
                    told = now();
                    (watch.each)(follower.so_far(told - from, None, cost))?;
                }
                Ok(status.is_some())
            })?;
        let at = ending.join().expect("waiting does not panic")?;
        Ok(follower.so_far(at - from, status, cost))
    })
}

/// Follows two processes for some seconds, as if they were other programs.
pub(crate) fn both(pids: [u32; 2], seconds: f64) -> Result<[Observation; 2]> {
    let until = now() + seconds;
    std::thread::scope(|scope| {
        let ends = pids.map(|pid| {
            scope.spawn(move || {
                look_until(pid, Reports(None), |_, _, pause| {
                    let left = (until - now()).max(0.0);
                    std::thread::sleep(std::time::Duration::from_secs_f64(pause.min(left)));
                    Ok(now() >= until)
                })
            })
        });
        let seen = ends.map(|end| {
            let (mut follower, elapsed, cost) = end.join().expect("looking does not panic")?;
            Ok(follower.so_far(elapsed, None, cost))
        });
        let [sender, receiver] = seen;
        Ok([sender?, receiver?])
    })
}

/// Looks at `root` and its descendants until `pause` says that it is over, as [`looks`].
/// Returns what was seen, the seconds that it took, and the share of a CPU that looking cost.
fn look_until(
    root: u32,
    reports: Reports,
    pause: impl FnMut(&mut Follower, f64, f64) -> Result<bool>,
) -> Result<(Follower, f64, f64)> {
    let closings = reports.0.into_iter().collect();
    let mut follower = Follower { closings, ..Follower::default() };
    let (elapsed, cost) = looks(&mut follower, |follower| follower.look(root), pause)?;
    Ok((follower, elapsed, cost))
}

/// Looks until `pause` says that it is over: it is handed what is known, the share of a CPU that looking cost, and for
/// how many seconds to wait. Returns the seconds that it took, and that share.
fn looks(
    follower: &mut Follower,
    mut look: impl FnMut(&mut Follower) -> Result<()>,
    mut pause: impl FnMut(&mut Follower, f64, f64) -> Result<bool>,
) -> Result<(f64, f64)> {
    let (from, run_from) = (now(), thread_cpu());
    loop {
        let (before, listed) = (thread_cpu(), follower.listing.took);
        look(follower)?;
        let run = thread_cpu();
        let cost = (run - run_from) / (now() - from).max(EVERY);
        // Listing has its own share of the time, and is put off by itself.
        let took = run - before - (follower.listing.took - listed);
        let share = (1.0 - LISTING) * follower.share();
        let longest = match follower.looks <= FIRST {
            true => EVERY_FIRST.max(took / COST_FIRST_MAX).min(EVERY_MAX),
            false => EVERY_MAX,
        };
        if pause(follower, cost, (took / share).clamp(EVERY, longest))? {
            break;
        }
    }
    let elapsed = now() - from;
    Ok((elapsed, (thread_cpu() - run_from) / elapsed))
}

/// Sleeps for `seconds`, which may be infinite, or until the process of `ended` ends.
fn wait(ended: &OwnedFd, seconds: f64) -> Result<()> {
    let nanoseconds = (seconds.min(EVERY_MAX) * 1e9) as i64;
    let timeout = seconds.is_finite().then_some(Timespec { tv_sec: 0, tv_nsec: nanoseconds });
    match poll(&mut [PollFd::new(ended, PollFlags::IN)], timeout.as_ref()) {
        // An interrupt is for the command; the next look comes a little early.
        Err(rustix::io::Errno::INTR) if seconds.is_infinite() => wait(ended, seconds),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).doing("waiting for the command"),
    }
}

impl Follower {
    fn search(&mut self, root: u32) -> Result<()> {
        self.pids = processes::tree(root);
        self.homes.clear();
        self.inodes.clear();
        for pid in &self.pids {
            processes::sockets(*pid, &mut self.inodes);
            if let Some(times) = processes::user_system(*pid) {
                self.processes.insert(*pid, times);
            }
            let Some(network) = processes::network(*pid) else { continue };
            self.homes.insert(*pid, network);
            if self.networks.len() < NAMESPACES_MAX && !self.networks.contains_key(&network) {
                let own = processes::network(std::process::id()) == Some(network);
                let opened = if own { Diagnostics::open() } else { Diagnostics::open_in(*pid) };
                // A kernel that reports no ends of connections is still looked at.
                if !self.closings.contains_key(&network)
                    && let Ok(closings) = Closings::open((!own).then_some(*pid))
                {
                    self.closings.insert(network, closings);
                }
                match opened {
                    Ok(opened) => _ = self.networks.insert(network, opened),
                    // Somebody else's namespace without the right to enter it: nothing is seen of it.
                    Err(_) if !own => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.seen.extend(&self.pids);
        self.foreign.clear();
        self.read_processes();
        // The counters of this process's namespace can still be read when the program has ended.
        let own = processes::network(std::process::id());
        let others = self.homes.values().any(|id| Some(*id) != own);
        if others || self.looks.is_multiple_of(SEARCH_EVERY) {
            self.surroundings();
        }
        Ok(())
    }

    /// Reads what the program's processes hold, and what they are kept from.
    fn read_processes(&mut self) {
        for pid in &self.pids {
            if let Some(ends) = pipes::of(*pid) {
                self.pipes.insert(*pid, ends);
            }
            if let Some(now) = processes::throttled(*pid) {
                self.throttled.entry(*pid).or_insert((now, now)).1 = now;
            }
        }
    }

    /// Reads the counters around the program: of this machine, and of each network namespace in which a process is.
    fn surroundings(&mut self) {
        self.machine.get_or_insert_with(Machine::now);
        let own = std::process::id();
        let own_home = processes::network(own);
        let mut read = BTreeSet::new();
        for pid in if self.pids.is_empty() { std::slice::from_ref(&own) } else { &self.pids } {
            let Some(id) = self.homes.get(pid).copied().or(own_home) else { continue };
            let Some(network) = self.networks.get_mut(&id).filter(|_| read.insert(id)) else {
                continue;
            };
            let from = if Some(id) == own_home { own } else { *pid };
            if let Some(now) = Network::of(from, network.route.as_mut()) {
                self.surroundings.entry(id).or_insert((now, now)).1 = now;
                self.datagrams.count_calls(&self.pids, now);
            }
        }
    }

    /// What they say; of the namespaces, the one with most connections and datagrams.
    fn around(&self, elapsed: f64) -> Around {
        let throttled = self.throttled.values().map(|(first, last)| last.since(first, elapsed));
        let changes = self.surroundings.values().map(|(first, last)| last.since(first));
        let network = changes.max_by_key(|n| n.opened + n.datagrams_in + n.datagrams_out);
        let network = network.unwrap_or_default();
        let first = self.machine.clone().unwrap_or_default();
        Around {
            throttled: throttled.reduce(f64::max),
            udp: self.datagrams.of(&network),
            network,
            machine: Machine::now().since(&first, elapsed),
            names: f64::from(self.names) / f64::from(self.looks.max(1)),
            looks: self.looks,
            listings: self.listing.looks,
        }
    }

    /// The share of one CPU that sampling may take now.
    fn share(&self) -> f64 {
        if self.looks <= FIRST { COST_FIRST } else { COST_MAX }
    }

    fn look(&mut self, root: u32) -> Result<()> {
        // A program opens its sockets early; the first samples search each time.
        let search = self.looks < 3 || self.looks.is_multiple_of(SEARCH_EVERY);
        if search {
            self.search(root)?;
        }
        self.threads();
        self.looks += 1;
        self.closings.values_mut().for_each(Closings::take);
        self.sockets(search)
    }

    fn threads(&mut self) {
        let mut looks = BTreeMap::new();
        let at = now();
        let mut known = polled::Known { pipes: &self.pipes, local: &mut self.local };
        for pid in &self.pids {
            processes::threads(*pid, &mut known, &mut looks);
        }
        for (tid, look) in looks {
            if self.threads.len() < KEPT_MAX || self.threads.contains_key(&tid) {
                self.threads.entry(tid).or_insert_with(|| Thread::new(look, at)).note(look, at);
            }
        }
    }

    /// Looks at the sockets of every namespace, after a `search` or without, and finds the owners of those that are
    /// new.
    fn sockets(&mut self, search: bool) -> Result<()> {
        let at = now();
        // A program makes its connections early: each new socket may be one.
        let early = self.looks <= FIRST;
        if early && !search {
            self.pids.iter().for_each(|pid| processes::sockets(*pid, &mut self.inodes));
        }
        let due = self.listing.is_due(at, self.inodes.keys().filter(|_| early));
        let (streams, cost) = self.streams(due)?;
        let mut datagrams = Vec::new();
        for network in self.networks.values_mut() {
            network.datagrams(|seen| datagrams.push(seen))?;
        }
        let took = now() - at;
        self.reading += took;
        let inodes = || {
            let others = datagrams.iter().map(|seen| seen.inode);
            streams.iter().map(|(_, seen)| seen.inode).chain(others)
        };
        let new = inodes().any(|inode| {
            inode > 0 && !self.inodes.contains_key(&inode) && !self.foreign.contains(&inode)
        });
        if new {
            self.pids.iter().for_each(|pid| processes::sockets(*pid, &mut self.inodes));
            if self.foreign.len() > KEPT_MAX {
                self.foreign.clear();
            }
            let own = &self.inodes;
            self.foreign.extend(inodes().filter(|inode| !own.contains_key(inode)));
        }
        if due {
            let own = streams.iter().filter(|(_, seen)| self.inodes.contains_key(&seen.inode));
            let own = own.map(|(network, seen)| (*network, seen.id));
            let found: BTreeSet<u32> = inodes().collect();
            let sockets = self.inodes.keys().map(|inode| (*inode, found.contains(inode)));
            self.listing.done((at, cost, LISTING * self.share()), own, sockets);
        }
        datagrams.retain(|seen| self.inodes.contains_key(&seen.inode));
        let (names, own): (Vec<_>, Vec<_>) =
            datagrams.into_iter().partition(|seen| seen.remote_port == NAME_SERVER);
        self.names += u32::from(!names.is_empty());
        self.datagrams.look(&own);
        for (_, seen) in streams {
            let Some(pid) = self.inodes.get(&seen.inode) else { continue };
            let key = (seen.inode, seen.local.to_string(), seen.remote.to_string());
            if self.connections.len() < KEPT_MAX || self.connections.contains_key(&key) {
                let new = || Connection::new(&seen, *pid, at);
                self.connections.entry(key).or_insert_with(new).note(&seen, at, due);
            }
        }
        self.mark(at, took);
        Ok(())
    }

    /// Keeps how far the data had come at a look that began `at` this time and took so long.
    fn mark(&mut self, at: f64, took: f64) {
        if self.connections.len() <= MARKED_MAX {
            let seen = self.connections.values_mut().filter(|one| one.last_at >= at);
            seen.for_each(|one| one.mark(at + took / 2.0));
        }
    }

    /// The thread that moves the data of the connections with most data.
    fn mover<'a>(&self, threads: &[&'a Thread]) -> Option<&'a Thread> {
        let most = self.connections.values().max_by_key(|one| one.bytes());
        witness::mover(most.as_slice(), threads)
    }

    /// The pipes of processes that were there for most of the looks: not of the shells that start a program.
    fn lasting(&self) -> BTreeMap<u32, pipes::Ends> {
        let mut looks: BTreeMap<u32, u32> = BTreeMap::new();
        for thread in self.threads.values() {
            let most = looks.entry(thread.last.pid).or_default();
            *most = thread.all.max(*most);
        }
        let lasts = |pid: &u32| looks.get(pid).is_some_and(|&seen| 2 * seen >= self.looks);
        let all = self.pipes.iter().filter(|(pid, _)| lasts(pid));
        all.map(|(pid, ends)| (*pid, ends.clone())).collect()
    }

    fn so_far(&mut self, elapsed: f64, status: Option<ExitStatus>, cost: f64) -> Observation {
        self.read_processes();
        self.surroundings();
        let around = self.around(elapsed);
        let all: Vec<&Connection> = self.connections.values().collect();
        let threads: Vec<&Thread> = self.threads.values().collect();
        let witnesses = witness::of(&all, &threads, elapsed, &around);
        let owner = all.iter().max_by_key(|one| one.bytes()).map(|one| one.pid);
        let mut connections: Vec<Observed> = all.iter().map(|one| one.observed()).collect();
        connections.sort_by_key(|c| std::cmp::Reverse(c.sent + c.received));
        connections.truncate(CONNECTIONS_MAX);
        connections.iter_mut().skip(1).for_each(|one| one.marks.clear());
        Observation {
            elapsed,
            status: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            looks: self.looks,
            cost,
            processes: self.seen.len(),
            user: self.processes.values().map(|t| t.0).sum(),
            system: self.processes.values().map(|t| t.1).sum(),
            connections,
            witnesses,
            pipeline: pipes::chain(&self.lasting(), owner, &threads, elapsed),
            closed: closed::of(self.closings.values(), self.connections.values()),
            timeline: self.mover(&threads).map(|thread| thread.history.timeline()),
            reading: self.reading / f64::from(self.looks.max(1)),
        }
    }
}

/// Any bytes as the descriptors that a call waits for.
pub(crate) fn fuzz_descriptors(bytes: &[u8]) {
    polled::fuzz(bytes);
}
