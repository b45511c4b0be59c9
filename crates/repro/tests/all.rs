//! Reproductions, and the machines that they need.

mod aurora;
#[path = "../../lab/tests/golden/mod.rs"]
mod golden;
mod repro;
mod thesis;
