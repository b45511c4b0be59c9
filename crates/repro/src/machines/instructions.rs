//! The processor cost of a packet, counted in instructions and memory references.
//!
//! Each instruction takes one cycle, and one more if it references memory. So a list of steps gives cycles,
//! cycles give time, and time gives the smallest packet with which a link stays full.
//!
//! Source: Clark, Houh and Tennenhouse (eds.), "Aurora at MIT", final report, Section 2 (ANA), §3.1, which counts
//! IP forwarding this way.

use lastmeter_base::{Bytes, Duration, Rate};

/// A step of the work on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub what: String,
    /// Its instructions.
    pub instructions: u64,
}

/// The work on a packet, and its processor.
///
/// ```
/// use lastmeter_base::Duration;
/// use lastmeter_repro::machines::instructions::{Budget, Step};
/// let budget = Budget {
///     steps: vec![Step { what: "forward".into(), instructions: 80 }],
///     memory_share: (1, 3),
///     cycle: Duration::from_ns(10),
/// };
/// assert_eq!(budget.cycles().rounded(), 107);
/// assert_eq!(budget.cycles().times(budget.cycle), Duration::from_ps(1_066_667));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The share of instructions that reference memory, as numerator and denominator.
    pub memory_share: (u64, u64),
    /// Clock period of the processor.
    pub cycle: Duration,
}

/// A number of cycles, possibly fractional: it is a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycles {
    numerator: u64,
    denominator: u64,
}

impl Budget {
    /// Instructions of all steps.
    pub fn instructions(&self) -> u64 {
        self.steps.iter().map(|step| step.instructions).sum()
    }

    /// One cycle for each instruction and one more for each memory reference, exact.
    pub fn cycles(&self) -> Cycles {
        let (touching, of) = self.memory_share;
        Cycles { numerator: self.instructions() * (of + touching), denominator: of }
    }
}

impl Cycles {
    /// `count` whole cycles.
    pub fn whole(count: u64) -> Cycles {
        Cycles { numerator: count, denominator: 1 }
    }

    /// The nearest whole number of cycles; halves go up.
    pub fn rounded(self) -> u64 {
        (2 * self.numerator + self.denominator) / (2 * self.denominator)
    }

    /// Their duration at `cycle` each, rounded up to a picosecond.
    pub fn times(self, cycle: Duration) -> Duration {
        cycle.scale_ceil(self.numerator, self.denominator)
    }
}

/// Packets per second of a processor that spends `each` on a packet and does nothing else.
pub fn packets_per_second(each: Duration) -> f64 {
    1.0 / each.as_secs_f64()
}

/// Bytes that `link` carries during the work on a packet, with their fraction.
///
/// ```
/// use lastmeter_base::{Duration, Rate};
/// use lastmeter_repro::machines::instructions::bytes_carried;
/// // 8 Gbit/s is a byte a nanosecond.
/// assert_eq!(bytes_carried(Rate::from_gbit(8), Duration::from_ns(64)), 64.0);
/// ```
pub fn bytes_carried(link: Rate, each: Duration) -> f64 {
    link.as_bits() as f64 / 8.0 * each.as_secs_f64()
}

/// The smallest packet with which `link` stays full if each costs `each`: one byte less would take less time to send.
pub fn packet_min(link: Rate, each: Duration) -> Bytes {
    const PS: u128 = 1_000_000_000_000;
    let bytes = (u128::from(link.as_bits()) * u128::from(each.as_ps())).div_ceil(8 * PS);
    Bytes(u64::try_from(bytes).expect("a packet of less than 2^64 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of §3.1 of the ANA part, in its order, on its 100 MHz processor.
    fn ip() -> Budget {
        let steps = [
            ("check header fields", 15),
            ("header checksum", 15),
            ("decrement TTL", 5),
            ("look up route in cache", 25),
            ("add local network header", 20),
        ];
        let step = |(what, instructions): (&str, u64)| Step { what: what.to_owned(), instructions };
        Budget {
            steps: steps.map(step).to_vec(),
            memory_share: (1, 3),
            cycle: Duration::from_ns(10),
        }
    }

    #[test]
    fn a_132_ip_forwarding_takes_107_cycles() {
        // 15 + 15 + 5 + 25 + 20 = 80; 80 + 80/3 = 106.67.
        assert_eq!(ip().instructions(), 80);
        assert_eq!(ip().cycles(), Cycles { numerator: 320, denominator: 3 });
        assert_eq!(ip().cycles().rounded(), 107);
    }

    #[test]
    fn a_133_the_rate_is_a_little_less_than_a_million() {
        let each = Cycles::whole(107).times(ip().cycle);
        assert_eq!(each, Duration::from_ns(1_070));
        assert_eq!(packets_per_second(each).round(), 934_579.0); // 10^8 / 107
    }

    #[test]
    fn a_133_whether_83_bytes_fill_622_mbit_depends_on_where_one_rounds() {
        let link = Rate::from_mbit(622);
        // 622 Mbit/s x 1.07 us = 665.54 bits = 83.19 bytes: 83 are a little too few.
        let rounded = Cycles::whole(107).times(ip().cycle);
        assert!((bytes_carried(link, rounded) - 83.1925).abs() < 1e-9);
        assert_eq!(packet_min(link, rounded), Bytes(84));
        // 622 Mbit/s x 1.0667 us = 663.47 bits = 82.93 bytes: 83 are just enough.
        let exact = ip().cycles().times(ip().cycle);
        assert_eq!(packet_min(link, exact), Bytes(83));
    }
}
