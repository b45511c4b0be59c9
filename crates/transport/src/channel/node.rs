//! A node's API for applications: the five calls of Table 3.2, and the two for best effort (E-15).
//!
//! ```text
//!  receiving task          sending task
//!  rtc_init                rtc_create --> manager ~~> other managers
//!  rtc_rcv <-- queue       rtc_send   --> police --> scheduler of the link ==> next node
//!                          rtc_close  --> manager
//! ```
//!
//! | Call of the document | Here | Blocks until |
//! |---|---|---|
//! | `rtc_init`   | [`Node::init`]: a queue of a given size to receive messages | never |
//! | `rtc_create` | [`Node::create`]: requests a channel to a queue | [`Notice::Channel`] has the result |
//! | `rtc_send`   | [`Node::send`]: a message into a channel | [`Notice::Sent`]: its last packet has left |
//! | `rtc_rcv`    | [`Node::receive`]: a message from a queue | never: `None` where there is none |
//! | `rtc_close`  | [`Node::close`]: all nodes release the channel's resources | never |
//! | `rdata_send`, `rdata_rcv` | [`Node::send_data`], [`Node::receive`] | as above |
//!
//! A machine without input or output: its owner carries [`Frame`]s over links
//! ([`Node::transmit`], [`Node::sent`], [`Node::arrive`]) and control messages between managers
//! ([`Node::messages`], [`Node::control`]), and wakes it ([`Node::expires_at`], [`Node::expire`]). A blocking
//! task waits for a [`Notice`] from [`Node::notices`]. A name service, not modelled, tells the sender the
//! [`Address`] of a queue. A full queue loses messages. In a model packets contain nothing; on real sockets (E-15 to
//! E-26, `lastmeter_rtc`) they contain their bytes, `B`. Where making them takes time, [`Node::send`] is two
//! calls: [`Node::grant`] polices the message and gives it its logical arrival, [`Node::put`] adds each packet.
//!
//! A node does not trust its neighbours: a channel has at each node the slots that were reserved for it and no more,
//! and its messages are at least I_min apart in logical time, whatever their packets claim (E-22, E-26). [`Drops`]
//! counts what this costs.
//!
//! Source: Indiresan 1997, Table 3.2, §3.2.1 to §3.2.3.

use super::contract::{Contract, Link};
pub use super::frame::{Address, Delivered, Drops, Frame, Grant, Notice, Room, Stream, Unsent};
use super::manager::{ChannelId, Envelope, Fault, Hop, Manager, Node as NodeId};
use super::message::Event;
use super::policing::{Excess, Police, Verdict};
use super::reassembly::{Accepted, Part, Reassembly};
use super::scheduler::{Options, Scheduler};
use lastmeter_base::{Bytes, Duration, Time};
use std::collections::{BTreeMap, VecDeque};

/// Messages of a sender that its receiver keeps open.
const OPEN_MAX: usize = 8;
/// The most packets of a best-effort message.
pub const DATA_PACKETS_MAX: u32 = 1024;
/// The most senders whose messages a node reassembles.
pub const SENDERS_MAX: usize = 1 << 14;
/// How much earlier than its bounds allow a packet may claim to be: how much clocks may differ.
const EARLY_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Sending {
    contract: Contract,
    to: Address,
    next: NodeId,
    police: Police,
    stands: bool,
    messages: u64,
}

/// A channel that passes here.
#[derive(Debug)]
struct Passing {
    held: u64,
    message: u64,
    logical: Time,
}

struct Port<B> {
    link: Link,
    scheduler: Scheduler<Frame<B>>,
}

#[derive(Debug)]
struct Queue<B> {
    room: usize,
    waiting: VecDeque<Delivered<B>>,
}

/// A node: its manager, the schedulers of its links, and the queues of its tasks.
pub struct Node<B = ()> {
    id: NodeId,
    manager: Manager,
    ports: BTreeMap<NodeId, Port<B>>,
    /// The next hop of best effort for each node.
    routes: BTreeMap<NodeId, NodeId>,
    room: Room,
    sending: BTreeMap<ChannelId, Sending>,
    passing: BTreeMap<ChannelId, Passing>,
    data: u64,
    receiving: BTreeMap<(Stream, u32), Reassembly<B>>,
    queues: Vec<Queue<B>>,
    notices: Vec<Notice>,
    drops: Drops,
}

impl Node {
    /// `rtc_send`: a message into an established channel. Returns its number.
    ///
    /// # Errors
    /// It cannot be sent, and why.
    pub fn send(&mut self, now: Time, id: ChannelId, len: Bytes) -> Result<u64, Unsent> {
        let grant = self.grant(now, id, len)?;
        (0..grant.packets).for_each(|index| self.put(&grant, index, ()));
        Ok(grant.message)
    }

    /// `rdata_send`: a best-effort message to a queue, in packets of at most `packet_max`.
    ///
    /// # Errors
    /// No link leads there.
    pub fn send_data(
        &mut self,
        now: Time,
        to: Address,
        (len, packet_max): (Bytes, Bytes),
    ) -> Result<u64, Unsent> {
        let most = packet_max.0.max(1);
        let parts = (0..len.0.div_ceil(most).max(1)).map(|n| (len.0 - n * most).min(most));
        self.send_parts(now, to, parts.map(|len| (Bytes(len), ())).collect())
    }
}

impl<B> Node<B> {
    /// A node with this manager, and links to its neighbours; best effort follows `routes`.
    pub fn new(
        id: NodeId,
        manager: Manager,
        links: impl IntoIterator<Item = (NodeId, Link)>,
        routes: impl IntoIterator<Item = (NodeId, NodeId)>,
        room: Room,
    ) -> Node<B> {
        let port = |link: Link| {
            let options = Options { horizon: link.horizon, outstanding: link.outstanding };
            Port { link, scheduler: Scheduler::new(options) }
        };
        Node {
            id,
            manager,
            ports: links.into_iter().map(|(to, link)| (to, port(link))).collect(),
            routes: routes.into_iter().collect(),
            room,
            sending: BTreeMap::new(),
            passing: BTreeMap::new(),
            data: 0,
            receiving: BTreeMap::new(),
            queues: Vec::new(),
            notices: Vec::new(),
            drops: Drops::default(),
        }
    }

    /// `rtc_init`: a queue for this many messages.
    pub fn init(&mut self, room: usize) -> Address {
        self.queues.push(Queue { room, waiting: VecDeque::new() });
        Address { node: self.id, queue: self.queues.len() as u32 - 1 }
    }

    /// `rtc_create`: requests a channel to a queue, along `route`, which starts here and ends there.
    ///
    /// # Errors
    /// The contract or the route is impossible.
    pub fn create(
        &mut self,
        now: Time,
        contract: Contract,
        route: Vec<NodeId>,
        to: Address,
    ) -> Result<ChannelId, Fault> {
        self.create_policed(now, contract, (route, to), Excess::Drop)
    }

    /// The same, with another policy for excess.
    ///
    /// # Errors
    /// The contract or the route is impossible.
    pub fn create_policed(
        &mut self,
        now: Time,
        contract: Contract,
        (route, to): (Vec<NodeId>, Address),
        excess: Excess,
    ) -> Result<ChannelId, Fault> {
        let next = match route.as_slice() {
            [_, next, ..] if route.last() == Some(&to.node) => *next,
            _ => return Err(Fault::Route),
        };
        let id = self.manager.create(now, contract, route)?;
        let police = Police::new(contract.interval_min, self.room.channel, excess);
        let sending = Sending { contract, to, next, police, stands: false, messages: 0 };
        self.sending.insert(id, sending);
        self.take_events();
        Ok(id)
    }

    /// A message arrives for an established channel: it is policed, and gets its logical arrival.
    ///
    /// # Errors
    /// It cannot be sent, and why.
    pub fn grant(&mut self, now: Time, id: ChannelId, len: Bytes) -> Result<Grant, Unsent> {
        let sending = self.sending.get_mut(&id).filter(|sending| sending.stands);
        let sending = sending.ok_or(Unsent::NoChannel)?;
        let contract = sending.contract;
        if len > contract.message_max {
            return Err(Unsent::TooLong);
        }
        let bound = self.manager.hop(id).and_then(|hop| hop.bound).ok_or(Unsent::NoChannel)?;
        let count = contract.cut(len).count() as u64;
        let (logical, packets) = match sending.police.message(now, count) {
            Verdict::Enter { logical, packets } => (logical, packets),
            Verdict::Drop => {
                self.drops.excess += count;
                return Err(Unsent::NotPromised);
            }
            Verdict::Wait => return Err(Unsent::Wait),
        };
        self.drops.excess += count - packets;
        let message = sending.messages;
        sending.messages += 1;
        let (due, leaves) = (logical + contract.deadline, logical + bound);
        let (packets, count) = (packets as u32, count as u32);
        Ok(Grant { id, message, len, logical, due, leaves, packets, count })
    }

    /// Adds a packet of a granted message to its link. One of a channel that has ended since is lost.
    pub fn put(&mut self, grant: &Grant, index: u32, content: B) {
        let Some(sending) = self.sending.get(&grant.id) else { return };
        let most = sending.contract.packet_max.0.max(1);
        let before = most.saturating_mul(u64::from(index));
        let len = Bytes(grant.len.0.saturating_sub(before).min(most));
        let Some(port) = self.ports.get_mut(&sending.next) else { return };
        let Grant { id, message, logical, due, leaves, count, .. } = *grant;
        let (part, stream) = (Part { message, index, count }, Stream::Channel(id));
        let frame = Frame { stream, to: sending.to, part, len, logical, due, content };
        port.scheduler.enqueue_real_time(logical, leaves, frame);
    }

    /// `rdata_send`: a best-effort message of these packets to a queue. Returns its number.
    ///
    /// # Errors
    /// It cannot be sent, and why.
    pub fn send_parts(
        &mut self,
        now: Time,
        to: Address,
        parts: Vec<(Bytes, B)>,
    ) -> Result<u64, Unsent> {
        let next = *self.routes.get(&to.node).ok_or(Unsent::NoLink)?;
        let port = self.ports.get_mut(&next).ok_or(Unsent::NoLink)?;
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        if count > DATA_PACKETS_MAX {
            return Err(Unsent::TooLong);
        }
        let message = self.data;
        self.data += 1;
        for (index, (len, content)) in (0..count).zip(parts) {
            let part = Part { message, index, count };
            let stream = Stream::Data(self.id);
            let frame = Frame { stream, to, part, len, logical: now, due: Time::MAX, content };
            self.drops.data += u64::from(!port.add_data(frame, self.room.data));
        }
        Ok(message)
    }

    /// `rtc_rcv` and `rdata_rcv`: the first message of a queue, if one waits.
    pub fn receive(&mut self, queue: u32) -> Option<Delivered<B>> {
        self.queues.get_mut(queue as usize)?.waiting.pop_front()
    }

    /// `rtc_close`: ends a channel that starts here.
    pub fn close(&mut self, now: Time, id: ChannelId) {
        self.sending.remove(&id);
        self.manager.close(now, id);
    }

    /// Notifications for applications, since the last call.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The packet that the link to a neighbour sends now, if it may send one.
    pub fn transmit(&mut self, now: Time, to: NodeId) -> Option<Frame<B>> {
        self.ports.get_mut(&to)?.scheduler.dequeue(now)
    }

    /// When [`Node::transmit`] could next return one.
    pub fn ready_at(&self, now: Time, to: NodeId) -> Option<Time> {
        self.ports.get(&to)?.scheduler.ready_at(now)
    }

    /// A link has sent the packet from [`Node::transmit`].
    pub fn sent(&mut self, to: NodeId, frame: &Frame<B>) {
        if let Some(port) = self.ports.get_mut(&to) {
            port.scheduler.sent();
        }
        let ours = match frame.stream {
            Stream::Channel(id) => {
                if let Some(passing) = self.passing.get_mut(&id) {
                    passing.held = passing.held.saturating_sub(1);
                }
                self.sending.get_mut(&id).map(|sending| sending.police.left())
            }
            Stream::Data(node) => (node == self.id).then_some(()),
        };
        if ours.is_some() && frame.part.index + 1 == frame.part.count {
            self.notices.push(Notice::Sent { stream: frame.stream, message: frame.part.message });
        }
    }

    /// A packet arrives from the previous neighbour: it is forwarded, or may complete its message here. `before`
    /// is the guarantee of that neighbour's link, including propagation, by which its logical arrival moves.
    pub fn arrive(&mut self, now: Time, mut frame: Frame<B>, before: Duration) {
        match frame.stream {
            Stream::Channel(id) => {
                frame.logical += before;
                // Packets of a channel that has ended here are not forwarded.
                let Some(hop) = self.manager.hop(id).filter(|hop| hop.before.is_some()) else {
                    self.drops.unknown += 1;
                    return;
                };
                let Contract { packet_max, interval_min, .. } = hop.contract;
                let early = interval_min + hop.horizon + EARLY_MAX;
                let possible = frame.len <= packet_max
                    && u64::from(frame.part.count) <= hop.contract.packets()
                    && frame.logical.saturating_since(now) <= early;
                match possible {
                    true => self.carry(now, frame, id, &hop),
                    false => self.drops.broken += 1,
                }
            }
            Stream::Data(from) => {
                let known = self.routes.contains_key(&from) && from != self.id;
                if !known || frame.part.count > DATA_PACKETS_MAX {
                    self.drops.unknown += 1;
                } else if frame.to.node == self.id {
                    self.deliver(now, frame, Time::MAX);
                } else {
                    let next = self.routes.get(&frame.to.node);
                    let port = next.and_then(|next| self.ports.get_mut(next));
                    let added = port.is_some_and(|port| port.add_data(frame, self.room.data));
                    self.drops.data += u64::from(!added);
                }
            }
        }
    }

    /// The same on a network whose nodes are not trusted: a packet of a channel must come from the node before this
    /// one. It carries the logical arrival here.
    pub fn arrive_from(&mut self, now: Time, from: NodeId, frame: Frame<B>) {
        let stranger = match frame.stream {
            Stream::Channel(id) => self.manager.hop(id).and_then(|hop| hop.before) != Some(from),
            Stream::Data(_) => false,
        };
        match stranger {
            true => self.drops.unknown += 1,
            false => self.arrive(now, frame, Duration::ZERO),
        }
    }

    /// A channel's packet goes on, or ends here.
    fn carry(&mut self, now: Time, mut frame: Frame<B>, id: ChannelId, hop: &Hop) {
        let (Some(next), Some(bound)) = (hop.after, hop.bound) else {
            return match frame.to.node == self.id {
                true => self.deliver(now, frame, now + hop.contract.deadline + EARLY_MAX),
                false => self.drops.unknown += 1,
            };
        };
        let Some(port) = self.ports.get_mut(&next) else { return };
        let first = Passing { held: 0, message: frame.part.message, logical: frame.logical };
        let passing = self.passing.entry(id).or_insert(first);
        if passing.held >= hop.slots {
            self.drops.broken += 1;
            return;
        }
        if frame.part.message > passing.message {
            passing.message = frame.part.message;
            passing.logical = frame.logical.max(passing.logical + hop.contract.interval_min);
        }
        passing.held += 1;
        frame.logical = passing.logical;
        port.scheduler.enqueue_real_time(frame.logical, frame.logical + bound, frame);
    }

    /// By how much a channel's logical arrival moves over this node's link.
    pub fn moves(&self, frame: &Frame<B>) -> Duration {
        let Stream::Channel(id) = frame.stream else { return Duration::ZERO };
        let Some(Hop { after: Some(next), bound: Some(bound), .. }) = self.manager.hop(id) else {
            return Duration::ZERO;
        };
        bound + self.ports.get(&next).map_or(Duration::ZERO, |port| port.link.propagation)
    }

    fn deliver(&mut self, now: Time, frame: Frame<B>, due_max: Time) {
        let Frame { stream, to, part, len, logical, due, content } = frame;
        let place = (stream, to.queue);
        if !self.receiving.contains_key(&place) && self.receiving.len() >= SENDERS_MAX {
            let manager = &self.manager;
            self.receiving.retain(|&(stream, _), _| match stream {
                Stream::Channel(id) => manager.hop(id).is_some(),
                Stream::Data(_) => true,
            });
        }
        let full = self.receiving.len() >= SENDERS_MAX && !self.receiving.contains_key(&place);
        let Some(queue) = self.queues.get_mut(to.queue as usize).filter(|_| !full) else {
            self.drops.unknown += 1;
            return;
        };
        let receiving = self.receiving.entry(place).or_insert_with(|| Reassembly::new(OPEN_MAX));
        let (Accepted::Message(len), contents) = receiving.take(part, len, content) else { return };
        if queue.waiting.len() >= queue.room {
            self.drops.queue += 1;
            return;
        }
        let message = part.message;
        let due = due.min(due_max);
        let made = match stream {
            Stream::Channel(id) => {
                let deadline = self.manager.hop(id).map(|hop| hop.contract.deadline.as_ps());
                Time::from_ps(due.as_ps().saturating_sub(deadline.unwrap_or(0)))
            }
            Stream::Data(_) => logical,
        };
        queue.waiting.push_back(Delivered { stream, message, len, made, at: now, due, contents });
        self.notices.push(Notice::Arrived { queue: to.queue });
    }

    /// Control messages to send, since the last call.
    pub fn messages(&mut self) -> Vec<Envelope> {
        self.manager.messages()
    }

    /// Whether there are any.
    pub fn talks(&self) -> bool {
        self.manager.talks()
    }

    /// A control message arrives.
    pub fn control(&mut self, now: Time, envelope: Envelope) {
        self.manager.receive(now, envelope);
        self.take_events();
    }

    /// When [`Node::expire`] has something to do.
    pub fn expires_at(&self) -> Option<Time> {
        self.manager.expires_at()
    }

    /// Retransmits what was not answered.
    pub fn expire(&mut self, now: Time) {
        self.manager.expire(now);
        let manager = &self.manager;
        self.passing.retain(|&id, _| manager.hop(id).is_some());
        self.take_events();
    }

    /// Its manager, for its reservations.
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// What it lost so far.
    pub fn drops(&self) -> Drops {
        self.drops
    }

    fn take_events(&mut self) {
        for event in self.manager.events() {
            match event {
                Event::Established(id) => {
                    if let Some(sending) = self.sending.get_mut(&id) {
                        sending.stands = true;
                    }
                }
                Event::Refused(id) | Event::Broken(id) => drop(self.sending.remove(&id)),
            }
            self.notices.push(Notice::Channel(event));
        }
    }
}

impl<B> Port<B> {
    /// Adds best effort, if there is room.
    fn add_data(&mut self, frame: Frame<B>, room: usize) -> bool {
        let free = self.scheduler.waiting()[1] < room;
        if free {
            self.scheduler.enqueue_best_effort(frame);
        }
        free
    }
}
