//! Devices without a network and their clocks without waiting, and devices that listen on the loopback interface.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say what they skip")]

mod camera;
mod decode;
mod hostile;
mod initiator;
mod iscsi;
mod serve;
mod signed;
mod transfer;
