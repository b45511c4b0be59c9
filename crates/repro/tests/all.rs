//! Reproductions, and the machines that they need.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod aurora;
mod channels;
#[path = "../../lab/tests/golden/mod.rs"]
mod golden;
mod repro;
mod thesis;
