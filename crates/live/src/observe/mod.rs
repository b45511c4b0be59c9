//! Another program: its TCP connections and its CPU time, observed from outside.
//!
//! The kernel's socket diagnostics report what limited each connection; procfs shows which sockets
//! belong to the command and its children, and their threads' CPU time. Nothing is attached, traced or
//! preloaded. It samples every 20 ms; where a sample takes long (a machine with many sockets), less
//! often, so that observing never takes more than a small share of one CPU.

mod diag;
mod processes;

use crate::error::{Doing, Result};
use crate::limit::{self, EndEvidence, Evidence, Limit, Limited};
use crate::tcp_info::TcpInfo;
use crate::transfer::meter::{SchedulerClock, now};
use diag::{Connection, Diagnostics};
use processes::ThreadTime;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// Seconds between samples.
const EVERY: f64 = 0.02;
/// The share of one CPU that sampling may take.
const COST_MAX: f64 = 0.005;
/// Samples between two searches for new processes and sockets, which cost more than a sample.
const SEARCH_EVERY: u32 = 8;
/// The most connections reported, those with most data first.
const CONNECTIONS_MAX: usize = 64;

/// Fractions of the time for which each cause limited the connection that moved most data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fractions {
    /// The sending application had nothing to send.
    pub sender_application: f64,
    /// The send buffer.
    pub send_buffer: f64,
    /// Congestion window, rate or delay of the network.
    pub network: f64,
    /// The receiver's window.
    pub receiver_window: f64,
    /// The receive queue had data while the receiving application slept.
    pub receiver_application: f64,
    /// The busiest thread was on a CPU or waited for one.
    pub cpu: f64,
}

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
    /// Fraction of samples with data in the receive queue.
    pub unread: f64,
    /// Fraction of samples with all data in flight and room in both windows.
    pub all_in_flight: f64,
    /// Mean smoothed round-trip time, seconds.
    pub rtt: f64,
    /// The first sample.
    pub first: TcpInfo,
    /// The last sample.
    pub last: TcpInfo,
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
    /// Fraction of the time that its busiest thread was on a CPU.
    pub run: f64,
    /// Fraction of the time that this thread waited for one.
    pub wait: f64,
    /// Connections, those with most data first.
    pub connections: Vec<Observed>,
    /// The limits, as fractions of time; they may overlap.
    pub fractions: Fractions,
    /// What limited the first connection, if there was one.
    pub limited: Option<Limited>,
}

/// One connection while it is followed.
struct Followed {
    local: String,
    remote: String,
    first_at: f64,
    last_at: f64,
    first: TcpInfo,
    last: TcpInfo,
    looks: u32,
    unread: u32,
    all_in_flight: u32,
    rtt: f64,
}

/// Everything known so far.
#[derive(Default)]
struct Follower {
    inodes: BTreeSet<u32>,
    pids: Vec<u32>,
    seen: BTreeSet<u32>,
    connections: BTreeMap<(u32, String, String), Followed>,
    threads: BTreeMap<u32, (ThreadTime, ThreadTime)>,
    processes: BTreeMap<u32, (f64, f64)>,
    looks: u32,
}

/// Starts `command` and follows it until it ends.
///
/// # Errors
/// When it cannot be started or the kernel refuses socket diagnostics.
pub fn run(command: &mut Command) -> Result<Observation> {
    let child = command.spawn().doing(|| format!("starting {:?}", command.get_program()))?;
    follow(child)
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
    let cores = crate::cores::allowed()?.len();
    Ok(format!("{model}, {cores} cores, Linux {}", crate::transfer::kernel()?))
}

/// Follows a child and its descendants until it ends.
///
/// # Errors
/// When the kernel refuses socket diagnostics.
pub fn follow(mut child: Child) -> Result<Observation> {
    let mut diagnostics = Diagnostics::open()?;
    let clock = SchedulerClock::of_this_thread()?;
    let mut follower = Follower::default();
    let (from, (run_from, _)) = (now(), clock.read()?);
    let status = loop {
        let (before, _) = clock.read()?;
        follower.look(child.id(), &mut diagnostics)?;
        let took = clock.read()?.0 - before;
        let pause = EVERY.max(took / COST_MAX);
        if let Some(status) = wait(&mut child, pause)? {
            break status;
        }
    };
    let elapsed = now() - from;
    let cost = (clock.read()?.0 - run_from) / elapsed;
    Ok(follower.finish(elapsed, status, cost))
}

/// Sleeps for `seconds` or until the child ends.
fn wait(child: &mut Child, seconds: f64) -> Result<Option<ExitStatus>> {
    let what = "waiting for the command";
    std::thread::sleep(Duration::from_secs_f64(seconds));
    child.try_wait().doing(what)
}

impl Follower {
    fn look(&mut self, root: u32, diagnostics: &mut Diagnostics) -> Result<()> {
        // A program opens its sockets early; the first samples search each time.
        if self.looks < 3 || self.looks.is_multiple_of(SEARCH_EVERY) {
            self.pids = processes::tree(root);
            self.inodes.clear();
            for pid in &self.pids {
                processes::sockets(*pid, &mut self.inodes);
                if let Some(times) = processes::user_system(*pid) {
                    self.processes.insert(*pid, times);
                }
            }
            self.seen.extend(&self.pids);
        }
        let mut times = BTreeMap::new();
        for pid in &self.pids {
            processes::threads(*pid, &mut times);
        }
        for (tid, time) in times {
            // A thread's time before its first sample is a few milliseconds at most, except for
            // the root, which was started by us.
            self.threads.entry(tid).or_insert((time, time)).1 = time;
        }
        self.looks += 1;
        let at = now();
        let (inodes, connections) = (&self.inodes, &mut self.connections);
        diagnostics.look(|connection| {
            if inodes.contains(&connection.inode) {
                note(connections, at, &connection);
            }
        })
    }

    fn finish(self, elapsed: f64, status: ExitStatus, cost: f64) -> Observation {
        let mut connections: Vec<Observed> =
            self.connections.into_values().map(Followed::finish).collect();
        connections.sort_by_key(|c| std::cmp::Reverse(c.sent + c.received));
        connections.truncate(CONNECTIONS_MAX);
        let busiest = self
            .threads
            .values()
            .map(|(first, last)| (last.run - first.run, last.wait - first.wait))
            .max_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)))
            .unwrap_or_default();
        // Its share is of the time in which data moved, without start-up and name lookups.
        let span = connections.first().map_or(elapsed, |c| c.seen.max(EVERY)).min(elapsed);
        let (run, wait) = ((busiest.0 / span).min(1.0), (busiest.1 / span).min(1.0));
        let user: f64 = self.processes.values().map(|t| t.0).sum();
        let system: f64 = self.processes.values().map(|t| t.1).sum();
        let judged = connections.first().map(|c| judge(c, run, wait, user / (user + system)));
        let (fractions, limited) =
            judged.map_or((Fractions::default(), None), |(f, v)| (f, Some(v)));
        Observation {
            elapsed,
            status: status.code(),
            signal: status.signal(),
            looks: self.looks,
            cost,
            processes: self.seen.len(),
            user,
            system,
            run,
            wait,
            connections,
            fractions,
            limited,
        }
    }
}

fn note(
    connections: &mut BTreeMap<(u32, String, String), Followed>,
    at: f64,
    connection: &Connection,
) {
    let (local, remote) = (connection.local.to_string(), connection.remote.to_string());
    let key = (connection.inode, local.clone(), remote.clone());
    let followed = connections.entry(key).or_insert_with(|| Followed {
        local,
        remote,
        first_at: at,
        last_at: at,
        first: connection.tcp,
        last: connection.tcp,
        looks: 0,
        unread: 0,
        all_in_flight: 0,
        rtt: 0.0,
    });
    followed.last_at = at;
    followed.last = connection.tcp;
    followed.looks += 1;
    followed.unread += u32::from(connection.receive_queue > 0);
    followed.all_in_flight += u32::from(connection.tcp.all_in_flight());
    followed.rtt += connection.tcp.rtt;
}

impl Followed {
    fn finish(self) -> Observed {
        let looks = f64::from(self.looks.max(1));
        Observed {
            local: self.local,
            remote: self.remote,
            seen: self.last_at - self.first_at,
            sent: self.last.bytes_acked,
            received: self.last.bytes_received,
            unread: f64::from(self.unread) / looks,
            all_in_flight: f64::from(self.all_in_flight) / looks,
            rtt: self.rtt / looks,
            first: self.first,
            last: self.last,
        }
    }
}

/// Fractions and limit of the connection that moved most data. `user` is the share of the
/// program's CPU time in user mode.
fn judge(c: &Observed, run: f64, wait: f64, user: f64) -> (Fractions, Limited) {
    let time = c.seen.max(EVERY);
    let grown =
        |what: fn(&TcpInfo) -> f64| ((what(&c.last) - what(&c.first)) / time).clamp(0.0, 1.0);
    let asleep = (1.0 - run - wait).max(0.0);
    let computing = if user.is_finite() && user > 0.5 { run * user } else { 0.0 };
    let sends = c.last.bytes_acked - c.first.bytes_acked.min(c.last.bytes_acked)
        >= c.last.bytes_received - c.first.bytes_received.min(c.last.bytes_received);
    if !sends {
        // Data left unread while the program sleeps is the program's own fault.
        let away = c.unread.min(asleep);
        let end = EndEvidence {
            run,
            wait,
            application: away + computing,
            blocked: (asleep - away).max(0.0),
        };
        let fractions = Fractions {
            receiver_application: away,
            cpu: (run + wait).min(1.0),
            ..Fractions::default()
        };
        return (fractions, judge_receiver(c, end));
    }
    let busy = grown(|t| t.busy);
    let (window, buffer) = (grown(|t| t.receiver_window_limited), grown(|t| t.send_buffer_limited));
    let idle = (1.0 - busy).min(asleep);
    let end = EndEvidence { run, wait, application: idle + computing, blocked: asleep - idle };
    let buffer = buffer.max(c.all_in_flight.min(end.blocked - window).max(0.0));
    let fractions = Fractions {
        sender_application: idle + computing,
        send_buffer: buffer,
        network: (busy - window - buffer).min(end.blocked - window - buffer).max(0.0),
        receiver_window: window,
        receiver_application: 0.0,
        cpu: (run + wait).min(1.0),
    };
    (fractions, limit::judge(&evidence(c, Some(end), None, busy, window, buffer)))
}

fn evidence(
    c: &Observed,
    sender: Option<EndEvidence>,
    receiver: Option<EndEvidence>,
    busy: f64,
    receiver_window: f64,
    send_buffer: f64,
) -> Evidence {
    let grown =
        |what: fn(&TcpInfo) -> u32| f64::from(what(&c.last) - what(&c.first).min(what(&c.last)));
    Evidence {
        sender,
        receiver,
        same_core: false,
        request_response: false,
        busy,
        receiver_window,
        send_buffer,
        all_in_flight: 0.0,
        rtt: c.rtt,
        rtt_min: c.last.rtt_min,
        repeated: grown(|t| t.retransmits) / grown(|t| t.data_segments_out).max(1.0),
        rate: c.sent.max(c.received) as f64 * 8.0 / c.seen.max(EVERY),
        foreign: 0.0,
    }
}

/// A receiver that waits for data cannot distinguish the sender from the network.
fn judge_receiver(c: &Observed, end: EndEvidence) -> Limited {
    let limited = limit::judge(&evidence(c, None, Some(end), 0.0, 0.0, 0.0));
    if end.blocked < 0.5 {
        return limited;
    }
    let words = format!(
        "The program waited for data {:.0} % of the time: the sender or the network limits; only \
         the sender's side can tell which.",
        end.blocked * 100.0
    );
    let runner_up = Some((limited.by, limited.fraction));
    Limited { by: Limit::Undecided, fraction: end.blocked, lead: 0.0, runner_up, words }
}
