//! A link for a connection of TCP, in this process: bytes come at its rate, later by its delay, and in order.
//!
//! ```text
//! client --> pieces as long as a frame --> due = when the line is free + its time on it + delay --> disk
//!        <-- the same back                                                                      <--
//! ```
//!
//! Nothing is lost, and TCP's own windows are over loopback, so slow start and congestion are not in it: what is in
//! flight is limited by who asks. How late pieces were written is kept: a busy machine is later than the link.

use crate::Complaint;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Content of a frame, and what a frame has besides: Ethernet's framing, headers of IP and TCP.
pub(super) const CONTENT: usize = 1448;
pub(super) const FRAMING: usize = 90;
/// Pieces that wait besides those on the way.
const QUEUE: usize = 256;
/// A piece is late by a fifth of a round trip, and by no less than this.
const TOLERANCE_MIN: Duration = Duration::from_micros(100);
/// The most pieces that may be late: one in a hundred.
const LATE_MAX: f64 = 0.01;

/// A line, the same both ways.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Bits a second.
    pub(super) rate: f64,
    /// Each way.
    pub(super) delay: Duration,
}

/// Pieces of both ways, and those that were late.
#[derive(Default)]
struct Counts {
    pieces: AtomicU64,
    late: AtomicU64,
}

/// A link for one connection, which ends with it.
pub(super) struct Emulated {
    /// Where the client connects.
    pub(super) address: SocketAddr,
    thread: JoinHandle<()>,
    counts: Arc<Counts>,
}

impl Emulated {
    /// In front of a server.
    pub(super) fn new(server: SocketAddr, line: Line) -> Result<Emulated, Complaint> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let counts = Arc::<Counts>::default();
        let own = counts.clone();
        let thread = std::thread::spawn(move || {
            // Whoever fails closes its connections, and both ends see that.
            let _ = both(&listener, server, line, &own);
        });
        Ok(Emulated { address, thread, counts })
    }
    /// Waits until the connection has ended. Whether it was as fast as the line.
    pub(super) fn end(self) -> bool {
        let _ = self.thread.join();
        let [pieces, late] =
            [&self.counts.pieces, &self.counts.late].map(|count| count.load(Ordering::Relaxed));
        late as f64 <= LATE_MAX * pieces as f64
    }
}

fn both(
    listener: &TcpListener,
    server: SocketAddr,
    line: Line,
    counts: &Counts,
) -> std::io::Result<()> {
    let (client, server) = (listener.accept()?.0, TcpStream::connect(server)?);
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let in_flight = line.rate * line.delay.as_secs_f64() / 8.0 / CONTENT as f64;
    let room = QUEUE + in_flight as usize;
    let ((there, at_server), (back, at_client)) = (sync_channel(room), sync_channel(room));
    std::thread::scope(|scope| {
        let (client, server) = (&client, &server);
        scope.spawn(move || take(client, there, line));
        let tolerance = TOLERANCE_MIN.max(line.delay * 2 / 5);
        scope.spawn(move || give(server, at_server, tolerance, counts));
        scope.spawn(move || take(server, back, line));
        scope.spawn(move || give(client, at_client, tolerance, counts));
    });
    Ok(())
}

/// Bytes that are due at the other end.
type Piece = (Instant, Vec<u8>);

/// Reads until the end.
fn take(mut from: &TcpStream, line: SyncSender<Piece>, Line { rate, delay }: Line) {
    let (mut bytes, mut free) = (vec![0; CONTENT], Instant::now());
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let on_line = ((len + FRAMING) * 8) as f64 / rate;
        free = free.max(Instant::now()) + Duration::from_secs_f64(on_line);
        if line.send((free + delay, bytes[..len].to_vec())).is_err() {
            break;
        }
    }
}

/// Writes each piece when it is due; then closes that way.
fn give(mut to: &TcpStream, line: Receiver<Piece>, tolerance: Duration, counts: &Counts) {
    for (due, bytes) in line {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        counts.pieces.fetch_add(1, Ordering::Relaxed);
        counts.late.fetch_add(u64::from(due.elapsed() > tolerance), Ordering::Relaxed);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut reader = stream.try_clone().expect("twice");
            std::io::copy(&mut reader, &mut stream)
        });
        address
    }

    #[test]
    fn nothing_is_early_and_all_comes_in_order() {
        let line = Line { rate: 10e6, delay: Duration::from_millis(20) };
        let link = Emulated::new(echo(), line).ok().expect("a link");
        let mut stream = TcpStream::connect(link.address).expect("connected");
        let began = Instant::now();
        stream.write_all(&[7]).expect("sent");
        stream.read_exact(&mut [0]).expect("back");
        assert!(began.elapsed() >= 2 * line.delay, "{:?}", began.elapsed());
        let data: Vec<u8> = (0..100_000u32).map(|at| (at * 7 / 5) as u8).collect();
        let mut reader = stream.try_clone().expect("twice");
        let began = Instant::now();
        let back = std::thread::spawn(move || {
            let mut back = Vec::new();
            reader.read_to_end(&mut back).map(|_| back)
        });
        stream.write_all(&data).expect("sent");
        stream.shutdown(Shutdown::Write).expect("ended");
        assert_eq!(back.join().expect("no panic").expect("back"), data);
        let least = 2.0 * line.delay.as_secs_f64() + 8.0 * data.len() as f64 / line.rate;
        assert!(began.elapsed().as_secs_f64() >= least, "{:?} {least}", began.elapsed());
        link.end();
    }
}
