//! One node's part in establishing, keeping and releasing channels, without input or output (E-18 to
//! E-20).
//!
//! ```text
//! source          relay           destination
//!   | Request ----> | Request ----> |   forward: reserve, subtract the bound, pass on
//!   | <---- Accept  | <---- Accept  |   reverse: commit, with a share of the slack
//!   | <---- Reject  |               |   or release
//!   | Release ----> | Release ----> |   tear-down; each node answers Released and passes it on
//! ```
//!
//! | State | holds | repeats until | Accept | Reject | Release | neighbour lost |
//! |---|---|---|---|---|---|---|
//! | asking | yes | an answer: Request | committed, passed | ended, passed | releasing | see below |
//! | committed | yes | - | - | breaking | releasing | up: releasing; down: breaking |
//! | releasing | no | Released from below: Release | Release | ended | - | down: ended |
//! | breaking | no | Released from above: Reject | Release | - | ended | up: ended |
//! | ended | no | - | releasing | Released | Released | - |
//!
//! An asking node that loses the neighbour above releases; if it loses the one below, it ends with Reject.
//! Messages may be lost, duplicated and reordered. Nothing is reserved twice, because a node identifies a
//! channel by its source and that source's number, which is never reused, and remembers ended channels for
//! `remember`. Nothing leaks, because a node that waits for an answer retransmits its request, and one that
//! has released what a neighbour still holds repeats that until the neighbour answers or is lost.
//!
//! | Parameter  | Unit | Meaning                                                                 |
//! |------------|------|-------------------------------------------------------------------------|
//! | `retry`    | time | retransmission timeout of an unanswered message                         |
//! | `remember` | time | how long ended channels are remembered: longer than any message lives   |
//! | `lease`    | time | if given, state is soft: it expires when not refreshed for this long     |
//!
//! Source: Indiresan 1997, §3.2.2, Fig 3.3 (the two phases); RFC 2205 for soft state. The document handles
//! loss by a reliable RPC; the states beyond the two phases are ours.

use super::admission::buffers;
use super::admission::route::{Admission, with_slack};
use super::contract::Contract;
use super::message::{CHANNELS_MAX, ENDED_MAX};
pub use super::message::{ChannelId, Envelope, Event, Fault, Hop, Message, Node, ROUTE_MAX};
use lastmeter_base::{Duration, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Times of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Times {
    /// Retransmission timeout of an unanswered message.
    pub retry: Duration,
    /// How long ended channels are remembered.
    pub remember: Duration,
    /// How long state lives without refresh; `None`: forever.
    pub lease: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Asking,
    Committed,
    Releasing,
    Breaking,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    contract: Contract,
    route: Vec<Node>,
    at: usize,
    /// The rest of the deadline after this node's link.
    left: Duration,
    horizon: Duration,
    /// The reservation on the link to the next node; none at the destination.
    bound: Option<Duration>,
    slots: u64,
    slack: Duration,
    state: State,
    /// When it retransmits.
    again: Time,
    /// When the state expires.
    until: Time,
}

impl Entry {
    fn before(&self) -> Option<Node> {
        self.at.checked_sub(1).map(|at| self.route[at])
    }
    fn after(&self) -> Option<Node> {
        self.route.get(self.at + 1).copied()
    }
}

/// A node's manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Manager {
    node: Node,
    times: Times,
    links: BTreeMap<Node, Admission>,
    /// Free packet slots.
    slots: u64,
    next_local: u64,
    entries: BTreeMap<ChannelId, Entry>,
    /// Ended channels, with the time until which they are remembered.
    ended: BTreeMap<ChannelId, Time>,
    lost: BTreeSet<Node>,
    out: Vec<Envelope>,
    events: Vec<Event>,
}

impl Manager {
    /// A node with these links to its neighbours and this many packet slots.
    pub fn new(
        node: Node,
        links: impl IntoIterator<Item = (Node, Admission)>,
        slots: u64,
        times: Times,
    ) -> Manager {
        Manager {
            node,
            times,
            links: links.into_iter().collect(),
            slots,
            next_local: 0,
            entries: BTreeMap::new(),
            ended: BTreeMap::new(),
            lost: BTreeSet::new(),
            out: Vec::new(),
            events: Vec::new(),
        }
    }

    /// The same, but its first channel has this number. No number may be used twice in the life of a network, so a
    /// restarted node takes one higher than all before.
    pub fn numbered_from(self, next_local: u64) -> Manager {
        Manager { next_local, ..self }
    }

    /// `rtc_create`: requests a channel along `route`, which starts here. The result is an [`Event`].
    ///
    /// # Errors
    /// The contract or the route is impossible.
    pub fn create(
        &mut self,
        now: Time,
        contract: Contract,
        route: Vec<Node>,
    ) -> Result<ChannelId, Fault> {
        contract.check().map_err(Fault::Contract)?;
        let distinct: BTreeSet<Node> = route.iter().copied().collect();
        let proper = route.first() == Some(&self.node)
            && (2..=ROUTE_MAX).contains(&route.len())
            && distinct.len() == route.len();
        if !proper {
            return Err(Fault::Route);
        }
        let id = ChannelId { source: self.node, local: self.next_local };
        self.next_local += 1;
        let left = contract.deadline;
        if !self.ask(now, id, Request { contract, route, at: 0, left, horizon: Duration::ZERO }) {
            self.events.push(Event::Refused(id));
        }
        Ok(id)
    }

    /// `rtc_close`: ends a channel that starts here; ignores others.
    pub fn close(&mut self, now: Time, id: ChannelId) {
        if id.source == self.node {
            self.release(now, id);
        }
    }

    /// A neighbour's message arrives.
    pub fn receive(&mut self, now: Time, envelope: Envelope) {
        let Envelope { from, id, message, .. } = envelope;
        if self.lost.contains(&from) {
            return;
        }
        match message {
            Message::Request { contract, route, at, left, horizon } => {
                self.requested(now, (from, id), Request { contract, route, at, left, horizon });
            }
            Message::Accept { slack } => self.accepted(now, (from, id), slack),
            Message::Reject => {
                self.send(from, id, Message::Released);
                self.rejected(now, (from, id));
            }
            Message::Release => {
                self.send(from, id, Message::Released);
                let ours = self.entries.get(&id).is_some_and(|entry| entry.before() == Some(from));
                match ours {
                    true => self.release(now, id),
                    false if self.entries.contains_key(&id) => {}
                    false if self.ended.len() < ENDED_MAX => self.end(now, id),
                    false => {}
                }
            }
            Message::Released => {
                let done = self.entries.get(&id).is_some_and(|entry| match entry.state {
                    State::Releasing => entry.after() == Some(from),
                    State::Breaking => entry.before() == Some(from),
                    State::Asking | State::Committed => false,
                });
                if done {
                    self.end(now, id);
                }
            }
            Message::Refresh => self.refreshed_from_above(now, (from, id)),
            Message::Refreshed => self.refreshed_from_below(now, (from, id)),
        }
    }

    /// A neighbour is known to be dead, for good: a restarted node has another name.
    pub fn neighbour_lost(&mut self, now: Time, node: Node) {
        self.lost.insert(node);
        for id in self.entries.keys().copied().collect::<Vec<_>>() {
            let entry = &self.entries[&id];
            let (above, below) = (entry.before() == Some(node), entry.after() == Some(node));
            match entry.state {
                State::Asking | State::Committed if above => self.release(now, id),
                State::Asking if below => self.refuse(now, id),
                State::Committed if below => self.break_up(now, id),
                State::Releasing if below => self.end(now, id),
                State::Breaking if above => self.end(now, id),
                _ => {}
            }
        }
    }

    /// When [`Manager::expire`] has something to do.
    pub fn expires_at(&self) -> Option<Time> {
        let entries = self.entries.values().map(|entry| match self.waits(entry) {
            true => entry.again.min(entry.until),
            false => entry.until,
        });
        entries.chain(self.ended.values().copied()).min().filter(|&at| at < Time::MAX)
    }

    /// Retransmits, refreshes, and forgets what has expired.
    pub fn expire(&mut self, now: Time) {
        self.ended.retain(|_, until| *until > now || *until == Time::MAX);
        for id in self.entries.keys().copied().collect::<Vec<_>>() {
            let entry = &self.entries[&id];
            if entry.until <= now && entry.until < Time::MAX {
                self.lapse(now, id);
            } else if self.waits(entry) && entry.again <= now {
                let again = now + self.pause(entry);
                self.repeat(id);
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.again = again;
                }
            }
        }
    }

    /// Messages to send, since the last call.
    pub fn messages(&mut self) -> Vec<Envelope> {
        std::mem::take(&mut self.out)
    }

    /// Whether there are any.
    pub fn talks(&self) -> bool {
        !self.out.is_empty()
    }

    /// Events for applications, since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Channels with state here, with their local bound where they leave by a link, and whether they are
    /// committed.
    pub fn held(&self) -> impl Iterator<Item = (ChannelId, Option<Duration>, bool)> + '_ {
        let holds = |state| matches!(state, State::Asking | State::Committed);
        let entries = self.entries.iter().filter(move |(_, entry)| holds(entry.state));
        entries.map(|(&id, entry)| (id, entry.bound, entry.state == State::Committed))
    }

    /// A channel that holds resources here.
    pub fn hop(&self, id: ChannelId) -> Option<Hop> {
        let entry = self.entries.get(&id)?;
        let (before, after) = (entry.before(), entry.after());
        let Entry { contract, bound, slots, horizon, .. } = *entry;
        let holds = matches!(entry.state, State::Asking | State::Committed);
        holds.then_some(Hop { contract, before, after, bound, slots, horizon })
    }

    /// The reservations of the link to a neighbour.
    pub fn link(&self, to: Node) -> Option<&Admission> {
        self.links.get(&to)
    }

    /// Free packet slots.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    fn send(&mut self, to: Node, id: ChannelId, message: Message) {
        self.out.push(Envelope { from: self.node, to, id, message });
    }

    /// Reserves for a channel and asks the next node, or accepts at the destination. If that is impossible, the
    /// channel ends here.
    fn ask(&mut self, now: Time, id: ChannelId, request: Request) -> bool {
        if self.entries.len() >= CHANNELS_MAX || self.ended.len() >= ENDED_MAX {
            return false;
        }
        let Request { contract, route, at, left, horizon } = request;
        let until = match self.times.lease {
            Some(lease) => now + lease,
            None => Time::MAX,
        };
        let mut entry = Entry {
            contract,
            at,
            left,
            horizon,
            bound: None,
            // As many as with the longest bounds that it may get.
            slots: 0,
            slack: Duration::ZERO,
            state: State::Asking,
            again: now + self.times.retry,
            until,
            route,
        };
        if let Some(next) = entry.after() {
            if self.lost.contains(&next) || !self.reserve(&mut entry, next) {
                self.end(now, id);
                return false;
            }
        } else {
            entry.slack = left;
            entry.state = State::Committed;
        }
        self.entries.insert(id, entry);
        if self.entries[&id].state == State::Asking {
            self.repeat(id);
        }
        true
    }

    /// Reserves slots and the least bound of the link to `next`.
    fn reserve(&mut self, entry: &mut Entry, next: Node) -> bool {
        let Some(link) = self.links.get_mut(&next) else { return false };
        let interval = entry.contract.interval_min;
        let messages = match entry.at {
            0 => buffers::at_source(&entry.contract, interval),
            _ => buffers::at_relay(&entry.contract, interval, entry.horizon, interval),
        };
        let slots = buffers::slots(&entry.contract, messages);
        let Some(bound) = link.bound(&entry.contract) else { return false };
        let used = bound + link.fixed();
        if used > entry.left || slots > self.slots {
            return false;
        }
        link.reservations.reserve(link.demand(&entry.contract), bound);
        self.slots -= slots;
        (entry.bound, entry.slots, entry.left) = (Some(bound), slots, entry.left - used);
        true
    }

    /// Releases what an entry holds.
    fn free(&mut self, id: ChannelId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.slots += std::mem::take(&mut entry.slots);
        if let (Some(bound), Some(next)) = (entry.bound.take(), entry.after())
            && let Some(link) = self.links.get_mut(&next)
        {
            link.reservations.release(link.demand(&entry.contract), bound);
        }
    }

    fn requested(&mut self, now: Time, (from, id): (Node, ChannelId), request: Request) {
        let proper = request.contract.check().is_ok()
            && request.route.len() <= ROUTE_MAX
            && request.route.get(request.at) == Some(&self.node)
            && request.at > 0
            && request.route[request.at - 1] == from;
        if !proper || self.ended.contains_key(&id) {
            self.send(from, id, Message::Reject);
            return;
        }
        match self.entries.get(&id).map(|entry| (entry.state, entry.slack)) {
            None if self.ask(now, id, request) => {
                if let (State::Committed, slack) =
                    (self.entries[&id].state, self.entries[&id].slack)
                {
                    self.send(from, id, Message::Accept { slack });
                }
            }
            None => self.send(from, id, Message::Reject),
            Some((State::Committed, slack)) => self.send(from, id, Message::Accept { slack }),
            Some(_) => {}
        }
    }

    fn accepted(&mut self, now: Time, (from, id): (Node, ChannelId), slack: Duration) {
        let Some(entry) = self.entries.get_mut(&id) else {
            // It ended here, and the accepting node does not know.
            self.send(from, id, Message::Release);
            return;
        };
        if entry.after() != Some(from) {
            return;
        }
        match entry.state {
            State::Asking => {}
            State::Committed => return,
            State::Releasing | State::Breaking => {
                self.send(from, id, Message::Release);
                return;
            }
        }
        let links = entry.route.len() as u64 - 1;
        (entry.state, entry.slack) = (State::Committed, slack);
        entry.again = now + self.times.retry;
        let (contract, before) = (entry.contract, entry.before());
        if let (Some(bound), Some(link)) = (entry.bound, self.links.get_mut(&from)) {
            let more = with_slack(bound, slack, links, contract.interval_min);
            let demand = link.demand(&contract);
            link.reservations.release(demand, bound);
            link.reservations.reserve(demand, more);
            entry.bound = Some(more);
        }
        match before {
            Some(before) => self.send(before, id, Message::Accept { slack }),
            None => self.events.push(Event::Established(id)),
        }
    }

    fn rejected(&mut self, now: Time, (from, id): (Node, ChannelId)) {
        let Some(entry) = self.entries.get(&id) else { return };
        if entry.after() != Some(from) {
            return;
        }
        match entry.state {
            State::Asking => self.refuse(now, id),
            State::Committed => self.break_up(now, id),
            State::Releasing => self.end(now, id),
            State::Breaking => {}
        }
    }

    /// The request is refused: passes that back. A node that misses it retransmits and gets it again.
    fn refuse(&mut self, now: Time, id: ChannelId) {
        let before = self.entries.get(&id).and_then(Entry::before);
        self.end(now, id);
        match before {
            Some(before) => self.send(before, id, Message::Reject),
            None => self.events.push(Event::Refused(id)),
        }
    }

    /// An established channel ends from downstream.
    fn break_up(&mut self, now: Time, id: ChannelId) {
        self.free(id);
        let Some(before) = self.entries.get(&id).and_then(Entry::before) else {
            self.end(now, id);
            self.events.push(Event::Broken(id));
            return;
        };
        if self.lost.contains(&before) {
            self.end(now, id);
            return;
        }
        self.wait_in(now, id, State::Breaking);
    }

    /// A channel ends from upstream: releases, and makes the nodes downstream release.
    fn release(&mut self, now: Time, id: ChannelId) {
        let Some(entry) = self.entries.get(&id) else { return };
        let (after, state) = (entry.after(), entry.state);
        if state == State::Releasing {
            return;
        }
        self.free(id);
        match after.filter(|after| !self.lost.contains(after)) {
            // Below a break there is nothing to release: the break came from there.
            Some(_) if state != State::Breaking => self.wait_in(now, id, State::Releasing),
            _ => self.end(now, id),
        }
    }

    /// Sends the message of `state`, now and periodically.
    fn wait_in(&mut self, now: Time, id: ChannelId, state: State) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.state = state;
            entry.again = now + self.times.retry;
            if let Some(lease) = self.times.lease {
                // By then the neighbour's own lease is over.
                entry.until = now + lease;
            }
        }
        self.repeat(id);
    }

    fn end(&mut self, now: Time, id: ChannelId) {
        self.free(id);
        self.entries.remove(&id);
        self.ended.insert(id, now + self.times.remember);
    }

    /// Whether an entry retransmits something.
    fn waits(&self, entry: &Entry) -> bool {
        match entry.state {
            State::Asking | State::Releasing | State::Breaking => true,
            State::Committed => self.times.lease.is_some() && entry.at == 0,
        }
    }

    /// An entry's retransmission interval.
    fn pause(&self, entry: &Entry) -> Duration {
        match (entry.state, self.times.lease) {
            (State::Committed, Some(lease)) => lease / 4,
            _ => self.times.retry,
        }
    }

    fn repeat(&mut self, id: ChannelId) {
        let Some(entry) = self.entries.get(&id) else { return };
        let (before, after) = (entry.before(), entry.after());
        let sent = match entry.state {
            State::Asking => after.zip(Some(Message::Request {
                contract: entry.contract,
                route: entry.route.clone(),
                at: entry.at + 1,
                left: entry.left,
                horizon: after
                    .and_then(|after| self.links.get(&after))
                    .map_or(Duration::ZERO, |link| link.link.horizon),
            })),
            State::Committed => after.zip(Some(Message::Refresh)),
            State::Releasing => after.zip(Some(Message::Release)),
            State::Breaking => before.zip(Some(Message::Reject)),
        };
        if let Some((to, message)) = sent {
            self.send(to, id, message);
        }
    }

    /// A channel's lease has expired.
    fn lapse(&mut self, now: Time, id: ChannelId) {
        let (state, at) = (self.entries[&id].state, self.entries[&id].at);
        match (state, at) {
            (State::Asking, 0) => self.refuse(now, id),
            (State::Committed, 0) => {
                self.events.push(Event::Broken(id));
                self.release(now, id);
            }
            (State::Asking | State::Committed, _) => self.release(now, id),
            (State::Releasing | State::Breaking, _) => self.end(now, id),
        }
    }

    fn extend(&mut self, now: Time, id: ChannelId) {
        if let (Some(entry), Some(lease)) = (self.entries.get_mut(&id), self.times.lease) {
            entry.until = now + lease;
        }
    }

    fn refreshed_from_above(&mut self, now: Time, (from, id): (Node, ChannelId)) {
        let entry = self.entries.get(&id).filter(|entry| entry.before() == Some(from));
        let standing = entry.is_some_and(|entry| entry.state == State::Committed);
        if !standing {
            self.send(from, id, Message::Reject);
            return;
        }
        self.extend(now, id);
        match self.entries[&id].after() {
            Some(after) => self.send(after, id, Message::Refresh),
            None => self.send(from, id, Message::Refreshed),
        }
    }

    fn refreshed_from_below(&mut self, now: Time, (from, id): (Node, ChannelId)) {
        let entry = self.entries.get(&id).filter(|entry| entry.after() == Some(from));
        let Some(entry) = entry.filter(|entry| entry.state == State::Committed) else { return };
        match entry.before() {
            Some(before) => self.send(before, id, Message::Refreshed),
            None => self.extend(now, id),
        }
    }
}

/// The fields of a request message.
struct Request {
    contract: Contract,
    route: Vec<Node>,
    at: usize,
    left: Duration,
    horizon: Duration,
}
