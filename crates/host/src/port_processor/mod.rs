//! A port of a router whose card, bus, memory and processor wait for each other: the Smart Port Card.
//!
//! ```text
//!              card                         PCI + memory            processor
//! cells --> [ FIFO ] --bursts of some cells--> [ buffer ] --> swap, lookup, software --> [ buffer ]
//!   drops: `no buffer`, `overrun`                                                           |
//! out 0 <-- card <-----------------------------bursts of some cells-------------------------'
//!
//! from a line (input side):    card to memory, swap, lookup, software, memory to card --> fabric
//! from a fabric (output side): card to memory, swap,         software, memory to card --> line
//! ```
//!
//! The circuit that a packet comes on says which of the two code paths it takes (D-60, D-63). All of
//! the data path is the card's driver; what is done periodically, distributed queueing, goes before
//! it (D-62). Virtual output queues and their rates stand in the fabric (`lastmeter_lan::fabric`,
//! D-65); the queue of each virtual interface stands at its link (D-66).
//!
//! Three ask for the bus and the memory, and take turns: the card that writes what arrives, the card
//! that reads what leaves, the processor. A burst holds the bus for its operation's own cycles, its wait
//! cycles and a cycle for each word; it holds the memory for the first two and for as long as its bytes
//! take there. The processor waits for each of its operations on the bus, and its software holds the
//! memory, of which it is in want all the time. Cells leave the FIFO one by one as a burst goes on.
//!
//! With an FPX in front ([`fpx`]) lookups are made there, and the processor has only what is special (D-14 to
//! D-16).
//!
//! A buffer belongs to a packet from its first cell until its last has left again. So a port that cannot
//! keep up takes no more packets, and those that it does not take cross nothing: it has no livelock
//! (D-69). A packet that was taken and lost a cell on the way into the FIFO crosses in vain.
//!
//! | Option        | Unit   | Meaning                                                              |
//! |---------------|--------|----------------------------------------------------------------------|
//! | `cycle`       | time   | of the PCI bus                                                       |
//! | `operation`   | cycles | that an operation takes besides its words                            |
//! | `wait`        | cycles | that an operation waits under load                                   |
//! | `word`        | size   | what the bus moves in a cycle                                        |
//! | `memory`      | per B  | what a byte costs each time that it crosses the memory bus           |
//! | `receive`, `send` | words | of the operations for a packet besides its data                   |
//! | `batch`       | cells  | that a burst moves at most                                           |
//! | `fifo`        | cells  | that the card holds; a cell more is lost                             |
//! | `buffers`     |        | packets that the port holds at most, each with its descriptor        |
//! | `cell_gap`    | time   | from one cell of a packet to the next, as they arrive                |
//! | `software`    | time   | of the processor for a packet                                        |
//! | `lookup`      | time   | of the processor for its next hop                                    |
//! | `swap`        |        | what of a packet is not swapped by `software`; `None`: nothing is swapped |
//! | `clock`       | time   | a period, and the processor's work in each: distributed queueing     |
//! | `free`        |        | whether the card's bursts in and out take no time, to see what that buys |
//!
//! A descriptor has 16 bytes, four words of the bus (D-67): `receive` and `send` begin with reading one.
//! The buffer of a packet has its descriptor's number (D-68), so a count of free ones is all that is
//! needed here.
//!
//! Source: description of the Dynamically Extensible Router, sections 2.3, 4.1 and 6 (D-09, D-10, D-12,
//! D-60 to D-70, D-106 to D-116). Deviations: interrupts are not modelled, the software's time contains them;
//! an operation waits as long when nobody else is there; cells of two packets never interleave.

mod element;
pub mod fpx;
pub mod kind;
mod machine;

pub use element::{FROM_FABRIC, FROM_LINES, Port};
pub use machine::Machine;

use lastmeter_base::{Bytes, Duration, PerByte, StageId};
use lastmeter_engine::ResourceId;

/// What a cell carries of a packet.
pub const CELL: Bytes = Bytes(48);
/// What AAL5 adds to a packet.
pub const TRAILER: Bytes = Bytes(8);

/// What a port is; see the top of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of the PCI bus.
    pub cycle: Duration,
    /// Cycles of an operation besides its words.
    pub operation: u64,
    /// Cycles that it waits.
    pub wait: u64,
    /// What the bus moves in a cycle.
    pub word: Bytes,
    /// A byte's crossing of the memory bus.
    pub memory: PerByte,
    /// Words of each operation when a packet comes in, besides its data.
    pub receive: Vec<u64>,
    /// Words of each operation when it goes out.
    pub send: Vec<u64>,
    /// Cells of a burst at most, at least one.
    pub batch: u64,
    /// Cells that the card holds, at least `batch`.
    pub fifo: u64,
    /// Packets that the port holds, at least one.
    pub buffers: u64,
    /// From one cell of a packet to the next.
    pub cell_gap: Duration,
    /// The processor's time for a packet.
    pub software: Duration,
    /// Its time for the next hop.
    pub lookup: Duration,
    /// Bytes that are not swapped, where the rest of the buffer is.
    pub swap: Option<Bytes>,
    /// A clock's period, and the work in each.
    pub clock: Option<(Duration, Duration)>,
    /// How long the processor's software holds the memory at a time.
    pub quantum: Duration,
    /// Whether bursts into the memory, and out of it, take [`Options::INSTANT`].
    pub free: [bool; 2],
}

/// A port as its profile describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What it is.
    pub options: Options,
    /// Where its constants come from.
    pub source: String,
}

/// Which code path a packet takes (D-63).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It comes from the line: its next hop is looked up.
    Input,
    /// It comes from an FPX, which has looked its next hop up and says so by the circuit.
    Classified,
    /// It comes from the fabric.
    Output,
}

/// What bus, memory, processor and the stages are called in the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// The PCI bus.
    pub pci: ResourceId,
    /// The memory bus.
    pub memory: ResourceId,
    /// The processor.
    pub cpu: ResourceId,
    /// From the first cell until the packet is in memory.
    pub receive: StageId,
    /// What the processor does for a packet: software with its operations on the bus, lookup, swap.
    pub process: [StageId; 3],
    /// From then until its last cell has left the memory.
    pub send: StageId,
    /// The clock's work.
    pub clock: StageId,
}

impl Names {
    /// Bus, memory and processor; receive, software, lookup, swap, send and clock.
    pub fn of(resources: [ResourceId; 3], stages: [StageId; 6]) -> Names {
        let [pci, memory, cpu] = resources;
        let [receive, software, lookup, swap, send, clock] = stages;
        Names { pci, memory, cpu, receive, process: [software, lookup, swap], send, clock }
    }
}

impl Options {
    /// What takes no time still takes this.
    pub const INSTANT: Duration = Duration::from_ps(1);

    /// With a memory that is `numerator / denominator` times as fast: all that the processor does waits
    /// for it, so that is as many times as fast, too (D-10, D-116).
    #[must_use]
    pub fn with_memory_speed(mut self, (numerator, denominator): (u64, u64)) -> Options {
        let scaled = |time: Duration| time.scale_ceil(denominator, numerator);
        self.memory = self.memory.scale_ceil(denominator, numerator);
        self.software = scaled(self.software);
        self.lookup = scaled(self.lookup);
        self.clock = self.clock.map(|(period, work)| (period, scaled(work)));
        self
    }

    /// Cells of a packet.
    pub fn cells(len: Bytes) -> u64 {
        (len + TRAILER).0.div_ceil(CELL.0)
    }

    /// Operations on the bus for a packet of one cell.
    pub fn operations(&self) -> u64 {
        2 + (self.receive.len() + self.send.len()) as u64
    }

    /// Cycles of the bus for a packet of one cell, without and with waiting (D-114).
    pub fn cycles(&self) -> (u64, u64) {
        let data = 2 * CELL.0.div_ceil(self.word.0);
        let words: u64 = self.receive.iter().chain(&self.send).sum();
        let own = data + words + self.operations() * self.operation;
        (own, own + self.operations() * self.wait)
    }

    /// What of a packet of `len` crosses the memory bus twice more, read and written by the processor.
    pub fn swapped(&self, len: Bytes) -> Bytes {
        let buffer = Options::cells(len) * CELL.0;
        self.swap.map_or(Bytes::ZERO, |kept| Bytes(buffer.saturating_sub(kept.0)))
    }

    /// The processor's software for a packet of `len`.
    pub fn work(&self, len: Bytes) -> Duration {
        let swapped = self.swapped(len);
        self.software + self.lookup + self.memory.time_for(Bytes(2 * swapped.0))
    }

    /// The time of a packet when nothing overlaps: a port that is busy all the time takes no longer.
    ///
    /// 3.76 us on the bus and as much in software, for a packet of 40 bytes (D-115):
    ///
    /// ```
    /// # use lastmeter_base::{Bytes, Duration, PerByte};
    /// # use lastmeter_host::port_processor::Options;
    /// # let options = Options {
    /// #     cycle: Duration::from_ps(30_300), operation: 3, wait: 8, word: Bytes(4),
    /// #     memory: PerByte::from_fs(7_575_000), receive: vec![4, 1, 1], send: vec![4, 1, 1],
    /// #     batch: 8, fifo: 64, buffers: 128, cell_gap: Duration::from_ns(350),
    /// #     software: Duration::from_ns(3760), lookup: Duration::ZERO, swap: None, clock: None,
    /// #     quantum: Duration::from_ns(500), free: [false; 2],
    /// # };
    /// assert_eq!(options.time_alone(Bytes(40)), Duration::from_ps(7_517_200));
    /// ```
    pub fn time_alone(&self, len: Bytes) -> Duration {
        let cells = Options::cells(len);
        let bursts = |cells| self.burst(cells * CELL.0.div_ceil(self.word.0)).0;
        let (whole, rest) = (cells / self.batch, cells % self.batch);
        let mut time = bursts(self.batch) * (2 * whole) + self.work(len);
        if rest > 0 {
            time += bursts(rest) * 2;
        }
        let operations = self.receive.iter().chain(&self.send);
        let cycles: u64 = operations.map(|words| self.operation + self.wait + words).sum();
        time + self.cycle * cycles
    }

    /// A bus operation of so many words: for how long it holds the bus, and the memory where its
    /// words go there.
    fn burst(&self, words: u64) -> (Duration, Duration) {
        let own = self.cycle * (self.operation + self.wait);
        let bus = own + self.cycle * words;
        let memory = own + self.memory.time_for(Bytes(words * self.word.0));
        (bus.max(memory), memory)
    }
}
