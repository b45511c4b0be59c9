//! Reassembly of AAL5 (and the Vidboard's layer) over many interleaved circuits.
//!
//! ```text
//!                 cell                        last cell, all checks pass
//! idle -----------------------> partial ------------------------------> idle, Event::Pdu
//!   ^                              | a check fails, or `timeout` passes  -> idle, Event::Lost
//!   |        last cell             | too long, or no memory
//!   '------- discarding <----------'
//! ```
//!
//! | Option           | Unit  | Default | Meaning                                              |
//! |------------------|-------|---------|------------------------------------------------------|
//! | `timeout`        | time  | 1 s     | from a PDU's first cell until it is dropped (ours)   |
//! | `memory`         | bytes | 64 MiB  | bound of all buffers together (ours)                 |
//! | `circuits_max`   | -     | 65,536  | circuits open at once                                |
//!
//! Every received cell is delivered within a PDU, held, or counted as lost with its reason: `received = delivered
//! + held + sum of lost`. A PDU of which no cell arrived is neither detected nor counted. Memory never exceeds
//! [`Reassembler::memory_bound`], which is less than 96 MiB with the defaults; if a buffer would exceed it, the
//! PDU is lost with [`Reason::Memory`].
//!
//! Source: ITU-T I.363.5 (08/96) §9.2.2 and annex. Deviation: a PDU that is too long is discarded up to its last
//! cell and counted once, so that the rest is not taken for another PDU.
//!
//! ```
//! use lastmeter_base::Time;
//! use lastmeter_wire::aal::{aal5::Segmenter, reassembly::*};
//! use lastmeter_wire::atm::{Circuit, Header, Interface};
//!
//! let circuit = Circuit { vpi: 0, vci: 100 };
//! let mut cells = Vec::new();
//! let segmenter = Segmenter::new(&Header::data(circuit), Interface::Uni)?;
//! segmenter.segment(b"over two cells, as the trailer needs eight bytes", 0, &mut cells)?;
//!
//! let mut reassembler = Reassembler::new(Options::default_at(Interface::Uni));
//! reassembler.open(circuit, CircuitOptions::AAL5)?;
//! assert!(matches!(reassembler.receive(Time::START, &cells[0]), Event::Held));
//! let Event::Pdu(pdu) = reassembler.receive(Time::START, &cells[1]) else { panic!("complete") };
//! assert_eq!(pdu.payload.len(), 48);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

mod counts;
mod table;

pub use counts::{Counts, Lost, Reason};

use super::aal5::{Fault, PAYLOAD_LEN_MAX, TRAILER_LEN, pdu_len, take_apart};
use super::vidboard;
use crate::atm::{Cell, Circuit, Header, Interface, PAYLOAD_LEN, PayloadType, hec};
use crate::crc::{CRC32_RESIDUE, crc32};
use crate::error::{Error, fit};
use lastmeter_base::{Bytes, Duration, Time};
use table::CircuitTable;

/// The first buffer of a PDU, in bytes: five cells, since most packets are short.
const BUFFER_LEN_FIRST: usize = 5 * PAYLOAD_LEN;
/// Cells of one circuit that are processed together.
const RUN_BLOCK: usize = 16;
/// End of the list of partial PDUs.
const NONE: u32 = u32::MAX;
/// Most circuits that a link can distinguish: 28 bits at a network interface.
pub const CIRCUITS_MAX: usize = 1 << 28;

/// Parameters of a reassembler.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The layout of cell headers.
    pub interface: Interface,
    /// Timeout of a PDU, from its first cell.
    pub timeout: Duration,
    /// Bound of all buffers together.
    pub memory: Bytes,
    /// Most circuits open at once.
    pub circuits_max: usize,
}

impl Options {
    /// The defaults of the table above.
    pub fn default_at(interface: Interface) -> Options {
        Options {
            interface,
            timeout: Duration::from_secs(1),
            memory: Bytes::from_mib(64),
            circuits_max: 65_536,
        }
    }
}

/// What protects the PDUs of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// AAL5's CRC-32.
    Crc32,
    /// The Vidboard's checksum.
    Sum32,
}

/// Parameters of one circuit.
#[derive(Clone, Copy, Debug)]
pub struct CircuitOptions {
    /// The longest payload accepted, in bytes.
    pub payload_max: usize,
    /// What protects its PDUs.
    pub check: Check,
    /// Whether PDUs with a wrong CRC or length are delivered, too, which Jetstream's channels may request. They
    /// are still counted as lost.
    pub deliver_faulty: bool,
}

impl CircuitOptions {
    /// AAL5 of any length, intact PDUs only.
    pub const AAL5: CircuitOptions =
        CircuitOptions { payload_max: PAYLOAD_LEN_MAX, check: Check::Crc32, deliver_faulty: false };
    /// The Vidboard's layer, intact PDUs only.
    pub const VIDBOARD: CircuitOptions = CircuitOptions { check: Check::Sum32, ..Self::AAL5 };
}

/// The fate of a cell.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// It is part of an incomplete PDU.
    Held,
    /// It completed a PDU.
    Pdu(Pdu<'a>),
    /// It was lost, and its PDU with it.
    Lost(Reason),
}

/// A reassembled PDU.
#[derive(Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// Its circuit.
    pub circuit: Circuit,
    /// The packet; if the length is wrong, everything before the trailer.
    pub payload: &'a [u8],
    /// User-to-user byte.
    pub user: u8,
    /// Whether the last cell experienced congestion (I.363.5 §9.2.1.1).
    pub congested: bool,
    /// Whether any cell had low loss priority (CLP set).
    pub clp: bool,
    /// What is wrong with it, on circuits that accept damaged PDUs.
    pub fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Partial,
    Discarding(Reason),
}

#[derive(Debug)]
struct Slot {
    circuit: Circuit,
    options: CircuitOptions,
    state: State,
    clp: bool,
    /// Neighbours in the list of partial PDUs, by the time of the first cell.
    older: u32,
    newer: u32,
    started: Time,
    buffer: Vec<u8>,
    /// How far `buffer` may fill without further checks: zero unless partial.
    room: usize,
}

/// The reassembler. Cells must be given in order of arrival.
#[derive(Debug)]
pub struct Reassembler {
    options: Options,
    /// Only for lookups; never iterated.
    table: CircuitTable,
    slots: Vec<Slot>,
    /// Slots of closed circuits.
    vacant: Vec<u32>,
    oldest: u32,
    newest: u32,
    /// Buffers for reuse.
    free: Vec<Vec<u8>>,
    /// The last PDU delivered, lent to the caller until the next call.
    loaned: Vec<u8>,
    /// Capacity of all buffers.
    buffered: usize,
    /// The last header that was valid and does not end a PDU, and its circuit: a burst of cells of one circuit
    /// needs no lookup per cell.
    recent: ([u8; 5], u32),
    counts: Counts,
}

impl Reassembler {
    /// A reassembler without open circuits.
    pub fn new(options: Options) -> Reassembler {
        Reassembler {
            options,
            table: CircuitTable::default(),
            slots: Vec::new(),
            vacant: Vec::new(),
            oldest: NONE,
            newest: NONE,
            free: Vec::new(),
            loaned: Vec::new(),
            buffered: 0,
            recent: ([0; 5], NONE),
            counts: Counts::default(),
        }
    }

    /// Opens a circuit.
    ///
    /// # Errors
    /// If it is already open, too many circuits are, or its longest payload is longer than AAL5's.
    pub fn open(&mut self, circuit: Circuit, options: CircuitOptions) -> Result<(), Error> {
        let _: u32 = fit(options.payload_max, PAYLOAD_LEN_MAX as u64, "longest payload")?;
        let limit = self.options.circuits_max.min(CIRCUITS_MAX) as u64;
        let _: u32 = fit(self.table.len() + 1, limit, "open circuits")?;
        if self.table.contains_key(&key(circuit)) {
            return Err(Error::Invalid {
                what: "circuit, open already",
                found: circuit.vci.into(),
            });
        }
        let (state, buffer) = (State::Idle, Vec::new());
        let (older, newer, started, room) = (NONE, NONE, Time::START, 0);
        let slot =
            Slot { circuit, options, state, clp: false, older, newer, started, buffer, room };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.table.insert(key(circuit), index);
        Ok(())
    }

    /// Closes a circuit; cells of a partial PDU are lost. Returns `false` if it was not open.
    pub fn close(&mut self, circuit: Circuit) -> bool {
        let Some(index) = self.table.remove(&key(circuit)) else { return false };
        if self.slots[index as usize].state == State::Partial {
            self.lose(index, Reason::Closed);
        }
        self.recent.1 = NONE;
        self.vacant.push(index);
        true
    }

    /// Number of open circuits.
    pub fn circuits(&self) -> usize {
        self.table.len()
    }
    /// The fates of all cells so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
    /// Bytes in use: buffers, circuits and tables.
    pub fn memory(&self) -> Bytes {
        let table = self.table.capacity() * 16;
        let slots = self.slots.capacity() * size_of::<Slot>() + self.vacant.capacity() * 4;
        Bytes((self.buffered + table + slots + self.free.capacity() * size_of::<Vec<u8>>()) as u64)
    }
    /// The bound of [`Reassembler::memory`]: the buffers' bound and, for each circuit that may be open, twice its
    /// state (since tables grow by doubling) and its share of the tables.
    pub fn memory_bound(&self) -> Bytes {
        let each = 2 * (size_of::<Slot>() + 4 + 2 * 16);
        let buffers = self.options.memory.0 as usize / BUFFER_LEN_FIRST.min(PAYLOAD_LEN);
        let lists = 2 * size_of::<Vec<u8>>() * buffers.min(self.options.circuits_max + 1);
        Bytes(self.options.memory.0 + (each * (self.options.circuits_max + 8) + lists) as u64)
    }

    /// Receives a cell, including its header error control.
    #[inline]
    pub fn receive(&mut self, now: Time, cell: &Cell) -> Event<'_> {
        let head = cell.checked_header();
        if head == self.recent.0 && self.recent.1 != NONE {
            self.counts.received += 1;
            return self.take(now, self.recent.1, cell.payload(), None);
        }
        if hec::syndrome(head) != 0 {
            self.counts.received += 1;
            return self.refuse(Reason::Header);
        }
        self.receive_unchecked(now, cell.header_bytes(), cell.payload())
    }

    /// Receives cells from a line, and delivers every PDU that they complete. Equivalent to
    /// [`Reassembler::receive`] for each cell, but faster if cells of one circuit arrive in a row; losses are in
    /// [`Reassembler::counts`].
    pub fn receive_burst(
        &mut self,
        now: Time,
        mut cells: &[Cell],
        mut deliver: impl FnMut(Pdu<'_>),
    ) {
        while let Some((cell, rest)) = cells.split_first() {
            if let Event::Pdu(pdu) = self.receive(now, cell) {
                deliver(pdu);
            }
            cells = &rest[self.take_run(rest)..];
        }
    }

    /// Takes the cells that continue the PDU of the last one and fit into its buffer; returns how many.
    #[inline]
    fn take_run(&mut self, cells: &[Cell]) -> usize {
        let (head, index) = self.recent;
        let Some(slot) = self.slots.get_mut(index as usize) else { return 0 };
        let fit = slot.room.saturating_sub(slot.buffer.len()) / PAYLOAD_LEN;
        let mut run = 0;
        // Headers and payloads alternately: each block is fetched once.
        for block in cells[..fit.min(cells.len())].chunks(RUN_BLOCK) {
            let alike = block.iter().take_while(|cell| cell.checked_header() == head).count();
            slot.buffer.extend(block[..alike].iter().flat_map(|cell| *cell.payload()));
            run += alike;
            if alike < block.len() {
                break;
            }
        }
        self.counts.received += run as u64;
        self.counts.held += run as u64;
        run
    }

    /// Receives a cell whose header needs no check, as within VuNet.
    pub fn receive_unchecked(
        &mut self,
        now: Time,
        header: [u8; 4],
        payload: &[u8; PAYLOAD_LEN],
    ) -> Event<'_> {
        self.counts.received += 1;
        let fields = Header::parse(header, self.options.interface);
        let PayloadType::User { congested, last } = fields.payload_type else {
            return self.refuse(Reason::NotUserData);
        };
        let Some(&index) = self.table.get(&key(fields.circuit)) else {
            return self.refuse(Reason::UnknownCircuit);
        };
        self.slots[index as usize].clp |= fields.clp;
        // A header with low loss priority is not remembered, since each such cell must be noted.
        if !last && !fields.clp {
            let [a, b, c, d] = header;
            self.recent = ([a, b, c, d, hec::hec(header)], index);
        }
        self.take(now, index, payload, last.then_some(congested))
    }

    /// Drops every PDU that has timed out; returns how many.
    pub fn expire(&mut self, now: Time) -> u64 {
        let mut lost = 0;
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.lose(self.oldest, Reason::Timeout);
            lost += 1;
        }
        lost
    }
    /// When [`Reassembler::expire`] has to be called.
    pub fn deadline(&self) -> Option<Time> {
        let slot = self.slots.get(self.oldest as usize)?;
        Some(slot.started + self.options.timeout)
    }

    /// Adds a cell to its PDU; `ends` is the last cell's congestion bit.
    #[inline(always)]
    fn take(
        &mut self,
        now: Time,
        index: u32,
        payload: &[u8; PAYLOAD_LEN],
        ends: Option<bool>,
    ) -> Event<'_> {
        let slot = &mut self.slots[index as usize];
        let fits = slot.buffer.len() + PAYLOAD_LEN <= slot.room;
        if !fits && let Err(reason) = self.make_room(now, index, ends.is_some()) {
            return Event::Lost(reason);
        }
        self.counts.held += 1;
        let slot = &mut self.slots[index as usize];
        slot.buffer.extend_from_slice(payload);
        match ends {
            Some(congested) => self.finish(index, congested),
            None => Event::Held,
        }
    }

    /// Prepares a circuit for one more cell, or counts the cell as lost.
    fn make_room(&mut self, now: Time, index: u32, last: bool) -> Result<(), Reason> {
        let slot = &mut self.slots[index as usize];
        let reason = match slot.state {
            State::Discarding(reason) => reason,
            State::Idle => {
                slot.state = State::Partial;
                slot.started = now;
                self.link(index);
                if let Some(buffer) = self.free.pop() {
                    self.slots[index as usize].buffer = buffer;
                }
                return self.make_room(now, index, last);
            }
            State::Partial => match self.grow(index) {
                Ok(()) => return Ok(()),
                Err(reason) => {
                    self.lose(index, reason);
                    self.slots[index as usize].state = State::Discarding(reason);
                    reason
                }
            },
        };
        self.counts.lost[reason as usize].cells += 1;
        if last {
            let slot = &mut self.slots[index as usize];
            (slot.state, slot.clp) = (State::Idle, false);
        }
        Err(reason)
    }

    /// Ensures that a partial PDU's buffer has room for one more cell.
    fn grow(&mut self, index: u32) -> Result<(), Reason> {
        let slot = &self.slots[index as usize];
        let (len, capacity) = (slot.buffer.len(), slot.buffer.capacity());
        let longest = pdu_len(slot.options.payload_max);
        if len + PAYLOAD_LEN > longest {
            return Err(Reason::TooLong);
        }
        if capacity - len >= PAYLOAD_LEN {
            // A reused buffer may be longer than this circuit's PDUs.
            self.slots[index as usize].room = capacity.min(longest);
            return Ok(());
        }
        let wanted = (2 * capacity).clamp(BUFFER_LEN_FIRST.min(longest), longest);
        let limit = self.options.memory.0 as usize;
        while self.buffered - capacity + wanted > limit {
            let Some(spare) = self.free.pop() else { return Err(Reason::Memory) };
            self.buffered -= spare.capacity();
        }
        let slot = &mut self.slots[index as usize];
        let grown = slot.buffer.try_reserve_exact(wanted - len);
        slot.room = slot.buffer.capacity().min(longest);
        self.buffered += slot.buffer.capacity() - capacity;
        grown.map_err(|_| Reason::Memory)
    }

    /// The last cell has arrived: checks the PDU.
    #[inline(never)]
    fn finish(&mut self, index: u32, congested: bool) -> Event<'_> {
        self.unlink(index);
        let slot = &mut self.slots[index as usize];
        let (circuit, clp, options) = (slot.circuit, slot.clp, slot.options);
        (slot.state, slot.clp, slot.room) = (State::Idle, false, 0);
        let spent = std::mem::replace(&mut self.loaned, std::mem::take(&mut slot.buffer));
        self.recycle(spent);

        let cells = (self.loaned.len() / PAYLOAD_LEN) as u64;
        self.counts.held -= cells;
        let intact = match options.check {
            Check::Crc32 => crc32(&self.loaned) == CRC32_RESIDUE,
            Check::Sum32 => vidboard::is_intact(&self.loaned),
        };
        let parsed = take_apart(&self.loaned);
        let fault = match (intact, &parsed) {
            // A wrong length is reported even if the CRC is wrong, too: that is how the loss of a cell appears.
            (_, Ok(pdu)) if pdu.payload.len() > options.payload_max => Some(Fault::Length),
            (_, Err(Fault::Length)) => Some(Fault::Length),
            (false, _) => Some(Fault::Check),
            (true, Err(fault)) => Some(*fault),
            (true, Ok(_)) => None,
        };
        if let Some(fault) = fault {
            let lost = &mut self.counts.lost[Reason::from(fault) as usize];
            (lost.pdus, lost.cells) = (lost.pdus + 1, lost.cells + cells);
            if !options.deliver_faulty {
                return Event::Lost(fault.into());
            }
        } else {
            self.counts.pdus += 1;
            self.counts.delivered += cells;
        }
        let (payload, user) = match parsed {
            Ok(pdu) => (pdu.payload, pdu.user),
            Err(_) => (&self.loaned[..self.loaned.len() - TRAILER_LEN], 0),
        };
        Event::Pdu(Pdu { circuit, payload, user, congested, clp, fault })
    }

    /// Drops a partial PDU.
    fn lose(&mut self, index: u32, reason: Reason) {
        self.unlink(index);
        let slot = &mut self.slots[index as usize];
        (slot.state, slot.clp, slot.room) = (State::Idle, false, 0);
        let buffer = std::mem::take(&mut slot.buffer);
        let cells = (buffer.len() / PAYLOAD_LEN) as u64;
        self.counts.held -= cells;
        let lost = &mut self.counts.lost[reason as usize];
        (lost.pdus, lost.cells) = (lost.pdus + 1, lost.cells + cells);
        self.recycle(buffer);
    }

    fn refuse(&mut self, reason: Reason) -> Event<'_> {
        self.counts.lost[reason as usize].cells += 1;
        Event::Lost(reason)
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 {
            buffer.clear();
            self.free.push(buffer);
        }
    }

    fn link(&mut self, index: u32) {
        let newest = std::mem::replace(&mut self.newest, index);
        let slot = &mut self.slots[index as usize];
        (slot.older, slot.newer) = (newest, NONE);
        match self.slots.get_mut(newest as usize) {
            Some(slot) => slot.newer = index,
            None => self.oldest = index,
        }
    }
    fn unlink(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        let (older, newer) = (slot.older, slot.newer);
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
    }
}

fn key(circuit: Circuit) -> u32 {
    u32::from(circuit.vpi) << 16 | u32::from(circuit.vci)
}
