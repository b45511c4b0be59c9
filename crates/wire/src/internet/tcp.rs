//! TCP segments, with options.
//!
//! ```text
//! source port 16 | destination port 16 | sequence 32 | acknowledgement 32
//! data offset 4 | 0 4 | flags 8 | window 16 | checksum 16 | urgent pointer 16 | options 0..40 bytes
//! ```
//!
//! Source: RFC 9293 §3.1; options of RFC 7323 (window scale, timestamps), RFC 2018 (selective
//! acknowledgement).
//!
//! ```
//! use lastmeter_wire::internet::{checksum::Sum, tcp::{Flags, Header, Segment, TcpOption}};
//! let header = Header {
//!     src: 1, dst: 2, sequence: 3, acknowledgement: 0, flags: Flags::SYN, window: 1024, urgent: 0,
//! };
//! let options = [TcpOption::MaximumSegment(1460), TcpOption::WindowScale(7)];
//! let bytes = header.emit(&options, b"", |_| Sum::ZERO)?;
//! let segment = Segment::parse(&bytes)?;
//! assert_eq!(segment.header, header);
//! assert!(segment.options().eq(options.map(Ok)));
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use super::checksum::Sum;
use super::ipv4::{IpOption, Options as EachOption};
use crate::error::{Error, fit, split};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Most bytes of options.
pub const OPTIONS_LEN_MAX: usize = 40;
/// Most blocks of a selective acknowledgement that fit into the options.
pub const BLOCKS_MAX: usize = 4;

/// The control bits, most significant first: CWR ECE URG ACK PSH RST SYN FIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data will come.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push: pass data to the application at once.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement number is valid.
    pub const ACK: Flags = Flags(0x10);

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// The union of these and `other`.
    pub fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl std::fmt::Display for Flags {
    /// The names of the flags set, `SYN,ACK`, or `-`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let mut set = NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1);
        let Some((_, first)) = set.next() else { return f.write_str("-") };
        f.write_str(first)?;
        set.try_for_each(|(_, name)| write!(f, ",{name}"))
    }
}

/// The fields of a header other than offset, checksum and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Sequence number of the first byte of data.
    pub sequence: u32,
    /// The next byte expected.
    pub acknowledgement: u32,
    /// The flags.
    pub flags: Flags,
    /// The window as carried, unscaled.
    pub window: u16,
    /// Urgent pointer: where urgent data ends.
    pub urgent: u16,
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TcpOption {
    /// The largest segment that the sender of this option accepts.
    MaximumSegment(u16),
    /// The shift count for windows.
    WindowScale(u8),
    /// Selective acknowledgements are permitted.
    SackPermitted,
    /// Blocks received out of order, each from its first byte to the byte after its last.
    Sack {
        /// The blocks; those beyond `count` are zero.
        blocks: [(u32, u32); BLOCKS_MAX],
        /// How many.
        count: u8,
    },
    /// The sender's clock, and the last value received of the other side's clock.
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The other side's, echoed.
        echo: u32,
    },
    /// Any other.
    Unknown {
        /// Its number.
        kind: u8,
    },
}

impl TcpOption {
    fn parse(option: IpOption<'_>) -> Result<TcpOption, Error> {
        let invalid = Error::Invalid { what: "TCP option length", found: option.kind.into() };
        match (option.kind, option.data) {
            (2, &[a, b]) => Ok(TcpOption::MaximumSegment(u16::from_be_bytes([a, b]))),
            (3, &[shift]) => Ok(TcpOption::WindowScale(shift)),
            (4, &[]) => Ok(TcpOption::SackPermitted),
            (5, data) => {
                let (words, rest) = data.as_chunks::<4>();
                let (pairs, odd) = words.as_chunks::<2>();
                if !rest.is_empty() || !odd.is_empty() || !(1..=BLOCKS_MAX).contains(&pairs.len()) {
                    return Err(invalid);
                }
                let mut blocks = [(0, 0); BLOCKS_MAX];
                for (block, [left, right]) in blocks.iter_mut().zip(pairs) {
                    *block = (u32::from_be_bytes(*left), u32::from_be_bytes(*right));
                }
                Ok(TcpOption::Sack { blocks, count: pairs.len() as u8 })
            }
            (8, &[a, b, c, d, e, f, g, h]) => Ok(TcpOption::Timestamps {
                value: u32::from_be_bytes([a, b, c, d]),
                echo: u32::from_be_bytes([e, f, g, h]),
            }),
            (2 | 3 | 4 | 8, _) => Err(invalid),
            (kind, _) => Ok(TcpOption::Unknown { kind }),
        }
    }

    fn emit(self, out: &mut Vec<u8>) {
        match self {
            TcpOption::MaximumSegment(size) => {
                out.extend([2, 4]);
                out.extend(size.to_be_bytes());
            }
            TcpOption::WindowScale(shift) => out.extend([3, 3, shift]),
            TcpOption::SackPermitted => out.extend([4, 2]),
            TcpOption::Sack { blocks, count } => {
                let count = count.min(BLOCKS_MAX as u8);
                out.extend([5, 2 + 8 * count]);
                for (left, right) in &blocks[..count.into()] {
                    out.extend(left.to_be_bytes());
                    out.extend(right.to_be_bytes());
                }
            }
            TcpOption::Timestamps { value, echo } => {
                out.extend([8, 10]);
                out.extend(value.to_be_bytes());
                out.extend(echo.to_be_bytes());
            }
            TcpOption::Unknown { kind } => out.extend([kind, 2]),
        }
    }
}

impl Header {
    /// A segment with its checksum; `pseudo` returns the sum of the pseudo-header for a length.
    ///
    /// # Errors
    /// If options take more than 40 bytes, or the segment more than 65,535.
    pub fn emit(
        &self,
        options: &[TcpOption],
        payload: &[u8],
        pseudo: impl FnOnce(u16) -> Sum,
    ) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        bytes.extend(self.src.to_be_bytes());
        bytes.extend(self.dst.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgement.to_be_bytes());
        bytes.extend([0, self.flags.0]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.urgent.to_be_bytes());
        for option in options {
            option.emit(&mut bytes);
            let _: u32 = fit(bytes.len() - HEADER_LEN, OPTIONS_LEN_MAX as u64, "TCP options")?;
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes[12] = (bytes.len() / 4) as u8 * 16;
        let payload_max = usize::from(u16::MAX) - bytes.len();
        let _: u32 = fit(payload.len(), payload_max as u64, "TCP payload")?;
        bytes.extend(payload);
        let checksum = Sum::of(&bytes).and(pseudo(bytes.len() as u16)).checksum();
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        Ok(bytes)
    }
}

/// A segment whose lengths have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The header.
    pub header: Header,
    /// The checksum as carried.
    pub checksum: u16,
    /// Data.
    pub payload: &'a [u8],
    options: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The header must be complete; the length of the data is known only to IP.
    ///
    /// # Errors
    /// If bytes of the header are missing or the data offset is less than five words.
    pub fn parse(bytes: &'a [u8]) -> Result<Segment<'a>, Error> {
        let (head, rest) = split::<HEADER_LEN>(bytes, "TCP header")?;
        let &[s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, flags, tail @ ..] = head;
        let [w0, w1, c0, c1, u0, u1] = tail;
        let header_len = usize::from(offset >> 4) * 4;
        let Some(options_len) = header_len.checked_sub(HEADER_LEN) else {
            return Err(Error::Invalid { what: "TCP data offset", found: (offset >> 4).into() });
        };
        let Some((options, payload)) = rest.split_at_checked(options_len) else {
            let have = bytes.len();
            return Err(Error::Truncated { what: "TCP options", need: header_len, have });
        };
        let header = Header {
            src: u16::from_be_bytes([s0, s1]),
            dst: u16::from_be_bytes([d0, d1]),
            sequence: u32::from_be_bytes([q0, q1, q2, q3]),
            acknowledgement: u32::from_be_bytes([a0, a1, a2, a3]),
            flags: Flags(flags),
            window: u16::from_be_bytes([w0, w1]),
            urgent: u16::from_be_bytes([u0, u1]),
        };
        let checksum = u16::from_be_bytes([c0, c1]);
        Ok(Segment { header, checksum, payload, options, bytes })
    }
    /// Whether the checksum matches.
    pub fn is_intact(&self, pseudo: Sum) -> bool {
        Sum::of(self.bytes).and(pseudo).is_intact()
    }
    /// The options one by one; the list ends at a malformed one.
    pub fn options(&self) -> impl Iterator<Item = Result<TcpOption, Error>> + 'a {
        EachOption { rest: self.options }.map(|option| option.and_then(TcpOption::parse))
    }
}
