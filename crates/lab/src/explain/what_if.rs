//! What-ifs: the same run again with one thing changed.

use lastmeter_ledger::{Ledger, Times, WhatIf};
use std::collections::BTreeMap;

/// More changes than this are not tried on one run; those that matter least are left out.
pub const WHAT_IFS_MAX: usize = 240;

/// A change counts as raising throughput from this share on; below, it is rounding.
const GAIN_MIN: f64 = 0.005;

/// One thing that is changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// All resources of this group are `numerator / denominator` times as fast.
    Faster {
        /// The resource's name, without the numbers of replicas.
        group: String,
        /// For example 11 ...
        numerator: u64,
        /// ... by 10.
        denominator: u64,
    },
    /// This stage costs nothing.
    Free {
        /// The stage's name.
        stage: String,
    },
    /// Every queue holds twice as much.
    BuffersDoubled,
    /// Ideal output queueing in place of this fabric.
    Ideal {
        /// The node, as declared.
        fabric: String,
    },
}

impl Change {
    /// In words, as the ledger prints it.
    pub fn words(&self) -> String {
        match self {
            Change::Faster { group, numerator: 2, denominator: 1 } => {
                format!("{group} twice as fast")
            }
            Change::Faster { group, numerator, denominator } => {
                let percent = (*numerator as f64 / *denominator as f64 - 1.0) * 100.0;
                format!("{group} {percent:.0} % faster")
            }
            Change::Free { stage } => format!("{stage} at no cost"),
            Change::BuffersDoubled => "every buffer doubled".to_owned(),
            Change::Ideal { fabric } => format!("{fabric} as ideal output queueing"),
        }
    }
}

/// What the model says a change does.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// What was changed.
    pub change: Change,
    /// Goodput over all paths, in bit/s.
    pub goodput: f64,
    /// Mean latency in seconds over all delivered packets.
    pub latency: f64,
    /// Dropped packets per offered packet.
    pub loss: f64,
}

impl Effect {
    /// What `changed`, the ledger of a run with `change`, says.
    pub fn of(change: Change, changed: &Ledger) -> Effect {
        let (goodput, latency, loss) = (changed.goodput(), changed.latency(), changed.loss());
        Effect { change, goodput, latency, loss }
    }
    /// Share by which throughput is higher than in `baseline`.
    pub(super) fn goodput_gain(&self, baseline: &Ledger) -> f64 {
        ratio(self.goodput, baseline.goodput()) - 1.0
    }
    /// Share by which latency is lower than in `baseline`.
    pub(super) fn latency_gain(&self, baseline: &Ledger) -> f64 {
        1.0 - ratio(self.latency, baseline.latency())
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 1.0 }
}

/// What could be changed about a run, the most promising first, and how many were left out.
///
/// Every resource 10 % and twice as fast, every stage's cost removed, every buffer doubled.
pub fn candidates(ledger: &Ledger) -> (Vec<Change>, usize) {
    let mut busiest: BTreeMap<String, f64> = BTreeMap::new();
    for resource in &ledger.resources {
        let share = busiest.entry(resource.group().to_owned()).or_default();
        *share = share.max(resource.utilisation());
    }
    let mut slowest: BTreeMap<&str, f64> = BTreeMap::new();
    for stage in ledger.paths.iter().flat_map(|path| &path.stages) {
        let mean = slowest.entry(&stage.name).or_default();
        // What only crosses a bus is held up by it and has no service of its own.
        let of = |times: Option<Times>| times.map_or(0.0, |times| times.mean);
        *mean = mean.max(of(stage.service) + of(stage.blocked));
    }
    let mut groups: Vec<_> = busiest.into_iter().filter(|&(_, share)| share > 0.0).collect();
    groups.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut stages: Vec<_> = slowest.into_iter().filter(|&(_, mean)| mean > 0.0).collect();
    stages.sort_by(|a, b| b.1.total_cmp(&a.1));
    let faster = |group: &str, numerator, denominator| Change::Faster {
        group: group.to_owned(),
        numerator,
        denominator,
    };
    // The 10 % steps carry the verdict and so come first of each resource.
    let speeds = groups.iter().flat_map(|(group, _)| [faster(group, 11, 10), faster(group, 2, 1)]);
    let removals = stages.iter().map(|&(stage, _)| Change::Free { stage: stage.to_owned() });
    let (speeds, removals): (Vec<_>, Vec<_>) = (speeds.collect(), removals.collect());
    let total = 1 + speeds.len() + removals.len();
    let room = WHAT_IFS_MAX - 1;
    let removals_kept = removals.len().min(room - speeds.len().min(room * 2 / 3));
    let mut changes = vec![Change::BuffersDoubled];
    changes.extend(speeds.into_iter().take(room - removals_kept));
    changes.extend(removals.into_iter().take(removals_kept));
    let left_out = total - changes.len();
    (changes, left_out)
}

/// Whether changes of this run are judged by throughput; otherwise by latency, because nothing
/// raises throughput.
pub(super) fn by_goodput(baseline: &Ledger, effects: &[Effect]) -> bool {
    effects.iter().any(|effect| effect.goodput_gain(baseline) >= GAIN_MIN)
}

/// The what-ifs of the ledger, best first.
pub fn rank(baseline: &Ledger, effects: &[Effect]) -> Vec<WhatIf> {
    let by_goodput = by_goodput(baseline, effects);
    let mut ranked: Vec<(f64, &Effect)> = effects
        .iter()
        .map(|effect| match by_goodput {
            true => (effect.goodput_gain(baseline), effect),
            false => (effect.latency_gain(baseline), effect),
        })
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.change.cmp(&b.1.change)));
    let what_if = |(gain, effect): (f64, &Effect)| WhatIf {
        change: effect.change.words(),
        metric: if by_goodput { "goodput" } else { "latency" }.to_owned(),
        baseline: if by_goodput { baseline.goodput() } else { baseline.latency() },
        predicted: if by_goodput { effect.goodput } else { effect.latency },
        measured: None,
        error: None,
        gain,
    };
    ranked.into_iter().map(what_if).collect()
}
