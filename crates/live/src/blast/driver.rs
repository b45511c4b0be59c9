//! The driver: tells agents what a plan asks of them, lets them begin together, and collects.
//!
//! Agents on this machine begin at one instant of the clock that all of them read; others so long
//! after they were told that half a round trip is made up for. An agent that is gone in the middle
//! ends nothing: what the others say is reported, and of it what it said last.

use super::agent::Agent;
use super::clock;
use super::message::{Answer, Ask, Heard, LINE_MAX, Lines, SinkJob, SourceJob, VERSION};
use super::message::{send, shown};
use super::plan::{At, Flow, Host, Plan};
use super::report::{FlowOutcome, Outcome};
use crate::error::{Error, Result};
use crate::token;
use lastmeter_engine::Control;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The shape of what a run gives.
pub const SCHEMA: &str = "lastmeter.blast/1";

/// How long connecting to an agent may take.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long an agent may take to answer before the run.
const SETUP_MAX: Duration = Duration::from_secs(10);
/// How long a sink is looked for, and all of an agent's sinks one after the other.
const AIM_MAX: Duration = Duration::from_secs(30);
/// How long a message may take to be taken off.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// An agent that is not heard of for so long while it runs is given up.
const QUIET_MAX: Duration = Duration::from_secs(6);
/// Between telling the agents and the beginning: all must have heard by then.
const LEAD: Duration = Duration::from_millis(200);
/// How much longer than planned a run may take.
const SLACK: Duration = Duration::from_secs(10);
/// How often the driver looks whether it shall stop.
const TICK: Duration = Duration::from_millis(50);

/// An agent as the driver sees it.
struct Peer {
    host: String,
    stream: TcpStream,
    lines: Lines,
    clock: String,
    rtt: Duration,
    /// Packets of its sources and its sinks, as it said last.
    progress: (Vec<u64>, Vec<u64>),
    gone: bool,
}

/// What was heard while agents run.
enum Event {
    Said(usize, Answer),
    Gone(usize, String),
}

/// Carries out a plan. `tell` hears what share of the time is over; `control` ends the run early.
///
/// # Errors
/// The plan asks for what cannot be, or an agent cannot be reached, refuses, or does not reach
/// another before the run has begun.
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
            scope.spawn(move || agent.serve(leave, &|_| ()));
        }
        let connect = |host: &Host| Peer::connect(host, ours.as_ref());
        let peers = plan.hosts.iter().map(connect).collect::<Result<Vec<_>>>()?;
        let mut driver = Driver { plan, peers, control, outcome: outcome(plan) };
        driver.set_up()?;
        let _hang_up = HangUp(hung(&driver.peers));
        let (say, events) = channel();
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

/// Ends all connections, however the run ends: whoever listens then sees the end.
struct HangUp(Vec<TcpStream>);

impl Drop for HangUp {
    fn drop(&mut self) {
        self.0.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn hung(peers: &[Peer]) -> Vec<TcpStream> {
    peers.iter().filter_map(|peer| peer.stream.try_clone().ok()).collect()
}

/// Passes on what an agent says until it is gone.
fn listen(index: usize, mut lines: Lines, say: &Sender<Event>) {
    loop {
        let event = match lines.next(QUIET_MAX) {
            Ok(Heard::Message(answer)) => Event::Said(index, answer),
            Ok(Heard::Nothing) => Event::Gone(index, format!("nothing heard for {QUIET_MAX:?}")),
            Ok(Heard::Closed) => Event::Gone(index, "it closed the connection".to_owned()),
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
            stream.set_write_timeout(Some(WRITE_MAX))?;
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
        peer.ask(&Ask::Hello { version: VERSION, token: secret })?;
        match peer.answer(SETUP_MAX)? {
            Answer::Hello { version: VERSION, clock, .. } => peer.clock = clock,
            Answer::Hello { version, .. } => {
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

    fn instead(&self, answer: &Answer) -> Error {
        match answer {
            Answer::Refused { why } => self.fault(&shown(why)),
            _ => self.fault(&"it answers out of turn"),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<()> {
        send(&mut self.stream, ask).map_err(|error| self.fault(&error))
    }

    fn answer(&mut self, within: Duration) -> Result<Answer> {
        match self.lines.next(within) {
            Ok(Heard::Message(answer)) => Ok(answer),
            Ok(Heard::Nothing) => Err(self.fault(&format!("no answer within {within:?}"))),
            Ok(Heard::Closed) => Err(self.fault(&"it closed the connection")),
            Err(why) => Err(self.fault(&why)),
        }
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

    /// Opens all sinks, aims all sources at them, and lets them begin.
    fn set_up(&mut self) -> Result<()> {
        // So that the number is exact for whoever reads JSON with floating point.
        const DIGITS: usize = 13;
        let run = u64::from_str_radix(&token::random()?[..DIGITS], 16).unwrap_or(0);
        let hosts = 0..self.peers.len();
        for host in hosts.clone() {
            let job = |flow: usize| -> Result<SinkJob> {
                let Flow { from, traffic, .. } = &self.plan.flows[flow];
                let (_, size_max) = traffic.size.bounds().expect("checked traffic has a size");
                Ok(SinkJob {
                    flow: flow as u16,
                    format: traffic.format,
                    size_max,
                    ipv6: self.address(flow)?.is_ipv6(),
                    same_clock: self.peers[*from].clock == self.peers[host].clock,
                })
            };
            let sinks = self.to(host).into_iter().map(job).collect::<Result<_>>()?;
            self.peers[host].ask(&Ask::Prepare { run, sinks })?;
        }
        let mut targets = vec![None; self.plan.flows.len()];
        for host in hosts.clone() {
            let flows = self.to(host);
            match self.peers[host].answer(SETUP_MAX)? {
                Answer::Prepared { ports } if ports.len() == flows.len() => {
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
            self.peers[host].ask(&Ask::Aim { sources })?;
        }
        for host in hosts.clone() {
            match self.peers[host].answer(AIM_MAX)? {
                Answer::Aimed {} => {}
                other => return Err(self.peers[host].instead(&other)),
            }
        }
        let (begin, ours) = (clock::now() + LEAD.as_nanos() as u64, clock::identity());
        for peer in &mut self.peers {
            let at = (peer.clock == ours).then_some(begin);
            let after = begin.saturating_sub(clock::now() + peer.rtt.as_nanos() as u64 / 2);
            peer.ask(&Ask::Begin { at, after })?;
        }
        Ok(())
    }

    /// Where a flow's packets go: what the plan says, else where its host's agent is.
    fn address(&self, flow: usize) -> Result<IpAddr> {
        let Flow { from, to, .. } = &self.plan.flows[flow];
        let host = &self.plan.hosts[*to];
        // To reach this process, the other end takes the way by which it is reached itself.
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
        // Every agent says so once its sources have ended, those without any at once.
        let mut waiting: BTreeSet<usize> = (0..self.peers.len()).collect();
        let mut stopping = false;
        while !waiting.is_empty() && Instant::now() < until {
            self.hear(events, &mut waiting, |answer| matches!(answer, Answer::Sent { .. }));
            tell((began.elapsed().as_secs_f64() / lasts).min(1.0));
            if self.control.stopped() && !std::mem::replace(&mut stopping, true) {
                self.note("stopped before its end; what was sent until then is reported".into());
                self.tell_all(&Ask::Stop {});
                until = Instant::now() + SLACK;
            }
        }
        self.give_up(&waiting, "its sources did not end in time");
        let drain = self.plan.drain.as_ps() / 1000;
        self.tell_all(&Ask::Finish { drain });
        waiting = (0..self.peers.len()).filter(|&at| !self.peers[at].gone).collect();
        let until = Instant::now() + Duration::from_nanos(drain) + SLACK;
        while !waiting.is_empty() && Instant::now() < until {
            self.hear(events, &mut waiting, |answer| matches!(answer, Answer::Received { .. }));
        }
        self.give_up(&waiting, "its sinks did not end in time");
        Ok(())
    }

    /// Takes in one event; whoever said what was `wanted`, or is gone, is waited for no more.
    fn hear(
        &mut self,
        events: &Receiver<Event>,
        waiting: &mut BTreeSet<usize>,
        wanted: impl Fn(&Answer) -> bool,
    ) {
        match events.recv_timeout(TICK) {
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

    /// Enters what an agent says; of flows that are not its own nothing is believed.
    fn enter(&mut self, peer: usize, answer: Answer) {
        match answer {
            Answer::Progress { sent, received } => self.peers[peer].progress = (sent, received),
            Answer::Sent { sources } => {
                for source in sources {
                    let at = usize::from(source.flow);
                    if self.plan.flows.get(at).is_some_and(|flow| flow.from == peer) {
                        self.outcome.flows[at].source = Some(source);
                    }
                }
            }
            Answer::Received { sinks, leaving } => {
                for sink in sinks {
                    let at = usize::from(sink.flow);
                    if self.plan.flows.get(at).is_some_and(|flow| flow.to == peer) {
                        self.outcome.flows[at].sink = Some(sink);
                    }
                }
                // It has said all, and nobody waits for it any more.
                self.peers[peer].gone = true;
                if leaving {
                    let host = &self.peers[peer].host;
                    let words = format!("the agent of {host} was stopped before the end");
                    self.note(words);
                }
            }
            Answer::Refused { why } => self.lose(peer, &why),
            _ => self.lose(peer, "it answers out of turn"),
        }
    }

    fn note(&mut self, words: String) {
        self.outcome.complete = false;
        self.outcome.notes.push(words);
    }

    /// An agent is gone: what it said last is all that is known of its ends.
    fn lose(&mut self, peer: usize, why: &str) {
        if std::mem::replace(&mut self.peers[peer].gone, true) {
            return;
        }
        let host = self.peers[peer].host.clone();
        let last = "what it said last is all that is known of its ends";
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

    fn tell_all(&mut self, ask: &Ask) {
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
