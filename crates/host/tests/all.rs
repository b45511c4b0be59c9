//! Hosts compared with published results and with theory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod end_stages;
mod theory;
