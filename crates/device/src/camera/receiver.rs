//! A receiver that sets the pace: it asks for frames over UDP and puts them together.
//!
//! Frames of which a piece is missing are given up when a piece of a later one comes, or after a time.

use super::encode::from_jpeg;
use super::frame::{Layout, Pixels};
use lastmeter_wire::camera::{Code, Command, Format, Piece, Status};
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
        Ok(Receiver { socket, command, partial: None, last: None, counts: Counts::default() })
    }
    /// Its end of the connection.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
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
        let (until, mut datagram) = (Instant::now() + patience, [0; 2048]);
        loop {
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
            let Ok((piece, data)) = Piece::parse(&datagram[..len]) else { continue };
            if piece.session != self.command.session {
                continue;
            }
            self.counts.packets += 1;
            self.counts.bytes += len as u64;
            match piece.status {
                Status::Frame => {
                    if let Some(frame) = self.take(piece, data) {
                        return Ok(Some(frame));
                    }
                }
                Status::Prove => {
                    self.command.cookie = piece.clock;
                    self.again()?;
                }
                Status::Well => return Ok(Some(Received { piece, bytes: Vec::new() })),
                Status::Denied => {
                    let why = "denied: by a policy, or no such token";
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                Status::Wrong => return Err(io::Error::other("the camera has no such picture")),
                Status::Full => return Err(io::Error::other("the camera has too many receivers")),
            }
        }
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
    /// Gives up the frame that is being put together.
    pub fn give_up(&mut self) {
        self.counts.lost += u64::from(self.partial.take().is_some());
    }
}
