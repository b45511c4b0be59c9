//! VuNet's in-band control cells: write and read the entries of a link's table.
//!
//! ```text
//! op 1 | count 1 | sequence 2 | token 4 | up to five entries of 8:
//! VCI 2 | new VCI 2 | port 4 bits, flags 4 bits, reserved 3 bytes
//! ```
//!
//! The first entry of a read or a ping gives the return path: its new VCI and port. The reply to a ping has one
//! entry, whose VCI is the responder's number.
//!
//! Source: Aurora report §3.1.2 and §3.6. Layout, numbers and the reserved VCI are our choice.
//!
//! ```
//! use lastmeter_wire::control::vunet::{Control, Entry, Op};
//! let entry = Entry { vci: 40, new_vci: 41, port: 3, flags: Entry::VALID };
//! let control = Control { op: Op::Write, sequence: 1, token: 7, entries: vec![entry] };
//! assert_eq!(Control::parse(&control.emit()?)?, control);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::atm::PAYLOAD_LEN;
use crate::error::{Error, fit};

/// The VCI on which a link receives control cells.
pub const VCI_CONTROL: u16 = 5;
/// The VCI whose cells are dropped.
pub const VCI_DROP: u16 = 0;
/// Most entries in one cell.
pub const ENTRIES_MAX: usize = 5;
const PREFIX_LEN: usize = 8;
const ENTRY_LEN: usize = 8;

/// The operation of a control cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Set the entries.
    Write,
    /// Return the entries of these VCIs.
    Read,
    /// The requested entries.
    ReadReply,
    /// Return by the path given in this cell.
    Ping,
}

impl Op {
    fn from_bits(bits: u8) -> Result<Op, Error> {
        match bits {
            1 => Ok(Op::Write),
            2 => Ok(Op::Read),
            3 => Ok(Op::ReadReply),
            4 => Ok(Op::Ping),
            _ => Err(Error::Invalid { what: "VuNet control operation", found: bits.into() }),
        }
    }
    fn bits(self) -> u8 {
        match self {
            Op::Write => 1,
            Op::Read => 2,
            Op::ReadReply => 3,
            Op::Ping => 4,
        }
    }
}

/// One entry of a link's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The VCI looked up.
    pub vci: u16,
    /// The new VCI.
    pub new_vci: u16,
    /// The port by which the cell leaves the next switch, 4 bits.
    pub port: u8,
    /// 4 bits.
    pub flags: u8,
}

impl Entry {
    /// Set if the entry is in use.
    pub const VALID: u8 = 1;
    /// Set for the table of the other direction: that of cells towards the requester.
    pub const BACK: u8 = 2;
    /// Set in the answer to a ping if it comes from a client of a switch, not from a link.
    pub const CLIENT: u8 = 4;
}

/// A control cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Control {
    /// The operation.
    pub op: Op,
    /// Matches replies to requests.
    pub sequence: u16,
    /// The requester: entries belong to a token, so that none can take another's VCI.
    pub token: u32,
    /// At most five.
    pub entries: Vec<Entry>,
}

impl Control {
    /// # Errors
    /// If operation or count is unknown, or reserved bytes are not zero.
    pub fn parse(payload: &[u8; PAYLOAD_LEN]) -> Result<Control, Error> {
        let [op, count, s0, s1, t0, t1, t2, t3, rest @ ..] = payload;
        let op = Op::from_bits(*op)?;
        let count: usize = fit((*count).into(), ENTRIES_MAX as u64, "VuNet control count")?;
        let (chunks, _) = rest.as_chunks::<ENTRY_LEN>();
        let (used, unused) = chunks.split_at(count);
        let entries = used.iter().map(|&[v0, v1, n0, n1, port, r0, r1, r2]| {
            let reserved = u32::from_be_bytes([0, r0, r1, r2]);
            if reserved != 0 {
                let found = reserved.into();
                return Err(Error::Invalid { what: "VuNet entry's reserved bytes", found });
            }
            let (vci, new_vci) = (u16::from_be_bytes([v0, v1]), u16::from_be_bytes([n0, n1]));
            Ok(Entry { vci, new_vci, port: port >> 4, flags: port & 0xf })
        });
        let entries = entries.collect::<Result<_, _>>()?;
        if unused.as_flattened().iter().any(|&byte| byte != 0) {
            return Err(Error::Invalid { what: "VuNet control's unused entries", found: 1 });
        }
        let sequence = u16::from_be_bytes([*s0, *s1]);
        Ok(Control { op, sequence, token: u32::from_be_bytes([*t0, *t1, *t2, *t3]), entries })
    }

    /// # Errors
    /// If there are more than five entries, or a port or flags have more than four bits.
    pub fn emit(&self) -> Result<[u8; PAYLOAD_LEN], Error> {
        let count = fit(self.entries.len(), ENTRIES_MAX as u64, "VuNet control count")?;
        let mut payload = [0; PAYLOAD_LEN];
        let [s0, s1] = self.sequence.to_be_bytes();
        payload[..4].copy_from_slice(&[self.op.bits(), count, s0, s1]);
        payload[4..PREFIX_LEN].copy_from_slice(&self.token.to_be_bytes());
        for (entry, out) in self.entries.iter().zip(payload[PREFIX_LEN..].chunks_mut(ENTRY_LEN)) {
            let port: u8 = fit(entry.port.into(), 0xf, "VuNet entry's port")?;
            let flags: u8 = fit(entry.flags.into(), 0xf, "VuNet entry's flags")?;
            out[..2].copy_from_slice(&entry.vci.to_be_bytes());
            out[2..4].copy_from_slice(&entry.new_vci.to_be_bytes());
            out[4] = port << 4 | flags;
        }
        Ok(payload)
    }
}
