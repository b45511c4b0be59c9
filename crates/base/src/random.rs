//! Named random streams and the distributions that experiments draw from.
//!
//! A stream is named by (seed, element name), so adding one element to an experiment moves no
//! other element's draws. Generator: xoshiro256++ (Blackman & Vigna, ACM TOMS 47(4), 2021).

use crate::Duration;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
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

/// A distribution of times: of service, of gaps between arrivals.
#[derive(Clone, Debug, PartialEq)]
pub enum Draw {
    /// Always the same.
    Constant(Duration),
    /// Memoryless, with this mean.
    Exponential(Duration),
    /// Uniform between the two, inclusive.
    Uniform(Duration, Duration),
    /// The first with the given probability, else the second: the simplest distribution with a large variance.
    Either(f64, Duration, Duration),
}

impl Draw {
    /// One draw.
    #[inline]
    pub fn sample(&self, stream: &mut Stream) -> Duration {
        match *self {
            Draw::Constant(time) => time,
            Draw::Exponential(mean) => {
                // The nearest picosecond, without a call into the mathematics library.
                Duration::from_ps((mean.as_ps() as f64 * stream.exponential() + 0.5) as u64)
            }
            Draw::Uniform(low, high) => {
                low + Duration::from_ps(stream.below((high - low).as_ps() + 1))
            }
            Draw::Either(probability, first, second) => match stream.chance(probability) {
                true => first,
                false => second,
            },
        }
    }
    /// The mean, in seconds.
    pub fn mean(&self) -> f64 {
        match *self {
            Draw::Constant(time) | Draw::Exponential(time) => time.as_secs_f64(),
            Draw::Uniform(low, high) => (low.as_secs_f64() + high.as_secs_f64()) / 2.0,
            Draw::Either(p, first, second) => {
                p * first.as_secs_f64() + (1.0 - p) * second.as_secs_f64()
            }
        }
    }
    /// The same distribution with every value times `numerator / denominator`.
    pub fn scale(&self, numerator: u64, denominator: u64) -> Draw {
        let scale = |time: Duration| time.scale_ceil(numerator, denominator);
        match *self {
            Draw::Constant(time) => Draw::Constant(scale(time)),
            Draw::Exponential(mean) => Draw::Exponential(scale(mean)),
            Draw::Uniform(low, high) => Draw::Uniform(scale(low), scale(high)),
            Draw::Either(p, first, second) => Draw::Either(p, scale(first), scale(second)),
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
        ];
        for draw in cases {
            let mut stream = Stream::new(7, "test");
            let sum: f64 = (0..DRAWS).map(|_| draw.sample(&mut stream).as_secs_f64()).sum();
            let mean = sum / f64::from(DRAWS);
            assert!((mean / draw.mean() - 1.0).abs() < 0.02, "{draw:?}: {mean}");
        }
    }
}
