//! Both tests against the conditions that they stand for.

use super::*;
use proptest::prelude::*;

fn ps(n: u64) -> Duration {
    Duration::from_ps(n)
}
fn demand(cost: u64, interval: u64) -> Demand {
    Demand { cost: ps(cost), interval: ps(interval) }
}

/// The condition itself, at every instant up to a horizon by which it must have failed if it does.
fn kept_by_edf(set: &[(u64, u64, u64)], blocking: u64) -> bool {
    let horizon = 4000;
    (0..horizon).all(|t| {
        let due = set.iter().filter(|&&(_, _, d)| d <= t);
        let demand: u64 = due.clone().map(|&(c, period, d)| ((t - d) / period + 1) * c).sum();
        due.count() == 0 || blocking + demand <= t
    })
}

/// Some order of priorities serves all in time: deadline-monotonic is best where d <= T.
fn kept_by_priorities(set: &[(u64, u64, u64)], blocking: u64) -> bool {
    let mut order = set.to_vec();
    order.sort_by_key(|&(_, _, d)| d);
    (0..order.len()).all(|at| {
        let (cost, _, bound) = order[at];
        let mut r = blocking + cost;
        loop {
            let above = order[..at].iter();
            let wanted: u64 =
                blocking + cost + above.map(|&(c, t, _)| r.div_ceil(t) * c).sum::<u64>();
            if wanted > bound {
                return false;
            }
            if wanted <= r {
                return true;
            }
            r = wanted;
        }
    })
}

fn set() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let channel = (1u64..12, 10u64..90, 0u64..40);
    prop::collection::vec(channel, 1..9)
}

/// Admits each in turn with some slack, and says what was admitted.
fn admitted(method: Method, blocking: u64, wanted: &[(u64, u64, u64)]) -> Vec<(u64, u64, u64)> {
    let mut link = Reservations::new(method, ps(blocking));
    let mut kept = Vec::new();
    for &(cost, interval, slack) in wanted {
        if let Some(bound) = link.bound(demand(cost, interval)) {
            let bound = (bound.as_ps() + slack).min(interval);
            link.reserve(demand(cost, interval), ps(bound));
            kept.push((cost, interval, bound));
        }
    }
    assert_eq!(link.channels(), kept.len() as u64);
    kept
}

proptest! {
    #[test]
    fn e_18_edf_promises_exactly_what_the_condition_allows(
        wanted in set(), blocking in 0u64..12, last in (1u64..12, 10u64..90),
    ) {
        let kept = admitted(Method::Edf, blocking, &wanted);
        prop_assert!(kept_by_edf(&kept, blocking));
        let mut link = Reservations::new(Method::Edf, ps(blocking));
        kept.iter().for_each(|&(c, t, d)| link.reserve(demand(c, t), ps(d)));
        let (cost, interval) = last;
        let with = |bound: u64| {
            let mut with = kept.clone();
            with.push((cost, interval, bound));
            with
        };
        match link.bound(demand(cost, interval)) {
            Some(bound) => {
                prop_assert!(kept_by_edf(&with(bound.as_ps()), blocking));
                prop_assert!(!kept_by_edf(&with(bound.as_ps() - 1), blocking));
            }
            None => {
                let full: f64 =
                    with(interval).iter().map(|&(c, t, _)| c as f64 / t as f64).sum();
                prop_assert!(full >= 1.0 - 1e-12 || !kept_by_edf(&with(interval), blocking));
            }
        }
    }

    #[test]
    fn e_18_d_order_promises_only_what_priorities_and_edf_keep(
        wanted in set(), blocking in 0u64..12,
    ) {
        let kept = admitted(Method::DOrder, blocking, &wanted);
        prop_assert!(kept_by_priorities(&kept, blocking));
        // EDF admits a superset: the same set with the same bounds, one by one.
        let mut link = Reservations::new(Method::Edf, ps(blocking));
        for &(c, t, d) in &kept {
            let bound = link.bound(demand(c, t));
            prop_assert!(bound.is_some_and(|bound| bound <= ps(d)), "{bound:?} {c} {t} {d}");
            link.reserve(demand(c, t), ps(d));
        }
    }

    #[test]
    fn e_19_what_is_taken_back_leaves_no_trace(wanted in set(), other in (1u64..12, 10u64..90)) {
        for method in [Method::DOrder, Method::Edf] {
            let mut link = Reservations::new(method, ps(3));
            for &(cost, interval, slack) in &wanted {
                if let Some(bound) = link.bound(demand(cost, interval)) {
                    let bound = bound.max(ps(slack)).min(ps(interval));
                    link.reserve(demand(cost, interval), bound);
                }
            }
            let before = link.clone();
            if let Some(bound) = link.bound(demand(other.0, other.1)) {
                link.reserve(demand(other.0, other.1), bound);
                prop_assert_ne!(&link, &before);
                link.release(demand(other.0, other.1), bound);
            }
            prop_assert_eq!(&link, &before);
        }
    }
}

/// D_Order as published: from the top down, each response by iteration.
fn d_order_as_published(kept: &[(u64, u64, u64)], blocking: u64, new: (u64, u64)) -> Option<u64> {
    let mut order = kept.to_vec();
    order.sort_by_key(|&(_, t, d)| (d, t));
    let response = |above: &[(u64, u64)], fixed: u64, limit: u64| {
        let mut r = fixed;
        loop {
            let times = |t: u64| r.div_ceil(t).max(1);
            let wanted = fixed + above.iter().map(|&(c, t)| times(t) * c).sum::<u64>();
            if wanted > limit {
                return None;
            }
            if wanted <= r {
                return Some(r);
            }
            r = wanted;
        }
    };
    let keeps = |at: usize| {
        let (c, t, d) = order[at];
        // Channels of the same bound and interval are one class.
        let alike = |other: &&(u64, u64, u64)| (other.1, other.2) == (t, d);
        let own: u64 = order.iter().filter(alike).map(|other| other.0).sum();
        let above = order.iter().filter(|other| (other.2, other.1) < (d, t));
        let mut above: Vec<(u64, u64)> = above.map(|&(c, t, _)| (c, t)).collect();
        above.push(new);
        assert!(c <= own);
        response(&above, blocking + own, d).is_some()
    };
    let position = (0..order.len()).rev().find(|&at| !keeps(at)).map_or(0, |at| at + 1);
    let above: Vec<(u64, u64)> = order[..position].iter().map(|&(c, t, _)| (c, t)).collect();
    response(&above, blocking + new.0, new.1)
}

/// From nearly empty to nearly full links, with promises and releases in between.
#[test]
fn e_18_d_order_says_what_the_published_steps_say() {
    let mut random = lastmeter_base::Stream::new(1, "d-order");
    let (mut admitted, mut refused) = (0, 0);
    for round in 0..60 {
        let channels = 2 + random.below(180);
        let blocking = random.below(200);
        let slack = 1 + random.below(2000);
        let mut link = Reservations::new(Method::DOrder, ps(blocking));
        let mut kept: Vec<(u64, u64, u64)> = Vec::new();
        for _ in 0..channels {
            let interval = 100 + random.below(if round % 2 == 0 { 100_000 } else { 3_000 });
            let cost = 1 + random.below((2 * interval / channels).max(2));
            let asked = demand(cost, interval);
            let bound = link.bound(asked);
            let expected = d_order_as_published(&kept, blocking, (cost, interval));
            let full = kept.iter().map(|&(c, t, _)| c as f64 / t as f64).sum::<f64>()
                + cost as f64 / interval as f64;
            if full < 1.0 {
                assert_eq!(bound.map(|bound| bound.as_ps()), expected, "{kept:?} {asked:?}");
            }
            match bound {
                Some(bound) => {
                    let bound = (bound.as_ps() + random.below(slack)).min(interval);
                    link.reserve(asked, ps(bound));
                    kept.push((cost, interval, bound));
                    admitted += 1;
                }
                None => refused += 1,
            }
            if random.below(5) == 0 && !kept.is_empty() {
                let (c, t, d) = kept.swap_remove(random.below(kept.len() as u64) as usize);
                link.release(demand(c, t), ps(d));
            }
        }
    }
    assert!(admitted > 2000 && refused > 200, "{admitted} admitted, {refused} refused");
}

/// The least bound under the exact test, without sorting anything: from far out, step by step down.
fn edf_by_steps(kept: &[(u64, u64, u64)], blocking: u64, new: (u64, u64)) -> Option<u64> {
    let before = |at: u64| -> u64 {
        let due = kept.iter().filter(|&&(_, _, d)| d < at);
        due.map(|&(c, t, d)| ((at - 1 - d) / t + 1) * c).sum()
    };
    let (cost, interval) = new;
    let mut best = 0;
    // After this many terms none is larger, given what these links have left.
    for k in 1..=50 {
        let mut at = 50_000_000;
        while blocking + k * cost + before(at) < at {
            at = blocking + k * cost + before(at);
        }
        best = best.max(at.saturating_sub((k - 1) * interval));
    }
    (best <= interval).then_some(best)
}

#[test]
fn e_18_the_exact_test_says_the_same_with_many_channels() {
    let mut random = lastmeter_base::Stream::new(2, "edf");
    let (mut admitted, mut refused) = (0, 0);
    for round in 0..6 {
        let (channels, blocking) = (70 + random.below(90), random.below(200));
        let mut link = Reservations::new(Method::Edf, ps(blocking));
        let mut kept: Vec<(u64, u64, u64)> = Vec::new();
        for n in 0..channels {
            let interval = 100 + random.below(if round % 2 == 0 { 100_000 } else { 3_000 });
            let cost = 1 + random.below((9 * interval / 5 / channels).max(1));
            let asked = demand(cost, interval);
            let bound = link.bound(asked);
            if n > 60 && n % 6 == 0 && link.utilisation() + (cost as f64 / interval as f64) < 0.9 {
                let expected = edf_by_steps(&kept, blocking, (cost, interval));
                assert_eq!(bound.map(|bound| bound.as_ps()), expected, "{kept:?} {asked:?}");
            }
            match bound {
                Some(bound) => {
                    let bound = (bound.as_ps() + random.below(300)).min(interval);
                    link.reserve(asked, ps(bound));
                    kept.push((cost, interval, bound));
                    admitted += 1;
                }
                None => refused += 1,
            }
        }
    }
    assert!(admitted > 400 && refused > 5, "{admitted} admitted, {refused} refused");
}

#[test]
fn d_order_gives_the_highest_priority_that_harms_nobody() {
    // (C, T, d): one at d = 5 that has room for 1, one at d = 20 that has room for more.
    let mut link = Reservations::new(Method::DOrder, ps(1));
    link.reserve(demand(2, 100), ps(5));
    link.reserve(demand(4, 100), ps(20));
    // 2 above the first: 1 + 2 + 2 = 5 <= 5; response 1 + 2 = 3.
    assert_eq!(link.bound(demand(2, 100)), Some(ps(3)));
    // 3 above the first would break it; below it, above the second: 1 + 3 + 2 = 6.
    assert_eq!(link.bound(demand(3, 100)), Some(ps(6)));
    // 14 above the second would break it: 1 + 4 + 2 + 14 = 21 > 20.
    assert_eq!(link.bound(demand(14, 100)), Some(ps(21)));
}

#[test]
fn a_full_resource_and_an_impossible_interval_promise_nothing() {
    for method in [Method::DOrder, Method::Edf] {
        let mut link = Reservations::new(method, ps(0));
        assert_eq!(link.bound(demand(1, 0)), None);
        assert_eq!(link.bound(demand(11, 10)), None);
        link.reserve(demand(9, 10), ps(9));
        assert_eq!(link.bound(demand(1, 10)), None, "a utilisation of 1 is not promised");
        assert!((link.utilisation() - 0.9).abs() < 1e-12);
    }
}
