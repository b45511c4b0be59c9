//! What programs of the live VuNet say to measure it: a cell that is answered at once, and numbered cells.
//!
//! ```text
//! magic 4 | kind 1 | port 1 | VCI 2 | number 4 | sent 8 | arrived 8 | zero 20
//! ```
//!
//! Port and VCI are those of the answer; a VCI of zero leaves the choice to who answers. Instants are of this machine's
//! monotonic clock, in ns.

use lastmeter_wire::atm::PAYLOAD_LEN;

const MAGIC: &[u8; 4] = b"VNpb";
const USED: usize = 28;

/// What a cell is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To be answered.
    Ask,
    /// The answer.
    Answer,
    /// To be counted.
    Count,
}

/// A cell of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) kind: Kind,
    pub(super) port: u8,
    pub(super) vci: u16,
    pub(super) number: u32,
    pub(super) sent: u64,
    pub(super) arrived: u64,
}

impl Probe {
    pub(super) fn parse(payload: &[u8; PAYLOAD_LEN]) -> Option<Probe> {
        let (used, rest) = payload.split_at(USED);
        let (magic, used) = used.split_first_chunk::<4>()?;
        let ([kind, port, v0, v1], used) = used.split_first_chunk::<4>()?;
        let (number, used) = used.split_first_chunk::<4>()?;
        let (sent, used) = used.split_first_chunk::<8>()?;
        let arrived = used.first_chunk::<8>()?;
        let kind = match kind {
            1 => Kind::Ask,
            2 => Kind::Answer,
            3 => Kind::Count,
            _ => return None,
        };
        let right = magic == MAGIC && rest.iter().all(|&byte| byte == 0) && *port < 16;
        right.then_some(Probe {
            kind,
            port: *port,
            vci: u16::from_be_bytes([*v0, *v1]),
            number: u32::from_be_bytes(*number),
            sent: u64::from_be_bytes(*sent),
            arrived: u64::from_be_bytes(*arrived),
        })
    }

    pub(super) fn emit(&self) -> [u8; PAYLOAD_LEN] {
        let mut payload = [0; PAYLOAD_LEN];
        payload[..4].copy_from_slice(MAGIC);
        payload[4] = match self.kind {
            Kind::Ask => 1,
            Kind::Answer => 2,
            Kind::Count => 3,
        };
        payload[5] = self.port;
        payload[6..8].copy_from_slice(&self.vci.to_be_bytes());
        payload[8..12].copy_from_slice(&self.number.to_be_bytes());
        payload[12..20].copy_from_slice(&self.sent.to_be_bytes());
        payload[20..USED].copy_from_slice(&self.arrived.to_be_bytes());
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_parses_is_emitted_unchanged(mut bytes: [u8; PAYLOAD_LEN], ours: bool) {
            if ours {
                bytes[..4].copy_from_slice(MAGIC);
                bytes[4] %= 5;
                bytes[USED..].fill(0);
            }
            if let Some(probe) = Probe::parse(&bytes) {
                prop_assert_eq!(probe.emit(), bytes);
            }
        }
    }
}
