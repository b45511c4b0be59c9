//! Adapters: between a host's bus and a network.
//!
//! [`description`] describes any adapter in five sections. [`transmitter`] is the machine of one that sends, over
//! a network that is always available or only while it holds a [`token`], and [`element`] puts it in a graph.
//! [`receiver`] is the machine of one that receives, [`moderation`] that of its interrupts.
//! [`pipeline`] sends messages back to back through it; [`emulation`] computes what can be emulated; [`picture`]
//! draws an adapter, and [`operating`] chooses how long packets should be and how many in flight. [`firmware`] writes a
//! skeleton of its firmware, [`hardware`] its control logic in Verilog.
//! [`pcie`] computes the bandwidth that PCI Express leaves for packets; [`cim`] has the equations of one adapter.

pub mod cim;
#[cfg(test)]
mod cim_tests;
pub mod description;
pub mod element;
pub mod emulation;
pub mod engines;
pub mod firmware;
pub mod hardware;
pub mod moderation;
pub mod operating;
pub mod pcie;
pub mod picture;
pub mod pipeline;
pub mod receiver;
pub mod token;
pub mod transmitter;
mod waiting;
