//! An adapter in five sections: host interface, transfer control, queueing, buffers, network
//! interface (E-38 to E-43, E-46).
//!
//! ```text
//! host ==[host interface]== [transfer control] --> [queueing] --> [network interface] == network
//!          commands            DMA or PIO            buffers
//! ```
//!
//! Source: Indiresan, "Exploring quality-of-service issues in network interface design", University of Michigan,
//! 1997, §4.2, Fig 4.1 and Table 4.1. Descriptor rings and doorbells are modern additions.

use lastmeter_base::{Bytes, Duration, PerByte, Rate};

/// An adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// What it is.
    pub what: String,
    /// Where its constants come from.
    pub source: String,
    /// How host and adapter communicate.
    pub host: HostInterface,
    /// How data crosses the bus.
    pub transfer: Transfer,
    /// How packets are queued on the adapter.
    pub queueing: Queueing,
    /// Where packets are buffered.
    pub buffers: Buffers,
    /// Access to the network.
    pub network: Network,
}

/// How host and adapter communicate (§4.2.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostInterface {
    /// What carries the commands.
    pub kind: InterfaceKind,
    /// Whose registers and rings a guest finds on its bus.
    pub driver: Driver,
    /// Number of mailboxes, pairs of FIFOs, or rings.
    pub queues: u64,
    /// How the host learns of responses.
    pub synchronisation: Synchronisation,
    /// Whether commands carry a packet's class and due date.
    pub qos: bool,
    /// Whether a transaction begins with an exchange of identifiers (`write`, `write ack`).
    pub handshake: bool,
    /// Whether the adapter acknowledges the transfer separately from the message (`address ack`).
    pub transfer_ack: bool,
    /// Fixed cost per message, host and host interface together.
    pub per_message: Duration,
    /// Saving per message without handshake and transfer acknowledgement.
    pub saved_when_simple: Duration,
    /// Host cost per byte of gathering headers and data into one buffer, if headers have no buffers of their own.
    pub gather_per_byte: PerByte,
    /// Length of a descriptor.
    pub descriptor: Bytes,
    /// Batch sizes of doorbells and descriptors.
    pub batch: Batch,
    /// Packets per interrupt.
    pub coalescing: u64,
    /// Longest that an interrupt waits for more packets; zero: as long as the adapter has more in progress.
    pub coalescing_time: Duration,
}

/// Batch sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Packets per doorbell, and per read of the ring's head pointer.
    pub doorbell: u64,
    /// Descriptors per fetch.
    pub fetch: u64,
    /// Descriptors per write-back.
    pub write_back: u64,
}

/// What carries the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// One slot for a command in each direction.
    Mailbox,
    /// Queues of commands and responses.
    Fifo,
    /// Rings of descriptors in host memory, with doorbells.
    Rings,
}

/// Whose registers and rings an adapter has where a guest's driver runs it. A model has no registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Its own: the driver is written from the description.
    Own,
    /// Those of virtio: every Linux has a driver.
    Virtio,
}

/// How one side is notified by the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronisation {
    /// By interrupts.
    Interrupt,
    /// By polling.
    Poll,
    /// By an interrupt, then by polling.
    Mixed,
}

/// How data crosses the bus (§4.2.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// What moves the data.
    pub mode: TransferMode,
    /// With [`TransferMode::Hybrid`]: the largest transfer made by the processor.
    pub pio_max: Bytes,
    /// Processor time per byte of programmed I/O.
    pub pio_per_byte: PerByte,
    /// Set-up cost of a transfer.
    pub setup: Duration,
    /// Block size of a DMA transfer.
    pub block: Bytes,
    /// Cost per block or part of a block.
    pub per_block: Duration,
    /// Up to this length, a byte costs `per_byte_small`.
    pub small: Bytes,
    /// Cost per byte up to `small`.
    pub per_byte_small: PerByte,
    /// Cost per byte beyond `small`.
    pub per_byte: PerByte,
    /// Whether the network phase pre-empts the transfer at the memory.
    pub preemptible: bool,
    /// Whether the transfer of a more urgent packet interrupts that of a less urgent one.
    pub urgent_first: bool,
    /// The bus, if it is PCI Express.
    pub pcie: Option<super::pcie::Link>,
}

/// What moves the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferMode {
    /// The adapter, by DMA.
    Dma,
    /// The processor, by programmed I/O.
    Pio,
    /// The processor for short transfers, the adapter for longer ones.
    Hybrid,
}

/// How packets are queued (§4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// How many of the adapter's stages work concurrently. 3: interface, transfer and network; 2: the network
    /// concurrently with the other two; 1: one after another.
    pub stages: u64,
    /// Queues per stage.
    pub queues: u64,
    /// The scheduling discipline.
    pub discipline: Discipline,
    /// The discipline at the network, if it differs.
    pub at_network: Option<Discipline>,
    /// Messages in flight at once.
    pub depth: u64,
}

/// Scheduling discipline: which message goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// First come, first served.
    Fifo,
    /// The highest class first.
    Priority,
    /// The earliest due date first.
    Edd,
}

/// Where packets are buffered (§4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// What the buffers belong to.
    pub place: BufferPlace,
    /// Total buffer memory.
    pub memory: Bytes,
    /// Memory banks, each with its own bus; with two, transfer and network do not contend.
    pub banks: u64,
    /// Free share, in percent, below which the adapter reports overload.
    pub threshold: u64,
    /// What happens to a packet that finds no free buffer.
    pub overload: Overload,
    /// Whether headers have buffers of their own: then no gathering copy is needed, and headers are transferred
    /// separately.
    pub separate_headers: bool,
    /// Length of a packet's headers.
    pub header: Bytes,
}

/// What the buffers belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferPlace {
    /// Shared by all connections.
    Shared,
    /// Separate for each connection.
    PerConnection,
    /// In host memory.
    Host,
}

/// What happens to a packet that finds no free buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// It is dropped.
    Drop,
    /// Its connection waits.
    Block,
    /// The least important packet is dropped.
    Priority,
}

/// Access to the network (§4.2.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// When the adapter may send.
    pub model: NetworkModel,
    /// How the adapter learns that a packet has left.
    pub synchronisation: Synchronisation,
    /// Processing time per message on the adapter's own processor; it does not use the memory.
    pub processing: Duration,
    /// Cost of a message before its first frame.
    pub setup: Duration,
    /// The fraction of `setup` that does not use the memory, as numerator and denominator.
    pub setup_overlap: (u64, u64),
    /// Payload of one frame.
    pub frame: Bytes,
    /// Time per frame, full or not.
    pub per_frame: Duration,
    /// Rate of the link, if `per_frame` does not determine it.
    pub rate: Option<Rate>,
    /// Framing overhead per packet on the link.
    pub framing: Bytes,
}

/// When an adapter may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkModel {
    /// Always.
    PointToPoint,
    /// Intermittently: while it holds the token.
    Intermittent {
        /// Longest rotation time of the token.
        rotation: Duration,
        /// Holding time: how long the adapter may keep the token in each rotation.
        holding: Duration,
    },
    /// Statistically: others may send at the same time; after a collision each backs off for a random time, as on
    /// a shared Ethernet (§4.2.3, §8.2; E-128).
    Statistical {
        /// Duration of a collision, and the unit of the backoff.
        slot: Duration,
        /// Attempts that collide, in percent.
        collisions: u64,
    },
}

impl Description {
    /// The separate transfers of a message of `len`: headers and data if headers have buffers of their own,
    /// otherwise all at once.
    pub fn parts(&self, len: Bytes) -> Vec<Bytes> {
        let header = self.buffers.header.min(len);
        match self.buffers.separate_headers && header > Bytes::ZERO && header < len {
            true => vec![header, len - header],
            false => vec![len],
        }
    }

    /// Host cost of gathering the parts of a message of `len`.
    pub fn gathering_time(&self, len: Bytes) -> Duration {
        match self.parts(len).len() {
            1 => self.host.gather_per_byte.time_for(len),
            _ => Duration::ZERO,
        }
    }

    /// Duration of the transfer of a message of `len`: set-up, blocks and bytes, plus its transactions over PCI
    /// Express.
    pub fn transfer_time(&self, len: Bytes) -> Duration {
        let bus = super::pcie::transfer_time(self, len).unwrap_or_default();
        self.parts(len).into_iter().map(|part| self.part_time(part)).sum::<Duration>() + bus
    }

    /// Duration of the transfer of `len` bytes in one piece, without the transactions of PCI Express.
    pub(crate) fn part_time(&self, len: Bytes) -> Duration {
        let transfer = &self.transfer;
        let by_processor = match transfer.mode {
            TransferMode::Pio => true,
            TransferMode::Hybrid => len <= transfer.pio_max,
            TransferMode::Dma => false,
        };
        if by_processor {
            return transfer.pio_per_byte.time_for(len);
        }
        let blocks = transfer.per_block * len.0.div_ceil(transfer.block.0.max(1));
        let small = Bytes(len.0.min(transfer.small.0));
        let bytes = transfer.per_byte_small.time_for(small)
            + transfer.per_byte.time_for(Bytes(len.0 - small.0));
        transfer.setup + blocks + bytes
    }

    /// Duration of the network phase of a message of `len`: the part that does not use the memory, and the rest.
    pub fn network_time(&self, len: Bytes) -> (Duration, Duration) {
        let network = &self.network;
        let free = network.setup.scale_ceil(network.setup_overlap.0, network.setup_overlap.1);
        (network.processing + free, (network.setup - free) + self.wire_time(len))
    }

    /// How long a message of `len` occupies the network, whoever sends it: frames, bits and framing.
    pub fn wire_time(&self, len: Bytes) -> Duration {
        let network = &self.network;
        let frames = network.per_frame * len.0.div_ceil(network.frame.0.max(1));
        let bits = network.rate.map(|rate| rate.time_for(Bytes(len.0 + network.framing.0)));
        frames + bits.unwrap_or_default()
    }

    /// An adapter without costs, with one queue and a point-to-point network without delay, as a template.
    pub fn plain(what: &str) -> Description {
        Description {
            what: what.to_owned(),
            source: String::new(),
            host: HostInterface {
                kind: InterfaceKind::Fifo,
                driver: Driver::Own,
                queues: 1,
                synchronisation: Synchronisation::Interrupt,
                qos: false,
                handshake: false,
                transfer_ack: false,
                per_message: Duration::ZERO,
                saved_when_simple: Duration::ZERO,
                gather_per_byte: PerByte::ZERO,
                descriptor: Bytes::ZERO,
                batch: Batch { doorbell: 1, fetch: 1, write_back: 1 },
                coalescing: 1,
                coalescing_time: Duration::ZERO,
            },
            transfer: Transfer {
                mode: TransferMode::Dma,
                pio_max: Bytes::ZERO,
                pio_per_byte: PerByte::ZERO,
                setup: Duration::ZERO,
                block: Bytes(4096),
                per_block: Duration::ZERO,
                small: Bytes::ZERO,
                per_byte_small: PerByte::ZERO,
                per_byte: PerByte::ZERO,
                preemptible: false,
                urgent_first: false,
                pcie: None,
            },
            queueing: Queueing {
                stages: 3,
                queues: 1,
                discipline: Discipline::Fifo,
                at_network: None,
                depth: 1,
            },
            buffers: Buffers {
                place: BufferPlace::Shared,
                memory: Bytes::from_mib(8),
                banks: 2,
                threshold: 0,
                overload: Overload::Block,
                separate_headers: false,
                header: Bytes::ZERO,
            },
            network: Network {
                model: NetworkModel::PointToPoint,
                synchronisation: Synchronisation::Interrupt,
                processing: Duration::ZERO,
                setup: Duration::ZERO,
                setup_overlap: (0, 1),
                frame: Bytes(4096),
                per_frame: Duration::ZERO,
                rate: None,
                framing: Bytes::ZERO,
            },
        }
    }

    /// The same with the host's and the adapter's processors faster by a factor. END does this by slowing
    /// everything else down and dividing all results (§4.4.2, `C_sf`; E-55).
    #[must_use]
    pub fn with_faster_processors(&self, factor: u64) -> Description {
        let faster = |time: Duration| time.scale_ceil(1, factor.max(1));
        let mut fast = self.clone();
        fast.host.per_message = faster(self.host.per_message);
        fast.host.saved_when_simple = faster(self.host.saved_when_simple);
        fast.network.processing = faster(self.network.processing);
        for cost in [&mut fast.transfer.pio_per_byte, &mut fast.host.gather_per_byte] {
            if *cost != PerByte::ZERO {
                *cost = cost.scale_ceil(1, factor.max(1));
            }
        }
        fast
    }

    /// The same adapter with a simple interface: one command and one response per message (§5.2.1).
    #[must_use]
    pub fn with_simple_interface(&self) -> Description {
        let mut simple = self.clone();
        simple.host.handshake = false;
        simple.host.transfer_ack = false;
        simple.host.per_message = self.host.per_message.saturating_sub(self.host.saved_when_simple);
        simple
    }

    /// The same adapter with two banks of memory (§5.2.2).
    #[must_use]
    pub fn with_two_banks(&self) -> Description {
        let mut two = self.clone();
        two.buffers.banks = two.buffers.banks.max(2);
        two
    }

    /// The commands of a transmission, in order, and which side issues each (Fig 5.1; E-59).
    pub fn transmission(&self) -> Vec<(Side, &'static str)> {
        let host = &self.host;
        if host.kind == InterfaceKind::Rings {
            let ends = [(Side::Adapter, "write back"), (Side::Adapter, "interrupt")];
            let starts = [(Side::Host, "descriptor"), (Side::Host, "doorbell")];
            return starts.into_iter().chain(ends).collect();
        }
        let mut commands = Vec::new();
        if host.handshake {
            commands.extend([(Side::Host, "write"), (Side::Adapter, "write ack")]);
        }
        commands.push((Side::Host, "address list"));
        if host.transfer_ack {
            commands.push((Side::Adapter, "address ack"));
        }
        commands.push((Side::Adapter, "transmit ack"));
        commands
    }

    /// The commands of the reception of a message in `buffers` (Figs 5.2 and 7.2; E-60, E-97).
    pub fn reception(&self, buffers: usize) -> Vec<(Side, &'static str)> {
        if self.host.kind == InterfaceKind::Rings {
            return vec![(Side::Adapter, "write back"), (Side::Adapter, "interrupt")];
        }
        let mut commands = vec![(Side::Adapter, "read"), (Side::Host, "read ack")];
        for _ in 0..buffers.max(1) {
            commands.push((Side::Host, "address"));
            if self.host.transfer_ack {
                commands.push((Side::Adapter, "address ack"));
            }
        }
        commands.push((Side::Adapter, "read end"));
        commands
    }

    /// The final commands of a reception: on a generic adapter the transfer completes it, in one command; an
    /// adapter that acknowledges transfers has a separate command at the end (Figs 5.4 and 7.3).
    pub fn reception_stages(&self) -> &'static [&'static str] {
        match self.host.transfer_ack {
            true => &["initialization", "DMA", "completion"],
            false => &["initialization", "DMA"],
        }
    }

    /// The number of interrupts in a list of commands: one per command of the adapter, unless the host polls.
    pub fn interrupts(&self, commands: &[(Side, &'static str)]) -> u64 {
        match self.host.synchronisation {
            Synchronisation::Poll => 0,
            _ => commands.iter().filter(|(side, _)| *side == Side::Adapter).count() as u64,
        }
    }
}

/// Which side issues a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The driver.
    Host,
    /// The adapter.
    Adapter,
}

/// The adapter of `profiles/devices/cim.toml`, for tests.
#[cfg(test)]
pub(crate) fn cim() -> Description {
    let table = super::cim::table_5_1();
    let mut card = Description::plain("CIM");
    card.host = HostInterface {
        handshake: true,
        transfer_ack: true,
        per_message: table.message_overhead,
        saved_when_simple: Duration::from_us(356),
        ..card.host
    };
    card.transfer = Transfer {
        block: table.segment,
        per_block: table.segment_overhead,
        small: table.small,
        per_byte_small: table.per_byte_small,
        per_byte: table.per_byte_large,
        preemptible: true,
        ..card.transfer
    };
    card.queueing.depth = 2;
    card.buffers.banks = 1;
    card.network = Network {
        setup: table.transmit_overhead,
        setup_overlap: (1, 3),
        frame: table.frame,
        per_frame: table.frame_delay,
        ..card.network
    };
    card
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(commands: &[(Side, &'static str)]) -> String {
        commands.iter().map(|&(_, word)| word).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn e_59_transmission_needs_five_commands_and_three_interrupts() {
        let cim = cim();
        let commands = cim.transmission();
        let fig_5_1 = "write, write ack, address list, address ack, transmit ack";
        assert_eq!(words(&commands), fig_5_1);
        assert_eq!(cim.interrupts(&commands), 3);
        let simple = cim.with_simple_interface();
        assert_eq!(words(&simple.transmission()), "address list, transmit ack");
        assert_eq!(simple.interrupts(&simple.transmission()), 1);
    }

    #[test]
    fn e_60_reception_requests_addresses_until_everything_is_moved() {
        let one = "read, read ack, address, address ack, read end";
        assert_eq!(words(&cim().reception(1)), one);
        let two = "read, read ack, address, address ack, address, address ack, read end";
        assert_eq!(words(&cim().reception(2)), two);
    }

    #[test]
    fn e_97_the_generic_adapter_needs_four_commands_and_two_interrupts() {
        let mut generic = cim();
        generic.host.transfer_ack = false;
        let commands = generic.reception(1);
        assert_eq!(words(&commands), "read, read ack, address, read end");
        assert_eq!(generic.reception_stages().len(), 2, "E-98: Fig 7.3");
        assert_eq!(generic.interrupts(&commands), 2);
        generic.host.synchronisation = Synchronisation::Poll;
        assert_eq!(generic.interrupts(&commands), 0);
    }

    #[test]
    fn e_40_short_transfers_are_made_by_the_processor() {
        let mut card = cim();
        card.transfer.mode = TransferMode::Hybrid;
        card.transfer.pio_max = Bytes(64);
        // Table 3.1: 2040 ns per word of 4 bytes.
        card.transfer.pio_per_byte = PerByte::from_fs(510_000_000);
        assert_eq!(card.transfer_time(Bytes(64)), Duration::from_ns(32_640));
        assert_eq!(card.transfer_time(Bytes(1024)), cim().transfer_time(Bytes(1024)));
    }

    #[test]
    fn e_42_separate_headers_save_a_copy_and_cost_a_block() {
        let mut card = cim();
        // Table 3.1: 350 ns per word of 4 bytes.
        card.host.gather_per_byte = PerByte::from_fs(87_500_000);
        card.buffers.header = Bytes(64);
        let len = Bytes(4096);
        assert_eq!(card.gathering_time(len), Duration::from_ns(358_400));
        let mut apart = card.clone();
        apart.buffers.separate_headers = true;
        assert_eq!(apart.gathering_time(len), Duration::ZERO);
        assert_eq!(apart.parts(len), [Bytes(64), Bytes(4032)]);
        // 1 + 16 blocks, not 16.
        assert_eq!(apart.transfer_time(len) - card.transfer_time(len), Duration::from_ns(1_760));
        assert_eq!(apart.parts(Bytes(64)), [Bytes(64)], "headers only, no data");
    }

    #[test]
    fn the_times_are_those_of_the_equations() {
        assert_eq!(cim().transfer_time(Bytes(8192)), Duration::from_ns(3_046_400));
        let (free, bus) = cim().network_time(Bytes(4096));
        assert_eq!((free, free + bus), (Duration::from_us(450), Duration::from_ns(1_509_500)));
    }
}
