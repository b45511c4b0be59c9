//! What nodes say to each other about channels, and to the applications.

use super::contract::{Contract, Flaw};
use lastmeter_base::Duration;

/// Longest route.
pub const ROUTE_MAX: usize = 64;

/// A node of the network.
pub type Node = u32;

/// A channel, for the whole network and for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    /// Where it begins.
    pub source: Node,
    /// That node's number for it.
    pub local: u64,
}

/// What nodes tell their neighbours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// May it pass?
    Request {
        /// What is promised and wanted.
        contract: Contract,
        /// From source to destination.
        route: Vec<Node>,
        /// The receiver's place in it.
        at: usize,
        /// What is left of the deadline.
        left: Duration,
        /// The horizon of the link before.
        horizon: Duration,
    },
    /// It may, as far as the destination: so much more for each link.
    Accept {
        /// What of the deadline was left at the destination.
        slack: Duration,
    },
    /// It may not, or no longer.
    Reject,
    /// It has ended.
    Release,
    /// The answer to Release, and to Reject.
    Released,
    /// It is still wanted.
    Refresh,
    /// It still stands, as far as the destination.
    Refreshed,
}

/// A message between neighbours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Envelope {
    /// Who sends it.
    pub from: Node,
    /// To whom.
    pub to: Node,
    /// Of which channel.
    pub id: ChannelId,
    /// What.
    pub message: Message,
}

/// What the application at a channel's source is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// It stands; the application may send.
    Established(ChannelId),
    /// Not enough is left somewhere.
    Refused(ChannelId),
    /// It stood, and does no more.
    Broken(ChannelId),
}

/// Why a channel cannot even be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The contract is impossible.
    Contract(Flaw),
    /// The route does not begin here, has no other node, is too long or passes a node twice.
    Route,
}
