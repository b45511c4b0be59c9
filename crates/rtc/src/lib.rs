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
//! A packet leaves at the instant when, by the model of the host's adapter, its last bit would. Timers in this program
//! pace packets, not `SO_TXTIME`, which needs a queueing discipline (`etf`, `fq`) that many kernels lack. The kernel
//! adds its own delays; [`Lags`] says how late packets left.
//!
//! | Limit | Value | What happens beyond |
//! |---|---|---|
//! | [`datagram::DATAGRAM_LEN_MAX`] | 60,000 B | refused |
//! | [`datagram::MESSAGE_LEN_MAX`] | 16 MiB | refused |
//! | `channel::message::CHANNELS_MAX` | 16,384 | no more are admitted |
//! | [`QUEUES_MAX`] | 1024 | no more queues |
//! | [`Settings::room`] | packets | a channel's message is refused, best effort is dropped |
//! | [`HANDLER_ROOM`] | 1024 | the sender blocks |
//!
//! Datagrams from addresses other than neighbours' are counted and ignored. With a key, each carries a BLAKE3 tag; an
//! attacker on the path can still repeat datagrams, which uses up slots of the channel that they belong to. Without a
//! key, listen on loopback or inside a network namespace. Nothing is encrypted.
//!
//! Source: Indiresan, University of Michigan, 1997, ch. 3, §6.1. Deviations: links are paced in user space; handlers
//! are threads that take turns ([`lastmeter_transport::channel::turns`]) instead of processes under a special kernel,
//! and early messages wait in the link's third queue, not ahead of their handler.

mod clock;
pub mod datagram;
pub mod fuzz;
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
