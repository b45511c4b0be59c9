//! Formats: bytes to values and back. No state that outlives a packet except where a standard requires it
//! (reassembly, delineation), and then in machines that take the time as an argument.
//!
//! Nothing here reads a clock, opens a file or starts a thread. Input is never trusted: a parser
//! returns an error, it does not panic, and what it allocates is bounded by a named constant.

pub mod aal;
pub mod atm;
pub mod atp;
pub mod bench;
pub mod camera;
pub mod capture;
pub mod certificate;
pub mod control;
pub mod crc;
pub mod dns;
pub mod dtp;
mod error;
pub mod framebuffer;
pub mod framing;
pub mod fuzz;
pub mod internet;
pub mod iscsi;
pub mod jetstream;
pub mod myrinet;
pub mod nbd;
pub mod netlink;
pub mod print;
pub mod requests;
pub mod rfb;
pub mod routes;
pub mod rtp;
pub mod scsi;
pub mod sdp;
pub mod ticket;
pub mod token;
pub mod wav;
pub mod wave;
pub mod websocket;

pub use error::Error;
