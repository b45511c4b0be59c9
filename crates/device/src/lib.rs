//! Devices on the network that belong to somebody and are used by others, with their owners' programs in front of every
//! request.
//!
//! ```text
//! accept -> authenticate -> policy -> queue -> execute -> answer
//!           access          access              account: each stage's time, each request's end
//! ```

pub mod access;
pub mod account;
pub mod camera;
pub mod disk;
pub mod display;
pub mod duplex;
pub mod keys;
pub mod link;
pub mod rtsp;
pub mod tls;
mod transactions;
pub mod transfer;
