//! The benchmarks of `lastmeter bench channel`: admission of one more channel to ten thousand, and the cost
//! of a packet in the link scheduler.
//!
//! Ten thousand channels share a 100 Gbit/s link at about 80 % load: of a hundred kinds, as in applications,
//! or all different, the worst case for admission. Each request is answered, the bound reserved, and
//! released. In the tight case each channel has the least bound that was possible when it was admitted, so
//! that none has slack and each test must go through all of them.

use crate::channel::admission::{Demand, Method, Reservations};
use crate::channel::scheduler::{Options, Scheduler};
use lastmeter_base::bench::{Case, Work};
use lastmeter_base::{Duration, Stream, Time};

/// Channels already admitted; one more is requested.
const CHANNELS: u64 = 9_999;
const CHANNELS_QUICK: u64 = 500;
/// Requests per round.
const QUESTIONS: u64 = 20;
/// Steps per round of the scheduler.
const STEPS: u64 = 200_000;

macro_rules! admission {
    ($name:literal, $what:literal, $method:expr, $load:expr) => {
        Case {
            name: $name,
            unit: "admissions",
            what: $what,
            prepare: |quick| admission($method, $load, quick),
        }
    };
}

/// The benchmarks of this crate.
pub const CASES: &[Case] = &[
    admission!(
        "channel/d-order@10000",
        "asks D_Order for the 10,000th channel of a link, of a hundred kinds",
        Method::DOrder,
        (CHANNELS, 100)
    ),
    admission!(
        "channel/edf@10000",
        "asks the exact test for the 10,000th channel of a link, of a hundred kinds",
        Method::Edf,
        (CHANNELS, 100)
    ),
    admission!(
        "channel/d-order-distinct@10000",
        "asks D_Order for the 10,000th channel of a link, all different",
        Method::DOrder,
        (CHANNELS, CHANNELS)
    ),
    Case {
        name: "channel/d-order-tight@10000",
        unit: "admissions",
        what: "the same, where every channel has the least possible bound",
        prepare: |quick| questions(tight(quick)),
    },
    admission!(
        "channel/edf-distinct@10000",
        "asks the exact test for the 10,000th channel of a link, all different",
        Method::Edf,
        (CHANNELS, CHANNELS)
    ),
    Case {
        name: "queue/channel@10000",
        unit: "packets",
        what: "enqueues and dequeues a real-time packet while 10,000 wait",
        prepare: scheduler,
    },
];

/// A channel with an interval of 1 to 100 ms, which needs on average 0.8 / `channels` of a resource.
fn part(random: &mut Stream, channels: u64) -> Demand {
    let interval = Duration::from_us(1000 + random.below(99_000));
    let share = 4 + random.below(8);
    Demand { cost: interval.scale_ceil(share * 107, 1000 * channels), interval }
}

/// As many channels as [`CHANNELS`], each with the least bound.
fn tight(quick: bool) -> Reservations {
    let channels = if quick { CHANNELS_QUICK } else { CHANNELS };
    let mut random = Stream::new(1, "tight");
    let mut link = Reservations::new(Method::DOrder, Duration::from_ns(122));
    while link.channels() < channels {
        let demand = part(&mut random, channels + channels / 4);
        if let Some(bound) = link.bound(demand) {
            link.reserve(demand, bound);
        }
    }
    link
}

/// About 80 % of a resource, in channels of this many kinds.
fn loaded(method: Method, (channels, kinds): (u64, u64), quick: bool) -> Reservations {
    let channels = if quick { CHANNELS_QUICK.min(channels) } else { channels };
    let mut random = Stream::new(1, "admission");
    let mut link = Reservations::new(method, Duration::from_ns(122));
    let mut kind = || {
        let demand = part(&mut random, channels);
        (demand, demand.interval.scale_ceil(3 + random.below(6), 8))
    };
    let known: Vec<(Demand, Duration)> = (0..kinds.min(channels)).map(|_| kind()).collect();
    for n in 0..channels {
        let (demand, bound) = known[(n % known.len() as u64) as usize];
        link.reserve(demand, bound);
    }
    link
}

fn admission(method: Method, load: (u64, u64), quick: bool) -> Box<dyn FnMut() -> Work> {
    questions(loaded(method, load, quick))
}

fn questions(mut link: Reservations) -> Box<dyn FnMut() -> Work> {
    let mut random = Stream::new(2, "admission");
    let asked: Vec<Demand> = (0..QUESTIONS)
        .map(|_| {
            let interval = Duration::from_us(1000 + random.below(99_000));
            Demand { cost: interval / 12_000, interval }
        })
        .collect();
    Box::new(move || {
        let mut hash = link.channels();
        for &demand in &asked {
            let bound = link.bound(demand);
            hash = hash.rotate_left(7) ^ bound.map_or(1, Duration::as_ps);
            if let Some(bound) = bound {
                link.reserve(demand, bound);
                link.release(demand, bound);
            }
        }
        Work { units: QUESTIONS, hash }
    })
}

fn scheduler(quick: bool) -> Box<dyn FnMut() -> Work> {
    let waiting = if quick { 500 } else { 10_000 };
    let mut random = Stream::new(1, "scheduler");
    let mut link = Scheduler::new(Options { horizon: Duration::ZERO, outstanding: 2 });
    let bounds: Vec<Duration> =
        (0..1 << 12).map(|_| Duration::from_us(10 + random.below(10_000))).collect();
    let mut now = Time::START;
    for n in 0..waiting {
        link.enqueue_real_time(now, now + bounds[n % bounds.len()], n as u64);
    }
    let steps = if quick { STEPS / 100 } else { STEPS };
    let mut step = 0;
    Box::new(move || {
        let mut hash = 0u64;
        for _ in 0..steps {
            now += Duration::from_ns(100);
            step += 1;
            let packet = link.dequeue(now).expect("there are always current packets");
            link.sent();
            // Half are early by one step, as after a relay.
            let logical = now + Duration::from_ns(100 * (step as u64 % 2));
            link.enqueue_real_time(logical, logical + bounds[step % bounds.len()], packet);
            hash = hash.wrapping_add(packet);
        }
        Work { units: steps, hash }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs_on_small_input() {
        for case in CASES {
            let mut work = (case.prepare)(true);
            assert!(work().units > 0, "{}", case.name);
        }
    }

    #[test]
    fn the_loaded_link_is_loaded() {
        for kinds in [100, CHANNELS] {
            let link = loaded(Method::Edf, (CHANNELS, kinds), true);
            assert!((0.6..0.95).contains(&link.utilisation()), "{}", link.utilisation());
            assert_eq!(link.channels(), CHANNELS_QUICK);
            let demand = Demand { cost: Duration::from_us(1), interval: Duration::from_ms(12) };
            assert!(link.bound(demand).is_some(), "existing channels keep their bounds");
        }
    }
}
