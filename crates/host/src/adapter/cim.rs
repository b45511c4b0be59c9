//! The Ancor VME CIM 250, a Fibre Channel adapter of 1993, by its published delay equations.
//!
//! ```text
//!            M_overhead             T_DMA                  T_FC
//! message -> command, stack -> DMA, segments -> [memory] -> Fibre Channel, frames -> network
//!                                        one bus: the two do not overlap
//! ```
//!
//! With a pipeline depth of 1, one message is in flight at a time; at depth 2 the host sends the next message
//! before the previous one is done. The constants are those of Table 5.1 and are in `profiles/devices/cim.toml`.
//!
//! Source: Indiresan, "Exploring quality-of-service issues in network interface design", University
//! of Michigan, 1997, §5.1.3 and §5.2.2, Eqs 5.1 to 5.6 and Table 5.1.
//!
//! Limits of the equations, not of this code: they estimate means for homogeneous traffic on an idle host. Eqs 5.5
//! and 5.6 ignore the limit on messages in flight, although at depth 2 the mean time per message cannot be less
//! than half the time of one message alone (Eq 5.2). Both go below that, Eq 5.5 for small messages.

use lastmeter_base::{Bytes, Duration, PerByte};

/// Constants of such an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cim {
    /// `M_overhead`: fixed cost per message, host and interface together.
    pub message_overhead: Duration,
    /// `D_segsize`: bytes per DMA transfer.
    pub segment: Bytes,
    /// `D_overhead`: DMA overhead per segment.
    pub segment_overhead: Duration,
    /// `S_small`: up to this length, a byte costs `per_byte_small`.
    pub small: Bytes,
    /// `D_byte^small`: DMA time per byte up to `small`.
    pub per_byte_small: PerByte,
    /// `D_byte^large`: DMA time per byte beyond `small`.
    pub per_byte_large: PerByte,
    /// `F_framesize`: payload of one Fibre Channel frame.
    pub frame: Bytes,
    /// `F_overhead`: Fibre Channel overhead per message.
    pub transmit_overhead: Duration,
    /// `F_framedelay`: transmit time per frame, full or not.
    pub frame_delay: Duration,
}

/// The share of `F_overhead` that other operations may overlap. §5.1.3.2 chose it "from empirical observations" to
/// make the emulated adapter agree with the real one; a larger share makes Eq 5.5 faster.
const OVERLAP: (u64, u64) = (1, 3);

impl Cim {
    /// Eq 5.1, `T_FC`: duration of the Fibre Channel phase of a message of `len`.
    pub fn transmit_time(&self, len: Bytes) -> Duration {
        self.transmit_overhead + self.frames_time(len)
    }

    /// Eq 5.3, `T_DMA`: duration of the DMA phase of a message of `len`.
    pub fn dma_time(&self, len: Bytes) -> Duration {
        let segments = self.segment_overhead * len.0.div_ceil(self.segment.0);
        if len < self.small {
            return segments + self.per_byte_small.time_for(len);
        }
        segments
            + self.per_byte_small.time_for(self.small)
            + self.per_byte_large.time_for(len - self.small)
    }

    /// Eq 5.2: mean time of a message of `len` at pipeline depth 1.
    pub fn time_alone(&self, len: Bytes) -> Duration {
        self.message_overhead + self.dma_time(len) + self.transmit_time(len)
    }

    /// Eq 5.4: mean time at depth 2 where DMA and Fibre Channel never overlap.
    pub fn time_in_turn(&self, len: Bytes) -> Duration {
        self.dma_time(len) + self.transmit_time(len)
    }

    /// Eq 5.5: mean time at depth 2 where a third of the Fibre Channel overhead overlaps the DMA.
    pub fn time_overlapped(&self, len: Bytes) -> Duration {
        let hidden = self.transmit_overhead.scale_ceil(OVERLAP.0, OVERLAP.1);
        self.dma_time(len).max(hidden) + (self.transmit_overhead - hidden) + self.frames_time(len)
    }

    /// Eq 5.6: mean time at depth 2 with two memory banks, so that DMA and Fibre Channel overlap.
    pub fn time_two_banks(&self, len: Bytes) -> Duration {
        self.dma_time(len).max(self.transmit_time(len))
    }

    /// Lower bound on the mean time at depth 2, whatever overlaps: two messages per duration of Eq 5.2.
    ///
    /// Not in the document; without this bound, Eqs 5.5 and 5.6 predict more than two messages in flight can
    /// achieve.
    pub fn time_least_of_two(&self, len: Bytes) -> Duration {
        self.time_alone(len).scale_ceil(1, 2)
    }

    fn frames_time(&self, len: Bytes) -> Duration {
        self.frame_delay * len.0.div_ceil(self.frame.0)
    }
}

/// Table 5.1, read from the profile.
#[cfg(test)]
pub(crate) fn table_5_1() -> Cim {
    const FILE: &str = include_str!("../../../../profiles/devices/cim.toml");
    Cim {
        message_overhead: constant(FILE, "per-message"),
        segment: constant(FILE, "block"),
        segment_overhead: constant(FILE, "per-block"),
        small: constant(FILE, "small"),
        per_byte_small: constant(FILE, "per-byte-small"),
        per_byte_large: constant(FILE, "per-byte"),
        frame: constant(FILE, "frame"),
        transmit_overhead: constant(FILE, "setup"),
        frame_delay: constant(FILE, "per-frame"),
    }
}

/// The value of a key in a profile's text.
#[cfg(test)]
pub(crate) fn constant<T: lastmeter_base::text::Quantity>(file: &str, name: &str) -> T {
    let value = file.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
    let written = value.and_then(|rest| rest.split('"').next()).expect("the profile has this key");
    T::parse(written).expect("a value with its unit")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(equation: fn(&Cim, Bytes) -> Duration, by_hand: &[(u64, u64)]) {
        for &(len, ns) in by_hand {
            assert_eq!(equation(&table_5_1(), Bytes(len)), Duration::from_ns(ns), "{len} bytes");
        }
    }

    #[test]
    fn e_64_eq_5_1_counts_partial_frames_as_whole() {
        // 1350 + 1, 1, 2, 2, 32 frames x 79.75 us.
        let by_hand = [
            (1, 1_429_750),
            (2048, 1_429_750),
            (2049, 1_509_500),
            (4096, 1_509_500),
            (65_536, 3_902_000),
        ];
        check(Cim::transmit_time, &by_hand);
    }

    #[test]
    fn e_66_eq_5_3_has_two_slopes_that_meet_at_s_small() {
        // 44: 1.76 + 18.48. 1024: 4 x 1.76 + 430.08. 4095: 16 x 1.76 + 1719.9.
        // 4096: 16 x 1.76 + 1720.32. 8192: 32 x 1.76 + 1720.32 + 4096 x 0.31.
        let by_hand = [
            (44, 20_240),
            (1024, 437_120),
            (4095, 1_748_060),
            (4096, 1_748_480),
            (8192, 3_046_400),
        ];
        check(Cim::dma_time, &by_hand);
    }

    #[test]
    fn e_65_eq_5_2_is_the_sum_of_the_three_phases() {
        // 1280 + 1748.48 + 1509.5.
        check(Cim::time_alone, &[(4096, 4_537_980)]);
    }

    #[test]
    fn e_67_eq_5_4_hides_the_message_overhead() {
        check(Cim::time_in_turn, &[(4096, 3_257_980)]);
    }

    #[test]
    fn e_68_eq_5_5_hides_a_third_of_the_fibre_channel_overhead_or_the_dma() {
        // 4096: 1748.48 + 900 + 159.5. 1024: DMA is shorter than 450, so 450 + 900 + 79.75.
        check(Cim::time_overlapped, &[(4096, 2_807_980), (1024, 1_429_750)]);
    }

    #[test]
    fn e_75_eq_5_6_is_the_slower_of_the_two_phases() {
        check(Cim::time_two_banks, &[(4096, 1_748_480), (1024, 1_429_750), (8192, 3_046_400)]);
    }

    #[test]
    fn two_messages_in_flight_take_at_least_half_a_round_each() {
        // (1280 + 1748.48 + 1509.5) / 2: more than Eq 5.6 gives for the same message.
        check(Cim::time_least_of_two, &[(4096, 2_268_990)]);
    }
}
