//! The tests of the crate as its users see it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say what they measured")]

mod adversarial;
mod capacity;
mod expressions;
mod fuzz;
mod sandboxed;
mod scaler;
mod wave_video;
