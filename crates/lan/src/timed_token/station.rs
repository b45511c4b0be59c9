//! The timers of one station of a timed-token ring.
//!
//! ```text
//! token arrives | Late_Ct | may send                                  | timers
//! early         | 0       | synchronous, then asynchronous for THT    | THT = rest of TRT; TRT = TTRT
//! late          | 1       | synchronous only                          | Late_Ct = 0; TRT keeps running
//! TRT runs out  |         |                                           | Late_Ct + 1; TRT = TTRT
//! ```
//!
//! THT runs only while asynchronous frames are sent, and a frame in progress may end (J-23). A synchronous frame
//! is begun only if it can end within the station's allotment (J-22). A station whose TRT has expired twice since
//! the last token has lost the token (J-16).
//!
//! Source: ISO 9314-2 §8.3.1 and §8.3.2; HPL-93-37 §3.1.

use lastmeter_base::{Duration, Time};

/// The timers of one station. Nothing happens in them between tokens, so they need no events.
///
/// ```
/// use lastmeter_base::{Duration, Time};
/// use lastmeter_lan::timed_token::station::Station;
/// let us = Duration::from_us;
/// let mut station = Station::new(us(1000), us(20), Time::START);
/// // It comes back 300 us early.
/// let grant = station.token(Time::START + us(700));
/// assert_eq!((grant.synchronous, grant.asynchronous), (us(20), us(300)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Station {
    target: Duration,
    /// Synchronous time per rotation, SA.
    pub allotment: Duration,
    /// When TRT expires.
    expires: Time,
    /// How often it has expired since the last token, as of the last visit.
    late: u32,
}

/// What a station may send while it holds the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Time for synchronous frames, each of which has to end within it.
    pub synchronous: Duration,
    /// THT: time within which asynchronous frames may begin.
    pub asynchronous: Duration,
    /// Whether TRT had expired twice: the token should have been declared lost.
    pub lost: bool,
}

impl Station {
    /// A station whose TRT starts at `now` with the target rotation time TTRT.
    pub fn new(target: Duration, allotment: Duration, now: Time) -> Station {
        Station { target, allotment, expires: now + target, late: 0 }
    }

    /// The token arrives at `now`.
    #[inline]
    pub fn token(&mut self, now: Time) -> Grant {
        let mut lost = false;
        if now >= self.expires {
            // Without a token TRT may expire many times.
            let times = (now - self.expires).as_ps() / self.target.as_ps() + 1;
            self.expires += self.target * times;
            lost = u64::from(self.late) + times > 1;
            self.late = 1;
        }
        let synchronous = self.allotment;
        let asynchronous = match self.late {
            0 => {
                let left = self.expires - now;
                self.expires = now + self.target;
                left
            }
            _ => {
                self.late = 0;
                Duration::ZERO
            }
        };
        Grant { synchronous, asynchronous, lost }
    }

    /// The token arrived early in every rotation until `last`, its last arrival.
    pub fn idle_until(&mut self, last: Time) {
        self.late = 0;
        self.expires = last + self.target;
    }

    /// When TRT will expire for the second time unless the token arrives.
    pub fn lost_at(&self) -> Time {
        match self.late {
            0 => self.expires + self.target,
            _ => self.expires,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTRT: Duration = Duration::from_us(1000);

    fn at(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }

    #[test]
    fn an_early_token_leaves_the_rest_of_the_rotation_for_asynchronous_frames() {
        let mut station = Station::new(TTRT, Duration::from_us(5), at(0));
        let grant = station.token(at(400));
        assert_eq!(grant.asynchronous, Duration::from_us(600));
        assert_eq!(station.lost_at(), at(2400));
    }

    #[test]
    fn a_late_token_is_for_synchronous_frames_and_lateness_carries_over() {
        let mut station = Station::new(TTRT, Duration::from_us(5), at(0));
        let grant = station.token(at(1300));
        assert_eq!((grant.synchronous, grant.asynchronous), (Duration::from_us(5), Duration::ZERO));
        assert!(!grant.lost);
        // TRT kept running from 1000 us: the next token is early only by what is left until 2000 us.
        assert_eq!(station.token(at(1900)).asynchronous, Duration::from_us(100));
    }

    #[test]
    fn j_16_a_token_absent_for_two_rotations_is_lost() {
        let mut station = Station::new(TTRT, Duration::ZERO, at(0));
        assert_eq!(station.lost_at(), at(2000));
        assert!(!station.clone().token(at(1999)).lost);
        assert!(station.token(at(2000)).lost);
        assert_eq!(station.token(at(2900)).asynchronous, Duration::from_us(100));
    }
}
