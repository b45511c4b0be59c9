//! A host: what programs call, and the state that they share with its network thread.

use crate::clock::Epoch;
use crate::datagram::{CONTENT_LEN_MAX, Key, MESSAGE_LEN_MAX};
use crate::network::{self, Seen};
use crate::{QUEUES_MAX, handler};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_linux::{Doing, Result, wrong};
use lastmeter_transport::channel::admission::{Method, route::Admission};
use lastmeter_transport::channel::contract::{Contract, Link};
use lastmeter_transport::channel::manager::{Manager, Times};
use lastmeter_transport::channel::message::{ChannelId, Event, Fault, Node as NodeId};
use lastmeter_transport::channel::node::{Address, Drops, Grant, Node, Notice, Room, Unsent};
use lastmeter_transport::channel::policing::Excess;
use lastmeter_transport::channel::station::Station;
use lastmeter_transport::channel::turns::Turns;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Unanswered messages between managers are repeated so often.
const RETRY: Duration = Duration::from_ms(200);
/// How long ended channels are remembered: longer than any datagram lives.
const REMEMBER: Duration = Duration::from_secs(60);
/// State that nobody refreshes goes after this, whatever happened to the other hosts.
const LEASE: Duration = Duration::from_secs(20);
/// How long the establishment of a channel may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// The slowest link: with a slower one, times of long messages would not fit.
const RATE_MIN: u64 = 1000;

/// A host, as it is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its number in the network. A host that starts again in the same network has the same.
    pub node: NodeId,
    /// Where it listens. Without a key: on loopback, or inside a network namespace.
    pub listen: SocketAddr,
    /// Its neighbours: their addresses, and the links to them.
    pub links: Vec<(NodeId, SocketAddr, Link, Method)>,
    /// The next node towards each of the others, for best effort.
    pub routes: Vec<(NodeId, NodeId)>,
    /// Packets that may wait at each link.
    pub room: Room,
    /// Slots for packets of channels that pass.
    pub slots: u64,
    /// What authenticates the hosts of the network.
    pub key: Option<Key>,
    /// What their clocks count from.
    pub epoch: Epoch,
}

/// Why a channel was not established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The contract or the route is impossible.
    Fault(Fault),
    /// A node of the route lacks resources for it.
    Resources,
    /// A node of the route did not answer.
    Silence,
    /// The host has ended.
    Ended,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Fault(Fault::Contract(flaw)) => write!(f, "an impossible contract: {flaw}"),
            Refusal::Fault(Fault::Route) => write!(f, "the route does not lead to the queue"),
            Refusal::Resources => write!(f, "a node of the route cannot guarantee it"),
            Refusal::Silence => write!(f, "a node of the route did not answer"),
            Refusal::Ended => write!(f, "the host has ended"),
        }
    }
}

/// What the threads of a host share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    state: Mutex<State>,
    /// An event of a channel, or a departure of one of its messages.
    changed: Condvar,
    /// Whose turn it is to use the processor, and that this has changed.
    pub(crate) turns: (Mutex<Turns>, Condvar),
    /// Wakes the network thread.
    pub(crate) bell: OwnedFd,
    pub(crate) stop: AtomicBool,
}

/// The machines, and what has happened in them.
pub(crate) struct State {
    pub(crate) station: Station<Vec<u8>>,
    /// What became of each channel that starts here.
    events: BTreeMap<ChannelId, Event>,
    /// The last message of each of them that has left.
    left: BTreeMap<ChannelId, u64>,
    queues: Vec<Arc<Condvar>>,
    /// Until when the network thread sleeps.
    pub(crate) sleeps: Time,
    pub(crate) seen: Seen,
}

impl Shared {
    /// The state as it was left.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, with everything done that was due before now.
    pub(crate) fn now(&self) -> (MutexGuard<'_, State>, Time) {
        let mut state = self.state();
        let now = self.settings.epoch.now();
        state.station.advance(now);
        (state, now)
    }

    /// After changes: tells who waits for them, and wakes the network thread if it has to do something earlier.
    pub(crate) fn done(&self, mut state: MutexGuard<'_, State>, now: Time) {
        state.station.advance(now);
        self.tell(&mut state);
        let next = state.station.next_at(now);
        let wake = next.is_some_and(|next| next < state.sleeps) || state.station.node.talks();
        drop(state);
        if wake {
            self.ring();
        }
    }

    /// Passes notices to those who wait.
    pub(crate) fn tell(&self, state: &mut State) {
        let mut changed = false;
        for notice in state.station.node.notices() {
            match notice {
                Notice::Channel(event) => {
                    let (Event::Established(id) | Event::Refused(id) | Event::Broken(id)) = event;
                    state.events.insert(id, event);
                    changed = true;
                }
                Notice::Sent { stream, message } => {
                    if let lastmeter_transport::channel::node::Stream::Channel(id) = stream {
                        state.left.insert(id, message);
                        changed = true;
                    }
                }
                Notice::Arrived { queue } => {
                    if let Some(queue) = state.queues.get(queue as usize) {
                        queue.notify_one();
                    }
                }
            }
        }
        if changed {
            self.changed.notify_all();
        }
    }

    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn ended(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn wait<'a>(
        &self,
        condition: &Condvar,
        state: MutexGuard<'a, State>,
        patience: std::time::Duration,
    ) -> MutexGuard<'a, State> {
        let waited = condition.wait_timeout(state, patience);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A host of real-time channels; it ends when it is dropped.
pub struct Host {
    shared: Arc<Shared>,
    network: Option<JoinHandle<()>>,
}

impl Host {
    /// Opens the socket, and starts the thread that serves it.
    ///
    /// # Errors
    /// A setting is impossible, or the address is taken.
    pub fn start(settings: Settings) -> Result<Host> {
        for (_, _, link, _) in &settings.links {
            if link.rate.as_bits() < RATE_MIN || link.packet_max.0 > CONTENT_LEN_MAX as u64 {
                let found = format!("{} bit/s, {}", link.rate.as_bits(), link.packet_max);
                let right = format!(
                    "at least {RATE_MIN} bit/s, packets of at most \
                                     {CONTENT_LEN_MAX} B"
                );
                return wrong("link", found, right);
            }
        }
        let what = || format!("listening on {}", settings.listen);
        let socket = UdpSocket::bind(settings.listen).doing(what)?;
        socket.set_nonblocking(true).doing(what)?;
        network::enlarge(&socket);
        let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
        let bell = rustix::event::eventfd(0, flags).doing("making an event")?;
        let state = State {
            station: station(&settings),
            events: BTreeMap::new(),
            left: BTreeMap::new(),
            queues: Vec::new(),
            sleeps: Time::START,
            seen: Seen::default(),
        };
        let shared = Arc::new(Shared {
            settings,
            state: Mutex::new(state),
            changed: Condvar::new(),
            turns: Default::default(),
            bell,
            stop: AtomicBool::new(false),
        });
        let ours = Arc::clone(&shared);
        let network = std::thread::Builder::new().name("channels".to_owned());
        let network = network.spawn(move || network::serve(&ours, &socket));
        Ok(Host { shared, network: Some(network.doing("starting a thread")?) })
    }

    /// `rtc_init`: a queue for this many messages; `None` if there are too many queues.
    pub fn init(&self, room: usize) -> Option<Inbox> {
        let (mut state, _) = self.shared.now();
        if state.queues.len() >= QUEUES_MAX {
            return None;
        }
        let address = state.station.node.init(room);
        let arrived = Arc::new(Condvar::new());
        state.queues.push(Arc::clone(&arrived));
        Some(Inbox { shared: Arc::clone(&self.shared), address, arrived })
    }

    /// `rtc_create`: a channel to a queue, along `route`, which starts here and ends there. Returns when every node has
    /// admitted it.
    ///
    /// # Errors
    /// Why not.
    pub fn create(
        &self,
        contract: Contract,
        route: Vec<NodeId>,
        to: Address,
        excess: Excess,
    ) -> std::result::Result<Channel, Refusal> {
        let shared = &self.shared;
        let (mut state, now) = shared.now();
        let place = (route, to);
        let id = state.station.node.create_policed(now, contract, place, excess);
        let id = id.map_err(Refusal::Fault)?;
        shared.done(state, now);
        let until = std::time::Instant::now() + PATIENCE;
        let (mut state, _) = shared.now();
        loop {
            match state.events.get(&id) {
                Some(Event::Established(_)) => break,
                Some(Event::Refused(_) | Event::Broken(_)) => {
                    state.events.remove(&id);
                    return Err(Refusal::Resources);
                }
                None => {}
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || shared.ended() {
                let now = shared.settings.epoch.now();
                state.station.node.close(now, id);
                let silence = !shared.ended();
                shared.done(state, now);
                return Err(if silence { Refusal::Silence } else { Refusal::Ended });
            }
            state = shared.wait(&shared.changed, state, left);
        }
        drop(state);
        let (give, handler) = handler::start(shared, contract.packet_max);
        Ok(Channel { shared: Arc::clone(shared), id, give: Some(give), handler: Some(handler) })
    }

    /// `rdata_send`: a best-effort message to a queue, in packets of at most `packet_max`. What finds no room is lost.
    ///
    /// # Errors
    /// It cannot be sent, and why.
    pub fn send_data(
        &self,
        to: Address,
        bytes: &[u8],
        packet_max: usize,
    ) -> std::result::Result<u64, Unsent> {
        let most = packet_max.clamp(1, CONTENT_LEN_MAX);
        if bytes.is_empty() || bytes.len() as u64 > MESSAGE_LEN_MAX {
            return Err(Unsent::TooLong);
        }
        let parts = bytes.chunks(most).map(|part| (Bytes(part.len() as u64), part.to_vec()));
        let parts = parts.collect();
        let (mut state, now) = self.shared.now();
        let sent = state.station.node.send_parts(now, to, parts);
        self.shared.done(state, now);
        sent
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.settings.listen
    }

    /// What it lost so far.
    pub fn drops(&self) -> Drops {
        self.shared.now().0.station.node.drops()
    }

    /// What its socket has seen so far.
    pub fn seen(&self) -> Seen {
        self.shared.now().0.seen.clone()
    }

    /// Channels that hold resources here, and the free slots.
    pub fn reserved(&self) -> (usize, u64) {
        let (state, _) = self.shared.now();
        let manager = state.station.node.manager();
        (manager.held().count(), manager.slots())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.ring();
        self.shared.changed.notify_all();
        if let Some(network) = self.network.take() {
            let _ = network.join();
        }
    }
}

fn station(settings: &Settings) -> Station<Vec<u8>> {
    let links = || settings.links.iter().map(|(to, _, link, _)| (*to, *link));
    let admission =
        settings.links.iter().map(|(to, _, link, method)| (*to, Admission::from((*link, *method))));
    let times = Times { retry: RETRY, remember: REMEMBER, lease: Some(LEASE) };
    // Later than any number of an earlier life: nobody makes a channel each nanosecond.
    let first = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = first.map_or(0, |since| since.as_nanos() as u64);
    let manager = Manager::new(settings.node, admission, settings.slots, times);
    let manager = manager.numbered_from(first);
    let routes = settings.routes.iter().copied();
    Station::new(Node::new(settings.node, manager, links(), routes, settings.room), links())
}

/// A queue in which messages arrive.
pub struct Inbox {
    shared: Arc<Shared>,
    address: Address,
    arrived: Arc<Condvar>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The channel, or the node whose best effort it is.
    pub stream: lastmeter_transport::channel::node::Stream,
    /// Its number.
    pub message: u64,
    /// What it says.
    pub bytes: Vec<u8>,
    /// Its logical arrival at its source; for best effort, when it was sent.
    pub made: Time,
    /// When it was complete here.
    pub at: Time,
    /// When it was due; `Time::MAX` for best effort.
    pub due: Time,
}

impl Inbox {
    /// Where it is.
    pub fn address(&self) -> Address {
        self.address
    }

    /// `rtc_rcv`, `rdata_rcv`: the next message, if one comes before patience ends.
    pub fn receive(&self, patience: std::time::Duration) -> Option<Delivery> {
        let until = std::time::Instant::now() + patience;
        let (mut state, _) = self.shared.now();
        loop {
            if let Some(found) = state.station.node.receive(self.address.queue) {
                drop(state);
                let bytes = found.contents.concat();
                let (stream, message) = (found.stream, found.message);
                let (made, at, due) = (found.made, found.at, found.due);
                return Some(Delivery { stream, message, bytes, made, at, due });
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || self.shared.ended() {
                return None;
            }
            state = self.shared.wait(&self.arrived, state, left);
        }
    }
}

/// An established channel; `rtc_close` when it is dropped.
pub struct Channel {
    shared: Arc<Shared>,
    id: ChannelId,
    give: Option<SyncSender<(Grant, Vec<u8>)>>,
    handler: Option<JoinHandle<()>>,
}

impl Channel {
    /// Its name in the network.
    pub fn id(&self) -> ChannelId {
        self.id
    }

    /// `rtc_send`: polices the message, and hands it to the channel's handler. Returns its number. With
    /// [`Excess::Delay`] it blocks until excess may be sent.
    ///
    /// # Errors
    /// It cannot be sent, and why: [`Unsent::NoChannel`] also if the channel has ended.
    pub fn send(&self, bytes: Vec<u8>) -> std::result::Result<u64, Unsent> {
        let len = Bytes(bytes.len() as u64);
        if bytes.is_empty() || len.0 > MESSAGE_LEN_MAX {
            return Err(Unsent::TooLong);
        }
        let (mut state, mut now) = self.shared.now();
        let grant = loop {
            match state.station.node.grant(now, self.id, len) {
                Err(Unsent::Wait) if !self.shared.ended() => {
                    drop(self.shared.wait(&self.shared.changed, state, PATIENCE));
                    (state, now) = self.shared.now();
                }
                Err(unsent) => return Err(unsent),
                Ok(grant) => break grant,
            }
        };
        drop(state);
        let message = grant.message;
        let given = self.give.as_ref().is_some_and(|give| give.send((grant, bytes)).is_ok());
        if given { Ok(message) } else { Err(Unsent::NoChannel) }
    }

    /// Waits until the last packet of a message has left this host, as `rtc_send` does in the document.
    pub fn left(&self, message: u64, patience: std::time::Duration) -> bool {
        let until = std::time::Instant::now() + patience;
        let (mut state, _) = self.shared.now();
        loop {
            if state.left.get(&self.id).is_some_and(|&left| left >= message) {
                return true;
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || self.shared.ended() {
                return false;
            }
            state = self.shared.wait(&self.shared.changed, state, left);
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // What was given to the handler is sent.
        self.give = None;
        if let Some(handler) = self.handler.take() {
            let _ = handler.join();
        }
        let (mut state, now) = self.shared.now();
        state.station.node.close(now, self.id);
        state.events.remove(&self.id);
        state.left.remove(&self.id);
        self.shared.done(state, now);
    }
}
