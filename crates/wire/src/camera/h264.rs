//! H.264 that is passed through: the units of a byte stream (ITU-T H.264, annex B), and these in RTP (RFC 6184).
//!
//! ```text
//! 00 00 01 unit 00 00 01 unit ...  ->  unit, if it fits, or its fragments (FU-A):
//!     indicator 1: the unit's importance, type 28 | header 1: first, last, the unit's type | bytes
//! ```
//!
//! ```
//! use lastmeter_wire::camera::h264::{Splitter, payloads};
//! let mut stream = Splitter::default();
//! stream.push(&[0, 0, 1, 0x65, 7, 7, 7, 0, 0, 1, 0x41])?;
//! assert_eq!(stream.next(), Some(vec![0x65, 7, 7, 7]));
//! assert_eq!(payloads(&[0x65, 7, 7, 7], 1400).count(), 1);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, split};

/// The longest unit, and so the most bytes that wait for its end.
pub const NALS_MAX: usize = 8 << 20;
/// Type of a unit: a slice of a picture that needs no other (IDR).
pub const KEY: u8 = 5;
/// A sequence parameter set.
pub const SEQUENCE: u8 = 7;
/// A picture parameter set.
pub const PICTURE: u8 = 8;
/// A fragmentation unit (RFC 6184, section 5.8).
const FRAGMENT: u8 = 28;
/// The smallest room for a payload.
const LEAST: usize = 16;

/// The type of a unit; zero if it is empty.
pub fn kind(unit: &[u8]) -> u8 {
    unit.first().map_or(0, |first| first & 31)
}

/// Whether a unit begins a picture: a slice whose first macroblock is 0, which Exp-Golomb writes as a 1 bit.
pub fn begins_picture(unit: &[u8]) -> bool {
    matches!(kind(unit), 1 | KEY) && unit.get(1).is_some_and(|byte| byte & 0x80 != 0)
}

/// Finds the units in a byte stream as it comes.
#[derive(Clone, Debug, Default)]
pub struct Splitter {
    bytes: Vec<u8>,
    /// Bytes already searched.
    looked: usize,
    /// Whether the first start code was found; bytes before it belong to no unit.
    started: bool,
}

impl Splitter {
    /// Takes more of the stream.
    ///
    /// # Errors
    /// If a unit is longer than [`NALS_MAX`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.bytes.len() + bytes.len() > NALS_MAX + (1 << 20) {
            let found = (self.bytes.len() + bytes.len()) as u64;
            return Err(Error::Invalid { what: "H.264 unit: its length", found });
        }
        self.bytes.extend(bytes);
        Ok(())
    }
    /// The next unit whose end is known.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let from = self.looked.saturating_sub(2);
            let found = self.bytes[from..].windows(3).position(|three| three == [0, 0, 1]);
            let Some(at) = found.map(|at| at + from) else {
                self.looked = self.bytes.len();
                return None;
            };
            let unit = self.bytes[..at].to_vec();
            self.bytes.drain(..at + 3);
            self.looked = 0;
            let was_started = std::mem::replace(&mut self.started, true);
            if let Some(unit) = trimmed(unit).filter(|_| was_started) {
                return Some(unit);
            }
        }
    }
    /// What is left at the stream's end.
    pub fn rest(&mut self) -> Option<Vec<u8>> {
        let bytes = std::mem::take(&mut self.bytes);
        self.looked = 0;
        trimmed(bytes).filter(|_| self.started)
    }
}

/// A unit never ends with a zero: those belong to the next start code.
fn trimmed(mut unit: Vec<u8>) -> Option<Vec<u8>> {
    while unit.last() == Some(&0) {
        unit.pop();
    }
    (!unit.is_empty()).then_some(unit)
}

/// The payloads of the packets that carry a unit, each at most `most` bytes long.
pub fn payloads(unit: &[u8], most: usize) -> impl Iterator<Item = Vec<u8>> {
    let most = most.max(LEAST);
    let is_whole = unit.len() <= most;
    let (head, body) = unit.split_first().map_or((0, unit), |(head, body)| (*head, body));
    let chunks = body.chunks(most - 2).collect::<Vec<_>>();
    let whole = is_whole.then(|| unit.to_vec()).filter(|unit| !unit.is_empty());
    let last = chunks.len().saturating_sub(1);
    let pieces = chunks.into_iter().enumerate().map(move |(at, bytes)| {
        let (first, ends) = (u8::from(at == 0) << 7, u8::from(at == last) << 6);
        [&[head & 0xe0 | FRAGMENT, first | ends | head & 31], bytes].concat()
    });
    whole.into_iter().chain(pieces.filter(move |_| !is_whole))
}

/// What a payload carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A unit.
    Whole(&'a [u8]),
    /// A fragment of a unit.
    Piece {
        /// Whether it is the first.
        first: bool,
        /// The unit's first byte.
        header: u8,
        /// The unit's bytes after it.
        bytes: &'a [u8],
    },
}

/// Reads a payload.
///
/// # Errors
/// If it is too short, or aggregates units, which a camera does not.
pub fn open(payload: &[u8]) -> Result<Part<'_>, Error> {
    let ([indicator], rest) = split::<1>(payload, "H.264 payload")?;
    match indicator & 31 {
        1..=23 => Ok(Part::Whole(payload)),
        FRAGMENT => {
            let ([header], bytes) = split::<1>(rest, "H.264 fragment")?;
            let first = header & 0x80 != 0;
            Ok(Part::Piece { first, header: indicator & 0xe0 | header & 31, bytes })
        }
        found => Err(Error::Invalid { what: "H.264 payload's type", found: found.into() }),
    }
}
