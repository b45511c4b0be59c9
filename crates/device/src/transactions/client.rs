//! The client side of transactions over UDP.

use super::line::{Awake, Ear, send};
use super::{CLIENT, COOKIE_LEN, DATAGRAM_MAX, Refused, Travel, UNIT_MAX, fragments};
use lastmeter_linux::datagrams;
use lastmeter_live::exchange::dtp::Owner;
use lastmeter_wire::dtp::{Flags, HEADER_LEN, Packet};
use lastmeter_wire::framing::Reassembler;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{ToSocketAddrs, UdpSocket};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time after which a client gives up a device that is silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client waits for datagrams before it looks at what is overdue.
const LOOK: Duration = Duration::from_millis(2);
/// Room for answers in a client's socket, as far as the kernel gives it.
const RECEIVE: usize = 4 << 20;

/// A client of a device.
pub(crate) struct Client {
    socket: UdpSocket,
    /// The device is on this host.
    is_local: bool,
    owner: Owner,
    ear: Ear,
    began: Instant,
    heard: Instant,
    /// Datagrams that were not answered; the last `waiting` of them have not left yet.
    sent: VecDeque<(u16, Vec<u8>)>,
    waiting: usize,
    buffer: Vec<u8>,
    /// What came and was not looked at yet, and the length of each datagram in it.
    came: (Range<usize>, usize),
    travel: Travel,
    /// Units that are not whole yet, and the last that was.
    units: Reassembler,
    unit: Vec<u8>,
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
        travel: Travel,
    ) -> Result<(Client, Vec<u8>), String> {
        let words = |error: io::Error| error.to_string();
        let to = address.to_socket_addrs().map_err(words)?.next().ok_or("no such address")?;
        let own = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(own).map_err(words)?;
        socket.connect(to).map_err(words)?;
        socket.set_read_timeout(Some(LOOK)).map_err(words)?;
        // With less it loses more, and asks again; without the other, each answer comes alone.
        let _ = set_socket_recv_buffer_size(&socket, RECEIVE);
        let _ = datagrams::take_together(socket.as_fd());
        let count = u8::try_from(token.len()).map_err(|_| "a token has at most 255 bytes")?;
        let mut own = Client {
            socket,
            is_local: to.ip().to_canonical().is_loopback(),
            owner: Owner::new(window),
            ear: Ear::new(Arc::new(Awake::at_most(1)), Duration::ZERO),
            began: Instant::now(),
            heard: Instant::now(),
            sent: VecDeque::new(),
            waiting: 0,
            buffer: vec![0; DATAGRAM_MAX],
            came: (0..0, 1),
            travel,
            units: Reassembler::limited(UNIT_MAX),
            unit: Vec::new(),
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
    /// From now on it stays awake for so long after it has asked, where the last answers came sooner: a processor's
    /// time for that of waking up.
    pub(crate) fn stay_awake(&mut self, limit: Duration) {
        self.ear.stay_awake(limit);
    }
    /// How many transactions were answered, and how many had to be sent again.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.owner.done(), self.owner.again())
    }
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
    fn again(&self, number: u16) {
        if let Some((_, datagram)) = self.sent.iter().find(|(sent, _)| *sent == number) {
            self.go(&[(number, datagram)]);
        }
    }
    /// Sends these.
    fn go(&self, all: &[(u16, &[u8])]) {
        let parts: Vec<Vec<u8>> = match self.travel {
            Travel::Datagrams => Vec::new(),
            Travel::Units => all.iter().flat_map(|(number, one)| fragments(*number, one)).collect(),
        };
        let all: Vec<IoSlice<'_>> = match self.travel {
            Travel::Datagrams => all.iter().map(|(_, one)| IoSlice::new(one)).collect(),
            Travel::Units => parts.iter().map(|part| IoSlice::new(part)).collect(),
        };
        send(&self.socket, &all, None, self.is_local);
    }
    /// Takes a datagram if there is one, and sends again what is overdue: a transaction that was answered, and how.
    ///
    /// # Errors
    /// If the device is silent for too long.
    pub(crate) fn pump(&mut self) -> Result<Option<(u16, Vec<u8>)>, String> {
        Ok(self.advance()?.map(|(number, answer)| (number, answer.to_vec())))
    }
    /// The same, with the answer where it came.
    ///
    /// # Errors
    /// If the device is silent for too long.
    pub(crate) fn advance(&mut self) -> Result<Option<(u16, &[u8])>, String> {
        let mut now = None;
        if self.came.0.is_empty() {
            self.leave();
            self.receive()?;
            now = Some(self.now());
        }
        let now = now.unwrap_or_else(|| self.now());
        let answered = self.answered(now);
        if self.came.0.is_empty()
            && let Some(number) = self.owner.overdue(now)
        {
            self.again(number);
        }
        let whole = match self.travel {
            Travel::Datagrams => &self.buffer,
            Travel::Units => &self.unit,
        };
        Ok(answered.map(|(number, at)| (number, &whole[at])))
    }
    /// Waits for datagrams, for a while.
    fn receive(&mut self) -> Result<(), String> {
        match self.ear.receive(&self.socket, &mut self.buffer) {
            Ok(received) => self.came = (0..received.len, received.segment.max(1)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                io::ErrorKind::Interrupted => {}
                _ => return Err(error.to_string()),
            },
        }
        match self.heard.elapsed() > PATIENCE {
            true => Err("the device does not answer".to_owned()),
            false => Ok(()),
        }
    }
    /// Looks at the next datagram that came: what it answers, and where the answer is.
    fn answered(&mut self, now: u64) -> Option<(u16, Range<usize>)> {
        let (came, segment) = &mut self.came;
        let begin = came.start;
        let end = came.end.min(begin + *segment);
        came.start = end;
        let (bytes, begin) = match self.travel {
            Travel::Datagrams => (&self.buffer[begin..end], begin),
            Travel::Units => {
                self.unit = self.units.datagram(&self.buffer[begin..end])?.data;
                (&self.unit[..], 0)
            }
        };
        let packet = Packet::parse(bytes).ok()?;
        self.heard = Instant::now();
        if packet.flags.nak {
            let number = packet.acknowledged.wrapping_add(1);
            if self.owner.missed(number, now) {
                self.again(number);
            }
            return None;
        }
        self.owner.answered(&packet, now)?;
        let (number, len) = (packet.sequence, packet.data.len());
        self.sent.retain(|(sent, _)| *sent != number);
        let at = begin + HEADER_LEN;
        Some((number, at..at + len))
    }
    /// Has a transaction leave with those after it, at the latest when an answer is waited for; false if the window has
    /// no room.
    pub(crate) fn queue(&mut self, data: &[u8]) -> Option<u16> {
        let number = self.owner.request(self.now())?;
        if self.sent.is_empty() {
            self.heard = Instant::now();
        }
        // All before the oldest that was not answered, were; none before the first.
        let oldest = self.sent.front().map_or(number, |(oldest, _)| *oldest);
        let flags = Flags { request: true, ack: self.owner.done() > 0, ..Flags::default() };
        let acknowledged = oldest.wrapping_sub(1);
        let packet = Packet { src: CLIENT, dst: 2, sequence: number, acknowledged, flags, data };
        // Nobody makes one that is too long.
        let datagram = packet.emit().unwrap_or_default();
        self.sent.push_back((number, datagram));
        self.waiting += 1;
        Some(number)
    }
    /// Sends what was queued.
    fn leave(&mut self) {
        if self.waiting > 0 {
            let first = self.sent.len().saturating_sub(self.waiting);
            let all: Vec<(u16, &[u8])> =
                self.sent.range(first..).map(|(number, one)| (*number, &one[..])).collect();
            self.go(&all);
            self.waiting = 0;
        }
    }
    /// Sends a transaction if the window has room; else gives it back.
    pub(crate) fn offer(&mut self, data: Vec<u8>) -> Result<u16, Vec<u8>> {
        let Some(number) = self.queue(&data) else { return Err(data) };
        self.leave();
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
