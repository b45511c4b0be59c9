//! D_Order: the highest fixed priority at which a new channel breaks no promise, and its worst-case
//! response there.
//!
//! ```text
//! 1. existing channels by bound, the new one above all
//! 2. move it down past every channel that would no longer keep its bound below it
//! 3. r = C_p + C + sum over those above of ceil(r / T_j) C_j
//! ```
//!
//! Source: Kandlur, Shin & Ferrari, IEEE TPDS 5(10), 1994; Indiresan 1997, Fig 3.3. Deviation: where
//! the linear bound on a response (each ceiling at most one more) already keeps the promise, the
//! iteration is left out; the answer is the same.

use super::{Class, ONE, stretched};

/// The least bound of `new`, in picoseconds; `None` where its response has no end.
pub(super) fn bound(classes: &[Class], blocking: u64, new: &Class) -> Option<u64> {
    // Sums over the classes above each, and its own cost.
    let (mut cost, mut share) = (u128::from(blocking) + u128::from(new.cost), new.share);
    let mut quick = Vec::with_capacity(classes.len());
    for class in classes {
        cost += u128::from(class.cost);
        // Above a class are the new channel and the classes before it; it is served once.
        let most = if share < ONE { stretched(cost, share) } else { u128::MAX };
        quick.push(most <= u128::from(class.bound));
        share += class.share;
    }
    let keeps = |at: usize| quick[at] || below(classes, at, blocking, new);
    let position = (0..classes.len()).rev().find(|&at| !keeps(at)).map_or(0, |at| at + 1);
    let above = &classes[..position];
    let fixed = u128::from(blocking) + u128::from(new.cost);
    response(above.iter(), fixed, new.interval)
}

/// Whether the class at `at` keeps its bound with the new channel above it.
fn below(classes: &[Class], at: usize, blocking: u64, new: &Class) -> bool {
    let fixed = u128::from(blocking) + u128::from(classes[at].cost);
    let above = classes[..at].iter().chain(std::iter::once(new));
    response(above, fixed, classes[at].bound).is_some()
}

/// The least r with r = fixed + sum of ceil(r / T) C, if it is no more than `limit`.
fn response<'a>(
    above: impl Iterator<Item = &'a Class> + Clone,
    fixed: u128,
    limit: u64,
) -> Option<u64> {
    let sums = above.clone().map(|class| (u128::from(class.cost), class.share));
    let (costs, share) =
        sums.fold((0, 0), |(costs, share), class| (costs + class.0, share + class.1));
    if share >= ONE {
        return None;
    }
    // Each ceiling is at least 1, and at least what it rounds up; shares are rounded up, so one
    // picosecond and more is taken off.
    let least = stretched(fixed, share).saturating_sub(1 + (fixed >> 20));
    let mut response = (fixed + costs).max(if share > 0 { least } else { 0 });
    loop {
        let now = u64::try_from(response).ok().filter(|&now| now <= limit)?;
        let wanted: u128 = above
            .clone()
            .map(|class| u128::from(now.div_ceil(class.interval)) * u128::from(class.cost))
            .sum();
        if fixed + wanted <= response {
            return Some(now);
        }
        response = fixed + wanted;
    }
}
