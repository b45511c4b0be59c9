//! One driver's session with an agent.

use super::clock;
use super::message::{
    LINE_FIRST_MAX, LINE_MAX, Lines, Received, Reply, Request, SinkJob, SourceJob,
};
use super::message::{VERSION, send};
use super::report::{SinkReport, SourceReport};
use super::sink::Sink;
use super::source::Source;
use super::{DRAIN_MAX, FLOWS_MAX, RUN_MAX};
use crate::agent::{Agent, Slot};
use lastmeter_engine::Control;
use lastmeter_linux::token::same;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// Timeout for the first message.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Timeout between a driver's messages while nothing runs: longer than it waits for all other agents.
const IDLE_MAX: Duration = Duration::from_secs(45);
/// How often a running session checks for messages and reports progress.
const TICK: Duration = Duration::from_millis(250);
/// How far ahead the start may be, in nanoseconds.
const AHEAD_MAX: u64 = 60_000_000_000;

/// State shared by a session's threads.
#[derive(Debug, Default)]
pub(super) struct Shared {
    begun: AtomicBool,
    halted: AtomicBool,
    /// When sinks were told to finish; zero if not yet.
    finish: AtomicU64,
    drain: AtomicU64,
    /// Packets of each source.
    pub(super) sent: Vec<AtomicU64>,
    /// Packets of each sink.
    pub(super) received: Vec<AtomicU64>,
}

impl Shared {
    fn new() -> Shared {
        let zeros = || (0..FLOWS_MAX).map(|_| AtomicU64::new(0)).collect();
        Shared { sent: zeros(), received: zeros(), ..Shared::default() }
    }
    pub(super) fn begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
    /// Whether sources must end.
    pub(super) fn halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }
    /// When sinks were told to end, and after what silence they do.
    pub(super) fn finishing(&self) -> Option<(u64, u64)> {
        let since = self.finish.load(Ordering::Acquire);
        (since > 0).then(|| (since, self.drain.load(Ordering::Relaxed)))
    }
    fn halt(&self) {
        self.halted.store(true, Ordering::Relaxed);
    }
    fn finish(&self, drain: u64) {
        self.drain.store(drain, Ordering::Relaxed);
        self.finish.store(clock::now().max(1), Ordering::Release);
    }
}

/// Ends a session's threads, however the session ends: its scope joins them.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.halt();
        if self.0.finishing().is_none() {
            self.0.finish(0);
        }
    }
}

/// Serves drivers until `control` says stop; `tell` gets a line on each of them.
///
/// # Errors
/// When the agent can no longer wait for drivers.
pub fn serve(
    agent: &Agent,
    control: &Control,
    tell: &(dyn Fn(&str) + Sync),
) -> lastmeter_linux::Result<()> {
    agent.serve_each(control, tell, &|stream, token, slot| serve_one(stream, token, slot, control))
}

/// Serves a driver until it is done or gone; returns a summary of the session.
///
/// # Errors
/// Why the session ended early; the driver has been told, if it still listens.
fn serve_one(
    stream: TcpStream,
    token: Option<&str>,
    slot: &Slot<'_>,
    control: &Control,
) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    stream.set_nodelay(true).map_err(text)?;
    let mut lines = Lines::new(stream.try_clone().map_err(text)?, LINE_FIRST_MAX);
    let local = local(&stream).map_err(text)?;
    let mut stream = stream;
    let shared = Shared::new();
    let ended = std::thread::scope(|scope| {
        let _end = End(&shared);
        hello(&mut lines, &mut stream, token)?;
        lines.limit = LINE_MAX;
        let session = Session {
            stream: &mut stream,
            lines: &mut lines,
            shared: &shared,
            control,
            slot,
            local,
            open: token.is_none(),
        };
        session.run(scope)
    });
    if let Err(why) = &ended {
        let _ = send(&mut stream, &Reply::Refused { why: why.clone() });
    }
    ended
}

fn hello(lines: &mut Lines, stream: &mut TcpStream, wanted: Option<&str>) -> Result<(), String> {
    match lines.next(HELLO_MAX)? {
        Received::Message(Request::Hello { version, token }) => {
            if let Some(wanted) = wanted
                && !token.is_some_and(|token| same(wanted, &token))
            {
                return Err("wrong token".to_owned());
            }
            if version != VERSION {
                return Err(format!("this agent speaks version {VERSION}, not {version}"));
            }
        }
        Received::Message(_) => return Err("hello comes first".to_owned()),
        Received::Nothing => return Err("no message".to_owned()),
        Received::Closed => return Err("the driver left".to_owned()),
    }
    send(stream, &Reply::Hello { version: VERSION, clock: clock::identity(), now: clock::now() })
}

struct Session<'a, 's> {
    stream: &'a mut TcpStream,
    lines: &'a mut Lines,
    shared: &'s Shared,
    control: &'a Control,
    slot: &'a Slot<'a>,
    /// Where the driver has reached this agent.
    local: SocketAddr,
    /// Whether no token is required.
    open: bool,
}

/// The address of this end, without its port.
fn local(stream: &TcpStream) -> std::io::Result<SocketAddr> {
    let mut at = stream.local_addr()?;
    if let IpAddr::V4(v4) = at.ip().to_canonical() {
        at.set_ip(v4.into());
    }
    at.set_port(0);
    Ok(at)
}

type Counting<'scope> = Vec<ScopedJoinHandle<'scope, SinkReport>>;
type Sending<'scope> = Vec<ScopedJoinHandle<'scope, SourceReport>>;

impl<'s> Session<'_, 's> {
    fn run<'scope>(mut self, scope: &'scope Scope<'scope, '_>) -> Result<String, String>
    where
        's: 'scope,
    {
        let Request::Prepare { run, sinks } = self.ask()? else { return Err(turn("prepare")) };
        self.slot.take()?;
        let sinks = self.prepare(scope, run, sinks)?;
        let Request::Aim { sources } = self.ask()? else { return Err(turn("aim")) };
        let sources = self.aim(run, sources)?;
        let Request::Begin { at, after } = self.ask()? else { return Err(turn("begin")) };
        let now = clock::now();
        let begin = at.unwrap_or(now.saturating_add(after));
        if begin > now.saturating_add(AHEAD_MAX) {
            return Err("this start is too far ahead".to_owned());
        }
        let words = format!("{} flows from here, {} to here", sources.len(), sinks.len());
        let (flows_from, flows_to) = (sources.len(), sinks.len());
        self.shared.begun.store(true, Ordering::Relaxed);
        let shared = self.shared;
        let start = |(index, source): (usize, Source)| {
            scope.spawn(move || source.run(index, begin, shared))
        };
        let sources = sources.into_iter().enumerate().map(start).collect();
        let leaving = self.watch(sources, [flows_from, flows_to])?;
        let sinks = sinks.into_iter().map(|sink| sink.join().map_err(|_| panicked()));
        let sinks = sinks.collect::<Result<_, _>>()?;
        send(self.stream, &Reply::Received { sinks, leaving })?;
        Ok(words)
    }

    /// The driver's next request, while nothing runs.
    fn ask(&mut self) -> Result<Request, String> {
        let mut waited = Duration::ZERO;
        while waited < IDLE_MAX {
            if self.control.stopped() {
                return Err(STOPPED.to_owned());
            }
            match self.lines.next(TICK)? {
                Received::Message(ask) => return Ok(ask),
                Received::Closed => return Err("the driver left".to_owned()),
                Received::Nothing => waited += TICK,
            }
        }
        Err("the driver was silent for too long".to_owned())
    }

    fn prepare<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        run: u64,
        jobs: Vec<SinkJob>,
    ) -> Result<Counting<'scope>, String>
    where
        's: 'scope,
    {
        few(jobs.len())?;
        let (mut ports, mut sinks) = (Vec::new(), Vec::new());
        for (index, job) in jobs.into_iter().enumerate() {
            let (sink, port) = Sink::open(self.place(&job)?, job, run)?;
            let shared = self.shared;
            sinks.push(scope.spawn(move || sink.run(index, shared)));
            ports.push(port);
        }
        send(self.stream, &Reply::Prepared { ports })?;
        Ok(sinks)
    }

    /// Where a sink listens: where the driver reaches this agent, or at the address that it asks for. Without a
    /// token only this machine may send to it.
    fn place(&self, job: &SinkJob) -> Result<SocketAddr, String> {
        let at = job.at.map_or(self.local, |at| SocketAddr::new(at, 0));
        if at.is_ipv6() != job.ipv6 {
            return Err(format!("this agent is at {}, not of the flow's version of IP", at.ip()));
        }
        if at.ip().is_unspecified() || at.ip().is_multicast() {
            return Err(format!("{} is not the address of a host", at.ip()));
        }
        if self.open && !at.ip().is_loopback() {
            return Err(format!("an agent without a token has no sinks at {}", at.ip()));
        }
        Ok(at)
    }

    fn aim(&mut self, run: u64, jobs: Vec<SourceJob>) -> Result<Vec<Source>, String> {
        few(jobs.len())?;
        let aim = |job: SourceJob| match self.control.stopped() {
            true => Err(STOPPED.to_owned()),
            false => Source::aim(job, run),
        };
        let sources = jobs.into_iter().map(aim).collect::<Result<Vec<_>, _>>()?;
        send(self.stream, &Reply::Aimed {})?;
        Ok(sources)
    }

    /// While it runs: reports progress and does what the driver requests. Returns whether the agent was
    /// stopped.
    fn watch(
        &mut self,
        sources: Sending<'_>,
        [flows_from, flows_to]: [usize; 2],
    ) -> Result<bool, String> {
        let mut sources = Some(sources);
        let mut waited = Duration::ZERO;
        let longest = Duration::from_nanos(2 * RUN_MAX.as_ps() / 1000) + IDLE_MAX;
        while waited < longest {
            let leaving = self.control.stopped();
            if leaving {
                self.shared.halt();
            }
            let ended = |all: &Sending<'_>| all.iter().all(ScopedJoinHandle::is_finished);
            if sources.as_ref().is_some_and(|all| leaving || ended(all)) {
                let joined = sources.take().into_iter().flatten();
                let joined = joined.map(|source| source.join().map_err(|_| panicked()));
                let sources = joined.collect::<Result<Vec<_>, _>>()?;
                send(self.stream, &Reply::Sent { sources })?;
            }
            if leaving {
                self.shared.finish(0);
                return Ok(true);
            }
            match self.lines.next(TICK)? {
                Received::Message(Request::Stop {}) => self.shared.halt(),
                Received::Message(Request::Finish { drain }) if sources.is_none() => {
                    self.shared.finish(drain.min(DRAIN_MAX.as_ps() / 1000));
                    return Ok(false);
                }
                Received::Message(_) => return Err(turn("stop or finish")),
                Received::Closed => return Err("the driver left".to_owned()),
                Received::Nothing => {
                    waited += TICK;
                    let of = |counts: &[AtomicU64], many: usize| {
                        counts[..many].iter().map(|count| count.load(Ordering::Relaxed)).collect()
                    };
                    let sent = of(&self.shared.sent, flows_from);
                    let received = of(&self.shared.received, flows_to);
                    send(self.stream, &Reply::Progress { sent, received })?;
                }
            }
        }
        Err("the driver did not end the run".to_owned())
    }
}

const STOPPED: &str = "this agent was stopped";

fn few(flows: usize) -> Result<(), String> {
    match flows > FLOWS_MAX {
        true => Err(format!("{flows} flows; an agent takes at most {FLOWS_MAX}")),
        false => Ok(()),
    }
}

fn turn(wanted: &str) -> String {
    format!("expected {wanted}")
}

fn panicked() -> String {
    "a thread of this agent panicked".to_owned()
}
