//! What-ifs: the same run again with one thing changed.

use super::rounds::{Beginning, Sums};
use super::verdict::{BUSY_MIN, by_utilisation, waits};
use crate::run::PARTS;
use lastmeter_ledger::{Ledger, Times, WhatIf};
use std::collections::BTreeMap;

/// The most changes tried on one run; those that matter least are left out.
pub const WHAT_IFS_MAX: usize = 240;

/// The most sets of resources tried together, and the most members of one.
const SETS_MAX: usize = 4;
const SET_MAX: usize = 16;

/// A smaller gain in throughput counts as rounding.
pub(super) const GAIN_MIN: f64 = 0.005;
/// And so much more of what packets under way at the ends of the part that was compared make.
const GRAINS: f64 = 1.5;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// All resources of this group are `numerator / denominator` times as fast.
    Faster {
        /// The resource's name, without member numbers.
        group: String,
        /// For example 11 ...
        numerator: u64,
        /// ... by 10.
        denominator: u64,
    },
    /// All resources of these groups are `numerator / denominator` times as fast.
    Together {
        /// As in [`Change::Faster`].
        groups: Vec<String>,
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
    /// Every queue's limit is doubled.
    BuffersDoubled,
    /// Ideal output queueing in place of this fabric.
    Ideal {
        /// The node, as declared.
        fabric: String,
    },
    /// This node's plugin is taken out: it decides nothing and costs nothing.
    Without {
        /// The node, as declared.
        node: String,
    },
}

impl Change {
    /// In words, as in the ledger.
    pub fn words(&self) -> String {
        match self {
            Change::Faster { group, numerator, denominator } => {
                format!("{group} {}", faster(*numerator, *denominator))
            }
            Change::Together { groups, numerator, denominator } => {
                let both = if groups.len() == 2 { "both " } else { "all " };
                format!("{}: {both}{}", listed(groups), faster(*numerator, *denominator))
            }
            Change::Free { stage } => format!("{stage} at no cost"),
            Change::BuffersDoubled => "every buffer doubled".to_owned(),
            Change::Ideal { fabric } => format!("{fabric} as ideal output queueing"),
            Change::Without { node } => format!("{node} without the plugin"),
        }
    }
}

/// `twice as fast`, `10 % faster`.
fn faster(numerator: u64, denominator: u64) -> String {
    match (numerator, denominator) {
        (2, 1) => "twice as fast".to_owned(),
        _ => format!("{:.0} % faster", (numerator as f64 / denominator as f64 - 1.0) * 100.0),
    }
}

/// Names in a sentence: `a and b`, `a, b and c`, `a, b and 3 more`.
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first, second] => format!("{first} and {second}"),
        [first, second, third] => format!("{first}, {second} and {third}"),
        [first, second, rest @ ..] => format!("{first}, {second} and {} more", rest.len()),
    }
}

/// The predicted effect of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// The change.
    pub change: Change,
    /// Goodput over all paths, in bit/s.
    pub goodput: f64,
    /// Mean latency in seconds over all delivered packets.
    pub latency: f64,
    /// Dropped packets per offered packet.
    pub loss: f64,
    /// The share of the run that was repeated with the change: the rest is taken to change alike.
    pub share: f64,
    /// By how much throughput may differ because only a part of the run was repeated, as a share of it.
    pub grain: f64,
}

impl Effect {
    /// The effect of `change`, from the ledger of a run with it.
    pub fn of(change: Change, changed: &Ledger) -> Effect {
        let (goodput, latency, loss) = (changed.goodput(), changed.latency(), changed.loss());
        Effect { change, goodput, latency, loss, share: 1.0, grain: 0.0 }
    }
    /// The effect of `change` on a run, from what happened with it in the part of a beginning that counts.
    pub fn of_beginning(
        change: Change,
        changed: &Sums,
        before: &Beginning,
        whole: &Ledger,
    ) -> Effect {
        let sums = &before.sums;
        let goodput = whole.goodput() * ratio(changed.goodput(), sums.goodput());
        // More than what is sent never arrives.
        let sent = || {
            let totals = || whole.paths.iter().map(|path| &path.totals);
            let offered: u64 = totals().map(|totals| totals.offered_packets()).sum();
            let delivered: u64 = totals().map(|totals| totals.delivered.packets).sum();
            whole.goodput() * ratio(offered as f64, delivered as f64)
        };
        let is_open = changed.is_offered_alike(sums);
        Effect {
            change,
            goodput: if is_open { goodput.min(sent()) } else { goodput },
            latency: whole.latency() * ratio(changed.latency(), sums.latency()),
            loss: (whole.loss() + changed.loss() - sums.loss()).clamp(0.0, 1.0),
            share: before.parts as f64 / PARTS as f64,
            grain: sums.grain(),
        }
    }
    /// The relative gain in throughput over `baseline`.
    pub(super) fn goodput_gain(&self, baseline: &Ledger) -> f64 {
        ratio(self.goodput, baseline.goodput()) - 1.0
    }
    /// Whether it brings more throughput than rounding does.
    pub(super) fn helps(&self, baseline: &Ledger) -> bool {
        self.goodput_gain(baseline) >= GAIN_MIN + GRAINS * self.grain
    }
    /// The relative reduction of latency from `baseline`.
    pub(super) fn latency_gain(&self, baseline: &Ledger) -> f64 {
        1.0 - ratio(self.latency, baseline.latency())
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 1.0 }
}

/// The changes to try on a run, most promising first, and how many were left out.
///
/// Every resource 10 % and twice as fast, every stage at no cost, every buffer doubled.
pub fn candidates(ledger: &Ledger) -> (Vec<Change>, usize) {
    let mut busiest: BTreeMap<String, f64> = BTreeMap::new();
    for resource in &ledger.resources {
        let share = busiest.entry(resource.group().to_owned()).or_default();
        *share = share.max(resource.utilisation());
    }
    let mut slowest: BTreeMap<&str, f64> = BTreeMap::new();
    for stage in ledger.paths.iter().flat_map(|path| &path.stages) {
        let mean = slowest.entry(&stage.name).or_default();
        // A stage that only crosses a bus is blocked by it and has no service time of its own.
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
    // The verdict depends on the 10 % steps, so they come first for each resource.
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

/// Sets of resources to try together, if no resource alone brings more throughput: the links of one entry, which one
/// line of the file makes faster, and everything that is in use for most of the time.
pub fn together(ledger: &Ledger, effects: &[Effect], entries: &[Vec<String>]) -> Vec<Change> {
    if is_alone(ledger, effects) {
        return Vec::new();
    }
    let busy: Vec<(String, f64)> = by_utilisation(ledger)
        .into_iter()
        .take_while(|(_, share)| *share >= BUSY_MIN)
        .take(SET_MAX)
        .collect();
    // A processor that waits for another member is no member: it would be as busy whatever its speed.
    let own =
        |name: &str| !busy.iter().any(|(other, _)| other != name && waits(ledger, name, other));
    let busy: Vec<(String, f64)> = busy.iter().filter(|(name, _)| own(name)).cloned().collect();
    let known = |group: &String| busy.iter().any(|(name, _)| name == group);
    let of_entry = |entry: &Vec<String>| entry.iter().filter(|one| known(one)).cloned().collect();
    let mut sets: Vec<Vec<String>> = entries.iter().map(of_entry).collect();
    sets.push(busy.iter().map(|(name, _)| name.clone()).collect());
    sets.retain(|set| set.len() > 1);
    sets.iter_mut().for_each(|set| set.sort());
    sets.sort();
    sets.dedup();
    let speeds = |groups: Vec<String>| {
        [(11, 10), (2, 1)].map(|(numerator, denominator)| Change::Together {
            groups: groups.clone(),
            numerator,
            denominator,
        })
    };
    sets.into_iter().take(SETS_MAX).flat_map(speeds).collect()
}

/// Whether one resource alone brings more throughput.
pub fn is_alone(ledger: &Ledger, effects: &[Effect]) -> bool {
    let alone =
        |effect: &Effect| matches!(effect.change, Change::Faster { .. }) && effect.helps(ledger);
    effects.iter().any(alone)
}

/// Whether changes of this run are ranked by throughput; if nothing raises throughput, latency ranks them. Those of
/// which most was repeated decide.
pub(super) fn by_goodput(baseline: &Ledger, effects: &[Effect]) -> bool {
    let most = effects.iter().map(|effect| effect.share).fold(0.0, f64::max);
    effects.iter().any(|effect| effect.share >= most && effect.helps(baseline))
}

/// The what-ifs of the ledger, best first; those of which less was repeated are after all others.
pub fn rank(baseline: &Ledger, effects: &[Effect]) -> Vec<WhatIf> {
    let by_goodput = by_goodput(baseline, effects);
    let mut ranked: Vec<(f64, &Effect)> = effects
        .iter()
        .map(|effect| match by_goodput {
            true => (effect.goodput_gain(baseline), effect),
            false => (effect.latency_gain(baseline), effect),
        })
        .collect();
    ranked.sort_by(|(a_gain, a), (b_gain, b)| {
        let better = b.share.total_cmp(&a.share).then(b_gain.total_cmp(a_gain));
        better.then_with(|| a.change.cmp(&b.change))
    });
    let what_if = |(gain, effect): (f64, &Effect)| WhatIf {
        change: effect.change.words(),
        metric: if by_goodput { "goodput" } else { "latency" }.to_owned(),
        baseline: if by_goodput { baseline.goodput() } else { baseline.latency() },
        predicted: Some(if by_goodput { effect.goodput } else { effect.latency }),
        measured: None,
        error: None,
        gain,
        share: Some(effect.share).filter(|share| *share < 1.0),
    };
    ranked.into_iter().map(what_if).collect()
}
