//! Adapters: what stands between a host's bus and a network.

pub mod cim;
