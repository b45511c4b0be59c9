//! Which changes are worth a longer run: all of them are tried on a short beginning, the better half on a longer one,
//! and so on (successive halving: Karnin, Koren and Somekh, ICML 2013, section 3).
//!
//! Of a beginning its second half counts: senders have started then, and as much is under way when it begins as when
//! it ends, so that what arrives is what was sent. How much the run itself differs there from all of it says whether a
//! beginning is typical.

use super::what_if::{Change, Effect, GAIN_MIN};
use lastmeter_base::Time;
use lastmeter_engine::Outcome;
use lastmeter_ledger::{Ledger, Stage};
use std::collections::{BTreeMap, BTreeSet};

/// The most changes tried in rounds; those in which the least time is spent are left out.
pub const CHANGES_MAX: usize = 48;

/// The looks at a run, in parts of [`crate::run::PARTS`]; beginnings end there, and their second halves begin there.
pub const LOOKS: [u64; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];

/// What all rounds may cost together, in runs, and which share of that one before the last may.
const ROUNDS: f64 = 1.6;
const ROUND: f64 = 0.22;
/// The former if no beginning for that price is typical.
const ROUNDS_MAX: f64 = 3.0;
/// Changes are tried on the whole run if all of them together take no more handlers than this, two to eight seconds of
/// one CPU; if not, rounds may always take as many.
///
/// How many was settled by 200 random networks like those of `bench explain/random`, with the seeds 201 to 400: of 15,
/// 25, 30 and 35 million the best five changes are those of the exhaustive search in 167, 188, 189 and 191 of them.
const HANDLED_FREE: u64 = 35_000_000;
/// In the last round are at least this many of the best.
const LAST: usize = 6;
/// The steps of 10 % with the greatest effect are in every round: the verdict compares them.
const STEPS: usize = 2;
/// After so many of the best by throughput goes on the next best by latency.
const PER_LATENCY: usize = 3;
/// So many are picked by the ledger where beginnings are not typical.
const BY_LEDGER: usize = 8;
/// Half of a beginning in which fewer packets were delivered tells nothing.
const DELIVERED_MIN: u64 = 100;
/// A beginning is typical if throughput and latency differ by no more than this from those of the run, and loss by no
/// more than a tenth of it.
const TYPICAL: f64 = 0.1;
const LOSS_WEIGHT: f64 = 10.0;

/// What happened in a part of a run, over all paths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// From when, which is after the warm-up ...
    since: Time,
    /// ... until when.
    now: Time,
    handled: u64,
    offered: u64,
    dropped: u64,
    delivered: u64,
    bits: f64,
    /// Of all delivered packets, in seconds.
    latencies: f64,
}

impl Sums {
    /// From the outcome of a run so far, and the ledger made of it.
    pub fn of(outcome: &Outcome, ledger: &Ledger) -> Sums {
        let seconds = (outcome.now - outcome.since).as_secs_f64();
        let totals = || ledger.paths.iter().map(|path| &path.totals);
        let delivered = totals().map(|totals| totals.delivered.packets).sum();
        Sums {
            since: outcome.since,
            now: outcome.now,
            handled: outcome.handled,
            offered: totals().map(|totals| totals.offered_packets()).sum(),
            dropped: totals().map(|totals| totals.dropped_packets()).sum(),
            delivered,
            bits: ledger.goodput() * seconds,
            latencies: ledger.latency() * delivered as f64,
        }
    }

    /// What happened between `before` and this.
    #[must_use]
    pub fn after(&self, before: &Sums) -> Sums {
        let handled = self.handled - before.handled;
        // The books began anew meanwhile.
        if before.since < self.since {
            return Sums { handled, ..*self };
        }
        Sums {
            since: before.now,
            now: self.now,
            handled,
            offered: self.offered.saturating_sub(before.offered),
            dropped: self.dropped.saturating_sub(before.dropped),
            delivered: self.delivered.saturating_sub(before.delivered),
            bits: self.bits - before.bits,
            latencies: self.latencies - before.latencies,
        }
    }

    /// By how much throughput may differ with a change because chance lets other packets be under way at the ends, as
    /// a share.
    pub fn grain(&self) -> f64 {
        let seconds = (self.now - self.since).as_secs_f64().max(f64::MIN_POSITIVE);
        (self.latencies / seconds).max(1.0).sqrt() / self.delivered.max(1) as f64
    }
    /// Whether as much was offered in both: senders do not wait for answers.
    pub fn is_offered_alike(&self, other: &Sums) -> bool {
        self.offered == other.offered
    }
    /// In bit/s.
    pub fn goodput(&self) -> f64 {
        self.bits / (self.now - self.since).as_secs_f64().max(f64::MIN_POSITIVE)
    }
    /// The mean in seconds; zero where nothing was delivered.
    pub fn latency(&self) -> f64 {
        if self.delivered > 0 { self.latencies / self.delivered as f64 } else { 0.0 }
    }
    /// Dropped packets per offered packet.
    pub fn loss(&self) -> f64 {
        if self.offered > 0 { self.dropped as f64 / self.offered as f64 } else { 0.0 }
    }
}

/// A beginning of the run as it was, to compare with the same beginning with a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beginning {
    /// How long it is, of [`crate::run::PARTS`].
    pub parts: u64,
    /// What happened in its second half.
    pub sums: Sums,
    /// What it costs, in runs.
    cost: f64,
    /// By how much its second half differs from the whole run.
    differs: f64,
}

impl Beginning {
    fn is_typical(&self) -> bool {
        self.differs <= TYPICAL
    }
}

/// The beginnings of a run by which changes can be compared, shortest first, from the looks at it.
pub fn beginnings(looks: &[(u64, Sums)], whole: &Sums) -> Vec<Beginning> {
    let at = |parts: u64| looks.iter().find(|look| look.0 == parts).map(|look| look.1);
    let ends = looks.iter().filter(|look| look.0 % 2 == 0);
    let beginning = |&(parts, end): &(u64, Sums)| {
        let sums = end.after(&at(parts / 2)?);
        let far = |part: f64, all: f64| if all > 0.0 { (part / all - 1.0).abs() } else { 0.0 };
        let differs = far(sums.goodput(), whole.goodput())
            .max(far(sums.latency(), whole.latency()))
            .max((sums.loss() - whole.loss()).abs() * LOSS_WEIGHT);
        let cost = end.handled as f64 / whole.handled.max(1) as f64;
        (sums.delivered >= DELIVERED_MIN).then_some(Beginning { parts, sums, cost, differs })
    };
    ends.filter_map(beginning).collect()
}

/// Whether so many changes can be tried on all of a run, because it is short.
pub fn is_free(whole: &Sums, changes: usize) -> bool {
    whole.handled.saturating_mul(changes as u64) <= HANDLED_FREE
}

/// The rounds of a search, and what they have cost.
#[derive(Clone, Debug)]
pub struct Rounds {
    beginnings: Vec<Beginning>,
    /// What they may cost, in runs; and if no beginning for that price is typical.
    prices: (f64, f64),
    spent: f64,
}

impl Rounds {
    /// Rounds on these beginnings of a run; nothing has been spent.
    pub fn new(beginnings: Vec<Beginning>, whole: &Sums) -> Rounds {
        let free = HANDLED_FREE as f64 / whole.handled.max(1) as f64;
        Rounds { beginnings, prices: (ROUNDS.max(free), ROUNDS_MAX.max(free)), spent: 0.0 }
    }

    /// The next round, with so many changes.
    ///
    /// It repeats the longest beginning that it may cost if that is typical; else the shortest typical one that is
    /// not much too expensive, or the longest of these. As many changes go on as the whole run can be repeated with for
    /// what is left then, but at least half. The last round repeats the whole run if it may cost that, and
    /// the longest typical beginning rather than the shortest: its figures are told.
    pub fn next(&mut self, changes: usize) -> Round {
        let (price, price_max) = self.prices;
        let last = (price - self.spent, price_max - self.spent);
        let each = (price * ROUND, price_max * ROUND);
        let typical =
            |price_max: f64| self.within(price_max, changes).filter(|one| one.is_typical());
        let longest = |price_max: f64| self.within(price_max, changes).last();
        let usual = |price: f64| longest(price).filter(|one| one.is_typical());
        let at_last = || {
            let other = || longest(last.1).or(self.beginnings.first());
            usual(last.0).or_else(|| typical(last.1).last()).or_else(other).copied()
        };
        let going_on = |beginning: Option<Beginning>, least: usize| {
            let left = last.0 - beginning.map_or(0.0, |one| one.cost * changes as f64);
            (changes / 2).max(least).max((left as usize).min(changes - 1))
        };
        let (beginning, next) = match changes <= LAST + STEPS {
            _ if changes as f64 <= last.0 => (None, None),
            true => (at_last(), None),
            false => match usual(each.0).or_else(|| typical(each.1).next()).copied() {
                Some(one) => (Some(one), Some(Next::Best(going_on(Some(one), LAST + STEPS)))),
                None if changes <= 2 * LAST => (at_last(), None),
                None => {
                    let one = longest(each.0).or(self.beginnings.first()).copied();
                    (one, Some(Next::Mixed(going_on(one, 2 * LAST))))
                }
            },
        };
        self.spent += beginning.map_or(0.0, |one| one.cost * changes as f64);
        Round { beginning, next }
    }

    /// The beginnings that cost no more than this with so many changes.
    fn within(&self, price: f64, changes: usize) -> impl Iterator<Item = &Beginning> {
        self.beginnings.iter().take_while(move |one| one.cost * changes as f64 <= price)
    }
}

/// A round: what is repeated with every change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// A beginning; `None` if it is the whole run.
    pub beginning: Option<Beginning>,
    /// Which changes go on to the next round; `None` if it is the last.
    pub next: Option<Next>,
}

/// Which changes go on to the next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// So many, by the effects found.
    Best(usize),
    /// So many: some of them by the ledger of the run, the others by effects on a beginning that is not typical.
    Mixed(usize),
}

impl Next {
    /// The changes that go on.
    pub fn changes(self, ledger: &Ledger, effects: &[Effect]) -> Vec<Change> {
        match self {
            Next::Best(count) => survivors(ledger, effects, count),
            Next::Mixed(count) => {
                let best = survivors(ledger, effects, count - count.min(BY_LEDGER));
                let others = effects.iter().map(|effect| &effect.change);
                let others = others.filter(|change| !best.contains(change)).cloned().collect();
                let room = count.saturating_sub(best.len());
                let others = promising(ledger, others, room);
                best.into_iter().chain(others).collect()
            }
        }
    }
}

/// The changes that go on to the next round: `count` of the best by throughput, and some by latency, if only longer
/// rounds tell which of both matters. Each goes with its step of 10 %. First are the steps that the verdict compares,
/// and all speeds of the best of these.
fn survivors(ledger: &Ledger, effects: &[Effect], count: usize) -> Vec<Change> {
    let ranked = |gain: &dyn Fn(&Effect) -> f64| {
        let mut ranked: Vec<&Effect> = effects.iter().collect();
        ranked.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then_with(|| a.change.cmp(&b.change)));
        ranked.into_iter().map(|effect| &effect.change).collect::<Vec<&Change>>()
    };
    let by_latency = ranked(&|effect| effect.latency_gain(ledger));
    if effects.iter().all(|effect| effect.goodput_gain(ledger) < GAIN_MIN) {
        return by_latency.into_iter().take(count).cloned().collect();
    }
    let by_goodput = ranked(&|effect| effect.goodput_gain(ledger));
    let step =
        |change: &&Change| matches!(change, Change::Faster { numerator: 11, denominator: 10, .. });
    let of_group = |change: &Change| match change {
        Change::Faster { group, .. } => by_goodput
            .iter()
            .copied()
            .filter(|other| matches!(other, Change::Faster { group: own, .. } if own == group))
            .collect(),
        _ => Vec::new(),
    };
    let mut steps = by_goodput.iter().copied().filter(step).take(STEPS);
    // What helps a little may help a lot if it is more.
    let most = steps.next().map_or_else(Vec::new, of_group);
    let compared = most.into_iter().chain(steps);
    let of_both = by_goodput.chunks(PER_LATENCY).zip(&by_latency);
    let of_both = of_both.flat_map(|(best, next)| best.iter().chain([next])).copied();
    let mut kept: BTreeSet<&Change> = BTreeSet::new();
    for change in compared.chain(of_both) {
        // And what helps a lot is compared by its step.
        for one in [change].into_iter().chain(of_group(change).into_iter().filter(step)) {
            if kept.len() < count {
                kept.insert(one);
            }
        }
    }
    kept.into_iter().cloned().collect()
}

/// The most promising of `changes`, without running any: those of the resources and stages that are in use the most,
/// and those in which packets spend the most time; `most` of them.
pub fn promising(ledger: &Ledger, changes: Vec<Change>, most: usize) -> Vec<Change> {
    if changes.len() <= most {
        return changes;
    }
    let groups: BTreeMap<&str, &str> =
        ledger.resources.iter().map(|one| (one.name.as_str(), one.group())).collect();
    let mut used: BTreeMap<&str, f64> = BTreeMap::new();
    let mut by_stage: BTreeMap<&str, f64> = BTreeMap::new();
    for resource in &ledger.resources {
        let share = used.entry(resource.group()).or_default();
        *share = share.max(resource.utilisation());
        for (stage, busy) in &resource.by_stage {
            let share = by_stage.entry(stage).or_default();
            *share = share.max(*busy);
        }
    }
    let mut spent: BTreeMap<&str, f64> = BTreeMap::new();
    let mut spent_on: BTreeMap<&str, f64> = BTreeMap::new();
    for path in &ledger.paths {
        let time = |stage: &Stage| stage.mean() * path.totals.delivered.packets as f64;
        for stage in &path.stages {
            *spent.entry(&stage.name).or_default() += time(stage);
            if let Some(group) = stage.resource.as_ref().and_then(|one| groups.get(one.as_str())) {
                *spent_on.entry(group).or_default() += time(stage);
            }
        }
    }
    let of = |shares: &BTreeMap<&str, f64>, name: &str| shares.get(name).copied().unwrap_or(0.0);
    let score = |change: &Change| match change {
        Change::Faster { group, numerator, denominator } => {
            let saved = 1.0 - *denominator as f64 / *numerator as f64;
            (of(&used, group), saved * of(&spent_on, group))
        }
        Change::Together { groups, numerator, denominator } => {
            let saved = 1.0 - *denominator as f64 / *numerator as f64;
            let each = |shares| groups.iter().map(move |group| of(shares, group));
            let time: f64 = each(&spent_on).sum();
            (each(&used).fold(f64::INFINITY, f64::min), saved * time)
        }
        Change::Free { stage } => (of(&by_stage, stage), of(&spent, stage)),
        // Nothing in a ledger tells what other queues, fabrics and plugins would do.
        _ => (f64::INFINITY, f64::INFINITY),
    };
    let ranked = |score: &dyn Fn(&Change) -> f64| {
        let mut ranked: Vec<&Change> = changes.iter().collect();
        ranked.sort_by(|a, b| score(b).total_cmp(&score(a)));
        ranked
    };
    let by_use = ranked(&|change| score(change).0);
    let by_time = ranked(&|change| score(change).1);
    let mut kept = BTreeSet::new();
    for change in by_use.iter().zip(&by_time).flat_map(|(one, other)| [one, other]) {
        if kept.len() < most {
            kept.insert((*change).clone());
        }
    }
    changes.into_iter().filter(|change| kept.contains(change)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::library::{self, Builtin};
    use crate::run::{Runner, Watch};
    use lastmeter_base::Duration;
    use lastmeter_engine::Serial;

    /// A run of 256 parts, in each of which so many handlers run and so many packets are delivered.
    fn beginnings_of(handled: u64, delivered: impl Fn(u64) -> u64) -> (Vec<Beginning>, Sums) {
        let mut sums = Sums::default();
        let mut looks = Vec::new();
        for part in 1..=crate::run::PARTS {
            sums.now += Duration::from_ms(1);
            sums.handled += handled;
            sums.offered += delivered(part);
            sums.delivered += delivered(part);
            sums.bits += delivered(part) as f64 * 8000.0;
            sums.latencies += delivered(part) as f64 * 1e-3;
            if LOOKS.contains(&part) {
                looks.push((part, sums));
            }
        }
        (beginnings(&looks, &sums), sums)
    }

    #[test]
    fn rounds_get_longer_and_end_within_their_price() {
        let (beginnings, whole) = beginnings_of(1_000_000, |_| 1000);
        let mut rounds = Rounds::new(beginnings, &whole);
        let (mut changes, mut before, mut cost) = (CHANGES_MAX, 0, 0.0);
        loop {
            let Round { beginning, next } = rounds.next(changes);
            let beginning = beginning.unwrap();
            assert!(beginning.parts >= before);
            before = beginning.parts;
            cost += changes as f64 * beginning.parts as f64 / 256.0;
            match next {
                None => break,
                Some(Next::Best(left)) => {
                    assert!(left < changes);
                    changes = left;
                }
                Some(other) => panic!("{other:?} though every beginning is typical"),
            }
        }
        assert!(before >= 16 && cost <= ROUNDS, "{before} {cost}");
    }

    #[test]
    fn a_short_run_is_repeated_whole_with_all_changes_or_with_the_best() {
        let (beginnings, whole) = beginnings_of(5000, |_| 1000);
        assert!(is_free(&whole, 27) && !is_free(&whole, 28));
        let mut rounds = Rounds::new(beginnings, &whole);
        let Round { beginning: Some(first), next: Some(Next::Best(left)) } = rounds.next(28) else {
            panic!("not all of them are tried on the whole run")
        };
        assert_eq!((left, rounds.next(left)), (22, Round { beginning: None, next: None }));
        assert!(first.cost * 28.0 > ROUNDS, "a round costs more where it hardly costs time");
        assert!(rounds.spent + left as f64 <= rounds.prices.0);
    }

    #[test]
    fn the_best_by_throughput_go_on_with_their_steps_and_some_by_latency() {
        let faster = |group: &str, numerator, denominator| Change::Faster {
            group: group.to_owned(),
            numerator,
            denominator,
        };
        let free = |stage: &str| Change::Free { stage: stage.to_owned() };
        let text = library::experiment("first-path").unwrap();
        let experiment = Experiment::parse("first-path", text, &[], &Builtin).unwrap();
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
        let ledger = crate::run::ledger(&experiment, runner).unwrap();
        // Each with its throughput and latency, as parts of the run's own.
        let effects: Vec<Effect> = [
            (faster("a", 11, 10), 1.05, 0.9),
            (faster("a", 2, 1), 0.7, 0.9),
            (faster("b", 11, 10), 1.0, 0.9),
            (faster("b", 2, 1), 1.1, 0.9),
            (faster("c", 11, 10), 0.9, 0.9),
            (free("d"), 1.15, 0.9),
            (free("e"), 0.8, 0.1),
        ]
        .into_iter()
        .map(|(change, goodput, latency)| Effect {
            change,
            goodput: ledger.goodput() * goodput,
            latency: ledger.latency() * latency,
            loss: 0.0,
            share: 0.1,
            grain: 0.0,
        })
        .collect();
        let names = |count| -> Vec<String> {
            survivors(&ledger, &effects, count).iter().map(Change::words).collect()
        };
        let among = |count, wanted: &str| names(count).iter().any(|name| name == wanted);
        // The steps that are compared, and how much more the best of them may bring ...
        let compared = ["a 10 % faster", "a twice as fast", "b 10 % faster"];
        assert!(compared.iter().all(|one| among(3, one)), "{:?}", names(3));
        // ... the best three, of which one is there, and the best by latency.
        assert!(among(5, "d at no cost") && among(5, "b twice as fast"), "{:?}", names(5));
        assert!(!among(5, "e at no cost") && among(6, "e at no cost"), "{:?}", names(6));
        assert_eq!(names(7).len(), 7);
    }

    #[test]
    fn where_no_beginning_is_typical_the_ledger_picks_too() {
        // Nearly nothing happens in the first half.
        let (beginnings, whole) =
            beginnings_of(1_000_000, |part| if part < 130 { 300 } else { 3000 });
        let mut rounds = Rounds::new(beginnings, &whole);
        let mut changes = CHANGES_MAX;
        while let Some(next) = rounds.next(changes).next {
            let Next::Mixed(left) = next else { panic!("{next:?}") };
            assert!(left < changes);
            changes = left;
        }
        assert!(rounds.spent <= ROUNDS_MAX, "{}", rounds.spent);
    }

    #[test]
    fn of_a_beginning_with_few_packets_nothing_is_told() {
        let (beginnings, whole) = beginnings_of(1_000_000, |part| u64::from(part % 2 == 0));
        assert!(beginnings.is_empty());
        let mut rounds = Rounds::new(beginnings, &whole);
        assert_eq!(rounds.next(5), Round { beginning: None, next: None });
    }

    #[test]
    fn books_that_begin_anew_are_not_subtracted() {
        let before = Sums { now: Time::from_ps(5), handled: 3, delivered: 9, ..Sums::default() };
        let since = Time::from_ps(6);
        let after = Sums { since, now: Time::from_ps(8), handled: 7, delivered: 4, ..before };
        assert_eq!(after.after(&before).delivered, 4);
        assert_eq!(after.after(&before).handled, 4);
        let within = Sums { since: Time::START, delivered: 12, ..after };
        assert_eq!(within.after(&before).delivered, 3);
        assert_eq!(within.after(&before).since, Time::from_ps(5));
    }
}
