//! Values over several seeds: the mean is compared with the published value, the spread goes into the row's
//! note. `lastmeter repro --seed N` uses other seeds, `--full` more of them.

use super::super::{Computed, Setting, Value};
use crate::sweep::{apart, mean};
use lastmeter_engine::Distribution;
use std::collections::BTreeMap;

/// Number of seeds in a quick run and in a full one.
const SEEDS: u64 = 3;
const SEEDS_FULL: u64 = 10;

/// The seeds of a computation: the requested one and its successors.
pub(super) fn seeds(setting: &Setting<'_>) -> std::ops::Range<u64> {
    seeds_of(setting, SEEDS)
}

/// The same with a given number in a quick run, for values that vary with the seed.
pub(super) fn seeds_of(setting: &Setting<'_>, quick: u64) -> std::ops::Range<u64> {
    let count = if setting.means.full { SEEDS_FULL } else { quick };
    setting.seed..setting.seed + count
}

/// Values by row and item, one for each seed.
#[derive(Debug, Default)]
pub(super) struct Spread {
    values: BTreeMap<(&'static str, String), (&'static str, Vec<f64>)>,
    /// In the order of their first value.
    order: Vec<(&'static str, String)>,
}

impl Spread {
    /// A value for the row `item` of `id`, in `unit`.
    pub(super) fn add(&mut self, id: &'static str, item: &str, value: f64, unit: &'static str) {
        let key = (id, item.to_owned());
        if !self.values.contains_key(&key) {
            self.order.push(key.clone());
        }
        self.values.entry(key).or_insert((unit, Vec::new())).1.push(value);
    }

    /// Whether something holds; the row requires it of every seed.
    pub(super) fn holds(&mut self, id: &'static str, item: &str, holds: bool) {
        self.add(id, item, f64::from(u8::from(holds)), "");
    }

    /// The means; a statement holds if it holds for every seed.
    pub(super) fn computed(&self) -> Vec<Computed> {
        let value = |(unit, values): &(&'static str, Vec<f64>)| match *unit {
            "" => Value::Holds(values.iter().all(|&value| value == 1.0)),
            unit => Value::Number(mean(values), unit),
        };
        let row = |key: &(&'static str, String)| {
            let (unit, values) = &self.values[key];
            let remark = if unit.is_empty() { String::new() } else { apart(values) };
            Computed::new(key.0, key.1.clone(), value(&self.values[key])).with_remark(remark)
        };
        self.order.iter().map(row).collect()
    }
}

/// The standard deviation in seconds, from the distribution's buckets.
pub(super) fn deviation(of: &Distribution) -> f64 {
    let mean = of.mean() * 1e12;
    let squares = of.buckets().map(|(least, width, count)| {
        let middle = least.as_ps() as f64 + width.as_ps() as f64 / 2.0;
        (middle - mean).powi(2) * count as f64
    });
    (squares.sum::<f64>() / of.count().max(1) as f64).sqrt() / 1e12
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Duration;

    #[test]
    fn e_84_the_deviation_is_that_of_the_values() {
        let mut of = Distribution::default();
        assert_eq!(deviation(&of), 0.0);
        (0..50).for_each(|_| of.record(Duration::from_ms(20)));
        assert!(deviation(&of) < 0.2e-3, "equal values have none but the buckets' width");
        (0..50).for_each(|_| of.record(Duration::from_ms(26)));
        assert!((deviation(&of) - 3e-3).abs() < 0.1e-3, "{}", deviation(&of));
    }

    #[test]
    fn a_row_has_the_mean_and_says_how_far_seeds_lie_apart() {
        let mut spread = Spread::default();
        for value in [9.0, 1.0, 2.0] {
            spread.add("E-92", "late", value, "%");
            spread.add("E-92", "total", 3.0, "MB/s");
        }
        let [late, total] = &spread.computed()[..] else { panic!("two rows") };
        assert_eq!(late.value, Value::Number(4.0, "%"));
        assert_eq!(late.remark, "mean of 3 seeds: 1.00 to 9.00");
        assert_eq!(total.remark, "", "all seeds give the same");
    }
}
