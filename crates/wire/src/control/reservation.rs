//! Cells that reserve a path hop by hop, as RSVP does: the connections of applications are compared with it.
//!
//! ```text
//! op 1 | links 1 | at 1 | zero 1 | token 4 | label 2 | zero 2 | for each link, and for the peer: port ahead, port
//! back, 4 bits each; zeros up to 36
//! ```
//!
//! The request carries its whole route and, hop by hop, the channel on which the previous hop wants to receive the data
//! that comes back; the answer returns by the same links with the channel on which each wants to receive the data
//! that goes out (RFC 3209 and RFC 3473, section 3, without refreshes). Layout, numbers and the reserved VCI are ours.
//!
//! ```
//! use lastmeter_wire::control::reservation::{Message, Op};
//! let ports = vec![(2, 1), (3, 0), (0, 4)];
//! let message = Message { op: Op::Path, token: 7, at: 0, label: 40, ports };
//! assert_eq!(Message::parse(&message.emit()?)?, message);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::atm::PAYLOAD_LEN;
use crate::error::{Error, fit};

/// The VCI on which links, hosts and appliances receive these cells.
pub const VCI_RESERVATION: u16 = 6;
/// Most links of a path.
pub const LINKS_MAX: usize = PAYLOAD_LEN - PREFIX_LEN - 1;
const PREFIX_LEN: usize = 12;
const PORT_MAX: u8 = 0xf;

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// From the host to its peer: a path is wanted.
    Path,
    /// From the peer back: it is reserved.
    Reserved,
    /// From the host to its peer: it is no longer needed.
    Tear,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// What it asks for.
    pub op: Op,
    /// The requester, to which entries belong.
    pub token: u32,
    /// Links passed.
    pub at: u8,
    /// The channel on which the sender of this message wants to receive data.
    pub label: u16,
    /// For each link, the port by which cells leave the switch after it and the port by which returning cells leave
    /// the switch before it; last the peer's: zero, and the port by which it answers.
    pub ports: Vec<(u8, u8)>,
}

impl Message {
    /// Number of links.
    pub fn links(&self) -> usize {
        self.ports.len().saturating_sub(1)
    }

    /// # Errors
    /// If the operation is unknown, the path too long, or an unused byte is not zero.
    pub fn parse(payload: &[u8; PAYLOAD_LEN]) -> Result<Message, Error> {
        let &[op, links, at, z0, t0, t1, t2, t3, l0, l1, z1, z2, ref rest @ ..] = payload;
        let op = match op {
            1 => Op::Path,
            2 => Op::Reserved,
            3 => Op::Tear,
            _ => return Err(Error::Invalid { what: "reservation's operation", found: op.into() }),
        };
        let links: usize = fit(links.into(), LINKS_MAX as u64, "links of a reservation")?;
        if usize::from(at) > links {
            return Err(Error::Invalid { what: "links passed by a reservation", found: at.into() });
        }
        let (used, unused) = rest.split_at(links + 1);
        if [z0, z1, z2].iter().chain(unused).any(|&byte| byte != 0) {
            return Err(Error::Invalid { what: "reservation's unused bytes", found: 1 });
        }
        let ports = used.iter().map(|&byte| (byte >> 4, byte & PORT_MAX)).collect();
        let token = u32::from_be_bytes([t0, t1, t2, t3]);
        Ok(Message { op, token, at, label: u16::from_be_bytes([l0, l1]), ports })
    }

    /// # Errors
    /// If the path is too long, or a port has more than four bits.
    pub fn emit(&self) -> Result<[u8; PAYLOAD_LEN], Error> {
        let links: u8 = fit(self.links(), LINKS_MAX as u64, "links of a reservation")?;
        let mut payload = [0; PAYLOAD_LEN];
        payload[0] = match self.op {
            Op::Path => 1,
            Op::Reserved => 2,
            Op::Tear => 3,
        };
        (payload[1], payload[2]) = (links, self.at);
        payload[4..8].copy_from_slice(&self.token.to_be_bytes());
        payload[8..10].copy_from_slice(&self.label.to_be_bytes());
        for (&(ahead, back), out) in self.ports.iter().zip(&mut payload[PREFIX_LEN..]) {
            let ahead: u8 = fit(ahead.into(), PORT_MAX.into(), "reservation's port")?;
            let back: u8 = fit(back.into(), PORT_MAX.into(), "reservation's port")?;
            *out = ahead << 4 | back;
        }
        Ok(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_parses_is_emitted_unchanged(mut bytes: [u8; PAYLOAD_LEN], zeros in 0usize..36) {
            bytes[0] %= 5;
            (bytes[1], bytes[2], bytes[3], bytes[10], bytes[11]) = (bytes[1] % 40, bytes[2] % 40, 0, 0, 0);
            bytes[PREFIX_LEN + zeros..].fill(0);
            if let Ok(message) = Message::parse(&bytes) {
                prop_assert!(message.links() <= LINKS_MAX && usize::from(message.at) <= message.links());
                prop_assert_eq!(message.emit().unwrap(), bytes);
            }
        }
    }
}
