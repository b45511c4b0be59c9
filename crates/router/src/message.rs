//! Messages between the control processor and a port processor, over a Unix socket, so that each survives
//! the death of the other.
//!
//! A message is its length (4 bytes, little-endian) and its fields in postcard's encoding. Both sides are this program.
//!
//! Rows: D-06.

use crate::port_processor::hop::Next;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::IpAddr;

/// Limit on the length of a message.
pub const MESSAGE_LEN_MAX: usize = 16 << 20;

/// A change, or a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A full set of routes follows: those not in it are removed when it is complete.
    Begin,
    /// The full set is complete.
    Finish,
    /// Defines a hop number.
    Hop {
        /// Its number.
        number: u32,
        /// Next hops, used together; none: unreachable.
        to: Vec<Next>,
    },
    /// Packets to these addresses go to this hop; 0 removes the route.
    Route {
        /// First bits.
        prefix: IpAddr,
        /// How many.
        len: u8,
        /// Its hop.
        hop: u32,
    },
    /// The file has changed: filters, plugins and queues are reconfigured from this text.
    Configure(String),
    /// Answered with [`Report::Done`] once all earlier commands are in effect.
    Sync,
    /// Asks for the state.
    Show(String),
    /// Ends.
    End,
}

/// A report of a port processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// All commands before [`Command::Sync`] are in effect.
    Done,
    /// An answer, as JSON.
    Shown(String),
    /// A command could not be done.
    Wrong(String),
}

/// Writes a message.
///
/// # Errors
/// If the connection has ended.
pub fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.write_all(&bytes)
}

/// Reads a message; `None` at the end.
///
/// # Errors
/// If it is truncated, too long or invalid.
pub fn read<T: for<'a> Deserialize<'a>>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > MESSAGE_LEN_MAX {
        return Err(io::Error::other(format!("a message of {len} bytes")));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let sent = [
            Command::Begin,
            Command::Hop {
                number: 130,
                to: vec![Next { port: 1, address: "10.0.0.1".parse().ok() }],
            },
            Command::Route { prefix: "2001:db8::".parse().expect("an address"), len: 32, hop: 130 },
        ];
        let mut bytes = Vec::new();
        sent.iter().for_each(|message| write(&mut bytes, message).expect("written"));
        let mut rest = &bytes[..];
        for message in &sent {
            assert_eq!(read::<Command>(&mut rest).expect("a message").as_ref(), Some(message));
        }
        assert_eq!(read::<Command>(&mut rest).expect("the end"), None);
        assert!(read::<Command>(&mut &bytes[..3]).is_ok_and(|none| none.is_none()));
        assert!(read::<Command>(&mut &[255, 255, 255, 255, 0][..]).is_err());
    }
}
