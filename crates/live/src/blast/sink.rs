//! A sink: takes a flow's packets off a socket and counts them.

use super::clock;
use super::header::{self, Header, Kind};
use super::message::SinkJob;
use super::report::SinkReport;
use super::session::Shared;
use super::tally::Tally;
use super::traffic::{Format, headers_len};
use lastmeter_linux::port::Incoming;
use lastmeter_linux::sys::{self, words};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Size of the socket's receive buffer in bytes, if the kernel allows it.
const BUFFER: i32 = 8 << 20;
/// The most packets in one system call.
const BATCH: usize = 64;
/// Limit on the bytes of buffers for one call: fewer long packets fit.
const BATCH_LEN: usize = 512 << 10;
/// The longest wait for a packet, which bounds how late an end is noticed.
const WAIT: Duration = Duration::from_millis(20);
/// A sink ends this many nanoseconds after it was told to, even if packets still arrive.
const DRAIN_MAX: u64 = 3_000_000_000;

/// A sink that listens.
pub(super) struct Sink {
    job: SinkJob,
    socket: UdpSocket,
    tally: Tally,
    payload_max: usize,
    last: u64,
}

impl Sink {
    /// Opens a port at this address; returns its number.
    ///
    /// # Errors
    /// No such packets exist, or the port cannot be opened.
    pub(super) fn open(at: SocketAddr, job: SinkJob, run: u64) -> Result<(Sink, u16), String> {
        let payload_max = job.format.payload(job.size_max, job.ipv6);
        let payload_max =
            payload_max.ok_or_else(|| format!("there are no packets of {} B", job.size_max))?;
        let open = || -> io::Result<(UdpSocket, u16)> {
            let socket = UdpSocket::bind(at)?;
            socket.set_read_timeout(Some(WAIT))?;
            // Root may exceed the limit; for others the kernel caps the buffer.
            let fd = socket.as_fd();
            sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)
                .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER))?;
            let port = socket.local_addr()?.port();
            Ok((socket, port))
        };
        let (socket, port) =
            open().map_err(|error| format!("opening a UDP port at {}: {error}", at.ip()))?;
        let around = match job.format {
            Format::Udp => headers_len(job.ipv6),
            Format::Aal5 => 0,
        };
        let tally = Tally::new(job.flow, run, job.same_clock, around as u64);
        Ok((Sink { job, socket, tally, payload_max, last: clock::now() }, port))
    }

    /// Answers probes, then counts, until it is told to finish and nothing has come for a while.
    pub(super) fn run(mut self, index: usize, shared: &Shared) -> SinkReport {
        let mut buffer = vec![0; self.payload_max.max(header::LEN) + 1];
        while !shared.begun() && shared.finishing().is_none() {
            match self.socket.recv_from(&mut buffer) {
                Ok((len, from)) => {
                    if let Some(probe) = self.take(clock::now(), &buffer[..len]) {
                        let echo = Header { kind: Kind::Echo, ..probe };
                        // A lost reply is requested again.
                        let _ = self.socket.send_to(&echo.emit(), from);
                    }
                }
                Err(error) if is_lasting(&error) => break,
                Err(_) => {}
            }
        }
        let most = (BATCH_LEN / buffer.len()).clamp(1, BATCH);
        let mut incoming = Incoming::new(most, buffer.len());
        while !self.has_ended(shared) {
            match incoming.receive(self.socket.as_fd()) {
                Ok(count) => {
                    let now = clock::now();
                    self.last = now;
                    for at in 0..count {
                        self.take(now, incoming.packet(at));
                    }
                    shared.received[index].store(self.tally.so_far().0, Ordering::Relaxed);
                }
                Err(error) if is_lasting(&error) => break,
                Err(_) => {}
            }
        }
        self.tally.report(self.overrun())
    }

    fn has_ended(&self, shared: &Shared) -> bool {
        let Some((since, drain)) = shared.finishing() else { return false };
        let now = clock::now();
        let quiet = now.saturating_sub(self.last.max(since));
        quiet >= drain || now.saturating_sub(since) >= DRAIN_MAX
    }

    fn take(&mut self, now: u64, payload: &[u8]) -> Option<Header> {
        // Probes are plain, whatever the format.
        let probe = Header::parse(payload).ok().filter(|header| header.kind == Kind::Probe);
        let read = match probe {
            Some(probe) => Ok(probe),
            None => header::read(self.job.format, payload),
        };
        self.tally.take(now, read)
    }

    /// Packets that the kernel dropped because the socket's buffer was full.
    fn overrun(&self) -> u64 {
        /// `SK_MEMINFO_DROPS` of `linux/sock_diag.h`.
        const DROPS: usize = 8;
        /// `SK_MEMINFO_VARS`: the number of words.
        const WORDS: usize = 9;
        match words::<WORDS>(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO) {
            Ok((words, filled)) if filled > DROPS => u64::from(words[DROPS]),
            _ => 0,
        }
    }
}

/// Whether retrying is pointless.
fn is_lasting(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    !matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}
