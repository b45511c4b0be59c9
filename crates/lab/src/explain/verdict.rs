//! The verdict: which resource limits the paths, found in two independent ways.
//!
//! By *utilisation*: the resource with the highest busy and blocked share. By *sensitivity*: the resource whose
//! being 10 % faster helps most, found by running the model again. If the two agree, the verdict is sure; if they
//! do not, or nothing helps, it says so. They also count as agreeing if the resource with the highest utilisation
//! mostly waits for the one that helps most: a processor held while bytes cross a bus. If no single resource helps
//! because several are always in use, these limit together.

use super::once::{Decides, once};
use super::what_if::{Change, Effect, by_goodput, listed};
use crate::livelock::livelock;
use lastmeter_ledger::{Confidence, Ledger, Verdict};
use std::collections::BTreeMap;

/// A resource with a lower utilisation does not limit throughput.
pub(super) const BUSY_MIN: f64 = 0.7;
/// Utilisations this close count as equal.
const UTILISATION_CLOSE: f64 = 0.03;
/// By how much a resource is faster when its sensitivity is measured.
const SPEED_TRIED: f64 = 0.1;
/// A gain beyond this multiple of it needs an explanation.
const MORE_THAN_ITS_SHARE: f64 = 1.1;
/// A sensitivity is clear if it is this many times the next one.
const SENSITIVITY_CLEAR: f64 = 2.0;

/// The verdict on a run, from its ledger and the effects of changes; without any, that on a single run. `None` if
/// nothing was offered.
pub fn verdict(ledger: &Ledger, effects: &[Effect]) -> Option<Verdict> {
    let offered: u64 = ledger.paths.iter().map(|path| path.totals.offered_packets()).sum();
    if offered == 0 {
        return None;
    }
    // In livelock 10 % more speed changes nothing: only the cause can be named.
    if let Some(livelock) = livelock(ledger) {
        return Some(livelock);
    }
    if effects.is_empty() {
        return once(ledger, Decides::WhatIfs);
    }
    let utilised = by_utilisation(ledger);
    if let Some(set) = set_limits(ledger, &utilised, effects) {
        return Some(set);
    }
    if !by_goodput(ledger, effects) {
        return Some(
            several_limit(ledger, &utilised).unwrap_or_else(|| nothing_limits(ledger, &utilised)),
        );
    }
    Some(something_limits(ledger, &utilised, &by_sensitivity(ledger, effects)))
}

/// Groups of resources with their greatest busy and blocked share, highest first.
pub(super) fn by_utilisation(ledger: &Ledger) -> Vec<(String, f64)> {
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for resource in &ledger.resources {
        let share = shares.entry(resource.group().to_owned()).or_default();
        *share = share.max(resource.utilisation());
    }
    highest_first(shares.into_iter().collect())
}

/// Groups of resources with the gain in throughput when they are 10 % faster, highest first.
fn by_sensitivity(ledger: &Ledger, effects: &[Effect]) -> Vec<(String, f64)> {
    let gain = |effect: &Effect| match &effect.change {
        Change::Faster { group, numerator: 11, denominator: 10 } => {
            Some((group.clone(), effect.goodput_gain(ledger)))
        }
        _ => None,
    };
    highest_first(effects.iter().filter_map(gain).collect())
}

fn highest_first(mut shares: Vec<(String, f64)>) -> Vec<(String, f64)> {
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    shares
}

/// The smallest set of resources whose members bring nothing alone and more throughput together.
fn set_limits(ledger: &Ledger, utilised: &[(String, f64)], effects: &[Effect]) -> Option<Verdict> {
    let set = |effect: &&Effect| {
        matches!(effect.change, Change::Together { numerator: 11, denominator: 10, .. })
            && effect.helps(ledger)
    };
    let members = |effect: &Effect| match &effect.change {
        Change::Together { groups, .. } => groups.clone(),
        _ => Vec::new(),
    };
    let mut sets: Vec<(Vec<String>, f64)> = effects
        .iter()
        .filter(set)
        .map(|effect| (members(effect), effect.goodput_gain(ledger)))
        .collect();
    sets.sort_by(|a, b| a.0.len().cmp(&b.0.len()).then(b.1.total_cmp(&a.1)));
    let (names, gain) = sets.into_iter().next()?;
    let used: Vec<&(String, f64)> =
        utilised.iter().filter(|(name, _)| names.contains(name)).collect();
    let (most, least) = (used.first()?, used.last()?);
    let words = format!(
        "{} limit together: each is in use for at least {} of the time; one of them alone being \
         faster brings no more throughput, all of them 10 % faster bring {} more.",
        listed(&names),
        percent(least.1),
        percent(gain)
    );
    Some(Verdict {
        resource: Some(most.0.clone()),
        utilisation: Some(most.1),
        confidence: Confidence::High,
        runner_up: used.get(1).map(|(name, _)| name.clone()),
        words,
    })
}

/// Resources that are always in use, so that no single one helps: a copy at both ends.
fn several_limit(ledger: &Ledger, utilised: &[(String, f64)]) -> Option<Verdict> {
    let full: Vec<&(String, f64)> =
        utilised.iter().take_while(|(_, share)| *share >= 1.0 - UTILISATION_CLOSE).collect();
    let own =
        |name: &str| !full.iter().any(|(other, _)| other != name && waits(ledger, name, other));
    let mut names = full.iter().map(|(name, _)| name.as_str()).filter(|name| own(name));
    let (first, second) = (names.next()?, names.next()?);
    let others = names.count();
    let and_others = if others > 0 { format!(" (and {others} more)") } else { String::new() };
    let least = percent(full.last()?.1);
    Some(Verdict {
        resource: Some(first.to_owned()),
        utilisation: Some(full.first()?.1),
        confidence: Confidence::Medium,
        runner_up: Some(second.to_owned()),
        words: format!(
            "{first} and {second}{and_others} limit together: each is in use for {least} of the \
             time or more, and one of them alone being faster brings no more throughput."
        ),
    })
}

fn nothing_limits(ledger: &Ledger, utilised: &[(String, f64)]) -> Verdict {
    let busiest = utilised.first();
    let utilisation = busiest.map(|&(_, share)| share);
    let full = busiest.filter(|(_, share)| *share >= 1.0 - UTILISATION_CLOSE);
    if let (Some((name, share)), true) = (full, ledger.loss() <= 0.0) {
        return Verdict {
            resource: None,
            utilisation,
            confidence: Confidence::Medium,
            runner_up: Some(name.clone()),
            words: format!(
                "{name} is in use for {} of the time, but faster it would bring no more \
                 throughput: its senders have no more to send, or wait for their windows.",
                percent(*share)
            ),
        };
    }
    let mut words = match ledger.loss() {
        loss if loss > 0.0 => {
            format!("Throughput is lost ({}), but no single change brings it back", percent(loss))
        }
        _ => "Nothing limits throughput: what was offered arrived".to_owned(),
    };
    if let Some((name, share)) = busiest {
        words += &format!("; the busiest resource, {name}, is in use for {}", percent(*share));
    }
    words += ".";
    if let Some((stage, share)) = slowest_stage(ledger) {
        words += &format!(" Most latency is spent in {stage} ({}).", percent(share));
    }
    Verdict {
        resource: None,
        utilisation,
        confidence: if ledger.loss() > 0.0 { Confidence::Undecided } else { Confidence::High },
        runner_up: busiest.map(|(name, _)| name.clone()),
        words,
    }
}

fn something_limits(
    ledger: &Ledger,
    utilised: &[(String, f64)],
    sensitive: &[(String, f64)],
) -> Verdict {
    let share_of =
        |name: &str| utilised.iter().find(|(known, _)| known == name).map_or(0.0, |u| u.1);
    let most_used = utilised.first().map_or(0.0, |&(_, share)| share);
    let Some((name, gain)) = sensitive.first().filter(|&&(_, gain)| gain > 0.0) else {
        return match most_used < BUSY_MIN && ledger.loss() <= 0.0 {
            true => round_trips(ledger, utilised, most_used),
            false => undecided(utilised),
        };
    };
    let utilisation = share_of(name);
    let runner_up = sensitive.get(1).filter(|&&(_, gain)| gain > 0.0);
    let next = runner_up.map_or(0.0, |&(_, gain)| gain);
    if most_used < BUSY_MIN {
        let lost = drops(ledger, utilised, (name.as_str(), *gain));
        return lost.unwrap_or_else(|| round_trips(ledger, utilised, most_used));
    }
    let waits = utilised.first().filter(|(other, _)| other != name && waits(ledger, other, name));
    let agree = most_used - utilisation <= UTILISATION_CLOSE || waits.is_some();
    let clear = *gain >= SENSITIVITY_CLEAR * next;
    let confidence = match (agree, clear) {
        (true, true) => Confidence::High,
        (true, false) => Confidence::Medium,
        (false, _) => Confidence::Low,
    };
    let mut words = format!(
        "{name} limits: it is in use for {} of the time, and 10 % more speed there brings {} more \
         throughput",
        percent(utilisation),
        percent(*gain)
    );
    match runner_up {
        Some((other, gain)) if !clear => {
            words += &format!("; {other} is close behind ({}).", percent(*gain));
        }
        _ => words += ".",
    }
    if *gain > SPEED_TRIED * MORE_THAN_ITS_SHARE {
        words += &above_one(ledger, name);
    }
    if let Some((other, share)) = waits {
        words += &format!(" {other} waits for it most of its {}.", percent(*share));
    }
    if let (false, Some((other, share))) = (agree, utilised.first()) {
        words +=
            &format!(" {other} is busier ({}), but speeding it up helps less.", percent(*share));
    }
    let runner_up = runner_up.map(|(name, _)| name.clone());
    Verdict {
        resource: Some(name.clone()),
        utilisation: Some(utilisation),
        confidence,
        runner_up,
        words,
    }
}

/// Why a resource that is 10 % faster brings more than 10 % more throughput.
fn above_one(ledger: &Ledger, name: &str) -> String {
    // Of the drops on a path, those after its first stage there.
    let dropped_later = |path: &lastmeter_ledger::Path| -> u64 {
        let here = |stage: &lastmeter_ledger::Stage| {
            let of = |r: &&lastmeter_ledger::Resource| Some(&r.name) == stage.resource.as_ref();
            ledger.resources.iter().find(of).is_some_and(|r| r.group() == name)
        };
        let later = path.stages.iter().skip_while(|stage| !here(stage)).skip(1);
        later.flat_map(|stage| stage.drops.values()).sum()
    };
    let lost: u64 = ledger.paths.iter().map(dropped_later).sum();
    if lost > 0 {
        return format!(
            " That is more than 10 %, because packets that are dropped later have already cost \
             {name} time."
        );
    }
    let group = ledger.resources.iter().filter(|resource| resource.group() == name);
    if group.flat_map(|resource| resource.by_stage.values()).filter(|busy| **busy > 0.0).count() > 1
    {
        return format!(
            " That is more than 10 %, because all the time saved on {name} goes to the stage that \
             was short of it."
        );
    }
    " That is more than 10 %: with shorter queues senders lose less and repeat less.".to_owned()
}

/// Whether `other` is in use mostly by waiting, and its own work keeps it no busier than `limit`.
pub(super) fn waits(ledger: &Ledger, other: &str, limit: &str) -> bool {
    let of = |name: &str, share: fn(&lastmeter_ledger::Resource) -> f64| {
        let group = ledger.resources.iter().filter(|resource| resource.group() == name);
        group.map(share).fold(0.0, f64::max)
    };
    let (busy, blocked) = (of(other, |r| r.busy), of(other, |r| r.blocked.unwrap_or(0.0)));
    blocked > busy && busy < of(limit, |r| r.busy)
}

/// The verdict if packets are lost although nothing is busy for long: bursts that overflow a queue, or a lossy
/// network. `None` if nothing is lost.
fn drops(ledger: &Ledger, utilised: &[(String, f64)], best: (&str, f64)) -> Option<Verdict> {
    let stages = ledger.paths.iter().flat_map(|path| &path.stages);
    let lost = stages.flat_map(|stage| stage.drops.iter().map(move |drop| (&stage.name, drop)));
    let mut places: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    lost.for_each(|(stage, (reason, count))| *places.entry((stage, reason)).or_default() += count);
    let ((stage, reason), _) = places.into_iter().max_by_key(|&(_, count)| count)?;
    let (busiest, most_used) = utilised.first().cloned().unwrap_or_default();
    let words = format!(
        "Throughput is lost ({}), most of it at {stage} (`{reason}`), although no resource is in \
         use for more than {}; 10 % more speed of {} brings {} more.",
        percent(ledger.loss()),
        percent(most_used),
        best.0,
        percent(best.1)
    );
    let (confidence, runner_up) = (Confidence::Medium, Some(busiest));
    Some(Verdict { resource: None, utilisation: Some(most_used), confidence, runner_up, words })
}

/// The verdict if throughput depends on speed although nothing is busy: senders wait for responses.
fn round_trips(ledger: &Ledger, utilised: &[(String, f64)], most_used: f64) -> Verdict {
    let mut words = format!(
        "Round trips limit: senders await responses, and no resource is in use for more than {}.",
        percent(most_used)
    );
    if let Some((stage, share)) = slowest_stage(ledger) {
        words += &format!(" Most latency is spent in {stage} ({}).", percent(share));
    }
    Verdict {
        resource: None,
        utilisation: Some(most_used),
        confidence: Confidence::Medium,
        runner_up: utilised.first().map(|(name, _)| name.clone()),
        words,
    }
}

fn undecided(utilised: &[(String, f64)]) -> Verdict {
    let (name, share) = utilised.first().cloned().unwrap_or_default();
    Verdict {
        resource: None,
        utilisation: Some(share),
        confidence: Confidence::Undecided,
        runner_up: Some(name).filter(|name| !name.is_empty()),
        words: "Undecided: throughput can be raised, but by no single resource.".to_owned(),
    }
}

/// The stage in which delivered packets spend most of their time, and its share of the latency.
pub(super) fn slowest_stage(ledger: &Ledger) -> Option<(&str, f64)> {
    let time = |mean: f64, packets: u64| mean * packets as f64;
    let mut times: BTreeMap<&str, f64> = BTreeMap::new();
    for path in &ledger.paths {
        for stage in &path.stages {
            *times.entry(&stage.name).or_default() +=
                time(stage.mean(), path.totals.delivered.packets);
        }
    }
    let total: f64 = times.values().sum();
    let (stage, longest) = times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (total > 0.0).then_some((stage, longest / total))
}

pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 9.95 => format!("{percent:.0} %"),
        percent => format!("{percent:.1} %"),
    }
}
