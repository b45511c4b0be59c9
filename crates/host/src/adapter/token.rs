//! The token of a network that is intermittently available, as seen by one adapter (E-43, E-86).
//!
//! | state | arrives | nothing to send | holding time over, link idle | holding time over, link busy | packet sent |
//! |---|---|---|---|---|---|
//! | away | here | - | - | - | - |
//! | here | - | away | away | overdue | here |
//! | overdue | - | - | - | - | away; the excess is deducted from the next holding time |
//!
//! After release the token returns `rotation - holding` later. So an adapter has the link for at most `holding /
//! rotation` of the time, and waits for it for at most `rotation`.
//!
//! Source: Indiresan 1997, §6.4.1 and Fig 6.4 (`ReleaseToken`, `TokenArrive`, `TokenExpire`,
//! `Transmit`). Deviation: an excess longer than `holding` is deducted from several later holding times, so that
//! the share is exact for packets of any length.

use lastmeter_base::{Duration, Time};

/// The token, as one adapter sees it.
///
/// ```
/// use lastmeter_base::{Duration, Time};
/// use lastmeter_host::adapter::token::Token;
/// let ms = |ms| Time::START + Duration::from_ms(ms);
/// let mut token = Token::new(Duration::from_ms(10), Duration::from_ms(1));
/// assert!(!token.is_here());
/// assert_eq!(token.next(), ms(9));
/// token.expire(ms(9), true); // It arrives, and a packet is sent at once.
/// assert!(token.is_here());
/// token.expire(ms(10), true); // Its time is over while the packet is being sent.
/// token.sent(ms(11));
/// assert_eq!(token.next(), ms(20));
/// token.expire(ms(20), true); // A millisecond too long: there is nothing left of this time.
/// assert!(!token.is_here());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    rotation: Duration,
    holding: Duration,
    state: State,
    excess: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away { until: Time },
    Here { until: Time },
    Overdue { since: Time },
}

impl Token {
    /// A token that has just been released. Panics unless `holding` is more than zero and less than `rotation`.
    pub fn new(rotation: Duration, holding: Duration) -> Token {
        assert!(
            !holding.is_zero() && holding < rotation,
            "the holding time is part of the rotation time"
        );
        let state = State::Away { until: Time::START + (rotation - holding) };
        Token { rotation, holding, state, excess: Duration::ZERO }
    }

    /// Whether the adapter may begin to send.
    pub fn is_here(&self) -> bool {
        matches!(self.state, State::Here { .. })
    }

    /// When it arrives or its holding time ends; [`Time::MAX`] while it is overdue.
    pub fn next(&self) -> Time {
        match self.state {
            State::Away { until } | State::Here { until } => until,
            State::Overdue { .. } => Time::MAX,
        }
    }

    /// Handles what is due by `now`: the token arrives, or its holding time ends. `busy` says whether the link is
    /// in use, or will be at once.
    pub fn expire(&mut self, now: Time, busy: bool) {
        match self.state {
            State::Away { until } if until <= now => {
                // Whole holding times to be deducted: in each, the token comes and goes at once.
                let whole = self.excess.as_ps() / self.holding.as_ps();
                if whole > 0 {
                    self.excess = self.excess - self.holding * whole;
                    let gap = (self.rotation - self.holding).as_ps();
                    let away = Duration::from_ps(gap.saturating_mul(whole));
                    self.state = State::Away { until: until + away };
                    return;
                }
                let left = self.holding - std::mem::take(&mut self.excess);
                match busy {
                    true => self.state = State::Here { until: until + left },
                    false => self.release(until),
                }
            }
            State::Here { until } if until <= now => match busy {
                true => self.state = State::Overdue { since: until },
                false => self.release(until),
            },
            _ => {}
        }
    }

    /// A packet has been sent.
    pub fn sent(&mut self, now: Time) {
        if let State::Overdue { since } = self.state {
            self.excess += now - since;
            self.release(now);
        }
    }

    /// There is nothing to send: the token is passed on.
    pub fn release(&mut self, now: Time) {
        self.state = State::Away { until: now + (self.rotation - self.holding) };
    }

    /// There is something to send again: catches up with the token's rotations meanwhile. In each it came and went
    /// at once, so none needed an event.
    pub fn catch_up(&mut self, now: Time) {
        if let State::Away { until } = self.state {
            let gap = self.rotation - self.holding;
            let behind = now.saturating_since(until);
            let rounds = behind.as_ps().div_ceil(gap.as_ps());
            self.state = State::Away { until: until + gap * rounds };
            let worked_off = self.holding.as_ps().saturating_mul(rounds);
            self.excess = self.excess.saturating_sub(Duration::from_ps(worked_off));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }

    #[test]
    fn e_43_an_idle_adapter_releases_the_token_early_and_it_returns_sooner() {
        let mut token = Token::new(Duration::from_us(100), Duration::from_us(10));
        token.expire(us(90), false);
        assert_eq!(token.next(), us(180));
        token.catch_up(us(181));
        assert_eq!(token.next(), us(270));
        token.catch_up(us(270));
        assert_eq!(token.next(), us(270), "it arrives now");
    }

    #[test]
    fn e_86_excess_is_deducted_until_it_is_gone() {
        let mut token = Token::new(Duration::from_us(100), Duration::from_us(10));
        token.expire(us(90), true);
        token.expire(us(100), true);
        token.sent(us(125)); // 25 us of excess: two holding times of 10 us and half of a third.
        let mut arrivals = Vec::new();
        for _ in 0..2 {
            let at = token.next();
            token.expire(at, true);
            arrivals.push((at, token.is_here()));
        }
        assert_eq!(arrivals, [(us(215), false), (us(395), true)], "at 305 us it comes and goes");
        assert_eq!(token.next(), us(400));
    }
}
