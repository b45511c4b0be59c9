//! Named random streams and the distributions that experiments draw from.
//!
//! A stream is named by (seed, element name), so adding one element to an experiment moves no
//! other element's draws. Generator: xoshiro256++ (Blackman & Vigna, ACM TOMS 47(4), 2021).

use crate::{Bytes, Duration};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A deterministic random stream.
///
/// ```
/// use lastmeter_base::Stream;
/// let mut a = Stream::new(1, "source");
/// let mut b = Stream::new(1, "source");
/// assert_eq!(a.below(1_000_000), b.below(1_000_000));
/// ```
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream of `name` under `seed`.
    pub fn new(seed: u64, name: &str) -> Stream {
        // FNV-1a over the name, then the generator's own SplitMix64 expansion.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Stream(Xoshiro256PlusPlus::seed_from_u64(mix(seed) ^ hash))
    }
    /// A whole number in `0..bound`. Panics if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.random_range(0..bound)
    }
    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        self.0.random()
    }
    /// True with `probability`.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
    fn exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.0)
    }
}

/// What can be drawn: whole picoseconds or bytes.
pub trait Countable: Copy {
    /// From a number of units.
    fn of(units: u64) -> Self;
    /// The number of units.
    fn units(self) -> u64;
}

impl Countable for Duration {
    fn of(units: u64) -> Duration {
        Duration::from_ps(units)
    }
    fn units(self) -> u64 {
        self.as_ps()
    }
}

impl Countable for Bytes {
    fn of(units: u64) -> Bytes {
        Bytes(units)
    }
    fn units(self) -> u64 {
        self.0
    }
}

/// A distribution of times (of service, of gaps between arrivals) or of bytes.
///
/// ```
/// use lastmeter_base::{Draw, Duration, Stream};
/// let gap = Draw::Pareto { mean: Duration::from_us(10), shape: 1.5 };
/// let mut stream = Stream::new(1, "source");
/// // A third of the mean is the least that this shape draws.
/// assert!(gap.sample(&mut stream) >= Duration::from_ns(3_333));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Draw<T = Duration> {
    /// Always the same.
    Constant(T),
    /// Memoryless, with this mean.
    Exponential(T),
    /// Uniform between the two, inclusive.
    Uniform(T, T),
    /// The first with the given probability, else the second: the simplest distribution with a large variance.
    Either(f64, T, T),
    /// Exponential with the first mean with the given probability, else with the second.
    HyperExponential(f64, T, T),
    /// A whole number of slots, at least one: how many trials until one succeeds.
    Geometric {
        /// The mean, at least a slot.
        mean: T,
        /// A slot.
        slot: T,
    },
    /// Heavy-tailed: `P(X > x) = (least / x)^shape`.
    Pareto {
        /// The mean.
        mean: T,
        /// More than 1; up to 2 the variance is infinite.
        shape: f64,
    },
    /// The logarithm is normal.
    LogNormal {
        /// The mean, not the median.
        mean: T,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// One of these, each with its share of the total weight.
    Mix(Vec<(T, u64)>),
}

impl<T: Countable> Draw<T> {
    /// One draw, rounded to a whole unit.
    #[inline]
    pub fn sample(&self, stream: &mut Stream) -> T {
        // The nearest unit, without a call into the mathematics library.
        let exponential = |mean: T, stream: &mut Stream| {
            T::of((mean.units() as f64 * stream.exponential() + 0.5) as u64)
        };
        match *self {
            Draw::Constant(value) => value,
            Draw::Exponential(mean) => exponential(mean, stream),
            Draw::Uniform(low, high) => {
                T::of(low.units() + stream.below(high.units() - low.units() + 1))
            }
            Draw::Either(probability, first, second) => match stream.chance(probability) {
                true => first,
                false => second,
            },
            Draw::HyperExponential(probability, first, second) => {
                let mean = if stream.chance(probability) { first } else { second };
                exponential(mean, stream)
            }
            Draw::Geometric { mean, slot } => {
                let failure = 1.0 - slot.units() as f64 / mean.units().max(1) as f64;
                // Inversion; 1 - unit() is in (0, 1].
                let slots = match failure > 0.0 {
                    true => ((1.0 - stream.unit()).ln() / failure.ln()) as u64 + 1,
                    false => 1,
                };
                T::of(slots.saturating_mul(slot.units()).min(LARGEST))
            }
            Draw::Pareto { mean, shape } => {
                let least = mean.units() as f64 * (shape - 1.0) / shape;
                rounded(least * (1.0 - stream.unit()).powf(-1.0 / shape))
            }
            Draw::LogNormal { mean, sigma } => {
                let normal: f64 = StandardNormal.sample(&mut stream.0);
                rounded(mean.units() as f64 * (sigma * normal - sigma * sigma / 2.0).exp())
            }
            Draw::Mix(ref values) => {
                let total = values.iter().map(|(_, weight)| weight).sum::<u64>();
                let mut at = stream.below(total.max(1));
                let chosen = values.iter().find(|(_, weight)| {
                    let here = at < *weight;
                    at = at.saturating_sub(*weight);
                    here
                });
                chosen.or(values.last()).map_or(T::of(0), |(value, _)| *value)
            }
        }
    }

    /// The mean, in units: picoseconds or bytes.
    pub fn mean_units(&self) -> f64 {
        let units = |value: T| value.units() as f64;
        match *self {
            Draw::Constant(value) | Draw::Exponential(value) => units(value),
            Draw::Uniform(low, high) => (units(low) + units(high)) / 2.0,
            Draw::Either(p, first, second) | Draw::HyperExponential(p, first, second) => {
                p * units(first) + (1.0 - p) * units(second)
            }
            Draw::Geometric { mean, .. }
            | Draw::Pareto { mean, .. }
            | Draw::LogNormal { mean, .. } => units(mean),
            Draw::Mix(ref values) => {
                let total: u64 = values.iter().map(|(_, weight)| weight).sum();
                let sum: f64 = values.iter().map(|&(v, weight)| units(v) * weight as f64).sum();
                sum / total.max(1) as f64
            }
        }
    }
}

/// The most that an unbounded distribution draws: 13 days in picoseconds, an exbibyte.
const LARGEST: u64 = 1 << 60;

/// A drawn number of units, at least one, and at most [`LARGEST`].
fn rounded<T: Countable>(units: f64) -> T {
    T::of(((units + 0.5) as u64).clamp(1, LARGEST))
}

impl Draw {
    /// The mean, in seconds.
    pub fn mean(&self) -> f64 {
        self.mean_units() / 1e12
    }
    /// The same distribution with every value times `numerator / denominator`.
    pub fn scale(&self, numerator: u64, denominator: u64) -> Draw {
        let scale = |time: Duration| time.scale_ceil(numerator, denominator);
        match *self {
            Draw::Constant(time) => Draw::Constant(scale(time)),
            Draw::Exponential(mean) => Draw::Exponential(scale(mean)),
            Draw::Uniform(low, high) => Draw::Uniform(scale(low), scale(high)),
            Draw::Either(p, first, second) => Draw::Either(p, scale(first), scale(second)),
            Draw::HyperExponential(p, first, second) => {
                Draw::HyperExponential(p, scale(first), scale(second))
            }
            Draw::Geometric { mean, slot } => {
                Draw::Geometric { mean: scale(mean), slot: scale(slot) }
            }
            Draw::Pareto { mean, shape } => Draw::Pareto { mean: scale(mean), shape },
            Draw::LogNormal { mean, sigma } => Draw::LogNormal { mean: scale(mean), sigma },
            Draw::Mix(ref values) => {
                Draw::Mix(values.iter().map(|&(time, weight)| (scale(time), weight)).collect())
            }
        }
    }
}

/// The tag that packet `seq` of a flow must carry; a sink recomputes it and compares.
pub fn content_tag(path: u32, flow: u32, seq: u64) -> u64 {
    mix(mix(u64::from(path) << 32 | u64::from(flow)) ^ seq)
}

/// SplitMix64's finaliser: a bijection in which every output bit depends on every input bit.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_different_names_or_seeds_differ() {
        let draw = |seed, name| Stream::new(seed, name).bits();
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
    }

    #[test]
    fn every_distribution_has_the_mean_it_states() {
        const DRAWS: u32 = 200_000;
        let us = Duration::from_us;
        let cases = [
            Draw::Constant(us(3)),
            Draw::Exponential(us(5)),
            Draw::Uniform(us(2), us(10)),
            Draw::Either(0.9, us(1), us(31)),
            Draw::HyperExponential(0.9, us(1), us(31)),
            Draw::Geometric { mean: us(5), slot: us(2) },
            Draw::Geometric { mean: us(5), slot: us(5) },
            Draw::Pareto { mean: us(5), shape: 2.5 },
            Draw::LogNormal { mean: us(5), sigma: 1.0 },
            Draw::Mix(vec![(us(1), 3), (us(9), 1)]),
        ];
        for draw in cases {
            let mut stream = Stream::new(7, "test");
            let sum: f64 = (0..DRAWS).map(|_| draw.sample(&mut stream).as_secs_f64()).sum();
            let mean = sum / f64::from(DRAWS);
            assert!((mean / draw.mean() - 1.0).abs() < 0.02, "{draw:?}: {mean}");
        }
    }

    /// The share of draws above `limit`.
    fn above(draw: &Draw<Bytes>, limit: u64) -> f64 {
        const DRAWS: u32 = 200_000;
        let mut stream = Stream::new(3, "test");
        let above = (0..DRAWS).filter(|_| draw.sample(&mut stream).0 > limit).count();
        above as f64 / f64::from(DRAWS)
    }

    #[test]
    fn tails_are_those_of_the_formulas() {
        // Its least value is a third of the mean.
        let pareto = Draw::Pareto { mean: Bytes(30_000), shape: 1.5 };
        for limit in [20_000, 100_000, 1_000_000] {
            let formula = (10_000.0 / limit as f64).powf(1.5);
            assert!((above(&pareto, limit) - formula).abs() < 0.004, "{limit}");
        }
        // Half are above the median, mean / exp(sigma^2 / 2).
        let log_normal = Draw::LogNormal { mean: Bytes(30_000), sigma: 2.0 };
        assert!((above(&log_normal, (30_000.0 / 2.0_f64.exp()) as u64) - 0.5).abs() < 0.004);
        let hyper = Draw::HyperExponential(0.75, Bytes(10_000), Bytes(90_000));
        let formula = 0.75 * (-5.0_f64).exp() + 0.25 * (-5.0_f64 / 9.0).exp();
        assert!((above(&hyper, 50_000) - formula).abs() < 0.004);
        let geometric = Draw::Geometric { mean: Bytes(400), slot: Bytes(100) };
        assert!((above(&geometric, 300) - 0.75_f64.powi(3)).abs() < 0.004);
    }
}
