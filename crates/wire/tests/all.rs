//! Formats compared with their standards and with other programs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod atm;
mod camera;
mod capture;
mod internet;
mod reassembly;
mod tshark;
