//! Transport protocols against their standards, and channels against theirs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bbr;
mod channel_establishment;
mod channel_node;
mod common;
mod dialogues;
mod dialogues_of_loss;
mod loss;
mod theory;
mod web;
