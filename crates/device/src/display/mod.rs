//! A display on the network: one framebuffer, programs that draw on it, viewers that show it, and its owner's policies
//! for the requests of each.
//!
//! ```text
//! programs --commands--> policy --> screen --damage--> policy --> encoding --> viewers (RFB 3.8, in TLS, in WebSocket)
//!          <--events---- policy <-------------------------------------------- keys, pointer
//! ```
//!
//! A client may be given a part of the screen: a derived display, whose corner is its origin, and outside of
//! which it can neither draw nor read.

pub mod adapt;
pub mod commands;
pub mod damage;
pub mod datagrams;
pub mod encoding;
pub mod gate;
mod lossy;
mod party;
pub mod screen;
pub mod server;
mod session;
mod transport;
pub mod viewer;
mod web;
mod welcome;
