//! RTP's packets (RFC 3550, section 5.1) and its senders' reports (section 6.4.1), and samples of 16 bits in them: L16
//! (RFC 3551, section 4.5.11).
//!
//! ```text
//! version 2 bits, P 1, X 1, CC 4 | M 1, type 7 | sequence 2 | timestamp 4 | source 4 |
//!          CC times 4 | X: profile 2, words 2, words times 4 | payload | P: padding, its last byte the length
//! report   version 2 bits, 0 | 200 | words 2 | source 4 | time since 1900 8 | timestamp 4 | packets 4 | bytes 4
//! ```
//!
//! ```
//! use lastmeter_wire::rtp::{Packet, header, samples};
//! let bytes = [&header(96, true, 7, 480, 1)[..], &[0xff, 0xfe]].concat();
//! let packet = Packet::parse(&bytes)?;
//! assert_eq!((packet.sequence, packet.timestamp), (7, 480));
//! assert_eq!(samples(packet.payload)?, [-2]);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, split};
use std::time::Duration;

/// Bytes of a header without contributing sources.
pub const RTP_LEN: usize = 12;
/// Bytes of a sender's report without blocks about others.
pub const REPORT_LEN: usize = 28;
/// Bytes of a sample of L16.
pub const SAMPLE_LEN: usize = 2;
const VERSION: u8 = 2;
/// RTCP's type of a sender's report.
const SENDER: u8 = 200;
/// Seconds from 1900 to 1970.
const SINCE_1900: u64 = 2_208_988_800;
/// Its length in words after the first.
const REPORT_WORDS: u16 = 6;

fn wrong(what: &'static str, found: impl Into<u64>) -> Error {
    Error::Invalid { what, found: found.into() }
}

/// A header, with a payload type.
pub fn header(
    kind: u8,
    is_last: bool,
    sequence: u16,
    timestamp: u32,
    source: u32,
) -> [u8; RTP_LEN] {
    let mut bytes = [0; RTP_LEN];
    bytes[0] = VERSION << 6;
    bytes[1] = u8::from(is_last) << 7 | kind & 0x7f;
    bytes[2..4].copy_from_slice(&sequence.to_be_bytes());
    bytes[4..8].copy_from_slice(&timestamp.to_be_bytes());
    bytes[8..].copy_from_slice(&source.to_be_bytes());
    bytes
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The payload type.
    pub kind: u8,
    /// The marker.
    pub is_last: bool,
    /// Counts packets.
    pub sequence: u16,
    /// Counts samples of a channel, or the clock's ticks.
    pub timestamp: u32,
    /// The synchronization source.
    pub source: u32,
    /// Without padding.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// # Errors
    /// If it is of another version, or shorter than it says.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, Error> {
        let (head, rest) = split::<RTP_LEN>(bytes, "RTP header")?;
        let [first, second, s0, s1, t0, t1, t2, t3, id @ ..] = *head;
        if first >> 6 != VERSION {
            return Err(wrong("RTP version", first >> 6));
        }
        let skip = |rest: &'a [u8], need: usize, what: &'static str| {
            rest.get(need..).ok_or(Error::Truncated { what, need, have: rest.len() })
        };
        let mut payload = skip(rest, usize::from(first & 0xf) * 4, "RTP contributing sources")?;
        if first & 0x10 != 0 {
            let ([_, _, w0, w1], rest) = split::<4>(payload, "RTP extension")?;
            let words = usize::from(u16::from_be_bytes([*w0, *w1]));
            payload = skip(rest, words * 4, "RTP extension")?;
        }
        if first & 0x20 != 0 {
            let padding = payload.last().copied().unwrap_or(0);
            let end = payload.len().checked_sub(padding.into()).filter(|_| padding > 0);
            payload = &payload[..end.ok_or(wrong("RTP padding", padding))?];
        }
        Ok(Packet {
            kind: second & 0x7f,
            is_last: second & 0x80 != 0,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            source: u32::from_be_bytes(id),
            payload,
        })
    }
}

/// Whether a packet is one of RTCP, if both come at the same port (RFC 5761, section 4).
pub fn is_control(bytes: &[u8]) -> bool {
    bytes.get(1).is_some_and(|kind| (192..=223).contains(kind))
}

/// A sender's report: what its clock showed at a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The synchronization source.
    pub source: u32,
    /// Time since the beginning of 1900, in seconds times 2^32.
    pub clock: u64,
    /// RTP's timestamp at that time.
    pub timestamp: u32,
    /// Packets sent.
    pub packets: u32,
    /// Bytes of their payloads.
    pub bytes: u32,
}

impl Report {
    /// The first packet of several (section 6.1); blocks about others are skipped.
    ///
    /// # Errors
    /// If it is another packet, or shorter than it says.
    pub fn parse(bytes: &[u8]) -> Result<Report, Error> {
        let (head, _) = split::<REPORT_LEN>(bytes, "RTCP sender's report")?;
        let words = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
        if head[0] >> 6 != VERSION || head[1] != SENDER {
            return Err(wrong("RTCP type", head[1]));
        }
        let len = u16::from_be_bytes([head[2], head[3]]);
        if len < REPORT_WORDS {
            return Err(wrong("RTCP report's length", len));
        }
        let clock = u64::from(words(8)) << 32 | u64::from(words(12));
        let [source, timestamp, packets, bytes] = [4, 16, 20, 24].map(words);
        Ok(Report { source, clock, timestamp, packets, bytes })
    }
    /// A time since 1970 as in a report.
    pub fn clock_of(time: Duration) -> u64 {
        let fraction = (u64::from(time.subsec_nanos()) << 32) / 1_000_000_000;
        time.as_secs().wrapping_add(SINCE_1900) << 32 | fraction
    }
    /// The time since 1970; `None` for a sender that has no clock.
    pub fn since_1970(&self) -> Option<Duration> {
        let seconds = (self.clock >> 32).checked_sub(SINCE_1900)?;
        let nanoseconds = ((self.clock & 0xffff_ffff) * 1_000_000_000) >> 32;
        Some(Duration::new(seconds, u32::try_from(nanoseconds).ok()?))
    }
    /// The packet, without blocks about others.
    pub fn emit(&self) -> [u8; REPORT_LEN] {
        let mut bytes = [0; REPORT_LEN];
        (bytes[0], bytes[1]) = (VERSION << 6, SENDER);
        bytes[2..4].copy_from_slice(&REPORT_WORDS.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.source.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.clock.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.timestamp.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.packets.to_be_bytes());
        bytes[24..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }
}

/// The samples of a payload, channels in turn.
///
/// # Errors
/// If its last sample is cut off.
pub fn samples(payload: &[u8]) -> Result<Vec<i16>, Error> {
    let (pairs, rest) = payload.as_chunks::<SAMPLE_LEN>();
    if !rest.is_empty() {
        return Err(wrong("L16 length", payload.len() as u64));
    }
    Ok(pairs.iter().map(|pair| i16::from_be_bytes(*pair)).collect())
}

/// Appends samples as a payload has them.
pub fn emit_samples(samples: &[i16], out: &mut Vec<u8>) {
    out.extend(samples.iter().flat_map(|sample| sample.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_extension_and_padding_are_no_payload() {
        let mut bytes = header(11, true, 1, 2, 3).to_vec();
        bytes[0] |= 0x20 | 0x10 | 2;
        bytes.extend([9; 8]);
        bytes.extend([0xbe, 0xde, 0, 1, 1, 2, 3, 4]);
        bytes.extend([0x12, 0x34, 0, 2]);
        let packet = Packet::parse(&bytes).expect("whole");
        assert_eq!((packet.kind, packet.is_last, packet.payload), (11, true, &[0x12, 0x34][..]));
        // Padding that is longer than what there is, and none at all.
        for padding in [5, 0] {
            *bytes.last_mut().expect("bytes") = padding;
            assert_eq!(Packet::parse(&bytes), Err(wrong("RTP padding", padding)));
        }
        assert!(Packet::parse(&bytes[..20]).is_err(), "the extension is cut off");
        bytes[0] = 0;
        assert_eq!(Packet::parse(&bytes), Err(wrong("RTP version", 0u8)));
    }

    #[test]
    fn a_report_comes_back_and_is_not_taken_for_sound() {
        let report = Report { source: 1, clock: 3 << 32 | 5, timestamp: 7, packets: 8, bytes: 9 };
        assert_eq!(Report::parse(&report.emit()), Ok(report));
        assert_eq!(report.since_1970(), None, "a sender without a clock");
        let now = Duration::new(1_764_200_000, 500_000_000);
        let clock = Report::clock_of(now);
        assert_eq!(Report { clock, ..report }.since_1970(), Some(now));
        assert!(is_control(&report.emit()) && !is_control(&header(97, true, 0, 0, 0)));
        assert!(Report::parse(&header(97, true, 0, 0, 0)).is_err());
        assert!(samples(&[1, 2, 3]).is_err(), "half a sample");
    }
}
