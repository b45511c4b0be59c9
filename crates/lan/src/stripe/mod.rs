//! Striping: one stream split over several channels of different delay, and merged again.
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
//! | participation of hosts and networks | follows from it: [`Topology::hosts`], [`Topology::networks`] |
//! | layer, and with it the striping unit | [`Unit`]: a cell, a PDU, a flow |
//! | implementation: balance and synchronisation | [`Balance`], [`Sync`] |
//!
//! * [`split`]: the sender; [`merge`]: the receiver, which reports what it cannot put in order.
//! * [`element`]: a trunk of several channels with both at its ends.
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
    /// Within the network, over one hop or several.
    Internal,
    /// Within the network, and each of these stripes is striped again.
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

/// The largest unit that stays whole on one stripe (freedom 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// A cell: the ATM layer.
    Cell,
    /// The cells of a PDU together: the adaptation layer.
    Pdu,
    /// All that an application sends on one connection.
    Flow,
}

/// Which stripe is next (freedom 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Balance {
    /// One after the other.
    RoundRobin,
    /// One after the other, each until it has had its quantum of bytes (surplus round robin).
    Surplus {
        /// Bytes of a turn.
        quantum: u64,
    },
}

/// How the receiver knows the order (freedom 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sync {
    /// Not at all: units are passed on as they come.
    None,
    /// Each unit carries a number of eight bits.
    Numbers,
    /// The receiver does what the sender does, and a marker on each stripe after so many rounds puts it
    /// right (logical reception).
    Markers {
        /// Rounds from marker to marker.
        every: u64,
    },
    /// Cell c of a PDU goes to stripe c mod n, the last cell of a PDU on each stripe is marked, and its
    /// length says whether any is missing (Osiris).
    Pdu,
}
