//! Cell delineation: finding cells in a bit stream by their header error control.
//!
//! ```text
//! HUNT ---one header fits---> PRESYNC ---DELTA fit in a row---> SYNC
//!   ^------one does not-------'                                   |
//!   ^---------------------ALPHA in a row do not-------------------'
//! ```
//!
//! Bytes in, cells out; `Slide::Bit` finds cells that are not aligned to bytes. In `SYNC`, the receiver of
//! [`super::hec`] corrects and discards; before that, nothing is delivered. On real lines, payloads are scrambled
//! so that they do not look like headers; scrambling belongs to the physical layer and is not done here.
//!
//! Source: ITU-T I.432.1 (02/99) §4.3.3, ALPHA 7 and DELTA 6 for links on SDH.
//!
//! ```
//! use lastmeter_wire::atm::{Cell, delineation::{Delineator, Options}};
//! let mut stream = vec![0xff; 20];
//! (0..20).for_each(|_| stream.extend(Cell::IDLE.0));
//! let mut delineator = Delineator::new(Options::I_432);
//! let mut cells = 0;
//! delineator.receive(&stream, |cell| cells += usize::from(*cell == Cell::IDLE));
//! assert_eq!(cells, 13, "one to find it, six to confirm");
//! ```

use super::hec::{Checked, Receiver, syndrome};
use super::{CELL_LEN, Cell, PAYLOAD_LEN};

/// How a hunt continues when a header does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slide {
    /// By one bit: nothing is known about the line.
    Bit,
    /// By one byte: the line preserves byte boundaries, as SONET does.
    Byte,
}

/// Parameters of a delineator.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// ALPHA: consecutive wrong headers that end synchronisation.
    pub alpha: u32,
    /// DELTA: consecutive correct headers, after the first, that establish it.
    pub delta: u32,
    /// How to hunt.
    pub slide: Slide,
    /// Whether single wrong bits are corrected.
    pub correct: bool,
}

impl Options {
    /// As I.432.1 requires of links on SDH.
    pub const I_432: Options = Options { alpha: 7, delta: 6, slide: Slide::Byte, correct: true };
}

/// State of a delineator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// HUNT: looks for a header at every position.
    Hunt,
    /// PRESYNC: has found `right` headers, one cell apart.
    Presync {
        /// Correct headers after the first.
        right: u32,
    },
    /// SYNC: delivers cells; the last `wrong` headers were wrong.
    Sync {
        /// Consecutive wrong headers.
        wrong: u32,
    },
}

/// The delineator.
#[derive(Debug)]
pub struct Delineator {
    options: Options,
    state: State,
    receiver: Receiver,
    /// The last 40 bits, newest lowest.
    window: u64,
    /// Bits to receive before the window is checked.
    wait: u32,
    /// Bytes of the current cell while synchronised.
    cell: [u8; CELL_LEN],
    have: usize,
    /// Bits received since the last whole byte of the cell.
    spare: u32,
    /// Times that synchronisation was lost.
    pub losses: u64,
}

/// Bits of a header with its error control.
const WINDOW_BITS: u32 = 40;
const HEAD_LEN: usize = CELL_LEN - PAYLOAD_LEN;

impl Delineator {
    /// Starts hunting.
    pub fn new(options: Options) -> Delineator {
        let receiver = Receiver { detect_only: !options.correct, ..Receiver::default() };
        Delineator {
            options,
            state: State::Hunt,
            receiver,
            window: 0,
            wait: WINDOW_BITS,
            cell: [0; CELL_LEN],
            have: 0,
            spare: 0,
            losses: 0,
        }
    }
    /// The state.
    pub fn state(&self) -> State {
        self.state
    }
    /// Counts of error control while synchronised: corrected and discarded.
    pub fn header_errors(&self) -> Receiver {
        self.receiver
    }

    /// Receives bytes from the line and passes every cell found to `deliver`.
    pub fn receive(&mut self, bytes: &[u8], mut deliver: impl FnMut(&Cell)) {
        for &byte in bytes {
            if self.spare == 0 && self.state != State::Hunt {
                self.take_byte(byte, &mut deliver);
            } else {
                (0..8).rev().for_each(|bit| self.take_bit(byte >> bit & 1, &mut deliver));
            }
        }
    }

    fn take_bit(&mut self, bit: u8, deliver: &mut impl FnMut(&Cell)) {
        self.window = (self.window << 1 | u64::from(bit)) & ((1 << WINDOW_BITS) - 1);
        if self.state != State::Hunt {
            self.spare = (self.spare + 1) % 8;
            if self.spare == 0 {
                self.take_byte(self.window as u8, deliver);
            }
            return;
        }
        self.wait = self.wait.saturating_sub(1);
        if self.wait > 0 {
            return;
        }
        let [_, _, _, head @ ..] = self.window.to_be_bytes();
        if syndrome(head) == 0 {
            self.state = State::Presync { right: 0 };
            self.cell[..HEAD_LEN].copy_from_slice(&head);
            (self.have, self.spare) = (HEAD_LEN, 0);
            return;
        }
        self.wait = match self.options.slide {
            Slide::Bit => 1,
            Slide::Byte => 8,
        };
    }

    /// One byte of a cell with a known start.
    fn take_byte(&mut self, byte: u8, deliver: &mut impl FnMut(&Cell)) {
        self.cell[self.have] = byte;
        self.have += 1;
        if self.have == HEAD_LEN {
            self.judge_header();
        }
        if self.have == CELL_LEN {
            self.have = 0;
            // A header that was neither correct nor corrected is still wrong.
            if matches!(self.state, State::Sync { .. }) && self.deliverable() {
                deliver(&Cell(self.cell));
            }
            if let State::Presync { right } = self.state
                && right >= self.options.delta
            {
                self.state = State::Sync { wrong: 0 };
                self.receiver.detecting = false;
            }
        }
    }

    fn deliverable(&self) -> bool {
        let [a, b, c, d, check, ..] = self.cell;
        syndrome([a, b, c, d, check]) == 0
    }

    fn judge_header(&mut self) {
        let [a, b, c, d, check, ..] = self.cell;
        let head = [a, b, c, d, check];
        match self.state {
            State::Hunt => {}
            State::Presync { right } if syndrome(head) == 0 => {
                self.state = State::Presync { right: right + 1 };
            }
            State::Presync { .. } => self.hunt(),
            State::Sync { wrong } => {
                let wrong = if syndrome(head) == 0 { 0 } else { wrong + 1 };
                self.state = State::Sync { wrong };
                if let Checked::Corrected(header) = self.receiver.check(head) {
                    self.cell = Cell::with_header(header, &[0; PAYLOAD_LEN]).0;
                }
                if wrong >= self.options.alpha {
                    self.losses += 1;
                    self.hunt();
                }
            }
        }
    }

    /// Resumes the hunt at the next bit: the header just read may overlap the correct one.
    fn hunt(&mut self) {
        self.state = State::Hunt;
        let [a, b, c, d, check, ..] = self.cell;
        self.window = u64::from_be_bytes([0, 0, 0, a, b, c, d, check]);
        self.have = 0;
        self.spare = 0;
        self.wait = match self.options.slide {
            Slide::Bit => 1,
            Slide::Byte => 8,
        };
    }
}
