//! A router of a model that takes part in RSVP: what its links have is reserved hop by hop, and the packets of a flow
//! go by labels.
//!
//! ```text
//! host --> [ first: label pushed ] ==> [ label swapped ] ==> [ last: label popped ] --> host
//!           PATH -->                    PATH -->              to                        not reserved
//!                         <-- RESV                 <-- RESV
//!
//! labelled  | 0x8847 | label, hops | destination | the packet        4 bytes longer, for the next router
//! message   | header of IP | message of RSVP                        for the next router
//! ```
//!
//! Messages are packets of the model: they wait, take time on their wires, and are lost like all others. What a router
//! does with them, and with time, is the machine of the router on Linux ([`super::rsvp`]); so are its queues
//! ([`super::reserved`]) and its accounts ([`super::admission`]).
//!
//! | found | then |
//! |---|---|
//! | a label that it has not told, or that it has told at another link | dropped, `label` |
//! | no hops left | dropped, `hops` |
//! | for this router, and neither a message nor a label | dropped, `malformed` |
//! | a flow of its own that has no tunnel, or not yet | sent like all others, by its destination |

use super::admission::Admission;
use super::ground::{Granted, Here, OWN};
use super::line::Line;
use super::mpls::{self, SHIM_LEN, Shim};
use super::reserved::Promise;
use super::rsvp::machine::{Ground, Machine, State, Tunnel};
use lastmeter_base::{Bytes, Duration, NodeId, Packet, PathId, StageId, Stream, Time};
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// In front of a label, as the type of its frame.
const LABELLED: [u8; 2] = mpls::ETHERTYPE;
/// What is in front of a packet with a label: type, label, destination.
const HEADER_LEN: usize = LABELLED.len() + SHIM_LEN + 4;
/// Hops of a label.
const HOPS: u8 = 64;
/// A tunnel that could not begin is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// When the machine has something to do.
const DUE: TimerId = TimerId(0);
/// When a window begins or ends.
const WINDOW: TimerId = TimerId(1);
/// The first link's wire is free.
const LINE: u32 = 2;

/// The tunnel that begins at a router, and its packets.
pub(super) struct Asks {
    pub(super) tunnel: Tunnel,
    pub(super) to: NodeId,
    pub(super) class: Option<u8>,
}

/// Beginnings and ends of times, in order.
pub(super) type Windows = Vec<(Duration, Duration)>;

/// What a router is given.
pub(super) struct Options {
    pub(super) asks: Option<Asks>,
    /// When the tunnel is asked for; none: always.
    pub(super) asked: Option<Windows>,
    /// When it is without power.
    pub(super) down: Windows,
    pub(super) refresh: Duration,
    /// Limit on the packets of a flow that wait.
    pub(super) waiting: u64,
    /// It has no reservations yet.
    pub(super) here: Here,
    pub(super) lines: Vec<Line>,
    pub(super) random: Stream,
    /// Of its messages in the ledger.
    pub(super) path: PathId,
    /// Where packets wait.
    pub(super) stage: StageId,
}

/// What a router does with a label.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The link at which it was told.
    from: u16,
    /// Where its packets go; none: the label ends here.
    to: Option<Onward>,
}

/// Where packets of a flow go.
#[derive(Clone, Copy, Debug)]
struct Onward {
    link: u16,
    /// The flow's place among the promises of the link.
    at: usize,
    next: NodeId,
    /// The label that the next router has told; none if it wants none.
    label: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    forwarded: u64,
    pushed: u64,
    swapped: u64,
    popped: u64,
    /// Of messages before it was without power.
    past: super::rsvp::machine::Counts,
}

/// The router.
pub(super) struct LabelRouter {
    asks: Option<Asks>,
    asked: Option<Windows>,
    down: Windows,
    refresh: Duration,
    waiting: u64,
    /// None while it is without power.
    machine: Option<Machine>,
    here: Here,
    /// Accounts of which nothing is granted.
    fresh: Admission,
    lines: Vec<Line>,
    labels: BTreeMap<u32, Known>,
    /// Where packets of its own tunnel go, once it is up.
    own: Option<Onward>,
    /// When to try again to begin it.
    again: Option<Time>,
    random: Stream,
    path: PathId,
    stage: StageId,
    counts: Counts,
}

/// Whether a time is in one of these windows.
fn is_in(windows: &[(Duration, Duration)], now: Time) -> bool {
    let now = now.since_start();
    windows.iter().any(|&(from, to)| from <= now && now < to)
}

impl LabelRouter {
    pub(super) fn new(options: Options) -> LabelRouter {
        let Options { asks, asked, down, refresh, waiting, here, lines, random, path, stage } =
            options;
        LabelRouter {
            asks,
            asked,
            down,
            refresh,
            waiting,
            machine: None,
            fresh: here.admission.clone(),
            here,
            lines,
            labels: BTreeMap::new(),
            own: None,
            again: None,
            random,
            path,
            stage,
            counts: Counts::default(),
        }
    }
    /// A window has begun or ended.
    fn turn(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        match (is_in(&self.down, now), &mut self.machine) {
            (true, Some(_)) => self.stop(cx),
            (false, none @ None) => {
                // What it was told before it does not know; others may, so that it begins with other labels.
                *none = Some(Machine::new(self.random.bits(), self.refresh));
            }
            _ => {}
        }
        self.follow(now);
        self.settle(cx);
        let asked = self.asked.as_deref().unwrap_or_default();
        let edges = self.down.iter().chain(asked).flat_map(|&(from, to)| [from, to]);
        if let Some(next) = edges.filter(|edge| *edge > now.since_start()).min() {
            cx.arm(WINDOW, Time::START + next);
        }
    }
    /// It is without power.
    fn stop(&mut self, cx: &mut Context<'_>) {
        self.counts.past = self.messages();
        self.machine = None;
        self.here.admission = self.fresh.clone();
        self.here.granted.clear();
        self.here.out.clear();
        (self.here.state, self.again) = (None, None);
        for line in &mut self.lines {
            for packet in line.clear(cx.now()) {
                cx.drop(packet, Some(self.stage), "down");
            }
            while let Some((packet, reason)) = line.dropped() {
                cx.drop(packet, Some(self.stage), reason);
            }
        }
        self.here.changed = true;
    }
    /// Messages since the beginning.
    fn messages(&self) -> super::rsvp::machine::Counts {
        let past = self.counts.past;
        let own = self.machine.as_ref().map(|machine| machine.counts).unwrap_or_default();
        super::rsvp::machine::Counts {
            received: past.received + own.received,
            wrong: past.wrong + own.wrong,
            sent: past.sent + own.sent,
            expired: past.expired + own.expired,
        }
    }
    /// The tunnel begins and ends with the windows in which it is asked for.
    fn follow(&mut self, now: Time) {
        let (Some(machine), Some(asks)) = (&mut self.machine, &self.asks) else { return };
        let is_asked = self.asked.as_ref().is_none_or(|windows| is_in(windows, now));
        let has_begun = machine.tunnels().next().is_some();
        if !is_asked {
            self.again = None;
            if has_begun {
                machine.end(OWN, &mut self.here);
                self.here.take_back(OWN);
            }
            return;
        }
        if has_begun || self.again.is_some_and(|again| again > now) {
            return;
        }
        self.again = Some(now + AGAIN);
        let Tunnel { route, end, rate, .. } = &asks.tunnel;
        let first: Ipv4Addr = route.first().copied().unwrap_or(*end);
        let Some((link, _)) = self.here.way(first) else { return };
        let granted = Granted { arrives: None, leaves: Some((link, None)), rate: *rate };
        if self.here.grant(OWN, granted).is_err() {
            return;
        }
        machine.begin(now, &asks.tunnel, &mut self.here);
        match machine.tunnels().next() {
            Some(_) => self.again = None,
            None => self.here.take_back(OWN),
        }
    }
    /// What the machine has changed takes effect.
    fn settle(&mut self, cx: &mut Context<'_>) {
        for (link, next, message) in std::mem::take(&mut self.here.out) {
            let mut packet = cx.make(self.path, Bytes(message.len() as u64));
            (packet.destination, packet.entered) = (next, cx.now());
            packet.content.extend_from_slice(&message);
            if let Err(packet) = self.lines[usize::from(link)].control(packet) {
                cx.drop(packet, Some(self.stage), "full");
            }
            self.serve(cx, link);
        }
        if std::mem::take(&mut self.here.changed) {
            self.promise(cx);
        }
        let due = self.machine.as_ref().and_then(Machine::due);
        match due.into_iter().chain(self.again).min() {
            Some(due) => cx.arm(DUE, due.max(cx.now())),
            None => cx.disarm(DUE),
        }
    }
    /// The queues and labels of the flows that have a reservation.
    fn promise(&mut self, cx: &mut Context<'_>) {
        let mut promises: Vec<Vec<Promise>> = self.lines.iter().map(|_| Vec::new()).collect();
        self.labels.clear();
        self.own = None;
        for (flow, granted) in &self.here.granted {
            let mut to = None;
            if let Some((link, label)) = granted.leaves {
                let line = &mut promises[usize::from(link)];
                let next = self.here.peer(link).map_or(NodeId(0), |peer| peer.node);
                to = Some(Onward { link, at: line.len(), next, label });
                let (flow, rate) = (flow.clone(), granted.rate);
                line.push(Promise { flow, rate, packets: self.waiting });
            }
            match (granted.arrives, &self.here.state) {
                (Some((label, from)), _) => drop(self.labels.insert(label, Known { from, to })),
                (None, Some(State::Up(link, _, label))) => {
                    let label = Some(*label).filter(|label| *label != mpls::NONE);
                    let up = to.filter(|to| to.link == *link);
                    self.own = up.map(|to| Onward { label, ..to });
                }
                (None, _) => {}
            }
        }
        for (link, promises) in (0..).zip(promises) {
            for packet in self.lines[usize::from(link)].promise(cx.now(), promises) {
                cx.drop(packet, Some(self.stage), "full");
            }
            self.serve(cx, link);
        }
    }
    /// Sends what may leave by a link.
    fn serve(&mut self, cx: &mut Context<'_>, link: u16) {
        if self.machine.is_none() {
            return;
        }
        let now = cx.now();
        let line = &mut self.lines[usize::from(link)];
        loop {
            let next = line.next(now);
            while let Some((packet, reason)) = line.dropped() {
                cx.drop(packet, Some(self.stage), reason);
            }
            let Some(mut packet) = next else { break };
            if cx.collecting() {
                let waited = now.saturating_since(packet.entered);
                packet.visit(self.stage, waited, Duration::ZERO, Duration::ZERO);
            }
            cx.send(PortId(link), packet);
        }
        if let Some(at) = line.next_at(now) {
            cx.arm(TimerId(LINE + u32::from(link)), at);
        }
    }
    /// A packet of a flow that has a reservation.
    fn onward(&mut self, cx: &mut Context<'_>, to: Onward, packet: Packet) {
        if let Err(packet) = self.lines[usize::from(to.link)].reserved(to.at, packet) {
            return cx.drop(packet, Some(self.stage), "full");
        }
        self.serve(cx, to.link);
    }
    /// A packet without a label.
    fn plain(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let Some(link) = self.here.routes.get(&packet.destination).copied() else {
            return cx.drop(packet, Some(self.stage), "no route");
        };
        self.counts.forwarded += 1;
        if let Err(packet) = self.lines[usize::from(link)].rest(cx.now(), packet) {
            cx.drop(packet, Some(self.stage), "full");
        }
        self.serve(cx, link);
    }
    /// A packet with a label.
    fn labelled(&mut self, cx: &mut Context<'_>, port: u16, mut packet: Packet) {
        let known = read(&packet.content).and_then(|(shim, _)| {
            let known = self.labels.get(&shim.label).filter(|known| known.from == port);
            known.map(|known| (shim, *known))
        });
        let Some((shim, known)) = known else {
            return cx.drop(packet, Some(self.stage), "label");
        };
        if shim.ttl <= 1 {
            return cx.drop(packet, Some(self.stage), "hops");
        }
        match known.to {
            Some(to) if to.label.is_some_and(|label| label != mpls::NONE) => {
                self.counts.swapped += 1;
                let label = to.label.unwrap_or(mpls::NONE);
                rewrite(&mut packet.content, Shim { label, ttl: shim.ttl - 1, ..shim });
                packet.destination = to.next;
                self.onward(cx, to, packet);
            }
            to => {
                self.counts.popped += 1;
                pop(&mut packet);
                match to {
                    // The next router wants packets without a label.
                    Some(to) => self.onward(cx, to, packet),
                    None => self.plain(cx, packet),
                }
            }
        }
    }
}

/// A label in front of a packet, for the next router.
fn push(packet: &mut Packet, label: u32, next: NodeId) {
    let shim = Shim { label, class: 0, bottom: true, ttl: HOPS };
    let destination = packet.destination.0.to_be_bytes();
    let header = LABELLED.into_iter().chain(shim.emit()).chain(destination);
    packet.content.splice(0..0, header);
    packet.len += Bytes(SHIM_LEN as u64);
    packet.destination = next;
}
/// The label of a packet, and the destination behind it.
fn read(content: &[u8]) -> Option<(Shim, NodeId)> {
    let rest = content.strip_prefix(&LABELLED)?;
    let (shim, rest) = (Shim::parse(rest)?, rest.get(SHIM_LEN..)?);
    Some((shim, NodeId(u32::from_be_bytes(*rest.first_chunk()?))))
}
/// Another label in place of that which was read.
fn rewrite(content: &mut [u8], shim: Shim) {
    if let Some(place) = content.get_mut(LABELLED.len()..LABELLED.len() + SHIM_LEN) {
        place.copy_from_slice(&shim.emit());
    }
}
/// Takes the label away, if there is one.
fn pop(packet: &mut Packet) {
    if let Some((_, destination)) = read(&packet.content) {
        packet.content.drain(..HEADER_LEN);
        packet.len = Bytes(packet.len.0.saturating_sub(SHIM_LEN as u64));
        packet.destination = destination;
    }
}

impl Element for LabelRouter {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.turn(cx);
    }
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        let (now, port) = (cx.now(), port.0);
        let Some(machine) = &mut self.machine else {
            return cx.drop(packet, Some(self.stage), "down");
        };
        packet.entered = now;
        if packet.destination == self.here.node {
            // Hosts neither send messages nor labels.
            let content = self.here.peer(port).and(Some(&packet.content));
            match content.and_then(|content| content.first()) {
                Some(first) if *first == LABELLED[0] => self.labelled(cx, port, packet),
                Some(first) if first >> 4 == 4 => {
                    machine.receive(now, port, &packet.content, &mut self.here);
                    cx.deliver(packet);
                    self.settle(cx);
                }
                _ => cx.drop(packet, Some(self.stage), "malformed"),
            }
            return;
        }
        let is_own = |asks: &Asks| {
            packet.destination == asks.to && asks.class.is_none_or(|class| class == packet.class)
        };
        match self.own.filter(|_| self.asks.as_ref().is_some_and(is_own)) {
            Some(to) => {
                if let Some(label) = to.label {
                    self.counts.pushed += 1;
                    push(&mut packet, label, to.next);
                }
                self.onward(cx, to, packet);
            }
            None => self.plain(cx, packet),
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        match timer {
            DUE => {
                if let Some(machine) = &mut self.machine {
                    machine.advance(cx.now(), &mut self.here);
                }
                self.follow(cx.now());
                self.settle(cx);
            }
            WINDOW => self.turn(cx),
            TimerId(line) => self.serve(cx, (line - LINE) as u16),
        }
    }
    fn timers(&self) -> u32 {
        LINE + self.lines.len() as u32
    }
    fn report(&self, out: &mut Report) {
        out.held(self.lines.iter().map(Line::packets).sum());
        let Counts { forwarded, pushed, swapped, popped, .. } = self.counts;
        let messages = self.messages();
        let lines = || self.lines.iter().map(Line::counts);
        let waited = lines().map(|counts| counts.waited_most).max().unwrap_or(0);
        out.count("forwarded", forwarded);
        out.count("pushed", pushed);
        out.count("swapped", swapped);
        out.count("popped", popped);
        out.count("within", lines().map(|counts| counts.within).sum());
        out.count("beyond", lines().map(|counts| counts.beyond).sum());
        out.count("waited", waited.div_ceil(1000));
        out.count("sent", messages.sent);
        out.count("heard", messages.received);
        out.count("wrong", messages.wrong);
        out.count("expired", messages.expired);
        out.count("refused", self.here.refused);
        out.count("ups", self.here.ups);
        out.count("denied", self.here.denied);
        out.count("paths", self.machine.as_ref().map_or(0, |own| own.shown().len() as u64));
        out.count("reserved", self.here.granted.len() as u64);
    }
}

#[cfg(test)]
mod tests;
