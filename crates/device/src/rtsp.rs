//! RTSP (RFC 2326) as the devices of this crate speak it: a client's requests in order, their answers, and how its RTP
//! travels: between them, or over UDP.

use lastmeter_wire::requests::{HEAD_MAX, Item, Request, Transport, parse};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::link::Patient;

/// Time that a client has to say what it wants.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time after which a client that says nothing is given up, unless it is known otherwise to be there.
pub const SILENCE: Duration = Duration::from_secs(65);
/// The longest time to take an answer or a packet.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// Bytes that wait in the kernel for a client.
const SEND_BUFFER: usize = 128 << 10;
/// Attempts to find two ports in a row.
const PORTS_TRIED: usize = 32;

/// How RTP travels.
#[derive(Clone)]
pub enum Way {
    /// In the connection, on this channel; reports on the next.
    Interleaved(u8),
    /// Over UDP.
    Udp(Ports),
}

/// Two ports of this host, and where the client's are.
#[derive(Clone)]
pub struct Ports {
    /// For RTP, with an even number.
    pub data: Arc<UdpSocket>,
    /// For reports, with the next.
    pub reports: Arc<UdpSocket>,
    /// The client's port for RTP; its reports are at the next.
    pub to: SocketAddr,
}

impl Ports {
    /// Two ports in a row (RFC 3550, section 11) on an address.
    pub fn open(own: IpAddr, to: SocketAddr) -> io::Result<Ports> {
        for _ in 0..PORTS_TRIED {
            let data = UdpSocket::bind((own, 0))?;
            let port = data.local_addr()?.port();
            if port % 2 == 1 {
                continue;
            }
            if let Ok(reports) = UdpSocket::bind((own, port + 1)) {
                return Ok(Ports { data: Arc::new(data), reports: Arc::new(reports), to });
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
    /// The number of the first.
    pub fn number(&self) -> io::Result<u16> {
        Ok(self.data.local_addr()?.port())
    }
    /// Where the client's reports are.
    pub fn reports_to(&self) -> SocketAddr {
        SocketAddr::new(self.to.ip(), self.to.port().saturating_add(1))
    }
}

/// What a device does about a client's requests.
pub trait Talk {
    /// Answers a request; false if it was the last.
    fn answer(&mut self, request: &Request<'_>) -> io::Result<bool>;
    /// A packet came between requests.
    fn data(&mut self, _channel: u8, _bytes: &[u8]) {}
    /// Whether the connection would end if the client did, so that it may say nothing for as long as it likes.
    fn is_interleaved(&self) -> bool;
    /// Whether a client that has said nothing for [`SILENCE`] is there all the same.
    fn is_alive(&self) -> bool {
        false
    }
}

/// A client's connection, to which several threads write.
pub struct Link {
    /// It.
    pub writer: Arc<Mutex<TcpStream>>,
    session: String,
}

impl Link {
    /// Answers a request, with further fields, each with its end of line.
    pub fn reply(
        &self,
        request: &Request<'_>,
        status: &str,
        more: &str,
        body: &str,
    ) -> io::Result<()> {
        let number = request.header("cseq").filter(|text| text.len() <= 10).unwrap_or("0");
        let length = match body.len() {
            0 => String::new(),
            len => format!("Content-Length: {len}\r\n"),
        };
        let text = format!("RTSP/1.0 {status}\r\nCSeq: {number}\r\n{more}{length}\r\n{body}");
        self.write(text.as_bytes())
    }
    /// The field that says which session it is.
    pub fn session(&self) -> String {
        format!("Session: {};timeout=60\r\n", self.session)
    }
    /// Writes all of it, with nothing of another thread between.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
    }
    /// The client's address and this host's.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let stream = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((stream.peer_addr()?, stream.local_addr()?))
    }
    /// How RTP travels as the client wants it, and the answer that says so.
    pub fn way(&self, request: &Request<'_>) -> io::Result<Option<(Way, String)>> {
        let chosen = request.header("transport").and_then(Transport::choose);
        let (peer, own) = self.addresses()?;
        Ok(match chosen {
            None => None,
            Some(Transport::Interleaved(channel)) => {
                let text =
                    format!("RTP/AVP/TCP;unicast;interleaved={channel}-{}", u16::from(channel) + 1);
                Some((Way::Interleaved(channel), text))
            }
            Some(Transport::Udp(port)) => {
                let ports = Ports::open(own.ip(), SocketAddr::new(peer.ip(), port))?;
                let from = ports.number()?;
                let (next, last) = (u32::from(port) + 1, u32::from(from) + 1);
                let ends = format!("client_port={port}-{next};server_port={from}-{last}");
                Some((Way::Udp(ports), format!("RTP/AVP;unicast;{ends}")))
            }
        })
    }
}

/// A packet as it travels in the connection.
pub fn interleaved(channel: u8, packet: &[u8]) -> Vec<u8> {
    let len = (packet.len() as u16).to_be_bytes();
    [&[b'$', channel, len[0], len[1]][..], packet].concat()
}

/// A client's first bytes, at least its first request; fewer if it left before.
pub fn first(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let chosen = Arc::<AtomicBool>::default();
    let mut reader = Patient::new(stream.try_clone()?, Instant::now() + PATIENCE, chosen);
    let (mut bytes, mut block) = (Vec::new(), [0; 2048]);
    while parse(&bytes).map_err(wrong)?.is_none() {
        let count = reader.read(&mut block)?;
        if count == 0 {
            break;
        }
        bytes.extend(&block[..count]);
    }
    Ok(bytes)
}

fn wrong(error: lastmeter_wire::Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// Serves a client whose first bytes are given. `session` is a number that is its own.
pub fn converse<T: Talk>(
    stream: TcpStream,
    mut bytes: Vec<u8>,
    session: u32,
    begin: impl FnOnce(Link) -> T,
) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIME))?;
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
    let mut reader = stream.try_clone()?;
    let writer = Arc::new(Mutex::new(stream));
    let mut talk = begin(Link { writer, session: format!("{session:08x}") });
    let mut block = [0; 4096];
    loop {
        let wrong = |error| io::Error::other(format!("RTSP: {error}"));
        while let Some((item, len)) = parse(&bytes).map_err(wrong)? {
            match item {
                Item::Request(request) => {
                    if !talk.answer(&request)? {
                        return Ok(());
                    }
                }
                Item::Data { channel, bytes } => talk.data(channel, bytes),
            }
            bytes.drain(..len);
        }
        reader.set_read_timeout((!talk.is_interleaved()).then_some(SILENCE))?;
        let count = match reader.read(&mut block) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && talk.is_alive() => continue,
            read => read?,
        };
        if count == 0 || bytes.len() > HEAD_MAX + (1 << 16) {
            return Ok(());
        }
        bytes.extend(&block[..count]);
    }
}
