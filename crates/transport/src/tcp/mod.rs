//! TCP: a connection without input or output, its congestion controls, the `TIME_WAIT` state of closed
//! connections, and the element that runs many connections in a model.
//!
//! ```text
//! write, offer, close --> +------------+ --transmit--> Segment
//!       consume, read <-- | Connection |
//!        ready_at <------ +------------+ <--receive--- Segment
//!                           expire ^
//! ```
//!
//! | Part | Source |
//! |---|---|
//! | states, windows, probes | RFC 9293, RFC 5961 (resets), RFC 1122 (delayed acknowledgements) |
//! | timer | RFC 6298 |
//! | options | RFC 7323 (scaling, timestamps), RFC 2018 (selective acknowledgement) |
//! | loss | RFC 5681, RFC 6582 (NewReno), RFC 6675 (with SACK), RFC 9937 (proportional reduction), RFC 3042 |
//! | marks | RFC 3168; RFC 8257 (DCTCP) |
//! | growth | RFC 5681 with RFC 3465, RFC 9438 (CUBIC), RFC 8257 (DCTCP) |
//! | pace and window by a model of the path | draft-cardwell-iccrg-bbr-congestion-control-00 (BBR) |
//! | who lingers | Faber, Touch & Yue, The TIME-WAIT state in TCP and its effect on busy servers, INFOCOM 1999 |
//! | Hoe's cures | Hoe, Start-up Dynamics of TCP's Congestion Control and Avoidance Schemes, MIT 1995 |

mod config;
mod connection;
pub mod control;
mod due;
mod host;
pub mod kind;
mod ranges;
mod rtt;
mod segment;
pub mod time_wait;
mod web;

pub use config::{Config, Lingering, Recovery};
pub use connection::{Connection, Counters, Ended, State};
pub use host::{Application, Labels, TcpHost};
pub use rtt::Rtt;
pub use segment::{Blocks, CWR, ECE, Flags, IP_HEADER_LEN, PACKED_WORDS, Segment};
pub use web::{Costs, Exchange, WebClients, WebServer};
