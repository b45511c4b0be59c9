//! Adapters that do not exist, under real Linux guests, in real time.
//!
//! ```text
//! guest (QEMU): application, stack, virtio driver
//!    | rings in shared memory; doorbells and interrupts are eventfds
//! [ vhost ] --> [ device: a description's stages on the wall clock ] --> [ network ]
//! ```
//!
//! | module    | gives                                                                          |
//! |-----------|--------------------------------------------------------------------------------|
//! | [`vhost`] | the protocol by which QEMU hands a guest's rings to another process            |
//! | [`kit`]   | a guest: kernel, initial file system, QEMU's command line, an agent inside     |

pub mod fuzz;
pub mod kit;
pub mod vhost;
