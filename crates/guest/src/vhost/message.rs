//! The messages of vhost-user.
//!
//! ```text
//! | request, 4 B | flags, 4 B | size, 4 B | payload |      all little endian
//!                  version 1, 0x4 reply, 0x8 needs a reply
//! ```

use crate::words::{u32_at, u64_at};

/// Length of a header.
pub const HEADER: usize = 12;
/// The longest payload: the table of [`REGIONS_MAX`] regions.
pub const PAYLOAD_MAX: usize = 8 + REGIONS_MAX * REGION;
/// Most regions of memory: a descriptor comes with each.
pub const REGIONS_MAX: usize = crate::socket::FDS_MAX;
const REGION: usize = 32;

const VERSION: u32 = 1;
const REPLY: u32 = 4;
const NEEDS_REPLY: u32 = 8;
/// With a ring's descriptor: there is none.
const NO_FD: u64 = 0x100;

/// A part of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where the guest sees it.
    pub guest: u64,
    /// Its length.
    pub size: u64,
    /// Where QEMU sees it; rings are named by such addresses.
    pub user: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// Where a ring's parts are, as addresses of QEMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The table of descriptors.
    pub descriptors: u64,
    /// What the guest offers.
    pub available: u64,
    /// What the device has used.
    pub used: u64,
}

/// A request, or a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Which features are there?
    Features,
    /// The features in use.
    SetFeatures(u64),
    /// The session begins.
    SetOwner,
    /// The session ends.
    ResetOwner,
    /// The guest's memory, a descriptor for each region.
    SetMemory(Vec<Region>),
    /// Length of a ring.
    SetLength(u32, u32),
    /// Where a ring is.
    SetAddresses(u32, Addresses),
    /// Where in a ring to begin.
    SetBase(u32, u32),
    /// Stop a ring and say where it stood.
    Base(u32),
    /// A ring's doorbell, unless the guest's ring is polled.
    SetKick(u32, bool),
    /// A ring's interrupt.
    SetCall(u32, bool),
    /// Where to report that a ring is broken.
    SetError(u32, bool),
    /// Which features of the protocol are there?
    Protocol,
    /// The features of the protocol in use.
    SetProtocol(u64),
    /// How many rings are there?
    Rings,
    /// Whether a ring's packets pass.
    Enable(u32, bool),
    /// The greatest length of a packet's payload.
    SetMtu(u64),
    /// The state of the driver, as virtio has it.
    SetStatus(u64),
    /// The state of the driver?
    Status,
    /// Something else.
    Other(u32),
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The version is not 1, or it is a reply.
    Flags(u32),
    /// The payload is longer than any may be.
    Long(u32),
    /// The payload has another length than the request.
    Length {
        /// The request's number.
        request: u32,
        /// Bytes of the payload.
        found: usize,
    },
    /// More regions than allowed.
    Regions(u32),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Flags(flags) => write!(f, "a message with the flags {flags:#x}"),
            Fault::Long(size) => write!(f, "a payload of {size} bytes, at most {PAYLOAD_MAX}"),
            Fault::Length { request, found } => {
                write!(f, "request {request} with a payload of {found} bytes")
            }
            Fault::Regions(count) => write!(f, "{count} regions of memory, at most {REGIONS_MAX}"),
        }
    }
}

impl std::error::Error for Fault {}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The request's number.
    pub request: u32,
    /// Whether a reply is wanted, even if the request has none.
    pub needs_reply: bool,
    /// Length of the payload.
    pub size: usize,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// It is none of version 1, is a reply, or announces too much.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Header, Fault> {
        let [request, flags, size] = [0, 4, 8].map(|at| u32_at(bytes, at));
        if flags & 3 != VERSION || flags & REPLY != 0 {
            return Err(Fault::Flags(flags));
        }
        if size as usize > PAYLOAD_MAX {
            return Err(Fault::Long(size));
        }
        Ok(Header { request, needs_reply: flags & NEEDS_REPLY != 0, size: size as usize })
    }

    /// Writes it.
    pub fn emit(&self, is_reply: bool) -> [u8; HEADER] {
        let reply = if is_reply { REPLY } else { 0 };
        let flags = VERSION | reply | if self.needs_reply { NEEDS_REPLY } else { 0 };
        let mut bytes = [0; HEADER];
        for (at, word) in [(0, self.request), (4, flags), (8, self.size as u32)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// An answer: a number, or a ring's state.
pub fn answer(request: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header { request, needs_reply: false, size: payload.len() };
    [&header.emit(true)[..], payload].concat()
}

impl Request {
    /// Reads the payload of a request.
    ///
    /// # Errors
    /// It has not the request's length.
    pub fn parse(request: u32, payload: &[u8]) -> Result<Request, Fault> {
        let wrong = Fault::Length { request, found: payload.len() };
        let number = || Some(u64_at(payload, 0)).filter(|_| payload.len() == 8).ok_or(wrong);
        let state = || {
            let pair = (u32_at(payload, 0), u32_at(payload, 4));
            Some(pair).filter(|_| payload.len() == 8).ok_or(wrong)
        };
        let ring = || number().map(|word| (word as u32 & 0xff, word & NO_FD == 0));
        Ok(match request {
            1 => Request::Features,
            2 => Request::SetFeatures(number()?),
            3 => Request::SetOwner,
            4 => Request::ResetOwner,
            5 => Request::SetMemory(regions(payload, wrong)?),
            8 => state().map(|(ring, length)| Request::SetLength(ring, length))?,
            9 if payload.len() == 40 => {
                let [descriptors, used, available] = [8, 16, 24].map(|at| u64_at(payload, at));
                let addresses = Addresses { descriptors, available, used };
                Request::SetAddresses(u32_at(payload, 0), addresses)
            }
            9 => return Err(wrong),
            10 => state().map(|(ring, base)| Request::SetBase(ring, base))?,
            11 => state().map(|(ring, _)| Request::Base(ring))?,
            12 => ring().map(|(ring, fd)| Request::SetKick(ring, fd))?,
            13 => ring().map(|(ring, fd)| Request::SetCall(ring, fd))?,
            14 => ring().map(|(ring, fd)| Request::SetError(ring, fd))?,
            15 => Request::Protocol,
            16 => Request::SetProtocol(number()?),
            17 => Request::Rings,
            18 => state().map(|(ring, on)| Request::Enable(ring, on != 0))?,
            20 => Request::SetMtu(number()?),
            39 => Request::SetStatus(number()?),
            40 => Request::Status,
            other => Request::Other(other),
        })
    }

    /// Its number and payload.
    pub fn emit(&self) -> (u32, Vec<u8>) {
        let number = |word: u64| word.to_le_bytes().to_vec();
        let state = |ring: u32, word: u32| number(u64::from(word) << 32 | u64::from(ring));
        let fd = |ring: u32, fd: bool| number(u64::from(ring & 0xff) | if fd { 0 } else { NO_FD });
        match self {
            Request::Features => (1, Vec::new()),
            Request::SetFeatures(features) => (2, number(*features)),
            Request::SetOwner => (3, Vec::new()),
            Request::ResetOwner => (4, Vec::new()),
            Request::SetMemory(regions) => {
                let each = |region: &Region| {
                    [region.guest, region.size, region.user, region.offset].map(u64::to_le_bytes)
                };
                let words = regions.iter().flat_map(each).flatten();
                (5, number(regions.len() as u64).into_iter().chain(words).collect())
            }
            Request::SetLength(ring, length) => (8, state(*ring, *length)),
            Request::SetAddresses(ring, at) => {
                let words = [u64::from(*ring), at.descriptors, at.used, at.available, 0];
                (9, words.map(u64::to_le_bytes).concat())
            }
            Request::SetBase(ring, base) => (10, state(*ring, *base)),
            Request::Base(ring) => (11, state(*ring, 0)),
            Request::SetKick(ring, has) => (12, fd(*ring, *has)),
            Request::SetCall(ring, has) => (13, fd(*ring, *has)),
            Request::SetError(ring, has) => (14, fd(*ring, *has)),
            Request::Protocol => (15, Vec::new()),
            Request::SetProtocol(features) => (16, number(*features)),
            Request::Rings => (17, Vec::new()),
            Request::Enable(ring, on) => (18, state(*ring, u32::from(*on))),
            Request::SetMtu(mtu) => (20, number(*mtu)),
            Request::SetStatus(status) => (39, number(*status)),
            Request::Status => (40, Vec::new()),
            Request::Other(number) => (*number, Vec::new()),
        }
    }
}

/// The table of memory.
fn regions(payload: &[u8], wrong: Fault) -> Result<Vec<Region>, Fault> {
    let count = u32_at(payload, 0);
    if count as usize > REGIONS_MAX {
        return Err(Fault::Regions(count));
    }
    let rows = payload.get(8..).ok_or(wrong)?;
    if rows.len() != count as usize * REGION {
        return Err(wrong);
    }
    let region = |row: &[u8]| {
        let [guest, size, user, offset] = [0, 8, 16, 24].map(|at| u64_at(row, at));
        Region { guest, size, user, offset }
    };
    Ok(rows.chunks_exact(REGION).map(region).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any request that can be emitted.
    pub(crate) fn any_request() -> impl Strategy<Value = Request> {
        let words = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        let region =
            words.prop_map(|(guest, size, user, offset)| Region { guest, size, user, offset });
        let ring = 0u32..256;
        prop_oneof![
            any::<u64>().prop_map(Request::SetFeatures),
            prop::collection::vec(region, 0..=REGIONS_MAX).prop_map(Request::SetMemory),
            (any::<u32>(), any::<u32>()).prop_map(|(ring, n)| Request::SetLength(ring, n)),
            (any::<u32>(), words).prop_map(|(ring, (descriptors, available, used, _))| {
                Request::SetAddresses(ring, Addresses { descriptors, available, used })
            }),
            (any::<u32>(), any::<u32>()).prop_map(|(ring, n)| Request::SetBase(ring, n)),
            any::<u32>().prop_map(Request::Base),
            (ring.clone(), any::<bool>()).prop_map(|(ring, fd)| Request::SetKick(ring, fd)),
            (ring.clone(), any::<bool>()).prop_map(|(ring, fd)| Request::SetCall(ring, fd)),
            (ring, any::<bool>()).prop_map(|(ring, fd)| Request::SetError(ring, fd)),
            (any::<u32>(), any::<bool>()).prop_map(|(ring, on)| Request::Enable(ring, on)),
            any::<u64>().prop_map(Request::SetProtocol),
            any::<u64>().prop_map(Request::SetMtu),
            any::<u64>().prop_map(Request::SetStatus),
            Just(Request::Features),
            Just(Request::SetOwner),
            Just(Request::ResetOwner),
            Just(Request::Protocol),
            Just(Request::Rings),
            Just(Request::Status),
            (41u32..).prop_map(Request::Other),
        ]
    }

    proptest! {
        #[test]
        fn a_request_is_read_back_as_it_was_written(request in any_request()) {
            let (number, payload) = request.emit();
            prop_assert!(payload.len() <= PAYLOAD_MAX);
            prop_assert_eq!(Request::parse(number, &payload), Ok(request));
        }

        #[test]
        fn any_bytes_are_a_request_or_refused(number in 0u32..64, bytes: Vec<u8>) {
            if let Ok(request) = Request::parse(number, &bytes) {
                let (again, payload) = request.emit();
                prop_assert_eq!(Request::parse(again, &payload), Ok(request));
            }
        }

        #[test]
        fn any_header_is_read_or_refused(bytes: [u8; HEADER]) {
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert!(header.size <= PAYLOAD_MAX);
                prop_assert_eq!(Header::parse(&header.emit(false)), Ok(header));
            }
        }
    }

    #[test]
    fn a_reply_is_no_request_and_a_payload_has_its_length() {
        let header = Header { request: 1, needs_reply: true, size: 8 };
        assert_eq!(Header::parse(&header.emit(true)), Err(Fault::Flags(0xd)));
        assert_eq!(Request::parse(2, &[0; 7]), Err(Fault::Length { request: 2, found: 7 }));
        assert_eq!(Request::parse(5, &[9, 0, 0, 0, 0, 0, 0, 0]), Err(Fault::Regions(9)));
        assert!(Request::parse(5, &[1, 0, 0, 0, 0, 0, 0, 0]).is_err(), "a region is missing");
        assert_eq!(answer(1, &[0; 8]).len(), HEADER + 8);
    }
}
