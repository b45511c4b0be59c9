//! Striping: one stream split over several channels with different delays, and merged again.
//!
//! ```text
//!                .--> stripe 0: delay, jitter, loss --> [ FIFO ] --.
//! units --> split+--> stripe 1: ...                 --> [ FIFO ] --+merge --> units, in order or reported
//!                '--> stripe 2: ...                 --> [ FIFO ] --'
//! ```
//!
//! The reference model of the Aurora report has four degrees of freedom:
//!
//! | freedom | here |
//! |---|---|
//! | topology: where the path is split | [`Topology`]: between the hosts, within the network, or both |
//! | participation of hosts and networks | [`Topology::hosts`], [`Topology::networks`]: `takes-part` of [`element`] |
//! | layer, and with it the striping unit | [`Unit`]: a cell, a PDU, a flow |
//! | implementation: balance and synchronisation | [`Balance`], [`Sync`] |
//!
//! * [`split`]: the sender; [`merge`]: the receiver, which reports what it cannot put in order;
//! * [`element`]: a trunk of several channels, with both at each end.
//!
//! Source: Aurora report §3.4.2; logical reception: Adiseshu, Parulkar & Varghese, A reliable and
//! scalable striping protocol, SIGCOMM 1996; a PDU over all stripes: Davie, A host-network interface
//! architecture for ATM, SIGCOMM 1991 (Osiris).

pub mod element;
pub mod merge;
pub mod split;

/// Where the path between two hosts is split into stripes (freedom 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// At the hosts themselves.
    EndToEnd,
    /// Within the network, over one or more hops.
    Internal,
    /// Within the network, with each of these stripes striped again.
    Mixed,
}

impl Topology {
    /// Whether hosts take part (freedom 2).
    pub fn hosts(self) -> bool {
        self != Topology::Internal
    }
    /// Whether nodes of the network take part (freedom 2).
    pub fn networks(self) -> bool {
        self != Topology::EndToEnd
    }
}

/// The striping unit: it always stays on one stripe (freedom 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// A cell: the ATM layer.
    Cell,
    /// The cells of a PDU together: the adaptation layer.
    Pdu,
    /// Everything that an application sends on one connection.
    Flow,
}

/// How the next stripe is chosen (freedom 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Balance {
    /// Round robin.
    RoundRobin,
    /// Round robin by bytes: each keeps its turn until it has sent its quantum (surplus round robin).
    Surplus {
        /// Bytes per turn.
        quantum: u64,
    },
}

/// How the receiver restores the order (freedom 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sync {
    /// Not at all: units are passed on as they arrive.
    None,
    /// Each unit carries a number of eight bits.
    Numbers,
    /// The receiver simulates the sender, and a marker on each stripe every few rounds corrects it (logical
    /// reception).
    Markers {
        /// Rounds between markers.
        every: u64,
    },
    /// Cell c of a PDU goes to stripe c mod n; the last cell of a PDU on each stripe is marked, and the length of
    /// the PDU shows whether any is missing (Osiris).
    Pdu,
}
