//! What a host of a live run does: its part of a [`Plan`], with a thread for each program.
//!
//! ```text
//! program of a channel: create --> sleep until the next message --> send ...
//! program of best effort: sleep --> send ...        program at the end: receive, compare, is it in time? ...
//! ```

use crate::clock::Epoch;
use crate::host::{Channel, Host, Inbox, Settings};
use crate::network::Seen;
use crate::plan::{BEGINS, Plan, SLOTS, Source, content};
use lastmeter_base::{Duration, Time};
use lastmeter_engine::Distribution;
use lastmeter_linux::{Doing, Result, wrong};
use lastmeter_live::task::{Entry, Parent, Task};
use lastmeter_transport::channel::message::Node as NodeId;
use lastmeter_transport::channel::node::Drops;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Messages that a program may leave in its queue.
const INBOX: usize = 4096;
/// How often programs check whether they should end.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);
/// How long messages may still arrive after the last was sent.
const LAST: Duration = Duration::from_secs(2);

/// What one host has to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The network.
    pub plan: Plan,
    /// Which node it is.
    pub node: NodeId,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where its neighbours listen.
    pub neighbours: Vec<(NodeId, SocketAddr)>,
}

/// What the source of a flow did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Whether its channel was established; always for best effort.
    pub established: bool,
    /// Why not.
    pub refusal: String,
    /// Messages that the program made.
    pub made: u64,
    /// Of these, refused as excess.
    pub refused: u64,
    /// The latest one, in seconds after its time: how late its program was.
    pub late: f64,
}

/// What arrived of a flow. Delays, in seconds, count from the logical arrival at the source (for best effort, from when
/// it was sent) until the program has the message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Messages.
    pub messages: u64,
    /// Of these, after their deadline.
    pub missed: u64,
    /// Of these, not what was sent.
    pub damaged: u64,
    /// The median delay.
    pub median: f64,
    /// 99 of 100 are within this.
    pub p99: f64,
    /// The longest delay.
    pub worst: f64,
}

impl Received {
    /// Takes the figures of a distribution.
    pub(crate) fn delays(&mut self, delays: &Distribution) {
        self.median = delays.percentile(0.5).as_secs_f64();
        self.p99 = delays.percentile(0.99).as_secs_f64();
        self.worst = delays.max().as_secs_f64();
    }
}

/// What a host reports at the end, by the number of the flow.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// Flows that begin here.
    pub sent: BTreeMap<usize, Sent>,
    /// Flows that end here.
    pub received: BTreeMap<usize, Received>,
    /// What its socket has seen.
    pub seen: Seen,
    /// Packets lost: excess of its channels; best effort for want of room; of channels that broke their contract; of
    /// unknown channels; and messages for which a queue had no room.
    pub drops: [u64; 5],
    /// Datagrams that the kernel dropped on arrival for want of room.
    pub overruns: u64,
    /// CPU seconds of its process.
    pub cpu: f64,
}

/// What the program tells a host meanwhile.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Word {
    /// Traffic begins so long after this instant.
    Begin(Epoch),
    /// The run ends early.
    End,
}

/// Playing a part as a helper process: listens, says so, waits for the beginning, and reports at the end.
#[derive(Debug)]
pub struct Playing;

impl Task for Playing {
    const NAME: &'static str = "be a host of real-time channels";
    type Job = Job;
    type Word = Word;
    type Report = Part;

    fn run(job: &Job, parent: &mut Parent<'_>) -> Result<Part> {
        let probe =
            std::net::UdpSocket::bind(job.listen).doing(|| format!("taking {}", job.listen))?;
        parent.ready()?;
        let Word::Begin(epoch) = parent.hear::<Playing>()? else { return Ok(Part::default()) };
        drop(probe);
        // Anything that comes now means the end.
        run(job, epoch, &|| parent.speaks(LOOK))
    }
}

/// For the table of a program whose helpers may be hosts.
pub const TASK: Entry = Entry::of::<Playing>();

/// Plays a part until the end, or until told to stop; `stops` waits a little each time.
///
/// # Errors
/// The host cannot be started.
pub fn run(job: &Job, epoch: Epoch, stops: &dyn Fn() -> bool) -> Result<Part> {
    job.plan.check()?;
    let host = Host::start(settings(job, epoch)?)?;
    let flows = || job.plan.flows.iter().enumerate();
    let inboxes: Vec<(usize, Inbox)> = flows()
        .filter(|(_, flow)| flow.to == job.node)
        .filter_map(|(number, _)| Some((number, host.init(INBOX)?)))
        .collect();
    let end = Time::START + BEGINS + Duration::from_ps(job.plan.length) + LAST;
    let stop = &AtomicBool::new(false);
    let (host, plan) = (&host, &job.plan);
    let mut part = Part::default();
    std::thread::scope(|scope| {
        let receivers: Vec<_> = inboxes
            .iter()
            .map(|(flow, inbox)| {
                let len = plan.flows[*flow].message_len();
                (*flow, scope.spawn(move || receive(inbox, len, epoch, stop)))
            })
            .collect();
        // All hosts listen by now.
        epoch.sleep_until(Time::START);
        let mut senders = Vec::new();
        for (flow, _) in flows().filter(|(_, flow)| flow.from == job.node) {
            let opened = open(host, plan, flow);
            senders
                .push((flow, scope.spawn(move || send(host, (plan, flow), opened, epoch, stop))));
        }
        while epoch.now() < end && !stops() {}
        stop.store(true, Ordering::Relaxed);
        let (mut channels, mut sent) = (Vec::new(), BTreeMap::new());
        for (flow, sender) in senders {
            if let Ok((channel, done)) = sender.join() {
                channels.push(channel);
                sent.insert(flow, done);
            }
        }
        let join = |(flow, thread): (usize, std::thread::ScopedJoinHandle<'_, Received>)| {
            Some((flow, thread.join().ok()?))
        };
        part.received = receivers.into_iter().filter_map(join).collect();
        part.sent = sent;
        drop(channels);
    });
    let Drops { excess, data, broken, unknown, queue } = host.drops();
    part.drops = [excess, data, broken, unknown, queue];
    part.seen = host.seen();
    part.overruns = overruns(job.listen.port());
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    part.cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    Ok(part)
}

/// What the kernel counts for the socket at a port of this namespace.
fn overruns(port: u16) -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/udp").unwrap_or_default();
    let own = format!(":{port:04X}");
    let count = |line: &str| {
        let mut words = line.split_whitespace();
        words.nth(1)?.ends_with(&own).then(|| words.next_back()?.parse::<u64>().ok())?
    };
    text.lines().filter_map(count).sum()
}

fn settings(job: &Job, epoch: Epoch) -> Result<Settings> {
    let mut links = Vec::new();
    for (to, line, _) in job.plan.neighbours(job.node) {
        let Some((_, address)) = job.neighbours.iter().find(|(node, _)| *node == to) else {
            return wrong("neighbours", format!("none for node {to}"), "an address for each");
        };
        let (link, method) = job.plan.links[line].link();
        links.push((to, *address, link, method));
    }
    Ok(Settings {
        node: job.node,
        listen: job.listen,
        links,
        routes: job.plan.routes(job.node),
        room: job.plan.rooms(),
        slots: SLOTS,
        key: None,
        epoch,
    })
}

/// Establishes the channel of a flow, if it is one.
fn open(host: &Host, plan: &Plan, flow: usize) -> std::result::Result<Option<Channel>, String> {
    let one = &plan.flows[flow];
    let Some((contract, excess)) = one.contract() else { return Ok(None) };
    let route = plan.route(one.from, one.to).unwrap_or_default();
    let channel = host.create(contract, route, plan.address(flow), excess);
    channel.map(Some).map_err(|refusal| refusal.to_string())
}

/// The program at the source of a flow.
fn send(
    host: &Host,
    (plan, flow): (&Plan, usize),
    opened: std::result::Result<Option<Channel>, String>,
    epoch: Epoch,
    stop: &AtomicBool,
) -> (Option<Channel>, Sent) {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut sent = Sent { established: opened.is_ok(), ..Sent::default() };
    let channel = match opened {
        Ok(channel) => channel,
        Err(refusal) => return (None, Sent { refusal, ..sent }),
    };
    let (address, len) = (plan.address(flow), plan.flows[flow].message_len());
    let mut number = 0;
    for (at, count) in Source::new(plan, flow) {
        while epoch.now() < at && !stop.load(Ordering::Relaxed) {
            let look = epoch.now() + Duration::from_ps(LOOK.as_nanos() as u64 * 1000);
            epoch.sleep_until(at.min(look));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        sent.late = sent.late.max(epoch.now().saturating_since(at).as_secs_f64());
        for _ in 0..count {
            let bytes = content(number, len);
            let done = match &channel {
                Some(channel) => channel.send(bytes),
                None => host.send_data(address, &bytes, len),
            };
            sent.made += 1;
            match done {
                Ok(message) => number = message + 1,
                Err(_) => sent.refused += 1,
            }
        }
    }
    (channel, sent)
}

/// The program at the end of a flow.
fn receive(inbox: &Inbox, len: usize, epoch: Epoch, stop: &AtomicBool) -> Received {
    let (mut received, mut delays) = (Received::default(), Distribution::default());
    while !stop.load(Ordering::Relaxed) {
        let Some(found) = inbox.receive(LOOK) else { continue };
        let now = epoch.now();
        received.messages += 1;
        received.missed += u64::from(now > found.due);
        delays.record(now.saturating_since(found.made));
        received.damaged += u64::from(found.bytes != content(found.message, len));
    }
    received.delays(&delays);
    received
}
