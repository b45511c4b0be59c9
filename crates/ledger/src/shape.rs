//! What every picture of a ledger needs to know first: hosts, hops, ranks, what to fold.

use crate::{Ledger, Path, Resource, Stage, Verdict, WhatIf};
use std::ops::Range;

/// Stages of a path that follow each other on one resource: one box of its drawing.
pub(super) struct Hop<'a> {
    /// The host that it is in: what stands before the first dot of the resource's name. `None` on
    /// the wire, and where names have no dot.
    pub host: Option<&'a str>,
    /// The name without the host.
    pub name: &'a str,
    /// The resource that serves it; `None` for pure delay.
    pub resource: Option<&'a Resource>,
    /// The full name of that resource, which the ledger should list but may not.
    pub full_name: &'a str,
    /// Which stages of the path.
    pub stages: Range<usize>,
    /// Mean seconds over these stages.
    pub mean: f64,
    /// How much of that is pure delay: of a link, the propagation.
    pub delay: f64,
}

impl Hop<'_> {
    /// Whether it leads from host to host.
    pub(super) fn is_link(&self) -> bool {
        self.resource.map_or(self.host.is_none(), |resource| resource.kind == "wire")
    }
}

/// The boxes of a path's drawing, in path order.
pub(super) fn hops<'a>(ledger: &'a Ledger, path: &'a Path) -> Vec<Hop<'a>> {
    let mut hops: Vec<Hop<'a>> = Vec::new();
    for (place, stage) in path.stages.iter().enumerate() {
        // Nothing of a delivered packet's way goes through a stage that passed none.
        if stage.packets == 0 && path.totals.delivered.packets > 0 {
            continue;
        }
        let next = hop(ledger, stage, place);
        let follows = |last: &Hop<'_>| match next.resource {
            Some(_) => last.resource.is_some() && last.full_name == next.full_name,
            // A signal's way along a wire belongs to the wire.
            None => last.is_link() && next.is_link(),
        };
        let joins = hops.last().is_some_and(follows);
        match hops.last_mut().filter(|_| joins) {
            Some(hop) => {
                hop.stages.end = place + 1;
                hop.mean += next.mean;
                hop.delay += next.delay;
            }
            None => hops.push(next),
        }
    }
    hops
}

fn hop<'a>(ledger: &'a Ledger, stage: &'a Stage, place: usize) -> Hop<'a> {
    let full_name = stage.resource.as_deref().unwrap_or(&stage.name);
    let resource = ledger.resources.iter().find(|r| Some(&r.name) == stage.resource.as_ref());
    let (host, name) = split(full_name);
    let on_wire = resource.is_some_and(|resource| resource.kind == "wire");
    // A delay belongs to a host only where something else of that host is a resource.
    let known = |host: &&str| ledger.resources.iter().any(|r| split(&r.name).0 == Some(host));
    let host = host.filter(|_| !on_wire).filter(|host| stage.resource.is_some() || known(host));
    let name = if host.is_some() { name } else { full_name };
    let mean = stage.mean();
    let delay = if stage.resource.is_none() { mean } else { 0.0 };
    Hop { host, name, resource, full_name, stages: place..place + 1, mean, delay }
}

/// The host of a name, and the rest: `bob.cpu` is the `cpu` of `bob`.
pub(super) fn split(name: &str) -> (Option<&str>, &str) {
    match name.split_once('.') {
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => (Some(host), rest),
        _ => (None, name),
    }
}

/// The resource that the verdict names.
pub(super) fn limiting(ledger: &Ledger) -> Option<&str> {
    ledger.verdict.as_ref()?.resource.as_deref()
}

/// Whether it is of a real run, which draws no random numbers and balances within its noise.
pub(super) fn is_live(ledger: &Ledger) -> bool {
    matches!(ledger.provenance.level.as_str(), "L0" | "L1" | "L2")
}

/// Share of the time for which a resource could not take more: it served, or was held up.
pub(super) fn utilisation(resource: &Resource) -> f64 {
    resource.busy + resource.blocked
}

/// The resources, most used first; the limiting one first of all.
pub(super) fn by_use(ledger: &Ledger) -> Vec<&Resource> {
    let limiting = limiting(ledger);
    let mut resources: Vec<&Resource> = ledger.resources.iter().collect();
    resources.sort_by(|a, b| {
        let other = |r: &Resource| Some(r.name.as_str()) != limiting;
        let by_utilisation = utilisation(b).total_cmp(&utilisation(a));
        other(a).cmp(&other(b)).then(by_utilisation).then_with(|| a.name.cmp(&b.name))
    });
    resources
}

/// The stages that a resource serves, most time first.
pub(super) fn busy_stages(resource: &Resource) -> Vec<(&str, f64)> {
    let by_stage = resource.by_stage.iter().filter(|(_, busy)| **busy > 0.0);
    let mut stages: Vec<(&str, f64)> =
        by_stage.map(|(name, &busy)| (name.as_str(), busy)).collect();
    stages.sort_by(|a, b| b.1.total_cmp(&a.1));
    stages
}

/// The what-ifs, best first.
pub(super) fn ranked(ledger: &Ledger) -> Vec<&WhatIf> {
    let mut what_ifs: Vec<&WhatIf> = ledger.what_ifs.iter().collect();
    what_ifs.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    what_ifs
}

/// The numbers of the paths, in the order in which they deserve attention: those through the
/// limiting resource first, then those that carry most.
pub(super) fn paths_by_weight(ledger: &Ledger) -> Vec<usize> {
    let limiting = limiting(ledger);
    let through = |path: &Path| {
        limiting.is_some() && path.stages.iter().any(|s| s.resource.as_deref() == limiting)
    };
    let mut order: Vec<usize> = (0..ledger.paths.len()).collect();
    order.sort_by_key(|&place| {
        let path = &ledger.paths[place];
        (!through(path), std::cmp::Reverse(path.totals.delivered.bytes), place)
    });
    order
}

/// The verdict as a sentence, also where the ledger has none.
pub(super) fn sentence(ledger: &Ledger) -> String {
    match &ledger.verdict {
        Some(Verdict { words, .. }) if !words.trim().is_empty() => words.trim().to_owned(),
        Some(Verdict { resource: Some(name), utilisation, .. }) => {
            format!("{name} limits: in use {} of the time.", super::figures::share(*utilisation))
        }
        Some(_) => "The data do not decide what limits.".to_owned(),
        None if ledger.paths.iter().all(|path| path.totals.offered.packets == 0) => {
            "Nothing was offered, so nothing limits.".to_owned()
        }
        None => "This ledger has no verdict.".to_owned(),
    }
}

/// Which part of a stage's time varies most: its name, where it begins within the stage (seconds),
/// and its 99th percentile.
pub(super) fn widest(stage: &Stage) -> (&'static str, f64, f64) {
    let (wait, service, blocked) = (&stage.wait, &stage.service, &stage.blocked);
    let parts = [
        ("wait", 0.0, wait),
        ("service", wait.mean, service),
        ("blocked", wait.mean + service.mean, blocked),
    ];
    let mut widest = parts[0];
    for part in parts {
        if part.2.p99 - part.2.mean > widest.2.p99 - widest.2.mean {
            widest = part;
        }
    }
    (widest.0, widest.1, widest.2.p99)
}

/// Packets that a stage dropped, for any reason.
pub(super) fn dropped(stage: &Stage) -> u64 {
    stage.drops.values().sum()
}

/// A line of a folded list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// This entry.
    Shown(usize),
    /// These entries, together.
    Folded(Range<usize>),
}

/// Keeps the `most` entries of greatest weight, in their order, and folds what lies between.
pub(super) fn fold(weights: &[f64], most: usize) -> Vec<Line> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
    let mut shown = vec![false; weights.len()];
    order.iter().take(most).for_each(|&place| shown[place] = true);
    let mut lines = Vec::new();
    let mut place = 0;
    while place < weights.len() {
        let end = (place..weights.len()).find(|&p| shown[p]).unwrap_or(weights.len());
        // A fold of one line would save nothing.
        match end - place {
            0 => {
                lines.push(Line::Shown(place));
                place += 1;
            }
            1 => {
                lines.push(Line::Shown(place));
                place = end;
            }
            _ => {
                lines.push(Line::Folded(place..end));
                place = end;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fold_keeps_the_heavy_ones_in_their_order() {
        let lines = fold(&[5.0, 1.0, 1.0, 9.0, 1.0, 7.0], 3);
        let (shown, folded) = (Line::Shown, Line::Folded(1..3));
        assert_eq!(lines, [shown(0), folded, shown(3), shown(4), shown(5)]);
        assert_eq!(fold(&[], 3), []);
    }

    #[test]
    fn a_name_without_a_dot_has_no_host() {
        assert_eq!(split("bob.cpu"), (Some("bob"), "cpu"));
        assert_eq!(split("bob.nic.dma"), (Some("bob"), "nic.dma"));
        assert_eq!(split("server"), (None, "server"));
        assert_eq!(split(".x"), (None, ".x"));
    }
}
