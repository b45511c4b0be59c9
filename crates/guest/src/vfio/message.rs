//! The messages of vfio-user.
//!
//! ```text
//! | id, 2 B | command, 2 B | size with header, 4 B | flags, 4 B | error, 4 B | payload |      all little endian
//!                                                    0x1 reply, 0x10 needs no reply, 0x20 error
//! ```
//!
//! Source: vfio-user Protocol Specification 0.9.1; structures are those of Linux's `vfio.h`.

use crate::words::{u16_at, u32_at, u64_at};

/// Length of a header.
pub const HEADER: usize = 16;
/// Most bytes of a region that a message carries.
pub const DATA_MAX: usize = 4096;
/// The longest payload.
pub const PAYLOAD_MAX: usize = ACCESS + DATA_MAX;
const ACCESS: usize = 16;

const TYPE: u32 = 0xf;
const REPLY: u32 = 1;
const NO_REPLY: u32 = 0x10;
const ERROR: u32 = 0x20;

/// Why a message is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Neither a request nor a reply.
    Flags(u32),
    /// The size is less than a header's, or more than any message's.
    Size(u32),
    /// The payload has another length than the command.
    Length {
        /// The command's number.
        command: u16,
        /// Bytes of the payload.
        found: usize,
    },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Flags(flags) => write!(f, "a message with the flags {flags:#x}"),
            Fault::Size(size) => {
                write!(f, "a message of {size} bytes, at most {}", HEADER + PAYLOAD_MAX)
            }
            Fault::Length { command, found } => {
                write!(f, "command {command} with a payload of {found} bytes")
            }
        }
    }
}

impl std::error::Error for Fault {}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// By which a reply is found.
    pub id: u16,
    /// The command's number.
    pub command: u16,
    /// Length of the payload.
    pub size: usize,
    /// Whether it is a reply.
    pub is_reply: bool,
    /// Whether nobody waits for a reply.
    pub no_reply: bool,
    /// Of a reply: what went wrong, as a number of the system.
    pub error: Option<u32>,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// It is of no known type, or announces too little or too much.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Header, Fault> {
        let [size, flags, error] = [4, 8, 12].map(|at| u32_at(bytes, at));
        let is_reply = match flags & TYPE {
            0 => false,
            REPLY => true,
            _ => return Err(Fault::Flags(flags)),
        };
        let payload = (size as usize).checked_sub(HEADER);
        Ok(Header {
            id: u16_at(bytes, 0),
            command: u16_at(bytes, 2),
            size: payload.filter(|&size| size <= PAYLOAD_MAX).ok_or(Fault::Size(size))?,
            is_reply,
            no_reply: flags & NO_REPLY != 0,
            error: (is_reply && flags & ERROR != 0).then_some(error),
        })
    }

    /// Writes it.
    pub fn emit(&self) -> [u8; HEADER] {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let flags = flag(self.is_reply, REPLY)
            | flag(self.no_reply, NO_REPLY)
            | flag(self.error.is_some(), ERROR);
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&self.id.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_le_bytes());
        let size = (HEADER + self.size) as u32;
        for (at, word) in [(4, size), (8, flags), (12, self.error.unwrap_or_default())] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// Part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The region.
    pub region: u32,
    /// Where in it.
    pub offset: u64,
    /// Bytes.
    pub count: u32,
}

impl Access {
    fn parse(payload: &[u8]) -> Access {
        let [region, count] = [8, 12].map(|at| u32_at(payload, at));
        Access { region, offset: u64_at(payload, 0), count }
    }

    /// Writes it.
    pub fn emit(&self) -> Vec<u8> {
        let (region, count) = (self.region.to_le_bytes(), self.count.to_le_bytes());
        [&self.offset.to_le_bytes()[..], &region, &count].concat()
    }
}

/// Memory that the device may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Whether it may be written, not only read.
    pub writable: bool,
    /// Where it begins in its file.
    pub offset: u64,
    /// Where the device sees it.
    pub address: u64,
    /// Its length.
    pub size: u64,
}

/// Interrupts that are to be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// What the data are, and what happens: as in Linux's `vfio_irq_set`.
    pub flags: u32,
    /// The kind of interrupts.
    pub index: u32,
    /// The first.
    pub start: u32,
    /// How many.
    pub count: u32,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The session begins with this version, and what the client can do, as JSON.
    Version {
        /// 0.
        major: u16,
        /// Of which the device takes the lower.
        minor: u16,
        /// A text that ends in a zero.
        capabilities: Vec<u8>,
    },
    /// Memory that the device may reach, with its file, if it has one.
    Map(Mapping),
    /// Memory that the device must no longer reach.
    Unmap {
        /// Where it begins.
        address: u64,
        /// Its length.
        size: u64,
        /// All there is.
        all: bool,
    },
    /// What kind of device is it?
    Info,
    /// What is a region?
    RegionInfo(u32),
    /// What is a kind of interrupts?
    IrqInfo(u32),
    /// Where to report interrupts.
    SetIrqs(Vectors),
    /// The bytes of a region?
    Read(Access),
    /// Bytes for a region.
    Write(Access, Vec<u8>),
    /// As after power-on.
    Reset,
    /// Something else.
    Other(u16),
}

/// Flags of memory.
const READABLE: u32 = 1;
const WRITABLE: u32 = 2;
const ALL: u32 = 2;

/// Words of 32 bits, little endian.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Request {
    /// Reads the payload of a request.
    ///
    /// # Errors
    /// It is shorter than the command's, or its data have another length than stated.
    pub fn parse(command: u16, payload: &[u8]) -> Result<Request, Fault> {
        let wrong = Fault::Length { command, found: payload.len() };
        // What is longer has capabilities that nobody asked for.
        let least = |least: usize| if payload.len() < least { Err(wrong) } else { Ok(()) };
        Ok(match command {
            1 => {
                least(4)?;
                let [major, minor] = [0, 2].map(|at| u16_at(payload, at));
                Request::Version { major, minor, capabilities: payload[4..].to_vec() }
            }
            2 => {
                least(32)?;
                let [offset, address, size] = [8, 16, 24].map(|at| u64_at(payload, at));
                let writable = u32_at(payload, 4) & WRITABLE != 0;
                Request::Map(Mapping { writable, offset, address, size })
            }
            3 => {
                least(24)?;
                let [address, size] = [8, 16].map(|at| u64_at(payload, at));
                Request::Unmap { address, size, all: u32_at(payload, 4) & ALL != 0 }
            }
            4 => {
                least(16)?;
                Request::Info
            }
            5 => {
                least(32)?;
                Request::RegionInfo(u32_at(payload, 8))
            }
            7 => {
                least(16)?;
                Request::IrqInfo(u32_at(payload, 8))
            }
            8 => {
                least(20)?;
                let [flags, index, start, count] = [4, 8, 12, 16].map(|at| u32_at(payload, at));
                Request::SetIrqs(Vectors { flags, index, start, count })
            }
            9 => {
                least(ACCESS)?;
                Request::Read(Access::parse(payload))
            }
            10 => {
                least(ACCESS)?;
                let access = Access::parse(payload);
                let data = &payload[ACCESS..];
                if data.len() != access.count as usize {
                    return Err(wrong);
                }
                Request::Write(access, data.to_vec())
            }
            13 => Request::Reset,
            other => Request::Other(other),
        })
    }

    /// The command's number and the payload, as a client sends them.
    pub fn emit(&self) -> (u16, Vec<u8>) {
        match self {
            Request::Version { major, minor, capabilities } => {
                (1, [&major.to_le_bytes()[..], &minor.to_le_bytes(), capabilities].concat())
            }
            Request::Map(Mapping { writable, offset, address, size }) => {
                let flags = READABLE | if *writable { WRITABLE } else { 0 };
                let [offset, address, size] =
                    [offset, address, size].map(|word| word.to_le_bytes());
                (2, [&words(&[32, flags])[..], &offset, &address, &size].concat())
            }
            Request::Unmap { address, size, all } => {
                let flags = if *all { ALL } else { 0 };
                let [address, size] = [address, size].map(|word| word.to_le_bytes());
                (3, [&words(&[24, flags])[..], &address, &size].concat())
            }
            Request::Info => (4, words(&[16, 0, 0, 0])),
            Request::RegionInfo(index) => (5, words(&[32, 0, *index, 0, 0, 0, 0, 0])),
            Request::IrqInfo(index) => (7, words(&[16, 0, *index, 0])),
            Request::SetIrqs(Vectors { flags, index, start, count }) => {
                (8, words(&[20, *flags, *index, *start, *count]))
            }
            Request::Read(access) => (9, access.emit()),
            Request::Write(access, data) => (10, [&access.emit()[..], data].concat()),
            Request::Reset => (13, Vec::new()),
            Request::Other(number) => (*number, Vec::new()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_access() -> impl Strategy<Value = Access> {
        let offset = prop_oneof![0u64..0x4000, any::<u64>()];
        let parts = (0u32..10, offset, prop_oneof![Just(4u32), 0u32..5000, any::<u32>()]);
        parts.prop_map(|(region, offset, count)| Access { region, offset, count })
    }

    pub(crate) fn any_request() -> impl Strategy<Value = Request> {
        let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
        let memory = (any::<bool>(), 0u64..8192, 0u64..0x30_0000, 0u64..0x30_0000);
        prop_oneof![
            (0u16..2, any::<u16>(), bytes(40)).prop_map(|(major, minor, capabilities)| {
                Request::Version { major, minor, capabilities }
            }),
            memory.prop_map(|(writable, offset, address, size)| {
                Request::Map(Mapping { writable, offset, address, size })
            }),
            (0u64..0x30_0000, any::<u64>(), any::<bool>())
                .prop_map(|(address, size, all)| { Request::Unmap { address, size, all } }),
            Just(Request::Info),
            (0u32..12).prop_map(Request::RegionInfo),
            (0u32..8).prop_map(Request::IrqInfo),
            (0u32..64, 0u32..5, any::<u32>(), 0u32..9).prop_map(|(flags, index, start, count)| {
                Request::SetIrqs(Vectors { flags, index, start, count })
            }),
            any_access().prop_map(Request::Read),
            (any_access(), bytes(300)).prop_map(|(access, data)| {
                Request::Write(Access { count: data.len() as u32, ..access }, data)
            }),
            Just(Request::Reset),
            (14u16..99).prop_map(Request::Other),
        ]
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(request in any_request(), id: u16, no_reply: bool) {
            let (command, payload) = request.emit();
            let size = payload.len();
            let header =
                Header { id, command, size, is_reply: false, no_reply, error: None };
            prop_assert_eq!(Header::parse(&header.emit()), Ok(header));
            prop_assert_eq!(Request::parse(command, &payload), Ok(request));
            for short in 0..size.min(16) {
                let _ = Request::parse(command, &payload[..short]);
            }
        }

        #[test]
        fn any_bytes_are_a_message_or_a_fault(
            bytes: [u8; HEADER],
            payload in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert!(header.size <= PAYLOAD_MAX);
                let _ = Request::parse(header.command, &payload);
            }
        }
    }

    #[test]
    fn a_reply_says_what_went_wrong() {
        let header =
            Header { id: 7, command: 9, size: 0, is_reply: true, no_reply: false, error: Some(22) };
        assert_eq!(header.emit(), [7, 0, 9, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 22, 0, 0, 0]);
        assert_eq!(Header::parse(&header.emit()), Ok(header));
        let [mut short, mut long, mut odd] = [header.emit(); 3];
        (short[4], long[5], odd[8]) = (15, 0xff, 2);
        assert_eq!(Header::parse(&short), Err(Fault::Size(15)));
        assert_eq!(Header::parse(&long), Err(Fault::Size(0xff10)));
        assert_eq!(Header::parse(&odd), Err(Fault::Flags(2)));
    }
}
