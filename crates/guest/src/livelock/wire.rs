//! The load's end of the wire: datagrams to a program in the guest, and its answers.
//!
//! The wire is a stream of frames, each after its length (QEMU's `-netdev stream`). It holds little, and what does not
//! fit is dropped; but QEMU takes frames out of it whether or not the guest's ring has room, and keeps them.

use lastmeter_linux::clock::nanoseconds;
use lastmeter_wire::internet::{ethernet, ipv4, udp};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;

/// The guest's Ethernet address, as QEMU is told it.
pub(super) const GUEST: &str = "02:00:00:00:00:02";
const GUEST_BYTES: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Ours.
pub(super) const PEER: &str = "02:00:00:00:00:01";
const PEER_BYTES: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Nobody's.
const OTHER_BYTES: [u8; 6] = [2, 0, 0, 0, 0, 3];
/// The guest's IPv4 address, and ours.
pub(super) const GUEST_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// See [`GUEST_IP`].
pub(super) const PEER_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Bytes that the wire may hold.
const HELD: usize = 8 << 10;
/// Frames written at once, at most.
const BATCH: u64 = 32;
/// A longer frame is none of a guest's.
const FRAME_MAX: usize = 1 << 16;
const IPV4: u16 = 0x0800;
const UDP: u8 = 17;
const MAGIC: u64 = 0x6c61_7374_6d65_7465;
/// Bytes of a datagram, and of what comes before it in a frame.
const PAYLOAD: usize = 48;
const BEFORE: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;

/// What a datagram is for (`guest/sink.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is work.
    Load = 1,
    /// It is sent back at once.
    Ping,
    /// The program writes what it counted, and ends.
    End,
    /// The program is there.
    Hello,
    /// The program ends.
    Bye,
}

/// A datagram: instants of the guest's clock, but `sent` of a ping, which is of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// What it is for.
    pub kind: Kind,
    /// The step to which it belongs.
    pub step: u64,
    /// The window in which it counts; in the answer to a ping, when that came and went.
    pub from: u64,
    /// See `from`.
    pub until: u64,
    /// When it was sent.
    pub sent: u64,
}

impl Datagram {
    fn emit(&self, payload: &mut [u8]) {
        let words = [MAGIC, self.kind as u64, self.step, self.from, self.until, self.sent];
        for (place, word) in payload.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// The datagram in a frame from a guest, with the port that it is for.
    pub fn parse(frame: &[u8]) -> Option<(u16, Datagram)> {
        let frame = ethernet::Frame::parse(frame).ok()?;
        if frame.header.ethertype != IPV4 {
            return None;
        }
        let packet = ipv4::Packet::parse(frame.payload).ok()?;
        if packet.header().protocol != UDP {
            return None;
        }
        let datagram = udp::Datagram::parse(packet.payload).ok()?;
        let mut words = datagram.payload.chunks_exact(8).map(|word| {
            let word: [u8; 8] = word.try_into().unwrap_or_default();
            u64::from_le_bytes(word)
        });
        let mut word = || words.next();
        if word()? != MAGIC {
            return None;
        }
        let kind = match word()? {
            1 => Kind::Load,
            2 => Kind::Ping,
            3 => Kind::End,
            4 => Kind::Hello,
            5 => Kind::Bye,
            _ => return None,
        };
        let (step, from, until, sent) = (word()?, word()?, word()?, word()?);
        Some((datagram.dst, Datagram { kind, step, from, until, sent }))
    }
}

/// The wire to a guest.
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    /// A frame to `port`, after its length.
    template: Vec<u8>,
    /// The rest of a batch that was written in part.
    rest: Vec<u8>,
    received: Vec<u8>,
}

/// What was offered in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Datagrams that were due.
    pub due: u64,
    /// Of them, those that the wire took.
    pub taken: u64,
}

impl Wire {
    /// A wire over QEMU's end of a stream.
    ///
    /// # Errors
    /// The stream cannot be set up.
    pub fn new(stream: UnixStream) -> io::Result<Wire> {
        stream.set_nonblocking(true)?;
        set_socket_send_buffer_size(&stream, HELD)?;
        let mut wire =
            Wire { stream, template: Vec::new(), rest: Vec::new(), received: Vec::new() };
        wire.aim(0)?;
        Ok(wire)
    }

    /// Sends to another port from now on.
    ///
    /// # Errors
    /// A frame cannot be written.
    pub fn aim(&mut self, port: u16) -> io::Result<()> {
        self.aim_at(port, GUEST_BYTES)
    }

    /// Sends frames that are for another host: the guest's driver takes them, its stack drops them at once.
    ///
    /// # Errors
    /// A frame cannot be written.
    pub fn aim_elsewhere(&mut self, port: u16) -> io::Result<()> {
        self.aim_at(port, OTHER_BYTES)
    }

    fn aim_at(&mut self, port: u16, dst: [u8; 6]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(4 + BEFORE + PAYLOAD);
        frame.extend_from_slice(&((BEFORE + PAYLOAD) as u32).to_be_bytes());
        let (src, tags, ethertype) = (PEER_BYTES, Vec::new(), IPV4);
        let header = ethernet::Header { dst, src, tags, ethertype };
        header.emit(&mut frame).map_err(io::Error::other)?;
        let datagram = udp::HEADER_LEN + PAYLOAD;
        let header = ipv4::Header::new(PEER_IP, GUEST_IP, UDP);
        header.emit(datagram, &mut frame).map_err(io::Error::other)?;
        // Without a checksum: the payload differs each time.
        for half in [port, port, datagram as u16, 0] {
            frame.extend_from_slice(&half.to_be_bytes());
        }
        frame.resize(4 + BEFORE + PAYLOAD, 0);
        self.template = frame;
        Ok(())
    }

    /// Writes what was left of the last batch; whether nothing is left.
    fn push(&mut self) -> io::Result<bool> {
        while !self.rest.is_empty() {
            match (&self.stream).write(&self.rest) {
                Ok(len) => drop(self.rest.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends a datagram `count` times; how many the wire took.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn send(&mut self, datagram: &Datagram, count: u64) -> io::Result<u64> {
        if !self.push()? {
            return Ok(0);
        }
        let mut frame = self.template.clone();
        datagram.emit(&mut frame[4 + BEFORE..]);
        let (mut taken, mut is_full) = (0, false);
        while taken < count && !is_full {
            let now = BATCH.min(count - taken);
            for _ in 0..now {
                self.rest.extend_from_slice(&frame);
            }
            is_full = !self.push()?;
            // Frames of which nothing was written are dropped, the one that was begun is not.
            let left = self.rest.len() / frame.len();
            self.rest.truncate(self.rest.len() - left * frame.len());
            taken += now - left as u64;
        }
        Ok(taken)
    }

    /// What the program in the guest has sent.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn receive(&mut self) -> io::Result<Option<(u16, Datagram)>> {
        loop {
            let bytes = &self.received;
            if let Some(head) = bytes.first_chunk::<4>() {
                let len = u32::from_be_bytes(*head) as usize;
                if len > FRAME_MAX {
                    return Err(io::Error::other("a frame without end"));
                }
                if let Some(frame) = bytes.get(4..4 + len) {
                    let found = Datagram::parse(frame);
                    self.received.drain(..4 + len);
                    match found {
                        Some(found) => return Ok(Some(found)),
                        None => continue,
                    }
                }
            }
            let mut buffer = [0; 4096];
            match (&self.stream).read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Offers datagrams at `rate` a second until the host's clock says `until`, in bursts of what is due each time.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn offer(
        &mut self,
        datagram: Datagram,
        rate: f64,
        until: u64,
        ahead: i128,
    ) -> io::Result<Offered> {
        let begin = nanoseconds();
        let mut offered = Offered::default();
        loop {
            let now = nanoseconds();
            if now >= until {
                return Ok(offered);
            }
            let due = ((now - begin) as f64 * rate / 1e9) as u64;
            let count = due - offered.due;
            if count > 0 {
                let datagram = Datagram { sent: shifted(now, ahead), ..datagram };
                offered.taken += self.send(&datagram, count)?;
                offered.due = due;
            }
            // A rate of zero has no next.
            let next = ((offered.due + 1) as f64 * 1e9 / rate).min((until - begin) as f64) as u64;
            let wait = (begin + next).saturating_sub(nanoseconds()).min(until - now);
            std::thread::sleep(std::time::Duration::from_nanos(wait.max(BURST)));
        }
    }
}

/// Time between two bursts, at least, in nanoseconds.
const BURST: u64 = 100_000;

/// An instant of our clock on a clock that is ahead of it.
pub(super) fn shifted(instant: u64, ahead: i128) -> u64 {
    u64::try_from(i128::from(instant) + ahead).unwrap_or(0)
}

/// Of fuzzing: a frame of a guest.
pub(super) fn fuzz(bytes: &[u8]) {
    if let Some((port, datagram)) = Datagram::parse(bytes) {
        let mut payload = [0; PAYLOAD];
        datagram.emit(&mut payload);
        let _ = port;
        assert!(bytes.windows(PAYLOAD).any(|window| window == payload));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram() -> Datagram {
        Datagram { kind: Kind::Load, step: 3, from: 4, until: 5, sent: 6 }
    }

    #[test]
    fn what_is_sent_is_received_and_what_does_not_fit_is_dropped_whole() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut here, mut there) = (Wire::new(here).unwrap(), Wire::new(there).unwrap());
        here.aim(9001).unwrap();
        let taken = here.send(&datagram(), 100_000).unwrap();
        assert!((1..100_000).contains(&taken), "{taken}");
        let mut received = 0;
        while let Some(found) = there.receive().unwrap() {
            assert_eq!(found, (9001, datagram()));
            received += 1;
        }
        // The frame that was begun ends with the next call.
        here.send(&datagram(), 1).unwrap();
        while there.receive().unwrap().is_some() {
            received += 1;
        }
        assert_eq!(received, taken + 1);
    }

    #[test]
    fn a_rate_is_kept_on_average() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut here, mut there) = (Wire::new(here).unwrap(), Wire::new(there).unwrap());
        let reader = std::thread::spawn(move || {
            let mut count = 0;
            loop {
                match there.receive() {
                    Ok(Some(_)) => count += 1,
                    Ok(None) => std::thread::sleep(std::time::Duration::from_micros(100)),
                    Err(_) => return count,
                }
            }
        });
        let begin = nanoseconds();
        let until = begin + 100_000_000;
        let offered = here.offer(datagram(), 5000.0, until, 0).unwrap();
        drop(here);
        let most = (nanoseconds() - begin) as f64 * 5e-6;
        assert!(offered.due as f64 <= most && offered.taken == reader.join().unwrap());
        assert!(offered.due > 0);
    }

    #[test]
    fn an_instant_is_never_before_the_beginning() {
        assert_eq!((shifted(5, 3), shifted(5, -3), shifted(5, -9)), (8, 2, 0));
    }
}
