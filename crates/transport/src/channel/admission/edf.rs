//! The exact test for earliest due date, inverted: the least bound of one more channel.
//!
//! A set is schedulable if for every t with a deadline
//!
//! ```text
//! C_p + h(t) <= t      h(t) = sum over d_j <= t of (floor((t - d_j) / T_j) + 1) C_j
//! ```
//!
//! A new channel (C, T, d) adds k C to h in [d + (k-1) T, d + k T). Let F(k) be the instant after which
//! t - C_p - h(t) never falls below k C again. Then the set is schedulable if and only if
//! d >= F(k) - (k-1) T for all k: the least d is the largest of these, and it is exact. F(k) is
//! reached from above by x <- C_p + k C + h(x-), because h does not increase on the way down.
//!
//! Source: Zheng & Shin, IEEE Trans. Comm. 42, 1994 (the condition); Zhang & Burns, IEEE Trans.
//! Comp. 58(9), 2009 (the iteration downwards). The form with F is ours; a test compares it with the condition.

use super::{Class, stretched};

/// Terms after which a set counts as too close to saturation to decide.
const TERMS_MAX: u64 = 1 << 16;

/// How much a class's demand precedes that of a constant rate: (1 - d/T) C, rounded up.
pub(super) fn early(class: &Class) -> u128 {
    let gap = u128::from(class.interval - class.bound);
    (u128::from(class.cost) * gap).div_ceil(u128::from(class.interval))
}

/// The least bound of `new`, in picoseconds; `None` if there is none up to its interval. All channels
/// together have the utilisation `share` and precede a constant rate by `early`.
pub(super) fn bound(
    classes: &[Class],
    blocking: u64,
    new: &Class,
    (share, early): (u128, u128),
) -> Option<u64> {
    let mut best = 0;
    for k in 1..=TERMS_MAX {
        let fixed = u128::from(blocking) + u128::from(k) * u128::from(new.cost);
        let before = u128::from(k - 1) * u128::from(new.interval);
        // h(t) <= U t + sum of (1 - d/T) C. A sum that overflows is later than any deadline.
        let from = u64::try_from(stretched(fixed + early, share)).ok()?;
        if u128::from(from) <= before + u128::from(best) {
            // Utilisation leaves more than C / T, so each further term is smaller.
            return Some(best);
        }
        let last = last_below(classes, fixed, from);
        let term = u128::from(last).saturating_sub(before);
        best = best.max(u64::try_from(term).ok()?);
        if best > new.interval {
            return None;
        }
    }
    None
}

/// F: from here on t - h(t) is at least `fixed`, and just before it is less. `from` must not precede it.
fn last_below(classes: &[Class], fixed: u128, from: u64) -> u64 {
    let mut at = from;
    loop {
        let wanted = fixed + demand_before(classes, at);
        match u64::try_from(wanted) {
            Ok(wanted) if wanted < at => at = wanted,
            _ => return at,
        }
    }
}

/// h just before `at`.
fn demand_before(classes: &[Class], at: u64) -> u128 {
    let due = classes.iter().take_while(|class| class.bound < at);
    due.map(|class| {
        let past = at - 1 - class.bound;
        let messages = if past < class.interval { 1 } else { past / class.interval + 1 };
        u128::from(messages) * u128::from(class.cost)
    })
    .sum()
}
