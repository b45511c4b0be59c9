//! The driver: gives agents their part of a plan, starts them together, and collects their reports.
//!
//! Agents on this machine start at one instant of the clock they share; others after a delay that
//! compensates for half a round trip. Losing an agent during the run ends nothing: the others' reports
//! are complete, and its own ends with its last message.

use super::clock;
use super::message::{LINE_MAX, Lines, Received, Reply, Request, SinkJob, SourceJob, VERSION};
use super::message::{send, shown};
use super::plan::{At, Flow, Host, Plan};
use super::report::{FlowOutcome, Outcome};
use crate::agent::Agent;
use lastmeter_engine::Control;
use lastmeter_linux::token;
use lastmeter_linux::{Error, Result};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The schema of a run's result.
pub const SCHEMA: &str = "lastmeter.blast/1";

/// Timeout for connecting to an agent.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Timeout for an agent's reply before the run.
const SETUP_MAX: Duration = Duration::from_secs(10);
/// Timeouts for probing one sink, and all of an agent's sinks in sequence.
const AIM_MAX: Duration = Duration::from_secs(30);
/// An agent silent for this long during the run is given up.
const QUIET_MAX: Duration = Duration::from_secs(6);
/// From telling the agents to the start: all must have heard by then.
const LEAD: Duration = Duration::from_millis(200);
/// How much longer than planned a run may take.
const SLACK: Duration = Duration::from_secs(10);
/// The most messages that wait to be entered: an agent that says more waits, too.
const EVENTS_MAX: usize = 64;
/// How often the driver checks for a stop.
const TICK: Duration = Duration::from_millis(50);

/// The driver's view of an agent.
struct Peer {
    host: String,
    stream: TcpStream,
    lines: Lines,
    clock: String,
    rtt: Duration,
    /// Packets of its sources and its sinks, as last reported.
    progress: (Vec<u64>, Vec<u64>),
    gone: bool,
}

/// An event while agents run.
enum Event {
    Said(usize, Reply),
    Gone(usize, String),
}

/// Runs a plan. `tell` gets the share of the time that is over; `control` ends the run early.
///
/// # Errors
/// The plan is invalid, or an agent cannot be reached, refuses, or cannot reach another before the run
/// starts.
pub fn run(plan: &Plan, control: &Control, tell: &(dyn Fn(f64) + Sync)) -> Result<Outcome> {
    plan.check()?;
    let here = plan.hosts.iter().any(|host| host.at == At::Here);
    let (local, ours) = match here {
        true => {
            let secret = token::random()?;
            let agent = Agent::bind((Ipv4Addr::LOCALHOST, 0).into(), Some(secret.clone()))?;
            let at = agent.address()?;
            (Some(agent), Some((at, secret)))
        }
        false => (None, None),
    };
    let leave = Control::default();
    std::thread::scope(|scope| {
        let _leave = Leave(&leave);
        if let Some(agent) = &local {
            let leave = &leave;
            scope.spawn(move || super::serve(agent, leave, &|_| ()));
        }
        let connect = |host: &Host| Peer::connect(host, ours.as_ref());
        let peers = plan.hosts.iter().map(connect).collect::<Result<Vec<_>>>()?;
        let mut driver = Driver { plan, peers, control, outcome: outcome(plan) };
        driver.set_up()?;
        let _hang_up = HangUp(hung(&driver.peers));
        let (say, events) = sync_channel(EVENTS_MAX);
        for (index, peer) in driver.peers.iter_mut().enumerate() {
            let stream = peer.stream.try_clone().map_err(|error| peer.fault(&error))?;
            let lines = std::mem::replace(&mut peer.lines, Lines::new(stream, LINE_MAX));
            let say = say.clone();
            scope.spawn(move || listen(index, lines, &say));
        }
        drop(say);
        driver.carry_out(&events, tell)?;
        Ok(driver.finish())
    })
}

/// Ends the agent of this process, however the run ends.
struct Leave<'a>(&'a Control);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Closes all connections, however the run ends, so that the threads reading from them end.
struct HangUp(Vec<TcpStream>);

impl Drop for HangUp {
    fn drop(&mut self) {
        self.0.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn hung(peers: &[Peer]) -> Vec<TcpStream> {
    peers.iter().filter_map(|peer| peer.stream.try_clone().ok()).collect()
}

/// An agent's next message, or why there is none.
fn next(lines: &mut Lines, within: Duration) -> std::result::Result<Reply, String> {
    match lines.next(within)? {
        Received::Message(answer) => Ok(answer),
        Received::Nothing => Err(format!("no message within {within:?}")),
        Received::Closed => Err("it closed the connection".to_owned()),
    }
}

/// Passes on an agent's messages until it is gone.
fn listen(index: usize, mut lines: Lines, say: &SyncSender<Event>) {
    loop {
        let event = match next(&mut lines, QUIET_MAX) {
            Ok(answer) => Event::Said(index, answer),
            Err(why) => Event::Gone(index, why),
        };
        let last = matches!(event, Event::Gone(..));
        if say.send(event).is_err() || last {
            return;
        }
    }
}

impl Peer {
    fn connect(host: &Host, ours: Option<&(SocketAddr, String)>) -> Result<Peer> {
        let fault = |found: &dyn std::fmt::Display| Error::Agent {
            host: format!("`{}` ({})", host.name, host.at),
            found: found.to_string(),
        };
        let (addresses, secret) = match (&host.at, ours) {
            (At::Here, Some((at, secret))) => (vec![*at], Some(secret.clone())),
            (At::Here, None) => unreachable!("an agent of this process was started"),
            (At::Agent(at), _) => {
                let found = at.to_socket_addrs().map_err(|error| fault(&error))?;
                (found.collect(), host.token.clone())
            }
        };
        let mut tried = Err("the name has no address".to_owned());
        for address in addresses {
            tried = TcpStream::connect_timeout(&address, CONNECT_MAX)
                .map_err(|error| format!("{error}; is `lastmeter blast serve` running there?"));
            if tried.is_ok() {
                break;
            }
        }
        let stream = tried.map_err(|error| fault(&error))?;
        let ready = || {
            stream.set_nodelay(true)?;
            stream.try_clone()
        };
        let lines = Lines::new(ready().map_err(|error| fault(&error))?, LINE_MAX);
        let mut peer = Peer {
            host: format!("`{}` ({})", host.name, host.at),
            stream,
            lines,
            clock: String::new(),
            rtt: Duration::ZERO,
            progress: (Vec::new(), Vec::new()),
            gone: false,
        };
        let began = Instant::now();
        peer.ask(&Request::Hello { version: VERSION, token: secret })?;
        match peer.answer(SETUP_MAX)? {
            Reply::Hello { version: VERSION, clock, .. } => peer.clock = clock,
            Reply::Hello { version, .. } => {
                return Err(fault(&format!("it speaks version {version}, not {VERSION}")));
            }
            other => return Err(peer.instead(&other)),
        }
        peer.rtt = began.elapsed();
        Ok(peer)
    }

    fn fault(&self, found: &dyn std::fmt::Display) -> Error {
        Error::Agent { host: self.host.clone(), found: found.to_string() }
    }

    fn instead(&self, answer: &Reply) -> Error {
        match answer {
            Reply::Refused { why } => self.fault(&shown(why)),
            _ => self.fault(&"its reply is out of turn"),
        }
    }

    fn ask(&mut self, ask: &Request) -> Result<()> {
        send(&mut self.stream, ask).map_err(|error| self.fault(&error))
    }

    fn answer(&mut self, within: Duration) -> Result<Reply> {
        next(&mut self.lines, within).map_err(|why| self.fault(&why))
    }
}

struct Driver<'a> {
    plan: &'a Plan,
    peers: Vec<Peer>,
    control: &'a Control,
    outcome: Outcome,
}

fn outcome(plan: &Plan) -> Outcome {
    let name = |host: usize| plan.hosts[host].name.clone();
    let flow = |flow: &Flow| FlowOutcome {
        name: flow.name.clone(),
        from: name(flow.from),
        to: name(flow.to),
        format: flow.traffic.format.name(),
        sent: 0,
        received: 0,
        lost: None,
        source: None,
        sink: None,
    };
    Outcome {
        schema: SCHEMA,
        seed: plan.seed,
        kept_up: true,
        complete: true,
        notes: Vec::new(),
        flows: plan.flows.iter().map(flow).collect(),
    }
}

impl Driver<'_> {
    /// The flows from a host, or to it.
    fn flows(&self, host: usize, end: impl Fn(&Flow) -> usize) -> Vec<usize> {
        (0..self.plan.flows.len()).filter(|&at| end(&self.plan.flows[at]) == host).collect()
    }

    fn from(&self, host: usize) -> Vec<usize> {
        self.flows(host, |flow| flow.from)
    }

    fn to(&self, host: usize) -> Vec<usize> {
        self.flows(host, |flow| flow.to)
    }

    /// Opens all sinks, aims all sources at them, and starts them.
    fn set_up(&mut self) -> Result<()> {
        // So that the number is exact where JSON is read as floating point.
        const BITS: u32 = 52;
        let run = token::number()? >> (u64::BITS - BITS);
        let hosts = 0..self.peers.len();
        for host in hosts.clone() {
            let job = |flow: usize| -> Result<SinkJob> {
                let Flow { from, to, traffic, .. } = &self.plan.flows[flow];
                let to = &self.plan.hosts[*to];
                // An agent elsewhere knows best at which of its addresses it was reached.
                let at = match (to.data, &to.at) {
                    (Some(data), _) => Some(data),
                    (None, At::Here) => Some(self.address(flow)?),
                    (None, At::Agent(_)) => None,
                };
                let (_, size_max) = traffic.size.bounds().expect("checked traffic has a size");
                Ok(SinkJob {
                    flow: flow as u16,
                    format: traffic.format,
                    size_max,
                    ipv6: self.address(flow)?.is_ipv6(),
                    at,
                    same_clock: self.peers[*from].clock == self.peers[host].clock,
                })
            };
            let sinks = self.to(host).into_iter().map(job).collect::<Result<_>>()?;
            self.peers[host].ask(&Request::Prepare { run, sinks })?;
        }
        let mut targets = vec![None; self.plan.flows.len()];
        for host in hosts.clone() {
            let flows = self.to(host);
            match self.peers[host].answer(SETUP_MAX)? {
                Reply::Prepared { ports } if ports.len() == flows.len() => {
                    for (flow, port) in flows.into_iter().zip(ports) {
                        targets[flow] = Some(SocketAddr::new(self.address(flow)?, port));
                    }
                }
                other => return Err(self.peers[host].instead(&other)),
            }
        }
        for host in hosts.clone() {
            let job = |flow: usize| SourceJob {
                flow: flow as u16,
                name: self.plan.flows[flow].name.clone(),
                seed: self.plan.seed,
                to: targets[flow].expect("each flow has a sink"),
                traffic: self.plan.flows[flow].traffic.clone(),
            };
            let sources = self.from(host).into_iter().map(job).collect();
            self.peers[host].ask(&Request::Aim { sources })?;
        }
        for host in hosts.clone() {
            match self.peers[host].answer(AIM_MAX)? {
                Reply::Aimed {} => {}
                other => return Err(self.peers[host].instead(&other)),
            }
        }
        let (begin, ours) = (clock::now() + LEAD.as_nanos() as u64, clock::identity());
        for peer in &mut self.peers {
            let at = (peer.clock == ours).then_some(begin);
            let after = begin.saturating_sub(clock::now() + peer.rtt.as_nanos() as u64 / 2);
            peer.ask(&Request::Begin { at, after })?;
        }
        Ok(())
    }

    /// A flow's destination: as in the plan, else the address of its host's agent.
    fn address(&self, flow: usize) -> Result<IpAddr> {
        let Flow { from, to, .. } = &self.plan.flows[flow];
        let host = &self.plan.hosts[*to];
        // The other end reaches this process at the local address of the connection to it.
        let local = |peer: &Peer| peer.stream.local_addr();
        let address = match (&host.data, &host.at) {
            (Some(data), _) => return Ok(*data),
            (None, At::Here) => local(&self.peers[*from]),
            (None, At::Agent(_)) => self.peers[*to].stream.peer_addr(),
        };
        Ok(address.map_err(|error| self.peers[*to].fault(&error))?.ip())
    }

    /// Waits for the sources, then for the sinks.
    fn carry_out(&mut self, events: &Receiver<Event>, tell: &(dyn Fn(f64) + Sync)) -> Result<()> {
        let began = Instant::now();
        let ends = self.plan.flows.iter().map(|flow| flow.traffic.ends().as_secs_f64());
        let lasts = LEAD.as_secs_f64() + ends.fold(0.0, f64::max);
        let mut until = began + Duration::from_secs_f64(lasts) + SLACK;
        // Every agent reports when its sources have ended; those without any, at once.
        let mut waiting: BTreeSet<usize> = (0..self.peers.len()).collect();
        let mut stopping = false;
        while !waiting.is_empty() && Instant::now() < until {
            self.hear(events, &mut waiting, |answer| matches!(answer, Reply::Sent { .. }));
            tell((began.elapsed().as_secs_f64() / lasts).min(1.0));
            if self.control.stopped() && !std::mem::replace(&mut stopping, true) {
                self.note(
                    "stopped before its end; the figures cover what was sent until then".into(),
                );
                self.tell_all(&Request::Stop {});
                until = Instant::now() + SLACK;
            }
        }
        self.give_up(&waiting, "its sources did not end in time");
        let drain = self.plan.drain.as_ps() / 1000;
        self.tell_all(&Request::Finish { drain });
        waiting = (0..self.peers.len()).filter(|&at| !self.peers[at].gone).collect();
        let until = Instant::now() + Duration::from_nanos(drain) + SLACK;
        while !waiting.is_empty() && Instant::now() < until {
            self.hear(events, &mut waiting, |answer| matches!(answer, Reply::Received { .. }));
        }
        self.give_up(&waiting, "its sinks did not end in time");
        Ok(())
    }

    /// Handles one event; agents that sent what was `wanted`, or are gone, are no longer waited for.
    fn hear(
        &mut self,
        events: &Receiver<Event>,
        waiting: &mut BTreeSet<usize>,
        wanted: impl Fn(&Reply) -> bool,
    ) {
        match events.recv_timeout(TICK) {
            // Nobody waits for it any more, whatever else it says.
            Ok(Event::Said(peer, _)) if self.peers[peer].gone => {}
            Ok(Event::Said(peer, answer)) => {
                if wanted(&answer) {
                    waiting.remove(&peer);
                }
                self.enter(peer, answer);
            }
            Ok(Event::Gone(peer, why)) => self.lose(peer, &why),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
        }
        waiting.retain(|&peer| !self.peers[peer].gone);
    }

    /// Enters an agent's report; figures of flows that are not its own are ignored.
    fn enter(&mut self, peer: usize, answer: Reply) {
        match answer {
            Reply::Progress { sent, received } => self.peers[peer].progress = (sent, received),
            Reply::Sent { sources } => {
                for source in sources {
                    let at = usize::from(source.flow);
                    if self.plan.flows.get(at).is_some_and(|flow| flow.from == peer) {
                        self.outcome.flows[at].source = Some(source);
                    }
                }
            }
            Reply::Received { sinks, leaving } => {
                for sink in sinks {
                    let at = usize::from(sink.flow);
                    if self.plan.flows.get(at).is_some_and(|flow| flow.to == peer) {
                        self.outcome.flows[at].sink = Some(sink);
                    }
                }
                // It has reported everything, and nobody waits for it any more.
                self.peers[peer].gone = true;
                if leaving {
                    let host = &self.peers[peer].host;
                    let words = format!("the agent of {host} was stopped before the end");
                    self.note(words);
                }
            }
            Reply::Refused { why } => self.lose(peer, &why),
            _ => self.lose(peer, "its reply is out of turn"),
        }
    }

    fn note(&mut self, words: String) {
        self.outcome.complete = false;
        self.outcome.notes.push(words);
    }

    /// An agent is gone: its last report is all that is known of its ends.
    fn lose(&mut self, peer: usize, why: &str) {
        if std::mem::replace(&mut self.peers[peer].gone, true) {
            return;
        }
        let host = self.peers[peer].host.clone();
        let last = "its last report is all that is known of its ends";
        self.note(format!("the agent of {host} is gone: {}; {last}", shown(why)));
        let (sent, received) = self.peers[peer].progress.clone();
        for (flow, count) in self.from(peer).into_iter().zip(sent) {
            self.outcome.flows[flow].sent = count;
        }
        for (flow, count) in self.to(peer).into_iter().zip(received) {
            self.outcome.flows[flow].received = count;
        }
    }

    fn give_up(&mut self, waiting: &BTreeSet<usize>, why: &str) {
        waiting.iter().for_each(|&peer| self.lose(peer, why));
    }

    fn tell_all(&mut self, ask: &Request) {
        for peer in 0..self.peers.len() {
            if !self.peers[peer].gone
                && let Err(error) = self.peers[peer].ask(ask)
            {
                self.lose(peer, &error.to_string());
            }
        }
    }

    /// Closes the books.
    fn finish(mut self) -> Outcome {
        let outcome = &mut self.outcome;
        for flow in &mut outcome.flows {
            flow.close();
            let kept_up = flow.source.as_ref().is_some_and(|source| source.kept_up);
            outcome.kept_up &= kept_up;
            outcome.complete &= flow.source.is_some() && flow.sink.is_some();
            let error = flow.source.as_ref().and_then(|source| source.error.as_deref());
            if let Some(error) = error {
                outcome.notes.push(format!("{}: sending ended early: {}", flow.name, shown(error)));
                outcome.complete = false;
            }
        }
        self.outcome
    }
}
