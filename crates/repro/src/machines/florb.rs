//! FLORB: a processor that moves a word from one FIFO to others with each instruction.
//!
//! ```text
//!   host FIFO ---.      .--> network FIFO          address lines of the processor are the read
//! network FIFO --+-bus--+--> host FIFO             and write strobes: one word, one cycle
//!                       '--> (any number of them)
//! ```
//!
//! It is a RISC processor or a micro-sequencer, simulated instruction by instruction: [`Florb::packet`] ordinary
//! instructions per packet, [`Florb::check`] per block of words to test flags and branch, and one per word. So
//! the peak is a word per cycle.
//!
//! Source: "Aurora at MIT", Section 2, §3.9 and Fig 2 (A-139 to A-144). The document gives the clock and the
//! width; the caller gives the additional cost of a block and a packet.

use lastmeter_base::{Bytes, Duration, Rate};

/// Bytes of a word.
const WORD: u64 = 4;
/// Ports whose strobes are address lines.
pub const PORTS: u32 = 8;

/// Its processor and program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Florb {
    /// Clock period: one instruction.
    pub cycle: Duration,
    /// Words between two tests of the FIFOs' flags.
    pub block: u64,
    /// Instructions of such a test.
    pub check: u64,
    /// Instructions for each packet.
    pub packet: u64,
}

/// One instruction of the data path: which FIFO drives the bus, and which take the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strobes {
    /// Ports that are read, one bit each.
    pub read: u32,
    /// Ports that are written, one bit each.
    pub write: u32,
}

/// Why an instruction is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Several ports drive the bus, or none.
    Drivers(u32),
    /// A port that does not exist.
    Port(u32),
}

/// The card: its FIFOs as seen through the processor's address lines.
#[derive(Debug)]
pub struct Card {
    florb: Florb,
    fifos: Vec<std::collections::VecDeque<u32>>,
    /// Instructions executed.
    pub instructions: u64,
}

impl Card {
    /// A card with empty FIFOs.
    pub fn new(florb: Florb) -> Card {
        let fifos = (0..PORTS).map(|_| std::collections::VecDeque::new()).collect();
        Card { florb, fifos, instructions: 0 }
    }

    /// A word arrives at a port from outside. Panics if the port does not exist.
    pub fn fill(&mut self, port: u32, word: u32) {
        self.fifos[port as usize].push_back(word);
    }

    /// The oldest word of a port leaves.
    pub fn drain(&mut self, port: u32) -> Option<u32> {
        self.fifos.get_mut(port as usize)?.pop_front()
    }

    /// One instruction: the word of the port that is read goes to all ports that are written. Reading an empty FIFO
    /// moves nothing.
    ///
    /// # Errors
    /// Not exactly one port drives the bus, or a port does not exist.
    pub fn step(&mut self, strobes: Strobes) -> Result<Option<u32>, Conflict> {
        let Strobes { read, write } = strobes;
        if (read | write) >> PORTS != 0 {
            return Err(Conflict::Port((read | write).ilog2()));
        }
        if read.count_ones() != 1 {
            return Err(Conflict::Drivers(read.count_ones()));
        }
        self.instructions += 1;
        let Some(word) = self.fifos[read.trailing_zeros() as usize].pop_front() else {
            return Ok(None);
        };
        let written = (0..PORTS).filter(|port| write >> port & 1 == 1);
        written.for_each(|port| self.fifos[port as usize].push_back(word));
        Ok(Some(word))
    }

    /// Moves a packet of `words` words; returns the time it took.
    ///
    /// # Errors
    /// As for [`Card::step`].
    pub fn packet(&mut self, strobes: Strobes, words: u64) -> Result<Duration, Conflict> {
        let before = self.instructions;
        self.instructions += self.florb.packet;
        for word in 0..words {
            if word.is_multiple_of(self.florb.block.max(1)) {
                self.instructions += self.florb.check;
            }
            self.step(strobes)?;
        }
        Ok(self.florb.cycle * (self.instructions - before))
    }
}

impl Florb {
    /// The peak rate: a word per cycle.
    ///
    /// ```
    /// use lastmeter_base::{Duration, Rate};
    /// use lastmeter_repro::machines::florb::Florb;
    /// let florb = Florb { cycle: Duration::from_ns(40), block: 16, check: 7, packet: 10 };
    /// assert_eq!(florb.peak(), Rate::from_mbit(800));
    /// ```
    pub fn peak(&self) -> Rate {
        Rate::from_bits(WORD * 8 * 1_000_000_000_000 / self.cycle.as_ps().max(1))
    }

    /// The time for which a packet of `bytes` occupies it, by moving one.
    ///
    /// # Panics
    /// Never: its own program has one driver.
    pub fn busy(&self, bytes: Bytes) -> Duration {
        let words = bytes.0.div_ceil(WORD);
        let mut card = Card::new(*self);
        (0..words).for_each(|word| card.fill(0, word as u32));
        card.packet(Strobes { read: 1, write: 2 }, words).expect("port 0 alone drives the bus")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLORB: Florb = Florb { cycle: Duration::from_ns(40), block: 16, check: 7, packet: 10 };

    #[test]
    fn a_139_one_instruction_reads_one_port_and_writes_several() {
        let mut card = Card::new(FLORB);
        card.fill(0, 7);
        assert_eq!(card.step(Strobes { read: 1, write: 0b110 }), Ok(Some(7)));
        assert_eq!((card.drain(0), card.drain(1), card.drain(2)), (None, Some(7), Some(7)));
        assert_eq!(card.instructions, 1);
    }

    #[test]
    fn two_drivers_none_or_a_port_that_is_not_there_are_refused() {
        let mut card = Card::new(FLORB);
        assert_eq!(card.step(Strobes { read: 0b11, write: 0 }), Err(Conflict::Drivers(2)));
        assert_eq!(card.step(Strobes { read: 0, write: 1 }), Err(Conflict::Drivers(0)));
        assert_eq!(card.step(Strobes { read: 1, write: 1 << 8 }), Err(Conflict::Port(8)));
        assert_eq!(card.instructions, 0);
    }

    #[test]
    fn a_packet_takes_its_words_its_blocks_and_itself() {
        // 40 words: 3 blocks.
        assert_eq!(FLORB.busy(Bytes(160)), Duration::from_ns(40 * (10 + 3 * 7 + 40)));
    }

    #[test]
    fn words_leave_in_the_order_in_which_they_came() {
        let mut card = Card::new(FLORB);
        (0..50).for_each(|word| card.fill(3, word));
        card.packet(Strobes { read: 8, write: 16 }, 50).unwrap();
        let words: Vec<u32> = std::iter::from_fn(|| card.drain(4)).collect();
        assert_eq!(words, (0..50).collect::<Vec<_>>());
    }
}
