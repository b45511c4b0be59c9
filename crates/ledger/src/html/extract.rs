//! The part of a very large ledger that its page shows.

use super::text::escape;
use crate::{Ledger, Path};
use crate::{figures, shape};

/// Most stages, all paths together; browsers slow down beyond.
const STAGES_MAX: usize = 2500;
/// Most resources, the most used first.
const RESOURCES_MAX: usize = 1000;

/// The part of a ledger that a page shows, or `None` if it shows all of it.
pub(super) fn of(ledger: &Ledger) -> Option<Ledger> {
    let stages: usize = ledger.paths.iter().map(|path| path.stages.len()).sum();
    if stages <= STAGES_MAX && ledger.resources.len() <= RESOURCES_MAX {
        return None;
    }
    let mut room = STAGES_MAX;
    let mut kept = vec![false; ledger.paths.len()];
    for place in shape::paths_by_weight(ledger) {
        let Some(left) = room.checked_sub(ledger.paths[place].stages.len().max(1)) else { break };
        (room, kept[place]) = (left, true);
    }
    let paths = ledger.paths.iter().zip(&kept);
    let resources = shape::by_use(ledger).into_iter().take(RESOURCES_MAX).cloned();
    Some(Ledger {
        schema: ledger.schema.clone(),
        title: ledger.title.clone(),
        duration: ledger.duration,
        warm_up: ledger.warm_up,
        paths: paths.filter(|(_, kept)| **kept).map(|(path, _)| path.clone()).collect(),
        resources: resources.collect(),
        verdict: ledger.verdict.clone(),
        what_ifs: ledger.what_ifs.clone(),
        balance: ledger.balance,
        certificate: ledger.certificate.clone(),
        provenance: ledger.provenance.clone(),
        notes: ledger.notes.clone(),
        series: ledger.series.clone(),
        levels: ledger.levels.clone(),
        estimates: ledger.estimates.clone(),
        counters: ledger.counters.clone(),
        transfers: ledger.transfers.clone(),
        connection: ledger.connection.clone(),
        waits: ledger.waits.clone(),
    })
}

/// What the page leaves out, and where it is.
pub(super) fn say(extract: &Ledger, ledger: &Ledger, out: &mut String) {
    let goodput = |paths: &[Path]| paths.iter().map(|path| path.totals.goodput).sum::<f64>();
    let mut words = Vec::new();
    let more = ledger.paths.len() - extract.paths.len();
    if more > 0 {
        let left = figures::rate(goodput(&ledger.paths) - goodput(&extract.paths));
        let (shown, all) = (extract.paths.len(), ledger.paths.len());
        words.push(format!(
            "{shown} of {all} paths, those through the limiting resource first, then those that \
             carry most ({more} others carry {left} together)"
        ));
    }
    let (shown, all) = (extract.resources.len(), ledger.resources.len());
    if shown < all {
        words.push(format!("{shown} of {all} resources, the most used first"));
    }
    let words = escape(&words.join("; "));
    out.push_str(&format!(
        "<p class=\"warn\">This page has {words}. All are in ledger.json and in the Parquet \
         tables.</p>\n"
    ));
}
