//! The sender of a striped stream.

use super::{Balance, Sync, Unit};

/// One unit of a stream: a cell, or whatever is sent as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Bytes that count towards a quantum.
    pub len: u64,
    /// Whether it is the last of its PDU.
    pub last: bool,
    /// Its flow.
    pub flow: u32,
}

/// What is added to a cell on its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Nothing.
    Bare,
    /// Its number in the stream, modulo 256.
    Number(u8),
    /// Its position in its PDU.
    Part {
        /// The number of the PDU, modulo 256.
        pdu: u8,
        /// Whether its stripe carries no more of this PDU.
        ends_stripe: bool,
        /// On the PDU's last cell, the number of cells: the length in the trailer.
        cells: Option<u32>,
    },
}

/// What is sent on a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A cell.
    Cell(Tag),
    /// A marker: the round that begins after it on its stripe, and how much of the stripe's turn is left.
    Marker {
        /// The round of the next cell of this stripe.
        round: u64,
    },
}

/// A sender.
///
/// ```
/// use lastmeter_lan::stripe::split::{Cell, Sent, Splitter, Tag};
/// use lastmeter_lan::stripe::{Balance, Sync, Unit};
/// let mut splitter = Splitter::new(4, Unit::Cell, Balance::RoundRobin, Sync::Numbers);
/// let cell = Cell { len: 53, last: false, flow: 0 };
/// let sent: Vec<_> = (0..5).flat_map(|_| splitter.send(cell)).collect();
/// assert_eq!(sent[4], (0, Sent::Cell(Tag::Number(4))));
/// ```
#[derive(Clone, Debug)]
pub struct Splitter {
    stripes: usize,
    unit: Unit,
    balance: Balance,
    sync: Sync,
    /// Cells or PDUs sent so far.
    count: u64,
    turn: Turn,
    /// Cells of the current PDU, with [`Sync::Pdu`].
    pdu: Vec<Cell>,
}

/// Whose turn it is; sender and receiver count in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) stripe: usize,
    pub(super) round: u64,
    /// Bytes used of the turn.
    used: u64,
}

impl Turn {
    pub(super) const FIRST: Turn = Turn { stripe: 0, round: 0, used: 0 };

    /// Counts a cell; `ends` says whether it ends its unit.
    pub(super) fn pass(&mut self, stripes: usize, balance: Balance, len: u64, ends: bool) {
        self.used += len;
        let over = match balance {
            Balance::RoundRobin => true,
            Balance::Surplus { quantum } => self.used >= quantum,
        };
        if ends && over {
            self.next(stripes);
        }
    }
    pub(super) fn next(&mut self, stripes: usize) {
        self.used = 0;
        self.stripe += 1;
        if self.stripe == stripes {
            (self.stripe, self.round) = (0, self.round + 1);
        }
    }
}

impl Splitter {
    /// A sender over this many stripes.
    pub fn new(stripes: usize, unit: Unit, balance: Balance, sync: Sync) -> Splitter {
        let stripes = stripes.max(1);
        Splitter { stripes, unit, balance, sync, count: 0, turn: Turn::FIRST, pdu: Vec::new() }
    }

    /// Takes a cell; returns what is sent on which stripe. With [`Sync::Pdu`] that is nothing until the PDU is
    /// complete, and then all of it.
    pub fn send(&mut self, cell: Cell) -> Vec<(usize, Sent)> {
        if self.sync == Sync::Pdu {
            self.pdu.push(cell);
            return if cell.last { self.whole() } else { Vec::new() };
        }
        let mut out = Vec::new();
        let stripe = match self.unit {
            Unit::Flow => cell.flow as usize % self.stripes,
            Unit::Cell | Unit::Pdu => self.turn.stripe,
        };
        let at_start = self.turn == Turn { stripe: 0, round: self.turn.round, used: 0 };
        if let Sync::Markers { every } = self.sync
            && at_start
            && self.turn.round.is_multiple_of(every.max(1))
        {
            let round = self.turn.round;
            out.extend((0..self.stripes).map(|stripe| (stripe, Sent::Marker { round })));
        }
        let tag = match self.sync {
            Sync::Numbers => Tag::Number(self.count as u8),
            _ => Tag::Bare,
        };
        out.push((stripe, Sent::Cell(tag)));
        self.count += 1;
        let ends = self.unit == Unit::Cell || cell.last;
        self.turn.pass(self.stripes, self.balance, cell.len, ends);
        out
    }

    fn whole(&mut self) -> Vec<(usize, Sent)> {
        let cells = std::mem::take(&mut self.pdu).len();
        let pdu = self.count as u8;
        self.count += 1;
        let part = |place: usize| {
            let ends_stripe = place + self.stripes >= cells;
            let cells = (place + 1 == cells).then_some(cells as u32);
            (place % self.stripes, Sent::Cell(Tag::Part { pdu, ends_stripe, cells }))
        };
        (0..cells).map(part).collect()
    }
}
