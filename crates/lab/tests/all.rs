//! Experiments from their text to their ledger.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod broken;
mod compare;
mod experiments;
mod follow;
mod golden;
mod hardware;
mod historic;
mod kinds;
mod labels;
mod metamorphic;
mod mutations;
mod paths;
mod reception;
mod steady;
mod sweep;
mod verdicts;
