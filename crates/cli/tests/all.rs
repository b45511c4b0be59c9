//! The program as a user runs it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod broken_plans;
mod docs;
mod follow;
mod fuzz;
#[path = "../../lab/tests/golden/mod.rs"]
mod golden;
mod ns3_dumbbell;
mod receive;
mod rude;
mod serve;
mod sweep;
