//! A server of HTTP and its clients, with a connection for each request.

use super::Exchanged;
use crate::channel;
use crate::worker::Reply;
use lastmeter_linux::clock::nanoseconds;
use lastmeter_linux::sys;
use lastmeter_linux::{Doing, Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Threads of each side.
const THREADS: usize = 4;
/// The longest request, and header of an answer.
const HEADER_MAX: usize = 4096;
/// Bytes of an answer.
const BODY: usize = 1024;
/// Of one read or write.
const PATIENCE: Duration = Duration::from_secs(2);
/// For the first connection.
const FIRST: Duration = Duration::from_secs(6);

/// Who closes a connection first, and so keeps its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closes {
    /// The server, when it has answered, as HTTP/1.0 has it.
    Server,
    /// The client, when it has the length that the answer says: the change to HTTP.
    Client,
    /// The client, by a reset in place of a FIN: neither side keeps state. Today's nearest to a change of TCP, of which
    /// the kernel has none.
    Reset,
}

impl Closes {
    fn is_server(self) -> bool {
        self == Closes::Server
    }
}

/// Connections of this network namespace in TIME_WAIT.
fn time_wait() -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/sockstat").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
    let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "tw").skip(1);
    words.next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Makes connections in some threads until the time is over. `connection` says whether one succeeded, or that there
/// was none.
fn together(lasts: Duration, connection: impl Fn() -> Option<bool> + Sync) -> Result<Exchanged> {
    let from = nanoseconds();
    let until = from + lasts.as_nanos() as u64;
    let count = || {
        let (mut done, mut failed) = (0, 0);
        while nanoseconds() < until {
            match connection() {
                Some(true) => done += 1,
                Some(false) => failed += 1,
                None => {}
            }
        }
        (done, failed)
    };
    let counts: Option<Vec<(u64, u64)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    });
    let ended =
        || Error::Worker { doing: "exchange".to_owned(), found: "a thread ended".to_owned() };
    let counts = counts.ok_or_else(ended)?;
    Ok(Exchanged {
        done: counts.iter().map(|(done, _)| done).sum(),
        again: counts.iter().map(|(_, failed)| failed).sum(),
        lasted: (nanoseconds() - from) as f64 / 1e9,
        time_wait: time_wait(),
        ..Exchanged::default()
    })
}

/// Reads up to and including the empty line; returns how many bytes came after it.
fn header(stream: &mut TcpStream) -> Option<(Vec<u8>, usize)> {
    let mut bytes = vec![0; HEADER_MAX];
    let mut len = 0;
    loop {
        let more = stream.read(bytes.get_mut(len..)?).ok().filter(|more| *more > 0)?;
        len += more;
        if let Some(end) = bytes[..len].windows(4).position(|four| four == b"\r\n\r\n") {
            let after = len - end - 4;
            bytes.truncate(end);
            return Some((bytes, after));
        }
    }
}

/// Answers one request; whether all went well.
fn answer(mut stream: TcpStream, closes: Closes, response: &[u8]) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let (request, _) = header(&mut stream)?;
    if !request.starts_with(b"GET ") {
        return None;
    }
    stream.write_all(response).ok()?;
    if closes.is_server() {
        stream.shutdown(Shutdown::Write).ok()?;
    }
    // Until the client has closed, too; a reset ends it as well.
    let mut rest = [0; 64];
    while stream.read(&mut rest).is_ok_and(|len| len > 0) {}
    Some(())
}

pub(super) fn server(
    address: Ipv4Addr,
    closes: Closes,
    lasts: Duration,
    parent: &mut UnixStream,
) -> Result<Exchanged> {
    let what = "serving HTTP";
    let listener = TcpListener::bind((address, 0)).doing(what)?;
    listener.set_nonblocking(true).doing(what)?;
    let port = listener.local_addr().doing(what)?.port();
    channel::send(parent, &Reply::Listening { port }).doing("telling the port")?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\nConnection: close\r\n\r\n");
    let mut response = head.into_bytes();
    response.resize(response.len() + BODY, b'x');
    let accept = || {
        let taken =
            listener.accept().ok().filter(|(stream, _)| stream.set_nonblocking(false).is_ok());
        if taken.is_none() {
            std::thread::sleep(Duration::from_micros(20));
        }
        taken.map(|(stream, _)| stream)
    };
    // A new link may be silent for a second, so time begins with the first connection, which does not count.
    let until = nanoseconds() + FIRST.as_nanos() as u64;
    while nanoseconds() < until {
        if accept().and_then(|stream| answer(stream, closes, &response)).is_some() {
            break;
        }
    }
    together(lasts, || accept().map(|stream| answer(stream, closes, &response).is_some()))
}

/// One request on a connection of its own.
fn ask(address: Ipv4Addr, port: u16, closes: Closes) -> Option<()> {
    let mut stream = TcpStream::connect((address, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"GET /1k HTTP/1.1\r\nHost: device\r\nConnection: close\r\n\r\n").ok()?;
    let (head, mut got) = header(&mut stream)?;
    let mut buffer = [0; 2 * BODY];
    // Who closes first must know from the length that all has come.
    while closes.is_server() || got < BODY {
        match stream.read(&mut buffer).ok()? {
            0 => break,
            more => got += more,
        }
    }
    if closes == Closes::Reset {
        // `struct linger`: on, for no time.
        sys::set_words(stream.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &[1, 0]).ok()?;
    }
    (head.starts_with(b"HTTP/1.1 200") && got == BODY).then_some(())
}

pub(super) fn client(
    address: Ipv4Addr,
    port: u16,
    closes: Closes,
    lasts: Duration,
) -> Result<Exchanged> {
    let until = nanoseconds() + FIRST.as_nanos() as u64;
    while ask(address, port, closes).is_none() && nanoseconds() < until {}
    together(lasts, || Some(ask(address, port, closes).is_some()))
}
