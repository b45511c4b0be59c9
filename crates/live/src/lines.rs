//! Messages between hosts: one JSON object per line, over TCP.
//!
//! Lines have a maximum length and a timeout, which bound what is allocated and how long anybody waits.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The longest line.
pub(crate) const LINE_MAX: usize = 4 << 20;
/// The longest line before the token is known to be right.
pub(crate) const LINE_FIRST_MAX: usize = 4 << 10;
/// Timeout for sending a message.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// The longest text of the peer that is shown.
const SHOWN_MAX: usize = 200;

/// Reads one line.
/// The error is safe to print.
pub(crate) fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| shown(&error.to_string()))
}

/// A message as a line.
/// Fails if the peer would not read that much.
pub(crate) fn emit(message: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    line.push(b'\n');
    match line.len() > LINE_MAX {
        true => Err(format!("a message of {} bytes; at most {LINE_MAX}", line.len())),
        false => Ok(line),
    }
}

/// Sends a message. A peer that takes it slowly does not keep the sender for longer than [`WRITE_MAX`].
pub(crate) fn send(to: &mut TcpStream, message: &impl Serialize) -> Result<(), String> {
    let line = emit(message)?;
    let (mut rest, until) = (&line[..], Instant::now() + WRITE_MAX);
    while !rest.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("the peer has not taken a message within {WRITE_MAX:?}"));
        }
        // A timeout of zero would mean none.
        let left = left.max(Duration::from_millis(1));
        to.set_write_timeout(Some(left)).map_err(|error| error.to_string())?;
        match to.write(rest) {
            Ok(0) => return Err("the connection is closed".to_owned()),
            Ok(len) => rest = &rest[len..],
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => return Err(error.to_string()),
            },
        }
    }
    Ok(())
}

/// A text of the peer, truncated and without control characters.
pub(crate) fn shown(text: &str) -> String {
    let safe = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(SHOWN_MAX).map(safe).collect()
}

/// What was received.
pub(crate) enum Received<T> {
    /// A message.
    Message(T),
    /// Nothing within the timeout.
    Nothing,
    /// The peer is gone.
    Closed,
}

/// The lines that come over a connection.
pub(crate) struct Lines {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// No line ends before this.
    searched: usize,
    /// The longest line.
    pub(crate) limit: usize,
}

impl Lines {
    pub(crate) fn new(stream: TcpStream, limit: usize) -> Lines {
        Lines { stream, buffer: Vec::new(), searched: 0, limit }
    }

    /// The next message, if it arrives `within` this time.
    pub(crate) fn next<T: DeserializeOwned>(
        &mut self,
        within: Duration,
    ) -> Result<Received<T>, String> {
        let until = Instant::now() + within;
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|&b| b == b'\n') {
                let end = self.searched + at;
                let message = if end > self.limit { Err(self.too_long()) } else { Ok(()) };
                let message = message.and_then(|()| parse(&self.buffer[..end]));
                self.buffer.drain(..=end);
                self.searched = 0;
                return message.map(Received::Message);
            }
            self.searched = self.buffer.len();
            if self.searched > self.limit {
                return Err(self.too_long());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Received::Nothing);
            }
            // A timeout of zero would mean none.
            let _ = self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(Received::Closed),
                Ok(len) => self.buffer.extend_from_slice(&chunk[..len]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                        return Ok(Received::Closed);
                    }
                    _ => return Err(error.to_string()),
                },
            }
        }
    }

    fn too_long(&self) -> String {
        format!("a line of more than {} bytes", self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::net::TcpListener;

    #[derive(Deserialize)]
    struct Point {
        at: u32,
    }

    fn pair() -> (TcpStream, Lines) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, Lines::new(listener.accept().unwrap().0, LINE_FIRST_MAX))
    }

    #[test]
    fn lines_may_arrive_in_pieces_and_long_ones_are_refused() {
        let (mut there, mut lines) = pair();
        there.write_all(b"{\"at\":").unwrap();
        let soon = Duration::from_millis(20);
        assert!(matches!(lines.next::<Point>(soon), Ok(Received::Nothing)));
        there.write_all(b"5}\n{\"at\":5}\n").unwrap();
        for _ in 0..2 {
            let heard = lines.next::<Point>(Duration::from_secs(5));
            assert!(matches!(heard, Ok(Received::Message(Point { at: 5 }))));
        }
        there.write_all(&[b'x'; 2 * LINE_FIRST_MAX]).unwrap();
        let error = lines.next::<Point>(Duration::from_secs(5)).err().unwrap();
        assert!(error.contains("more than 4096 bytes"), "{error}");
        assert!(lines.buffer.len() <= LINE_FIRST_MAX + 4096 + 1, "{}", lines.buffer.len());
        drop(there);
    }

    #[test]
    fn a_closed_connection_is_detected() {
        let (there, mut lines) = pair();
        drop(there);
        assert!(matches!(lines.next::<Point>(Duration::from_secs(5)), Ok(Received::Closed)));
    }
}
