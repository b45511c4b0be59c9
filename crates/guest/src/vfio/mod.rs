//! vfio-user: how QEMU hands a PCI device to another process, the device's side.
//!
//! ```text
//! QEMU (vfio-user-pci) == Unix socket == [ session: config space, memory, interrupts ] --> function --> device
//! ```
//!
//! | module      | gives                                                        |
//! |-------------|--------------------------------------------------------------|
//! | [`message`] | formats of requests and replies                              |
//! | [`socket`]  | messages and descriptors over a socket                       |
//! | [`config`]  | the configuration space of the PCI function                  |
//! | [`function`] | the registers in its region: of `simple-nic`, or of virtio  |
//! | [`session`] | what the requests add up to                                  |
//! | [`front`]   | a session over a socket, as an end of a cable                |
//!
//! Not offered: mapping of regions (each access is a message), migration, and messages by which the device reaches
//! memory that has no file.

pub mod config;
pub mod front;
pub mod function;
pub mod message;
pub mod session;
pub mod socket;
