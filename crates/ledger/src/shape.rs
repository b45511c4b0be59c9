//! What every picture of a ledger needs: hosts, hops, ranks, what to fold.

use crate::{Ledger, Path, Resource, Stage, Times, Verdict, WhatIf};
use std::ops::Range;

/// Consecutive stages of a path on one resource: one box of its drawing.
pub(super) struct Hop<'a> {
    /// The host that it is in; `None` on the wire.
    pub host: Option<&'a str>,
    /// The name without the host.
    pub name: &'a str,
    /// The resource that serves it; `None` for pure delay.
    pub resource: Option<&'a Resource>,
    /// The full name of that resource; the ledger may not list it.
    pub full_name: &'a str,
    /// Which stages of the path.
    pub stages: Range<usize>,
    /// Mean seconds over these stages.
    pub mean: f64,
    /// How much of that is pure delay: of a link, the propagation.
    pub delay: f64,
}

impl Hop<'_> {
    /// Whether it is a link between hosts.
    pub(super) fn is_link(&self) -> bool {
        self.resource.map_or(self.host.is_none(), |resource| resource.kind == "wire")
    }
}

/// The boxes of a path's drawing, in path order.
pub(super) fn hops<'a>(ledger: &'a Ledger, path: &'a Path) -> Vec<Hop<'a>> {
    let mut hops: Vec<Hop<'a>> = Vec::new();
    for (place, stage) in path.stages.iter().enumerate() {
        // A stage that passed no delivered packet is not part of their path.
        if stage.packets == 0 && path.totals.delivered.packets > 0 {
            continue;
        }
        let next = hop(ledger, stage, place);
        let follows = |last: &Hop<'_>| match next.resource {
            Some(_) => last.resource.is_some() && last.full_name == next.full_name,
            // Propagation belongs to the wire.
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
    let on_wire = resource.is_some_and(|resource| resource.kind == "wire");
    let stands = resource.map_or(&stage.place, |resource| &resource.place);
    let host = stands.host.as_deref().filter(|_| !on_wire);
    let name = within(host, full_name);
    let mean = stage.mean();
    let delay = if stage.resource.is_none() { mean } else { 0.0 };
    Hop { host, name, resource, full_name, stages: place..place + 1, mean, delay }
}

/// A name without the host that it is shown in: within `bob`, `bob.cpu` is the `cpu`.
pub(super) fn within<'a>(host: Option<&str>, name: &'a str) -> &'a str {
    let rest = host.and_then(|host| name.strip_prefix(host)?.strip_prefix('.'));
    rest.filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// The resource that the verdict names.
pub(super) fn limiting(ledger: &Ledger) -> Option<&str> {
    ledger.verdict.as_ref()?.resource.as_deref()
}

/// Whether it is of a live run, which draws no random numbers and balances within its noise.
pub(super) fn is_live(ledger: &Ledger) -> bool {
    matches!(ledger.provenance.level.as_str(), "L0" | "L1" | "L2")
}

/// The resources, most used first; the limiting one first of all.
pub(super) fn by_use(ledger: &Ledger) -> Vec<&Resource> {
    let limiting = limiting(ledger);
    let mut resources: Vec<&Resource> = ledger.resources.iter().collect();
    resources.sort_by(|a, b| {
        let other = |r: &Resource| Some(r.name.as_str()) != limiting;
        let by_utilisation = b.utilisation().total_cmp(&a.utilisation());
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
    let share = |one: &WhatIf| one.share.unwrap_or(1.0);
    let better =
        |a: &&WhatIf, b: &&WhatIf| share(b).total_cmp(&share(a)).then(b.gain.total_cmp(&a.gain));
    what_ifs.sort_by(better);
    what_ifs
}

/// Indices of the paths, most important first: those through the limiting resource, then those that carry most.
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

/// The verdict as a sentence, even if the ledger has none.
pub(super) fn sentence(ledger: &Ledger) -> String {
    match &ledger.verdict {
        Some(Verdict { words, .. }) if !words.trim().is_empty() => words.trim().to_owned(),
        Some(Verdict { resource: Some(name), utilisation: Some(used), .. }) => {
            format!("{name} limits: in use {} of the time.", super::figures::share(*used))
        }
        Some(Verdict { resource: Some(name), .. }) => format!("{name} limits."),
        Some(_) => "The data are inconclusive: no limit is named.".to_owned(),
        None if ledger.paths.iter().all(|path| path.totals.offered_packets() == 0) => {
            "Nothing was offered, so there is no limit.".to_owned()
        }
        None => "This ledger has no verdict.".to_owned(),
    }
}

/// Which part of a stage's time varies most: its name, where it begins within the stage (seconds),
/// and its 99th percentile, where it is known.
pub(super) fn widest(stage: &Stage) -> (&'static str, f64, Option<f64>) {
    let [wait, service, blocked] =
        [stage.wait, stage.service, stage.blocked].map(Option::unwrap_or_default);
    let parts = [
        ("wait", 0.0, wait),
        ("service", wait.mean, service),
        ("blocked", wait.mean + service.mean, blocked),
    ];
    let spread = |times: Times| times.p99.unwrap_or(0.0) - times.mean;
    let mut widest = parts[0];
    for part in parts {
        if spread(part.2) > spread(widest.2) {
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

/// Keeps the `most` entries of greatest weight, in their order, and folds those between them.
pub(super) fn fold(weights: &[f64], most: usize) -> Vec<Line> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
    let mut shown = vec![false; weights.len()];
    order.iter().take(most).for_each(|&place| shown[place] = true);
    let mut lines = Vec::new();
    let mut place = 0;
    while place < weights.len() {
        let end = (place..weights.len()).find(|&p| shown[p]).unwrap_or(weights.len());
        // Folding a single line would save nothing.
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
    fn folding_keeps_the_heaviest_in_order() {
        let lines = fold(&[5.0, 1.0, 1.0, 9.0, 1.0, 7.0], 3);
        let (shown, folded) = (Line::Shown, Line::Folded(1..3));
        assert_eq!(lines, [shown(0), folded, shown(3), shown(4), shown(5)]);
        assert_eq!(fold(&[], 3), []);
    }

    #[test]
    fn a_name_is_shown_without_its_host() {
        assert_eq!(within(Some("bob"), "bob.nic.dma"), "nic.dma");
        assert_eq!(within(Some("b"), "bob.cpu"), "bob.cpu");
        assert_eq!(within(Some("s.3"), "s.3.cpu"), "cpu");
        assert_eq!(within(None, "bob.cpu"), "bob.cpu");
    }
}
