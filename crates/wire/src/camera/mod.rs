//! A camera's own protocol: commands of receivers, and pieces of frames. Each is one UDP datagram.
//!
//! ```text
//! command  "LMC1" | code 1 | carrier 4 bits, format 4 bits | sequence 2 | session 4 | frames 4 | millihertz 4 |
//!          region x 2, y 2, width 2, height 2 | width 2 | height 2 | quality 1 | token's length 1 |
//!          lines 2 | pause 4 | gap 4 | burst 2 | packet 2 | cookie 8 |
//!          decode 4 | display 4 | rest 4 | lost 4 | token
//! piece    "LMF1" | status 1 | format 1 | sequence 2 | session 4 | frame 4 | clock 8 | width 2 |
//!          height 2 | length 4 | offset 4 | skipped 4 | region x 2, y 2 | receivers 2 | quality 1 |
//!          zero 1 | made 4 | check 4 | bytes of the frame
//! ```
//!
//! Numbers are big-endian. A repeated command has no further effect: its sequence number shows that it is the same. To
//! an address that has not yet proved that it receives, a camera answers with a cookie only, no longer than the
//! command. The check is that of [`crate::aal::vidboard`], over the whole datagram. A piece may also travel in cells
//! ([`cells`]), or as an application data unit ([`crate::framing`]). Each command reports how the receiver fared with
//! the previous frame, so that the camera's ledger covers the whole path.
//!
//! Source: the Vidboard's commands and t-frames, Aurora report §3.5.2; layout and numbers are our choice.
//!
//! ```
//! use lastmeter_wire::camera::{Code, Command};
//! let command = Command { code: Code::Frames, frames: 1, ..Command::default() };
//! assert_eq!(Command::parse(&command.emit()?)?, command);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```
//!
//! Rows: A-49, A-50.

pub mod cells;
pub mod h264;
pub mod rtp;

use crate::aal::vidboard::sum32;
use crate::error::{Error, fit, split};

/// Bytes of a command before its token.
pub const COMMAND_LEN: usize = 72;
/// Bytes of a piece before those of the frame.
pub const PIECE_LEN: usize = 56;
/// The longest token.
pub const TOKEN_MAX: usize = 200;
/// The most bytes of a frame: 4096 by 2160 pixels of three bytes.
pub const FRAME_MAX: usize = 4096 * 2160 * 3;
const COMMAND: [u8; 4] = *b"LMC1";
const PIECE: [u8; 4] = *b"LMF1";

/// What is asked of a camera.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Code {
    /// This many frames, each as soon as it is available.
    #[default]
    Frames = 1,
    /// Frames at a rate, until [`Code::Stop`], or until the receiver is silent.
    Rate = 2,
    /// No more frames.
    Stop = 3,
    /// Its state: an answer without a frame.
    Diagnose = 4,
}

/// How frames are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// A byte a pixel.
    Grey = 1,
    /// Red, green, blue.
    Colour = 2,
    /// JPEG.
    #[default]
    Jpeg = 3,
}

/// What carries the pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// Each in a datagram.
    #[default]
    Datagrams = 0,
    /// Each in the cells of a PDU, and these in datagrams.
    Cells = 1,
    /// Each an application data unit, whose fragments are datagrams.
    Units = 2,
}

/// How a receiver fared: times of the last frame in microseconds, and losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fared {
    /// Decoding it.
    pub decode: u32,
    /// Displaying it, or whatever else was done with it.
    pub display: u32,
    /// Until the next one was asked for, because no more were wanted.
    pub rest: u32,
    /// Frames of which pieces were missing, since the session began.
    pub lost: u32,
}

/// What a piece says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// A part of a frame.
    Frame = 1,
    /// Send the command again, with this cookie.
    Prove = 2,
    /// A policy denies it, or the token is unknown.
    Denied = 3,
    /// The camera has no such picture.
    Wrong = 4,
    /// It has as many receivers as it can serve.
    Full = 5,
    /// Success.
    Well = 6,
}

/// Codes, formats and status with their numbers.
trait Numbered: Copy + 'static {
    const ALL: &'static [(u8, Self)];
    const WHAT: &'static str;
    fn of(number: u8) -> Result<Self, Error> {
        let known = Self::ALL.iter().find(|(known, _)| *known == number);
        let wrong = Error::Invalid { what: Self::WHAT, found: number.into() };
        known.map(|(_, value)| *value).ok_or(wrong)
    }
}

impl Numbered for Code {
    const ALL: &'static [(u8, Code)] =
        &[(1, Code::Frames), (2, Code::Rate), (3, Code::Stop), (4, Code::Diagnose)];
    const WHAT: &'static str = "camera command's code";
}

impl Numbered for Format {
    const ALL: &'static [(u8, Format)] =
        &[(1, Format::Grey), (2, Format::Colour), (3, Format::Jpeg)];
    const WHAT: &'static str = "camera's format";
}

impl Numbered for Carrier {
    const ALL: &'static [(u8, Carrier)] =
        &[(0, Carrier::Datagrams), (1, Carrier::Cells), (2, Carrier::Units)];
    const WHAT: &'static str = "camera's carrier";
}

impl Numbered for Status {
    const ALL: &'static [(u8, Status)] = &[
        (1, Status::Frame),
        (2, Status::Prove),
        (3, Status::Denied),
        (4, Status::Wrong),
        (5, Status::Full),
        (6, Status::Well),
    ];
    const WHAT: &'static str = "camera's status";
}

/// A rectangle of a frame; of no width, the whole frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Region {
    /// Its left edge.
    pub x: u16,
    /// Its upper edge.
    pub y: u16,
    /// Its width.
    pub w: u16,
    /// Its height.
    pub h: u16,
}

/// How packets are spread in time, as the receiver can take them. Zeros do not slow down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Scan lines between pauses (LT).
    pub lines: u16,
    /// Microseconds of a pause.
    pub pause: u32,
    /// Packets, or cells, in a burst (CB).
    pub burst: u16,
    /// Microseconds between bursts (IBD).
    pub gap: u32,
    /// Most bytes of a datagram.
    pub packet: u16,
}

/// A command of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Command {
    /// What is asked.
    pub code: Code,
    /// How frames are sent.
    pub format: Format,
    /// What carries them.
    pub carrier: Carrier,
    /// Increases with each command that is not a repetition.
    pub sequence: u16,
    /// Chosen by the receiver; tells its sessions apart.
    pub session: u32,
    /// How many, with [`Code::Frames`].
    pub frames: u32,
    /// Frames in 1000 seconds, with [`Code::Rate`].
    pub millihertz: u32,
    /// The part of the frame.
    pub region: Region,
    /// The width to which it is scaled down; zero: not at all.
    pub width: u16,
    /// The height.
    pub height: u16,
    /// JPEG's, from 1 to 100; zero: the camera's choice.
    pub quality: u8,
    /// How packets are spread.
    pub shape: Shape,
    /// The cookie that the camera gave to this address.
    pub cookie: u64,
    /// How the receiver fared with the previous frame.
    pub fared: Fared,
    /// Identifies the requester.
    pub token: Vec<u8>,
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) << 16 | u32::from(half(bytes, at + 2))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

fn magic(bytes: &[u8], wanted: [u8; 4], what: &'static str) -> Result<(), Error> {
    let found = word(bytes, 0);
    let known = found == u32::from_be_bytes(wanted);
    known.then_some(()).ok_or(Error::Invalid { what, found: found.into() })
}

impl Command {
    /// A whole datagram.
    ///
    /// # Errors
    /// If it is too short or too long, or a number is unknown.
    pub fn parse(datagram: &[u8]) -> Result<Command, Error> {
        let (bytes, token) = split::<COMMAND_LEN>(datagram, "camera command")?;
        magic(bytes, COMMAND, "camera command's first bytes")?;
        let len = usize::from(bytes[33]);
        if token.len() != len || len > TOKEN_MAX {
            let what = "camera command's token: its length";
            return Err(Error::Invalid { what, found: token.len() as u64 });
        }
        if bytes[32] > 100 {
            let what = "camera command's quality";
            return Err(Error::Invalid { what, found: bytes[32].into() });
        }
        let [x, y, w, h] = [20, 22, 24, 26].map(|at| half(bytes, at));
        Ok(Command {
            code: Code::of(bytes[4])?,
            format: Format::of(bytes[5] & 15)?,
            carrier: Carrier::of(bytes[5] >> 4)?,
            sequence: half(bytes, 6),
            session: word(bytes, 8),
            frames: word(bytes, 12),
            millihertz: word(bytes, 16),
            region: Region { x, y, w, h },
            width: half(bytes, 28),
            height: half(bytes, 30),
            quality: bytes[32],
            shape: Shape {
                lines: half(bytes, 34),
                pause: word(bytes, 36),
                gap: word(bytes, 40),
                burst: half(bytes, 44),
                packet: half(bytes, 46),
            },
            cookie: long(bytes, 48),
            fared: Fared {
                decode: word(bytes, 56),
                display: word(bytes, 60),
                rest: word(bytes, 64),
                lost: word(bytes, 68),
            },
            token: token.to_vec(),
        })
    }
    /// The datagram.
    ///
    /// # Errors
    /// If the token is too long.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        let len: u8 = fit(self.token.len(), TOKEN_MAX as u64, "camera command's token")?;
        let mut bytes = COMMAND.to_vec();
        bytes.extend([self.code as u8, (self.carrier as u8) << 4 | self.format as u8]);
        bytes.extend(self.sequence.to_be_bytes());
        let words = [self.session, self.frames, self.millihertz];
        words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        let Region { x, y, w, h } = self.region;
        let halves = [x, y, w, h, self.width, self.height];
        halves.iter().for_each(|half| bytes.extend(half.to_be_bytes()));
        bytes.extend([self.quality.min(100), len]);
        bytes.extend(self.shape.lines.to_be_bytes());
        bytes.extend(self.shape.pause.to_be_bytes());
        bytes.extend(self.shape.gap.to_be_bytes());
        bytes.extend(self.shape.burst.to_be_bytes());
        bytes.extend(self.shape.packet.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        let Fared { decode, display, rest, lost } = self.fared;
        [decode, display, rest, lost].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        bytes.extend(&self.token);
        Ok(bytes)
    }
}

/// What a camera says: a piece of a frame, or an answer without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// What it is.
    pub status: Status,
    /// How the frame is sent.
    pub format: Format,
    /// That of the command that it answers.
    pub sequence: u16,
    /// The receiver's session.
    pub session: u32,
    /// The frame's number at its source.
    pub frame: u32,
    /// When it was captured, in microseconds since 1970; with [`Status::Prove`], the cookie.
    pub clock: u64,
    /// The frame's width as it is sent.
    pub width: u16,
    /// Its height.
    pub height: u16,
    /// Bytes of the whole frame.
    pub length: u32,
    /// Where in it these bytes belong.
    pub offset: u32,
    /// Frames of the source that this session has missed since it began.
    pub skipped: u32,
    /// The corner of the region.
    pub corner: (u16, u16),
    /// Receivers of the camera.
    pub receivers: u16,
    /// JPEG's.
    pub quality: u8,
    /// Microseconds from capture until it could be sent.
    pub made: u32,
}

impl Piece {
    /// The header and the bytes of the frame.
    ///
    /// # Errors
    /// If the datagram is too short, damaged, has unknown numbers, or bytes beyond the frame's length.
    pub fn parse(datagram: &[u8]) -> Result<(Piece, &[u8]), Error> {
        let (bytes, data) = split::<PIECE_LEN>(datagram, "camera's piece")?;
        magic(bytes, PIECE, "camera's first bytes")?;
        if sum32(datagram) != u32::MAX {
            return Err(Error::Corrupt { what: "camera's piece" });
        }
        let piece = Piece {
            status: Status::of(bytes[4])?,
            format: Format::of(bytes[5])?,
            sequence: half(bytes, 6),
            session: word(bytes, 8),
            frame: word(bytes, 12),
            clock: long(bytes, 16),
            width: half(bytes, 24),
            height: half(bytes, 26),
            length: word(bytes, 28),
            offset: word(bytes, 32),
            skipped: word(bytes, 36),
            corner: (half(bytes, 40), half(bytes, 42)),
            receivers: half(bytes, 44),
            quality: bytes[46],
            made: word(bytes, 48),
        };
        if bytes[47] != 0 {
            let what = "camera's unused byte";
            return Err(Error::Invalid { what, found: bytes[47].into() });
        }
        let end = u64::from(piece.offset) + data.len() as u64;
        if end > u64::from(piece.length) || piece.length as usize > FRAME_MAX {
            return Err(Error::Invalid { what: "camera's piece: its end", found: end });
        }
        Ok((piece, data))
    }
    /// The datagram with these bytes of the frame.
    pub fn emit(&self, data: &[u8], datagram: &mut Vec<u8>) {
        datagram.clear();
        datagram.extend(PIECE);
        datagram.extend([self.status as u8, self.format as u8]);
        datagram.extend(self.sequence.to_be_bytes());
        datagram.extend(self.session.to_be_bytes());
        datagram.extend(self.frame.to_be_bytes());
        datagram.extend(self.clock.to_be_bytes());
        datagram.extend(self.width.to_be_bytes());
        datagram.extend(self.height.to_be_bytes());
        let words = [self.length, self.offset, self.skipped];
        words.iter().for_each(|word| datagram.extend(word.to_be_bytes()));
        datagram.extend(self.corner.0.to_be_bytes());
        datagram.extend(self.corner.1.to_be_bytes());
        datagram.extend(self.receivers.to_be_bytes());
        datagram.extend([self.quality, 0]);
        datagram.extend(self.made.to_be_bytes());
        datagram.extend([0; 4]);
        datagram.extend(data);
        let check = !sum32(datagram);
        datagram[PIECE_LEN - 4..PIECE_LEN].copy_from_slice(&check.to_be_bytes());
    }
}
