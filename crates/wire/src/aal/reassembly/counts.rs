//! Counts of cells: delivered, held, or lost with a reason.

use crate::aal::aal5::Fault;

/// Why cells were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The PDU's CRC or checksum does not match: a cell was corrupted, lost, duplicated or misrouted.
    Check,
    /// Its length does not agree with its number of cells.
    Length,
    /// The sender aborted it.
    Abort,
    /// More cells than the circuit's longest PDU.
    TooLong,
    /// The reassembler's memory was full.
    Memory,
    /// The last cell did not arrive in time.
    Timeout,
    /// The circuit was closed.
    Closed,
    /// A cell of a circuit that is not open.
    UnknownCircuit,
    /// A cell without user data.
    NotUserData,
    /// A cell whose header is damaged.
    Header,
}

impl Reason {
    /// All of them, in the order of [`Counts::lost`].
    pub const ALL: [Reason; 10] = [
        Reason::Check,
        Reason::Length,
        Reason::Abort,
        Reason::TooLong,
        Reason::Memory,
        Reason::Timeout,
        Reason::Closed,
        Reason::UnknownCircuit,
        Reason::NotUserData,
        Reason::Header,
    ];
    /// The reason in a ledger.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Check => "check",
            Reason::Length => "length",
            Reason::Abort => "abort",
            Reason::TooLong => "too long",
            Reason::Memory => "memory",
            Reason::Timeout => "timeout",
            Reason::Closed => "closed",
            Reason::UnknownCircuit => "unknown circuit",
            Reason::NotUserData => "not user data",
            Reason::Header => "header",
        }
    }
}

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Reason {
        match fault {
            Fault::Check => Reason::Check,
            Fault::Length => Reason::Length,
            Fault::Abort => Reason::Abort,
        }
    }
}

/// Losses for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// PDUs; zero if a cell belongs to none.
    pub pdus: u64,
    /// Cells.
    pub cells: u64,
}

/// The fates of all cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cells received.
    pub received: u64,
    /// PDUs delivered intact.
    pub pdus: u64,
    /// Their cells.
    pub delivered: u64,
    /// Cells of partial PDUs.
    pub held: u64,
    /// Losses by reason, indexed with `reason as usize`.
    pub lost: [Lost; Reason::ALL.len()],
}

impl Counts {
    /// The losses for `reason`.
    pub fn lost(&self, reason: Reason) -> Lost {
        self.lost[reason as usize]
    }
    /// Whether every cell is accounted for.
    pub fn balances(&self) -> bool {
        let lost: u64 = self.lost.iter().map(|lost| lost.cells).sum();
        self.received == self.delivered + self.held + lost
    }
}
