//! Messages of a transfer on a TLS connection whose other end may be slow or silent.

use super::identity::{Identity, Key, peer};
use lastmeter_wire::ticket::{HEAD_LEN, Head, Kind, WORDS_MAX};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who connects has so long to prove its key and say what it wants.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Who transfers is given up when nothing comes or goes for so long.
pub const IDLE: Duration = Duration::from_secs(60);
/// The destination has so long to make durable what it got.
pub const FLUSH: Duration = Duration::from_secs(600);
/// Bytes of words that are told to the other end.
const TOLD_MAX: usize = 200;

/// A connection whose reads and writes end at an instant, or when nothing moves for a while.
pub(super) struct Timed {
    stream: TcpStream,
    until: Option<Instant>,
    idle: Duration,
    /// What the socket has.
    set: Duration,
}

impl Timed {
    fn limit(&mut self) -> io::Result<()> {
        let left = match self.until {
            Some(until) => until.saturating_duration_since(Instant::now()),
            None => self.idle,
        };
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if left != self.set {
            self.stream.set_read_timeout(Some(left))?;
            self.stream.set_write_timeout(Some(left))?;
            self.set = left;
        }
        Ok(())
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A channel to another device or a holder.
pub struct Channel {
    tls: Connection,
    timed: Timed,
    /// The key that the other end has proved.
    pub peer: Key,
}

fn place(doing: &str) -> impl Fn(io::Error) -> String + '_ {
    move |error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("{doing}: it took too long"),
        _ => format!("{doing}: {error}"),
    }
}

impl Channel {
    /// Connects to the device with this key.
    ///
    /// # Errors
    /// If it is not there, or another device is.
    pub fn connect(identity: &Identity, address: &str, device: Key) -> Result<Channel, String> {
        let place = place(address);
        let found = address.to_socket_addrs().map_err(&place)?.next();
        let found = found.ok_or(format!("{address}: it has no address"))?;
        let stream = TcpStream::connect_timeout(&found, PATIENCE).map_err(&place)?;
        stream.set_nodelay(true).map_err(&place)?;
        let until = Some(Instant::now() + PATIENCE);
        // It is known by its key; the name is not looked at.
        let name = ServerName::try_from("device").map_err(|error| error.to_string())?;
        let mut tls = ClientConnection::new(identity.client(device)?, name)
            .map_err(|error| error.to_string())?;
        let mut timed = Timed { stream, until, idle: IDLE, set: Duration::ZERO };
        while tls.is_handshaking() {
            tls.complete_io(&mut timed).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => format!("{address}: another device is there"),
                _ => place(error),
            })?;
        }
        let peer = peer(tls.peer_certificates()).ok_or("the device proved no key")?;
        timed.until = None;
        Ok(Channel { tls: tls.into(), timed, peer })
    }
    /// Takes a connection. It has [`PATIENCE`] until it has said something; see [`Channel::settle`].
    ///
    /// # Errors
    /// If it speaks no TLS, or proves no key.
    pub fn accept(stream: TcpStream, config: &Arc<ServerConfig>) -> Result<Channel, String> {
        let place = place("a connection for a transfer");
        stream.set_nodelay(true).map_err(&place)?;
        let mut tls = ServerConnection::new(config.clone()).map_err(|error| error.to_string())?;
        let until = Some(Instant::now() + PATIENCE);
        let mut timed = Timed { stream, until, idle: IDLE, set: Duration::ZERO };
        while tls.is_handshaking() {
            tls.complete_io(&mut timed).map_err(&place)?;
        }
        let peer = peer(tls.peer_certificates()).ok_or("it proved no key")?;
        Ok(Channel { tls: tls.into(), timed, peer })
    }
    /// From now on it may take as long as it likes, as long as something moves.
    pub fn settle(&mut self) {
        self.timed.until = None;
    }
    /// How long nothing may move.
    pub fn wait(&mut self, idle: Duration) {
        self.timed.idle = idle;
    }
    /// Reads, also when nothing more can be written: what the other end said before it went is heard.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.tls.reader().read(&mut bytes[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.tls.read_tls(&mut self.timed)?;
                    self.tls.process_new_packets().map_err(io::Error::other)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() || self.tls.wants_write() {
            let count = self.tls.writer().write(rest)?;
            rest = &rest[count..];
            while self.tls.wants_write() {
                self.tls.write_tls(&mut self.timed)?;
            }
        }
        Ok(())
    }
    /// Sends a message.
    ///
    /// # Errors
    /// If the connection ended.
    pub fn say(&mut self, kind: Kind, body: &[u8]) -> Result<(), String> {
        let head = Head { kind, length: body.len() as u32 };
        // One record of TLS for what is short.
        let sent = match body.len() <= WORDS_MAX {
            true => self.write(&[&head.emit()[..], body].concat()),
            false => self.write(&head.emit()).and_then(|()| self.write(body)),
        };
        sent.map_err(place("sending"))
    }
    /// Says why it is over.
    pub fn refuse(&mut self, why: &str) {
        let len = why.floor_char_boundary(TOLD_MAX);
        // Who does not listen need not know.
        let _ = self.say(Kind::Refused, &why.as_bytes()[..len]);
    }
    /// The next message; its body replaces what is in `body`, which grows with what arrives.
    ///
    /// # Errors
    /// If the connection ended, or what came is no message.
    pub fn next(&mut self, body: &mut Vec<u8>) -> Result<Kind, String> {
        let mut head = [0; HEAD_LEN];
        self.read(&mut head).map_err(place("receiving"))?;
        let head = Head::parse(head).map_err(|error| error.to_string())?;
        let (length, mut done) = (head.length as usize, 0);
        body.clear();
        while done < length {
            const STEP: usize = 1 << 20;
            let end = length.min(done + STEP);
            body.resize(end, 0);
            self.read(&mut body[done..]).map_err(place("receiving"))?;
            done = end;
        }
        Ok(head.kind)
    }
}

/// Words of the other end, without what a terminal would obey.
pub(super) fn words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(TOLD_MAX)]).into_owned();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The number in a message's body.
pub(super) fn number(body: &[u8]) -> u64 {
    body.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
