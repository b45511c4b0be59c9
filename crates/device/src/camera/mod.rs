//! A camera whose receivers set the pace: nothing is captured, encoded or sent that nobody asked for.
//!
//! ```text
//! source -> store -> convert -> policy -> encode -> shape -> network -> decode -> display -> asks again
//!           newest     its      its        its       its
//!           frame      format   chain      size      knobs               a thread for each viewer
//! ```
//!
//! Rows: A-45, A-48, A-52.

pub mod cycle;
pub mod encode;
pub mod find;
pub mod frame;
pub mod gate;
mod http;
pub mod kernel;
pub mod pace;
mod party;
mod pass;
pub mod pattern;
pub mod receiver;
mod rtsp;
pub mod server;
mod session;
pub mod shape;
pub mod source;
pub mod store;
