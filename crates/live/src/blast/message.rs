//! The protocol between driver and agents: one JSON object per line, over TCP.
//!
//! ```text
//! driver                                            agent
//!   hello {version, token} ---------------------->    check token
//!   <--------------------------- hello {clock, now}
//!   prepare {run, sinks} ------------------------>    open sockets
//!   <------------------------------ prepared {ports}
//!   aim {sources} ------------------------------->    probe each sink: it must reply
//!   <------------------------------------- aimed {}
//!   begin {at | after} -------------------------->    send and count
//!   <--------------- progress {sent, received} ...    four times a second
//!   stop {} ------------------------------------->    (on Ctrl-C) sources end
//!   <-------------------------------- sent {sources}
//!   finish {drain} ------------------------------>    sinks wait for packets in flight
//!   <--------------------- received {sinks, leaving}
//! ```
//!
//! Anything else, or out of turn, is answered by `refused {why}`, and the connection is closed. Lines
//! have a maximum length and a timeout, which bound what is allocated.

use super::report::{SinkReport, SourceReport};
use super::traffic::{Format, Traffic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The protocol version, the same on both sides.
pub const VERSION: u32 = 2;
/// The longest line: reports of [`super::FLOWS_MAX`] flows, or plans with many sizes, stay below it.
pub const LINE_MAX: usize = 1 << 20;
/// The longest line before the token is known to be right.
pub const LINE_FIRST_MAX: usize = 4 << 10;
/// Timeout for sending a message.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// The longest text of the peer that is shown.
const SHOWN_MAX: usize = 200;

/// A driver's request to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Opens the session.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The agent's token, if it requires one.
        #[serde(default)]
        token: Option<String>,
    },
    /// Open the sinks' sockets.
    Prepare {
        /// The run's own number.
        run: u64,
        /// One for each flow to this host.
        sinks: Vec<SinkJob>,
    },
    /// Probe the sinks.
    Aim {
        /// One for each flow from this host.
        sources: Vec<SourceJob>,
    },
    /// Send.
    Begin {
        /// When, in nanoseconds of the clock that driver and agent share.
        #[serde(default)]
        at: Option<u64>,
        /// Otherwise, the delay after receipt of this, in nanoseconds.
        after: u64,
    },
    /// Stop sending.
    Stop {},
    /// Stop counting.
    Finish {
        /// After this many nanoseconds without a packet.
        drain: u64,
    },
}

/// An agent's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    /// To hello.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The identity of its clock: the same text, the same clock.
        clock: String,
        /// The time on that clock, in nanoseconds.
        now: u64,
    },
    /// To prepare.
    Prepared {
        /// The UDP port of each sink.
        ports: Vec<u16>,
    },
    /// To aim.
    Aimed {},
    /// While it sends and counts.
    Progress {
        /// Packets of each of its sources.
        sent: Vec<u64>,
        /// Packets of each of its sinks.
        received: Vec<u64>,
    },
    /// Its sources have ended.
    Sent {
        /// What they did.
        sources: Vec<SourceReport>,
    },
    /// Its sinks have ended.
    Received {
        /// What they counted.
        sinks: Vec<SinkReport>,
        /// Whether they ended early because the agent was stopped.
        leaving: bool,
    },
    /// It refuses the request.
    Refused {
        /// Why not.
        why: String,
    },
}

/// A flow to receive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkJob {
    /// The flow, by its index in the plan.
    pub flow: u16,
    /// What is in its packets.
    pub format: Format,
    /// The greatest size.
    pub size_max: u32,
    /// The version of IP.
    pub ipv6: bool,
    /// Where to receive it; where the driver reaches the agent if not given.
    #[serde(default)]
    pub at: Option<IpAddr>,
    /// Whether its source shares the clock.
    pub same_clock: bool,
}

/// A flow to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceJob {
    /// The flow, by its index in the plan.
    pub flow: u16,
    /// Its name, which selects its random stream.
    pub name: String,
    /// The seed of the random streams.
    pub seed: u64,
    /// Where to.
    pub to: SocketAddr,
    /// What.
    pub traffic: Traffic,
}

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
pub(super) fn send(to: &mut TcpStream, message: &impl Serialize) -> Result<(), String> {
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
pub(super) fn shown(text: &str) -> String {
    let safe = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(SHOWN_MAX).map(safe).collect()
}

/// What was received.
pub(super) enum Received<T> {
    /// A message.
    Message(T),
    /// Nothing within the timeout.
    Nothing,
    /// The peer is gone.
    Closed,
}

/// The lines that come over a connection.
pub(super) struct Lines {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// No line ends before this.
    searched: usize,
    /// The longest line.
    pub(super) limit: usize,
}

impl Lines {
    pub(super) fn new(stream: TcpStream, limit: usize) -> Lines {
        Lines { stream, buffer: Vec::new(), searched: 0, limit }
    }

    /// The next message, if it arrives `within` this time.
    pub(super) fn next<T: DeserializeOwned>(
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
    use proptest::prelude::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, Lines) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, Lines::new(listener.accept().unwrap().0, LINE_FIRST_MAX))
    }

    #[test]
    fn a_message_is_a_line() {
        let line = emit(&Request::Begin { at: None, after: 5 }).unwrap();
        let text = String::from_utf8(line.clone()).unwrap();
        assert_eq!(text, "{\"ask\":\"begin\",\"at\":null,\"after\":5}\n");
        assert_eq!(parse::<Request>(&line), Ok(Request::Begin { at: None, after: 5 }));
        let error = parse::<Request>(b"{\"ask\":\"begin\",\"after\":5,\"x\":1}").unwrap_err();
        assert!(error.contains("unknown field"), "{error}");
        assert!(parse::<Request>(b"GET / HTTP/1.1").is_err());
    }

    #[test]
    fn lines_may_arrive_in_pieces_and_long_ones_are_refused() {
        let (mut there, mut lines) = pair();
        there.write_all(b"{\"ask\":\"st").unwrap();
        let soon = Duration::from_millis(20);
        assert!(matches!(lines.next::<Request>(soon), Ok(Received::Nothing)));
        there.write_all(b"op\"}\n{\"ask\":\"stop\"}\n").unwrap();
        for _ in 0..2 {
            let heard = lines.next::<Request>(Duration::from_secs(5));
            assert!(matches!(heard, Ok(Received::Message(Request::Stop {}))));
        }
        there.write_all(&[b'x'; 2 * LINE_FIRST_MAX]).unwrap();
        let error = lines.next::<Request>(Duration::from_secs(5)).err().unwrap();
        assert!(error.contains("more than 4096 bytes"), "{error}");
        assert!(lines.buffer.len() <= LINE_FIRST_MAX + 4096 + 1, "{}", lines.buffer.len());
        drop(there);
    }

    #[test]
    fn a_closed_connection_is_detected() {
        let (there, mut lines) = pair();
        drop(there);
        assert!(matches!(lines.next::<Request>(Duration::from_secs(5)), Ok(Received::Closed)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            crate::fuzz::fuzz_blast_control(&bytes);
        }
    }
}
