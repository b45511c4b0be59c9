//! A receiver that sets the pace: it asks for frames over UDP and puts them together.
//!
//! Frames of which a piece is missing are given up when a piece of a later one comes, or after a time. Pieces come
//! in datagrams, in cells, or as application data units, as it asks.

use super::encode::from_jpeg;
use super::frame::{Layout, Pixels};
use super::shape::{PACKET_MAX, PDU_MAX};
use lastmeter_wire::camera::cells::Cells;
use lastmeter_wire::camera::{Carrier, Code, Command, Format, PIECE_LEN, Piece, Status};
use lastmeter_wire::framing::Reassembler;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// A complete frame.
#[derive(Clone, Debug)]
pub struct Received {
    /// The header of its last piece.
    pub piece: Piece,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Received {
    /// Its pixels.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn pixels(&self) -> Result<Pixels, String> {
        let layout = match self.piece.format {
            Format::Jpeg => return from_jpeg(&self.bytes),
            Format::Grey => Layout::Grey,
            Format::Colour => Layout::Colour,
        };
        let empty = Pixels::new(layout, self.piece.width, self.piece.height);
        if empty.bytes.len() != self.bytes.len() {
            return Err("a frame of another length than its size".to_owned());
        }
        Ok(Pixels { bytes: self.bytes.clone(), ..empty })
    }
}

/// A frame that is being put together.
struct Partial {
    piece: Piece,
    bytes: Vec<u8>,
    got: usize,
    /// Offsets of pieces that came, so that none counts twice.
    seen: std::collections::BTreeSet<u32>,
}

/// What it counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Complete frames.
    pub frames: u64,
    /// Frames of which pieces are missing.
    pub lost: u64,
    /// Datagrams.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A receiver of one camera.
pub struct Receiver {
    socket: UdpSocket,
    /// What it asks for; a command takes its format, size and shape from here.
    pub command: Command,
    partial: Option<Partial>,
    last: Option<u32>,
    cells: Cells,
    units: Reassembler,
    /// Called for each datagram: a host that receives slowly.
    pub toll: Option<Box<dyn Fn()>>,
    /// Frames that were complete before they were asked for.
    ready: VecDeque<Received>,
    /// What came.
    pub counts: Counts,
}

impl Receiver {
    /// Of a camera at this address. Nothing is sent yet.
    ///
    /// # Errors
    /// If there is no socket.
    pub fn new(camera: SocketAddr, command: Command) -> io::Result<Receiver> {
        let any = if camera.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(camera)?;
        let session = super::store::clock() as u32 ^ std::process::id().rotate_left(16);
        let command = Command { session, sequence: 0, ..command };
        let (cells, ready, counts) = (Cells::new(session), VecDeque::new(), Counts::default());
        let (partial, last, toll) = (None, None, None);
        let units = Reassembler::limited(PIECE_LEN + PDU_MAX);
        Ok(Receiver { socket, command, partial, last, cells, units, toll, ready, counts })
    }
    /// Its end of the connection.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
    /// Limits what waits in its socket to so many bytes, as the kernel counts them; the rest is lost.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn buffer(&self, bytes: usize) -> io::Result<()> {
        // The kernel doubles what it is told.
        Ok(rustix::net::sockopt::set_socket_recv_buffer_size(&self.socket, bytes / 2)?)
    }
    /// Asks for something new.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub fn ask(&mut self, code: Code) -> io::Result<()> {
        self.command.sequence = self.command.sequence.wrapping_add(1);
        self.command.code = code;
        self.again()
    }
    /// Asks for the same again, which changes nothing but says that it is still there.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub fn again(&mut self) -> io::Result<()> {
        let bytes = self.command.emit().map_err(|error| io::Error::other(error.to_string()))?;
        self.socket.send(&bytes).map(|_| ())
    }
    /// The next complete frame; `None` if there is none in time.
    ///
    /// # Errors
    /// If the camera refuses, or cannot be reached.
    pub fn next(&mut self, patience: Duration) -> io::Result<Option<Received>> {
        let (until, mut datagram) = (Instant::now() + patience, [0; PACKET_MAX + 1]);
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(Some(frame));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            let len = match self.socket.recv(&mut datagram) {
                Ok(len) => len,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(None),
                    _ => return Err(error),
                },
            };
            if let Some(toll) = &self.toll {
                toll();
            }
            if let Ok((piece, data)) = Piece::parse(&datagram[..len]) {
                if piece.session == self.command.session {
                    self.counts.packets += 1;
                    self.counts.bytes += len as u64;
                    self.hear(piece, data)?;
                }
            } else if self.command.carrier == Carrier::Cells {
                self.hear_cells(&datagram[..len])?;
            } else if self.command.carrier == Carrier::Units {
                self.hear_fragment(&datagram[..len])?;
            }
        }
    }
    /// A datagram of cells comes.
    fn hear_cells(&mut self, datagram: &[u8]) -> io::Result<()> {
        let mut pdus = Vec::new();
        if self.cells.receive(datagram, |pdu| pdus.push(pdu.to_vec())).is_err() {
            return Ok(());
        }
        self.counts.packets += 1;
        self.counts.bytes += datagram.len() as u64;
        for pdu in &pdus {
            if let Ok((piece, data)) = Piece::parse(pdu)
                && piece.session == self.command.session
            {
                self.hear(piece, data)?;
            }
        }
        Ok(())
    }
    /// A fragment of an application data unit comes.
    fn hear_fragment(&mut self, datagram: &[u8]) -> io::Result<()> {
        self.counts.packets += 1;
        self.counts.bytes += datagram.len() as u64;
        if let Some(unit) = self.units.datagram(datagram)
            && let Ok((piece, data)) = Piece::parse(&unit.data)
            && piece.session == self.command.session
        {
            self.hear(piece, data)?;
        }
        Ok(())
    }
    /// A piece or an answer comes.
    fn hear(&mut self, piece: Piece, data: &[u8]) -> io::Result<()> {
        match piece.status {
            Status::Frame => {
                let frame = self.take(piece, data);
                self.ready.extend(frame);
            }
            Status::Prove => {
                self.command.cookie = piece.clock;
                self.again()?;
            }
            Status::Well => self.ready.push_back(Received { piece, bytes: Vec::new() }),
            Status::Denied => {
                let why = "denied: by a policy, or no such token";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Status::Wrong => return Err(io::Error::other("the camera has no such picture")),
            Status::Full => return Err(io::Error::other("the camera has too many receivers")),
        }
        Ok(())
    }
    /// A piece comes; the frame, if it is complete.
    fn take(&mut self, piece: Piece, data: &[u8]) -> Option<Received> {
        let same = |partial: &Partial| {
            let own = partial.piece;
            (own.frame, own.length, own.sequence) == (piece.frame, piece.length, piece.sequence)
        };
        if !self.partial.as_ref().is_some_and(same) {
            if self.last == Some(piece.frame) {
                // A late piece of a frame that is over.
                return None;
            }
            self.counts.lost += u64::from(self.partial.is_some());
            let bytes = vec![0; piece.length as usize];
            self.partial = Some(Partial { piece, bytes, got: 0, seen: Default::default() });
        }
        let partial = self.partial.as_mut()?;
        let at = piece.offset as usize;
        if partial.seen.insert(piece.offset) {
            partial.bytes[at..at + data.len()].copy_from_slice(data);
            partial.got += data.len();
        }
        if partial.got < partial.bytes.len() {
            return None;
        }
        self.counts.frames += 1;
        self.last = Some(piece.frame);
        self.partial.take().map(|partial| Received { piece, bytes: partial.bytes })
    }
    /// Gives up a frame of which something came, though perhaps no whole piece.
    pub fn lose(&mut self) {
        self.counts.lost += 1;
        // What comes late of it begins no other.
        self.last = self.partial.take().map(|partial| partial.piece.frame).or(self.last);
    }
    /// Gives up the frame that is being put together.
    pub fn give_up(&mut self) {
        if self.partial.is_some() {
            self.lose();
        }
    }
}
