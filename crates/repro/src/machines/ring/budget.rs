//! How a timed token's rotation is divided, and how long a station waits for the token.
//!
//! ```text
//! |<---------------------------- TTRT ---------------------------->|
//! | T_synch        | T_asynch              | T_overrun    | T_prop |
//! |<------------------- T_transmit ---------------------->|
//! ```
//!
//! Under load the token rotates in `TTRT` on average, and always in less than twice that. A frame in transmission
//! may finish, which is what `T_overrun` is for.
//!
//! Source: Watson et al., "AAL5 at a Gigabit for a Kilobuck", HPL-93-37, 1993, §3.1. The document does not give the
//! propagation speed; it is a parameter here.

use lastmeter_base::{Bytes, Duration, Rate};

/// A ring with a timed token.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate};
/// use lastmeter_repro::machines::ring::budget::Ring;
/// let jetstream = Ring {
///     rotation_target: Duration::from_ms(1),
///     rate: Rate::from_mbit(960),
///     nodes: 16,
///     node_delay: Duration::from_us(1),
///     metres: 1_000,
///     metre_delay: Duration::from_ns(5),
///     frame_max: Bytes(65_576),
/// };
/// assert_eq!(jetstream.propagation(), Duration::from_us(21));
/// assert_eq!(jetstream.access_max_asynchronous(), Duration::from_ms(15));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// `TTRT`, the target token rotation time.
    pub rotation_target: Duration,
    /// Rate of the ring.
    pub rate: Rate,
    /// `N`: hosts and the switch.
    pub nodes: u64,
    /// Delay of a node, token handling included.
    pub node_delay: Duration,
    /// Length of the ring.
    pub metres: u64,
    /// Propagation delay per metre.
    pub metre_delay: Duration,
    /// The longest frame, its headers included.
    pub frame_max: Bytes,
}

impl Ring {
    /// `T_prop`: once around the ring, through every node.
    pub fn propagation(&self) -> Duration {
        self.node_delay * self.nodes + self.metre_delay * self.metres
    }

    /// J-17, `T_transmit = TTRT - T_prop`: the time left for frames in a rotation.
    pub fn transmit(&self) -> Duration {
        self.rotation_target.saturating_sub(self.propagation())
    }

    /// `T_overrun`: how far a frame that starts at the last moment exceeds it.
    pub fn overrun(&self) -> Duration {
        self.rate.time_for(self.frame_max)
    }

    /// The largest `T_synch`: a rotation less the reserve for one overrun.
    ///
    /// The document ignores `T_prop` here, and so `kept` may include it or not.
    pub fn synchronous_max(&self, kept: Duration) -> Duration {
        self.rotation_target.saturating_sub(kept)
    }

    /// The rate that `synchronous` time per rotation gives.
    pub fn synchronous_rate(&self, synchronous: Duration) -> Rate {
        self.rate.scale_floor(synchronous.as_ps(), self.rotation_target.as_ps())
    }

    /// The longest wait of synchronous traffic: no rotation takes longer than `2 x TTRT`.
    pub fn access_max_synchronous(&self) -> Duration {
        self.rotation_target * 2
    }

    /// The longest wait of asynchronous traffic, `(N-1) x TTRT`: every other node goes first.
    pub fn access_max_asynchronous(&self) -> Duration {
        self.rotation_target * self.nodes.saturating_sub(1)
    }

    /// The time after which the token is declared lost, `2 x TTRT`.
    pub fn token_lost_after(&self) -> Duration {
        self.rotation_target * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §3.1, with 5 ns per metre, the speed in fibre or coaxial cable.
    const JETSTREAM: Ring = Ring {
        rotation_target: Duration::from_ms(1),
        rate: Rate::from_mbit(960),
        nodes: 16,
        node_delay: Duration::from_us(1),
        metres: 1_000,
        metre_delay: Duration::from_ns(5),
        frame_max: Bytes(65_576),
    };

    #[test]
    fn j_17_and_j_18_what_the_signal_takes_is_not_for_frames() {
        // 16 x 1 us + 1000 m x 5 ns; 1000 us - 21 us.
        assert_eq!(JETSTREAM.propagation(), Duration::from_us(21));
        assert_eq!(JETSTREAM.transmit(), Duration::from_us(979));
    }

    #[test]
    fn j_19_one_maximal_frame_takes_546_us() {
        // 65 576 x 8 / 960 = 546.4667 us, rounded up to a picosecond.
        assert_eq!(JETSTREAM.overrun(), Duration::from_ps(546_466_667));
    }

    #[test]
    fn j_20_300_us_of_every_millisecond_are_288_mbit() {
        let synchronous = JETSTREAM.synchronous_max(Duration::from_us(700));
        assert_eq!(synchronous, Duration::from_us(300));
        assert_eq!(JETSTREAM.synchronous_rate(synchronous), Rate::from_mbit(288));
        assert_eq!(JETSTREAM.access_max_synchronous(), Duration::from_ms(2));
    }

    #[test]
    fn j_21_and_j_16_others_go_first_and_the_token_may_be_lost() {
        assert_eq!(JETSTREAM.access_max_asynchronous(), Duration::from_ms(15));
        assert_eq!(JETSTREAM.token_lost_after(), Duration::from_ms(2));
    }

    #[test]
    fn a_ring_longer_than_its_rotation_carries_nothing() {
        let metres = 300_000;
        assert_eq!(Ring { metres, ..JETSTREAM }.transmit(), Duration::ZERO);
    }
}
