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

use crate::link::unpredictable;
use lastmeter_live::exchange::dtp::{Device, Owner, Reaction};
use lastmeter_wire::dtp::{Flags, Packet};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

/// Limit on sessions at once.
const SESSIONS_MAX: usize = 64;
/// A client that is silent for this long may be forgotten for another one.
const IDLE: Duration = Duration::from_secs(60);
/// Limit on the bytes of an answer.
pub(crate) const ANSWER_MAX: usize = 60_000;
/// Limit on the answers kept for a client that missed them, and on their bytes.
const KEPT_MAX: (usize, usize) = (256, 1 << 20);
/// The longest datagram.
const DATAGRAM_MAX: usize = 65_535;
/// The time after which a client gives up a device that is silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client waits for datagrams before it looks at what is overdue.
const LOOK: Duration = Duration::from_millis(2);
/// Room for answers in a client's socket, as far as the kernel gives it.
const RECEIVE: usize = 4 << 20;

const COOKIE_LEN: usize = 8;

/// A device whose commands come in transactions.
pub(crate) trait Service {
    /// What a client says first.
    const GREETING: [u8; 5];
    /// What the device knows of a client.
    type Session<'a>
    where
        Self: 'a;
    /// A client that shows a token, and what it is told; whether it is on this host.
    ///
    /// # Errors
    /// Why it is refused.
    fn begin(&self, token: &[u8], is_local: bool) -> Result<(Self::Session<'_>, Vec<u8>), Refused>;
    /// Executes the commands of a transaction; the answer has at most [`ANSWER_MAX`] bytes.
    fn execute<'a>(&'a self, session: &mut Self::Session<'a>, commands: &[u8]) -> Vec<u8>;
}

/// Why a client is refused, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The token is not known.
    Unknown = 1,
    /// Its token came in the clear, and not from this host.
    Clear = 2,
}

struct Session<T> {
    device: Device,
    own: T,
    cookie: [u8; COOKIE_LEN],
    proved: bool,
    kept: VecDeque<(u16, Vec<u8>)>,
    bytes: usize,
    heard: Instant,
}

type Sessions<T> = HashMap<(SocketAddr, u16), Session<T>>;

/// Serves clients until the socket fails.
///
/// # Errors
/// Why it failed.
pub(crate) fn serve<S: Service>(service: &S, socket: &UdpSocket) -> Result<(), String> {
    let mut sessions = Sessions::new();
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
            Some(session) => session.react(service, &packet),
            None if packet.sequence == 0 => begin(service, &mut sessions, key, &packet),
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

/// A client's first transaction.
fn begin<'a, S: Service>(
    service: &'a S,
    sessions: &mut Sessions<S::Session<'a>>,
    key: (SocketAddr, u16),
    packet: &Packet<'_>,
) -> Option<Answer> {
    let rest = packet.data.strip_prefix(&S::GREETING)?;
    let (len, rest) = rest.split_first()?;
    let token = rest.get(..usize::from(*len))?;
    let now = Instant::now();
    if sessions.len() >= SESSIONS_MAX {
        // One that proved nothing, or else one that has been silent for long.
        let spare = |proved: bool, heard: Instant| !proved || now - heard > IDLE;
        let found = sessions.iter().filter(|(_, session)| spare(session.proved, session.heard));
        let oldest = found.min_by_key(|(_, session)| (session.proved, session.heard));
        let oldest = *oldest?.0;
        sessions.remove(&oldest);
    }
    let is_local = key.0.ip().to_canonical().is_loopback();
    let (own, hello) = match service.begin(token, is_local) {
        Ok(begun) => begun,
        Err(refused) => return Some(Answer::to(packet, vec![refused as u8])),
    };
    let random = unpredictable().ok()?;
    let cookie: [u8; COOKIE_LEN] = std::array::from_fn(|at| random[at]);
    let data = [&[0][..], &hello, &cookie].concat();
    let mut session = Session {
        device: Device::default(),
        own,
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

impl<T> Session<T> {
    fn keep(&mut self, number: u16, data: Vec<u8>) {
        self.bytes += data.len();
        self.kept.push_back((number, data));
        while self.kept.len() > KEPT_MAX.0 || self.bytes > KEPT_MAX.1 {
            let Some((_, data)) = self.kept.pop_front() else { break };
            self.bytes -= data.len();
        }
    }
    fn react<'a, S: Service<Session<'a> = T>>(
        &mut self,
        service: &'a S,
        packet: &Packet<'_>,
    ) -> Option<Answer> {
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
                let data = service.execute(&mut self.own, packet.data);
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
}

/// The client side.
pub(crate) struct Client {
    socket: UdpSocket,
    owner: Owner,
    began: Instant,
    heard: Instant,
    /// What was sent and not answered.
    sent: VecDeque<(u16, Vec<u8>)>,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects; an empty token means none. At most `window` transactions are outstanding. Also what the device says.
    ///
    /// # Errors
    /// If it is refused, or nobody answers.
    pub(crate) fn greet(
        address: impl ToSocketAddrs,
        greeting: [u8; 5],
        token: &str,
        window: u16,
    ) -> Result<(Client, Vec<u8>), String> {
        let words = |error: io::Error| error.to_string();
        let to = address.to_socket_addrs().map_err(words)?.next().ok_or("no such address")?;
        let own = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(own).map_err(words)?;
        socket.connect(to).map_err(words)?;
        socket.set_read_timeout(Some(LOOK)).map_err(words)?;
        // With less it loses more, and asks again.
        let _ = set_socket_recv_buffer_size(&socket, RECEIVE);
        let count = u8::try_from(token.len()).map_err(|_| "a token has at most 255 bytes")?;
        let mut own = Client {
            socket,
            owner: Owner::new(window),
            began: Instant::now(),
            heard: Instant::now(),
            sent: VecDeque::new(),
            buffer: vec![0; DATAGRAM_MAX],
        };
        let answer = own.transact([&greeting[..], &[count], token.as_bytes()].concat())?;
        if answer == [Refused::Clear as u8] {
            return Err("the device wants TLS from other hosts, which DTP has not".to_owned());
        }
        let said = answer.split_last_chunk::<COOKIE_LEN>();
        let Some(([0, hello @ ..], cookie)) = said else {
            return Err("the device knows no such token".to_owned());
        };
        own.transact(cookie.to_vec())?;
        Ok((own, hello.to_vec()))
    }
    /// How many transactions were answered, and how many had to be sent again.
    pub(crate) fn counts(&self) -> (u64, u64) {
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
    /// Takes a datagram if there is one, and sends again what is overdue: a transaction that was answered, and how.
    ///
    /// # Errors
    /// If the device is silent for too long.
    pub(crate) fn pump(&mut self) -> Result<Option<(u16, Vec<u8>)>, String> {
        let received = self.socket.recv(&mut self.buffer);
        let now = self.now();
        let answered = match received {
            Ok(len) => self.answered(len, now),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => None,
                io::ErrorKind::Interrupted => None,
                _ => return Err(error.to_string()),
            },
        };
        if let Some(number) = self.owner.overdue(now) {
            self.again(number);
        }
        match self.heard.elapsed() > PATIENCE {
            true => Err("the device does not answer".to_owned()),
            false => Ok(answered),
        }
    }
    fn answered(&mut self, len: usize, now: u64) -> Option<(u16, Vec<u8>)> {
        let packet = Packet::parse(&self.buffer[..len]).ok()?;
        self.heard = Instant::now();
        if packet.flags.nak {
            let number = packet.acknowledged.wrapping_add(1);
            if self.owner.missed(number, now) {
                self.again(number);
            }
            return None;
        }
        self.owner.answered(&packet, now)?;
        let answer = (packet.sequence, packet.data.to_vec());
        self.sent.retain(|(number, _)| *number != answer.0);
        Some(answer)
    }
    /// Sends a transaction if the window has room; else gives it back.
    pub(crate) fn offer(&mut self, data: Vec<u8>) -> Result<u16, Vec<u8>> {
        let Some(number) = self.owner.request(self.now()) else { return Err(data) };
        if self.sent.is_empty() {
            self.heard = Instant::now();
        }
        self.send(number, &data);
        self.sent.push_back((number, data));
        Ok(number)
    }
    /// Sends a transaction once the window has room; what is answered meanwhile is of no interest.
    ///
    /// # Errors
    /// If the device is silent for too long.
    pub(crate) fn submit(&mut self, mut data: Vec<u8>) -> Result<u16, String> {
        loop {
            match self.offer(data) {
                Ok(number) => return Ok(number),
                Err(back) => data = back,
            }
            self.pump()?;
        }
    }
    /// Sends a transaction and waits for its answer.
    ///
    /// # Errors
    /// If the device is silent for too long.
    pub(crate) fn transact(&mut self, data: Vec<u8>) -> Result<Vec<u8>, String> {
        let wanted = self.submit(data)?;
        loop {
            match self.pump()? {
                Some((number, answer)) if number == wanted => return Ok(answer),
                _ => {}
            }
        }
    }
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
