//! Networks built from queues, servers and cells: what stands between hosts as one node.
//!
//! * [`vunet`]: Aurora's VuNet, its switches, links, cards and viewers;
//! * [`timed_token`]: rings with a timed token, FDDI's and Jetstream's;
//! * [`fabric`]: cell switches with distributed queueing, multistage networks, fat trees;
//! * [`wormhole`]: local networks without queues, whose packets hold the links that they cross;
//! * [`stripe`]: one circuit over several links;
//! * [`preempt`]: links on which an urgent unit interrupts another.

pub mod fabric;
pub mod fuzz;
pub mod preempt;
pub mod stripe;
pub mod timed_token;
pub mod vunet;
pub mod wormhole;
