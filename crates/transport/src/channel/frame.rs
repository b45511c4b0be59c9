//! What passes between a node, its applications and its neighbours: packets, messages, notices.
//!
//! ```text
//! application --Grant, Unsent--> [ node ] ==Frame==> neighbour
//!             <--Notice, Delivered--'
//! ```

use super::message::{ChannelId, Event, Node as NodeId};
use super::reassembly::Part;
use lastmeter_base::{Bytes, Time};

/// A queue of messages at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Where it is.
    pub node: NodeId,
    /// Which of its queues.
    pub queue: u32,
}

/// The sender: a channel, or a node's best effort, which is numbered too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// A real-time channel.
    Channel(ChannelId),
    /// Best effort of a node to a queue.
    Data(NodeId),
}

/// A packet between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<B = ()> {
    /// Its stream.
    pub stream: Stream,
    /// Where its message ends.
    pub to: Address,
    /// Which part of which message.
    pub part: Part,
    /// Its length.
    pub len: Bytes,
    /// The logical arrival of its message at this node; for best effort, when it was sent.
    pub logical: Time,
    /// When the message is due at its end; `Time::MAX` for best effort.
    pub due: Time,
    /// What it contains.
    pub content: B,
}

/// A complete message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<B = ()> {
    /// Whose it is.
    pub stream: Stream,
    /// Its number within the stream.
    pub message: u64,
    /// Its length.
    pub len: Bytes,
    /// For best effort, when it was sent; for a channel, its logical arrival at its source.
    pub made: Time,
    /// When it was complete.
    pub at: Time,
    /// When it was due.
    pub due: Time,
    /// What its packets contain, in order.
    pub contents: Vec<B>,
}

/// A notification to applications here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An event of a channel that starts here.
    Channel(Event),
    /// The last packet of a message has left this node.
    Sent {
        /// Whose it is.
        stream: Stream,
        /// Its number within the stream.
        message: u64,
    },
    /// A message waits in a queue.
    Arrived {
        /// Which queue.
        queue: u32,
    },
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The channel is not established.
    NoChannel,
    /// The message is longer than the contract allows, or than best effort may be.
    TooLong,
    /// The policer dropped all of it as excess.
    NotPromised,
    /// It must wait until packets of its channel have left ([`super::policing::Excess::Delay`]).
    Wait,
    /// No link leads there.
    NoLink,
}

/// Packets that may wait at each link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Of each channel that starts here.
    pub channel: u64,
    /// Of best effort.
    pub data: usize,
}

/// Packets lost at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Excess of channels that start here.
    pub excess: u64,
    /// Best effort that found no room.
    pub data: u64,
    /// Of a channel that has no more slots here, or whose time is impossible: its last node breaks the contract.
    pub broken: u64,
    /// Of no channel, or of no node known here.
    pub unknown: u64,
    /// Complete messages for which their queue had no room.
    pub queue: u64,
}

/// A message that may be sent, before its packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its channel.
    pub id: ChannelId,
    /// Its number.
    pub message: u64,
    /// Its length.
    pub len: Bytes,
    /// Its logical arrival.
    pub logical: Time,
    /// When it is due at its end.
    pub due: Time,
    /// By when it must leave this node.
    pub leaves: Time,
    /// Packets that may be sent, the first of `count`.
    pub packets: u32,
    /// All its packets.
    pub count: u32,
}
