//! Checksums completed by the adapter, so that the processor does not touch the data for them.
//!
//! ```text
//!          start              insert
//! | header | pseudo-header sum | data ... |     the adapter sums from `start` while it copies,
//!          <------- summed ------------->       adds `seed`, and writes the checksum at `insert`
//! ```
//!
//! The sender's stack leaves zero at `insert` and passes the sum of the pseudo-header as the seed; the receiver
//! sees an ordinary checksum. On reception the adapter sums the whole packet, and the stack subtracts the
//! contribution of the headers: [`received`].
//!
//! [`Adder`] is the adder of RFC 1936: 32 bits at a time, with the carry of one step added in the next, so that no
//! step waits for carry propagation.
//!
//! Source: Netstation's zero-pass checksum, ISI final report §3.a; RFC 1936 §2.
//!
//! ```
//! use lastmeter_wire::internet::{checksum::Sum, embedded::Embedded};
//! let packet = [1, 2, 3, 4, 0, 0, 5];
//! let mut out = [0; 7];
//! Embedded { start: 2, insert: 4, seed: Sum::word(17) }.transmit(&packet, &mut out)?;
//! assert!(Sum::of(&out[2..]).and(Sum::word(17)).is_intact());
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use super::checksum::{Sum, copy};
use crate::error::Error;

/// Instructions from the stack to the adapter for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// Where summing starts, as an offset in bytes.
    pub start: usize,
    /// Where the checksum goes, at an even distance from `start`; the packet has zero there.
    pub insert: usize,
    /// The initial value: the sum of the pseudo-header.
    pub seed: Sum,
}

impl Embedded {
    /// Copies a packet as the adapter's DMA engine does, sums it meanwhile and inserts the checksum. Never inserts
    /// zero, which UDP takes for none; TCP accepts either.
    ///
    /// # Errors
    /// If an offset is outside the packet, the distance is odd, or the lengths differ.
    pub fn transmit(&self, packet: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let outside = Error::DoesNotFit {
            what: "embedded checksum's place",
            value: self.insert.max(self.start) as u64,
            max: packet.len() as u64,
        };
        let end = self.insert.checked_add(2).ok_or(outside)?;
        if self.start > self.insert || end > packet.len() {
            return Err(outside);
        }
        if !(self.insert - self.start).is_multiple_of(2) {
            let found = self.insert as u64;
            return Err(Error::Invalid { what: "embedded checksum's distance", found });
        }
        if packet.len() != out.len() {
            let (value, max) = (packet.len() as u64, out.len() as u64);
            return Err(Error::DoesNotFit { what: "packet to transmit", value, max });
        }
        let (head, data) = packet.split_at(self.start);
        let (out_head, out_data) = out.split_at_mut(self.start);
        out_head.copy_from_slice(head);
        let sum = copy(data, out_data)?.and(self.seed);
        out[self.insert..end].copy_from_slice(&sum.checksum_never_zero().to_be_bytes());
        Ok(())
    }
}

/// The sum of what follows the first `header.len()` bytes of a packet, from the adapter's sum of all of it.
pub fn received(whole: Sum, header: &[u8]) -> Sum {
    let rest = whole.without(Sum::of(header));
    Sum::ZERO.and_after(header.len(), rest)
}

/// The adder of RFC 1936: one 32-bit word per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adder {
    sum: u32,
    carry: bool,
}

impl Adder {
    /// One step: the next one adds its carry.
    pub fn step(&mut self, word: u32) {
        let (sum, first) = self.sum.overflowing_add(word);
        let (sum, second) = sum.overflowing_add(self.carry.into());
        // These cannot both overflow: the first leaves at most 2^32 - 2.
        (self.sum, self.carry) = (sum, first || second);
    }
    /// The sum, after the empty steps that the carry needs.
    pub fn finish(mut self) -> Sum {
        while self.carry {
            self.step(0);
        }
        Sum::word((self.sum >> 16) as u16).and(Sum::word(self.sum as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn inserts_the_same_checksum_as_a_pass_over_the_data(
            packet in proptest::collection::vec(any::<u8>(), 24..2000), start in 0usize..16,
            insert in 0usize..4, seed: u16,
        ) {
            let insert = start + 2 * insert;
            let mut packet = packet;
            packet[insert..insert + 2].fill(0);
            let mut out = vec![0; packet.len()];
            let seed = Sum::word(seed);
            Embedded { start, insert, seed }.transmit(&packet, &mut out).unwrap();
            let wanted = Sum::of(&packet[start..]).and(seed).checksum_never_zero();
            prop_assert_eq!(u16::from_be_bytes([out[insert], out[insert + 1]]), wanted);
            packet[insert..insert + 2].copy_from_slice(&wanted.to_be_bytes());
            prop_assert_eq!(&out, &packet);
            prop_assert!(Sum::of(&out[start..]).and(seed).is_intact());
            // And on the way in.
            let rest = received(Sum::of(&out), &out[..start]);
            prop_assert_eq!(rest.value() % 0xffff, Sum::of(&out[start..]).value() % 0xffff);
        }

        #[test]
        fn adds_as_rfc_1071_does(words in proptest::collection::vec(any::<u32>(), 0..50)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let mut adder = Adder::default();
            words.iter().for_each(|&word| adder.step(word));
            prop_assert_eq!(adder.finish().value() % 0xffff, Sum::of(&bytes).value() % 0xffff);
        }
    }

    #[test]
    fn refuses_offsets_outside_the_packet() {
        let mut out = [0; 8];
        let place = |start, insert| Embedded { start, insert, seed: Sum::ZERO };
        assert!(place(0, 7).transmit(&[0; 8], &mut out).is_err());
        assert!(place(0, usize::MAX).transmit(&[0; 8], &mut out).is_err());
        assert!(place(4, 2).transmit(&[0; 8], &mut out).is_err());
        assert!(place(0, 3).transmit(&[0; 8], &mut out).is_err());
        assert!(place(0, 2).transmit(&[0; 7], &mut out).is_err());
        assert!(place(0, 6).transmit(&[0; 8], &mut out).is_ok());
    }
}
