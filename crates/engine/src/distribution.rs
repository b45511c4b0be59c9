//! A histogram of times: exact count, sum, minimum and maximum; percentiles within 0.8 %.
//!
//! Buckets are linear within each power of two (as in HdrHistogram).

use lastmeter_base::Duration;

/// A distribution of times.
///
/// ```
/// use lastmeter_base::Duration;
/// use lastmeter_engine::Distribution;
/// let mut waits = Distribution::default();
/// (1..=100).for_each(|us| waits.record(Duration::from_us(us)));
/// assert_eq!(waits.count(), 100);
/// let p99 = waits.percentile(0.99).as_secs_f64();
/// assert!((p99 / 99e-6 - 1.0).abs() < 0.01);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    count: u64,
    sum: u128,
    greatest: u64,
    /// `u64::MAX - minimum`, so that zero is the right start.
    least_complement: u64,
    buckets: Vec<u64>,
}

/// Buckets in each power of two: half of this is the resolution.
const SUB_BITS: u32 = 6;

impl Distribution {
    /// Adds one value.
    #[inline]
    pub fn record(&mut self, value: Duration) {
        self.record_many(value, 1);
    }

    /// Adds `times` equal values.
    #[inline]
    pub fn record_many(&mut self, value: Duration, times: u64) {
        if times == 0 {
            return;
        }
        let value = value.as_ps();
        let bucket = bucket_of(value);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += times;
        self.count += times;
        self.sum += u128::from(value) * u128::from(times);
        self.greatest = self.greatest.max(value);
        self.least_complement = self.least_complement.max(u64::MAX - value);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Distribution) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum += other.sum;
        self.greatest = self.greatest.max(other.greatest);
        self.least_complement = self.least_complement.max(other.least_complement);
    }

    /// Takes away the values of `other`, all of which must be among these. Minimum and maximum are then known
    /// as exactly as their bucket.
    pub fn subtract(&mut self, other: &Distribution) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine -= theirs);
        self.count -= other.count;
        self.sum -= other.sum;
        let filled = |(_, count): &(usize, &u64)| **count > 0;
        let least = self.buckets.iter().enumerate().find(filled);
        let most = self.buckets.iter().enumerate().rfind(filled);
        let (Some((least, _)), Some((most, _))) = (least, most) else {
            return *self = Distribution::default();
        };
        let (start, width) = range_of(most);
        self.greatest = self.greatest.min(start + (width - 1));
        self.least_complement = self.least_complement.min(u64::MAX - range_of(least).0);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Their sum in picoseconds, exact.
    pub fn sum(&self) -> u128 {
        self.sum
    }
    /// The mean in seconds; zero without values.
    pub fn mean(&self) -> f64 {
        match self.count {
            0 => 0.0,
            count => self.sum as f64 / count as f64 / 1e12,
        }
    }
    /// The maximum; zero without values.
    pub fn max(&self) -> Duration {
        Duration::from_ps(self.greatest)
    }
    /// The minimum; zero without values.
    pub fn min(&self) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            _ => Duration::from_ps(u64::MAX - self.least_complement),
        }
    }
    /// The value that a `share` of all values do not exceed; zero without values.
    pub fn percentile(&self, share: f64) -> Duration {
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                // Minimum and maximum are exact.
                let middle = Duration::from_ps(middle_of(bucket));
                return middle.clamp(self.min(), self.max());
            }
        }
        Duration::ZERO
    }
    /// The histogram: each non-empty bucket as (lower bound, width, count).
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, Duration, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|&(_, &count)| count > 0);
        filled.map(|(bucket, &count)| {
            let (start, width) = range_of(bucket);
            (Duration::from_ps(start), Duration::from_ps(width), count)
        })
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    let magnitude = (63 - (value | 1).leading_zeros()).max(SUB_BITS) - SUB_BITS;
    ((u64::from(magnitude) << SUB_BITS) + (value >> magnitude)) as usize
}

/// The first value of a bucket, and how many values it has.
fn range_of(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    let magnitude = (bucket >> SUB_BITS).saturating_sub(1);
    ((bucket - (magnitude << SUB_BITS)) << magnitude, 1 << magnitude)
}

fn middle_of(bucket: usize) -> u64 {
    let (start, width) = range_of(bucket);
    start + (width - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_distribution_is_zero() {
        let empty = Distribution::default();
        assert_eq!((empty.count(), empty.sum(), empty.mean()), (0, 0, 0.0));
        assert_eq!(empty.percentile(0.5), Duration::ZERO);
        assert_eq!((empty.min(), empty.max()), (Duration::ZERO, Duration::ZERO));
    }

    proptest! {
        #[test]
        fn every_value_lies_in_its_bucket(value in any::<u64>()) {
            let (start, width) = range_of(bucket_of(value));
            prop_assert!(start <= value && value - start < width);
            prop_assert!(width == 1 || start / width >= 1 << SUB_BITS);
        }

        #[test]
        fn percentiles_are_within_one_bucket_of_the_sorted_list(
            mut values in prop::collection::vec(0u64..1 << 50, 1..200), share in 0.0f64..1.0,
        ) {
            let mut distribution = Distribution::default();
            values.iter().for_each(|&value| distribution.record(Duration::from_ps(value)));
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            let got = distribution.percentile(share).as_ps() as f64;
            prop_assert!((got - exact).abs() <= exact / 64.0 + 1.0, "{got} for {exact}");
        }

        #[test]
        fn merging_equals_recording_everything_in_one(
            a in prop::collection::vec(0u64..1000, 0..50),
            b in prop::collection::vec(0u64..1000, 0..50),
        ) {
            let record = |values: &[u64]| {
                let mut distribution = Distribution::default();
                values.iter().for_each(|&value| distribution.record(Duration::from_ps(value)));
                distribution
            };
            let mut merged = record(&a);
            merged.merge(&record(&b));
            let whole = record(&[a, b].concat());
            prop_assert!(merged.buckets().eq(whole.buckets()));
            prop_assert_eq!((merged.count(), merged.sum()), (whole.count(), whole.sum()));
            prop_assert_eq!((merged.min(), merged.max()), (whole.min(), whole.max()));
        }
    }
}
