//! Captures: packets with timestamps, in the two file formats that every tool reads.
//!
//! ```text
//! pcap    file header | { record header | data }*            one link type, us or ns
//! pcapng  { block: type | length | body | length }*          interfaces, each with its own
//!                                                            link type and clock resolution
//! ```
//!
//! [`Reader`] reads both from any [`std::io::Read`] and holds one record at a time, so memory is bounded by
//! [`RECORD_LEN_MAX`] whatever the file's length. Errors in a file are reported with the record number and the
//! byte offset. [`Writer`] writes both, with nanosecond timestamps.
//!
//! Source: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; link types from
//! draft-ietf-opsawg-pcaplinktype. Deviation: if the captured part of a record is longer than its length on the
//! wire, the record is kept and its length on the wire raised to match, since some tools write such records. Any
//! other violation of the format is an error.
//!
//! We use no library, because the existing ones read whole blocks of any length into one buffer, do not apply an
//! interface's clock resolution, and cannot say where a file is malformed.
//!
//! ```
//! use lastmeter_base::{Bytes, Time};
//! use lastmeter_wire::capture::{LinkType, Reader, Writer};
//!
//! let mut writer = Writer::pcapng(Vec::new())?;
//! let port = writer.add_interface(LinkType::ETHERNET, "port 0", Bytes(96))?;
//! writer.write(Time::from_ps(5_000), port, Bytes(1514), &[0; 1514])?;
//! let file = writer.finish()?;
//!
//! let mut reader = Reader::open(file.as_slice())?;
//! assert_eq!(reader.link_type(), LinkType::ETHERNET);
//! let record = reader.next().expect("one record")?;
//! assert_eq!((record.len_on_wire, record.data.len()), (Bytes(1514), 96));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod pcap;
mod pcapng;
mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

use lastmeter_base::{Bytes, Duration};
use std::fmt;

/// The longest captured part of a record that is read, in bytes: the longest that common tools write. A longer one
/// is refused before any memory is allocated for it.
pub const RECORD_LEN_MAX: usize = 262_144;
/// Most interfaces in a capture, over all its sections.
pub const INTERFACES_MAX: usize = 4096;
/// The longest block of interface options that is read, in bytes.
pub const OPTIONS_LEN_MAX: usize = 65_536;

/// One captured packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Time since the first record; zero if this record has an earlier timestamp than the first.
    pub since_first: Duration,
    /// Length on the wire; the captured part may be shorter.
    pub len_on_wire: Bytes,
    /// Index into [`Reader::interfaces`].
    pub interface: u32,
    /// The captured part.
    pub data: Vec<u8>,
}

/// The format of a record's bytes: a number from the registry of link types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet frames without their check sequence.
    pub const ETHERNET: LinkType = LinkType(1);
    /// RFC 2684 LLC/SNAP packets as reassembled from AAL5, without trailer.
    pub const ATM_RFC1483: LinkType = LinkType(100);
    /// IPv4 or IPv6 packets without a link header.
    pub const RAW: LinkType = LinkType(101);
    /// Linux "cooked" packets.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// A reassembled AAL5 payload after four bytes that identify its circuit.
    pub const SUNATM: LinkType = LinkType(123);
    /// Jetstream MAC frames: a user link type, whose meaning we define.
    pub const JETSTREAM: LinkType = LinkType(147);
    /// VuNet cells of 56 bytes: a user link type, whose meaning we define.
    pub const VUNET: LinkType = LinkType(148);
    /// Extensible record format, in which Wireshark reads single ATM cells.
    pub const ERF: LinkType = LinkType(197);
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            LinkType::ETHERNET => "Ethernet",
            LinkType::ATM_RFC1483 => "ATM RFC 1483",
            LinkType::RAW => "raw IP",
            LinkType::LINUX_SLL => "Linux cooked",
            LinkType::SUNATM => "SunATM",
            LinkType::JETSTREAM => "Jetstream (user 0)",
            LinkType::VUNET => "VuNet (user 1)",
            LinkType::ERF => "ERF",
            LinkType(number) => return write!(f, "link type {number}"),
        };
        f.write_str(name)
    }
}

/// An interface on which a capture was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The format of its records.
    pub link_type: LinkType,
    /// Its name, if the file gives one; text that is not UTF-8 is shown with replacement characters.
    pub name: Option<String>,
    /// Ticks of its clock per second.
    pub ticks_per_second: u64,
    /// Seconds to add to every timestamp.
    pub offset: i64,
}

impl Interface {
    /// A timestamp of this interface in picoseconds of the capture's epoch. Exact to the picosecond, rounded down;
    /// cannot overflow, since timestamps are below 2^64 ticks and offsets below 2^63 s.
    fn picoseconds(&self, stamp: u64) -> i128 {
        const PS_PER_SECOND: i128 = 1_000_000_000_000;
        let ticks = i128::from(self.ticks_per_second.max(1));
        i128::from(stamp) * PS_PER_SECOND / ticks + i128::from(self.offset) * PS_PER_SECOND
    }
}

/// Why a capture could not be read or written.
///
/// `record` is the number of the record being read, from 1. `offset` is the byte of the file at which the faulty
/// item starts.
#[derive(Debug)]
#[non_exhaustive]
pub enum CaptureError {
    /// The underlying reader or writer failed.
    Io {
        /// Record being read or written.
        record: u64,
        /// Offset in the file.
        offset: u64,
        /// Its error.
        source: std::io::Error,
    },
    /// The file does not start like any known capture: it is probably something else.
    NotACapture {
        /// Its first four bytes.
        magic: [u8; 4],
    },
    /// The file ends within a record or block: the capture is truncated.
    Truncated {
        /// Record being read.
        record: u64,
        /// Where the unfinished item starts.
        offset: u64,
    },
    /// The file violates its format: whatever wrote or transferred it is at fault.
    Malformed {
        /// Record being read.
        record: u64,
        /// Where the faulty item starts.
        offset: u64,
        /// What was found and what would be right.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// An item is longer than this library accepts.
    TooLong {
        /// Record being read.
        record: u64,
        /// Where the item starts.
        offset: u64,
        /// Its length.
        len: u64,
        /// The longest accepted.
        limit: u64,
    },
    /// The writer was given something that the format cannot represent.
    Unsupported {
        /// What it is.
        what: &'static str,
    },
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Io { record, offset, source } => {
                write!(f, "record {record} at byte {offset}: {source}")
            }
            CaptureError::NotACapture { magic } => {
                write!(f, "neither pcap nor pcapng: it starts with {magic:02x?}")
            }
            CaptureError::Truncated { record, offset } => {
                write!(f, "record {record} at byte {offset}: the file ends within it")
            }
            CaptureError::Malformed { record, offset, what, found } => {
                write!(f, "record {record} at byte {offset}: {what}, found {found}")
            }
            CaptureError::TooLong { record, offset, len, limit } => {
                write!(f, "record {record} at byte {offset}: {len} bytes long, limit {limit}")
            }
            CaptureError::Unsupported { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CaptureError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
