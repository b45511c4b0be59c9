//! An application's traffic contract, and the service that it requires in return (E-16).
//!
//! | Field          | Unit | Letter  | Meaning                                             |
//! |----------------|------|---------|-----------------------------------------------------|
//! | `message_max`  | size | S_max   | longest message                                     |
//! | `interval_min` | time | I_min   | 1 / R_max: least (logical) time between messages    |
//! | `burst_max`    | -    | B_max   | messages that may arrive at once                    |
//! | `packet_max`   | size | -       | longest packet that a message is cut into           |
//! | `deadline`     | time | d       | from logical arrival until delivery, end to end     |
//!
//! In any time t it makes at most B_max + t / I_min messages. Source: Indiresan 1997, §3.2.1.
//!
//! ```
//! use lastmeter_base::{Bytes, Duration};
//! use lastmeter_transport::channel::contract::Contract;
//! // Table 6.2, channel 0.
//! let contract = Contract {
//!     message_max: Bytes::from_kib(60),
//!     interval_min: Duration::from_ms(50),
//!     burst_max: 12,
//!     packet_max: Bytes::from_kib(4),
//!     deadline: Duration::from_ms(40),
//! };
//! assert_eq!(contract.check(), Ok(()));
//! assert_eq!((contract.packets(), contract.bytes_per_second()), (15, 1_228_800.0));
//! ```

use lastmeter_base::{Bytes, Duration, Rate};
use std::fmt;

/// Most packets of a message: the limit of the header's field.
pub const PACKETS_MAX: u64 = 1 << 16;
/// Longest interval and deadline: a day, so that sums of many stay within the clock's range.
pub const TIME_MAX: Duration = Duration::from_secs(86_400);

/// A contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Contract {
    /// S_max, the longest message.
    pub message_max: Bytes,
    /// I_min, the least time between messages.
    pub interval_min: Duration,
    /// B_max, messages that may arrive at once.
    pub burst_max: u64,
    /// The longest packet.
    pub packet_max: Bytes,
    /// d, from logical arrival until delivery.
    pub deadline: Duration,
}

/// What is wrong with a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// An empty message or packet.
    Empty,
    /// More packets per message than [`PACKETS_MAX`].
    Packets(u64),
    /// No time between messages, or no time until the deadline, or more than [`TIME_MAX`].
    Time(Duration),
    /// A burst of no messages.
    Burst,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Empty => write!(f, "messages and packets must have at least 1 B"),
            Flaw::Packets(packets) => {
                write!(f, "a message of {packets} packets; at most {PACKETS_MAX} are possible")
            }
            Flaw::Time(time) => {
                write!(f, "{time}; intervals and deadlines must be between 1 ps and {TIME_MAX}")
            }
            Flaw::Burst => write!(f, "a burst of no messages; it must be at least 1"),
        }
    }
}
impl std::error::Error for Flaw {}

impl Contract {
    /// Whether it is valid.
    ///
    /// # Errors
    /// The first flaw.
    pub fn check(&self) -> Result<(), Flaw> {
        if self.message_max == Bytes::ZERO || self.packet_max == Bytes::ZERO {
            return Err(Flaw::Empty);
        }
        if self.packets() > PACKETS_MAX {
            return Err(Flaw::Packets(self.packets()));
        }
        for time in [self.interval_min, self.deadline] {
            if time.is_zero() || time > TIME_MAX {
                return Err(Flaw::Time(time));
            }
        }
        match self.burst_max {
            0 => Err(Flaw::Burst),
            _ => Ok(()),
        }
    }

    /// Packets of the longest message.
    pub fn packets(&self) -> u64 {
        self.message_max.0.div_ceil(self.packet_max.0.max(1))
    }

    /// The lengths of the packets of a message of `len`: all are the longest but the last.
    pub fn cut(&self, len: Bytes) -> impl Iterator<Item = Bytes> + use<> {
        let most = self.packet_max.0.max(1);
        let count = len.0.div_ceil(most).max(1);
        (0..count).map(move |n| Bytes((len.0 - n * most).min(most)))
    }

    /// The rate that it promises not to exceed, in bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.message_max.0 as f64 / self.interval_min.as_secs_f64()
    }

    /// The TSpec of the same traffic for an IEEE 802.1Q network, once it leaves at its logical times (802.1Qcc,
    /// §46.2.3.5).
    pub fn tspec(&self) -> TSpec {
        TSpec {
            interval: self.interval_min,
            frames_max: self.packets(),
            frame_max: self.packet_max.min(self.message_max),
        }
    }
}

/// A stream's traffic specification: number and length of frames in every interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TSpec {
    /// Interval.
    pub interval: Duration,
    /// MaxFramesPerInterval.
    pub frames_max: u64,
    /// MaxFrameSize.
    pub frame_max: Bytes,
}

/// A link, for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// Its rate.
    pub rate: Rate,
    /// Cost per packet in addition to its bytes.
    pub per_packet: Duration,
    /// The longest packet of any class that it ever sends.
    pub packet_max: Bytes,
    /// Packets in its adapter, beyond the scheduler's control, including the one being sent.
    pub outstanding: u64,
    /// Propagation delay.
    pub propagation: Duration,
    /// How early the scheduler may send (§3.2.4).
    pub horizon: Duration,
    /// How far the next node's clock may be ahead of this one's.
    pub skew: Duration,
}

impl Link {
    /// How long the link is busy with a packet.
    pub fn time_for(&self, len: Bytes) -> Duration {
        self.per_packet + self.rate.time_for(len)
    }

    /// How long the link is busy with the longest message of a contract.
    pub fn cost(&self, contract: &Contract) -> Duration {
        contract.cut(contract.message_max).map(|len| self.time_for(len)).sum()
    }

    /// How long packets already given to the adapter block an urgent one.
    pub fn blocking(&self) -> Duration {
        self.time_for(self.packet_max) * self.outstanding.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Contract = Contract {
        message_max: Bytes(8192),
        interval_min: Duration::from_ms(50),
        burst_max: 4,
        packet_max: Bytes(2048),
        deadline: Duration::from_ms(50),
    };

    #[test]
    fn e_16_a_flaw_is_named() {
        let flaw = |contract: Contract| contract.check().unwrap_err();
        assert_eq!(flaw(Contract { message_max: Bytes::ZERO, ..USUAL }), Flaw::Empty);
        assert_eq!(flaw(Contract { packet_max: Bytes::ZERO, ..USUAL }), Flaw::Empty);
        let many = Contract { message_max: Bytes(PACKETS_MAX + 1), packet_max: Bytes(1), ..USUAL };
        assert_eq!(flaw(many), Flaw::Packets(PACKETS_MAX + 1));
        let never = Contract { deadline: Duration::ZERO, ..USUAL };
        assert_eq!(flaw(never), Flaw::Time(Duration::ZERO));
        assert_eq!(flaw(Contract { burst_max: 0, ..USUAL }), Flaw::Burst);
        assert!(flaw(many).to_string().contains("65537 packets"));
    }

    #[test]
    fn a_message_is_cut_into_full_packets_and_a_remainder() {
        let lens: Vec<u64> = USUAL.cut(Bytes(5000)).map(|len| len.0).collect();
        assert_eq!(lens, [2048, 2048, 904]);
        assert_eq!(USUAL.cut(Bytes(8192)).count(), 4);
        assert_eq!(
            USUAL.tspec(),
            TSpec { interval: Duration::from_ms(50), frames_max: 4, frame_max: Bytes(2048) }
        );
    }
}
