//! Adapters that do not exist, under real Linux guests, in real time.
//!
//! ```text
//! guest (QEMU): application, stack, virtio driver, or that of simple-nic
//!    | rings in shared memory; doorbells and interrupts are eventfds, or messages
//! [ vhost, vfio ] --> [ device: a description's stages on the wall clock ] --> [ network ]
//! ```
//!
//! | module      | gives                                                                         |
//! |-------------|-------------------------------------------------------------------------------|
//! | [`vhost`]   | the protocol by which QEMU hands a guest's rings to another process           |
//! | [`vfio`]    | the protocol by which QEMU hands a PCI device to another process              |
//! | [`registers`] | the registers and rings of `simple-nic`, the device behind it               |
//! | [`virtio`]  | the registers of virtio, for the stock driver                                 |
//! | [`socket`]  | messages and descriptors over a socket                                        |
//! | [`memory`]  | a guest's memory, every access checked                                        |
//! | [`ring`]    | split virtqueues                                                              |
//! | [`device`]  | the adapter as a machine: rings, a description's stages, interrupts           |
//! | [`driver`]  | a guest's side of a ring, for tests                                           |
//! | [`network`] | the cable between an adapter and the other end                                |
//! | [`end`]     | a guest behind an adapter, or an interface of this machine, as an end         |
//! | [`hub`]     | both ends on the wall clock: the thread with the sockets                      |
//! | [`predict`] | what the model says of the same adapter                                       |
//! | [`ledger`]  | what passed, as a ledger                                                      |
//! | [`kit`]     | a guest: kernel, initial file system, QEMU's command line, an agent inside    |
//! | [`livelock`] | a guest that is sent more than it can take, by how its driver receives         |

pub mod device;
pub mod driver;
pub mod end;
pub mod fuzz;
pub mod hub;
pub mod kit;
pub mod ledger;
pub mod livelock;
pub mod memory;
pub mod network;
pub mod predict;
pub mod registers;
pub mod ring;
pub mod seen;
pub mod socket;
pub mod vfio;
pub mod vhost;
pub mod virtio;
mod words;
