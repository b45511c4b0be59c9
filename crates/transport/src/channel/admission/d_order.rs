//! D_Order: the highest fixed priority at which a new channel breaks no promise, and its worst-case
//! response there.
//!
//! ```text
//! 1. existing channels by bound, the new one above all
//! 2. move it down past every channel that would no longer keep its bound below it
//! 3. r = C_p + C + sum over those above of ceil(r / T_j) C_j
//! ```
//!
//! The answer is that of the published test; what makes ten thousand channels quick is ours:
//!
//! - A channel keeps its bound if r <= t for some t <= d. Each holds its room at t = d,
//!   d - C_p - C - sum of ceil(d / T_j) C_j, which promises and releases move by one product each. Where
//!   the new channel fits into that room, the response need not be computed.
//! - A channel with d >= T_n that would not keep its bound refuses the new one: below it the new one's
//!   response is later than T_n, because until T_n both come once.
//! - The iteration goes over the instants at which channels come again, sorted, and not over all
//!   channels at each step.
//!
//! Source: Kandlur, Shin & Ferrari, IEEE TPDS 5(10), 1994; Indiresan 1997, Fig 3.3. A test compares
//! with the steps as they are written above.

use super::{Class, ONE, stretched};

/// Instants are sorted into so many buckets before the one that matters is sorted.
const BUCKETS: u64 = 256;
/// Fewer channels than this are iterated over.
const FEW: usize = 64;
/// Instants that are sorted, for each channel on average: where some come far more often than others,
/// plain iteration goes on.
const CROWD: usize = 4;

/// Messages of a channel of this interval that come in `time`, at least the one at its start.
pub(super) fn arrivals(time: u64, interval: u64) -> u64 {
    match time <= interval {
        true => 1,
        false => time.div_ceil(interval),
    }
}

/// What a class wants of the resource until `time`.
fn wanted(class: &Class, time: u64) -> u128 {
    u128::from(arrivals(time, class.interval)) * u128::from(class.cost)
}

/// The room of `class` below all of `above`: negative where only an earlier instant keeps its bound.
pub(super) fn room(above: &[Class], blocking: u64, class: &Class) -> i128 {
    let sum: u128 = above.iter().map(|above| wanted(above, class.bound)).sum();
    i128::from(class.bound) - i128::from(blocking) - i128::from(class.cost) - sum as i128
}

/// By how much a channel above `class` takes from its room.
pub(super) fn taken(class: &Class, new: &Class) -> i128 {
    wanted(new, class.bound) as i128
}

/// The least bound of `new`, in picoseconds; `None` where there is none up to its interval.
pub(super) fn bound(classes: &[Class], blocking: u64, new: &Class) -> Option<u64> {
    let keeps = |at: usize| {
        let class = &classes[at];
        taken(class, new) <= class.room || {
            let fixed = u128::from(blocking) + u128::from(class.cost);
            response((&classes[..at], Some(new)), fixed, class.bound).is_some()
        }
    };
    let long = classes.partition_point(|class| class.bound < new.interval);
    let position = (0..long).rev().find(|&at| !keeps(at)).map_or(0, |at| at + 1);
    if !(long..classes.len()).all(keeps) {
        return None;
    }
    let fixed = u128::from(blocking) + u128::from(new.cost);
    response((&classes[..position], None), fixed, new.interval)
}

/// Channels above another: those that are there, and perhaps a new one.
type Above<'a> = (&'a [Class], Option<&'a Class>);

fn all<'a>((classes, new): Above<'a>) -> impl Iterator<Item = &'a Class> {
    classes.iter().chain(new)
}

/// The least r with r = fixed + sum of ceil(r / T) C, if it is no more than `limit`.
fn response(above: Above<'_>, fixed: u128, limit: u64) -> Option<u64> {
    let (mut costs, mut share, mut intervals) = (0, 0, 0);
    for class in all(above) {
        costs += u128::from(class.cost);
        share += class.share;
        intervals += u128::from(class.interval);
    }
    if share >= ONE {
        return None;
    }
    // Each ceiling is at least 1, and at least what it rounds up; shares are rounded up, so one
    // picosecond and more is taken off.
    let least = stretched(fixed, share).saturating_sub(1 + (fixed >> 20));
    let mut response = (fixed + costs).max(if share > 0 { least } else { 0 });
    let count = above.0.len() + usize::from(above.1.is_some());
    loop {
        let now = u64::try_from(response).ok().filter(|&now| now <= limit)?;
        let sum = fixed + all(above).map(|class| wanted(class, now)).sum::<u128>();
        if sum <= response {
            return Some(now);
        }
        // What is left shrinks by the utilisation with each step.
        let left = stretched(sum - response, share);
        response = sum;
        if count < FEW || left > intervals / count as u128 / 2 {
            continue;
        }
        let now = u64::try_from(response).ok().filter(|&now| now <= limit)?;
        let width = u64::try_from(left).unwrap_or(u64::MAX).clamp(BUCKETS, 1 << 60);
        match within(above, fixed, now, width) {
            Ok(found) => return Some(found).filter(|&found| found <= limit),
            Err(later) => response = later,
        }
    }
}

/// The response, if it lies in [from, from + width), or what it is at least. It is not before `from`.
fn within(above: Above<'_>, fixed: u128, from: u64, width: u64) -> Result<u64, u128> {
    let step = width.div_ceil(BUCKETS);
    let until = from.saturating_add(step * BUCKETS);
    let mut sum = fixed;
    // When channels come again, and what that costs.
    let mut again: Vec<(u64, u64)> = Vec::with_capacity(above.0.len());
    let most = CROWD * (above.0.len() + 1);
    for class in all(above) {
        let count = arrivals(from, class.interval);
        sum += u128::from(count) * u128::from(class.cost);
        let mut next = count.saturating_mul(class.interval);
        while next < until && again.len() <= most {
            again.push((next, class.cost));
            next = next.saturating_add(class.interval);
        }
    }
    if again.len() > most {
        return Err(sum);
    }
    let bucket = |at: u64| ((at - from) / step) as usize;
    let mut ends = vec![0; BUCKETS as usize + 1];
    again.iter().for_each(|&(at, _)| ends[bucket(at) + 1] += 1);
    for n in 1..ends.len() {
        ends[n] += ends[n - 1];
    }
    let mut sorted = vec![(0, 0); again.len()];
    let mut places = ends.clone();
    for event in again {
        let place = &mut places[bucket(event.0)];
        sorted[*place] = event;
        *place += 1;
    }
    // `sum` counts all that come before the bucket, and is not before it.
    for n in 0..BUCKETS {
        let end = u128::from(from) + u128::from(step) * u128::from(n + 1);
        let events = &mut sorted[ends[n as usize]..ends[n as usize + 1]];
        if sum < end {
            events.sort_unstable();
            for &(at, cost) in &*events {
                if u128::from(at) >= sum {
                    return u64::try_from(sum).map_err(|_| sum);
                }
                sum += u128::from(cost);
            }
            if sum < end {
                return u64::try_from(sum).map_err(|_| sum);
            }
            continue;
        }
        sum += events.iter().map(|&(_, cost)| u128::from(cost)).sum::<u128>();
    }
    Err(sum)
}
