//! Messages between the control processor and a port processor, over a Unix socket, so that each survives
//! the death of the other.
//!
//! A message is its length (4 bytes, little-endian) and its fields in postcard's encoding. Both sides are this program.
//!
//! Rows: D-06.

use crate::in_band::Asked;
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
    /// The file has changed: filters, plugins, queues and flows are reconfigured from this text.
    Configure {
        /// The file's text.
        text: String,
        /// What its addresses mean here.
        bound: Bound,
    },
    /// Answered with the hop of each of these addresses, 0 where there is none.
    Lookup(Vec<IpAddr>),
    /// Answered with [`Report::Done`] once all earlier commands are in effect.
    Sync,
    /// Answered with what packets have asked since the last time.
    Asked,
    /// What a packet asked that arrived at this port is refused: both ends of its flow are told.
    Refuse {
        /// The port.
        port: u16,
        /// What it asked.
        asked: Asked,
    },
    /// Answered with the messages of RSVP that have arrived since the last time.
    Signals,
    /// A packet leaves by a port.
    Signal {
        /// The port.
        port: u16,
        /// The neighbour.
        to: IpAddr,
        /// The packet of IP.
        packet: Vec<u8>,
    },
    /// Asks for the state.
    Show(String),
    /// A port processor stops, or fails as a mistake in the program would make it.
    Stop {
        /// Its name.
        processor: String,
        /// Whether it fails.
        fail: bool,
    },
    /// Ends.
    End,
}

/// What the control processor has found out about addresses and flows of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// For each filter the hop of its packets; 0 if the routing table decides.
    pub filters: Vec<u32>,
    /// For each policy its hop; 0 if it names a table.
    pub policies: Vec<u32>,
    /// The routes of each table besides the main one: first bits, how many, hop.
    pub tables: Vec<Vec<(IpAddr, u8, u32)>>,
    /// The flows that were admitted.
    pub flows: Vec<BoundFlow>,
}

impl Bound {
    /// Whether there is nothing that the file alone does not say.
    pub fn is_empty(&self) -> bool {
        let plain = |hops: &[u32]| hops.iter().all(|hop| *hop == 0);
        plain(&self.filters)
            && self.policies.is_empty()
            && self.tables.is_empty()
            && self.flows.is_empty()
    }
}

/// An admitted flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundFlow {
    /// Its name.
    pub name: String,
    /// The port where its packets arrive; any, if absent.
    pub from: Option<u16>,
    /// The port where it has a reservation.
    pub reserved: Option<u16>,
    /// Its hop; 0 if the routing table decides.
    pub hop: u32,
    /// The label with which its packets leave.
    pub label: Option<u32>,
}

/// A report of a port processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// All commands before [`Command::Sync`] are in effect.
    Done,
    /// An answer, as JSON.
    Shown(String),
    /// The hops of addresses.
    Found(Vec<u32>),
    /// What packets asked, and at which ports they arrived.
    Asked(Vec<(u16, Asked)>),
    /// Packets with messages of RSVP, and at which ports they arrived.
    Signals(Vec<(u16, Vec<u8>)>),
    /// How long the stages of a command took, in seconds.
    Took(Vec<(String, f64)>),
    /// A command could not be done.
    Wrong(String),
    /// A port processor has ended, and why.
    Ended(String),
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
