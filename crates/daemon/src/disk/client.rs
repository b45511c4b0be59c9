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
pub(crate) struct Load {
    /// Writes, else reads.
    pub(crate) write: bool,
    /// Bytes of each.
    pub(crate) length: u32,
    /// Requests in flight.
    pub(crate) depth: u32,
    /// One place after the other, as a file is read; else at random.
    pub(crate) in_order: bool,
}

/// Where a disk is.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// A Unix socket.
    Socket(&'a Path),
    /// TCP.
    Address(SocketAddr),
}

/// Where requests go, where answers come from, the size of the disk.
pub(crate) type Opened = (Box<dyn Write + Send>, BufReader<Box<dyn Read + Send>>, u64);

/// Opens an export.
pub(crate) fn open(place: Place<'_>, export: &str) -> Result<Opened, Complaint> {
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
pub(crate) fn close(stream: &mut impl Write) -> Result<(), Complaint> {
    let (offset, length) = (0, 0);
    let last = Request { flags: 0, command: Command::DISCONNECT, cookie: 0, offset, length };
    Ok(stream.write_all(&last.emit())?)
}

/// Writes the whole disk: what was never written costs less to read.
pub(crate) fn fill(place: Place<'_>, export: &str) -> Result<(), Complaint> {
    const LENGTH: u32 = 1 << 20;
    let (mut stream, mut reader, size) = open(place, export)?;
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

/// Latencies that a measurement keeps; those after them are like them.
const KEPT_MAX: usize = 1 << 20;

/// What a measurement saw.
pub(crate) struct Seen {
    /// Requests answered.
    pub(crate) done: u64,
    /// How long that took.
    pub(crate) seconds: f64,
    /// Seconds from request to answer.
    latencies: Vec<f64>,
    /// Seconds of the client's processor.
    pub(crate) cpu: f64,
}

impl Seen {
    /// The mean time from request to answer.
    pub(crate) fn mean(&self) -> f64 {
        self.latencies.iter().sum::<f64>() / self.latencies.len().max(1) as f64
    }
    /// That of the median request.
    pub(crate) fn median(&self) -> f64 {
        let mut all = self.latencies.clone();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }
}

/// Requests in flight, each at a place of its own, and how long they took.
pub(crate) struct Laps {
    asked: Vec<Instant>,
    latencies: Vec<f64>,
    began: Instant,
    cpu: Duration,
    done: u64,
}

impl Laps {
    pub(crate) fn new(depth: u32) -> Laps {
        let now = Instant::now();
        let (asked, latencies) = (vec![now; depth as usize], Vec::new());
        Laps { asked, latencies, began: now, cpu: crate::sandbox::thread(), done: 0 }
    }
    /// A request begins.
    pub(crate) fn ask(&mut self, at: usize) {
        self.asked[at] = Instant::now();
    }
    /// It was answered.
    pub(crate) fn answered(&mut self, at: u64) -> Result<usize, Complaint> {
        let at = usize::try_from(at).ok().filter(|at| *at < self.asked.len());
        let at = at.ok_or("an answer to nothing")?;
        self.done += 1;
        if self.latencies.len() < KEPT_MAX {
            self.latencies.push(self.asked[at].elapsed().as_secs_f64());
        }
        Ok(at)
    }
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
    pub(crate) fn end(self) -> Seen {
        let Laps { latencies, began, cpu, done, .. } = self;
        let cpu = crate::sandbox::thread().saturating_sub(cpu).as_secs_f64();
        Seen { done, seconds: began.elapsed().as_secs_f64(), latencies, cpu }
    }
}

/// Requests at places in order or at random, for so long.
pub(crate) fn run(
    place: Place<'_>,
    export: &str,
    load: Load,
    seconds: f64,
) -> Result<Seen, Complaint> {
    let (mut stream, mut reader, size) = open(place, export)?;
    let places = (size / u64::from(load.length)).max(1);
    let (mut random, mut next) = (Stream::new(1, "places"), 0);
    let data = vec![0x5a; load.length as usize];
    let command = if load.write { Command::WRITE } else { Command::READ };
    let mut laps = Laps::new(load.depth);
    let mut ask = |stream: &mut Vec<u8>, laps: &mut Laps, at: usize| {
        let place = if load.in_order { next % places } else { random.below(places) };
        next += 1;
        let offset = place * u64::from(load.length);
        let request = Request { flags: 0, command, cookie: at as u64, offset, length: load.length };
        stream.extend(request.emit());
        if load.write {
            stream.extend_from_slice(&data);
        }
        laps.ask(at);
    };
    let mut outgoing = Vec::with_capacity((REQUEST_LEN + data.len()) * load.depth as usize);
    (0..load.depth).for_each(|at| ask(&mut outgoing, &mut laps, at as usize));
    stream.write_all(&outgoing)?;
    let answer = 16 + if load.write { 0 } else { load.length as usize };
    let mut answers = vec![0; answer];
    let until = Duration::from_secs_f64(seconds);
    while laps.elapsed() < until {
        outgoing.clear();
        // All answers that are there, and as many new requests at once.
        loop {
            reader.read_exact(&mut answers)?;
            if answers[4..8] != [0; 4] {
                return Err(Complaint("a request was refused".to_owned()));
            }
            let cookie = answers[8..16].try_into().map_or(u64::MAX, u64::from_be_bytes);
            let at = laps.answered(cookie)?;
            ask(&mut outgoing, &mut laps, at);
            if reader.buffer().len() < answer {
                break;
            }
        }
        stream.write_all(&outgoing)?;
    }
    let seen = laps.end();
    // What is in flight.
    for _ in 0..load.depth {
        reader.read_exact(&mut answers)?;
    }
    close(&mut stream)?;
    Ok(seen)
}
