//! Messages between nodes about channels, and events for the applications.

use super::contract::{Contract, Flaw};
use lastmeter_base::Duration;

/// Longest route.
pub const ROUTE_MAX: usize = 64;

/// The most channels with state at a node.
pub const CHANNELS_MAX: usize = 1 << 14;
/// The most ended channels that a node remembers; beyond that, it admits no others until some are forgotten.
pub const ENDED_MAX: usize = 1 << 16;

/// A node of the network.
pub type Node = u32;

/// A channel, unique in the network for all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    /// Its source.
    pub source: Node,
    /// That node's number for it.
    pub local: u64,
}

/// A channel at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its contract.
    pub contract: Contract,
    /// The node before this one, unless it starts here.
    pub before: Option<Node>,
    /// The next node, unless it ends here.
    pub after: Option<Node>,
    /// The bound of the link to it.
    pub bound: Option<Duration>,
    /// Slots for its packets here.
    pub slots: u64,
    /// The horizon of the link before.
    pub horizon: Duration,
}

/// A message to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Requests a channel.
    Request {
        /// The contract.
        contract: Contract,
        /// From source to destination.
        route: Vec<Node>,
        /// The receiver's index in it.
        at: usize,
        /// The rest of the deadline.
        left: Duration,
        /// The horizon of the previous link.
        horizon: Duration,
    },
    /// Accepted as far as the destination, with this slack for each link.
    Accept {
        /// The rest of the deadline at the destination.
        slack: Duration,
    },
    /// Refused, or revoked.
    Reject,
    /// The channel has ended.
    Release,
    /// The answer to Release, and to Reject.
    Released,
    /// The channel is still needed.
    Refresh,
    /// The channel still exists, as far as the destination.
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

/// An event for the application at a channel's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Established; the application may send.
    Established(ChannelId),
    /// Refused: some node lacks resources.
    Refused(ChannelId),
    /// It was established, and has ended.
    Broken(ChannelId),
}

/// Why a channel cannot even be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The contract is impossible.
    Contract(Flaw),
    /// The route does not start here, has no other node, is too long or visits a node twice.
    Route,
}
