//! The program as a user runs it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;
mod broken_plans;
mod docs;
mod failover;
mod figures;
mod follow;
mod forward;
mod fuzz;
#[path = "../../lab/tests/golden/mod.rs"]
mod golden;
mod guest;
mod ns3_dumbbell;
mod receive;
mod rude;
mod serve;
mod sweep;
mod terminal;
