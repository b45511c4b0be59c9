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
//! [`Address`] of a queue. A full queue loses messages.
//!
//! Source: Indiresan 1997, Table 3.2, §3.2.1 to §3.2.3.

use super::contract::{Contract, Link};
use super::manager::{ChannelId, Envelope, Event, Fault, Manager, Node as NodeId};
use super::policing::{Excess, Police, Verdict};
use super::reassembly::{Accepted, Part, Reassembly};
use super::scheduler::{Options, Scheduler};
use lastmeter_base::{Bytes, Duration, Time};
use std::collections::{BTreeMap, VecDeque};

/// Messages of a sender that its receiver keeps open.
const OPEN_MAX: usize = 8;

/// A queue of messages at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Where it is.
    pub node: NodeId,
    /// Which of its queues.
    pub queue: u32,
}

/// The sender: a channel, or a node's best effort, which is numbered too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// A real-time channel.
    Channel(ChannelId),
    /// Best effort of a node to a queue.
    Data(NodeId),
}

/// A packet between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its stream.
    pub stream: Stream,
    /// Where its message ends.
    pub to: Address,
    /// Which part of which message.
    pub part: Part,
    /// Its length.
    pub len: Bytes,
    /// The logical arrival of its message at this node; for best effort, when it was sent.
    pub logical: Time,
    /// When the message is due at its end; `Time::MAX` for best effort.
    pub due: Time,
}

/// A complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Whose it is.
    pub stream: Stream,
    /// Its length.
    pub len: Bytes,
    /// When it was complete.
    pub at: Time,
    /// When it was due.
    pub due: Time,
}

/// A notification to applications here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An event of a channel that starts here.
    Channel(Event),
    /// The last packet of a message has left this node.
    Sent {
        /// Whose it is.
        stream: Stream,
        /// Its number within the stream.
        message: u64,
    },
    /// A message waits in a queue.
    Arrived {
        /// Which queue.
        queue: u32,
    },
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The channel is not established.
    NoChannel,
    /// The message is longer than the contract allows.
    TooLong,
    /// The policer dropped all of it as excess.
    NotPromised,
    /// No link leads there.
    NoLink,
}

#[derive(Debug)]
struct Sending {
    contract: Contract,
    to: Address,
    next: NodeId,
    police: Police,
    stands: bool,
    messages: u64,
}

struct Port {
    link: Link,
    scheduler: Scheduler<Frame>,
}

#[derive(Debug)]
struct Queue {
    room: usize,
    waiting: VecDeque<Delivered>,
}

/// A node: its manager, the schedulers of its links, and the queues of its tasks.
pub struct Node {
    id: NodeId,
    manager: Manager,
    ports: BTreeMap<NodeId, Port>,
    /// The next hop of best effort for each node.
    routes: BTreeMap<NodeId, NodeId>,
    slots: u64,
    sending: BTreeMap<ChannelId, Sending>,
    data: u64,
    receiving: BTreeMap<(Stream, u32), Reassembly>,
    queues: Vec<Queue>,
    notices: Vec<Notice>,
}

impl Node {
    /// A node with this manager, and links to its neighbours; best effort follows `routes`. A channel that
    /// starts here has this many slots for packets.
    pub fn new(
        id: NodeId,
        manager: Manager,
        links: impl IntoIterator<Item = (NodeId, Link)>,
        routes: impl IntoIterator<Item = (NodeId, NodeId)>,
        slots: u64,
    ) -> Node {
        let port = |link: Link| {
            let options = Options { horizon: link.horizon, outstanding: link.outstanding };
            Port { link, scheduler: Scheduler::new(options) }
        };
        Node {
            id,
            manager,
            ports: links.into_iter().map(|(to, link)| (to, port(link))).collect(),
            routes: routes.into_iter().collect(),
            slots,
            sending: BTreeMap::new(),
            data: 0,
            receiving: BTreeMap::new(),
            queues: Vec::new(),
            notices: Vec::new(),
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
        let next = match route.as_slice() {
            [_, next, ..] if route.last() == Some(&to.node) => *next,
            _ => return Err(Fault::Route),
        };
        let id = self.manager.create(now, contract, route)?;
        let police = Police::new(contract.interval_min, self.slots, Excess::Drop);
        let sending = Sending { contract, to, next, police, stands: false, messages: 0 };
        self.sending.insert(id, sending);
        self.take_events();
        Ok(id)
    }

    /// `rtc_send`: a message into an established channel. Returns its number.
    ///
    /// # Errors
    /// It cannot be sent, and why.
    pub fn send(&mut self, now: Time, id: ChannelId, len: Bytes) -> Result<u64, Unsent> {
        let sending = self.sending.get_mut(&id).filter(|sending| sending.stands);
        let sending = sending.ok_or(Unsent::NoChannel)?;
        let contract = sending.contract;
        if len > contract.message_max {
            return Err(Unsent::TooLong);
        }
        let bound = self.manager.way(id).and_then(|way| way.1).ok_or(Unsent::NoChannel)?;
        let count = contract.cut(len).count() as u64;
        let (logical, enter) = match sending.police.message(now, count) {
            Verdict::Enter { logical, packets } => (logical, packets),
            Verdict::Drop | Verdict::Wait => return Err(Unsent::NotPromised),
        };
        let message = sending.messages;
        sending.messages += 1;
        let port = self.ports.get_mut(&sending.next).ok_or(Unsent::NoLink)?;
        let due = logical + contract.deadline;
        for (index, len) in contract.cut(len).take(enter as usize).enumerate() {
            let part = Part { message, index: index as u32, count: count as u32 };
            let stream = Stream::Channel(id);
            let frame = Frame { stream, to: sending.to, part, len, logical, due };
            port.scheduler.enqueue_real_time(logical, logical + bound, frame);
        }
        Ok(message)
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
        let next = *self.routes.get(&to.node).ok_or(Unsent::NoLink)?;
        let port = self.ports.get_mut(&next).ok_or(Unsent::NoLink)?;
        let message = self.data;
        self.data += 1;
        let most = packet_max.0.max(1);
        let count = len.0.div_ceil(most).max(1);
        for index in 0..count {
            let part = Part { message, index: index as u32, count: count as u32 };
            let len = Bytes((len.0 - index * most).min(most));
            let stream = Stream::Data(self.id);
            let frame = Frame { stream, to, part, len, logical: now, due: Time::MAX };
            port.scheduler.enqueue_best_effort(frame);
        }
        Ok(message)
    }

    /// `rtc_rcv` and `rdata_rcv`: the first message of a queue, if one waits.
    pub fn receive(&mut self, queue: u32) -> Option<Delivered> {
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
    pub fn transmit(&mut self, now: Time, to: NodeId) -> Option<Frame> {
        self.ports.get_mut(&to)?.scheduler.dequeue(now)
    }

    /// When [`Node::transmit`] could next return one.
    pub fn ready_at(&self, now: Time, to: NodeId) -> Option<Time> {
        self.ports.get(&to)?.scheduler.ready_at(now)
    }

    /// A link has sent the packet from [`Node::transmit`].
    pub fn sent(&mut self, to: NodeId, frame: &Frame) {
        if let Some(port) = self.ports.get_mut(&to) {
            port.scheduler.sent();
        }
        let ours = match frame.stream {
            Stream::Channel(id) => self.sending.get_mut(&id).map(|sending| sending.police.left()),
            Stream::Data(node) => (node == self.id).then_some(()),
        };
        if ours.is_some() && frame.part.index + 1 == frame.part.count {
            self.notices.push(Notice::Sent { stream: frame.stream, message: frame.part.message });
        }
    }

    /// A packet arrives from the previous neighbour: it is forwarded, or may complete its message here. `before`
    /// is the guarantee of that neighbour's link, including propagation, by which its logical arrival moves.
    pub fn arrive(&mut self, now: Time, mut frame: Frame, before: Duration) {
        if frame.due < Time::MAX {
            frame.logical += before;
        }
        if frame.to.node == self.id {
            return self.deliver(now, &frame);
        }
        match frame.stream {
            Stream::Channel(id) => {
                // Packets of a channel that has ended here are not forwarded.
                let Some((Some(next), Some(bound))) = self.manager.way(id) else { return };
                if let Some(port) = self.ports.get_mut(&next) {
                    let due = frame.logical + bound;
                    port.scheduler.enqueue_real_time(frame.logical, due, frame);
                }
            }
            Stream::Data(_) => {
                let next = self.routes.get(&frame.to.node);
                if let Some(port) = next.and_then(|next| self.ports.get_mut(next)) {
                    port.scheduler.enqueue_best_effort(frame);
                }
            }
        }
    }

    /// By how much a channel's logical arrival moves over this node's link.
    pub fn moves(&self, frame: &Frame) -> Duration {
        let Stream::Channel(id) = frame.stream else { return Duration::ZERO };
        let Some((Some(next), Some(bound))) = self.manager.way(id) else { return Duration::ZERO };
        bound + self.ports.get(&next).map_or(Duration::ZERO, |port| port.link.propagation)
    }

    fn deliver(&mut self, now: Time, frame: &Frame) {
        let Frame { stream, to, part, len, due, .. } = *frame;
        let Some(queue) = self.queues.get_mut(to.queue as usize) else { return };
        let receiving = self.receiving.entry((stream, to.queue));
        let receiving = receiving.or_insert_with(|| Reassembly::new(OPEN_MAX));
        if let Accepted::Message(len) = receiving.accept(part, len)
            && queue.waiting.len() < queue.room
        {
            queue.waiting.push_back(Delivered { stream, len, at: now, due });
            self.notices.push(Notice::Arrived { queue: to.queue });
        }
    }

    /// Control messages to send, since the last call.
    pub fn messages(&mut self) -> Vec<Envelope> {
        self.manager.messages()
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
        self.take_events();
    }

    /// Its manager, for its reservations.
    pub fn manager(&self) -> &Manager {
        &self.manager
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
