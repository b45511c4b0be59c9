//! The VupBoard: a register interface, through which a processor moves every word of a cell.
//!
//! ```text
//! switch --cells--> [receive FIFO, 256 cells] --RECEIVE--> processor
//! switch <--cells-- [transmit FIFO, 256 cells] <--CONTROL-- [latch] <--TRANSMIT-- processor
//!                       STATUS: the state of both            interrupt: a cell waits
//! ```
//!
//! | offset | register | read | write |
//! |---|---|---|---|
//! | 0x00 | `RECEIVE` | the next word of the oldest cell | - |
//! | 0x04 | `TRANSMIT` | - | a word into the latch |
//! | 0x08 | `CONTROL` | interrupt enabled | bit 0: the latch into the FIFO; bit 1: enables the interrupt |
//! | 0x0c | `STATUS` | bits of [`Status`] | clears the error bits |
//!
//! So receiving a cell takes 14 reads of one address, and sending one takes 14 writes interleaved with 14 of control
//! signals (A-33, A-34). A read without a word returns 0, and a write into a full FIFO is lost; `STATUS` reports both.
//!
//! Source: "Aurora at MIT", §3.2.1, which mentions such addresses. Offsets and bits are ours.

use crate::machines::coprocessor::WORDS;
use std::collections::VecDeque;

/// Offset of the register through which cells are read.
pub const RECEIVE: u32 = 0x00;
/// Offset of the register that holds a word to be sent.
pub const TRANSMIT: u32 = 0x04;
/// Offset of the control signals.
pub const CONTROL: u32 = 0x08;
/// Offset of the FIFOs' status.
pub const STATUS: u32 = 0x0c;

/// `CONTROL`: puts the latch into the FIFO.
pub const CONTROL_WRITE: u32 = 1;
/// `CONTROL`: whether a waiting cell raises an interrupt.
pub const CONTROL_INTERRUPT: u32 = 2;

/// A cell as words.
pub type CellWords = [u32; WORDS];

/// Fields of `STATUS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// A whole cell can be read.
    pub received: bool,
    /// The receive FIFO has no room for another cell.
    pub full: bool,
    /// There is room to send a whole cell.
    pub room: bool,
    /// A word was read from an empty FIFO.
    pub underrun: bool,
    /// A word was written to a full FIFO.
    pub overrun: bool,
}

impl Status {
    /// As a word: one bit each, in the order of the fields.
    pub fn word(self) -> u32 {
        let bits = [self.received, self.full, self.room, self.underrun, self.overrun];
        bits.into_iter().enumerate().map(|(at, bit)| u32::from(bit) << at).sum()
    }
    /// From a word.
    pub fn of(word: u32) -> Status {
        let bit = |at: u32| word >> at & 1 == 1;
        Status { received: bit(0), full: bit(1), room: bit(2), underrun: bit(3), overrun: bit(4) }
    }
}

/// A bus error: no register at this offset, or not one with this access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusError(pub u32);

/// Access counts of the registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads of `RECEIVE`.
    pub words_read: u64,
    /// Writes of `TRANSMIT`.
    pub words_written: u64,
    /// Writes of `CONTROL`.
    pub controls: u64,
    /// Reads of `STATUS`.
    pub looks: u64,
    /// Cells that arrived at a full FIFO.
    pub lost: u64,
}

/// The board.
#[derive(Debug)]
pub struct VupBoard {
    cells: usize,
    received: VecDeque<u32>,
    sending: VecDeque<u32>,
    latch: u32,
    interrupt: bool,
    underrun: bool,
    overrun: bool,
    counts: Counts,
}

impl VupBoard {
    /// A board with empty FIFOs for `cells` cells each.
    pub fn new(cells: usize) -> VupBoard {
        VupBoard {
            cells,
            received: VecDeque::new(),
            sending: VecDeque::new(),
            latch: 0,
            interrupt: false,
            underrun: false,
            overrun: false,
            counts: Counts::default(),
        }
    }

    /// A cell arrives from the switch; returns whether there was room.
    pub fn arrive(&mut self, cell: &CellWords) -> bool {
        let room = self.received.len() + WORDS <= self.cells * WORDS;
        match room {
            true => self.received.extend(cell),
            false => self.counts.lost += 1,
        }
        room
    }

    /// The switch takes the oldest whole cell that was sent.
    pub fn leave(&mut self) -> Option<CellWords> {
        (self.sending.len() >= WORDS).then(|| {
            let words: Vec<u32> = self.sending.drain(..WORDS).collect();
            words.try_into().expect("a cell has its words")
        })
    }

    /// Whether it raises its interrupt.
    pub fn interrupts(&self) -> bool {
        self.interrupt && self.received.len() >= WORDS
    }

    /// State of the FIFOs.
    pub fn status(&self) -> Status {
        let most = self.cells * WORDS;
        Status {
            received: self.received.len() >= WORDS,
            full: self.received.len() + WORDS > most,
            room: self.sending.len() + WORDS <= most,
            underrun: self.underrun,
            overrun: self.overrun,
        }
    }

    /// Access counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The processor reads the word at `offset`.
    ///
    /// # Errors
    /// There is no readable register.
    pub fn read(&mut self, offset: u32) -> Result<u32, BusError> {
        match offset {
            RECEIVE => {
                self.counts.words_read += 1;
                self.underrun |= self.received.is_empty();
                Ok(self.received.pop_front().unwrap_or(0))
            }
            CONTROL => Ok(if self.interrupt { CONTROL_INTERRUPT } else { 0 }),
            STATUS => {
                self.counts.looks += 1;
                Ok(self.status().word())
            }
            _ => Err(BusError(offset)),
        }
    }

    /// The processor writes the word at `offset`.
    ///
    /// # Errors
    /// There is no writable register.
    pub fn write(&mut self, offset: u32, word: u32) -> Result<(), BusError> {
        match offset {
            TRANSMIT => {
                self.counts.words_written += 1;
                self.latch = word;
            }
            CONTROL => {
                self.counts.controls += 1;
                self.interrupt = word & CONTROL_INTERRUPT != 0;
                match word & CONTROL_WRITE != 0 {
                    true if self.sending.len() < self.cells * WORDS => {
                        self.sending.push_back(self.latch);
                    }
                    true => self.overrun = true,
                    false => {}
                }
            }
            STATUS => (self.underrun, self.overrun) = (false, false),
            _ => return Err(BusError(offset)),
        }
        Ok(())
    }
}

/// A driver's reception: polls the status, and reads a waiting cell word by word.
///
/// ```
/// use lastmeter_repro::machines::vupboard::{VupBoard, receive};
/// let mut board = VupBoard::new(256);
/// board.arrive(&[7; 14]);
/// assert_eq!(receive(&mut board), Ok(Some([7; 14])));
/// assert_eq!((receive(&mut board), board.counts().words_read), (Ok(None), 14));
/// ```
///
/// # Errors
/// Never: the registers exist.
pub fn receive(board: &mut VupBoard) -> Result<Option<CellWords>, BusError> {
    if !Status::of(board.read(STATUS)?).received {
        return Ok(None);
    }
    let mut cell = [0; WORDS];
    for word in &mut cell {
        *word = board.read(RECEIVE)?;
    }
    Ok(Some(cell))
}

/// A driver's transmission: polls the status, and if there is room, writes a cell word by word into the FIFO.
///
/// # Errors
/// Never: the registers exist.
pub fn send(board: &mut VupBoard, cell: &CellWords) -> Result<bool, BusError> {
    if !Status::of(board.read(STATUS)?).room {
        return Ok(false);
    }
    let control = board.read(CONTROL)?;
    for &word in cell {
        board.write(TRANSMIT, word)?;
        board.write(CONTROL, control | CONTROL_WRITE)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::coprocessor::{Direction, Model, Operation, program};
    use proptest::prelude::*;

    fn cell(first: u32) -> CellWords {
        std::array::from_fn(|at| first + at as u32)
    }

    #[test]
    fn a_34_cells_come_and_go_by_the_registers_in_order() {
        let mut board = VupBoard::new(2);
        assert!(board.arrive(&cell(100)) && board.arrive(&cell(200)) && !board.arrive(&cell(300)));
        assert_eq!(board.counts().lost, 1);
        assert_eq!(receive(&mut board), Ok(Some(cell(100))));
        assert_eq!(receive(&mut board), Ok(Some(cell(200))));
        assert_eq!(send(&mut board, &cell(1)), Ok(true));
        assert_eq!(send(&mut board, &cell(2)), Ok(true));
        assert_eq!(send(&mut board, &cell(3)), Ok(false));
        assert_eq!((board.leave(), board.leave()), (Some(cell(1)), Some(cell(2))));
        assert_eq!(board.leave(), None);
    }

    #[test]
    fn a_33_the_study_counts_as_many_words_over_the_bus() {
        let mut board = VupBoard::new(256);
        board.arrive(&cell(0));
        receive(&mut board).unwrap();
        send(&mut board, &cell(0)).unwrap();
        let over_bus = |direction, word| {
            let program = program(Model::Bus, false, direction);
            program.iter().filter(|&&operation| operation == word).count() as u64
        };
        let Counts { words_read, words_written, controls, .. } = board.counts();
        assert_eq!(words_read, over_bus(Direction::Receive, Operation::BusRead));
        assert_eq!(words_written, over_bus(Direction::Transmit, Operation::BusWrite));
        assert_eq!(controls, words_written);
    }

    #[test]
    fn it_interrupts_while_a_cell_waits_if_it_may() {
        let mut board = VupBoard::new(4);
        board.arrive(&cell(0));
        assert!(!board.interrupts());
        board.write(CONTROL, CONTROL_INTERRUPT).unwrap();
        assert!(board.interrupts());
        receive(&mut board).unwrap();
        assert!(!board.interrupts());
        // Sending leaves the interrupt unchanged.
        send(&mut board, &cell(1)).unwrap();
        board.arrive(&cell(2));
        assert!(board.interrupts());
    }

    #[test]
    fn what_goes_wrong_is_said_until_it_is_cleared() {
        let mut board = VupBoard::new(1);
        assert_eq!(board.read(RECEIVE), Ok(0));
        (0..15).for_each(|_| board.write(CONTROL, CONTROL_WRITE).unwrap());
        let status = Status::of(board.read(STATUS).unwrap());
        assert!(status.underrun && status.overrun && !status.room);
        board.write(STATUS, 0).unwrap();
        let status = board.status();
        assert!(!status.underrun && !status.overrun);
        assert_eq!(board.read(0x10), Err(BusError(0x10)));
        assert_eq!(board.read(TRANSMIT), Err(BusError(TRANSMIT)));
        assert_eq!(board.write(RECEIVE, 1), Err(BusError(RECEIVE)));
    }

    proptest! {
        #[test]
        fn no_access_breaks_it_and_its_fifos_keep_their_size(
            accesses in proptest::collection::vec((0u32..6, 0u32..4), 0..300),
        ) {
            let mut board = VupBoard::new(3);
            let mut sent = 0;
            for (what, word) in accesses {
                match what {
                    0 => { let _ = board.read(word * 4); }
                    1 => { let _ = board.write(word * 4, word); }
                    2 => { board.arrive(&cell(word)); }
                    3 => { sent += board.leave().iter().len(); }
                    4 => { let _ = receive(&mut board); }
                    _ => { let _ = send(&mut board, &cell(word)); }
                }
                prop_assert!(board.received.len() <= 3 * WORDS && board.sending.len() <= 3 * WORDS);
                prop_assert_eq!(Status::of(board.status().word()), board.status());
            }
            prop_assert!((sent * WORDS) as u64 <= board.counts().controls);
        }
    }
}
