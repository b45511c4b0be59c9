//! Hosts: stages of protocol work that compete for CPUs, buses and engines.
//!
//! ```text
//! from the application --> [stage] --> [stage] --> ... --> to the network
//! to the application  <-- [stage] <-- [stage] <-- ... <-- from the network
//!                            |           |
//!                           cpu       cpu + memory bus          (shared by all stages)
//! ```
//!
//! [`resource`] is one resource with its priorities; [`machine`] joins stages to resources;
//! [`element`] gives the machine ports and a timer; [`profile`] describes a host as data;
//! [`copies`] draws how often a byte is moved; [`adapter`] runs adapters from their descriptions;
//! [`receive`] has the ways to receive; [`process`] what a message's processes cost;
//! [`instructions`] counts what a packet costs a processor, [`dependency`] what it costs at least;
//! [`port_processor`] is a router's port whose card, bus, memory and processor wait for each other;
//! [`lookup_engines`] are lookups in hardware that share one memory.
//!
//! Aurora's machines: [`coprocessor`] moves cells word by word, [`turbochannel`] is the bus of its
//! hosts, [`virtual_buffer`] absorbs cells while an interface is deaf, [`vidboard`] sends frames on
//! request, [`florb`] moves a word with an instruction, [`forward`] saturates forwarders of such parts.

pub mod adapter;
pub mod copies;
pub mod coprocessor;
pub mod dependency;
pub mod element;
pub mod florb;
pub mod forward;
pub mod instructions;
pub mod lookup_engines;
pub mod machine;
pub mod port_processor;
pub mod process;
pub mod profile;
pub mod receive;
pub mod resource;
pub mod turbochannel;
pub mod vidboard;
pub mod virtual_buffer;
