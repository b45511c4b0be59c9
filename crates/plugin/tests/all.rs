//! The tests of the crate as its users see it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod adversarial;
mod capacity;
mod expressions;
mod fuzz;
