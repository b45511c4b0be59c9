//! Real-time channels on sockets: the machines of `lastmeter_transport::channel`, a clock, and UDP between hosts (E-15
//! to E-26, E-34 to E-36, E-79, E-80).
//!
//! ```text
//! program --send--> police --> [handler, a thread for each channel] --> three queues --> adapter ==UDP==> next host
//! program <--receive-- queue <-- reassembly <------------------------------------------- socket  <==UDP== last host
//!                                                         manager <--- request, accept, reject, release ---> managers
//! ```
//!
//! | Call of the document | Here |
//! |---|---|
//! | `rtc_init` | [`Host::init`]: an [`Inbox`] |
//! | `rtc_create` | [`Host::create`]: a [`Channel`], when every node of the route has admitted it |
//! | `rtc_send` | [`Channel::send`] |
//! | `rtc_rcv`, `rdata_rcv` | [`Inbox::receive`] |
//! | `rtc_close` | the [`Channel`] is dropped |
//! | `rdata_send` | [`Host::send_data`] |
//!
//! A host's packets leave when its adapter's model says that their last bit would: own timers pace them, not
//! `SO_TXTIME`, which needs a queueing discipline (`etf`, `fq`) that many kernels lack. The kernel below adds what it
//! adds; [`Lags`] says how late packets left.
//!
//! | Limit | Value | What happens beyond |
//! |---|---|---|
//! | [`datagram::DATAGRAM_LEN_MAX`] | 60,000 B | refused |
//! | [`datagram::MESSAGE_LEN_MAX`] | 16 MiB | refused |
//! | `channel::message::CHANNELS_MAX` | 16,384 | no more are admitted |
//! | [`QUEUES_MAX`] | 1024 | no more queues |
//! | [`Settings::room`] | - | packets of a channel that starts here; of best effort for each link |
//! | [`HANDLER_ROOM`] | 1024 | messages that wait for their handler: the sender blocks |
//!
//! Datagrams from addresses that are no neighbour's are counted and ignored. With a key, each carries a BLAKE3 tag; an
//! attacker on the path can still repeat datagrams, which costs the channel that they belong to its own slots. Without
//! one, listen on loopback or inside a network namespace. Nothing is encrypted.
//!
//! Source: Indiresan, University of Michigan, 1997, ch. 3, §6.1. Deviations: links are paced in user space; handlers
//! are threads that take turns ([`lastmeter_transport::channel::turns`]) instead of processes of an own kernel, and
//! early messages wait in the link's third queue, not before their handler.

mod clock;
pub mod datagram;
mod handler;
mod host;
mod network;
pub mod part;
pub mod plan;
pub mod session;
pub mod simulation;

pub use clock::Epoch;
pub use host::{Channel, Delivery, Host, Inbox, Refusal, Settings};
pub use lastmeter_transport::channel::node::{Address, Drops, Room, Unsent};
pub use network::{Lags, Seen};

/// The most queues of a host.
pub const QUEUES_MAX: usize = 1024;
/// Messages that wait for their channel's handler.
pub const HANDLER_ROOM: usize = 1024;
/// P: packets that a handler makes before it checks whether a more urgent one waits (§6.1).
pub const PACKETS_BETWEEN: usize = 4;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests;
