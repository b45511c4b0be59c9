//! Tickets for transfers between devices, and the messages of a transfer.
//!
//! An owner signs a ticket so that one device sends something of its own straight to another: what, from which device,
//! to which place on which other device, how fast, until when. It is valid for one transfer.
//!
//! ```text
//! ticket   "LMTK" version 1 | id 16 | expires 8 | rate 8 | interval 4 |
//!          source's key 32 | destination's key 32 | source's address | destination's address |
//!          from: 1 offset 8, length 8, or 2 frames 4, width 2, height 2 |
//!          to:   1 offset 8, length 8, or 2 x 2, y 2, width 2, height 2
//! address  length 1 | "10.0.0.2:10811"
//! signed   length 2 | ticket | length 2 | its signature, in minisign's format
//! message  kind 1 | length 4 | body
//!
//! holder --PRESENT signed--> source --OFFER signed--> destination      ACCEPTED or REFUSED words
//!                            source --DATA ... END--> destination      DONE or REFUSED words
//! holder <--PROGRESS ...---- source                                    DONE or REFUSED words
//! record   "LMFR" | length 4 | clock 8 | a JPEG | zeros up to whole blocks of 4096: a camera's frame on a disk
//! ```
//!
//! Numbers are big-endian. Messages travel in TLS, whose handshake proves both devices' keys. DATA has no place: the
//! destination knows from the ticket where the next byte goes, so that no sender can name another place.
//!
//! ```
//! use lastmeter_wire::ticket::{From, Ticket, To};
//! let ticket = Ticket {
//!     id: [7; 16],
//!     expires: 1_900_000_000,
//!     rate: 0,
//!     interval: 0,
//!     source: [1; 32],
//!     destination: [2; 32],
//!     source_address: "10.0.0.1:10811".to_owned(),
//!     destination_address: "10.0.0.2:10811".to_owned(),
//!     from: From::Blocks { offset: 0, length: 4096 },
//!     to: To::Blocks { offset: 8192, length: 4096 },
//! };
//! assert_eq!(Ticket::parse(&ticket.emit()?)?, ticket);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```
//!
//! Rows: N-03, N-25.

use crate::error::{Error, fit, split};
use crate::rfb::Area;

const MAGIC: [u8; 5] = *b"LMTK\x01";
const RECORD_MAGIC: [u8; 4] = *b"LMFR";
/// Bytes of a device's key: Ed25519.
pub const KEY_LEN: usize = 32;
/// Bytes of a ticket's identifier.
pub const ID_LEN: usize = 16;
/// The longest address.
pub const ADDRESS_MAX: usize = 255;
/// The longest ticket without its signature.
pub const TICKET_MAX: usize = 1024;
/// The longest signature.
pub const SIGNATURE_MAX: usize = 1024;
/// The longest time from frame to frame, in microseconds.
pub const INTERVAL_MAX: u32 = 30_000_000;
/// The lowest rate in bytes a second, except 0: no message takes longer than the other end's timeout.
pub const RATE_MIN: u64 = 256 << 10;
/// Bytes of a message before its body.
pub const HEAD_LEN: usize = 5;
/// The longest body of a message: a frame as JPEG is one.
pub const BODY_MAX: usize = 8 << 20;
/// The longest body of all messages except DATA: a signed ticket, or words.
pub const WORDS_MAX: usize = TICKET_MAX + SIGNATURE_MAX + 4;
/// Frames on a disk begin at multiples of this, which is a multiple of every disk's block size.
pub const RECORD_UNIT: usize = 4096;
/// Bytes of a record before its JPEG.
pub const RECORD_LEN: usize = 16;
/// Bytes of a pixel in a frame that a disk keeps for a display: blue, green, red, zero.
pub const PIXEL_LEN: u64 = 4;

/// What a source gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Bytes of a disk.
    Blocks {
        /// The first.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// Frames of a camera, as JPEG.
    Frames {
        /// How many, at most.
        count: u32,
        /// Their width; 0: the camera's.
        width: u16,
        /// Their height; 0: the camera's.
        height: u16,
    },
}

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Bytes of a disk.
    Blocks {
        /// The first.
        offset: u64,
        /// How many, at most.
        length: u64,
    },
    /// A part of the issuer's screen.
    Area(Area),
}

/// What is transferred, as the two ends of a ticket say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cargo {
    /// This many bytes, from disk to disk.
    Bytes(u64),
    /// Frames of this many bytes, from disk to display.
    Pixels {
        /// Bytes of a frame.
        frame: u64,
        /// Frames.
        count: u64,
    },
    /// JPEGs of a camera, a message each.
    Pictures {
        /// The most.
        count: u32,
    },
}

/// A ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Unpredictable, and different in every ticket.
    pub id: [u8; ID_LEN],
    /// When it expires, in seconds since 1970.
    pub expires: u64,
    /// The most bytes a second; 0: as fast as they go.
    pub rate: u64,
    /// Microseconds from frame to frame; 0: as fast as they come.
    pub interval: u32,
    /// The device that gives.
    pub source: [u8; KEY_LEN],
    /// The device that takes.
    pub destination: [u8; KEY_LEN],
    /// Where the source listens for tickets.
    pub source_address: String,
    /// Where the destination does.
    pub destination_address: String,
    /// What the source gives.
    pub from: From,
    /// Where the destination puts it.
    pub to: To,
}

impl Ticket {
    /// What is transferred.
    ///
    /// # Errors
    /// If the two ends do not fit each other.
    pub fn cargo(&self) -> Result<Cargo, Error> {
        let wrong = |found| Error::Invalid { what: "ticket: amount", found };
        match (self.from, self.to) {
            (From::Blocks { length, .. }, To::Blocks { length: room, .. }) => {
                if length == room {
                    Ok(Cargo::Bytes(length))
                } else {
                    Err(wrong(room))
                }
            }
            (From::Blocks { length, .. }, To::Area(area)) => {
                let frame = u64::from(area.w) * u64::from(area.h) * PIXEL_LEN;
                let whole = length.is_multiple_of(frame);
                if whole {
                    Ok(Cargo::Pixels { frame, count: length / frame })
                } else {
                    Err(wrong(length))
                }
            }
            (From::Frames { count, width, height }, To::Area(area)) => {
                let same = (width, height) == (area.w, area.h);
                if same { Ok(Cargo::Pictures { count }) } else { Err(wrong(width.into())) }
            }
            (From::Frames { count, .. }, To::Blocks { .. }) => Ok(Cargo::Pictures { count }),
        }
    }
    /// Whether its fields are consistent.
    fn check(&self) -> Result<(), Error> {
        let wrong = |what, found: u64| Err(Error::Invalid { what, found });
        if self.source == self.destination {
            return wrong("ticket: a device and itself", 0);
        }
        if (1..RATE_MIN).contains(&self.rate) {
            return wrong("ticket: rate", self.rate);
        }
        if self.interval > INTERVAL_MAX {
            return wrong("ticket: interval", self.interval.into());
        }
        if let From::Blocks { offset, length } = self.from
            && (length == 0 || offset.checked_add(length).is_none())
        {
            return wrong("ticket: source's range", length);
        }
        if let To::Blocks { offset, length } = self.to
            && (length == 0 || offset.checked_add(length).is_none())
        {
            return wrong("ticket: destination's range", length);
        }
        if let To::Area(area) = self.to
            && (area.w == 0 || area.h == 0)
        {
            return wrong("ticket: area", 0);
        }
        if let From::Frames { count: 0, .. } = self.from {
            return wrong("ticket: frames", 0);
        }
        self.cargo().map(|_| ())
    }
    /// # Errors
    /// If it is cut off, has trailing bytes, or is inconsistent.
    pub fn parse(bytes: &[u8]) -> Result<Ticket, Error> {
        const WHAT: &str = "ticket";
        let mut rest = bytes;
        let magic = take::<5>(&mut rest, WHAT)?;
        if magic != MAGIC {
            return Err(Error::Invalid { what: "ticket's beginning", found: magic[0].into() });
        }
        let ticket = Ticket {
            id: take(&mut rest, WHAT)?,
            expires: u64::from_be_bytes(take(&mut rest, WHAT)?),
            rate: u64::from_be_bytes(take(&mut rest, WHAT)?),
            interval: u32::from_be_bytes(take(&mut rest, WHAT)?),
            source: take(&mut rest, WHAT)?,
            destination: take(&mut rest, WHAT)?,
            source_address: address(&mut rest)?,
            destination_address: address(&mut rest)?,
            from: match take(&mut rest, WHAT)? {
                [1] => From::Blocks {
                    offset: u64::from_be_bytes(take(&mut rest, WHAT)?),
                    length: u64::from_be_bytes(take(&mut rest, WHAT)?),
                },
                [2] => From::Frames {
                    count: u32::from_be_bytes(take(&mut rest, WHAT)?),
                    width: u16::from_be_bytes(take(&mut rest, WHAT)?),
                    height: u16::from_be_bytes(take(&mut rest, WHAT)?),
                },
                [found] => {
                    return Err(Error::Invalid { what: "ticket's source", found: found.into() });
                }
            },
            to: match take(&mut rest, WHAT)? {
                [1] => To::Blocks {
                    offset: u64::from_be_bytes(take(&mut rest, WHAT)?),
                    length: u64::from_be_bytes(take(&mut rest, WHAT)?),
                },
                [2] => To::Area(Area::parse(&take(&mut rest, WHAT)?)),
                [found] => {
                    return Err(Error::Invalid {
                        what: "ticket's destination",
                        found: found.into(),
                    });
                }
            },
        };
        if !rest.is_empty() {
            return Err(Error::Invalid { what: "bytes after a ticket", found: rest.len() as u64 });
        }
        ticket.check()?;
        Ok(ticket)
    }
    /// Its bytes.
    ///
    /// # Errors
    /// If it is inconsistent.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        self.check()?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.id);
        bytes.extend(self.expires.to_be_bytes());
        bytes.extend(self.rate.to_be_bytes());
        bytes.extend(self.interval.to_be_bytes());
        bytes.extend(self.source);
        bytes.extend(self.destination);
        for text in [&self.source_address, &self.destination_address] {
            bytes.push(fit(text.len(), ADDRESS_MAX as u64, "ticket's address")?);
            bytes.extend(text.as_bytes());
        }
        match self.from {
            From::Blocks { offset, length } => {
                bytes.push(1);
                bytes.extend(offset.to_be_bytes());
                bytes.extend(length.to_be_bytes());
            }
            From::Frames { count, width, height } => {
                bytes.push(2);
                bytes.extend(count.to_be_bytes());
                bytes.extend(width.to_be_bytes());
                bytes.extend(height.to_be_bytes());
            }
        }
        match self.to {
            To::Blocks { offset, length } => {
                bytes.push(1);
                bytes.extend(offset.to_be_bytes());
                bytes.extend(length.to_be_bytes());
            }
            To::Area(area) => {
                bytes.push(2);
                bytes.extend(area.emit());
            }
        }
        Ok(bytes)
    }
}

fn take<const N: usize>(rest: &mut &[u8], what: &'static str) -> Result<[u8; N], Error> {
    let (head, tail) = split::<N>(rest, what)?;
    *rest = tail;
    Ok(*head)
}

fn address(rest: &mut &[u8]) -> Result<String, Error> {
    const WHAT: &str = "ticket's address";
    let [len] = take(rest, WHAT)?;
    let (text, tail) = rest.split_at_checked(len.into()).ok_or(Error::Truncated {
        what: WHAT,
        need: len.into(),
        have: rest.len(),
    })?;
    *rest = tail;
    let text =
        std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|b| b.is_ascii_graphic()));
    Ok(text.ok_or(Error::Invalid { what: WHAT, found: len.into() })?.to_owned())
}

/// A ticket as its owner signed it. The signature is checked elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The ticket's bytes.
    pub ticket: Vec<u8>,
    /// Their signature.
    pub signature: String,
}

impl Signed {
    /// # Errors
    /// If a length does not fit, or the signature is not text.
    pub fn parse(bytes: &[u8]) -> Result<Signed, Error> {
        const WHAT: &str = "signed ticket";
        let mut rest = bytes;
        let mut part = |most: usize| {
            let len = usize::from(u16::from_be_bytes(take(&mut rest, WHAT)?));
            let wrong = Error::Invalid { what: "signed ticket's length", found: len as u64 };
            let (part, tail) = rest.split_at_checked(len).filter(|_| len <= most).ok_or(wrong)?;
            rest = tail;
            Ok::<_, Error>(part.to_vec())
        };
        let ticket = part(TICKET_MAX)?;
        let signature = part(SIGNATURE_MAX)?;
        let wrong = Error::Invalid { what: "signed ticket's end", found: rest.len() as u64 };
        match String::from_utf8(signature) {
            Ok(signature) if rest.is_empty() => Ok(Signed { ticket, signature }),
            _ => Err(wrong),
        }
    }
    /// Its bytes.
    ///
    /// # Errors
    /// If a part is too long.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let parts = [(&self.ticket[..], TICKET_MAX), (self.signature.as_bytes(), SIGNATURE_MAX)];
        for (part, most) in parts {
            let len: u16 = fit(part.len(), most as u64, "signed ticket's part")?;
            bytes.extend(len.to_be_bytes());
            bytes.extend(part);
        }
        Ok(bytes)
    }
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A holder shows a signed ticket to its source.
    Present = 1,
    /// The source shows it to the destination.
    Offer = 2,
    /// Accepted: data may follow.
    Accepted = 3,
    /// The transfer is over; body: why.
    Refused = 4,
    /// The next bytes, or a JPEG; none: the source is still there.
    Data = 5,
    /// There are no more; body: bytes in all.
    End = 6,
    /// Bytes so far.
    Progress = 7,
    /// All bytes are in place, and durable on a disk; body: how many.
    Done = 8,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        Kind::Present,
        Kind::Offer,
        Kind::Accepted,
        Kind::Refused,
        Kind::Data,
        Kind::End,
        Kind::Progress,
        Kind::Done,
    ];
}

/// A message's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it says.
    pub kind: Kind,
    /// Bytes of its body.
    pub length: u32,
}

impl Head {
    /// # Errors
    /// If it is not a message, or its body cannot have this length.
    pub fn parse(bytes: [u8; HEAD_LEN]) -> Result<Head, Error> {
        let [number, a, b, c, d] = bytes;
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == number);
        let kind =
            kind.ok_or(Error::Invalid { what: "message of a transfer", found: number.into() })?;
        let head = Head { kind, length: u32::from_be_bytes([a, b, c, d]) };
        let length = head.length as usize;
        let fits = match kind {
            Kind::Data => length <= BODY_MAX,
            Kind::End | Kind::Progress | Kind::Done => length == 8,
            Kind::Accepted => length == 0,
            Kind::Present | Kind::Offer | Kind::Refused => length <= WORDS_MAX,
        };
        let wrong = Error::Invalid { what: "length of a transfer's message", found: length as u64 };
        if fits { Ok(head) } else { Err(wrong) }
    }
    /// Its bytes.
    pub fn emit(self) -> [u8; HEAD_LEN] {
        let [a, b, c, d] = self.length.to_be_bytes();
        [self.kind as u8, a, b, c, d]
    }
}

/// A camera's frame as a disk keeps it: whole blocks.
pub fn record(clock: u64, jpeg: &[u8]) -> Vec<u8> {
    let mut bytes = RECORD_MAGIC.to_vec();
    bytes.extend((jpeg.len() as u32).to_be_bytes());
    bytes.extend(clock.to_be_bytes());
    bytes.extend(jpeg);
    bytes.resize(bytes.len().next_multiple_of(RECORD_UNIT), 0);
    bytes
}

/// The frame at the beginning of these bytes of a disk: its clock, its JPEG, and what follows; `None` if there is none.
pub fn parse_record(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let head = bytes.first_chunk::<RECORD_LEN>()?;
    let length = u32::from_be_bytes(std::array::from_fn(|at| head[4 + at])) as usize;
    let clock = u64::from_be_bytes(std::array::from_fn(|at| head[8 + at]));
    let whole = RECORD_LEN.checked_add(length)?.checked_next_multiple_of(RECORD_UNIT)?;
    let (own, rest) = bytes.split_at_checked(whole)?;
    let good = head[..4] == RECORD_MAGIC && length > 0;
    good.then(|| (clock, &own[RECORD_LEN..RECORD_LEN + length], rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tickets() -> impl Strategy<Value = Ticket> {
        let range = || (0..u64::MAX / 2, 1..u64::MAX / 2);
        let area = (any::<u16>(), any::<u16>(), 1..u16::MAX, 1..u16::MAX);
        let ends = (range(), range(), area, 1..u32::MAX, 0..4u8, 1..1000u64);
        let rest = (any::<[u8; 16]>(), any::<u64>(), RATE_MIN.., 0..=INTERVAL_MAX);
        let addresses = ("[!-~]{0,255}", "[!-~]{0,255}");
        (ends, rest, any::<[u8; 32]>(), addresses).prop_map(|(ends, rest, key, addresses)| {
            let ((offset, length), (place, room), (x, y, w, h), count, kind, frames) = ends;
            let (id, expires, rate, interval) = rest;
            let frame = u64::from(w) * u64::from(h) * PIXEL_LEN;
            let area = Area { x, y, w, h };
            let (from, to) = match kind {
                0 => (From::Blocks { offset, length }, To::Blocks { offset: place, length }),
                1 => (From::Blocks { offset, length: frame * frames }, To::Area(area)),
                2 => (
                    From::Frames { count, width: w, height: h },
                    To::Blocks { offset: place, length: room },
                ),
                _ => (From::Frames { count, width: w, height: h }, To::Area(area)),
            };
            let destination = key.map(|byte| !byte);
            let (source_address, destination_address) = addresses;
            Ticket {
                id,
                expires,
                rate,
                interval,
                source: key,
                destination,
                source_address,
                destination_address,
                from,
                to,
            }
        })
    }

    proptest! {
        #[test]
        fn tickets_come_back_and_a_changed_byte_is_seen(ticket in tickets(), at: usize, bit in 0..8u8) {
            let bytes = ticket.emit()?;
            prop_assert!(bytes.len() <= TICKET_MAX);
            prop_assert_eq!(Ticket::parse(&bytes)?, ticket.clone());
            prop_assert!(Ticket::parse(&bytes[..bytes.len() - 1]).is_err());
            prop_assert!(Ticket::parse(&[&bytes[..], &[0]].concat()).is_err());
            // No byte is ignored: what is signed is what is done.
            let mut changed = bytes.clone();
            changed[at % bytes.len()] ^= 1 << bit;
            prop_assert!(Ticket::parse(&changed) != Ok(ticket.clone()));
            let signed = Signed { ticket: bytes, signature: "signature".to_owned() };
            prop_assert_eq!(Signed::parse(&signed.emit()?)?, signed);
        }
        #[test]
        fn records_come_back(clock: u64, jpeg in proptest::collection::vec(any::<u8>(), 1..9000)) {
            let bytes = record(clock, &jpeg);
            prop_assert!(bytes.len().is_multiple_of(RECORD_UNIT));
            let two = [&bytes[..], &record(1, b"next")].concat();
            let (found, own, rest) = parse_record(&two).expect("a record");
            prop_assert_eq!((found, own), (clock, &jpeg[..]));
            prop_assert_eq!(parse_record(rest).map(|it| it.1), Some(&b"next"[..]));
            prop_assert!(parse_record(&bytes[..bytes.len() - 1]).is_none());
        }
    }

    #[test]
    fn ends_that_do_not_fit_each_other_are_refused() {
        let good = Ticket {
            id: [7; 16],
            expires: 1,
            rate: 0,
            interval: 0,
            source: [1; 32],
            destination: [2; 32],
            source_address: "a:1".to_owned(),
            destination_address: "b:2".to_owned(),
            from: From::Blocks { offset: 0, length: 4096 },
            to: To::Blocks { offset: 0, length: 4096 },
        };
        let area = To::Area(Area { x: 0, y: 0, w: 10, h: 10 });
        let frames = |width| From::Frames { count: 1, width, height: 10 };
        for wrong in [
            Ticket { to: To::Blocks { offset: 0, length: 8192 }, ..good.clone() },
            Ticket { to: To::Blocks { offset: u64::MAX, length: 4096 }, ..good.clone() },
            Ticket { from: From::Blocks { offset: 0, length: 0 }, ..good.clone() },
            Ticket { to: area, ..good.clone() },
            Ticket { from: frames(11), to: area, ..good.clone() },
            Ticket { to: To::Area(Area { x: 0, y: 0, w: 0, h: 10 }), ..good.clone() },
            Ticket { interval: INTERVAL_MAX + 1, ..good.clone() },
            Ticket { rate: RATE_MIN - 1, ..good.clone() },
            Ticket { destination: [1; 32], ..good.clone() },
        ] {
            assert!(wrong.emit().is_err(), "{wrong:?}");
        }
        let film = From::Blocks { offset: 0, length: 800 };
        let film = Ticket { from: film, to: area, ..good.clone() };
        assert_eq!(film.cargo(), Ok(Cargo::Pixels { frame: 400, count: 2 }));
        let camera = Ticket { from: frames(10), to: area, ..good };
        assert_eq!(camera.cargo(), Ok(Cargo::Pictures { count: 1 }));
    }

    #[test]
    fn messages_have_the_lengths_of_their_kinds() {
        for kind in Kind::ALL {
            for length in [0, 8, WORDS_MAX as u32, BODY_MAX as u32, u32::MAX] {
                let bytes = Head { kind, length }.emit();
                if let Ok(head) = Head::parse(bytes) {
                    assert_eq!((head, head.emit()), (Head { kind, length }, bytes));
                    assert!(length as usize <= BODY_MAX);
                }
            }
        }
        assert!(Head::parse([9, 0, 0, 0, 0]).is_err() && Head::parse([0; 5]).is_err());
        assert!(Head::parse([Kind::Data as u8, 0, 0x80, 0, 1]).is_err(), "longer than a frame");
    }
}
