//! What a router does with messages of RSVP-TE and time: paths and reservations in soft state, of which none stays
//! that is not refreshed.
//!
//! ```text
//! PATH --> path noted, PATH onward          RESV --> admitted, label told, RESV back
//!          at the end: admitted, RESV back           refused: RESVERR onward, PATHERR back
//! not refreshed for 5.25 refreshes, torn down, route gone: released, PATHTEAR onward, RESVTEAR back
//! ```
//!
//! A router that cannot admit a reservation tells both ends: RESVERR goes to the end of the tunnel, as RFC 2205 §3.8
//! asks, where it takes the reservation back; and PATHERR to its beginning, which would otherwise know it by silence
//! alone. A reservation that was refused is tried again with each refresh of its path.
//!
//! Full: at most [`PATHS_MAX`] paths. Late: refreshes come between 0.5 and 1.5 times the period, by chance (RFC 2205
//! §3.7), and what is not refreshed for (3 + 0.5) · 1.5 periods goes.
//!
//! The machine reads no clock and opens no socket: what it needs of the router is [`Ground`].

mod hear;
mod refresh;

use super::message::{
    Fault, Hop, Kind, Message, PAYLOAD_IP, Sender, Session, Step, Traffic, Wanted, fault,
};
use super::{ALERT, PROTOCOL};
use crate::labels::mpls;
use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
use lastmeter_wire::internet::ipv4;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Limit on paths.
pub const PATHS_MAX: usize = 256;
/// The first label that is told to others; those below are for flows of `router.toml`.
pub const LABEL_FIRST: u32 = 1 << 19;
/// The period of refreshes of routers that do not tell theirs, in milliseconds (RFC 2205 §3.7).
const REFRESH: u32 = 30_000;
/// Bounds on what others tell.
const REFRESH_MIN: u32 = 50;
const REFRESH_MAX: u32 = 600_000;
/// (K + 0.5) · 1.5 with K = 3 (RFC 2205 §3.7).
const LIFETIME: (u64, u64) = (21, 4);
/// Hops of a tunnel.
const HOPS: u8 = 64;
/// The shortest packet that counts.
const SHORTEST: u32 = 20;

/// A tunnel that is set up for a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The flow's name.
    pub flow: String,
    /// The router where it ends.
    pub end: Ipv4Addr,
    /// Routers that it visits, in order.
    pub route: Vec<Ipv4Addr>,
    /// What it reserves.
    pub rate: Rate,
    /// What its source may send at once.
    pub burst: Bytes,
}

/// A reservation that a router makes for a tunnel that passes it, or ends there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit {
    /// The flow's name.
    pub flow: String,
    /// Its packets arrive with this label, at this port.
    pub label: u32,
    /// The port.
    pub from: u16,
    /// They leave to this router, with this label; absent at the end of the tunnel.
    pub next: Option<(Ipv4Addr, u32)>,
    /// What is reserved.
    pub rate: Rate,
    /// What may come at once.
    pub burst: Bytes,
}

/// How it is with a tunnel that begins here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is being asked for; why it is not there, if that is known.
    Asked(Option<String>),
    /// Its packets go to this router at this port, with this label.
    Up(u16, Ipv4Addr, u32),
}

/// What the machine needs of its router.
pub trait Ground {
    /// Whether an address is one of the router's.
    fn is_own(&self, address: Ipv4Addr) -> bool;
    /// The router's address on a port that takes messages.
    fn address(&self, port: u16) -> Option<Ipv4Addr>;
    /// The port and the next router by which an address is reached.
    fn way(&mut self, to: Ipv4Addr) -> Option<(u16, Ipv4Addr)>;
    /// Reserves, or changes what is reserved.
    ///
    /// # Errors
    /// Why not; nothing is reserved then.
    fn admit(&mut self, wanted: &Admit) -> Result<(), String>;
    /// Whether that is still so.
    fn has(&self, flow: &str) -> bool;
    /// Takes a reservation back.
    fn release(&mut self, flow: &str, why: &str);
    /// A tunnel that begins here is in another state; none: it is gone.
    fn tell(&mut self, flow: &str, state: Option<State>);
    /// Sends a packet to a neighbour.
    fn send(&mut self, port: u16, to: Ipv4Addr, packet: Vec<u8>);
}

/// A path, and the reservation for it.
type Key = (Session, Sender);

/// A router next to this one on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    port: u16,
    hop: Hop,
}

/// A reservation as the router behind has told it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    label: u32,
    wanted: Wanted,
    until: Time,
}

#[derive(Debug)]
struct Path {
    /// The flow's name here.
    flow: String,
    /// The tunnel, if it begins here.
    begins: Option<Tunnel>,
    name: Option<String>,
    traffic: Traffic,
    hops: u8,
    /// The router before; absent where it begins.
    before: Option<Peer>,
    /// The router behind; absent where it ends, or while no route leads there.
    behind: Option<Peer>,
    /// The steps for the router behind.
    route: Vec<Step>,
    /// As they came.
    asked: Vec<Step>,
    until: Option<Time>,
    told: Option<Told>,
    /// Its label here.
    label: Option<u32>,
    /// Whether it is admitted here.
    admitted: bool,
    path_at: Time,
    resv_at: Time,
}

impl Path {
    fn ends_here(&self) -> bool {
        self.behind.is_none() && self.begins.is_none()
    }
}

/// What can be seen of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The flow's name.
    pub flow: String,
    /// The tunnel.
    pub session: Session,
    /// The path.
    pub sender: Sender,
    /// The router before, and the one behind.
    pub peers: [Option<Ipv4Addr>; 2],
    /// The label here, and the one behind.
    pub labels: [Option<u32>; 2],
    /// Whether it is admitted.
    pub admitted: bool,
}

/// Counts of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read.
    pub received: u64,
    /// Not read: no messages, or not what RSVP allows.
    pub wrong: u64,
    /// Sent.
    pub sent: u64,
    /// Paths and reservations that were not refreshed.
    pub expired: u64,
}

/// The state of a router.
#[derive(Debug)]
pub struct Machine {
    paths: BTreeMap<Key, Path>,
    labels: BTreeSet<u32>,
    next_label: u32,
    next_tunnel: u16,
    refresh: Duration,
    random: Stream,
    /// Messages.
    pub counts: Counts,
}

impl Machine {
    /// With this period of refreshes. Labels and numbers begin anywhere, so that a router that was started again does
    /// not tell those of before.
    pub fn new(seed: u64, refresh: Duration) -> Machine {
        let mut random = Stream::new(seed, "rsvp");
        let next_label =
            LABEL_FIRST + random.below(u64::from(mpls::LABEL_MAX - LABEL_FIRST)) as u32;
        let next_tunnel = random.below(1 << 16) as u16;
        let (paths, labels, counts) = (BTreeMap::new(), BTreeSet::new(), Counts::default());
        let mut machine =
            Machine { paths, labels, next_label, next_tunnel, refresh, random, counts };
        machine.set_refresh(refresh);
        machine
    }
    /// Changes the period of refreshes.
    pub fn set_refresh(&mut self, refresh: Duration) {
        let ms = |ms: u32| Duration::from_ms(ms.into());
        self.refresh = refresh.clamp(ms(REFRESH_MIN), ms(REFRESH_MAX));
    }
    /// The paths.
    pub fn shown(&self) -> Vec<Shown> {
        let shown = |((session, sender), path): (&Key, &Path)| Shown {
            flow: path.flow.clone(),
            session: *session,
            sender: *sender,
            peers: [path.before, path.behind].map(|peer| peer.map(|peer| peer.hop.address)),
            labels: [path.label, path.told.map(|told| told.label)],
            admitted: path.admitted,
        };
        self.paths.iter().map(shown).collect()
    }
    /// Tunnels that begin here.
    pub fn tunnels(&self) -> impl Iterator<Item = &Tunnel> {
        self.paths.values().filter_map(|path| path.begins.as_ref())
    }

    /// A tunnel is to begin here.
    pub fn begin(&mut self, now: Time, tunnel: &Tunnel, ground: &mut dyn Ground) {
        let first = tunnel.route.first().copied().unwrap_or(tunnel.end);
        let way = ground.way(first);
        let own = way.and_then(|(port, _)| ground.address(port));
        let refused = |why: String| Some(State::Asked(Some(why)));
        let Some(own) = own.filter(|_| self.paths.len() < PATHS_MAX) else {
            let why = match way {
                None => format!("no route leads to {first}"),
                Some(_) if self.paths.len() >= PATHS_MAX => format!("there are {PATHS_MAX} paths"),
                Some(_) => "the port towards it takes no labels, or has no address".to_owned(),
            };
            return ground.tell(&tunnel.flow, refused(why));
        };
        self.next_tunnel = self.next_tunnel.wrapping_add(1);
        let session = Session { end: tunnel.end, tunnel: self.next_tunnel, extended: own };
        let sender = Sender { from: own, path: 1 };
        let bytes = |rate: Rate| rate.as_bits() as f32 / 8.0;
        let rate = bytes(tunnel.rate);
        let traffic = Traffic {
            rate,
            bucket: tunnel.burst.0 as f32,
            peak: f32::INFINITY,
            shortest: SHORTEST,
            longest: tunnel.burst.0.min(1500) as u32,
        };
        let step = |address: &Ipv4Addr| Step { loose: true, address: *address, len: 32 };
        let path = Path {
            flow: tunnel.flow.clone(),
            begins: Some(tunnel.clone()),
            name: Some(tunnel.flow.clone()),
            traffic,
            hops: HOPS,
            before: None,
            behind: None,
            route: Vec::new(),
            asked: tunnel.route.iter().map(step).collect(),
            until: None,
            told: None,
            label: None,
            admitted: false,
            path_at: now,
            resv_at: now,
        };
        self.paths.insert((session, sender), path);
        ground.tell(&tunnel.flow, Some(State::Asked(None)));
        self.onward(now, (session, sender), ground);
    }

    /// A tunnel that begins here ends.
    pub fn end(&mut self, flow: &str, ground: &mut dyn Ground) {
        let is_it = |path: &Path| path.begins.as_ref().is_some_and(|tunnel| tunnel.flow == flow);
        let key = self.paths.iter().find(|(_, path)| is_it(path)).map(|(key, _)| *key);
        if let Some(key) = key {
            self.remove(key, "its flow has ended", ground);
        }
        ground.tell(flow, None);
    }

    /// The router ends: those next to it are told, and need not wait for silence.
    pub fn leave(&mut self, ground: &mut dyn Ground) {
        let all: Vec<(Key, Option<Peer>, Option<Peer>)> = self
            .paths
            .iter()
            .map(|(key, path)| (*key, path.before.filter(|_| path.admitted), path.behind))
            .collect();
        for (key, before, behind) in all {
            for (kind, peer) in [(Kind::ResvTear, before), (Kind::PathTear, behind)] {
                let Some(peer) = peer else { continue };
                if let Some(message) = Machine::message(kind, key, peer, ground) {
                    self.send(peer, &message, ground);
                }
            }
        }
    }

    /// A packet with a message has arrived at a port.
    pub fn receive(&mut self, now: Time, port: u16, packet: &[u8], ground: &mut dyn Ground) {
        let packet = ipv4::Packet::parse(packet).ok();
        let message = packet.and_then(|packet| Message::parse(packet.payload).ok());
        let good = message.is_some_and(|message| match message.kind {
            Kind::Path => self.path(now, port, &message, ground).is_some(),
            Kind::Resv => self.resv(now, port, &message, ground).is_some(),
            Kind::PathErr => self.path_err(port, message, ground).is_some(),
            Kind::ResvErr => self.resv_err(port, message, ground).is_some(),
            Kind::PathTear => self.path_tear(port, &message, ground).is_some(),
            Kind::ResvTear => self.resv_tear(port, &message, ground).is_some(),
        });
        *(if good { &mut self.counts.received } else { &mut self.counts.wrong }) += 1;
    }

    fn new_label(&mut self) -> Option<u32> {
        let count = mpls::LABEL_MAX - LABEL_FIRST + 1;
        for _ in 0..=self.labels.len() {
            let label = self.next_label;
            self.next_label = LABEL_FIRST + (label + 1 - LABEL_FIRST) % count;
            if self.labels.insert(label) {
                return Some(label);
            }
        }
        None
    }

    fn send(&mut self, peer: Peer, message: &Message, ground: &mut dyn Ground) {
        let Some(own) = ground.address(peer.port) else { return };
        let payload = message.emit();
        let (src, dst, options): (_, _, &[u8]) = match (message.kind.is_alert(), message.sender) {
            (true, Some(sender)) => (sender.from, message.session.end, &ALERT),
            _ => (own, peer.hop.address, &[]),
        };
        // Internetwork control, as of routing protocols.
        const CONTROL: u8 = 0xc0;
        let header = ipv4::Header {
            traffic_class: CONTROL,
            time_to_live: message.hops,
            ..ipv4::Header::new(src, dst, PROTOCOL)
        };
        let mut packet = Vec::with_capacity(24 + payload.len());
        if header.emit_with_options(options, payload.len(), &mut packet).is_ok() {
            packet.extend(payload);
            self.counts.sent += 1;
            ground.send(peer.port, peer.hop.address, packet);
        }
    }
    /// A message of this router about a path, to a peer.
    fn message(kind: Kind, key: Key, peer: Peer, ground: &dyn Ground) -> Option<Message> {
        let address = ground.address(peer.port)?;
        // Our name for the interface, or what the peer calls its own.
        let handle = match kind {
            Kind::Path | Kind::PathTear => u32::from(peer.port),
            _ => peer.hop.handle,
        };
        let mut message = Message::new(kind, key.0);
        message.sender = Some(key.1);
        message.hop = Some(Hop { address, handle });
        Some(message)
    }
    /// Tells the router before that something is wrong.
    fn complain(&mut self, key: Key, before: Peer, (code, value): (u8, u16), g: &mut dyn Ground) {
        let Some(path) = self.paths.get(&key) else { return };
        let Some(at) = g.address(before.port) else { return };
        let mut message = Message::new(Kind::PathErr, key.0);
        message.sender = Some(key.1);
        message.fault = Some(Fault { at, flags: 0, code, value });
        message.traffic = Some(path.traffic);
        self.send(before, &message, g);
    }

    /// Where a path goes on: nowhere if it ends here.
    fn find(asked: &[Step], end: Ipv4Addr, ground: &mut dyn Ground) -> Result<Way, (u8, u16)> {
        let own = |step: &&Step| step.len == 32 && ground.is_own(step.address);
        let passed = asked.iter().take_while(own).count();
        let rest = &asked[passed..];
        if rest.is_empty() && ground.is_own(end) {
            return Ok(None);
        }
        let (to, loose) = rest.first().map_or((end, true), |step| (step.address, step.loose));
        let routing = |value| (fault::ROUTING, value);
        let (port, next) = ground.way(to).ok_or(routing(fault::NO_ROUTE))?;
        if next != to && !loose {
            return Err(routing(fault::BAD_STRICT));
        }
        let mut route = rest.to_vec();
        // The next router has to find itself first.
        if !route.is_empty() && next != to {
            route.insert(0, Step { loose: false, address: next, len: 32 });
        }
        Ok(Some((port, next, route)))
    }

    /// Sends a path on, by the way that the routes have now.
    fn onward(&mut self, now: Time, key: Key, ground: &mut dyn Ground) {
        let later = self.later(now);
        let refresh = self.refresh_ms();
        let Some(path) = self.paths.get_mut(&key) else { return };
        path.path_at = later;
        let found = Machine::find(&path.asked, key.0.end, ground);
        let before = path.before;
        let (port, next, route) = match found {
            Ok(Some((port, next, _)))
                if before
                    .is_some_and(|before| (before.port, before.hop.address) == (port, next)) =>
            {
                return self.astray(key, (fault::ROUTING, fault::NO_ROUTE), ground);
            }
            Ok(Some(way)) => way,
            // The end has become this router, or the other way round: the next PATH sorts it out.
            Ok(None) => return,
            Err(why) => return self.astray(key, why, ground),
        };
        let peer = Peer { port, hop: Hop { address: next, handle: u32::from(port) } };
        let moved = path.behind.is_some_and(|old| (old.port, old.hop.address) != (port, next));
        if moved {
            self.unreserve(key, "its route has changed", ground);
        }
        let Some(path) = self.paths.get_mut(&key) else { return };
        (path.behind, path.route) = (Some(peer), route);
        let Some(mut message) = Machine::message(Kind::Path, key, peer, ground) else { return };
        message.hops = path.hops;
        message.refresh = Some(refresh);
        message.route = Some(path.route.clone()).filter(|route| !route.is_empty());
        message.payload = Some(PAYLOAD_IP);
        message.name = path.name.clone();
        message.traffic = Some(path.traffic);
        self.send(peer, &message, ground);
    }
    /// A path cannot go on.
    fn astray(&mut self, key: Key, why: (u8, u16), ground: &mut dyn Ground) {
        self.unreserve(key, "no route leads to its end", ground);
        let Some(path) = self.paths.get(&key) else { return };
        match (path.before, &path.begins) {
            (Some(before), _) => self.complain(key, before, why, ground),
            (None, Some(tunnel)) => {
                let why = format!("no route leads to {}", tunnel.end);
                ground.tell(&tunnel.flow, Some(State::Asked(Some(why))));
            }
            (None, None) => {}
        }
    }
    /// Tells the router before that its path is reserved.
    fn back(&mut self, now: Time, key: Key, ground: &mut dyn Ground) {
        let later = self.later(now);
        let refresh = self.refresh_ms();
        let Some(path) = self.paths.get_mut(&key) else { return };
        path.resv_at = later;
        let (Some(before), Some(label), true) = (path.before, path.label, path.admitted) else {
            return;
        };
        let wanted = path.told.map(|told| told.wanted);
        let wanted = wanted.unwrap_or(Wanted { traffic: path.traffic, guaranteed: None });
        let Some(mut message) = Machine::message(Kind::Resv, key, before, ground) else { return };
        message.refresh = Some(refresh);
        message.wanted = Some(wanted);
        message.label = Some(label);
        self.send(before, &message, ground);
    }

    /// Reserves here, and tells the router before; whether it is admitted.
    fn admit(&mut self, now: Time, key: Key, g: &mut dyn Ground) -> Result<(), (u8, u16)> {
        if self.paths.get(&key).is_some_and(|path| path.label.is_none()) {
            let label = self.new_label().ok_or((fault::ROUTING, fault::NO_LABEL))?;
            if let Some(path) = self.paths.get_mut(&key) {
                path.label = Some(label);
            }
        }
        let Some(path) = self.paths.get_mut(&key) else { return Ok(()) };
        let (Some(label), Some(before)) = (path.label, path.before) else { return Ok(()) };
        let own = Wanted { traffic: path.traffic, guaranteed: None };
        let wanted = path.told.map_or(own, |told| told.wanted);
        let next = path.behind.zip(path.told).map(|(peer, told)| (peer.hop.address, told.label));
        let admit = Admit {
            flow: path.flow.clone(),
            label,
            from: before.port,
            next,
            rate: Rate::from_bits((f64::from(wanted.rate()) * 8.0).ceil().max(1.0) as u64),
            burst: Bytes((f64::from(wanted.traffic.bucket).ceil() as u64).clamp(1, 1 << 20)),
        };
        let admitted = g.admit(&admit);
        path.admitted = admitted.is_ok();
        admitted.map_err(|_| (fault::ADMISSION, fault::BANDWIDTH))?;
        self.back(now, key, g);
        Ok(())
    }

    /// What was reserved for a path is released here; whether anything was.
    fn release(&mut self, key: Key, why: &str, ground: &mut dyn Ground) -> bool {
        let Some(path) = self.paths.get_mut(&key) else { return false };
        let was = std::mem::take(&mut path.admitted);
        path.told = None;
        match &path.begins {
            _ if !was => {}
            Some(tunnel) => {
                ground.tell(&tunnel.flow, Some(State::Asked(Some(why.to_owned()))));
            }
            None => ground.release(&path.flow, why),
        }
        was
    }

    /// The same, and the router before is told.
    fn unreserve(&mut self, key: Key, why: &str, ground: &mut dyn Ground) {
        if !self.release(key, why, ground) {
            return;
        }
        let before = self.paths.get(&key).and_then(|path| path.before);
        let message = |before| Machine::message(Kind::ResvTear, key, before, ground);
        if let Some((before, message)) = before.and_then(|before| Some((before, message(before)?)))
        {
            self.send(before, &message, ground);
        }
    }

    /// A path goes, with its reservation; those behind are told.
    fn remove(&mut self, key: Key, why: &str, ground: &mut dyn Ground) {
        self.release(key, why, ground);
        let Some(path) = self.paths.remove(&key) else { return };
        if let Some(label) = path.label {
            self.labels.remove(&label);
        }
        let Some(behind) = path.behind else { return };
        if let Some(mut message) = Machine::message(Kind::PathTear, key, behind, ground) {
            message.traffic = Some(path.traffic);
            message.hops = path.hops;
            self.send(behind, &message, ground);
        }
    }
}

/// Port, next router and the steps for it.
type Way = Option<(u16, Ipv4Addr, Vec<Step>)>;

/// The name of a path's flow at routers that it passes.
pub fn flow_name((session, sender): &Key) -> String {
    let Session { end, tunnel, extended } = session;
    let Sender { from, path } = sender;
    let mut text = format!("lsp-{extended}-{tunnel}-{end}");
    if extended != from || *path != 1 {
        text += &format!("-{from}-{path}");
    }
    text.replace('.', "-")
}

#[cfg(test)]
mod tests;
