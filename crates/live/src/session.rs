//! A live run except for its graph: hosts, ports, programs, the clock, and the measurements.
//!
//! ```text
//! open --> element for each host --> start (programs) --> clock --> (the graph runs) --> finish
//! ```

use crate::flood::{Flood, Flooded};
use crate::namespace::Isolation;
use crate::site::{self, HostOptions, Kind, Site};
use lastmeter_base::{Duration, NodeId, Time};
use lastmeter_engine::{Control, Distribution};
use lastmeter_linux::clock::{Epoch, WaitOptions, WallClock};
use lastmeter_linux::link;
use lastmeter_linux::port::{
    Arrivals, Arrived, Classes, Counts, Departure, Hosts, Line, Peer, Port,
};
use lastmeter_linux::port::{PortElement, Shared};
use lastmeter_linux::sys;
use lastmeter_linux::{Doing, Result};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A host of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A network namespace of its own.
    Made(HostOptions),
    /// An interface of this namespace that the user named.
    Attached {
        /// The host's name.
        name: String,
        /// The interface.
        interface: String,
    },
}

impl End {
    /// The host's name.
    pub fn name(&self) -> &str {
        match self {
            End::Made(options) => &options.name,
            End::Attached { name, .. } => name,
        }
    }
}

/// A program that runs in a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The host, by its index in the list; an attached one is this machine itself.
    pub host: usize,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Whether the run ends with it. Others end with the run.
    pub leads: bool,
    /// Whether its output is discarded.
    pub silent: bool,
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The hosts, in the order in which the graph knows them.
    pub ends: Vec<End>,
    /// The kind of port of created hosts.
    pub kind: Kind,
    /// How the clock waits.
    pub wait: WaitOptions,
    /// The programs in the hosts.
    pub programs: Vec<Program>,
    /// Whether arrivals and departures are kept for a twin run.
    pub keep: bool,
    /// Frames generated for the run, and the host that sends them.
    pub flood: Option<(usize, Flood)>,
}

/// A run that is set up.
pub struct Session {
    options: Options,
    site: Option<Site>,
    /// For each end, its host in the site.
    made: Vec<Option<usize>>,
    lines: Vec<Shared>,
    hosts: Arc<Mutex<Hosts>>,
    arrivals: Vec<Option<Arrivals>>,
    leader: Option<Child>,
    others: Vec<Child>,
    usage: Option<sys::ThreadUsage>,
    steered: bool,
    begun: Epoch,
}

/// The statistics of one port.
#[derive(Clone, Debug)]
pub struct LineReport {
    /// The host's name.
    pub name: String,
    /// Counts of its frames.
    pub counts: Counts,
    /// Their lateness.
    pub lag: Distribution,
    /// Whether it, or its interface, was gone at the end.
    pub gone: bool,
}

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Each port.
    pub lines: Vec<LineReport>,
    /// Lateness of frames, over all ports.
    pub lag: Distribution,
    /// Lateness with which deadlines of the graph were noticed.
    pub deadlines: Distribution,
    /// Frames lost because the emulator did not receive or send them in time.
    pub overruns: u64,
    /// Seconds that the run took.
    pub elapsed: f64,
    /// Of these, spent receiving frames from the kernel.
    pub receiving: f64,
    /// Spent sending frames to the kernel.
    pub sending: f64,
    /// Spent waiting, asleep or spinning.
    pub waiting: f64,
    /// Seconds of CPU time that the emulator's thread used.
    pub cpu: f64,
    /// The lag that ended a strict run, and when.
    pub violation: Option<(Time, Duration)>,
    /// Whether other cores than the emulator's processed what the hosts received.
    pub steered: bool,
    /// How the hosts were isolated; `None` where all are attached.
    pub isolation: Option<Isolation>,
    /// The leading program's exit status, 128 and the signal's number if a signal ended it; `None` if there
    /// was none, or if the run ended before it.
    pub status: Option<i32>,
    /// Whether there was a leading program.
    pub led: bool,
    /// The hosts whose helper process ended before the run did.
    pub lost: Vec<String>,
    /// What was generated for the run, and the frames received by each created host's interface.
    pub flooded: Option<Flooded>,
    /// See `flooded`; the kernel's own counts.
    pub received: Vec<u64>,
    /// The arrivals at each port, if kept.
    pub arrivals: Vec<Vec<Arrived>>,
    /// The departures from each port, if kept.
    pub departures: Vec<Vec<Departure>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Makes hosts and ports.
    ///
    /// # Errors
    /// When privileges or interfaces are missing.
    pub fn open(options: Options) -> Result<Session> {
        let begun = Epoch::start();
        let mut made_hosts = Vec::new();
        let mut made = Vec::new();
        for end in &options.ends {
            made.push(match end {
                End::Made(host) => {
                    made_hosts.push(host.clone());
                    Some(made_hosts.len() - 1)
                }
                End::Attached { .. } => None,
            });
        }
        let (site, ports) = match made_hosts.as_slice() {
            [] => (None, Vec::new()),
            hosts => {
                let (site, ports) = Site::open(hosts, options.kind)?;
                (Some(site), ports)
            }
        };
        let mut ports = ports.into_iter();
        let mut lines = Vec::new();
        for end in &options.ends {
            let port: Box<dyn Port> = match end {
                End::Made(_) => ports.next().expect("each host that is made has a port"),
                End::Attached { interface, .. } => site::attach(interface, options.kind)?,
            };
            let mut line = Line::new(end.name().to_owned(), port, begun);
            line.departures = options.keep.then(Vec::new);
            lines.push(Arc::new(Mutex::new(line)));
        }
        let arrivals = options.ends.iter().map(|_| options.keep.then(Arrivals::default)).collect();
        Ok(Session {
            options,
            site,
            made,
            lines,
            hosts: Arc::default(),
            arrivals,
            leader: None,
            others: Vec::new(),
            usage: None,
            steered: false,
            begun,
        })
    }

    /// The element of a host, whose packets have these classes.
    pub fn element(
        &self,
        end: usize,
        me: NodeId,
        peers: Vec<Peer>,
        classes: Classes,
    ) -> PortElement {
        let (line, hosts) = (Arc::clone(&self.lines[end]), Arc::clone(&self.hosts));
        PortElement::new(line, me, peers, hosts, classes, self.arrivals[end].clone())
    }

    /// Starts the programs, in order, and the clock of the run, which ends with the leading one.
    ///
    /// # Errors
    /// When a program cannot be started, or the thread cannot be pinned to its core.
    pub fn start(&mut self, control: Arc<Control>) -> Result<WallClock> {
        // If the emulator has a core of its own, the others process what hosts receive.
        let others = self.options.wait.others()?;
        if let (Some(core), Some(site)) = (self.options.wait.core, &mut self.site)
            && !others.contains(&core)
        {
            self.steered = site.steer(&others);
        }
        for program in self.options.programs.clone() {
            let child = self.spawn(&program)?;
            match program.leads {
                true => self.leader = Some(child),
                false => self.others.push(child),
            }
        }
        if let (Some((end, flood)), Some(site)) = (self.options.flood.clone(), &mut self.site)
            && let Some(host) = self.made[end]
        {
            site.flood(host, flood)?;
        }
        let bell = self.leader.as_ref().map(bell).transpose()?;
        self.usage = Some(sys::thread_usage().doing("reading the CPU time used")?);
        let epoch = Epoch::stretched(self.options.wait.slower);
        self.begun = epoch;
        self.lines.iter().for_each(|line| locked(line).begin(epoch));
        WallClock::new(epoch, self.options.wait, self.lines.clone(), control, bell)
    }

    fn spawn(&mut self, program: &Program) -> Result<Child> {
        let mut command = Command::new(&program.words[0]);
        command.args(&program.words[1..]);
        if !program.leads {
            command.stdin(Stdio::null());
        }
        if program.silent {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let cores = self.options.wait.others()?;
        match (self.made[program.host], &mut self.site) {
            (Some(host), Some(site)) => site.spawn(host, command, !program.leads, &cores),
            _ => {
                let name = program.words[0].clone();
                command.spawn().doing(|| format!("starting `{name}`"))
            }
        }
    }

    /// Ends programs and hosts, and returns the measurements.
    pub fn finish(mut self, clock: &WallClock) -> Measured {
        let elapsed = self.begun.since(Time::START).as_secs_f64();
        let used = sys::thread_usage().ok().zip(self.usage);
        let cpu = used.map_or(0.0, |(now, then)| now.user + now.system - then.user - then.system);
        let led = self.leader.is_some();
        let lost = self.site.as_mut().map_or_else(Vec::new, Site::lost);
        let status = self.leader.take().and_then(|mut leader| {
            // It has ended, unless the run was stopped before.
            let ended = leader.try_wait().ok().flatten();
            if ended.is_none() {
                let _ = leader.kill();
                let _ = leader.wait();
            }
            ended.and_then(status_of)
        });
        // The sending helper replies to nothing else until it has sent all.
        let mut flooded = None;
        let mut received = Vec::new();
        if let (Some((end, _)), Some(site)) = (&self.options.flood, &mut self.site) {
            flooded = self.made[*end].and_then(|host| site.flooded(host).ok());
            let made = self.made.iter().flatten();
            received = made.map(|&host| site.received(host).unwrap_or(0)).collect();
        }
        let mut lag = Distribution::default();
        let (mut overruns, mut receiving, mut sending) = (0, 0.0, 0.0);
        let mut lines = Vec::new();
        for (index, shared) in self.lines.iter().enumerate() {
            let mut line = locked(shared);
            if let (Some(host), Some(site)) = (self.made[index], &mut self.site)
                && matches!(self.options.kind, Kind::Tap(_))
            {
                line.counts.overrun += site.dropped(host).unwrap_or(0);
            }
            overruns += line.overruns();
            receiving += line.receiving.as_secs_f64();
            sending += line.sending.as_secs_f64();
            lag.merge(&line.lag);
            let missing = match (&self.options.ends[index], self.made[index], &mut self.site) {
                (End::Attached { interface, .. }, ..) => link::index_of(interface).is_err(),
                (_, Some(host), Some(site)) => site.received(host).is_err(),
                _ => false,
            };
            let (name, counts, gone) = (line.name.clone(), line.counts, line.gone() || missing);
            lines.push(LineReport { name, counts, lag: line.lag.clone(), gone });
        }
        let departures =
            self.lines.iter().map(|l| locked(l).departures.take().unwrap_or_default()).collect();
        let taken = |kept: &Option<Arrivals>| match kept {
            Some(kept) => std::mem::take(&mut *locked(kept)),
            None => Vec::new(),
        };
        Measured {
            lines,
            lag,
            deadlines: clock.lag.clone(),
            overruns,
            elapsed,
            receiving,
            sending,
            waiting: clock.waited.as_secs_f64(),
            cpu,
            violation: clock.violation,
            steered: self.steered,
            isolation: self.site.as_ref().map(Site::isolation),
            status,
            led,
            lost,
            flooded,
            received,
            arrivals: self.arrivals.iter().map(taken).collect(),
            departures,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leader.iter_mut().chain(&mut self.others).for_each(end);
    }
}

/// A program's exit status, as a shell reports it: 128 and the signal's number for one that a signal ended.
fn status_of(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal))
}

/// Ends a program, and its process group if it leads one.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// A descriptor that becomes readable when a program ends.
fn bell(child: &Child) -> Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.expect("a process id is a positive number");
    pidfd_open(pid, PidfdFlags::empty()).doing("watching the program")
}
