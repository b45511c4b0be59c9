//! The VudBoard: a board that moves cells between a switch and a host's memory by DMA.
//!
//! ```text
//! switch --> [port, 256 cells] --.          .--> [receive FIFO, 60 B] --.
//!                            shared data bus                        TURBOchannel <--> memory
//! switch <---[pacing]------------'          '--- [transmit FIFO, 60 B] <--'
//! ```
//!
//! | resource | arbiter | first | then |
//! |---|---|---|---|
//! | data bus | the PAL | a cell from the switch | a cell to the switch, when the counter says so |
//! | TURBOchannel | its interface | a cell from the receive FIFO | a cell from memory |
//!
//! Nothing moves towards a FIFO without room for a cell, and nothing over TURBOchannel within `wait` of the
//! previous transfer.
//!
//! A FIFO of 60 bytes holds one cell of 56. A burst of several cells holds TURBOchannel once, and its
//! cells flow through the FIFO meanwhile. A cell is 64 bytes on TURBOchannel.
//!
//! Source: "Aurora at MIT", §3.2.2 with Fig 4, §4.2.2 (A-36, A-37). Deviations: the document does not give the word
//! time of the data bus; a burst's cells after the first are as fast as the bus.

use crate::machines::coprocessor::WORDS;
use crate::machines::turbochannel::{Bus, Way};
use lastmeter_base::{Bytes, Duration, Time};

/// Size of each of the two FIFOs in bytes.
pub const FIFO: u64 = 60;
/// Bytes of a cell in a FIFO.
const CELL: u64 = WORDS as u64 * 4;
/// Bytes of a cell on TURBOchannel.
pub const CELL_ON_BUS: Bytes = Bytes(64);

/// Parameters of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Capacity of the switch port in cells.
    pub port: u64,
    /// Time of a word on the data bus between board and switch.
    pub word: Duration,
    /// TURBOchannel.
    pub bus: Bus,
    /// Minimum time between a transfer over it and the next request.
    pub wait: Duration,
    /// Most cells of a burst to memory; at least 1.
    pub burst: u64,
    /// Minimum time between cells to the switch; zero without pacing.
    pub pace: Duration,
}

/// Counts of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrived from the switch.
    pub arrived: u64,
    /// Lost at the full port.
    pub lost: u64,
    /// Received into memory.
    pub received: u64,
    /// Sent to the switch.
    pub sent: u64,
    /// Largest fill of either FIFO in bytes.
    pub fifo_most: u64,
}

/// What occupies a bus, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// Cells towards memory.
    In(u64),
    /// A cell towards the switch.
    Out,
}

/// The board.
#[derive(Debug)]
pub struct VudBoard {
    options: Options,
    port: u64,
    /// Cells to be sent, in the host's pages.
    pages: u64,
    receive_fifo: u64,
    transmit_fifo: u64,
    data: Option<(Move, Time)>,
    dma: Option<(Move, Time)>,
    /// When TURBOchannel may be requested again, and when a cell may be sent.
    asks: Time,
    paced: Time,
    counts: Counts,
}

impl VudBoard {
    /// An idle board.
    pub fn new(options: Options) -> VudBoard {
        VudBoard {
            options,
            port: 0,
            pages: 0,
            receive_fifo: 0,
            transmit_fifo: 0,
            data: None,
            dma: None,
            asks: Time::START,
            paced: Time::START,
            counts: Counts::default(),
        }
    }

    /// A cell arrives from the switch's fabric; returns whether the port had room.
    pub fn arrive(&mut self, now: Time) -> bool {
        self.advance(now);
        self.counts.arrived += 1;
        let room = self.port < self.options.port;
        match room {
            true => self.port += 1,
            false => self.counts.lost += 1,
        }
        self.turn(now);
        room
    }

    /// The driver hands over pages with this many cells.
    pub fn queue(&mut self, now: Time, cells: u64) {
        self.advance(now);
        self.pages += cells;
        self.turn(now);
    }

    /// The time of the next event.
    pub fn ready_at(&self) -> Option<Time> {
        let over = [self.data, self.dma].into_iter().flatten().map(|(_, until)| until);
        let asks = (self.dma.is_none() && self.wants_dma()).then_some(self.asks);
        let sends = self.data.is_none() && !self.flows() && self.transmit_fifo >= CELL;
        let paced = sends.then_some(self.paced);
        over.chain(asks).chain(paced).min()
    }

    /// Processes all events due by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some(due) = self.ready_at().filter(|&due| due <= now) {
            self.end(due);
            self.turn(due);
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Cells in the port, in the FIFOs and on the buses.
    pub fn held(&self) -> u64 {
        let flows = |of: Option<(Move, Time)>| match of {
            Some((Move::In(cells), _)) => cells,
            _ => 0,
        };
        self.port + flows(self.data) + flows(self.dma) + self.receive_fifo / CELL
    }

    /// Whether cells flow from the switch into a burst.
    fn flows(&self) -> bool {
        matches!(self.dma, Some((Move::In(cells), _)) if cells > 1)
    }

    fn wants_dma(&self) -> bool {
        self.receive_fifo >= CELL || (self.pages > 0 && self.transmit_fifo + CELL <= FIFO)
    }

    /// Completes transfers due by `now`.
    fn end(&mut self, now: Time) {
        if let Some((what, _)) = self.data.take_if(|(_, until)| *until <= now) {
            match what {
                Move::In(cells) => self.receive_fifo += cells * CELL,
                Move::Out => self.counts.sent += 1,
            }
        }
        if let Some((what, until)) = self.dma.take_if(|(_, until)| *until <= now) {
            self.asks = until + self.options.wait;
            match what {
                Move::In(cells) => self.counts.received += cells,
                Move::Out => self.transmit_fifo += CELL,
            }
        }
        self.counts.fifo_most =
            self.counts.fifo_most.max(self.receive_fifo.max(self.transmit_fifo));
    }

    /// Starts whatever can start: reception first, on both buses.
    fn turn(&mut self, now: Time) {
        let Options { word, bus, burst, pace, .. } = self.options;
        if self.dma.is_none() && self.asks <= now && self.wants_dma() {
            self.dma = Some(match self.receive_fifo >= CELL {
                true => {
                    // Cells behind the first one flow through while the burst lasts.
                    let flow = match self.data {
                        None => self.port.min(burst.max(1) - 1),
                        Some(_) => 0,
                    };
                    self.receive_fifo -= CELL;
                    self.port -= flow;
                    let cells = 1 + flow;
                    (Move::In(cells), now + bus.holds(CELL_ON_BUS * cells, Way::ToMemory))
                }
                false => {
                    self.pages -= 1;
                    (Move::Out, now + bus.holds(CELL_ON_BUS, Way::FromMemory))
                }
            });
        }
        if self.data.is_none() && !self.flows() {
            let cell = word * WORDS as u64;
            if self.port > 0 && self.receive_fifo + CELL <= FIFO {
                self.port -= 1;
                self.data = Some((Move::In(1), now + cell));
            } else if self.transmit_fifo >= CELL && self.paced <= now {
                self.transmit_fifo -= CELL;
                self.paced = now + pace;
                self.data = Some((Move::Out, now + cell));
            }
        }
    }
}

/// Cells per second to memory and to the switch, under saturation of reception, transmission, or both.
///
/// ```
/// use lastmeter_base::Duration;
/// use lastmeter_repro::machines::vudboard::{Options, saturated};
/// use lastmeter_repro::machines::turbochannel::Bus;
/// let ns = Duration::from_ns;
/// let bus = Bus { cycle: ns(40), write: 8, read: 13, burst: 128 };
/// let options = Options { port: 256, word: ns(40), bus, wait: ns(1240), burst: 1, pace: ns(0) };
/// let (received, sent) = saturated(options, true, false);
/// // A cell each 16 + 8 + 31 cycles.
/// assert!((received * 55.0 * 40e-9 - 1.0).abs() < 1e-3 && sent == 0.0);
/// ```
pub fn saturated(options: Options, receives: bool, sends: bool) -> (f64, f64) {
    let mut board = VudBoard::new(options);
    if sends {
        board.queue(Time::START, u64::MAX / 2);
    }
    // The port is refilled after each event.
    while let Some(now) = board.ready_at().or(receives.then_some(Time::START)) {
        if now.since_start() > LENGTH {
            break;
        }
        board.advance(now);
        while receives && board.port < options.port {
            board.arrive(now);
        }
    }
    let seconds = LENGTH.as_secs_f64();
    (board.counts.received as f64 / seconds, board.counts.sent as f64 / seconds)
}

/// Length of a saturated run: thousands of cells.
const LENGTH: Duration = Duration::from_ms(10);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ns(ns: u64) -> Duration {
        Duration::from_ns(ns)
    }

    fn options() -> Options {
        let bus = Bus { cycle: ns(40), write: 8, read: 13, burst: 128 };
        Options { port: 256, word: ns(40), bus, wait: ns(1240), burst: 1, pace: ns(0) }
    }

    #[test]
    fn a_36_reception_has_priority_over_transmission() {
        let (alone, _) = saturated(options(), true, false);
        let (received, sent) = saturated(options(), true, true);
        assert!((received / alone - 1.0).abs() < 0.01, "{received} of {alone}");
        assert!(sent < 0.01 * received, "{sent}");
        let (_, sent) = saturated(options(), false, true);
        // 16 + 13 + 31 cycles.
        assert!((sent / (1e9 / 2400.0) - 1.0).abs() < 0.01, "{sent}");
    }

    #[test]
    fn a_36_longer_bursts_wait_and_ask_less_often() {
        let rate = |burst| saturated(Options { burst, ..options() }, true, false).0;
        assert!(rate(2) > 1.4 * rate(1) && rate(4) > 1.3 * rate(2));
    }

    #[test]
    fn a_37_the_counter_paces_transmission_exactly() {
        let paced = Options { pace: ns(10_000), ..options() };
        assert_eq!(saturated(paced, false, true).1, 100_000.0);
        // What is slower than the counter is not paced by it.
        let fast = Options { pace: ns(100), ..options() };
        assert_eq!(saturated(fast, false, true), saturated(options(), false, true));
    }

    #[test]
    fn a_cell_that_comes_alone_is_in_memory_after_both_buses() {
        let mut board = VudBoard::new(options());
        board.arrive(Time::START);
        let in_memory = Time::START + ns(14 * 40 + 24 * 40);
        board.advance(Time::START + ns(14 * 40 + 24 * 40 - 1));
        assert_eq!((board.counts().received, board.held()), (0, 1));
        board.advance(in_memory);
        assert_eq!((board.counts().received, board.held(), board.ready_at()), (1, 0, None));
    }

    proptest! {
        #[test]
        fn every_cell_is_lost_held_or_received_and_a_fifo_holds_a_cell_at_most(
            gaps in proptest::collection::vec(0u64..4000, 1..200), pages in 0u64..50,
            burst in 1u64..6, pace in 0u64..5000, port in 1u64..20,
        ) {
            let mut board = VudBoard::new(Options { port, burst, pace: ns(pace), ..options() });
            board.queue(Time::START, pages);
            let mut now = Time::START;
            for gap in gaps {
                now += ns(gap);
                board.arrive(now);
                let Counts { arrived, lost, received, .. } = board.counts();
                prop_assert_eq!(arrived, lost + received + board.held());
            }
            while let Some(due) = board.ready_at() {
                board.advance(due);
            }
            let counts = board.counts();
            prop_assert_eq!((counts.sent, board.held()), (pages, 0));
            prop_assert!(counts.fifo_most <= FIFO);
        }
    }
}
