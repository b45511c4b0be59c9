//! Experiments from their text to their ledger.

mod broken;
mod compare;
mod experiments;
mod follow;
mod golden;
mod hardware;
mod historic;
mod kinds;
mod reception;
mod sweep;
