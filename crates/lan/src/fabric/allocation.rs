//! The equations of distributed queueing: the rate at which each input may send to each output.
//!
//! Every period each port broadcasts its backlogs, and each input computes its own rates:
//!
//! | name | Eq | value |
//! |---|---|---|
//! | `hi(i,j)` | 1 | B(i,j) / sum over h of B(h,j) |
//! | `lo(i,j)` | 2 | B(i,j) / (B(j) + sum over h of B(h,j)) |
//! | `r(i,j)` | 3 | S L min(hi(i,j), wt(i,j)) |
//! | `wt(i,j)` | 4 | lo(i,j) / sum over k of lo(i,k) |
//! | `hi(i,j)` | 5 | (Bmin + B(i,j)) / (N Bmin + sum over h of B(h,j)) |
//! | `lo(i,j)` | 6 | 0.5 / N + B(i,j) / (B(j) + sum over h of B(h,j)) |
//!
//! The shares `hi` of an output sum to one, and so do the shares `wt` of an input; so rates never
//! sum to more than S L at any output or input. Rates are whole bits per second, rounded down. The
//! shares are floating-point numbers; none of them becomes a time.
//!
//! Table 1 (D-56), with the name of each symbol here and in an experiment's `fabric`:
//!
//! | symbol   | here                          | `fabric`       |
//! |----------|-------------------------------|----------------|
//! | N        | [`Allocation::ports`]         | its neighbours |
//! | S        | in [`Allocation::capacity`]   | `speed-up`     |
//! | L        | in [`Allocation::capacity`]   | `rate`         |
//! | B(j)     | [`Summary::output`]           |                |
//! | B(i,j)   | `own` of each function        |                |
//! | hi(i,j)  | [`Allocation::hi`]            |                |
//! | lo(i,j)  | [`Allocation::lo`]            |                |
//! | wt(i,j)  | in [`Allocation::rate`]       |                |
//! | r(i,j)   | [`Allocation::rate`]          |                |
//!
//! Source: Kuhns et al., §3.6 (Eqs 1 to 4, D-52 to D-55; Table 1), §8.2 (Eqs 5 and 6, D-57 and D-58).
//!
//! ```
//! use lastmeter_base::{Bytes, Rate};
//! use lastmeter_lan::fabric::allocation::{Allocation, Rule, Summary};
//! // Eight idle ports at 70 Mbit/s with a speed-up of 2: every r is S L / N.
//! let rule = Rule::Responsive { backlog_min: Bytes(1500) };
//! let allocation = Allocation { rule, ports: 8, capacity: Rate::from_mbit(140) };
//! let idle = Summary::empty(8);
//! let total = allocation.total([], &idle);
//! assert_eq!(allocation.rate(0, 3, &idle, total), 17_499_999);
//! ```

use lastmeter_base::{Bytes, Rate};

/// Which equations determine the rate of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Eqs 1 and 2: a queue without backlog gets nothing.
    Base,
    /// Eqs 5 and 6: some bandwidth is reserved for queues that often have no backlog.
    Responsive {
        /// The small, artificial backlog Bmin of each input.
        backlog_min: Bytes,
    },
}

/// Backlogs of all ports at one instant, as far as any input needs them, in bytes. Unlisted ports
/// have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// B(j), the backlog of each output.
    pub output: Vec<u64>,
    /// For each output, its backlog at all inputs.
    pub inputs: Vec<u64>,
}

impl Summary {
    /// No backlog anywhere.
    pub fn empty(ports: usize) -> Summary {
        Summary { output: vec![0; ports], inputs: vec![0; ports] }
    }
    /// Adds the backlogs of one input.
    pub fn add(&mut self, backlogs: impl IntoIterator<Item = (usize, u64)>) {
        backlogs.into_iter().for_each(|(output, bytes)| self.inputs[output] += bytes);
    }
    #[inline]
    fn input(&self, output: usize) -> u64 {
        self.inputs.get(output).copied().unwrap_or(0)
    }
    #[inline]
    fn all(&self, output: usize) -> u64 {
        self.output.get(output).copied().unwrap_or(0) + self.input(output)
    }
}

/// More than the rounding errors of a sum over [`PORTS_MAX`] shares: left unallocated so that no sum of rates
/// exceeds the capacity.
const ROUNDING: f64 = 1e-11;
/// Most ports of a fabric (§1: "thousands of ports").
pub const PORTS_MAX: usize = 8192;

/// Parameters shared by all inputs.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// Which equations.
    pub rule: Rule,
    /// N.
    pub ports: usize,
    /// S L: the fabric's capacity from each input and to each output.
    pub capacity: Rate,
}

impl Allocation {
    /// Eq 1 or 5: input i's share of the input backlog to an output. `own` is B(i,j).
    #[inline]
    pub fn hi(&self, own: u64, output: usize, summary: &Summary) -> f64 {
        let all = summary.input(output);
        match self.rule {
            Rule::Base => ratio(own, all),
            Rule::Responsive { backlog_min } => {
                let least = backlog_min.0.max(1);
                ratio(least + own, self.ports as u64 * least + all)
            }
        }
    }
    /// Eq 2 or 6: input i's share of the total backlog to an output. `own` is B(i,j).
    #[inline]
    pub fn lo(&self, own: u64, output: usize, summary: &Summary) -> f64 {
        self.lo_min() + ratio(own, summary.all(output))
    }
    fn lo_min(&self) -> f64 {
        match self.rule {
            Rule::Base => 0.0,
            Rule::Responsive { .. } => 0.5 / self.ports as f64,
        }
    }
    /// The sum over k of lo(i,k), from the outputs for which the input has a backlog.
    pub fn total(&self, own: impl IntoIterator<Item = (usize, u64)>, summary: &Summary) -> f64 {
        let shares = own.into_iter().map(|(output, bytes)| ratio(bytes, summary.all(output)));
        self.lo_min() * self.ports as f64 + shares.sum::<f64>()
    }
    /// Eqs 3 and 4: r(i,j) in bits per second, where `total` is the result of [`Allocation::total`].
    #[inline]
    pub fn rate(&self, own: u64, output: usize, summary: &Summary, total: f64) -> u64 {
        let wt = wt(self.lo(own, output, summary), total);
        self.rate_of(self.hi(own, output, summary).min(wt))
    }
    /// The highest rate of an input to an output for which it has no backlog.
    pub fn idle_rate_most(&self, total: f64) -> u64 {
        self.rate_of(wt(self.lo_min(), total))
    }
    #[inline]
    fn rate_of(&self, share: f64) -> u64 {
        (self.capacity.as_bits() as f64 * (share * (1.0 - ROUNDING))) as u64
    }
}

/// Eq 4.
#[inline]
fn wt(lo: f64, total: f64) -> f64 {
    if total > 0.0 { lo / total } else { 0.0 }
}

/// Outputs that are examined together.
pub const TOGETHER: usize = 64;

/// Backlogs, and the resulting rates of inputs without backlog: the same for all of them.
///
/// ```
/// use lastmeter_base::{Bytes, Rate};
/// use lastmeter_lan::fabric::allocation::{Allocation, Rule, Shares, Summary};
/// let rule = Rule::Responsive { backlog_min: Bytes(1500) };
/// let allocation = Allocation { rule, ports: 8, capacity: Rate::from_mbit(140) };
/// let shares = Shares::new(&allocation, Summary::empty(8));
/// let total = allocation.total([], shares.summary());
/// let rate = shares.idle_rate(3, allocation.idle_rate_most(total));
/// assert_eq!(rate, allocation.rate(0, 3, shares.summary(), total));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    summary: Summary,
    /// The rate that `hi` alone gives an input without backlog, in bits per second, for each output.
    idle: Vec<u64>,
    /// The least of these for each run of [`TOGETHER`] outputs.
    idle_least: Vec<u64>,
    /// The same for an unlisted output.
    idle_unknown: u64,
}

impl Shares {
    /// Derives the rates from these backlogs.
    pub fn new(allocation: &Allocation, summary: Summary) -> Shares {
        let hi = |output| allocation.rate_of(allocation.hi(0, output, &summary));
        let len = summary.inputs.len();
        let (idle, idle_unknown): (Vec<u64>, u64) = ((0..len).map(hi).collect(), hi(len));
        let least = |some: &[u64]| some.iter().copied().fold(idle_unknown, u64::min);
        let idle_least = idle.chunks(TOGETHER).map(least).collect();
        Shares { summary, idle, idle_least, idle_unknown }
    }
    /// The backlogs.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }
    /// r(i,j) in bits per second of an input without backlog, where `most` is the result of
    /// [`Allocation::idle_rate_most`]. The smaller share gives the lower rate, so neither is computed for each
    /// pair.
    #[inline]
    pub fn idle_rate(&self, output: usize, most: u64) -> u64 {
        self.idle.get(output).copied().unwrap_or(self.idle_unknown).min(most)
    }
    /// Whether [`Shares::idle_rate`] is `most` for all outputs of a group of [`TOGETHER`].
    #[inline]
    pub fn are_idle_rates(&self, group: usize, most: u64) -> bool {
        self.idle_least.get(group).copied().unwrap_or(self.idle_unknown) >= most
    }
}

#[inline]
fn ratio(part: u64, whole: u64) -> f64 {
    // Most queues of a large fabric have no backlog; their rate needs no division.
    if part == 0 || whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SL: Rate = Rate::from_mbit(140);
    const RULES: [Rule; 2] = [Rule::Base, Rule::Responsive { backlog_min: Bytes(1000) }];

    /// All rates of a router with these backlogs, `inputs[i][j]` and `output[j]`.
    fn rates(rule: Rule, inputs: &[Vec<u64>], output: &[u64]) -> Vec<Vec<u64>> {
        let ports = output.len();
        let allocation = Allocation { rule, ports, capacity: SL };
        let mut summary = Summary { output: output.to_vec(), ..Summary::empty(ports) };
        inputs.iter().for_each(|row| summary.add(row.iter().copied().enumerate()));
        let row = |row: &Vec<u64>| {
            let total = allocation.total(row.iter().copied().enumerate(), &summary);
            let rate = |output| allocation.rate(row[output], output, &summary, total);
            (0..ports).map(rate).collect()
        };
        inputs.iter().map(row).collect()
    }

    /// D-52, D-53, D-54 and D-55, by hand: two inputs have 300 and 100 bytes for output 0, where 400 wait; input 0
    /// has another 100 for output 1.
    #[test]
    fn equations_1_to_4_are_what_the_document_says() {
        let allocation = Allocation { rule: Rule::Base, ports: 2, capacity: SL };
        let summary = Summary { output: vec![400, 0], inputs: vec![400, 100] };
        assert_eq!(allocation.hi(300, 0, &summary), 0.75);
        assert_eq!(allocation.lo(300, 0, &summary), 0.375);
        let total = allocation.total([(0, 300), (1, 100)], &summary);
        assert_eq!(total, 1.375);
        let near = |rate: u64, right: f64| assert!((rate as f64 - right).abs() < 2.0, "{rate}");
        near(allocation.rate(300, 0, &summary, total), 140e6 * 0.375 / 1.375);
        near(allocation.rate(100, 1, &summary, total), 140e6 * 1.0 / 1.375);
        near(allocation.rate(100, 0, &summary, 0.125), 140e6 * 0.25);
    }

    /// D-57 and D-58.
    #[test]
    fn equations_5_and_6_are_what_the_document_says() {
        let rule = Rule::Responsive { backlog_min: Bytes(100) };
        let allocation = Allocation { rule, ports: 2, capacity: SL };
        let summary = Summary { output: vec![400, 0], inputs: vec![400, 0] };
        assert_eq!(allocation.hi(300, 0, &summary), 400.0 / 600.0);
        assert_eq!(allocation.lo(300, 0, &summary), 0.25 + 0.375);
        assert_eq!(allocation.hi(0, 1, &summary), 0.5);
        assert_eq!(allocation.lo(0, 1, &summary), 0.25);
    }

    #[test]
    fn with_empty_queues_the_base_equations_give_nothing_and_the_others_equal_shares() {
        let none = vec![vec![0; 8]; 8];
        assert!(rates(RULES[0], &none, &[0; 8]).iter().flatten().all(|&rate| rate == 0));
        let equal = rates(RULES[1], &none, &[0; 8]);
        assert!(equal.iter().flatten().all(|&rate| rate == 17_499_999), "{equal:?}");
    }

    proptest! {
        /// The lower of two rates is the rate of the smaller share, to the bit.
        #[test]
        fn inputs_without_backlog_get_what_the_equations_say(
            (inputs, output) in (prop::collection::vec(0u64..1 << 33, 9),
                prop::collection::vec(prop_oneof![Just(0u64), 1u64..1 << 33], 9)),
            own in 0u64..1 << 33, ports in 9usize..5000, backlog_min in 0u64..5000,
        ) {
            for rule in [Rule::Base, Rule::Responsive { backlog_min: Bytes(backlog_min) }] {
                let allocation = Allocation { rule, ports, capacity: SL };
                let summary = Summary { output: output.clone(), inputs: inputs.clone() };
                let total = allocation.total([(0, own)], &summary);
                let shares = Shares::new(&allocation, summary.clone());
                let most = allocation.idle_rate_most(total);
                for port in 0..12 {
                    let rate = allocation.rate(0, port, &summary, total);
                    prop_assert_eq!(shares.idle_rate(port, most), rate);
                }
            }
        }

        /// Never above the fabric's capacity, on any input or output, with either set of equations (D-59).
        #[test]
        fn rates_never_sum_to_more_than_the_fabric_carries(
            inputs in prop::collection::vec(
                prop::collection::vec(prop_oneof![Just(0u64), 1u64..10, 1u64..1 << 33], 9), 9),
            output in prop::collection::vec(prop_oneof![Just(0u64), 1u64..1 << 33], 9),
        ) {
            for rule in RULES {
                let rates = rates(rule, &inputs, &output);
                for port in 0..9 {
                    let from: u64 = rates[port].iter().sum();
                    let to: u64 = rates.iter().map(|row| row[port]).sum();
                    prop_assert!(from <= SL.as_bits() && to <= SL.as_bits(), "{from} {to}");
                }
            }
        }
    }
}
