//! Formats against their standards and other programs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod atm;
mod capture;
mod internet;
mod reassembly;
mod tshark;
