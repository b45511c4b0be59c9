//! Programs that draw by transactions: framebuffer commands in DTP over UDP, each executed once and in order, whatever
//! is lost (N-05, N-10).
//!
//! ```text
//! transaction 0: "LMFB" 2 | token's length 1 | token     answer: 0 | width 2 | height 2 | cookie 8; or 1: refused
//! transaction 1: the cookie                               answer: 0
//! further:       whole commands, as many as fit           answer: those of the commands that have one
//! ```
//!
//! Nothing is executed for an address that did not return its cookie.

use super::commands::{execute, who};
use super::gate::{Display, Gate};
use crate::link::unpredictable;
use lastmeter_live::exchange::dtp::{Device, Owner, Reaction};
use lastmeter_plugin::request::Rect;
use lastmeter_wire::dtp::{Flags, Packet};
use lastmeter_wire::framebuffer::{ANSWER, ANSWERED, HEADER_LEN, Header, Operation, status};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

/// What a program says first.
const GREETING: [u8; 5] = *b"LMFB\x02";
/// Limit on programs at once.
const SESSIONS_MAX: usize = 64;
/// A program that is silent for this long may be forgotten for another one.
const IDLE: Duration = Duration::from_secs(60);
/// Limit on the bytes of an answer.
const ANSWER_MAX: usize = 60_000;
/// Limit on the answers kept for a program that missed them, and on their bytes.
const KEPT_MAX: (usize, usize) = (256, 1 << 20);
/// The longest datagram.
const DATAGRAM_MAX: usize = 65_535;
/// The time after which a program gives up a display that is silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a program waits for datagrams before it looks at what is overdue.
const LOOK: Duration = Duration::from_millis(2);

const COOKIE_LEN: usize = 8;

struct Session<'a> {
    device: Device,
    client: &'a str,
    gate: Gate<'a>,
    cookie: [u8; COOKIE_LEN],
    proved: bool,
    kept: VecDeque<(u16, Vec<u8>)>,
    bytes: usize,
    heard: Instant,
}

/// Serves programs until the socket fails.
///
/// # Errors
/// Why it failed.
pub fn serve(display: &Display, socket: &UdpSocket) -> Result<(), String> {
    let mut sessions: HashMap<(SocketAddr, u16), Session<'_>> = HashMap::new();
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        let (len, from) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            // What an earlier answer met.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("datagrams: {error}")),
        };
        let Ok(packet) = Packet::parse(&buffer[..len]) else { continue };
        if !packet.flags.request {
            continue;
        }
        let key = (from, packet.src);
        let answer = match sessions.get_mut(&key) {
            Some(session) => session.react(display, &packet),
            None if packet.sequence == 0 => begin(display, &mut sessions, key, &packet),
            None => None,
        };
        if let Some(answer) = answer
            && let Ok(bytes) = answer.emit()
        {
            // What is lost here is asked for again.
            let _ = socket.send_to(&bytes, from);
        }
    }
}

/// An answer that owns its data.
struct Answer {
    packet: Packet<'static>,
    data: Vec<u8>,
}

impl Answer {
    fn to(request: &Packet<'_>, data: Vec<u8>) -> Answer {
        let flags = Flags { response: true, ack: true, ..Flags::default() };
        let (src, dst, sequence) = (request.dst, request.src, request.sequence);
        let packet = Packet { src, dst, sequence, acknowledged: sequence, flags, data: &[] };
        Answer { packet, data }
    }
    fn emit(&self) -> Result<Vec<u8>, lastmeter_wire::Error> {
        Packet { data: &self.data, ..self.packet }.emit()
    }
}

/// A program's first transaction.
fn begin<'a>(
    display: &'a Display,
    sessions: &mut HashMap<(SocketAddr, u16), Session<'a>>,
    key: (SocketAddr, u16),
    packet: &Packet<'_>,
) -> Option<Answer> {
    let rest = packet.data.strip_prefix(&GREETING)?;
    let (len, rest) = rest.split_first()?;
    let token = rest.get(..usize::from(*len))?;
    let refused = || Some(Answer::to(packet, vec![1]));
    let Some(client) = who(display, token) else { return refused() };
    let now = Instant::now();
    if sessions.len() >= SESSIONS_MAX {
        // One that proved nothing, or else one that has been silent for long.
        let spare = |session: &Session<'_>| !session.proved || now - session.heard > IDLE;
        let found = sessions.iter().filter(|(_, session)| spare(session));
        let oldest = found.min_by_key(|(_, session)| (session.proved, session.heard));
        let oldest = *oldest?.0;
        sessions.remove(&oldest);
    }
    let Ok(gate) = Gate::new(display, client) else { return refused() };
    let random = unpredictable().ok()?;
    let cookie: [u8; COOKIE_LEN] = std::array::from_fn(|at| random[at]);
    let (w, h) = (gate.region.w.to_be_bytes(), gate.region.h.to_be_bytes());
    let data = [&[0][..], &w, &h, &cookie].concat();
    let mut session = Session {
        device: Device::default(),
        client,
        gate,
        cookie,
        proved: false,
        kept: VecDeque::new(),
        bytes: 0,
        heard: now,
    };
    session.device.react(0);
    session.keep(0, data.clone());
    sessions.insert(key, session);
    Some(Answer::to(packet, data))
}

impl Session<'_> {
    fn keep(&mut self, number: u16, data: Vec<u8>) {
        self.bytes += data.len();
        self.kept.push_back((number, data));
        while self.kept.len() > KEPT_MAX.0 || self.bytes > KEPT_MAX.1 {
            let Some((_, data)) = self.kept.pop_front() else { break };
            self.bytes -= data.len();
        }
    }
    fn react(&mut self, display: &Display, packet: &Packet<'_>) -> Option<Answer> {
        if !self.proved && packet.sequence > 1 {
            return None;
        }
        if !self.proved && packet.sequence == 1 {
            if packet.data != self.cookie {
                return None;
            }
            self.proved = true;
        }
        self.heard = Instant::now();
        match self.device.react(packet.sequence) {
            Reaction::Execute if packet.sequence == 1 && packet.data == self.cookie => {
                self.keep(1, vec![0]);
                Some(Answer::to(packet, vec![0]))
            }
            Reaction::Execute => {
                let data = self.execute(display, packet.data);
                self.keep(packet.sequence, data.clone());
                Some(Answer::to(packet, data))
            }
            Reaction::Repeat => {
                let mut kept = self.kept.iter().rev();
                let kept = kept.find(|(number, _)| *number == packet.sequence)?;
                Some(Answer::to(packet, kept.1.clone()))
            }
            Reaction::Missing(last) => {
                let mut answer = Answer::to(packet, Vec::new());
                answer.packet.flags = Flags { nak: true, ack: true, ..Flags::default() };
                answer.packet.acknowledged = last;
                Some(answer)
            }
        }
    }
    /// Executes the commands of a transaction; one that is not whole ends it.
    fn execute(&mut self, display: &Display, mut commands: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        self.gate.fit();
        while let Some((head, rest)) = commands.split_first_chunk::<HEADER_LEN>() {
            let mut lap = display.commands.begin();
            let header = Header::parse(head);
            let Some((data, rest)) = rest.split_at_checked(header.length as usize) else {
                display.commands.refuse("a command that is not whole");
                break;
            };
            commands = rest;
            lap.served(0);
            let area = header.area;
            let reads = header.operation == Operation::READ;
            let long = HEADER_LEN + 4 * usize::from(area.w) * usize::from(area.h);
            let (state, back) = if reads && answers.len() + long > ANSWER_MAX {
                display.commands.refuse("more pixels than fit into an answer");
                (status::INVALID, Vec::new())
            } else {
                execute(display, &mut self.gate, self.client, (&header, data), lap)
            };
            if (header.flags & ANSWER != 0 || reads) && answers.len() + HEADER_LEN <= ANSWER_MAX {
                answers.extend(header.answer(state, back.len() as u32).emit());
                answers.extend(back);
            }
        }
        answers
    }
}

/// The client side, for programs.
pub struct Transactions {
    socket: UdpSocket,
    owner: Owner,
    began: Instant,
    heard: Instant,
    /// What was sent and not answered.
    sent: VecDeque<(u16, Vec<u8>)>,
    /// Commands of the next transaction.
    waiting: Vec<u8>,
    /// The most bytes of a transaction.
    len: usize,
    /// The answer of this transaction is kept.
    wanted: Option<(u16, Option<Vec<u8>>)>,
    /// Width and height of its screen.
    pub size: (u16, u16),
    buffer: Vec<u8>,
}

impl Transactions {
    /// Connects; an empty token means none. At most `window` transactions of `len` bytes are outstanding.
    ///
    /// # Errors
    /// If it is refused, or nobody answers.
    pub fn greet(
        address: impl ToSocketAddrs,
        token: &str,
        window: u16,
        len: usize,
    ) -> Result<Transactions, String> {
        let words = |error: io::Error| error.to_string();
        let to = address.to_socket_addrs().map_err(words)?.next().ok_or("no such address")?;
        let own = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(own).map_err(words)?;
        socket.connect(to).map_err(words)?;
        socket.set_read_timeout(Some(LOOK)).map_err(words)?;
        let count = u8::try_from(token.len()).map_err(|_| "a token has at most 255 bytes")?;
        let mut own = Transactions {
            socket,
            owner: Owner::new(window),
            began: Instant::now(),
            heard: Instant::now(),
            sent: VecDeque::new(),
            waiting: Vec::new(),
            len: len.clamp(HEADER_LEN + 4, ANSWER_MAX),
            wanted: None,
            size: (0, 0),
            buffer: vec![0; DATAGRAM_MAX],
        };
        let greeting = [&GREETING[..], &[count], token.as_bytes()].concat();
        let answer = own.transact(greeting)?;
        let [0, w0, w1, h0, h1, cookie @ ..] = answer.as_slice() else {
            return Err("the display knows no such token".to_owned());
        };
        own.size = (u16::from_be_bytes([*w0, *w1]), u16::from_be_bytes([*h0, *h1]));
        own.transact(cookie.to_vec())?;
        Ok(own)
    }
    /// How many transactions were answered, and how many had to be sent again.
    pub fn counts(&self) -> (u64, u64) {
        (self.owner.done(), self.owner.again())
    }
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    fn send(&self, number: u16, data: &[u8]) {
        let flags = Flags { request: true, ..Flags::default() };
        let packet = Packet { src: 1, dst: 2, sequence: number, acknowledged: 0, flags, data };
        if let Ok(bytes) = packet.emit() {
            let _ = self.socket.send(&bytes);
        }
    }
    fn again(&self, number: u16) {
        if let Some((_, data)) = self.sent.iter().find(|(sent, _)| *sent == number) {
            self.send(number, data);
        }
    }
    /// Takes a datagram if there is one, and sends again what is overdue.
    fn pump(&mut self) -> Result<(), String> {
        let received = self.socket.recv(&mut self.buffer);
        let now = self.now();
        match received {
            Ok(len) => self.answered(len, now),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                io::ErrorKind::Interrupted => {}
                _ => return Err(error.to_string()),
            },
        }
        if let Some(number) = self.owner.overdue(now) {
            self.again(number);
        }
        match self.heard.elapsed() > PATIENCE {
            true => Err("the display does not answer".to_owned()),
            false => Ok(()),
        }
    }
    fn answered(&mut self, len: usize, now: u64) {
        let Ok(packet) = Packet::parse(&self.buffer[..len]) else { return };
        self.heard = Instant::now();
        if packet.flags.nak {
            let number = packet.acknowledged.wrapping_add(1);
            if self.owner.missed(number, now) {
                self.again(number);
            }
        } else if self.owner.answered(&packet, now).is_some() {
            self.sent.retain(|(number, _)| *number != packet.sequence);
            if let Some((number, answer)) = &mut self.wanted
                && *number == packet.sequence
            {
                *answer = Some(packet.data.to_vec());
            }
        }
    }
    /// Sends a transaction once the window has room.
    fn submit(&mut self, data: Vec<u8>) -> Result<u16, String> {
        self.heard = Instant::now();
        loop {
            if let Some(number) = self.owner.request(self.now()) {
                self.send(number, &data);
                self.sent.push_back((number, data));
                return Ok(number);
            }
            self.pump()?;
        }
    }
    /// Sends a transaction and waits for its answer.
    fn transact(&mut self, data: Vec<u8>) -> Result<Vec<u8>, String> {
        let number = self.submit(data)?;
        self.wanted = Some((number, None));
        loop {
            self.pump()?;
            if let Some((_, Some(answer))) = &mut self.wanted {
                return Ok(std::mem::take(answer));
            }
        }
    }
    fn queue(
        &mut self,
        operation: Operation,
        flags: u8,
        at: Rect,
        data: &[u8],
    ) -> Result<(), String> {
        let area = super::encoding::area(at);
        let header = Header { operation, flags, tag: 0, area, length: data.len() as u32 };
        let long = HEADER_LEN + data.len();
        if long > self.len {
            return Err(format!("a command of {long} bytes, where {} fit", self.len));
        }
        if self.waiting.len() + long > self.len {
            self.flush()?;
        }
        self.waiting.extend(header.emit());
        self.waiting.extend_from_slice(data);
        Ok(())
    }
    /// Queues a command. Pixels are put in parts that fit into transactions.
    ///
    /// # Errors
    /// If the display does not answer, or the command does not fit.
    pub fn add(&mut self, operation: Operation, at: Rect, data: &[u8]) -> Result<(), String> {
        if operation != Operation::PUT || HEADER_LEN + data.len() <= self.len {
            return self.queue(operation, 0, at, data);
        }
        let room = (self.len - HEADER_LEN) / 4;
        let width = usize::from(at.w);
        let wide = width.min(room).max(1);
        let high = (room / wide).max(1);
        for top in (0..usize::from(at.h)).step_by(high) {
            for left in (0..width).step_by(wide) {
                let (w, h) = (wide.min(width - left), high.min(usize::from(at.h) - top));
                let rows = (top..top + h).map(|row| 4 * (row * width + left));
                let rows: Option<Vec<&[u8]>> =
                    rows.map(|start| data.get(start..start + 4 * w)).collect();
                let part = rows.ok_or("fewer pixels than the area has")?.concat();
                let (x, y) = (at.x + left as u16, at.y + top as u16);
                self.queue(operation, 0, Rect { x, y, w: w as u16, h: h as u16 }, &part)?;
            }
        }
        Ok(())
    }
    /// Sends what is queued.
    ///
    /// # Errors
    /// If the display does not answer.
    pub fn flush(&mut self) -> Result<(), String> {
        if !self.waiting.is_empty() {
            let data = std::mem::take(&mut self.waiting);
            self.submit(data)?;
        }
        Ok(())
    }
    /// Sends what is queued and this command, and waits for its answer: the status and the pixels read.
    ///
    /// # Errors
    /// If the display does not answer.
    pub fn ask(
        &mut self,
        operation: Operation,
        at: Rect,
        data: &[u8],
    ) -> Result<(u8, Vec<u8>), String> {
        self.flush()?;
        self.queue(operation, ANSWER, at, data)?;
        let commands = std::mem::take(&mut self.waiting);
        let answer = self.transact(commands)?;
        let (head, data) = answer.split_first_chunk().ok_or("an answer that is not whole")?;
        let header = Header::parse(head);
        match header.operation.0 == operation.0 | ANSWERED {
            true => Ok((header.flags, data.to_vec())),
            false => Err("an answer to something else".to_owned()),
        }
    }
}
