//! A router port whose card, bus, memory and processor wait for each other: the Smart Port Card.
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
//! The circuit on which a packet arrives determines which of the two code paths it takes (D-60, D-63). The whole
//! data path runs in the card's driver; periodic work, distributed queueing, has priority over it (D-62). Virtual
//! output queues and their rates are in the fabric (`lastmeter_lan::fabric`, D-65); the queue of each virtual
//! interface is at its link (D-66).
//!
//! Three parties request the bus and the memory, and take turns: the card writing what arrives, the card reading
//! what leaves, and the processor. A burst holds the bus for the operation's own cycles, its wait cycles and one
//! cycle per word; it holds the memory for the first two and for as long as its bytes take there. The processor
//! waits for each of its operations on the bus, and its software holds the memory, which it uses all the time.
//! Cells leave the FIFO one by one during a burst.
//!
//! With an FPX in front ([`fpx`]), lookups are made there, and the processor handles only special packets, which return
//! to the FPX (D-14 to D-16, D-127). Channels may also pass the card from port to port (D-12).
//!
//! A buffer belongs to a packet from its first cell until its last cell has left. So an overloaded port accepts no
//! more packets, and refused packets use neither bus nor memory: it has no livelock (D-69). A packet that was
//! accepted but lost a cell at the FIFO still crosses the bus, in vain.
//!
//! | Option        | Unit   | Meaning                                                              |
//! |---------------|--------|----------------------------------------------------------------------|
//! | `cycle`       | time   | cycle of the PCI bus                                                 |
//! | `operation`   | cycles | overhead of a bus operation, without its words                       |
//! | `wait`        | cycles | wait cycles of a bus operation under load                            |
//! | `word`        | size   | data per bus cycle                                                   |
//! | `memory`      | per B  | cost of a byte for each crossing of the memory bus                   |
//! | `receive`, `send` | words | in each bus operation for a packet, besides its data              |
//! | `batch`       | cells  | largest burst                                                        |
//! | `fifo`        | cells  | capacity of the card; a cell beyond it is lost                       |
//! | `buffers`     |        | most packets in the port, each with its descriptor                   |
//! | `cell_gap`    | time   | from one cell of a packet to the next, on arrival                    |
//! | `software`    | time   | processor time per packet                                            |
//! | `lookup`      | time   | processor time per lookup                                            |
//! | `swap`        |        | length of a packet that is not swapped by `software`; `None`: no swapping |
//! | `clock`       | time   | a period, and the processor time in each: distributed queueing       |
//! | `free`        |        | whether the card's bursts in and out take no time, to see their effect |
//!
//! A descriptor has 16 bytes, four words of the bus (D-67); `receive` and `send` begin with reading one. A
//! packet's buffer has the number of its descriptor (D-68), so counting free buffers is sufficient here.
//!
//! Source: description of the Dynamically Extensible Router, sections 2.3, 4.1 and 6 (D-09, D-10, D-12,
//! D-60 to D-70, D-106 to D-116). Deviations: interrupts are not modelled separately, since the software time
//! includes them; the wait cycles of an operation are the same without contention; cells of two packets never
//! interleave.
//!
//! Rows: D-03, D-94.

mod element;
pub mod fpx;
pub mod kind;
mod machine;

pub use element::{FROM_FABRIC, FROM_LINES, Passing, Port};
pub use machine::Machine;

use lastmeter_base::{Bytes, Duration, PerByte, StageId};
use lastmeter_engine::ResourceId;

/// Payload of a cell.
pub const CELL: Bytes = Bytes(48);
/// Length of the AAL5 trailer.
pub const TRAILER: Bytes = Bytes(8);

/// Parameters of a port; see the top of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Cycle of the PCI bus.
    pub cycle: Duration,
    /// Cycles of overhead per operation, without its words.
    pub operation: u64,
    /// Wait cycles per operation.
    pub wait: u64,
    /// Data per bus cycle.
    pub word: Bytes,
    /// Cost of a byte crossing the memory bus.
    pub memory: PerByte,
    /// Words of each operation on an arriving packet, besides its data.
    pub receive: Vec<u64>,
    /// Words of each operation on a departing packet, besides its data.
    pub send: Vec<u64>,
    /// Largest burst in cells, at least one.
    pub batch: u64,
    /// Capacity of the card in cells, at least `batch`.
    pub fifo: u64,
    /// Most packets in the port, at least one.
    pub buffers: u64,
    /// From one cell of a packet to the next.
    pub cell_gap: Duration,
    /// Processor time per packet.
    pub software: Duration,
    /// Processor time per lookup.
    pub lookup: Duration,
    /// Bytes of a packet that are not swapped while the rest of the buffer is.
    pub swap: Option<Bytes>,
    /// A clock's period, and the work in each.
    pub clock: Option<(Duration, Duration)>,
    /// How long the software holds the memory at a time.
    pub quantum: Duration,
    /// Whether bursts into the memory, and out of it, take [`Options::INSTANT`].
    pub free: [bool; 2],
}

/// A port as its profile describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its parameters.
    pub options: Options,
    /// Where its constants come from.
    pub source: String,
}

/// The code path of a packet (D-63).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From the line: its next hop is looked up.
    Input,
    /// From an FPX, which has looked up its next hop; the circuit gives the result.
    Classified,
    /// From the fabric.
    Output,
}

/// Names of bus, memory, processor and stages in the books.
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
    /// The processor's work on a packet: software with its bus operations, lookup, swap.
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
    /// What takes no time still takes this long.
    pub const INSTANT: Duration = Duration::from_ps(1);

    /// With a memory that is `numerator / denominator` times as fast. The processor's work always waits for the
    /// memory, so it becomes faster by the same factor (D-10, D-116).
    #[must_use]
    pub fn with_memory_speed(mut self, (numerator, denominator): (u64, u64)) -> Options {
        let scaled = |time: Duration| time.scale_ceil(denominator, numerator);
        self.memory = self.memory.scale_ceil(denominator, numerator);
        self.software = scaled(self.software);
        self.lookup = scaled(self.lookup);
        self.clock = self.clock.map(|(period, work)| (period, scaled(work)));
        self
    }

    /// Number of cells of a packet.
    pub fn cells(len: Bytes) -> u64 {
        (len + TRAILER).0.div_ceil(CELL.0)
    }

    /// Bus operations for a packet of one cell.
    pub fn operations(&self) -> u64 {
        2 + (self.receive.len() + self.send.len()) as u64
    }

    /// Bus cycles for a packet of one cell, without and with wait cycles (D-114).
    pub fn cycles(&self) -> (u64, u64) {
        let data = 2 * CELL.0.div_ceil(self.word.0);
        let words: u64 = self.receive.iter().chain(&self.send).sum();
        let own = data + words + self.operations() * self.operation;
        (own, own + self.operations() * self.wait)
    }

    /// Bytes of a packet of `len` that cross the memory bus twice more, read and written by the processor.
    pub fn swapped(&self, len: Bytes) -> Bytes {
        let buffer = Options::cells(len) * CELL.0;
        self.swap.map_or(Bytes::ZERO, |kept| Bytes(buffer.saturating_sub(kept.0)))
    }

    /// Software time for a packet of `len`.
    pub fn work(&self, len: Bytes) -> Duration {
        let swapped = self.swapped(len);
        self.software + self.lookup + self.memory.time_for(Bytes(2 * swapped.0))
    }

    /// Time per packet when nothing overlaps; a saturated port takes no longer.
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

    /// A bus operation with this many words: how long it holds the bus, and the memory if its words go there.
    fn burst(&self, words: u64) -> (Duration, Duration) {
        let own = self.cycle * (self.operation + self.wait);
        let bus = own + self.cycle * words;
        let memory = own + self.memory.time_for(Bytes(words * self.word.0));
        (bus.max(memory), memory)
    }
}
