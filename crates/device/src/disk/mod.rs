//! A disk on the network (N-01, N-18 to N-22): NBD over TCP or a Unix socket, with the owner's policies in front of
//! every command.
//!
//! ```text
//! client --> NBD session --> policies of the client --> medium: file or memory
//! ```

pub mod medium;
pub mod nbd;
pub mod server;
