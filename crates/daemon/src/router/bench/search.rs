//! How the most that a router forwards is looked for, and how far that can be trusted: routers are started anew and
//! measured in turn, so that a change of the machine meets all of them; those whose starts disagree are started again.

use super::place::{self, Between, Place};
use super::{Bench, TAIL, WARM};
use crate::Complaint;
use std::path::Path;
use std::time::Duration;

/// Frames a second that are offered first: more than a core forwards by the port processor.
const OFFERED: f64 = 2.0e6;
/// Then so many times what was forwarded: frames that find no room cost the kernel time, which is no part of what a
/// packet costs that is forwarded.
const AGAIN: f64 = 1.1;
/// How often again; a quick look does so once. The run that costs least counts.
const AGAINS: usize = 2;
/// Shorter runs are a quick look.
const SHORT: f64 = 1.0;
/// Starts agree if the two fastest are so close to each other. A router is now and then slower by a fifth or more from
/// its start to its end, also with nothing else running; why is not known.
const CLOSE: f64 = 0.04;
/// A start counts only if others took less of the router's core than this.
const TAKEN: f64 = 0.1;

/// Why nothing was measured.
const KEPT: &str = "others kept the router from its core, so that nothing was forwarded";

/// Measures at one rate offered; 0 is as fast as possible.
pub(super) fn measure(
    place: &mut Place,
    seconds: f64,
    len: usize,
    rate: f64,
    list: &Path,
) -> Result<Between, Complaint> {
    let source = place.source(len, rate, list, seconds + WARM.as_secs_f64() + TAIL)?;
    std::thread::sleep(WARM);
    let before = place.now()?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let after = place.now()?;
    let told = place::offered(source)?;
    Ok(Between { offered: told, ..before.until(after) })
}

/// The measurement with the most packets for each second of CPU.
pub(super) fn best(all: Vec<Between>) -> Between {
    all.into_iter().max_by(|a, b| a.per_cpu.total_cmp(&b.per_cpu)).expect("a rate was measured")
}

/// The run of a place that costs least, of some with more offered than it forwards; `more` are further rates.
pub(super) fn highest(
    place: &mut Place,
    seconds: f64,
    len: usize,
    more: &[f64],
    list: &Path,
) -> Result<Between, Complaint> {
    let mut all = vec![measure(place, seconds, len, OFFERED, list)?];
    for _ in 0..if seconds < SHORT { 1 } else { AGAINS } {
        let last = all.last().map_or(OFFERED, |last| last.rate);
        all.push(measure(place, seconds, len, (AGAIN * last).clamp(1.0, OFFERED), list)?);
    }
    for rate in more {
        all.push(measure(place, seconds, len, *rate, list)?);
    }
    let best = best(all);
    match best.per_cpu > 0.0 {
        true => Ok(best),
        false if is_calm(&best) => Err(Complaint("nothing was forwarded".to_owned())),
        false => Err(Complaint(KEPT.to_owned())),
    }
}

/// Whether others left the router its core.
pub(super) fn is_calm(found: &Between) -> bool {
    found.others < TAKEN
}

/// How often routers are started: at least, and if their starts disagree at most.
#[derive(Clone, Copy)]
pub(super) struct Starts {
    pub(super) least: usize,
    pub(super) most: usize,
}

impl Starts {
    pub(super) fn of(bench: &Bench, quick: bool) -> Starts {
        match quick {
            true => Starts { least: 1, most: 1 },
            false => Starts { least: bench.rounds, most: bench.rounds.max(2) * 2 },
        }
    }
}

/// Measures so many routers in turn: `one` starts the one with this number, and says what was found with each load.
pub(super) fn in_turn(
    count: usize,
    starts: Starts,
    mut one: impl FnMut(usize) -> Result<Vec<Between>, Complaint>,
) -> Result<Vec<Vec<Several>>, Complaint> {
    let mut all: Vec<Vec<Several>> = vec![Vec::new(); count];
    for start in 0..starts.most {
        for (number, loads) in all.iter_mut().enumerate() {
            let settled = !loads.is_empty() && loads.iter().all(|load| load.agree(starts.least));
            if start >= starts.least && settled {
                continue;
            }
            let found = one(number)?;
            loads.resize(found.len(), Several::default());
            loads.iter_mut().zip(found).for_each(|(load, found)| load.0.push(found));
        }
    }
    Ok(all)
}

/// What several starts found.
#[derive(Clone, Debug, Default)]
pub(super) struct Several(Vec<Between>);

impl Several {
    /// Those in which the router had its core, or all if it never had; the slowest first.
    fn counting(&self) -> Vec<Between> {
        let calm = self.0.iter().filter(|one| is_calm(one)).copied();
        let mut counting: Vec<Between> = calm.collect();
        if counting.is_empty() {
            counting.clone_from(&self.0);
        }
        counting.sort_by(|a, b| a.per_cpu.total_cmp(&b.per_cpu));
        counting
    }
    /// Whether at least so many count, and the two fastest are close to each other.
    fn agree(&self, least: usize) -> bool {
        let all = self.counting();
        let close = match all.as_slice() {
            [.., second, first] => first.per_cpu - second.per_cpu <= CLOSE * first.per_cpu,
            [_] => true,
            [] => false,
        };
        all.len() >= least && close && self.is_calm()
    }
    /// Whether others left the router its core in some start.
    pub(super) fn is_calm(&self) -> bool {
        self.0.iter().any(is_calm)
    }
    /// The fastest, which counts: it was disturbed least.
    pub(super) fn fastest(&self) -> Between {
        let all = self.counting();
        all[all.len() - 1]
    }
    /// How far apart they are: fastest less slowest, of the fastest.
    pub(super) fn spread(&self) -> f64 {
        let all = self.counting();
        (all[all.len() - 1].per_cpu - all[0].per_cpu) / self.fastest().per_cpu.max(1e-9)
    }
    pub(super) fn starts(&self) -> usize {
        self.counting().len()
    }
    /// For a note: how many, how far apart, and why they decide nothing if so.
    pub(super) fn words(&self) -> String {
        let all = format!("{} starts within {:.0} %", self.starts(), self.spread() * 100.0);
        match self.is_calm() {
            true => all,
            false => {
                format!("UNDECIDED: others took {:.2} of its core; {all}", self.fastest().others)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(per_cpu: f64, others: f64) -> Between {
        let (offered, rate, bits_per_cpu, cores, kernel) = (0.0, per_cpu, 0.0, 1.0, 0.5);
        Between { offered, rate, per_cpu, bits_per_cpu, cores, kernel, others }
    }

    #[test]
    fn starts_that_disagree_are_repeated_and_disturbed_ones_do_not_count() {
        let starts = Starts { least: 2, most: 5 };
        let rates = [
            // They agree at once.
            vec![(1.00, 0.0), (1.02, 0.0)],
            // One is far off: a third decides.
            vec![(1.00, 0.0), (0.70, 0.0), (1.01, 0.0)],
            // Others disturbed the first.
            vec![(0.50, 0.5), (1.00, 0.0), (1.01, 0.0)],
            // Never two that agree.
            vec![(1.0, 0.0), (0.5, 0.0), (0.8, 0.0), (0.6, 0.0), (0.7, 0.0)],
            // Never its core.
            vec![(1.0, 0.9); 5],
        ];
        let mut next = [0; 5];
        let mut order = Vec::new();
        let all = in_turn(rates.len(), starts, |number| {
            let (per_cpu, others) = rates[number][next[number]];
            next[number] += 1;
            order.push(number);
            Ok(vec![found(per_cpu, others)])
        });
        let all = all.map_err(|wrong| wrong.0).expect("all were measured");
        assert_eq!(next, [2, 3, 3, 5, 5]);
        assert_eq!(order[..7], [0, 1, 2, 3, 4, 0, 1], "in turn");
        let fastest: Vec<f64> = all.iter().map(|one| one[0].fastest().per_cpu).collect();
        assert_eq!(fastest, [1.02, 1.01, 1.01, 1.0, 1.0]);
        assert!((all[1][0].spread() - 0.31 / 1.01).abs() < 1e-9 && all[1][0].starts() == 3);
        assert!((all[2][0].spread() - 0.01 / 1.01).abs() < 1e-9, "the disturbed one is left out");
        let words = all.iter().map(|one| one[0].words().contains("UNDECIDED")).collect::<Vec<_>>();
        assert_eq!(words, [false, false, false, false, true]);
    }
}
