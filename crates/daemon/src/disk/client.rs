//! A client of NBD for measurements: a given number of requests in flight on a connection.

use crate::Complaint;
use lastmeter_base::Stream;
use lastmeter_wire::nbd::{self, Command, Kind, OPTION_LEN, REQUEST_LEN, Request, Wanted};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// Writes, else reads.
    pub(super) write: bool,
    /// Bytes of each.
    pub(super) length: u32,
    /// Requests in flight.
    pub(super) depth: u32,
}

/// Where a disk is.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// A Unix socket.
    Socket(&'a Path),
    /// TCP.
    Address(SocketAddr),
}

/// Where requests go, where answers come from, the size of the disk.
pub(super) type Opened = (Box<dyn Write + Send>, BufReader<Box<dyn Read + Send>>, u64);

/// Opens an export.
pub(super) fn open(place: Place<'_>, export: &str) -> Result<Opened, Complaint> {
    let (mut stream, reader): (Box<dyn Write + Send>, Box<dyn Read + Send>) = match place {
        Place::Socket(path) => {
            let stream = UnixStream::connect(path)?;
            (Box::new(stream.try_clone()?), Box::new(stream))
        }
        Place::Address(address) => {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            (Box::new(stream.try_clone()?), Box::new(stream))
        }
    };
    let mut reader = BufReader::with_capacity(1 << 20, reader);
    let mut greeting = [0; 18];
    reader.read_exact(&mut greeting)?;
    stream.write_all(&[0, 0, 0, 3])?;
    let wanted = Wanted { name: export.to_owned(), information: Vec::new() }.emit();
    let option = nbd::Option { kind: Kind::GO, length: wanted.len() as u32 };
    stream.write_all(&[&option.emit()[..], &wanted].concat())?;
    let mut size = 0;
    loop {
        let mut header = [0; OPTION_LEN + 4];
        reader.read_exact(&mut header)?;
        let field = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let mut data = vec![0; field(16) as usize];
        reader.read_exact(&mut data)?;
        match field(12) {
            nbd::reply::ACK => return Ok((stream, reader, size)),
            nbd::reply::INFO if data.starts_with(&[0, 0]) => {
                size = data[2..10].try_into().map_or(0, u64::from_be_bytes);
            }
            nbd::reply::INFO => {}
            other => return Err(Complaint(format!("the server answered {other:#x}"))),
        }
    }
}

/// Says farewell: some servers end when a client goes without.
pub(super) fn close(stream: &mut impl Write) -> Result<(), Complaint> {
    let (offset, length) = (0, 0);
    let last = Request { flags: 0, command: Command::DISCONNECT, cookie: 0, offset, length };
    Ok(stream.write_all(&last.emit())?)
}

/// Writes the whole disk: what was never written costs less to read.
pub(super) fn fill(socket: &Path, export: &str) -> Result<(), Complaint> {
    const LENGTH: u32 = 1 << 20;
    let (mut stream, mut reader, size) = open(Place::Socket(socket), export)?;
    let data = vec![0xa5; LENGTH as usize];
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(LENGTH.into()) as u32;
        let request = Request { flags: 0, command: Command::WRITE, cookie: 1, offset, length };
        stream.write_all(&request.emit())?;
        stream.write_all(&data[..length as usize])?;
        reader.read_exact(&mut [0; 16])?;
        offset += u64::from(length);
    }
    close(&mut stream)
}

/// Requests in turn at random places, for so long; how many were answered.
pub(super) fn run(socket: &Path, export: &str, load: Load, seconds: f64) -> Result<u64, Complaint> {
    let (mut stream, mut reader, size) = open(Place::Socket(socket), export)?;
    let places = (size / u64::from(load.length)).max(1);
    let mut random = Stream::new(1, "places");
    let data = vec![0x5a; load.length as usize];
    let command = if load.write { Command::WRITE } else { Command::READ };
    let mut ask = |stream: &mut Vec<u8>, cookie: u64| {
        let offset = random.below(places) * u64::from(load.length);
        let request = Request { flags: 0, command, cookie, offset, length: load.length };
        stream.extend(request.emit());
        if load.write {
            stream.extend_from_slice(&data);
        }
    };
    let mut outgoing = Vec::with_capacity((REQUEST_LEN + data.len()) * load.depth as usize);
    (0..load.depth).for_each(|cookie| ask(&mut outgoing, cookie.into()));
    stream.write_all(&outgoing)?;
    let answer = 16 + if load.write { 0 } else { load.length as usize };
    let mut answers = vec![0; answer];
    let (began, mut done) = (Instant::now(), 0);
    let until = Duration::from_secs_f64(seconds);
    while began.elapsed() < until {
        outgoing.clear();
        // All answers that are there, and as many new requests at once.
        loop {
            reader.read_exact(&mut answers)?;
            if answers[4..8] != [0; 4] {
                return Err(Complaint("a request was refused".to_owned()));
            }
            done += 1;
            ask(&mut outgoing, done);
            if reader.buffer().len() < answer {
                break;
            }
        }
        stream.write_all(&outgoing)?;
    }
    // What is in flight.
    for _ in 0..load.depth {
        reader.read_exact(&mut answers)?;
    }
    close(&mut stream)?;
    Ok(done)
}
