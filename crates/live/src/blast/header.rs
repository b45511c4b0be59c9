//! The header of each packet, in front of its fill.
//!
//! ```text
//! | "LB" 2 | version 1 | kind 1 | flow 2 | length 2 | run 8 | sequence number 8 | sent, ns 8 |
//! ```
//!
//! Big endian. `length` counts header and fill. `run` is known only to the run's agents, which tells
//! stray packets of other runs apart. `sent` is the source's monotonic clock just before the packet was
//! handed to the kernel. The fill is a fixed pattern, so that damage to it is detected.

use super::traffic::Format;
use lastmeter_wire::aal::aal5;

/// Bytes of the header.
pub const LEN: usize = 32;
const MAGIC: [u8; 2] = *b"LB";
const VERSION: u8 = 1;
/// The fill, as long as the longest payload.
const FILL_LEN: usize = 1 << 16;
/// Each byte is the low byte of its index.
pub(crate) static FILL: [u8; FILL_LEN] = {
    let mut fill = [0; FILL_LEN];
    let mut at = 0;
    while at < FILL_LEN {
        fill[at] = at as u8;
        at += 1;
    }
    fill
};

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is counted.
    Data,
    /// Asks a sink whether it accepts the flow.
    Probe,
    /// The sink's reply: the same packet.
    Echo,
}

/// A packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its purpose.
    pub kind: Kind,
    /// The flow, by its index in the plan.
    pub flow: u16,
    /// Bytes of header and fill.
    pub len: u16,
    /// The run's own number.
    pub run: u64,
    /// From 0.
    pub seq: u64,
    /// The source's clock in nanoseconds.
    pub sent: u64,
}

/// Why a packet does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not one of ours.
    Foreign,
    /// Its length, its fill or its check is wrong.
    Damaged,
}

impl Header {
    /// The header's bytes.
    pub(crate) fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = VERSION;
        bytes[3] = match self.kind {
            Kind::Data => 0,
            Kind::Probe => 1,
            Kind::Echo => 2,
        };
        bytes[4..6].copy_from_slice(&self.flow.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.len.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.run.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.seq.to_be_bytes());
        bytes[24..].copy_from_slice(&self.sent.to_be_bytes());
        bytes
    }

    /// The header of `packet`, whose length and fill are checked.
    pub(crate) fn parse(packet: &[u8]) -> Result<Header, Fault> {
        let (bytes, fill) = packet.split_first_chunk::<LEN>().ok_or(Fault::Foreign)?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        if bytes[..2] != MAGIC || bytes[2] != VERSION {
            return Err(Fault::Foreign);
        }
        let kind = match bytes[3] {
            0 => Kind::Data,
            1 => Kind::Probe,
            2 => Kind::Echo,
            _ => return Err(Fault::Foreign),
        };
        let flow = u16::from_be_bytes([bytes[4], bytes[5]]);
        let len = u16::from_be_bytes([bytes[6], bytes[7]]);
        if usize::from(len) != packet.len() || *fill != FILL[LEN..packet.len()] {
            return Err(Fault::Damaged);
        }
        Ok(Header { kind, flow, len, run: word(8), seq: word(16), sent: word(24) })
    }
}

/// Appends the UDP payload of a packet: `header`, and fill up to its length.
pub(crate) fn emit(format: Format, header: &Header, to: &mut Vec<u8>) {
    let from = to.len();
    to.extend_from_slice(&FILL[..usize::from(header.len)]);
    to[from..from + LEN].copy_from_slice(&header.emit());
    if format == Format::Aal5 {
        let pdu = aal5::emit(&to[from..], 0).expect("a length that fits its field");
        to.truncate(from);
        to.extend_from_slice(&pdu);
    }
}

/// The header of the packet in a UDP payload.
pub(crate) fn read(format: Format, payload: &[u8]) -> Result<Header, Fault> {
    match format {
        Format::Udp => Header::parse(payload),
        Format::Aal5 => Header::parse(aal5::parse(payload).map_err(|_| Fault::Damaged)?.payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) const HEADER: Header =
        Header { kind: Kind::Data, flow: 3, len: 100, run: 7, seq: 11, sent: 13 };

    #[test]
    fn any_flipped_bit_of_an_aal5_frame_is_damage() {
        let mut pdu = Vec::new();
        emit(Format::Aal5, &HEADER, &mut pdu);
        assert_eq!(pdu.len(), 144);
        assert_eq!(read(Format::Aal5, &pdu), Ok(HEADER));
        for bit in 0..pdu.len() * 8 {
            pdu[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(Format::Aal5, &pdu), Err(Fault::Damaged), "bit {bit}");
            pdu[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn damaged_fill_and_wrong_length_are_detected() {
        let mut packet = Vec::new();
        emit(Format::Udp, &HEADER, &mut packet);
        assert_eq!(read(Format::Udp, &packet), Ok(HEADER));
        assert_eq!(read(Format::Udp, &packet[..99]), Err(Fault::Damaged));
        packet[50] ^= 1;
        assert_eq!(read(Format::Udp, &packet), Err(Fault::Damaged));
        packet[0] ^= 1;
        assert_eq!(read(Format::Udp, &packet), Err(Fault::Foreign));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = read(Format::Udp, &bytes);
            let _ = read(Format::Aal5, &bytes);
        }

        #[test]
        fn headers_round_trip(
            flow: u16, len in LEN as u16..9000, run: u64, seq: u64, sent: u64
        ) {
            let header = Header { kind: Kind::Data, flow, len, run, seq, sent };
            for format in [Format::Udp, Format::Aal5] {
                let mut payload = Vec::new();
                emit(format, &header, &mut payload);
                prop_assert_eq!(read(format, &payload), Ok(header));
            }
        }
    }
}
