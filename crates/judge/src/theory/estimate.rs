//! A mean over independent runs, its standard error, and the difference between halves of the runs.

/// The estimate of a quantity from runs with different seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) mean: f64,
    /// The standard error of the mean; zero for one run.
    pub(super) error: f64,
    /// The mean difference between the means of two halves of the runs, over orthogonal ways to halve them.
    pub(super) yardstick: f64,
}

impl Estimate {
    /// From the values of at least one run; their number is a power of two.
    pub(super) fn of(values: &[f64]) -> Estimate {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        if count < 2 {
            return Estimate { mean, error: 0.0, yardstick: 0.0 };
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (count - 1) as f64 / count as f64).sqrt();
        // The Walsh functions: the parity of `at & mask` says in which half run `at` is.
        let apart = |mask: usize| {
            let signed =
                values.iter().enumerate().map(|(at, value)| match (at & mask).count_ones() % 2 {
                    0 => *value,
                    _ => -value,
                });
            (signed.sum::<f64>() / (count / 2) as f64).abs()
        };
        let yardstick = (1..count).map(apart).sum::<f64>() / (count - 1) as f64;
        Estimate { mean, error, yardstick }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_of_equal_values_agree() {
        assert_eq!(Estimate::of(&[3.0; 8]), Estimate { mean: 3.0, error: 0.0, yardstick: 0.0 });
    }

    #[test]
    fn every_way_to_halve_counts_alike() {
        // (1 + 2) - (3 + 6), (1 + 3) - (2 + 6), (1 + 6) - (2 + 3), each divided by two.
        let found = Estimate::of(&[1.0, 2.0, 3.0, 6.0]);
        assert_eq!((found.mean, found.yardstick), (3.0, (3.0 + 2.0 + 1.0) / 3.0));
        // Their squares sum to 14, with three degrees of freedom.
        assert!((found.error - (14.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-15);
    }
}
