//! AAL3/4: packets multiplexed within a circuit, each cell numbered and checked.
//!
//! ```text
//! cell    type 2 | sequence 4 | MID 10 | data 44 | length 6 | CRC-10 10
//! packet  CPI 1 | begin tag 1 | buffer size 2 | payload | pad to 4 | 0 | end tag 1 | length 2
//! ```
//!
//! The machine reassembles packets by circuit and multiplexing identifier (MID), holds at most `partials_max` of
//! them, and counts every loss with its reason.
//!
//! Source: ITU-T I.363.3 (08/96) §9.2; length 63 in a cell aborts the packet.
//!
//! ```
//! use lastmeter_base::Time;
//! use lastmeter_wire::aal::aal34::{Event, Options, Reassembler, segment};
//! use lastmeter_wire::atm::Circuit;
//! let circuit = Circuit { vpi: 0, vci: 9 };
//! let mut reassembler = Reassembler::new(Options::DEFAULT);
//! for (number, cell) in segment(&[1; 100], 5, 0, 0)?.iter().enumerate() {
//!     match reassembler.receive(Time::START, circuit, cell) {
//!         Event::Packet(packet) => assert_eq!((number, packet), (2, vec![1; 100])),
//!         event => assert_eq!(event, Event::Held),
//!     }
//! }
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::atm::{Circuit, PAYLOAD_LEN};
use crate::crc::{crc10, seal10};
use crate::error::{Error, fit};
use lastmeter_base::{Bytes, Duration, Time};
use std::collections::BTreeMap;

/// Bytes of a packet per cell.
pub const DATA_LEN: usize = 44;
/// The longest payload, in bytes.
pub const PAYLOAD_LEN_MAX: usize = 65_535;
/// The largest multiplexing identifier.
pub const MID_MAX: u16 = 0x3ff;
/// A length that aborts the packet.
const LENGTH_ABORT: u8 = 63;
const HEADER_LEN: usize = 4;
const TRAILER_LEN: usize = 4;
/// The longest packet, header, padding and trailer included.
const PACKET_LEN_MAX: usize = HEADER_LEN + PAYLOAD_LEN_MAX.next_multiple_of(4) + TRAILER_LEN;

/// Which part of a packet a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A middle part.
    Continuation,
    /// The end.
    End,
    /// The beginning.
    Beginning,
    /// All of it.
    Single,
}

/// The fields of a cell's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sar {
    /// Which part it is.
    pub segment: Segment,
    /// Its sequence number, modulo 16.
    pub sequence: u8,
    /// The MID of its packet.
    pub mid: u16,
    /// How many of its 44 bytes are used, or 63 to abort.
    pub length: u8,
    /// The bytes.
    pub data: [u8; DATA_LEN],
}

impl Sar {
    /// # Errors
    /// If the CRC is wrong.
    pub fn parse(payload: &[u8; PAYLOAD_LEN]) -> Result<Sar, Error> {
        if crc10(payload) != 0 {
            return Err(Error::Corrupt { what: "AAL3/4 cell" });
        }
        let [h0, h1, data @ .., t0, _] = payload;
        let head = u16::from_be_bytes([*h0, *h1]);
        let segment = match head >> 14 {
            0 => Segment::Continuation,
            1 => Segment::End,
            2 => Segment::Beginning,
            _ => Segment::Single,
        };
        let sequence = (head >> 10) as u8 & 0xf;
        Ok(Sar { segment, sequence, mid: head & MID_MAX, length: t0 >> 2, data: *data })
    }
    /// The payload with its CRC; bits beyond a field's width are truncated.
    pub fn emit(&self) -> [u8; PAYLOAD_LEN] {
        let kind = match self.segment {
            Segment::Continuation => 0,
            Segment::End => 1,
            Segment::Beginning => 2,
            Segment::Single => 3,
        };
        let head = kind << 14 | u16::from(self.sequence & 0xf) << 10 | self.mid & MID_MAX;
        let mut payload = [0; PAYLOAD_LEN];
        payload[..2].copy_from_slice(&head.to_be_bytes());
        payload[2..2 + DATA_LEN].copy_from_slice(&self.data);
        payload[46] = self.length << 2;
        seal10(&mut payload);
        payload
    }
}

/// Segments a packet into payloads of cells. `tag` must change from packet to packet; `sequence` is the number of
/// the first cell.
///
/// # Errors
/// If the payload is longer than 65,535 bytes or `mid` than ten bits.
pub fn segment(
    payload: &[u8],
    mid: u16,
    tag: u8,
    sequence: u8,
) -> Result<Vec<[u8; PAYLOAD_LEN]>, Error> {
    let length: u16 = fit(payload.len(), PAYLOAD_LEN_MAX as u64, "AAL3/4 payload length")?;
    let mid = fit(mid.into(), MID_MAX.into(), "AAL3/4 MID")?;
    // In message mode, the buffer size to reserve is the length itself.
    let [l0, l1] = length.to_be_bytes();
    let mut packet = [&[0, tag, l0, l1], payload].concat();
    packet.resize(HEADER_LEN + payload.len().next_multiple_of(4), 0);
    packet.extend([0, tag, l0, l1]);
    let count = packet.len().div_ceil(DATA_LEN);
    let cells = packet.chunks(DATA_LEN).enumerate().map(|(number, chunk)| {
        let mut data = [0; DATA_LEN];
        data[..chunk.len()].copy_from_slice(chunk);
        let segment = match (number == 0, number + 1 == count) {
            (true, true) => Segment::Single,
            (true, false) => Segment::Beginning,
            (false, true) => Segment::End,
            (false, false) => Segment::Continuation,
        };
        let sequence = sequence.wrapping_add(number as u8) & 0xf;
        Sar { segment, sequence, mid, length: chunk.len() as u8, data }.emit()
    });
    Ok(cells.collect())
}

/// Parameters of a reassembler.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The longest payload accepted, in bytes.
    pub payload_max: usize,
    /// Most packets in progress at once; one more is lost.
    pub partials_max: usize,
    /// Timeout of a packet, from its first cell.
    pub timeout: Duration,
}

impl Options {
    /// Packets of any length, 256 at once, 1 s (our choice).
    pub const DEFAULT: Options = Options {
        payload_max: PAYLOAD_LEN_MAX,
        partials_max: 256,
        timeout: Duration::from_ps(1_000_000_000_000),
    };
}

/// Why a packet or cell was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A cell's CRC is wrong.
    Check,
    /// A cell is missing, or arrived twice.
    Sequence,
    /// A cell continues a packet that did not begin, or a packet began before another one ended.
    Unexpected,
    /// A length in a cell or packet is wrong.
    Length,
    /// Begin and end tag differ.
    Tag,
    /// The sender aborted the packet.
    Abort,
    /// Longer than permitted.
    TooLong,
    /// Too many packets in progress.
    Memory,
    /// It timed out.
    Timeout,
}

/// The fate of a cell.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// It is part of a packet that is not complete.
    Held,
    /// It completed this packet.
    Packet(Vec<u8>),
    /// It was lost; a packet in progress is lost with it.
    Lost(Reason),
}

#[derive(Debug)]
struct Partial {
    data: Vec<u8>,
    cells: u64,
    next: u8,
    started: Time,
}

/// The reassembler.
#[derive(Debug)]
pub struct Reassembler {
    options: Options,
    partials: BTreeMap<(Circuit, u16), Partial>,
    /// Cells received.
    pub received: u64,
    /// Cells of delivered packets.
    pub delivered: u64,
    /// Cells lost, by reason.
    pub lost: BTreeMap<Reason, u64>,
}

impl Reassembler {
    /// A reassembler with no packet in progress.
    pub fn new(options: Options) -> Reassembler {
        let (partials, lost) = (BTreeMap::new(), BTreeMap::new());
        Reassembler { options, partials, received: 0, delivered: 0, lost }
    }
    /// Cells of incomplete packets.
    pub fn held(&self) -> u64 {
        self.partials.values().map(|partial| partial.cells).sum()
    }
    /// Bytes in use by incomplete packets.
    pub fn memory(&self) -> Bytes {
        Bytes(self.partials.values().map(|partial| partial.data.capacity() as u64).sum())
    }
    /// The bound of [`Reassembler::memory`]: buffers grow by doubling.
    pub fn memory_bound(&self) -> Bytes {
        Bytes(2 * (self.options.partials_max * (PACKET_LEN_MAX + DATA_LEN)) as u64)
    }

    /// Receives the payload of a cell.
    pub fn receive(&mut self, now: Time, circuit: Circuit, payload: &[u8; PAYLOAD_LEN]) -> Event {
        self.received += 1;
        let Ok(sar) = Sar::parse(payload) else { return self.lose(1, Reason::Check) };
        let key = (circuit, sar.mid);
        let begins = matches!(sar.segment, Segment::Beginning | Segment::Single);
        let partial = match (self.partials.remove(&key), begins) {
            (Some(partial), true) => {
                // The end of the previous packet was lost; this packet is good.
                self.lose(partial.cells, Reason::Unexpected);
                self.begin(now, &sar)
            }
            (None, true) => self.begin(now, &sar),
            (Some(partial), false) if partial.next != sar.sequence => {
                return self.lose(partial.cells + 1, Reason::Sequence);
            }
            (Some(partial), false) => Ok(partial),
            (None, false) => Err(Reason::Unexpected),
        };
        let mut partial = match partial {
            Ok(partial) => partial,
            Err(reason) => return self.lose(1, reason),
        };
        if let Err(reason) = self.append(&mut partial, &sar) {
            return self.lose(partial.cells + 1, reason);
        }
        partial.cells += 1;
        partial.next = (sar.sequence + 1) & 0xf;
        if matches!(sar.segment, Segment::Beginning | Segment::Continuation) {
            self.partials.insert(key, partial);
            return Event::Held;
        }
        match take_apart(&partial.data, self.options.payload_max) {
            Ok(packet) => {
                self.delivered += partial.cells;
                Event::Packet(packet.to_vec())
            }
            Err(reason) => self.lose(partial.cells, reason),
        }
    }

    /// Drops every packet that has timed out.
    pub fn expire(&mut self, now: Time) {
        let timeout = self.options.timeout;
        let due = |partial: &Partial| partial.started + timeout <= now;
        let cells = self.partials.values().filter(|partial| due(partial));
        let cells: u64 = cells.map(|partial| partial.cells).sum();
        self.partials.retain(|_, partial| !due(partial));
        if cells > 0 {
            self.lose(cells, Reason::Timeout);
        }
    }

    fn begin(&self, now: Time, sar: &Sar) -> Result<Partial, Reason> {
        if self.partials.len() >= self.options.partials_max {
            return Err(Reason::Memory);
        }
        Ok(Partial { data: Vec::new(), cells: 0, next: sar.sequence, started: now })
    }

    fn append(&self, partial: &mut Partial, sar: &Sar) -> Result<(), Reason> {
        let length = usize::from(sar.length);
        let right = match sar.segment {
            Segment::Beginning | Segment::Continuation => length == DATA_LEN,
            Segment::End => (4..=DATA_LEN).contains(&length) && length.is_multiple_of(4),
            Segment::Single => (8..=DATA_LEN).contains(&length) && length.is_multiple_of(4),
        };
        match (right, sar.segment, sar.length) {
            (true, ..) => {}
            (_, Segment::End, LENGTH_ABORT) => return Err(Reason::Abort),
            _ => return Err(Reason::Length),
        }
        if partial.data.len() + length > PACKET_LEN_MAX {
            return Err(Reason::TooLong);
        }
        partial.data.extend_from_slice(&sar.data[..length]);
        Ok(())
    }

    fn lose(&mut self, cells: u64, reason: Reason) -> Event {
        *self.lost.entry(reason).or_default() += cells;
        Event::Lost(reason)
    }
}

/// The payload of a complete packet.
fn take_apart(packet: &[u8], payload_max: usize) -> Result<&[u8], Reason> {
    let [indicator, begin, b0, b1, rest @ ..] = packet else { return Err(Reason::Length) };
    let Some((body, &[_, end, l0, l1])) = rest.split_last_chunk::<TRAILER_LEN>() else {
        return Err(Reason::Length);
    };
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    let size = usize::from(u16::from_be_bytes([*b0, *b1]));
    if *begin != end {
        return Err(Reason::Tag);
    }
    // Indicator zero means lengths in bytes, the only unit defined.
    if *indicator != 0 || length.next_multiple_of(4) != body.len() || size < length {
        return Err(Reason::Length);
    }
    if length > payload_max {
        return Err(Reason::TooLong);
    }
    Ok(&body[..length])
}
