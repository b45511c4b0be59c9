//! Adapters: what stands between a host's bus and a network.
//!
//! [`description`] describes any of them in five sections; [`transmitter`] runs one; [`picture`]
//! draws it; [`pcie`] says what its bus leaves to packets; [`cim`] has the equations of one.

pub mod cim;
pub mod description;
pub mod pcie;
pub mod picture;
pub mod transmitter;
