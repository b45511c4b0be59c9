//! Values over several seeds: their median stands beside what is published. How far they lie apart is
//! in the experiment's README; `lastmeter repro --seed N` shows other seeds.

use super::super::{Computed, Setting, Value};
use lastmeter_engine::Distribution;
use std::collections::BTreeMap;

/// Seeds of a quick run, and of a full one.
const SEEDS: u64 = 3;
const SEEDS_FULL: u64 = 10;

/// The seeds of a computation: the one that is asked for and those after it.
pub(super) fn seeds(setting: &Setting<'_>) -> std::ops::Range<u64> {
    let count = if setting.means.full { SEEDS_FULL } else { SEEDS };
    setting.seed..setting.seed + count
}

/// Values by row and item, one for each seed.
#[derive(Debug, Default)]
pub(super) struct Spread {
    values: BTreeMap<(&'static str, String), (&'static str, Vec<f64>)>,
    /// In the order in which they came first.
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

    /// Whether something holds: for the row it must for every seed.
    pub(super) fn holds(&mut self, id: &'static str, item: &str, holds: bool) {
        self.add(id, item, f64::from(u8::from(holds)), "");
    }

    /// The medians; a statement holds if it does for every seed.
    pub(super) fn computed(&self) -> Vec<Computed> {
        let value = |(unit, values): &(&'static str, Vec<f64>)| match *unit {
            "" => Value::Holds(values.iter().all(|&value| value == 1.0)),
            unit => Value::Number(median(values), unit),
        };
        let rows = self.order.iter();
        rows.map(|key| Computed::new(key.0, key.1.clone(), value(&self.values[key]))).collect()
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The standard deviation, in seconds, from the distribution's buckets.
pub(super) fn deviation(of: &Distribution) -> f64 {
    let mean = of.mean() * 1e12;
    let squares = of.buckets().map(|(low, high, count)| {
        let middle = (low.as_ps() as f64 + high.as_ps() as f64) / 2.0;
        (middle - mean).powi(2) * count as f64
    });
    (squares.sum::<f64>() / of.count().max(1) as f64).sqrt() / 1e12
}
