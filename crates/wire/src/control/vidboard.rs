//! The Vidboard's command cell: a command with its parameters in one cell.
//!
//! ```text
//! code 1 | depth 1 | sequence 2 | reply VCI 2 | width 2 | height 2 | lines per packet 2 |
//! cells per burst 2 | burst delay 2 | frame delay 4 | mode 1 | source 1 | crop x 2 | crop y 2 |
//! reply port 1 | zero 21
//! ```
//!
//! Source: Aurora report §3.5.2, which names the four parameters that shape the video; layout and
//! numbers are our choice. Delays are in microseconds.
//!
//! ```
//! use lastmeter_wire::control::vidboard::{Code, Command, Mode};
//! let command = Command {
//!     code: Code::VideoRequest, depth: 8, sequence: 1, reply_vci: 100, width: 640, height: 480,
//!     lines: 16, burst: 28, burst_delay: 240, frame_delay: 0, mode: Mode::OnRequest, source: 0,
//!     crop: (0, 0), reply_port: 3,
//! };
//! assert_eq!(Command::parse(&command.emit())?, command);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::atm::PAYLOAD_LEN;
use crate::error::Error;

/// Bytes in use; zeros follow.
const USED_LEN: usize = 27;

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Start to capture with the given parameters.
    VideoRequest,
    /// Send one frame.
    FrameRequest,
    /// Stop.
    Stop,
    /// Select another of the three inputs.
    SetSource,
    /// Run a self-test.
    Diagnose,
    /// The result of a test, or the reason why a command failed.
    Status,
}

/// All codes with their numbers.
const CODES: [(u8, Code); 6] = [
    (1, Code::VideoRequest),
    (2, Code::FrameRequest),
    (3, Code::Stop),
    (4, Code::SetSource),
    (5, Code::Diagnose),
    (6, Code::Status),
];

/// When frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One after another.
    FreeRun,
    /// On request.
    OnRequest,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    /// The operation.
    pub code: Code,
    /// Bits per pixel.
    pub depth: u8,
    /// Matches answers to commands.
    pub sequence: u16,
    /// The VCI for answers and video.
    pub reply_vci: u16,
    /// Pixels per line.
    pub width: u16,
    /// Lines per frame.
    pub height: u16,
    /// Scan lines per packet (LT).
    pub lines: u16,
    /// Cells per burst (CB).
    pub burst: u16,
    /// Microseconds between bursts (IBD).
    pub burst_delay: u16,
    /// Microseconds between frames (IFD).
    pub frame_delay: u32,
    /// When frames are sent.
    pub mode: Mode,
    /// The video input.
    pub source: u8,
    /// The first pixel and line captured.
    pub crop: (u16, u16),
    /// The port of its switch by which the board sends answers and video, four bits.
    pub reply_port: u8,
}

impl Command {
    /// # Errors
    /// If code or mode is unknown, or an unused byte is not zero.
    pub fn parse(payload: &[u8; PAYLOAD_LEN]) -> Result<Command, Error> {
        let invalid = |what, found: u8| Error::Invalid { what, found: found.into() };
        let code = payload[0];
        let known = CODES.into_iter().find(|&(number, _)| number == code);
        let (_, code) = known.ok_or(invalid("Vidboard command code", code))?;
        let mode = match payload[20] {
            0 => Mode::FreeRun,
            1 => Mode::OnRequest,
            mode => return Err(invalid("Vidboard mode", mode)),
        };
        if let Some(&byte) = payload[USED_LEN..].iter().find(|&&byte| byte != 0) {
            return Err(invalid("Vidboard command's unused bytes", byte));
        }
        let half = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
        Ok(Command {
            code,
            depth: payload[1],
            sequence: half(2),
            reply_vci: half(4),
            width: half(6),
            height: half(8),
            lines: half(10),
            burst: half(12),
            burst_delay: half(14),
            frame_delay: u32::from(half(16)) << 16 | u32::from(half(18)),
            mode,
            source: payload[21],
            crop: (half(22), half(24)),
            reply_port: payload[26],
        })
    }

    /// The cell's payload.
    pub fn emit(&self) -> [u8; PAYLOAD_LEN] {
        let number = CODES.into_iter().find(|&(_, code)| code == self.code).map_or(0, |(n, _)| n);
        let mut payload = [0; PAYLOAD_LEN];
        (payload[0], payload[1]) = (number, self.depth);
        let halves = [
            self.sequence,
            self.reply_vci,
            self.width,
            self.height,
            self.lines,
            self.burst,
            self.burst_delay,
            (self.frame_delay >> 16) as u16,
            self.frame_delay as u16,
        ];
        for (half, out) in halves.into_iter().zip(payload[2..].chunks_mut(2)) {
            out.copy_from_slice(&half.to_be_bytes());
        }
        payload[20] = u8::from(self.mode == Mode::OnRequest);
        payload[21] = self.source;
        payload[22..24].copy_from_slice(&self.crop.0.to_be_bytes());
        payload[24..26].copy_from_slice(&self.crop.1.to_be_bytes());
        payload[26] = self.reply_port;
        payload
    }
}
