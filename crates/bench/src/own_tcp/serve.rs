//! What is behind the kernel's TCP: a program that reads a stream, or answers requests.

use crate::far::HOST;
use lastmeter_linux::{Doing, files, wrong};
use lastmeter_live::task::{Entry, Parent, Task};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const PORT: u16 = 8079;
/// Bytes of an answer's content.
const BODY: usize = 256;
/// The longest request.
const REQUEST_MAX: usize = 1024;
/// For one read, and for the first connection.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);
/// The most that is read of the kernel's counts of sockets.
const SOCKSTAT_MAX: usize = 1 << 14;

/// What the program does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Job {
    /// Reads one stream, whose bytes are those of [`byte`].
    Stream,
    /// Answers requests, each on its own connection, until it is told to stop.
    Requests { closes_first: bool },
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Served {
    /// Bytes of the stream that are as they were sent, or connections answered.
    pub(super) done: u64,
    /// The namespace's connections in TIME_WAIT at the end.
    pub(super) time_wait: u64,
}

/// The byte at a place of a stream.
pub(super) fn byte(at: u64) -> u8 {
    (at * 31 + at / 251) as u8
}

pub(super) struct Serving;

impl Task for Serving {
    const NAME: &'static str = "serve behind the kernel's TCP";
    type Job = Job;
    type Word = ();
    type Report = Served;

    fn run(job: &Job, parent: &mut Parent<'_>) -> lastmeter_linux::Result<Served> {
        let what = "serving connections";
        let listener = TcpListener::bind((HOST, PORT)).doing(what)?;
        listener.set_nonblocking(true).doing(what)?;
        parent.ready()?;
        let done = match *job {
            Job::Stream => stream(&listener).doing(what)?,
            Job::Requests { closes_first } => {
                let mut done = 0;
                while !parent.speaks(LOOK) {
                    while let Some(connection) = accepted(&listener).doing(what)? {
                        done += u64::from(answer(connection, closes_first).is_ok());
                    }
                }
                done
            }
        };
        parent.hear::<Serving>()?;
        match time_wait() {
            Some(time_wait) => Ok(Served { done, time_wait }),
            None => {
                wrong("/proc/net/sockstat", "no connections in TIME_WAIT", "a line TCP: ... tw")
            }
        }
    }
}

/// For the table of a program whose helpers may do this.
pub(crate) const TASK: Entry = Entry::of::<Serving>();

/// Connections of this namespace in TIME_WAIT.
fn time_wait() -> Option<u64> {
    let text = files::read(Path::new("/proc/self/net/sockstat"), SOCKSTAT_MAX).ok()?;
    let text = String::from_utf8(text).ok()?;
    let line = text.lines().find(|line| line.starts_with("TCP:"))?;
    let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "tw");
    words.nth(1)?.parse().ok()
}

fn accepted(listener: &TcpListener) -> std::io::Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((connection, _)) => {
            connection.set_nonblocking(false)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            connection.set_nodelay(true)?;
            Ok(Some(connection))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one stream to its end; how many bytes were right, up to the first that was not.
fn stream(listener: &TcpListener) -> std::io::Result<u64> {
    let began = Instant::now();
    let mut connection = loop {
        match accepted(listener)? {
            Some(connection) => break connection,
            None if began.elapsed() > PATIENCE => return Err(ErrorKind::TimedOut.into()),
            None => std::thread::sleep(LOOK),
        }
    };
    let (mut right, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let len = connection.read(&mut buffer)?;
        let good = buffer[..len].iter().zip(right..).take_while(|&(&found, at)| found == byte(at));
        let good = good.count();
        right += good as u64;
        if len == 0 || good < len {
            return Ok(right);
        }
    }
}

/// Reads a request and answers it.
fn answer(mut connection: TcpStream, closes_first: bool) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; REQUEST_MAX];
    while !request.ends_with(b"\r\n\r\n") {
        let len = connection.read(&mut buffer)?;
        if len == 0 || request.len() + len > REQUEST_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        request.extend(&buffer[..len]);
    }
    let mut answer = format!("HTTP/1.0 200 OK\r\nContent-Length: {BODY}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + BODY, b'.');
    connection.write_all(&answer)?;
    if closes_first {
        connection.shutdown(Shutdown::Write)?;
    }
    // Until the client has closed as well; anything more from it is no request of ours.
    match connection.read(&mut buffer)? {
        0 => Ok(()),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}
