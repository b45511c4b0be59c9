//! Bit rates and costs per byte, both exact per packet.

use crate::{Bytes, Duration};
use std::fmt;

/// Bits per second.
///
/// ```
/// use lastmeter_base::{Bytes, Rate};
/// // 2 ps a byte would say 3000.
/// assert_eq!(Rate::from_gbit(3200).time_for(Bytes(1500)).as_ps(), 3_750);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// `bits` per second. Panics on zero: a link without a rate does not exist.
    pub const fn from_bits(bits: u64) -> Rate {
        assert!(bits > 0, "a rate of zero");
        Rate(bits)
    }
    /// `n` million bits per second.
    pub const fn from_mbit(n: u64) -> Rate {
        Rate::from_bits(n.checked_mul(1_000_000).expect("rate too high"))
    }
    /// `n` thousand million bits per second.
    pub const fn from_gbit(n: u64) -> Rate {
        Rate::from_bits(n.checked_mul(1_000_000_000).expect("rate too high"))
    }
    /// Bits per second.
    pub const fn as_bits(self) -> u64 {
        self.0
    }
    /// Time to serialise `bytes`: exact, rounded up once for the whole packet, never per byte.
    #[inline]
    pub fn time_for(self, bytes: Bytes) -> Duration {
        const PS: u64 = 1_000_000_000_000;
        // Packets up to 2.3 MB fit in 64 bits, where division is several times cheaper.
        if let Some(product) = bytes.0.checked_mul(8 * PS) {
            return Duration::from_ps(product.div_ceil(self.0));
        }
        let exact = (u128::from(bytes.0) * 8 * u128::from(PS)).div_ceil(self.0.into());
        Duration::from_ps(u64::try_from(exact).unwrap_or(u64::MAX))
    }
    /// Time in which at most `bytes` are sent at this rate: exact, rounded down.
    pub fn time_within(self, bytes: Bytes) -> Duration {
        let exact = u128::from(bytes.0) * 8 * 1_000_000_000_000 / u128::from(self.0);
        Duration::from_ps(u64::try_from(exact).unwrap_or(u64::MAX))
    }
    /// `self * numerator / denominator`, rounded down, at least 1 bit/s.
    pub fn scale_floor(self, numerator: u64, denominator: u64) -> Rate {
        let scaled = u128::from(self.0) * u128::from(numerator) / u128::from(denominator);
        Rate(u64::try_from(scaled).expect("rate too high").max(1))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] = [
            (1_000_000_000_000, "Tbit/s"),
            (1_000_000_000, "Gbit/s"),
            (1_000_000, "Mbit/s"),
            (1_000, "kbit/s"),
            (1, "bit/s"),
        ];
        crate::text::write_in(f, self.0, &UNITS, UNITS[4])
    }
}

/// Time per byte, in whole femtoseconds, so that "0.42 us/B" and "0.31 ns/B" are both exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerByte(u64);

impl PerByte {
    /// Costs nothing per byte.
    pub const ZERO: PerByte = PerByte(0);
    /// `fs` femtoseconds per byte.
    pub const fn from_fs(fs: u64) -> PerByte {
        PerByte(fs)
    }
    /// Femtoseconds per byte.
    pub const fn as_fs(self) -> u64 {
        self.0
    }
    /// Time per byte of a memory, bus or CPU that moves data at `rate`, rounded up to a femtosecond.
    pub const fn from_rate(rate: Rate) -> PerByte {
        PerByte(8_000_000_000_000_000u64.div_ceil(rate.0))
    }
    /// Time for `bytes`: exact, rounded up once.
    #[inline]
    pub fn time_for(self, bytes: Bytes) -> Duration {
        let exact = (u128::from(self.0) * u128::from(bytes.0)).div_ceil(1_000);
        Duration::from_ps(u64::try_from(exact).unwrap_or(u64::MAX))
    }
    /// `self * numerator / denominator`, rounded up.
    pub fn scale_ceil(self, numerator: u64, denominator: u64) -> PerByte {
        let scaled = (u128::from(self.0) * u128::from(numerator)).div_ceil(denominator.into());
        PerByte(u64::try_from(scaled).expect("cost per byte too high"))
    }
}

impl fmt::Display for PerByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [
            (1_000_000_000_000, "ms/B"),
            (1_000_000_000, "us/B"),
            (1_000_000, "ns/B"),
            (1_000, "ps/B"),
        ];
        crate::text::write_in(f, self.0, &UNITS, UNITS[3])
    }
}

/// The cost of a stage on its resource.
///
/// ```
/// use lastmeter_base::{Bytes, Cost, Duration, PerByte};
/// let copy = Cost { per_packet: Duration::from_us(1), per_byte: PerByte::from_fs(500_000) };
/// assert_eq!(copy.time_for(Bytes(1000)), Duration::from_ns(1_500));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time for each packet, whatever its size.
    pub per_packet: Duration,
    /// Time for each byte of it.
    pub per_byte: PerByte,
}

impl Cost {
    /// Costs nothing.
    pub const FREE: Cost = Cost { per_packet: Duration::ZERO, per_byte: PerByte::ZERO };
    /// Time for one packet of `len`.
    #[inline]
    pub fn time_for(self, len: Bytes) -> Duration {
        self.per_packet + self.per_byte.time_for(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_4_kib_message_costs_what_its_document_says() {
        // E-63, Table 5.1: 0.42 us a byte for 4096 bytes.
        let per_byte = PerByte::from_fs(420_000_000);
        assert_eq!(per_byte.time_for(Bytes(4096)), Duration::from_ps(1_720_320_000));
    }

    proptest! {
        #[test]
        fn time_for_agrees_in_64_and_in_128_bits(bits in 1u64..=u64::MAX / 2, len in 0u64..1 << 20) {
            let exact = (u128::from(len) * 8_000_000_000_000).div_ceil(u128::from(bits));
            prop_assert_eq!(
                u128::from(Rate::from_bits(bits).time_for(Bytes(len)).as_ps()), exact);
        }

        #[test]
        fn rounding_up_never_lets_a_link_run_faster_than_its_rate(
            bits in 1_000u64..1 << 50, len in 1u64..1 << 20,
        ) {
            let time = Rate::from_bits(bits).time_for(Bytes(len)).as_ps();
            let carried = u128::from(time) * u128::from(bits) / 1_000_000_000_000;
            prop_assert!(carried >= u128::from(len) * 8 - 1);
        }
    }
}
