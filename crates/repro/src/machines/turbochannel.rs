//! A bus whose masters arbitrate, wait, and then move a burst of words: TURBOchannel.
//!
//! ```text
//! request --[overhead: arbitration, grant, latency]--> word word word ... word --> release
//! ```
//!
//! A burst of `n` words holds the bus for the overhead of its direction and one cycle per word. A transfer
//! longer than the longest burst takes several bursts.
//!
//! Source: TURBOchannel has 32 bits and 25 MHz, 100 MB/s; the overhead of 8 cycles for a write to memory and 13
//! for a read was measured with Osiris (Druschel, Peterson and Davie, "Experiences with a high-speed network
//! adaptor", SIGCOMM 1994, from memory). With 12 words, a cell's payload, they give exactly the 480 and 384 Mbit/s
//! of "Aurora at MIT", §4.2.3 (A-102), which is why we trust them.

use lastmeter_base::{Bytes, Duration, Rate};

/// Bytes of a word.
const WORD: u64 = 4;

/// A bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bus {
    /// Time of a word.
    pub cycle: Duration,
    /// Overhead in cycles of a burst from a device to memory.
    pub write: u64,
    /// Overhead in cycles of a burst from memory to a device.
    pub read: u64,
    /// Words of the longest burst; at least 1.
    pub burst: u64,
}

/// Direction of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a device to memory.
    ToMemory,
    /// From memory to a device.
    FromMemory,
}

impl Bus {
    /// The time for which a transfer of `bytes` holds the bus.
    ///
    /// ```
    /// use lastmeter_base::{Bytes, Duration};
    /// use lastmeter_repro::machines::turbochannel::{Bus, Way};
    /// let bus = Bus { cycle: Duration::from_ns(40), write: 8, read: 13, burst: 128 };
    /// assert_eq!(bus.holds(Bytes(48), Way::ToMemory), Duration::from_ns(40 * (8 + 12)));
    /// assert_eq!(bus.holds(Bytes(516), Way::FromMemory), Duration::from_ns(40 * (2 * 13 + 129)));
    /// ```
    pub fn holds(&self, bytes: Bytes, way: Way) -> Duration {
        let words = bytes.0.div_ceil(WORD);
        let bursts = words.div_ceil(self.burst.max(1));
        let overhead = match way {
            Way::ToMemory => self.write,
            Way::FromMemory => self.read,
        };
        self.cycle * (words + bursts * overhead)
    }

    /// Throughput of back-to-back transfers of `bytes`.
    pub fn rate(&self, bytes: Bytes, way: Way) -> Rate {
        rate(bytes, self.holds(bytes, way))
    }

    /// Throughput of packets of `bytes` that go to memory and out again over the same bus.
    pub fn forwards(&self, bytes: Bytes) -> Rate {
        let both = self.holds(bytes, Way::ToMemory) + self.holds(bytes, Way::FromMemory);
        rate(bytes, both)
    }

    /// Peak rate without arbitration: a word per cycle.
    pub fn peak(&self) -> Rate {
        rate(Bytes(WORD), self.cycle)
    }
}

/// `bytes` in `time`, at least 1 bit/s.
fn rate(bytes: Bytes, time: Duration) -> Rate {
    let bits = u128::from(bytes.0) * 8 * 1_000_000_000_000 / u128::from(time.as_ps().max(1));
    Rate::from_bits(u64::try_from(bits).unwrap_or(u64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUS: Bus = Bus { cycle: Duration::from_ns(40), write: 8, read: 13, burst: 128 };

    #[test]
    fn a_102_osiris_moves_480_and_384_mbit_of_cells_a_second() {
        assert_eq!(BUS.rate(Bytes(48), Way::ToMemory), Rate::from_mbit(480));
        assert_eq!(BUS.rate(Bytes(48), Way::FromMemory), Rate::from_mbit(384));
    }

    #[test]
    fn larger_bursts_come_nearer_to_the_peak_and_never_reach_it() {
        let mut last = Rate::from_bits(1);
        for words in 1..=128 {
            let rate = BUS.rate(Bytes(4 * words), Way::ToMemory);
            assert!(rate > last && rate < BUS.peak());
            last = rate;
        }
        assert_eq!(BUS.peak(), Rate::from_mbit(800));
    }

    #[test]
    fn what_is_forwarded_crosses_twice() {
        assert!(BUS.forwards(Bytes(512)).as_bits() < BUS.peak().as_bits() / 2);
    }
}
