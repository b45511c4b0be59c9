//! Adapters: between a host's bus and a network.
//!
//! [`description`] describes any of them in five sections; [`transmitter`] is one that sends, on a
//! network that is always there or while it has a [`token`], and [`element`] one in a graph;
//! [`pipeline`] sends messages back to back through it; [`emulation`] computes what an emulated one
//! can represent; [`picture`] draws it; [`firmware`] writes the skeleton of its program,
//! [`hardware`] its control in Verilog; [`pcie`] computes what its bus leaves to packets; [`cim`]
//! has the equations of one.

pub mod cim;
#[cfg(test)]
mod cim_tests;
pub mod description;
pub mod element;
pub mod emulation;
pub mod engines;
pub mod firmware;
pub mod hardware;
pub mod pcie;
pub mod picture;
pub mod pipeline;
pub mod token;
pub mod transmitter;
mod waiting;
