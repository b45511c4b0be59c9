//! DTP over UDP at a device: each transaction is executed once and in order, whatever is lost (N-05).
//!
//! ```text
//! transaction 0: greeting 5 | token's length 1 | token    answer: 0 | what the device says | cookie 8;
//!                                                         or 1: refused, 2: only with TLS, which DTP has not
//! transaction 1: the cookie                                answer: 0
//! further:       the device's own commands                 answer: the device's
//! ```
//!
//! Nothing is executed for an address that did not return its cookie.
//!
//! Transactions that have come are worked off together, and their answers leave together. One that takes long is only
//! begun ([`Service::Rest`]), so that those behind it begin, too; one that could change what it sees waits for it. A
//! request acknowledges the answers that need not be kept any more. Whoever was soon served looks for the next datagram
//! for a while before it sleeps, as waking up takes longer than a transaction.
//!
//! A transaction and its answer are one datagram each, which the network cuts if it is long; or, if the client asks so,
//! application data units in fragments that fit ([`framing`]). The device answers in the way in which it was asked.
//!
//! Rows: A-167, N-05.

mod client;
mod line;

pub(crate) use client::Client;
pub(crate) use line::Awake;

use crate::link::unpredictable;
use lastmeter_linux::datagrams::{self, TOGETHER_MAX};
use lastmeter_live::exchange::dtp::{Device, Reaction};
use lastmeter_wire::dtp::{DATA_LEN_MAX, Flags, HEADER_LEN, Packet};
use lastmeter_wire::framing::{self, Fragment, Reassembler};
use line::{Ear, send};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limit on sessions at once.
const SESSIONS_MAX: usize = 64;
/// A client that is silent for this long may be forgotten for another one.
const IDLE: Duration = Duration::from_secs(60);
/// Limit on the bytes of an answer.
pub(crate) const ANSWER_MAX: usize = 60_000;
/// Limit on the answers kept for a client that missed them, and on their bytes.
const KEPT_MAX: (usize, usize) = (256, 1 << 20);
/// Rooms for answers of a client that are kept to be used again.
const SPARE_MAX: usize = 16;
/// The longest datagram, or several that came together.
const DATAGRAM_MAX: usize = 65_535;
/// Calls that look for datagrams before what was begun goes on.
const LOOKS_MAX: usize = 64;
/// Transactions that are begun and not done.
const BEGUN_MAX: usize = 256;
/// A datagram that leaves any network in one piece.
const SHORT: usize = 1400;
/// How long a device looks for the next datagram before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);

const COOKIE_LEN: usize = 8;

/// The longest unit: a packet of DTP.
const UNIT_MAX: usize = HEADER_LEN + DATA_LEN_MAX;
/// Priorities of units of several fragments, and of one, which may overtake one of several on its way.
const LONG_UNIT: u8 = 0;
const SHORT_UNIT: u8 = 1;
/// Session number of our clients.
const CLIENT: u16 = 1;

/// How transactions travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Travel {
    /// Each in a datagram.
    #[default]
    Datagrams,
    /// Each as an application data unit, whose fragments are datagrams.
    Units,
}

/// The datagrams of a unit.
fn fragments(unit: u16, bytes: &[u8]) -> Vec<Vec<u8>> {
    let is_short = bytes.len() + framing::HEADER_LEN + framing::TRAILER_LEN <= SHORT;
    let priority = if is_short { SHORT_UNIT } else { LONG_UNIT };
    // Nobody makes one that is too long.
    framing::datagrams(unit, priority, bytes, SHORT).unwrap_or_default()
}

/// A device whose commands come in transactions.
pub(crate) trait Service {
    /// What a client says first.
    const GREETING: [u8; 5];
    /// What the device knows of a client.
    type Session<'a>
    where
        Self: 'a;
    /// What is left to do of a transaction that was begun.
    type Rest;
    /// A client that shows a token, and what it is told; whether it is on this host.
    ///
    /// # Errors
    /// Why it is refused.
    fn begin(&self, token: &[u8], is_local: bool) -> Result<(Self::Session<'_>, Vec<u8>), Refused>;
    /// Whether a transaction must find those before it done.
    fn is_ordered(&self, commands: &[u8]) -> bool;
    /// Executes the commands of a transaction, whose answer has at most [`ANSWER_MAX`] bytes, or begins to.
    fn execute<'a>(
        &'a self,
        session: &mut Self::Session<'a>,
        commands: &[u8],
        answer: &mut Answer,
    ) -> Option<Self::Rest>;
    /// Goes on with what was begun: whether it is done, which it is if it may `wait`.
    fn finish(&self, rest: &mut Self::Rest, answer: &mut Answer, wait: bool) -> bool;
}

/// Why a client is refused, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The token is not known.
    Unknown = 1,
    /// Its token came in the clear, and not from this host.
    Clear = 2,
}

/// The answer to a transaction, as a datagram. Its room may still have what the same client was answered before.
pub(crate) struct Answer {
    room: Vec<u8>,
    len: usize,
}

impl Answer {
    fn new(mut room: Vec<u8>) -> Answer {
        if room.len() < HEADER_LEN {
            room.resize(HEADER_LEN, 0);
        }
        Answer { room, len: HEADER_LEN }
    }
    /// Adds bytes.
    pub(crate) fn put(&mut self, data: &[u8]) {
        self.room(data.len()).copy_from_slice(data);
    }
    /// Adds so many bytes, all of which the caller writes.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let (begin, end) = (self.len, self.len + len);
        if self.room.len() < end {
            self.room.resize(end, 0);
        }
        self.len = end;
        &mut self.room[begin..end]
    }
    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        self.len = HEADER_LEN;
    }
    /// What was added.
    pub(crate) fn data(&mut self) -> &mut [u8] {
        &mut self.room[HEADER_LEN..self.len]
    }
    fn datagram(&self) -> &[u8] {
        &self.room[..self.len]
    }
    /// Makes it the answer to a request, or the word that one is missing after `missing`.
    fn address(&mut self, to: Asked, missing: Option<u16>) {
        let flags = match missing {
            None => Flags { response: true, ack: true, ..Flags::default() },
            Some(_) => Flags { nak: true, ack: true, ..Flags::default() },
        };
        let Asked { src: dst, dst: src, sequence } = to;
        let packet = Packet {
            src,
            dst,
            sequence,
            acknowledged: missing.unwrap_or(sequence),
            flags,
            data: &[],
        };
        // Of no data it has no more than a header's bytes; the length stands in its last two.
        let head = packet.emit().unwrap_or_default();
        self.room[..head.len().min(HEADER_LEN)].copy_from_slice(&head);
        let len = u16::try_from(self.len - HEADER_LEN).unwrap_or(0);
        self.room[HEADER_LEN - 2..HEADER_LEN].copy_from_slice(&len.to_be_bytes());
    }
}

/// What an answer needs to know of a request.
#[derive(Clone, Copy)]
struct Asked {
    src: u16,
    dst: u16,
    sequence: u16,
}

impl Asked {
    fn of(packet: &Packet<'_>) -> Asked {
        Asked { src: packet.src, dst: packet.dst, sequence: packet.sequence }
    }
}

struct Session<T> {
    device: Device,
    own: T,
    cookie: [u8; COOKIE_LEN],
    proved: bool,
    /// What was answered, oldest first; what has not left yet is also there.
    kept: VecDeque<(u16, Rc<Answer>)>,
    /// Bytes of their rooms.
    bytes: usize,
    spare: Vec<Vec<u8>>,
    heard: Instant,
    /// Units that are not whole yet.
    units: Reassembler,
    /// How it asked last.
    travel: Travel,
}

impl<T> Session<T> {
    fn answer(&mut self) -> Answer {
        Answer::new(self.spare.pop().unwrap_or_default())
    }
    /// Keeps an answer to a request, as it leaves.
    fn keep(&mut self, asked: Asked, mut answer: Answer) -> Rc<Answer> {
        answer.address(asked, None);
        let answer = Rc::new(answer);
        self.bytes += answer.room.len();
        self.kept.push_back((asked.sequence, answer.clone()));
        while self.kept.len() > KEPT_MAX.0 || self.bytes > KEPT_MAX.1 {
            self.forget();
        }
        answer
    }
    /// Gives the oldest one up.
    fn forget(&mut self) {
        let Some((_, answer)) = self.kept.pop_front() else { return };
        self.bytes -= answer.room.len();
        if self.spare.len() < SPARE_MAX
            && let Some(answer) = Rc::into_inner(answer)
        {
            self.spare.push(answer.room);
        }
    }
    /// The client has all answers up to this one.
    fn received(&mut self, last: u16) {
        let is_before = |number: u16| last.wrapping_sub(number) < u16::MAX / 2;
        while self.kept.front().is_some_and(|(number, _)| is_before(*number)) {
            self.forget();
        }
    }
    /// Whether the client has shown its cookie, or does so now.
    fn admits(&mut self, packet: &Packet<'_>) -> bool {
        if !self.proved && packet.sequence == 1 && packet.data == self.cookie {
            self.proved = true;
        }
        self.proved || packet.sequence == 0
    }
}

/// A client's address and number.
type Key = (SocketAddr, u16);

/// A transaction that was begun.
struct Begun<R> {
    key: Key,
    asked: Asked,
    rest: R,
    answer: Answer,
}

struct Serving<'a, S: Service> {
    service: &'a S,
    sessions: HashMap<Key, Session<S::Session<'a>>>,
    begun: VecDeque<Begun<S::Rest>>,
    /// What leaves next.
    out: Vec<(SocketAddr, Travel, Rc<Answer>)>,
    /// Units that have left.
    units: u16,
    now: Instant,
}

/// Serves clients until the socket fails.
///
/// # Errors
/// Why it failed.
pub(crate) fn serve<S: Service>(
    service: &S,
    socket: &UdpSocket,
    awake: Arc<Awake>,
) -> Result<(), String> {
    // Without it each datagram comes alone.
    let _ = datagrams::take_together(socket.as_fd());
    let (sessions, begun, out) = (HashMap::new(), VecDeque::new(), Vec::new());
    let mut serving = Serving { service, sessions, begun, out, units: 0, now: Instant::now() };
    let (mut ear, mut buffer) = (Ear::new(awake, AWAKE), vec![0; DATAGRAM_MAX]);
    loop {
        for look in 0..LOOKS_MAX {
            let received = match look == 0 && serving.begun.is_empty() {
                true => ear.receive(socket, &mut buffer),
                false => datagrams::receive(socket.as_fd(), &mut buffer, false),
            };
            let received = match received {
                Ok(received) => received,
                // What an earlier answer met; and nothing is there.
                Err(error) => match error.kind() {
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock => break,
                    _ => return Err(format!("datagrams: {error}")),
                },
            };
            serving.now = Instant::now();
            let Some(from) = received.from else { continue };
            let all = buffer[..received.len].chunks(received.segment.max(1));
            all.for_each(|datagram| serving.hear(datagram, from));
            if serving.out.len() >= TOGETHER_MAX {
                break;
            }
        }
        serving.leave(socket);
        serving.go_on();
        serving.leave(socket);
    }
}

impl<'a, S: Service> Serving<'a, S> {
    /// A datagram, or one with a fragment.
    fn hear(&mut self, datagram: &[u8], from: SocketAddr) {
        match framing::parse(datagram) {
            Ok((fragment, [])) => {
                if let Some(unit) = self.gather(&fragment, from) {
                    self.take(&unit, from, Travel::Units);
                }
            }
            _ => self.take(datagram, from, Travel::Datagrams),
        }
    }
    /// The unit that a fragment completes. Who did not return a cookie gets no memory: its units are short.
    fn gather(&mut self, fragment: &Fragment<'_>, from: SocketAddr) -> Option<Vec<u8>> {
        let whole = fragment.start && fragment.end.is_some();
        let session = self.sessions.get_mut(&(from, CLIENT)).filter(|session| session.proved);
        let arrived = match session {
            Some(session) if fragment.priority <= SHORT_UNIT => session.units.take(fragment),
            None if whole => Reassembler::limited(SHORT).take(fragment),
            _ => None,
        };
        arrived.map(|unit| unit.data)
    }
    /// A transaction.
    fn take(&mut self, bytes: &[u8], from: SocketAddr, travel: Travel) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        let key = (from, packet.src);
        if !packet.flags.request {
            return;
        }
        let Some(session) = self.sessions.get_mut(&key) else {
            if packet.sequence == 0 {
                self.open(key, &packet, travel);
            }
            return;
        };
        if !session.admits(&packet) {
            return;
        }
        let ordered = !self.begun.is_empty() && self.service.is_ordered(packet.data);
        let most = if ordered { 0 } else { BEGUN_MAX - 1 };
        while self.begun.len() > most {
            self.finish(true);
        }
        let Some(session) = self.sessions.get_mut(&key) else { return };
        (session.heard, session.travel) = (self.now, travel);
        if packet.flags.ack {
            session.received(packet.acknowledged);
        }
        let asked = Asked::of(&packet);
        let answer = match session.device.react(packet.sequence) {
            Reaction::Execute => {
                let mut answer = session.answer();
                if packet.sequence == 1 && packet.data == session.cookie {
                    answer.put(&[0]);
                } else if let Some(rest) =
                    self.service.execute(&mut session.own, packet.data, &mut answer)
                {
                    return self.begun.push_back(Begun { key, asked, rest, answer });
                }
                session.keep(asked, answer)
            }
            Reaction::Repeat => {
                let mut kept = session.kept.iter().rev();
                let Some(kept) = kept.find(|(number, _)| *number == packet.sequence) else {
                    return;
                };
                kept.1.clone()
            }
            Reaction::Missing(last) => {
                let mut answer = Answer::new(Vec::new());
                answer.address(asked, Some(last));
                Rc::new(answer)
            }
        };
        self.out.push((from, travel, answer));
    }
    /// A client's first transaction.
    fn open(&mut self, key: Key, packet: &Packet<'_>, travel: Travel) {
        let Some(token) = greeting::<S>(packet.data) else { return };
        if self.sessions.len() >= SESSIONS_MAX && !self.make_room() {
            return;
        }
        let is_local = key.0.ip().to_canonical().is_loopback();
        let asked = Asked::of(packet);
        let mut answer = Answer::new(Vec::new());
        let (own, hello) = match self.service.begin(token, is_local) {
            Ok(begun) => begun,
            Err(refused) => {
                answer.put(&[refused as u8]);
                answer.address(asked, None);
                return self.out.push((key.0, travel, Rc::new(answer)));
            }
        };
        let Ok(random) = unpredictable() else { return };
        let cookie: [u8; COOKIE_LEN] = std::array::from_fn(|at| random[at]);
        [&[0][..], &hello, &cookie].into_iter().for_each(|part| answer.put(part));
        let mut session = Session {
            device: Device::default(),
            own,
            cookie,
            proved: false,
            kept: VecDeque::new(),
            bytes: 0,
            spare: Vec::new(),
            heard: self.now,
            units: Reassembler::limited(UNIT_MAX),
            travel,
        };
        session.device.react(0);
        self.out.push((key.0, travel, session.keep(asked, answer)));
        self.sessions.insert(key, session);
    }
    /// Forgets a client that proved nothing, or else one that has been silent for long; whether there is one.
    fn make_room(&mut self) -> bool {
        let now = self.now;
        let spare = |proved: bool, heard: Instant| !proved || now - heard > IDLE;
        let found = self.sessions.iter().filter(|(_, one)| spare(one.proved, one.heard));
        let oldest = found.min_by_key(|(_, one)| (one.proved, one.heard)).map(|(key, _)| *key);
        let Some(oldest) = oldest else { return false };
        self.sessions.remove(&oldest);
        self.begun.retain(|begun| begun.key != oldest);
        true
    }
    /// Goes on with the oldest that was begun: whether it is done.
    fn finish(&mut self, wait: bool) -> bool {
        let Some(first) = self.begun.front_mut() else { return false };
        if !self.service.finish(&mut first.rest, &mut first.answer, wait) {
            return false;
        }
        if let Some(Begun { key, asked, answer, .. }) = self.begun.pop_front()
            && let Some(session) = self.sessions.get_mut(&key)
        {
            self.out.push((key.0, session.travel, session.keep(asked, answer)));
        }
        true
    }
    /// Waits for the oldest that was begun; what else is done by then is answered with it.
    fn go_on(&mut self) {
        let mut more = self.finish(true);
        while more && self.out.len() < TOGETHER_MAX {
            more = self.finish(false);
        }
    }
    /// Sends all answers.
    fn leave(&mut self, socket: &UdpSocket) {
        let mut rest = &self.out[..];
        while let Some((to, travel, answer)) = rest.first() {
            let alike = |(other, way, _): &&(SocketAddr, Travel, Rc<Answer>)| {
                (other, way) == (to, &Travel::Datagrams)
            };
            let count = rest.iter().take_while(alike).count().max(1);
            let (now, after) = rest.split_at(count);
            let parts = match travel {
                Travel::Datagrams => Vec::new(),
                Travel::Units => fragments(self.units, answer.datagram()),
            };
            self.units = self.units.wrapping_add(u16::from(!parts.is_empty()));
            let all: Vec<IoSlice<'_>> = match travel {
                Travel::Datagrams => {
                    now.iter().map(|(.., answer)| IoSlice::new(answer.datagram())).collect()
                }
                Travel::Units => parts.iter().map(|part| IoSlice::new(part)).collect(),
            };
            send(socket, &all, Some(*to), to.ip().to_canonical().is_loopback());
            rest = after;
        }
        self.out.clear();
    }
}

/// The token of a client's first transaction.
fn greeting<S: Service>(data: &[u8]) -> Option<&[u8]> {
    let (len, rest) = data.strip_prefix(&S::GREETING)?.split_first()?;
    rest.get(..usize::from(*len))
}

/// A line between a client and a device that loses a third of the datagrams of either direction.
#[cfg(test)]
pub(crate) fn lossy(to: SocketAddr) -> SocketAddr {
    use lastmeter_base::Stream as Random;
    let front = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let back = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    back.connect(to).expect("connected");
    for socket in [&front, &back] {
        socket.set_read_timeout(Some(Duration::from_micros(200))).expect("set");
    }
    let address = front.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut random, mut program, mut buffer) = (Random::new(5, "loss"), None, [0; 65_535]);
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            if let Ok((len, from)) = front.recv_from(&mut buffer) {
                program = Some(from);
                if random.below(3) > 0 {
                    let _ = back.send(&buffer[..len]);
                }
            }
            if let (Ok(len), Some(program)) = (back.recv(&mut buffer), program)
                && random.below(3) > 0
            {
                let _ = front.send_to(&buffer[..len], program);
            }
        }
    });
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_has_is_not_kept_and_its_room_is_used_again() {
        let mut session = Session {
            device: Device::default(),
            own: (),
            cookie: [0; COOKIE_LEN],
            proved: true,
            kept: VecDeque::new(),
            bytes: 0,
            spare: Vec::new(),
            heard: Instant::now(),
            units: Reassembler::limited(UNIT_MAX),
            travel: Travel::Datagrams,
        };
        // Numbers wrap.
        let first = u16::MAX - 2;
        for at in 0..6 {
            let mut answer = session.answer();
            answer.put(&[at as u8; 100]);
            session.keep(Asked { src: 1, dst: 2, sequence: first.wrapping_add(at) }, answer);
        }
        session.received(first.wrapping_add(3));
        let left: Vec<u16> = session.kept.iter().map(|(number, _)| *number).collect();
        assert_eq!(left, [1, 2]);
        assert_eq!((session.bytes, session.spare.len()), (2 * (HEADER_LEN + 100), 4));
        assert_eq!(session.answer().data(), [0; 0]);
        for at in 0..2000 {
            let mut answer = session.answer();
            answer.put(&[0; 50_000]);
            session.keep(Asked { src: 1, dst: 2, sequence: at }, answer);
            assert!(session.bytes <= KEPT_MAX.1 && session.spare.len() <= SPARE_MAX);
        }
    }
}
