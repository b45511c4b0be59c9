//! Means with confidence intervals.

use serde::Serialize;

/// The mean of replicates, with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The number of values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation; zero for one value.
    pub deviation: f64,
    /// Half the width of the 95 % confidence interval of the mean, for independent normal values; `None` for a single
    /// value, which says nothing about variance.
    pub half_width: Option<f64>,
}

impl Interval {
    /// The interval of these values; `None` without any.
    ///
    /// ```
    /// use lastmeter_lab::sweep::Interval;
    /// let interval = Interval::of(&[9.0, 10.0, 11.0]).expect("three values");
    /// // t = 4.303 with 2 degrees of freedom, times 1 / sqrt(3).
    /// assert!((interval.half_width.unwrap() - 2.484).abs() < 0.001);
    /// ```
    pub fn of(values: &[f64]) -> Option<Interval> {
        let count = values.len() as u64;
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        let half_width =
            (count > 1).then(|| student(count - 1) * deviation / (count as f64).sqrt());
        Some(Interval { count, mean, deviation, half_width })
    }
}

/// Student's t for a two-sided interval of 95 % with these degrees of freedom (at least one).
///
/// Exact for one and two, else by G. W. Hill's expansion (Algorithm 396, CACM 13(10), 1970).
///
/// ```
/// assert!((lastmeter_lab::sweep::student(10) - 2.228).abs() < 0.0005);
/// ```
pub fn student(degrees: u64) -> f64 {
    use std::f64::consts::{FRAC_PI_2, PI};
    const P: f64 = 0.05;
    let n = degrees.max(1) as f64;
    match degrees {
        0 | 1 => (FRAC_PI_2 * P).cos() / (FRAC_PI_2 * P).sin(),
        2 => (2.0 / (P * (2.0 - P)) - 2.0).sqrt(),
        _ => {
            // The letters are Hill's.
            let a = 1.0 / (n - 0.5);
            let b = 48.0 / (a * a);
            let mut c = ((20700.0 * a / b - 98.0) * a - 16.0) * a + 96.36;
            let d = ((94.5 / (b + c) - 3.0) / b + 1.0) * (a * PI / 2.0).sqrt() * n;
            let mut x = d * P;
            let mut y = x.powf(2.0 / n);
            if y > 0.05 + a {
                x = NORMAL;
                y = x * x;
                if degrees < 5 {
                    c += 0.3 * (n - 4.5) * (x + 0.6);
                }
                c += (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b;
                y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x;
                y = a * y * y;
                y = y.exp_m1();
            } else {
                let first = 1.0 / (((n + 6.0) / (n * y) - 0.089 * d - 0.822) * (n + 2.0) * 3.0);
                y = ((first + 0.5 / (n + 4.0)) * y - 1.0) * (n + 1.0) / (n + 2.0) + 1.0 / y;
            }
            (n * y).sqrt()
        }
    }
}

/// The normal deviate that 2.5 % of values are below.
const NORMAL: f64 = -1.959_963_984_540_054;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_printed_tables_of_students_t() {
        // Abramowitz and Stegun, Table 26.10, A = 0.95.
        let printed = [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (6, 2.447),
            (7, 2.365),
            (8, 2.306),
            (9, 2.262),
            (10, 2.228),
            (15, 2.131),
            (20, 2.086),
            (30, 2.042),
            (60, 2.000),
            (120, 1.980),
        ];
        for (degrees, t) in printed {
            let ours = student(degrees);
            assert!((ours - t).abs() <= 0.0006, "{degrees}: {ours} is not {t}");
        }
    }

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[5.0]).unwrap().half_width, None);
        assert_eq!(Interval::of(&[5.0, 5.0]).unwrap().half_width, Some(0.0));
    }
}
