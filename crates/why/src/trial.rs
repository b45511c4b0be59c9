//! Changes applied in turn with the transfer: what each brought on this machine, whatever a model says.
//!
//! All run once; those that brought most run again, so that a place among the best does not rest on one run. Each
//! run is divided by that of the unchanged transfer in the same round, which cancels drift of the machine's speed.

use super::change::Change;
use super::what_if::{gain, metric_of};
use lastmeter_base::Duration;
use lastmeter_linux::Result;
use lastmeter_live::namespace::{Hosts, Isolation};
use lastmeter_live::statistics::Spread;
use lastmeter_live::transfer::{Measurement, Setting};

/// How long a run is measured; less where the transfer itself is shorter.
const DURATION: Duration = Duration::from_ms(300);
/// Changes that run again.
const AGAIN: usize = 4;
/// Rounds for them, after the first.
const ROUNDS_MORE: usize = 2;
/// How long a run is retried while other programs disturb it.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);

/// What one change brought.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The change.
    pub change: Change,
    /// The metric with the change over that without it in the same round: median of the rounds.
    pub ratio: f64,
    /// Rounds in which it ran.
    pub rounds: usize,
}

/// All changes that were tried.
#[derive(Clone, Debug)]
pub struct Trials {
    /// In the order in which they were asked for.
    pub all: Vec<Trial>,
    /// Of the unchanged transfer, over the rounds: the greatest value over the least, less one.
    pub spread: f64,
    /// How long each run took.
    pub duration: Duration,
}

impl Trials {
    /// Of this change, if it was tried.
    pub fn of(&self, change: Change) -> Option<&Trial> {
        self.all.iter().find(|one| one.change == change)
    }

    /// What the reader should know of these figures.
    pub fn words(&self) -> String {
        let more = 1 + ROUNDS_MORE;
        format!(
            "Changes ran for {} each, in turn with the transfer, the best of them {more} times; \
             the transfer itself differed by {:.0} % between rounds, so smaller gains say nothing.",
            self.duration,
            self.spread * 100.0
        )
    }
}

/// Whether a change can be made between these hosts: loopback's packets are as they are.
fn possible(hosts: &Hosts, change: &Change) -> bool {
    let of_the_link = matches!(change, Change::Mtu(_) | Change::Offload(_) | Change::Checksum(_));
    change.is_soft() && !(of_the_link && hosts.isolation() == Isolation::Loopback)
}

/// Runs those of the changes that can be applied, in turn with the transfer; `None` if there are none.
///
/// # Errors
/// As [`Hosts::run`].
pub fn in_turn(hosts: &mut Hosts, setting: &Setting, changes: &[Change]) -> Result<Option<Trials>> {
    let changes: Vec<Change> = changes.iter().filter(|one| possible(hosts, one)).copied().collect();
    if changes.is_empty() {
        return Ok(None);
    }
    let base = Setting { duration: setting.duration.min(DURATION), ..setting.clone() };
    let (mut values, mut unchanged) = (vec![Vec::new(); changes.len()], Vec::new());
    let mut round = |places: &[usize], values: &mut Vec<Vec<f64>>| -> Result<()> {
        let changed = places.iter().map(|&place| changes[place].setting(&base));
        let settings: Vec<Setting> = std::iter::once(base.clone()).chain(changed).collect();
        let runs = hosts.run_in_turn(&settings, 1, PATIENCE)?;
        let mut runs = runs.iter().flatten().map(|m: &Measurement| metric_of(m).1);
        let now = runs.next().unwrap_or(f64::NAN);
        unchanged.push(now);
        for (&place, value) in places.iter().zip(runs) {
            values[place].push(value / now);
        }
        Ok(())
    };
    let all: Vec<usize> = (0..changes.len()).collect();
    round(&all, &mut values)?;
    let better = |place: &usize| gain_of_ratio(setting, values[*place][0]);
    let mut best: Vec<usize> = all.iter().copied().filter(|&p| changes[p].is_useful()).collect();
    best.sort_by(|a, b| better(b).total_cmp(&better(a)));
    best.truncate(AGAIN);
    for _ in 0..ROUNDS_MORE {
        round(&best, &mut values)?;
    }
    let trials = changes.iter().zip(values).map(|(&change, ratios)| Trial {
        change,
        rounds: ratios.len(),
        ratio: Spread::of(ratios).median,
    });
    let all = trials.collect();
    let least = unchanged.iter().copied().fold(f64::INFINITY, f64::min);
    let most = unchanged.iter().copied().fold(0.0, f64::max);
    Ok(Some(Trials { all, spread: most / least - 1.0, duration: base.duration }))
}

/// By how much the metric is better at `ratio` times its value.
fn gain_of_ratio(setting: &Setting, ratio: f64) -> f64 {
    gain(super::what_if::name_of(setting), 1.0, ratio)
}
