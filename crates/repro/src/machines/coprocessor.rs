//! Cells that a processor moves word by word: the ten interface models of the coprocessor study.
//!
//! ```text
//! receive   network --[bus read | move | -]--> register --[store]--> memory
//! transmit  memory --[load]--> register --[bus write | move | -]--> network
//! ```
//!
//! A [`Model`] and a direction give the sequence of operations for one cell (Table 2), and a [`Processor`]
//! executes it one operation at a time. So a cell's time is the sum of its operations: the processor does nothing
//! else and its bus is not shared.
//!
//! | operation | what it is | costs |
//! |---|---|---|
//! | bus read, bus write | a word over TURBOchannel | [`Processor::bus_read`], `bus_write` |
//! | move | between a coprocessor's register and the processor's | a cycle |
//! | load | a word from main memory | [`Processor::load`] |
//! | cached load | a word from the cache, and its delay slot | two cycles |
//! | store | a word through the write buffer to main memory | [`Processor::store`] |
//! | swap | the bytes of the header | [`Processor::swap`] cycles |
//!
//! Source: Clark, Houh and Tennenhouse (eds.), "Aurora at MIT", final report, §3.2.3 and §4.2.3, Tables 2 to 5 (A-96 to
//! A-101). Deviations: the document gives throughput only, so the caller gives the operations' costs. That `DMA` loads
//! received data from the cache, and data to be sent from memory, is our reading of Table 4.

use lastmeter_base::{Bytes, Duration, Rate};

/// Words of a VuNet cell: 56 bytes.
pub const WORDS: usize = 14;
/// Header words that the processor itself reads.
const HEADER: usize = 1;

/// How cells get from the network into memory, and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Programmed transfer over the bus: `Vup`, `Vup1`.
    Bus,
    /// From a coprocessor's registers through the processor's: `Cop1`, `Cop4`.
    Registers,
    /// The header as in [`Model::Registers`], the rest straight to memory: `Cop2`, `Cop5`.
    HeaderInRegisters,
    /// All straight from a coprocessor's registers to memory: `Cop3`, `Cop6`.
    Straight,
    /// Between two places in memory, one of which a device fills or empties: `DMA`, `DMA1`.
    Memory,
}

impl Model {
    /// Table 2, in its order: the names, and whether the header's bytes are swapped.
    pub const TABLE_2: [(&'static str, Model, bool); 10] = [
        ("Vup", Model::Bus, true),
        ("Vup1", Model::Bus, false),
        ("Cop1", Model::Registers, true),
        ("Cop2", Model::HeaderInRegisters, true),
        ("Cop3", Model::Straight, true),
        ("Cop4", Model::Registers, false),
        ("Cop5", Model::HeaderInRegisters, false),
        ("Cop6", Model::Straight, false),
        ("DMA", Model::Memory, true),
        ("DMA1", Model::Memory, false),
    ];
}

/// Direction of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the network to memory.
    Receive,
    /// From memory to the network.
    Transmit,
}

/// An operation of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A word from a device on the bus.
    BusRead,
    /// A word to a device on the bus.
    BusWrite,
    /// A word between a coprocessor's register and the processor's.
    Move,
    /// A word that is not in the cache.
    Load,
    /// A word that is in the cache.
    CachedLoad,
    /// A word to memory.
    Store,
    /// Swapping the header's bytes into the host's order.
    Swap,
}

/// A processor and its delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Clock period: one instruction.
    pub cycle: Duration,
    /// A word read from the bus.
    pub bus_read: Duration,
    /// A word written to the bus.
    pub bus_write: Duration,
    /// A word loaded from main memory.
    pub load: Duration,
    /// A word stored to main memory.
    pub store: Duration,
    /// Instructions that swap the bytes of a header.
    pub swap: u64,
}

/// The operations for a cell, in order.
///
/// ```
/// use lastmeter_repro::machines::coprocessor::{Direction, Model, Operation, program};
/// let cell = program(Model::HeaderInRegisters, false, Direction::Receive);
/// assert_eq!(cell[..2], [Operation::Move, Operation::Store]);
/// assert_eq!(cell.iter().filter(|&&done| done == Operation::Store).count(), 14);
/// ```
pub fn program(model: Model, swapped: bool, direction: Direction) -> Vec<Operation> {
    use Operation::{BusRead, BusWrite, CachedLoad, Load, Move, Store, Swap};
    let word = |at: usize| -> &'static [Operation] {
        let header = at < HEADER;
        match (direction, model) {
            (Direction::Receive, Model::Bus) => &[BusRead, Store],
            (Direction::Receive, Model::Registers) => &[Move, Store],
            (Direction::Receive, Model::HeaderInRegisters) if header => &[Move, Store],
            (Direction::Receive, Model::HeaderInRegisters | Model::Straight) => &[Store],
            (Direction::Receive, Model::Memory) => &[CachedLoad, Store],
            (Direction::Transmit, Model::Bus) => &[Load, BusWrite],
            (Direction::Transmit, Model::Registers) => &[Load, Move],
            (Direction::Transmit, Model::HeaderInRegisters) if header => &[Load, Move],
            (Direction::Transmit, Model::HeaderInRegisters | Model::Straight) => &[Load],
            (Direction::Transmit, Model::Memory) => &[Load, Store],
        }
    };
    let swap: &[Operation] = if swapped { &[Swap] } else { &[] };
    (0..WORDS).flat_map(word).chain(swap).copied().collect()
}

/// Time of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Cells moved.
    pub cells: u64,
    /// From the start of the first operation to the end of the last.
    pub time: Duration,
    /// Time spent in each operation, in the order of [`Operation`], if not zero.
    pub by_operation: Vec<(Operation, Duration)>,
}

impl Account {
    /// Throughput in whole cells, headers included, as the document counts it.
    pub fn rate(&self) -> Rate {
        let bits = u128::from(self.cells) * WORDS as u128 * 32;
        let a_second = bits * 1_000_000_000_000 / u128::from(self.time.as_ps().max(1));
        Rate::from_bits(u64::try_from(a_second).unwrap_or(u64::MAX).max(1))
    }

    /// The operation with the largest share of the time, and that share.
    pub fn most(&self) -> Option<(Operation, f64)> {
        let share = |time: Duration| time.as_ps() as f64 / self.time.as_ps().max(1) as f64;
        let most = self.by_operation.iter().max_by_key(|&&(_, time)| time);
        most.map(|&(operation, time)| (operation, share(time)))
    }
}

impl Processor {
    /// Duration of an operation.
    pub fn takes(&self, operation: Operation) -> Duration {
        match operation {
            Operation::BusRead => self.bus_read,
            Operation::BusWrite => self.bus_write,
            Operation::Move => self.cycle,
            Operation::Load => self.load,
            Operation::CachedLoad => self.cycle * 2,
            Operation::Store => self.store,
            Operation::Swap => self.cycle * self.swap,
        }
    }

    /// Moves `cells` cells, one operation after the other.
    ///
    /// ```
    /// use lastmeter_base::Duration;
    /// use lastmeter_repro::machines::coprocessor::{Direction, Model, Processor, program};
    /// let ns = Duration::from_ns;
    /// let processor = Processor {
    ///     cycle: ns(25), bus_read: ns(560), bus_write: ns(120), load: ns(100), store: ns(50),
    ///     swap: 20,
    /// };
    /// let straight = processor.run(&program(Model::Straight, false, Direction::Receive), 10);
    /// assert_eq!(straight.rate().as_bits(), 640_000_000); // 32 bits in 50 ns
    /// ```
    pub fn run(&self, program: &[Operation], cells: u64) -> Account {
        let mut account = Account { cells, time: Duration::ZERO, by_operation: Vec::new() };
        for _ in 0..cells {
            for &operation in program {
                self.step(operation, &mut account);
            }
        }
        account.by_operation.sort_unstable_by_key(|&(operation, _)| operation);
        account
    }

    fn step(&self, operation: Operation, account: &mut Account) {
        let takes = self.takes(operation);
        account.time += takes;
        match account.by_operation.iter_mut().find(|(known, _)| *known == operation) {
            Some((_, time)) => *time += takes,
            None => account.by_operation.push((operation, takes)),
        }
    }

    /// Time per byte of a cell's 48 bytes of payload.
    pub fn per_data_byte(&self, program: &[Operation], data: Bytes) -> Duration {
        self.run(program, 1).time.scale_ceil(1, data.0.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round numbers, so that sums are readable.
    fn processor() -> Processor {
        let ns = Duration::from_ns;
        Processor {
            cycle: ns(10),
            bus_read: ns(400),
            bus_write: ns(150),
            load: ns(100),
            store: ns(50),
            swap: 20,
        }
    }

    fn cell(model: Model, swapped: bool, direction: Direction) -> u64 {
        let account = processor().run(&program(model, swapped, direction), 1);
        account.time.as_ps() / 1000
    }

    #[test]
    fn a_97_each_of_the_ten_models_takes_what_its_description_lists() {
        let expected = [
            ("Vup", 14 * 450 + 200, 14 * 250 + 200),
            ("Vup1", 14 * 450, 14 * 250),
            ("Cop1", 14 * 60 + 200, 14 * 110 + 200),
            ("Cop2", 14 * 50 + 10 + 200, 14 * 100 + 10 + 200),
            ("Cop3", 14 * 50 + 200, 14 * 100 + 200),
            ("Cop4", 14 * 60, 14 * 110),
            ("Cop5", 14 * 50 + 10, 14 * 100 + 10),
            ("Cop6", 14 * 50, 14 * 100),
            ("DMA", 14 * 70 + 200, 14 * 150 + 200),
            ("DMA1", 14 * 70, 14 * 150),
        ];
        for ((name, model, swapped), expected) in Model::TABLE_2.into_iter().zip(expected) {
            let took = (
                name,
                cell(model, swapped, Direction::Receive),
                cell(model, swapped, Direction::Transmit),
            );
            assert_eq!(took, expected);
        }
    }

    #[test]
    fn the_account_of_a_run_sums_to_its_time() {
        let program = program(Model::Bus, true, Direction::Receive);
        let account = processor().run(&program, 7);
        let sum: Duration = account.by_operation.iter().map(|&(_, time)| time).sum();
        assert_eq!(sum, account.time);
        assert_eq!(account.most().map(|(most, _)| most), Some(Operation::BusRead));
    }

    #[test]
    fn a_move_less_and_a_word_stored_is_what_tells_the_coprocessors_apart() {
        let receive = |model| cell(model, false, Direction::Receive);
        assert_eq!(receive(Model::Registers) - receive(Model::HeaderInRegisters), 13 * 10);
        assert_eq!(receive(Model::HeaderInRegisters) - receive(Model::Straight), 10);
    }
}
