//! NBD, the network block device: first options, then requests and replies.
//!
//! ```text
//! server: "NBDMAGIC" "IHAVEOPT" flags 2               client: flags 4
//! client: "IHAVEOPT" option 4 | length 4 | data       server: magic 8 | option 4 | type 4 | length 4 | data
//! request: magic 4 | flags 2 | type 2 | cookie 8 | offset 8 | length 4 | data of writes
//! simple reply: magic 4 | error 4 | cookie 8 | data of reads
//! chunk:   magic 4 | flags 2 | type 2 | cookie 8 | length 4 | data        one reply has one or more
//! ```
//!
//! Numbers are big-endian. Source: the NBD protocol's specification (`doc/proto.md` of the NBD project), fixed
//! newstyle with structured replies.
//!
//! ```
//! use lastmeter_wire::nbd::{Command, Request};
//! let request = Request { flags: 0, command: Command::READ, cookie: 7, offset: 512, length: 4096 };
//! assert_eq!(Request::parse(&request.emit())?, request);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::Error;

/// What the server sends first, before its flags.
pub const GREETING: [u8; 16] = *b"NBDMAGICIHAVEOPT";
/// Before each option.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Bytes of a request without its data.
pub const REQUEST_LEN: usize = 28;
/// Bytes of an option without its data.
pub const OPTION_LEN: usize = 16;
/// Bytes of a simple reply without its data.
pub const SIMPLE_LEN: usize = 16;
/// Bytes of a chunk without its data.
pub const CHUNK_LEN: usize = 20;
/// The longest data of an option.
pub const OPTION_DATA_MAX: usize = 64 << 10;
/// The longest name of an export.
pub const NAME_MAX: usize = 4096;

/// Flags of the greeting: options are answered, and no zeros follow.
pub const GREETING_FLAGS: u16 = 1 | 2;

/// Options by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u32);

impl Kind {
    /// Use this export; answered without a reply header.
    pub const EXPORT_NAME: Kind = Kind(1);
    /// End the negotiation.
    pub const ABORT: Kind = Kind(2);
    /// List the exports.
    pub const LIST: Kind = Kind(3);
    /// Start TLS.
    pub const START_TLS: Kind = Kind(5);
    /// Get information about an export.
    pub const INFO: Kind = Kind(6);
    /// Get information about an export, and use it.
    pub const GO: Kind = Kind(7);
    /// Use structured replies: chunks.
    pub const STRUCTURED: Kind = Kind(8);
    /// List what block status can report.
    pub const LIST_CONTEXTS: Kind = Kind(9);
    /// Choose what block status reports.
    pub const SET_CONTEXTS: Kind = Kind(10);
}

/// Types of replies to options.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export's name.
    pub const SERVER: u32 = 2;
    /// Information about an export.
    pub const INFO: u32 = 3;
    /// Something that block status can report.
    pub const CONTEXT: u32 = 4;
    /// The option is not supported.
    pub const UNSUPPORTED: u32 = 1 << 31 | 1;
    /// Forbidden.
    pub const POLICY: u32 = 1 << 31 | 2;
    /// The request is invalid.
    pub const INVALID: u32 = 1 << 31 | 3;
    /// TLS is required first.
    pub const TLS_REQUIRED: u32 = 1 << 31 | 5;
    /// No such export.
    pub const UNKNOWN: u32 = 1 << 31 | 6;
    /// Too long.
    pub const TOO_BIG: u32 = 1 << 31 | 9;
}

/// An option's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Option {
    /// Which.
    pub kind: Kind,
    /// Bytes of data that follow.
    pub length: u32,
}

impl Option {
    /// # Errors
    /// If it does not begin with an option's magic number.
    pub fn parse(bytes: &[u8; OPTION_LEN]) -> Result<Option, Error> {
        let magic = double(bytes, 0);
        if magic != OPTION_MAGIC {
            return Err(Error::Invalid { what: "NBD option", found: magic });
        }
        Ok(Option { kind: Kind(word(bytes, 8)), length: word(bytes, 12) })
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; OPTION_LEN] {
        let mut bytes = [0; OPTION_LEN];
        bytes[..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.kind.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// A reply to an option.
pub fn option_reply(kind: Kind, reply: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(kind.0.to_be_bytes());
    bytes.extend(reply.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// What a client asks with [`Kind::INFO`] and [`Kind::GO`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The export's name.
    pub name: String,
    /// What it wants to know.
    pub information: Vec<u16>,
}

impl Wanted {
    /// # Errors
    /// If lengths do not fit, or the name is not text.
    pub fn parse(data: &[u8]) -> Result<Wanted, Error> {
        let (name, rest) = named(data)?;
        let count = rest.first_chunk::<2>().map(|b| usize::from(u16::from_be_bytes(*b)));
        let list = rest.get(2..).unwrap_or_default();
        if count.is_none_or(|count| list.len() != 2 * count) {
            return Err(Error::Invalid {
                what: "NBD information requests",
                found: list.len() as u64,
            });
        }
        let information = list.chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
        Ok(Wanted { name, information })
    }
    /// Its bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = (self.name.len() as u32).to_be_bytes().to_vec();
        bytes.extend(self.name.as_bytes());
        bytes.extend((self.information.len() as u16).to_be_bytes());
        self.information.iter().for_each(|wanted| bytes.extend(wanted.to_be_bytes()));
        bytes
    }
}

/// Text after its length of 4 bytes, and what follows.
fn named(data: &[u8]) -> Result<(String, &[u8]), Error> {
    let len = data.first_chunk::<4>().map_or(u32::MAX, |b| u32::from_be_bytes(*b)) as usize;
    let name = data.get(4..).and_then(|rest| rest.get(..len)).filter(|_| len <= NAME_MAX);
    let name = name.and_then(|name| str::from_utf8(name).ok());
    let name = name.ok_or(Error::Invalid { what: "NBD name", found: len as u64 })?;
    Ok((name.to_owned(), &data[4 + len..]))
}

/// What a client asks with [`Kind::LIST_CONTEXTS`] and [`Kind::SET_CONTEXTS`]: the export's name and queries.
///
/// # Errors
/// If lengths do not fit, or something is not text.
pub fn contexts(data: &[u8]) -> Result<(String, Vec<String>), Error> {
    let (name, rest) = named(data)?;
    let wrong = Error::Invalid { what: "NBD contexts", found: rest.len() as u64 };
    let count = rest.first_chunk::<4>().map(|b| u32::from_be_bytes(*b)).ok_or(wrong)?;
    let (mut queries, mut rest) = (Vec::new(), &rest[4..]);
    for _ in 0..count {
        let (query, more) = named(rest)?;
        queries.push(query);
        rest = more;
    }
    if rest.is_empty() { Ok((name, queries)) } else { Err(wrong) }
}

/// What an export can do, according to its flags.
pub mod can {
    /// Flags are valid.
    pub const FLAGS: u16 = 1;
    /// It cannot be written.
    pub const READ_ONLY: u16 = 1 << 1;
    /// It can be flushed.
    pub const FLUSH: u16 = 1 << 2;
    /// A single write can be made durable (FUA).
    pub const FUA: u16 = 1 << 3;
    /// It can be trimmed.
    pub const TRIM: u16 = 1 << 5;
    /// It can write zeros.
    pub const ZEROES: u16 = 1 << 6;
    /// A read can be answered in one chunk.
    pub const DF: u16 = 1 << 7;
    /// Several connections see the same data.
    pub const MULTI: u16 = 1 << 8;
}

/// Information about an export: its size and flags.
pub fn export_information(size: u64, flags: u16) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(size.to_be_bytes());
    bytes.extend(flags.to_be_bytes());
    bytes
}

/// Information about an export: minimum, preferred and maximum length of a request.
pub fn block_information(least: u32, best: u32, most: u32) -> Vec<u8> {
    let mut bytes = vec![0, 3];
    [least, best, most].iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    bytes
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command(pub u16);

impl Command {
    /// Read.
    pub const READ: Command = Command(0);
    /// Write.
    pub const WRITE: Command = Command(1);
    /// Disconnect.
    pub const DISCONNECT: Command = Command(2);
    /// Make all completed writes durable.
    pub const FLUSH: Command = Command(3);
    /// The data are no longer needed.
    pub const TRIM: Command = Command(4);
    /// Read ahead.
    pub const CACHE: Command = Command(5);
    /// Write zeros.
    pub const ZEROES: Command = Command(6);
    /// Report what is allocated.
    pub const STATUS: Command = Command(7);
}

/// Flags of requests.
pub mod flag {
    /// The write is durable before the reply (FUA).
    pub const FUA: u16 = 1;
    /// Zeros must be allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Reply in one chunk.
    pub const DF: u16 = 1 << 2;
    /// Report one extent only.
    pub const ONE: u16 = 1 << 3;
}

/// A request without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its flags.
    pub flags: u16,
    /// Its command.
    pub command: Command,
    /// Returned with the reply.
    pub cookie: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

impl Request {
    /// # Errors
    /// If it does not begin with a request's magic number: the stream is then out of step.
    pub fn parse(bytes: &[u8; REQUEST_LEN]) -> Result<Request, Error> {
        let magic = word(bytes, 0);
        if magic != REQUEST_MAGIC {
            return Err(Error::Invalid { what: "NBD request", found: magic.into() });
        }
        Ok(Request {
            flags: half(bytes, 4),
            command: Command(half(bytes, 6)),
            cookie: double(bytes, 8),
            offset: double(bytes, 16),
            length: word(bytes, 24),
        })
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// Errors of replies.
pub mod error {
    /// Not permitted.
    pub const PERMISSION: u32 = 1;
    /// The medium failed.
    pub const MEDIUM: u32 = 5;
    /// The request is invalid.
    pub const INVALID: u32 = 22;
    /// No room, or beyond the end.
    pub const SPACE: u32 = 28;
    /// Not supported.
    pub const UNSUPPORTED: u32 = 95;
}

/// The header of a simple reply.
pub fn simple(error: u32, cookie: u64) -> [u8; SIMPLE_LEN] {
    let mut bytes = [0; SIMPLE_LEN];
    bytes[..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Types of chunks.
pub mod chunk {
    /// Only the end of a reply.
    pub const NONE: u16 = 0;
    /// An offset and data.
    pub const DATA: u16 = 1;
    /// An offset and a length of zeros.
    pub const HOLE: u16 = 2;
    /// A context and its extents.
    pub const STATUS: u16 = 5;
    /// An error.
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// The header of a reply's last chunk, which `length` bytes follow.
pub fn last_chunk(kind: u16, cookie: u64, length: u32) -> [u8; CHUNK_LEN] {
    const DONE: u16 = 1;
    let mut bytes = [0; CHUNK_LEN];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) << 16 | u32::from(half(bytes, at + 2))
}
fn double(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_specification() {
        assert_eq!(simple(0, 1)[..4], [0x67, 0x44, 0x66, 0x98]);
        assert_eq!(last_chunk(chunk::NONE, 9, 0)[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 0]);
        let request =
            Request { flags: 1, command: Command::WRITE, cookie: 2, offset: 3, length: 4 };
        assert_eq!(request.emit()[..8], [0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1]);
        let reply = option_reply(Kind::GO, reply::ACK, &[]);
        assert_eq!(reply[..8], [0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9]);
        assert_eq!(export_information(1 << 40, 1), [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn lists_that_do_not_fit_their_lengths_are_refused() {
        let wanted = Wanted { name: "disk".to_owned(), information: vec![0, 3] };
        let bytes = wanted.emit();
        assert_eq!(Wanted::parse(&bytes), Ok(wanted));
        for len in 0..bytes.len() {
            assert!(Wanted::parse(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Wanted::parse(&[&bytes[..], &[0]].concat()).is_err());
        let mut queries = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5];
        queries.extend(b"base:");
        assert_eq!(contexts(&queries), Ok((String::new(), vec!["base:".to_owned()])));
        assert!(contexts(&queries[..16]).is_err());
        assert!(contexts(&[0, 0, 0, 0, 255, 255, 255, 255]).is_err(), "many, and none there");
    }
}
