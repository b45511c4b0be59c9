//! A ring on which a timed token determines which station sends, for how long, and in which class: Jetstream's.
//!
//! ```text
//!        token -->  station 1 --> station 2 --> ... --> master --.
//!          ^                                                     |
//!          '-----------------------------------------------------'
//! ```
//!
//! * [`station`]: the timers of one station, which determine what it may send when the token arrives.
//! * [`allocation`]: allocation of synchronous time, and admission control.
//! * [`medium`]: a whole ring in virtual time: token, queues of two classes, loss and recovery.
//! * [`element`]: that ring as an element, with a port for each station.
//! * [`node`]: how a node handles words, messages and frames: bring-up, ring identities,
//!   stripping, monitor, recovery; explored exhaustively for small rings.
//! * [`faults`]: faults and repairs, on a ring, with a hub, with ports.
//! * [`elastic`]: the buffer between two clocks.
//! * [`mod@unit`]: the interface to an ATM network.
//!
//! The arithmetic of the budgets alone is in `lastmeter_repro::machines::ring::budget`.
//!
//! Source: Watson et al., AAL5 at a Gigabit for a Kilobuck, HPL-93-37, 1993, §3; the timers are
//! those of FDDI (ISO 9314-2 §8), of which Jetstream uses only these (J-12).

pub mod allocation;
pub mod bench;
pub mod elastic;
pub mod element;
pub mod faults;
pub mod medium;
pub mod node;
pub mod station;
pub mod unit;
