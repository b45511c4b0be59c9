//! D_Order: the highest fixed priority at which a new channel violates no guarantee, and its worst-case
//! response time there.
//!
//! ```text
//! 1. existing channels by bound, the new one above all
//! 2. move it down past every channel that would miss its bound below it
//! 3. r = C_p + C + sum over those above of ceil(r / T_j) C_j
//! ```
//!
//! The result is that of the published test; what makes it fast for ten thousand channels is ours:
//!
//! - A channel meets its bound if r <= t for some t <= d. Each stores its slack at t = d,
//!   d - C_p - C - sum of ceil(d / T_j) C_j, which each reservation and release changes by one product. If
//!   the new channel fits into that slack, the response time need not be computed.
//! - If not, the response time is an instant at which the channels above meet their bounds too, unless
//!   these are earlier.
//! - If a channel with d >= T_n would miss its bound, the new one is refused: below it the new one's
//!   response time exceeds T_n, because until T_n both arrive once.
//!
//! Source: Kandlur, Shin & Ferrari, IEEE TPDS 5(10), 1994; Indiresan 1997, Fig 3.3. A test compares
//! with the steps as written above.

use super::{Class, ONE, stretched};

/// Messages of a channel with this interval that arrive in `time`, at least the one at its start.
pub(super) fn arrivals(time: u64, interval: u64) -> u64 {
    match time <= interval {
        true => 1,
        false => time.div_ceil(interval),
    }
}

/// A class's demand on the resource until `time`.
fn wanted(class: &Class, time: u64) -> u128 {
    u128::from(arrivals(time, class.interval)) * u128::from(class.cost)
}

/// The slack of `class` below all of `above`: negative where only an earlier instant meets its bound.
pub(super) fn room(above: &[Class], blocking: u64, class: &Class) -> i128 {
    let sum: u128 = above.iter().map(|above| wanted(above, class.bound)).sum();
    i128::from(class.bound) - i128::from(blocking) - i128::from(class.cost) - sum as i128
}

/// How much of the slack of `class` a channel above it takes.
pub(super) fn taken(class: &Class, new: &Class) -> i128 {
    wanted(new, class.bound) as i128
}

/// The least bound of `new`, in picoseconds; `None` if there is none up to its interval.
pub(super) fn bound(classes: &[Class], blocking: u64, new: &Class) -> Option<u64> {
    // An instant, and the demand until then of the new channel and the classes above the present one.
    let mut known: Option<(u64, u128)> = None;
    let mut position = 0;
    for (at, class) in classes.iter().enumerate().rev() {
        if let Some((instant, sum)) = &mut known {
            *sum -= wanted(class, *instant);
            if *instant > class.bound {
                known = None;
            }
        }
        if taken(class, new) <= class.room {
            continue;
        }
        let fixed = u128::from(blocking) + u128::from(class.cost);
        if known.is_some_and(|(instant, sum)| fixed + sum <= u128::from(instant)) {
            continue;
        }
        match response((&classes[..at], Some(new)), fixed, class.bound) {
            Some(response) => known = Some((response, u128::from(response) - fixed)),
            None if class.bound >= new.interval => return None,
            None => {
                position = at + 1;
                break;
            }
        }
    }
    let fixed = u128::from(blocking) + u128::from(new.cost);
    response((&classes[..position], None), fixed, new.interval)
}

/// Channels above another: existing ones, and perhaps a new one.
type Above<'a> = (&'a [Class], Option<&'a Class>);

fn all<'a>((classes, new): Above<'a>) -> impl Iterator<Item = &'a Class> {
    classes.iter().chain(new)
}

/// The least r with r = fixed + sum of ceil(r / T) C, if it is no more than `limit`.
fn response(above: Above<'_>, fixed: u128, limit: u64) -> Option<u64> {
    let (mut costs, mut share) = (0, 0);
    for class in all(above) {
        costs += u128::from(class.cost);
        share += class.share;
    }
    if share >= ONE {
        return None;
    }
    // Each ceiling is at least 1, and at least what it rounds up; shares are rounded up, so one
    // picosecond and more is taken off.
    let least = stretched(fixed, share).saturating_sub(1 + (fixed >> 20));
    let mut response = (fixed + costs).max(if share > 0 { least } else { 0 });
    loop {
        let now = u64::try_from(response).ok().filter(|&now| now <= limit)?;
        let sum = fixed + all(above).map(|class| wanted(class, now)).sum::<u128>();
        if sum <= response {
            return Some(now);
        }
        response = sum;
    }
}
