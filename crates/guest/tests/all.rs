//! Guests on adapters: QEMU's, and ones in Rust that do what no driver would. What needs QEMU prints `SKIP` without `make guest`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say what they skip")]

mod bench;
mod driver;
mod hostile;
mod kit;
mod livelock;
mod vfio;
mod virtio;
