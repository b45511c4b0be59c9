//! Medians and quantiles, which are more robust to a noisy machine than means.

use serde::{Deserialize, Serialize};

/// The value below which a fraction `q` of `sorted` lies; linear between neighbours.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    assert!((0.0..=1.0).contains(&q), "a quantile of {q}");
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q * last as f64;
    let (low, share) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(last);
    sorted[low] + (sorted[high] - sorted[low]) * share
}

/// Median and quartiles of a set of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// First quartile.
    pub low: f64,
    /// Third quartile.
    pub high: f64,
    /// Number of values.
    pub samples: usize,
}

impl Spread {
    /// Of `values`, in any order.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        Spread {
            median: quantile(&values, 0.5),
            low: quantile(&values, 0.25),
            high: quantile(&values, 0.75),
            samples: values.len(),
        }
    }

    /// Interquartile range over median: 0.1 means that half the values lie within about 5 %.
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / self.median.abs() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_values_have_their_quartiles() {
        let spread = Spread::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 3.0, 4.0));
        assert!((spread.relative() - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn no_values_have_no_median() {
        assert!(Spread::of(Vec::new()).median.is_nan());
    }
}
