//! Plugins: small WebAssembly programs with which owners say what others may do with their devices.
//!
//! ```text
//! module + signature -> trust -> Host::load -> Class -> Instance --+
//! expression ------------------------------------> Expression -----+-> Chain -> Effect
//!                                                    requests -----+
//! ```
//!
//! A [`host::Host`] compiles and checks modules, an [`instance::Instance`] is asked about batches of requests, and a
//! [`chain::Chain`] does what all of its members allow. Requests are packets, block commands, framebuffer commands
//! and video frames. `docs/plugin-interface.md` describes the interface for those who write plugins.
//!
//! This crate reads no clock, starts no thread and opens no file: the caller gives the time, ticks the epoch
//! ([`host::Ticker`]) and brings the bytes. So the same code runs in a model.

pub mod abi;
pub mod cases;
pub mod chain;
#[cfg(feature = "component")]
pub mod component;
pub mod cost;
pub mod expression;
pub mod fuzz;
pub mod host;
pub mod index;
pub mod instance;
pub mod request;
pub mod setting;
mod state;
pub mod store;
pub mod trust;

pub use request::{Body, Kind, Rect, Request, Verdict};
