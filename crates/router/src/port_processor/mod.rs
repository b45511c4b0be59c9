//! A port processor: one thread that takes packets from its ports, decides about them, and sends them on, in batches,
//! each to completion. Nothing that it does waits for anybody else.
//!
//! ```text
//! ports --> batch of 64 --> parse, classify, plugins, lookup --> queue of the other port --> shaper --> interface
//!             ^ tables (read without locks)    ^ changes (a channel, looked at between batches)
//! ```
//!
//! There are as many as `router.toml` says, each with ports, tables' readers and plugins of its own; packets that leave
//! by another's port cross over ([`crossing`]).
//!
//! [`housekeeper`] is the other thread of the same process: it follows the kernel's links and neighbours, takes
//! commands of the control processor, and writes the tables. When the control processor dies, both go on.

pub mod answer;
pub mod copies;
pub mod count;
pub mod crossing;
mod decide;
pub mod distributed;
mod forward;
pub mod hop;
pub mod housekeeper;
mod known;
pub mod label;
pub mod line;
pub mod null;
pub mod output;
pub mod parse;
pub mod plugin;
pub mod policy;
pub mod reception;
mod setup;
mod start;
mod state;
pub mod structure;
pub mod tables;

pub use forward::BATCH;
pub use start::RECEIVING;

use crate::in_band::Asked;
use copies::Copies;
use count::{Counters, Stages};
use crossing::Crossing;
use hop::{Hops, Next};
use known::{Candidates, Known, PLACES};
use label::{Labelled, Labels};
use lastmeter_base::{Bytes, Duration, Pool, Rate, Time};
use lastmeter_lan::labels::reserved::Promise;
use lastmeter_linux::dataplane::{FlowKey, FlowTo, Frame, Frames};
use lastmeter_linux::sys::schedule_in_real_time;
use lastmeter_net::classify::Classifier;
use lastmeter_net::queue::{DropTail, Queue};
use line::Line;
use output::Output;
use plugin::{Passing, Plugin, Wish};
use policy::Policies;
use reception::{Receive, Reception};
use serde_json::Value;
use state::Pause;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;
use structure::AnyReader;
use tables::Readers;

/// The priority (nice) of a port processor that shares its core.
const PRIORITY: i32 = -10;
/// One batch in so many is timed for the ledger.
pub const SAMPLE: u64 = 16;
/// Packets that wait for neighbours.
const HELD_MAX: usize = 512;
/// How long they wait.
const PATIENCE: Duration = Duration::from_ms(3000);
/// ICMP errors a second, and at once.
const ANSWERS: f64 = 1000.0;
const ANSWERS_AT_ONCE: f64 = 50.0;
/// An idle port processor looks up so often.
const IDLE: std::time::Duration = std::time::Duration::from_millis(100);
/// What cannot be done now may be possible so much later.
const SOON: Duration = Duration::from_ms(1);
/// On a shared core, a pass over the ports that found so many packets is followed by a pause instead of waiting for the
/// next packet: the kernel then receives many at once, and neither side works for single packets.
const MANY: usize = 32;
/// The pause: our choice, about what 32 packets take.
const PAUSE: std::time::Duration = std::time::Duration::from_micros(40);

/// A change for the port processor.
pub enum Change {
    /// Defines a hop number.
    Hop(u32, Vec<Next>),
    /// A neighbour on a port was found, or lost.
    Neighbour(u16, IpAddr, Option<[u8; 6]>),
    /// A port's own addresses.
    Own(u16, answer::Own),
    /// A port's interface: whether it is up, its MTU and its Ethernet address.
    Link(u16, bool, u16, [u8; 6]),
    /// Filters, queues and plugins, anew.
    Setup(Box<Setup>),
    /// Readers of tables with another structure.
    Tables(Box<Readers>),
    /// Answered when all changes before are in effect.
    Settle(Sender<()>),
    /// The state, of all port processors at the same moment.
    Show(Sender<Value>, Arc<Pause>),
    /// What a packet asked that arrived at this port is refused.
    Refuse(u16, Asked),
    /// A packet of the control processor leaves by this port, to this neighbour.
    Signal(u16, IpAddr, Vec<u8>),
    /// Ends.
    End,
    /// Fails, as a mistake in the program would make it.
    Fail,
}

/// What `router.toml` says of the way of packets, ready for use.
pub struct Setup {
    /// Filters, if there are any.
    pub rules: Option<Classifier>,
    /// What packets of flows get; filters name them by number.
    pub treatments: Vec<Treatment>,
    /// Routes by more than the destination.
    pub policies: Policies,
    /// When packets are taken from ports.
    pub receive: Receive,
    /// Plugins; filters name them by number.
    pub plugins: Vec<Slot>,
    /// For each port: its queue, its flows, its plugins.
    pub ports: Vec<PortSetup>,
}

/// What the packets of a flow get.
pub struct Treatment {
    /// The flow's name.
    pub name: String,
    /// Its reservation: a port, and its number among that port's.
    pub reserved: Option<(u16, u32)>,
    /// Plugins by number, in order.
    pub functions: Vec<usize>,
    /// Its labels.
    pub labels: Labels,
    /// Packets so far.
    pub seen: u64,
}

/// A plugin of a setup.
pub enum Slot {
    /// The one of this name, which has not changed: it keeps its state.
    Keep(String),
    /// Another.
    New(Box<Plugin>),
}

/// What the file says of a port.
pub struct PortSetup {
    /// Where packets wait; absent if that has not changed.
    pub queue: Option<Box<dyn Queue>>,
    /// What it has promised to flows.
    pub reserved: Vec<Promise>,
    /// The shaper.
    pub rate: Option<Rate>,
    /// Line time of a packet beyond its bytes.
    pub framing: Bytes,
    /// Flows that are told apart.
    pub flows: u32,
    /// Whether packets that arrive may set up their flows.
    pub in_band: bool,
    /// Whether packets with labels and messages of RSVP are taken.
    pub labels: bool,
    /// Plugins of packets that arrive, by number.
    pub plugins: Vec<usize>,
    /// Plugins of packets that leave.
    pub departing: Vec<usize>,
}

/// What the port processor asks of its housekeeper.
#[derive(Clone, Debug)]
pub enum Event {
    /// Who has this address?
    Resolve {
        /// On this port.
        port: u16,
        /// The address.
        address: IpAddr,
    },
    /// A packet asks for a reservation, or says something else of one.
    Asked {
        /// Where it arrived.
        port: u16,
        /// What.
        asked: Asked,
    },
    /// A message of RSVP for this router.
    Signal {
        /// Where it arrived.
        port: u16,
        /// The packet of IP.
        packet: Vec<u8>,
    },
    /// A flow for the program at the port where it arrives.
    Flow {
        /// Which packets.
        key: FlowKey,
        /// What becomes of them.
        to: FlowTo,
        /// The generation when that was so: after a change it may be wrong.
        generation: u64,
    },
}

/// A packet on its way out.
#[derive(Clone, Copy)]
struct Going {
    /// The port at which it, or what it answers, arrived: it is counted there.
    port: u16,
    passing: Passing,
    /// The next router, or its destination.
    neighbour: u32,
    /// The queue of its flow, if a filter or plugin chose one.
    queue: Option<u32>,
    /// Its flow's reservation, on a port.
    reserved: Option<(u16, u32)>,
    /// Whether it has passed the plugins of the port where it leaves.
    departed: bool,
    /// Whether it has come from elsewhere, so that its hops become fewer.
    hop: bool,
    /// Whether it has passed the queues between input and output.
    crossed: bool,
    /// Its label.
    label: Labelled,
}

/// A packet that waits for a neighbour.
struct Held {
    going: Going,
    until: Time,
}

struct Port {
    name: String,
    own: answer::Own,
    mac: [u8; 6],
    mtu: u16,
    output: Output,
    flows: u32,
    in_band: bool,
    labels: bool,
    plugins: Vec<usize>,
    departing: Vec<usize>,
    /// Packets that have to pass the plugins of this port before they leave.
    leaving: Vec<Going>,
    /// Whether nothing but its line decides when packets leave, so that the fast path may use it.
    plain: bool,
}

/// Tokens for answers.
struct Answers {
    tokens: f64,
    since: Time,
}

impl Answers {
    fn may(&mut self, now: Time) -> bool {
        let more = now.saturating_since(self.since).as_secs_f64() * ANSWERS;
        self.tokens = (self.tokens + more).min(ANSWERS_AT_ONCE);
        self.since = now;
        let may = self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }
}

/// What a port processor is made of.
pub struct Parts {
    /// Its ports' names, in order.
    pub names: Vec<String>,
    /// Whether it has a core for itself.
    pub own_core: bool,
    /// The lines of those that it serves.
    pub lines: Vec<Option<Line>>,
    /// Their memory.
    pub frames: Frames,
    /// The routing tables.
    pub readers: Readers,
    /// What the file says.
    pub setup: Setup,
    /// Whether known flows go to the fast path.
    pub fast: bool,
    /// Grows after each change that may matter to known flows.
    pub generation: Arc<AtomicU64>,
    /// Changes come from here.
    pub changes: Receiver<Change>,
    /// Set when there are changes.
    pub pending: Arc<AtomicBool>,
    /// Readable when there are changes while it sleeps.
    pub wake: OwnedFd,
    /// Events go there.
    pub events: Sender<Event>,
    /// Made readable with each event.
    pub attention: OwnedFd,
    /// Counters of each port.
    pub counts: Arc<Vec<Counters>>,
    /// Times of stages.
    pub stages: Arc<Stages>,
    /// Copies for the control processor go there.
    pub copied: Arc<Copies>,
    /// The ways to other port processors, if there are any.
    pub crossing: Option<Crossing>,
}

/// The thread's state.
pub struct PortProcessor {
    own_core: bool,
    /// Whether it runs before all that share cores in fair parts.
    real_time: bool,
    ports: Vec<Port>,
    /// Absent at ports that others serve.
    lines: Vec<Option<Line>>,
    frames: Frames,
    pool: Pool,
    v4: AnyReader<u32>,
    v6: AnyReader<u128>,
    hops: Hops,
    rules: Option<Classifier>,
    treatments: Vec<Treatment>,
    /// Labels of packets that arrive, in order, and the treatments of their flows.
    labels: Vec<(u32, u32)>,
    policies: Policies,
    copied: Arc<Copies>,
    plugins: Vec<Plugin>,
    fast: bool,
    /// What is known of flows, by place.
    known: Vec<Option<Known>>,
    generations: Arc<AtomicU64>,
    /// The generation of what this turn of the port processor sees.
    generation: u64,
    changes: Receiver<Change>,
    pending: Arc<AtomicBool>,
    wake: OwnedFd,
    events: Sender<Event>,
    attention: OwnedFd,
    counts: Arc<Vec<Counters>>,
    stages: Arc<Stages>,
    began: Instant,
    batches: u64,
    /// Whether a batch that was timed has not been sent yet.
    sampling: bool,
    arrived: Vec<Frame>,
    work: Vec<forward::Work>,
    passing: Vec<Passing>,
    wishes: Vec<Wish>,
    copies: Vec<(Passing, u16)>,
    held: Vec<Held>,
    answers: Answers,
    /// Tokens for packets that ask.
    asking: Answers,
    candidates: Candidates,
    crossing: Option<Crossing>,
    reception: Reception,
    /// Frames that are free when nothing waits.
    frames_all: u64,
    incoming: Vec<(usize, Vec<crossing::Crossed>)>,
    /// When the kernel is next asked what it dropped.
    overruns_at: Time,
    /// Setups so far.
    setups: u64,
    ended: bool,
}

impl PortProcessor {
    /// Ready to run.
    pub fn new(parts: Parts) -> PortProcessor {
        let Parts { names, lines, frames, readers: (v4, v6), setup, fast, .. } = parts;
        let Parts { changes, pending, wake, events, attention, counts, stages, .. } = parts;
        let Parts { copied, crossing, generation, own_core, .. } = parts;
        let ports = names.into_iter().map(|name| Port {
            name,
            own: answer::Own::default(),
            mac: [0; 6],
            mtu: 1500,
            plain: false,
            output: Output::new(Box::new(DropTail::new(0, Bytes::ZERO)), None),
            flows: 1,
            in_band: false,
            labels: false,
            plugins: Vec::new(),
            departing: Vec::new(),
            leaving: Vec::new(),
        });
        let ports: Vec<Port> = ports.collect();
        let mut processor = PortProcessor {
            reception: Reception::new(Receive::default(), ports.len()),
            frames_all: frames.free_count() as u64,
            own_core,
            real_time: false,
            ports,
            lines,
            frames,
            pool: Pool::default(),
            v4,
            v6,
            hops: Hops::default(),
            rules: None,
            treatments: Vec::new(),
            labels: Vec::new(),
            policies: Policies::default(),
            copied,
            plugins: Vec::new(),
            fast,
            known: if fast { vec![None; PLACES] } else { Vec::new() },
            generations: generation,
            generation: 0,
            changes,
            pending,
            wake,
            events,
            attention,
            counts,
            stages,
            began: Instant::now(),
            batches: 0,
            sampling: false,
            arrived: Vec::new(),
            work: Vec::new(),
            passing: Vec::new(),
            wishes: Vec::new(),
            copies: Vec::new(),
            held: Vec::new(),
            answers: Answers { tokens: ANSWERS_AT_ONCE, since: Time::START },
            asking: Answers { tokens: ANSWERS_AT_ONCE, since: Time::START },
            candidates: Candidates::new(if fast { PLACES } else { 0 }),
            crossing,
            incoming: Vec::new(),
            overruns_at: Time::START,
            setups: 0,
            ended: false,
        };
        processor.set_up(setup);
        processor
    }

    fn now(&self) -> Time {
        let nanoseconds = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::from_ps(nanoseconds.saturating_mul(1000))
    }

    fn tell(&self, event: Event) {
        if self.events.send(event).is_ok() {
            let _ = rustix::io::write(&self.attention, &1u64.to_ne_bytes());
        }
    }

    /// Forwards packets until it is told to end.
    pub fn run(&mut self) {
        self.take_precedence();
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
        let mut many = false;
        while !self.ended {
            let (now, taken, sent) = self.turn();
            if taken > 0 {
                many = taken >= MANY && self.reception.receive == Receive::Mixed && !self.real_time;
            } else if many {
                many = false;
                std::thread::sleep(PAUSE);
            } else if sent == 0 && !self.idles(now) {
                self.wait();
            }
        }
    }

    /// Goes before the kernel's thread that receives for it, if that has the same core: what is received beyond our
    /// means is work for nothing, and what waits for long is no longer in the cache. With a core for itself it runs in
    /// real time, which takes the core from that thread as soon as a batch has arrived, and gives it back when that is
    /// sent. What never sleeps would never give it back.
    fn take_precedence(&mut self) {
        let wanted = self.own_core && self.reception.receive != Receive::Polling;
        if wanted != self.real_time && schedule_in_real_time(wanted).is_ok() {
            self.real_time = wanted;
        }
        let _ = rustix::process::setpriority_process(None, PRIORITY);
    }

    /// Once around: changes, packets that arrive, packets that leave. When it began, and how many of each.
    fn turn(&mut self) -> (Time, usize, u64) {
        // First: it grows when a change has been told, or is in the tables, so this turn sees all that it stands for.
        self.generation = self.generations.load(Ordering::Acquire);
        if self.pending.swap(false, Ordering::Acquire) {
            self.change();
        }
        let now = self.now();
        // Before newer packets, which may go on at once.
        if !self.held.is_empty() {
            self.release(now);
        }
        let mut taken = self.receive(now);
        taken += self.pass_on(now);
        (now, taken, self.drain())
    }

    /// Hands to the interfaces what may leave; how many packets.
    fn drain(&mut self) -> u64 {
        let now = self.now();
        let timed = std::mem::take(&mut self.sampling).then(Instant::now);
        let (mut all, mut all_queued) = (0, 0);
        for (at, port) in self.ports.iter_mut().enumerate() {
            let Some(socket) = &mut self.lines[at] else { continue };
            if port.output.waiting() == 0 && socket.waiting() == 0 {
                continue;
            }
            let count = &self.counts[at];
            let (sent, queued) =
                port.output.drain(now, socket, &mut self.pool, &mut self.frames, count);
            all += sent;
            all_queued += queued;
        }
        if let Some(timed) = timed.filter(|_| all > 0) {
            let spent = u64::try_from(timed.elapsed().as_nanos()).unwrap_or(0);
            Counters::add(&self.stages.spent[6], spent);
            Counters::add(&self.stages.queued, all_queued);
        }
        all
    }

    /// Asks the kernel what it dropped because nobody took it.
    fn overruns(&self) {
        for (socket, count) in self.lines.iter().zip(self.counts.iter()) {
            let Some(socket) = socket else { continue };
            count.overrun.store(socket.lost().overrun, Ordering::Relaxed);
        }
    }

    fn get_up(&self) {
        if let Some(crossing) = &self.crossing {
            crossing.gets_up();
        }
    }

    fn change(&mut self) {
        while let Ok(change) = self.changes.try_recv() {
            match change {
                Change::Hop(number, to) => self.hops.set(number, to),
                Change::Neighbour(port, address, mac) => self.learn(port, address, mac),
                Change::Own(port, own) => self.ports[usize::from(port)].own = own,
                Change::Link(port, up, mtu, mac) => {
                    let own = &mut self.ports[usize::from(port)];
                    (own.output.up, own.mtu, own.mac) = (up, mtu, mac);
                    self.hops.readdress(port, mac);
                }
                Change::Setup(setup) => {
                    self.set_up(*setup);
                    self.take_precedence();
                }
                Change::Tables(readers) => (self.v4, self.v6) = *readers,
                Change::Settle(answer) => drop(answer.send(())),
                Change::Show(answer, pause) => {
                    pause.begin();
                    self.overruns();
                    let state = self.state();
                    pause.end();
                    let _ = answer.send(state);
                }
                Change::Refuse(port, asked) => self.tell_ends(port, &asked),
                Change::Signal(port, to, packet) => self.send_signal(port, to, &packet),
                Change::End => self.ended = true,
                Change::Fail => panic!("it was told to fail"),
            }
        }
    }

    fn learn(&mut self, port: u16, address: IpAddr, mac: Option<[u8; 6]>) {
        let own = self.ports[usize::from(port)].mac;
        let macs = mac.map(|mac| {
            let mut macs = [0; 12];
            macs[..6].copy_from_slice(&mac);
            macs[6..].copy_from_slice(&own);
            macs
        });
        let _ = self.hops.learn(port, address, macs);
    }
}
