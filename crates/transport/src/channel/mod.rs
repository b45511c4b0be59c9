//! Real-time channels: guarantees from one application to another, as machines without input or
//! output (E-15 to E-26, E-79, E-80).
//!
//! ```text
//! application --contract--> [manager] ~~forward, reverse~~> [manager] ~~> [manager]
//!                               |  admission, buffers           |
//! application --messages--> [policing] -> [scheduler] ==link==> [scheduler] ==link==> delivered
//!                            logical time    three queues           by logical time + deadline
//! ```
//!
//! | Part | Holds | Source |
//! |---|---|---|
//! | [`contract`] | an application's traffic and required service | §3.2.1 |
//! | [`arrival`] | logical arrival times, the bounded process | §3.2.1 |
//! | [`admission`] | which bound a link or a processor can guarantee | Fig 3.3; Zheng & Shin |
//! | [`manager`] | establishment over many nodes, and tear-down | §3.2.2 |
//! | [`scheduler`] | three queues and the link horizon | §3.2.4 |
//! | [`policing`] | what happens to traffic in excess of the contract | §3.2.4, §3.5.1 |
//! | [`handlers`] | a processor that serves messages by deadline | §6.1, Fig 6.1 |
//! | [`reassembly`] | messages from packets, at the receiver | §3.2.3 |
//! | [`element`], [`kind`] | both ends in a graph, and how experiments describe them | - |
//! | [`frame`] | what passes between a node, its applications and its neighbours | - |
//! | [`node`] | the five calls that applications make | Table 3.2 |
//! | [`station`] | a node and the adapters of its links, in virtual time or on a clock | - |
//! | [`turns`] | which handler has a real processor | §6.1 |
//!
//! Source: Indiresan, "Exploring quality-of-service issues in network interface design", University
//! of Michigan, 1997, ch. 3; Kandlur, Shin & Ferrari, IEEE TPDS 5(10), 1994.

pub mod admission;
pub mod arrival;
pub mod contract;
pub mod element;
pub mod frame;
pub mod handlers;
pub mod kind;
pub mod manager;
pub mod message;
pub mod node;
pub mod policing;
pub mod reassembly;
pub mod scheduler;
pub mod station;
pub mod turns;
