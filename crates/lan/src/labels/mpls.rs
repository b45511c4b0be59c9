//! Labels in front of packets: MPLS (RFC 3031, RFC 3032).
//!
//! ```text
//! Ethernet, 0x8847 | label 20 | traffic class 3 | bottom of the stack 1 | time to live 8 | ... | packet
//! ```
//!
//! ```
//! use lastmeter_lan::labels::mpls::Shim;
//! let shim = Shim { label: 524_301, class: 5, bottom: true, ttl: 63 };
//! assert_eq!(Shim::parse(&shim.emit()), Some(shim));
//! ```

/// The type of frames with labels.
pub const ETHERTYPE: [u8; 2] = [0x88, 0x47];
/// Bytes of an entry of the stack.
pub const SHIM_LEN: usize = 4;
/// The greatest label.
pub const LABEL_MAX: u32 = (1 << 20) - 1;
/// Labels below this have meanings of their own.
pub const LABEL_FIRST: u32 = 16;
/// A next router that tells this label wants packets without one; it is never in a packet.
pub const NONE: u32 = 3;
/// MPLS's number as a payload of IP (RFC 4023), here for what is not looked into.
pub const PROTOCOL: u8 = 137;

/// An entry of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    /// The label.
    pub label: u32,
    /// The traffic class, of 8.
    pub class: u8,
    /// Whether it is the last before the packet.
    pub bottom: bool,
    /// Hops that are left, this one included.
    pub ttl: u8,
}

impl Shim {
    /// The entry at the beginning of these bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Shim> {
        let word = u32::from_be_bytes(*bytes.first_chunk()?);
        Some(Shim {
            label: word >> 12,
            class: (word >> 9 & 7) as u8,
            bottom: word & 0x100 != 0,
            ttl: word as u8,
        })
    }
    /// Its bytes.
    #[inline]
    pub fn emit(self) -> [u8; SHIM_LEN] {
        let Shim { label, class, bottom, ttl } = self;
        let label = label & LABEL_MAX;
        (label << 12 | u32::from(class & 7) << 9 | u32::from(bottom) << 8 | u32::from(ttl))
            .to_be_bytes()
    }
}

/// Whether a label may be told to the router before: one of its own, or [`NONE`].
pub fn may_be_told(label: u32) -> bool {
    label == NONE || (LABEL_FIRST..=LABEL_MAX).contains(&label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(label in 0..=LABEL_MAX, class in 0..8u8, bottom: bool, ttl: u8) {
            let shim = Shim { label, class, bottom, ttl };
            prop_assert_eq!(Shim::parse(&shim.emit()), Some(shim));
            prop_assert_eq!(Shim::parse(&shim.emit()[..3]), None);
        }
    }

    #[test]
    fn an_entry_is_as_rfc_3032_draws_it() {
        let shim = Shim { label: 0xabcde, class: 5, bottom: true, ttl: 0x3f };
        assert_eq!(shim.emit(), [0xab, 0xcd, 0xeb, 0x3f]);
        assert!(may_be_told(16) && may_be_told(3) && !may_be_told(0) && !may_be_told(1 << 20));
    }
}
