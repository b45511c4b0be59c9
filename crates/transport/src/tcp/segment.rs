//! A segment as a compact value: the header's fields and the options that TCP acts on, without
//! ports, checksum or data.
//!
//! ```text
//! word 0   seq 32 | ack 32
//! word 1   window 16 | len 16 | flags 8 | blocks 3 | timestamps? | SACK permitted? | MSS? | scale?
//!          | ecn 2 | scale 8 | lingers?
//! word 2   timestamp 32 | echo 32                  (or a fourth block, where there are no timestamps)
//! word 3   first block: left 32 | right 32         (or the MSS, in a SYN)
//! word 4, 5   second and third block
//! ```
//!
//! Packed into 48 bytes it is carried in a packet. [`lastmeter_wire::internet::tcp`] converts it from and to
//! bytes on the wire. Source: RFC 9293 §3.1, RFC 7323 §2 and §3, RFC 2018 §3.

use lastmeter_base::Ecn;
use lastmeter_wire::Error;
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::internet::tcp as wire;
use lastmeter_wire::internet::tcp::{BLOCKS_MAX, Header, TcpOption};

pub use lastmeter_wire::internet::tcp::Flags;

/// Words of a packed segment.
pub const PACKED_WORDS: usize = lastmeter_base::TRANSPORT_WORDS;
/// Bytes of an IPv4 header without options, which precedes a segment in a model.
pub const IP_HEADER_LEN: u64 = 20;
/// Blocks that fit beside timestamps (RFC 2018 §3).
const BLOCKS_BESIDE_TIMESTAMPS: usize = 3;

/// A segment without its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first byte of data, or of the SYN.
    pub seq: u32,
    /// The next byte that its sender expects, if the ACK flag is set.
    pub ack: u32,
    /// The window field, unscaled.
    pub window: u16,
    /// Bytes of data.
    pub len: u16,
    /// Control bits.
    pub flags: Flags,
    /// The IP header's ECN field, which TCP sets and reads (RFC 3168 §6.1).
    pub ecn: Ecn,
    /// The MSS of its sender; in a SYN.
    pub mss: Option<u16>,
    /// The window scale of its sender; in a SYN.
    pub scale: Option<u8>,
    /// Whether its sender supports SACK; in a SYN.
    pub sack_permitted: bool,
    /// Whether the opener is to linger, or agrees to; in a SYN.
    pub opener_lingers: bool,
    /// The sender's clock and the peer's, echoed.
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks: data that arrived out of order.
    pub blocks: Blocks,
}

/// Up to four blocks of a selective acknowledgement: first sequence number, and the one after the
/// last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    count: u8,
    all: [(u32, u32); BLOCKS_MAX],
}

impl Blocks {
    /// Adds a block; returns whether there was room.
    pub fn push(&mut self, left: u32, right: u32) -> bool {
        let Some(block) = self.all.get_mut(usize::from(self.count)) else { return false };
        *block = (left, right);
        self.count += 1;
        true
    }
    /// The blocks in their order.
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.all[..usize::from(self.count)]
    }
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl FromIterator<(u32, u32)> for Blocks {
    /// The first four.
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(blocks: I) -> Blocks {
        let mut all = Blocks::default();
        let _ = blocks.into_iter().all(|(left, right)| all.push(left, right));
        all
    }
}

/// "Congestion experienced" echo (RFC 3168 §6.1).
pub const ECE: Flags = Flags(0x40);
/// "Congestion window reduced" (RFC 3168 §6.1).
pub const CWR: Flags = Flags(0x80);

const BLOCKS_SHIFT: u32 = 40;
const TIMESTAMPS: u64 = 1 << 43;
const PERMITTED: u64 = 1 << 44;
const MSS: u64 = 1 << 45;
const SCALE: u64 = 1 << 46;
const ECN_SHIFT: u32 = 47;
const SCALE_SHIFT: u32 = 49;
const LINGERS: u64 = 1 << 57;
/// An experimental option (RFC 4727 §2.1); the paper does not specify it.
const LINGERS_KIND: u8 = 253;

#[inline]
fn room_for_blocks(beside_timestamps: bool) -> usize {
    if beside_timestamps { BLOCKS_BESIDE_TIMESTAMPS } else { BLOCKS_MAX }
}
#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
#[inline]
fn unpair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Segment {
    /// Whether all of `flags` are set.
    #[inline]
    pub fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }

    /// Sequence numbers that it occupies: data, SYN and FIN (RFC 9293 §3.4).
    #[inline]
    pub fn space(&self) -> u64 {
        let flags = self.flags.0 & (Flags::SYN.0 | Flags::FIN.0);
        u64::from(self.len) + u64::from(flags.count_ones())
    }

    /// Whether it has an option allowed only in a SYN.
    #[inline]
    fn opens(&self) -> bool {
        self.mss.is_some() || self.scale.is_some() || self.sack_permitted || self.opener_lingers
    }

    /// Length of the header with options on the wire, in bytes.
    ///
    /// ```
    /// use lastmeter_transport::tcp::Segment;
    /// let plain = Segment { timestamps: Some((1, 2)), ..Segment::default() };
    /// assert_eq!(plain.header_len(), 32);
    /// ```
    #[inline]
    pub fn header_len(&self) -> u64 {
        let mut options = 0;
        if self.opens() {
            options += 2 * u64::from(self.opener_lingers);
            options += 4 * u64::from(self.mss.is_some())
                + 3 * u64::from(self.scale.is_some())
                + 2 * u64::from(self.sack_permitted);
        }
        if self.timestamps.is_some() {
            options += 10;
        }
        if !self.blocks.is_empty() {
            options += 2 + 8 * u64::from(self.blocks.count);
        }
        (wire::HEADER_LEN as u64 + options).next_multiple_of(4)
    }

    /// Length of the IP packet that carries it.
    #[inline]
    pub fn packet_len(&self) -> u64 {
        IP_HEADER_LEN + self.header_len() + u64::from(self.len)
    }

    /// Packed into words. A fourth block with timestamps, and blocks in a SYN, do not fit on the wire either
    /// and are left out.
    #[inline]
    pub fn pack(&self) -> [u64; PACKED_WORDS] {
        let mut words = [0; PACKED_WORDS];
        words[0] = pair(self.seq, self.ack);
        let mut word = u64::from(self.window)
            | u64::from(self.len) << 16
            | u64::from(self.flags.0) << 32
            | (self.ecn as u64) << ECN_SHIFT;
        if let Some((value, echo)) = self.timestamps {
            word |= TIMESTAMPS;
            words[2] = pair(value, echo);
        }
        if self.opens() {
            word |= if self.opener_lingers { LINGERS } else { 0 };
            word |= if self.sack_permitted { PERMITTED } else { 0 };
            word |= self.mss.map_or(0, |_| MSS);
            word |= self.scale.map_or(0, |scale| SCALE | u64::from(scale) << SCALE_SHIFT);
            words[3] = u64::from(self.mss.unwrap_or(0));
        } else if !self.blocks.is_empty() {
            let room = room_for_blocks(self.timestamps.is_some());
            let count = usize::from(self.blocks.count).min(room);
            word |= (count as u64) << BLOCKS_SHIFT;
            const PLACES: [usize; BLOCKS_MAX] = [3, 4, 5, 2];
            for (&place, &(left, right)) in PLACES.iter().zip(&self.blocks.all[..count]) {
                words[place] = pair(left, right);
            }
        }
        words[1] = word;
        words
    }

    /// Unpacks a segment. Any words yield some segment.
    #[inline]
    pub fn unpack(words: &[u64; PACKED_WORDS]) -> Segment {
        let [first, word, third, fourth, fifth, sixth] = *words;
        let (seq, ack) = unpair(first);
        let mut segment = Segment {
            seq,
            ack,
            window: word as u16,
            len: (word >> 16) as u16,
            flags: Flags((word >> 32) as u8),
            ecn: match word >> ECN_SHIFT & 3 {
                0 => Ecn::NotCapable,
                1 => Ecn::Ect1,
                2 => Ecn::Ect0,
                _ => Ecn::Ce,
            },
            ..Segment::default()
        };
        if word & TIMESTAMPS != 0 {
            segment.timestamps = Some(unpair(third));
        }
        if word & (MSS | SCALE | PERMITTED | LINGERS) != 0 {
            segment.opener_lingers = word & LINGERS != 0;
            segment.mss = (word & MSS != 0).then_some(fourth as u16);
            segment.scale = (word & SCALE != 0).then_some((word >> SCALE_SHIFT) as u8);
            segment.sack_permitted = word & PERMITTED != 0;
        } else {
            let room = room_for_blocks(segment.timestamps.is_some());
            let count = (word >> BLOCKS_SHIFT) as usize & 7;
            let count = count.min(room);
            if count > 0 {
                let all = [fourth, fifth, sixth, third];
                segment.blocks = all[..count].iter().map(|&block| unpair(block)).collect();
            }
        }
        segment
    }

    /// Parses a segment from the wire; `ecn` is the ECN field of the IP header. Unknown options are skipped, and
    /// the list ends at a malformed one.
    pub fn from_wire(bytes: &wire::Segment<'_>, ecn: Ecn) -> Segment {
        let header = &bytes.header;
        let mut segment = Segment {
            seq: header.sequence,
            ack: header.acknowledgement,
            window: header.window,
            len: u16::try_from(bytes.payload.len()).unwrap_or(u16::MAX),
            flags: header.flags,
            ecn,
            ..Segment::default()
        };
        for option in bytes.options().map_while(Result::ok) {
            match option {
                TcpOption::MaximumSegment(mss) => segment.mss = Some(mss),
                TcpOption::WindowScale(scale) => segment.scale = Some(scale),
                TcpOption::SackPermitted => segment.sack_permitted = true,
                TcpOption::Sack { blocks, count } => {
                    segment.blocks = blocks[..usize::from(count)].iter().copied().collect();
                }
                TcpOption::Timestamps { value, echo } => segment.timestamps = Some((value, echo)),
                TcpOption::Unknown { kind } => segment.opener_lingers |= kind == LINGERS_KIND,
            }
        }
        segment
    }

    /// Emits the segment between two ports, with its checksum; `pseudo` returns the pseudo-header's sum for a
    /// length.
    ///
    /// # Errors
    /// If options take more than 40 bytes, or the segment more than 65,535.
    pub fn emit(
        &self,
        (src, dst): (u16, u16),
        payload: &[u8],
        pseudo: impl FnOnce(u16) -> Sum,
    ) -> Result<Vec<u8>, Error> {
        let header = Header {
            src,
            dst,
            sequence: self.seq,
            acknowledgement: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: 0,
        };
        let mut options = Vec::new();
        options.extend(self.mss.map(TcpOption::MaximumSegment));
        options.extend(self.scale.map(TcpOption::WindowScale));
        options.extend(self.sack_permitted.then_some(TcpOption::SackPermitted));
        options.extend(self.opener_lingers.then_some(TcpOption::Unknown { kind: LINGERS_KIND }));
        options.extend(self.timestamps.map(|(value, echo)| TcpOption::Timestamps { value, echo }));
        if !self.blocks.is_empty() {
            let Blocks { count, all } = self.blocks;
            options.push(TcpOption::Sack { blocks: all, count });
        }
        header.emit(&options, payload, pseudo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment() -> impl Strategy<Value = Segment> {
        let ecn =
            prop_oneof![Just(Ecn::NotCapable), Just(Ecn::Ect0), Just(Ecn::Ect1), Just(Ecn::Ce)];
        let numbers = (any::<u32>(), any::<u32>(), any::<u16>(), 0u16..9000, any::<u8>(), ecn);
        let opening = (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), any::<bool>());
        let later = (
            any::<Option<(u32, u32)>>(),
            prop::collection::vec(any::<(u32, u32)>(), 0..=BLOCKS_MAX),
        );
        (numbers, opening, later, any::<bool>()).prop_map(
            |(
                (seq, ack, window, len, flags, ecn),
                (mss, scale, permitted, lingers),
                later,
                opens,
            )| {
                let (timestamps, mut blocks) = later;
                blocks.truncate(if timestamps.is_some() { 3 } else { 4 });
                let (seq, ack) = (seq, ack);
                let flags = Flags(flags);
                let plain =
                    Segment { seq, ack, window, len, flags, ecn, timestamps, ..Segment::default() };
                match opens {
                    true => Segment {
                        mss,
                        scale,
                        sack_permitted: permitted,
                        opener_lingers: lingers,
                        ..plain
                    },
                    false => Segment { blocks: blocks.into_iter().collect(), ..plain },
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_segment_survives_packing_and_the_wire(segment in segment()) {
            prop_assert_eq!(Segment::unpack(&segment.pack()), segment);
            let payload = vec![0; segment.len.into()];
            let bytes = segment.emit((1, 2), &payload, |_| Sum::ZERO).unwrap();
            prop_assert_eq!(bytes.len() as u64, segment.packet_len() - IP_HEADER_LEN);
            let parsed = wire::Segment::parse(&bytes).unwrap();
            prop_assert_eq!(Segment::from_wire(&parsed, segment.ecn), segment);
        }

        #[test]
        fn any_words_are_some_segment(words in any::<[u64; PACKED_WORDS]>()) {
            let segment = Segment::unpack(&words);
            prop_assert_eq!(Segment::unpack(&segment.pack()), segment);
        }
    }
}
