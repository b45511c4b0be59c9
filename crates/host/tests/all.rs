//! Hosts against what was published and what follows from theory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod end_stages;
mod theory;
