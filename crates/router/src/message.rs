//! What the control processor tells a port processor, and what it hears from it: over a Unix socket, so that each lives
//! when the other dies.
//!
//! A message is its length (4 bytes, little-endian) and its fields in postcard's encoding. Both sides are this program.

use crate::port_processor::hop::Next;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::IpAddr;

/// The longest message.
pub const MESSAGE_LEN_MAX: usize = 16 << 20;

/// A change, or a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A full set of routes follows: those that are not in it go when it is finished.
    Begin,
    /// The full set has been told.
    Finish,
    /// What a hop's number means.
    Hop {
        /// Its number.
        number: u32,
        /// Next routers, used at once; none: unreachable.
        to: Vec<Next>,
    },
    /// Packets to these addresses go to this hop; 0 removes the route.
    Route {
        /// First bits.
        prefix: IpAddr,
        /// How many.
        len: u8,
        /// Where to.
        hop: u32,
    },
    /// The file has changed: filters, plugins and queues are set anew from this text.
    Configure(String),
    /// All before has been done; answered with [`Report::Done`].
    Sync,
    /// Asks for the state.
    Show(String),
    /// Ends.
    End,
}

/// What a port processor says.
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
/// When the other side is gone.
pub fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.write_all(&bytes)
}

/// Reads a message; `None` at the end.
///
/// # Errors
/// When it is cut, too long or none.
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
