//! What carries a viewer's bytes: a connection, TLS in it (VeNCrypt), WebSocket in that (browsers).
//!
//! ```text
//! socket -> [TLS] -> [WebSocket] -> RFB
//! ```

use crate::access::Access;
use crate::tls;
use lastmeter_wire::websocket::{Head, Incoming, Said, opcode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A viewer that reads nothing for this long is disconnected.
const STUCK: Duration = Duration::from_secs(30);
/// Bytes read at once.
const READ: usize = 64 << 10;

/// A connection and what was read of it.
pub(super) struct Link {
    stream: TcpStream,
    tls: Option<Box<ServerConnection>>,
    frames: Option<Incoming>,
    /// What the viewer said.
    pub(super) input: Vec<u8>,
    /// What TLS gave, before it is taken from its frames.
    framed: Vec<u8>,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> Result<Link, String> {
        stream.set_write_timeout(Some(STUCK)).map_err(|error| error.to_string())?;
        Ok(Link { stream, tls: None, frames: None, input: Vec::new(), framed: Vec::new() })
    }
    /// Whether nobody on the way can read it: it is encrypted, or there is no way.
    pub(super) fn is_private(&self) -> bool {
        self.tls.is_some() || self.is_local()
    }
    /// Whether it does not leave this host.
    pub(super) fn is_local(&self) -> bool {
        crate::link::Stream::is_local(&self.stream)
    }
    /// Whether it is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }
    /// Whose certificate the viewer has shown in TLS, if it has; waits until both have shaken hands.
    pub(super) fn certified(
        &mut self,
        access: &Access,
        until: Instant,
    ) -> Result<Option<String>, String> {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.more(until)?;
        }
        self.tls.as_ref().map_or(Ok(None), |connection| tls::shown(connection, access))
    }
    /// Whether the next byte begins TLS; waits for it.
    pub(super) fn begins_tls(&self, until: Instant) -> Result<bool, String> {
        const HANDSHAKE: u8 = 22;
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut first = [0];
        let peeked = self.stream.set_read_timeout(Some(left));
        let peeked = peeked.and_then(|()| self.stream.peek(&mut first));
        let back = self.stream.set_read_timeout(None);
        let count = peeked.and_then(|count| back.map(|()| count));
        Ok(count.map_err(|error| error.to_string())? > 0 && first[0] == HANDSHAKE)
    }
    /// From now on all is encrypted. What is written before both sides are ready waits.
    pub(super) fn encrypt(&mut self, config: &Arc<ServerConfig>) -> Result<(), String> {
        let mut tls = ServerConnection::new(config.clone()).map_err(|error| error.to_string())?;
        let early = std::mem::take(&mut self.input);
        let mut early = early.as_slice();
        while !early.is_empty() {
            tls.read_tls(&mut early).map_err(|error| error.to_string())?;
            self.framed_by(&mut tls)?;
        }
        self.tls = Some(Box::new(tls));
        self.unframe()
    }
    /// From now on all is in frames of WebSocket.
    pub(super) fn frame(&mut self) -> Result<(), String> {
        self.framed = std::mem::take(&mut self.input);
        self.frames = Some(Incoming::default());
        self.unframe()
    }
    /// Waits until there is something to read, `wake` is readable, or the time is over; reads what is available.
    /// False if the viewer has disconnected.
    pub(super) fn wait(
        &mut self,
        wake: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> Result<bool, String> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = vec![PollFd::new(&self.stream, PollFlags::IN)];
        if let Some(woken) = &wake {
            fds.push(PollFd::new(woken, PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.to_string()),
        }
        let quiet = fds[0].revents().is_empty();
        drop(fds);
        if quiet {
            return Ok(true);
        }
        Ok(self.receive()? && self.unframe().map(|()| true)?)
    }
    /// Reads once. False at the end.
    fn receive(&mut self) -> Result<bool, String> {
        if let Some(mut tls) = self.tls.take() {
            let read = tls.read_tls(&mut self.stream);
            let done = match read {
                Ok(count) => self.framed_by(&mut tls).map(|open| open && count > 0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
                Err(error) => Err(error.to_string()),
            };
            // Also what is wrong is told to the other side.
            let sent = self.flush(&mut tls);
            self.tls = Some(tls);
            let done = done?;
            sent?;
            return Ok(done);
        }
        let into = if self.frames.is_some() { &mut self.framed } else { &mut self.input };
        let start = into.len();
        into.resize(start + READ, 0);
        let read = self.stream.read(&mut into[start..]);
        let len = *read.as_ref().unwrap_or(&0);
        into.truncate(start + len);
        match read {
            Ok(len) => Ok(len > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error.to_string()),
        }
    }
    /// Decrypts what was read. False once the viewer has ended TLS.
    fn framed_by(&mut self, tls: &mut ServerConnection) -> Result<bool, String> {
        let state =
            tls.process_new_packets().map_err(|error| format!("TLS: {}", tls::words(&error)))?;
        let into = if self.frames.is_some() { &mut self.framed } else { &mut self.input };
        let start = into.len();
        into.resize(start + state.plaintext_bytes_to_read(), 0);
        tls.reader().read_exact(&mut into[start..]).map_err(|error| error.to_string())?;
        Ok(!state.peer_has_closed() || into.len() > start)
    }
    fn flush(&mut self, tls: &mut ServerConnection) -> Result<(), String> {
        while tls.wants_write() {
            tls.write_tls(&mut self.stream).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
    /// Takes data out of frames, and answers pings.
    fn unframe(&mut self) -> Result<(), String> {
        let Some(mut frames) = self.frames.take() else { return Ok(()) };
        let framed = std::mem::take(&mut self.framed);
        let mut more = framed.as_slice();
        loop {
            let said = frames.take(more, &mut self.input).map_err(|error| error.to_string())?;
            more = &[];
            match said {
                None => break,
                Some(Said::Ping(data)) => self.put(&framing(opcode::PONG, &data))?,
                Some(Said::Close) => {
                    self.put(&framing(opcode::CLOSE, &[]))?;
                    return Err("the browser closed its WebSocket".to_owned());
                }
            }
        }
        self.frames = Some(frames);
        Ok(())
    }
    /// The next bytes, which must arrive before an instant.
    pub(super) fn take<const N: usize>(&mut self, until: Instant) -> Result<[u8; N], String> {
        let bytes = self.take_some(N, until)?;
        Ok(std::array::from_fn(|at| bytes[at]))
    }
    /// The next so many bytes.
    pub(super) fn take_some(&mut self, count: usize, until: Instant) -> Result<Vec<u8>, String> {
        while self.input.len() < count {
            self.more(until)?;
        }
        Ok(self.input.drain(..count).collect())
    }
    /// Waits for more bytes of a viewer that has not been let in.
    pub(super) fn more(&mut self, until: Instant) -> Result<(), String> {
        if Instant::now() >= until {
            return Err("a viewer did not say who it is".to_owned());
        }
        if !self.wait(None, Some(until))? {
            return Err("a viewer went before it said who it is".to_owned());
        }
        Ok(())
    }
    /// Sends.
    pub(super) fn say(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.frames.is_none() {
            return self.put(bytes);
        }
        // One write, so that one packet carries both.
        self.put(&framing(opcode::BINARY, bytes))
    }
    fn put(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(mut tls) = self.tls.take() else {
            return self.stream.write_all(bytes).map_err(|error| error.to_string());
        };
        let mut rest = bytes;
        let mut put = || -> Result<(), String> {
            while !rest.is_empty() {
                let count = tls.writer().write(rest).map_err(|error| error.to_string())?;
                if count == 0 && !tls.wants_write() {
                    return Err("TLS takes no more before it is ready".to_owned());
                }
                rest = &rest[count..];
                self.flush(&mut tls)?;
            }
            Ok(())
        };
        let done = put();
        self.tls = Some(tls);
        done
    }
}

fn framing(opcode: u8, data: &[u8]) -> Vec<u8> {
    let head = Head { last: true, opcode, mask: None, len: data.len() as u64 };
    let mut bytes = head.emit();
    bytes.extend_from_slice(data);
    bytes
}
