//! A router on Linux that is extensible at run time: the Dynamically Extensible Router of Washington University (D-01
//! to D-121) with today's technology.
//!
//! ```text
//!  FRR --FPM--> control processor --- commands ---> port processor --- interfaces
//!               routes, flows, changes              parse, classify, plugins, lookup, queues
//! ```
//!
//! | module             | is                                                                      |
//! |--------------------|-------------------------------------------------------------------------|
//! | [`config`]         | `router.toml`                                                           |
//! | [`admission`]      | what flows may reserve at both of their ports                           |
//! | [`port_processor`] | the thread that packets pass, and its housekeeper; a process of its own |
//! | [`control`]        | boots, follows FRR and the kernel, does what people ask                 |
//! | [`rib`]            | routes of all sources, and the smallest set of changes                  |
//! | [`in_band`]        | reservations that packets carry                                         |
//! | [`rsvp`]           | reservations and labels between routers                                 |
//! | [`mpls`]           | labels in front of packets                                              |
//! | [`lldp`]           | how routers on a line identify themselves                               |
//! | [`twin`]           | what a router would do, predicted from its file and this machine        |
//! | [`message`]        | what the control processor tells the port processor                     |

pub mod admission;
pub mod config;
pub mod control;
pub mod fuzz;
pub mod in_band;
mod link;
pub mod lldp;
pub mod message;
pub mod port_processor;
pub mod rib;
pub mod twin;

pub use lastmeter_lan::labels::{mpls, rsvp};
pub use link::Start;
