//! Hosts: stages of protocol processing that compete for CPUs, buses and engines.
//!
//! ```text
//! from the application --> [stage] --> [stage] --> ... --> to the network
//! to the application  <-- [stage] <-- [stage] <-- ... <-- from the network
//!                            |           |
//!                           cpu       cpu + memory bus          (shared by all stages)
//! ```
//!
//! [`resource`] is one resource with its priorities; [`machine`] connects stages to resources; [`element`] gives
//! the machine ports and a timer. [`profile`] describes a host as data; [`kind`] is the page of a host. [`copies`]
//! draws how often each byte is moved. [`adapter`] simulates adapters from their descriptions. [`receive`] has the
//! ways to receive. [`port_processor`] is a router's port whose card, bus, memory and processor wait for each
//! other. [`lookup_engines`] are lookups in hardware that share one memory. [`disk`] is a disk with zones.

pub mod adapter;
mod assembly;
pub mod bench;
pub mod copies;
pub mod disk;
pub mod element;
pub mod kind;
pub mod lookup_engines;
pub mod machine;
pub mod port_processor;
pub mod profile;
pub mod receive;
pub mod resource;

/// The kinds of nodes at which traffic begins and ends.
pub static HOSTS: &[lastmeter_base::kind::Kind] = &[kind::KIND];

/// All other kinds of nodes in this crate.
pub static NODES: &[lastmeter_base::kind::Kind] =
    &[port_processor::kind::KIND, adapter::element::KIND, disk::KIND];
