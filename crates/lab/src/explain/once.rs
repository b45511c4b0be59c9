//! The verdict on a single run: what is busiest, and what would decide whether it limits.

use super::verdict::{BUSY_MIN, by_utilisation, percent, slowest_stage};
use crate::livelock::livelock;
use lastmeter_ledger::{Confidence, Ledger, Verdict};

/// What decides the question that a single run leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decides {
    /// The same model again with changes.
    WhatIfs,
    /// Another live run with changes: nobody can repeat what programs did.
    Live,
}

/// The verdict on a run that was not repeated with changes. `None` if nothing was offered.
///
/// Utilisation alone names no limit: something busy may keep up, and something idle may be what all wait for. So this
/// names the busiest resource, and what would decide. Only livelock is certain from one run.
pub fn once(ledger: &Ledger, decides: Decides) -> Option<Verdict> {
    let offered: u64 = ledger.paths.iter().map(|path| path.totals.offered_packets()).sum();
    if offered == 0 {
        return None;
    }
    if let Some(livelock) = livelock(ledger) {
        return Some(livelock);
    }
    let utilised = by_utilisation(ledger);
    let busiest = utilised.first().filter(|(_, share)| *share > 0.0);
    let most = busiest.map_or(0.0, |&(_, share)| share);
    let loss = ledger.loss();
    let idle = most < BUSY_MIN && loss <= 0.0;
    let mut words = match busiest {
        None => "No resource was in use".to_owned(),
        Some((name, share)) if idle && decides == Decides::Live => format!(
            "Nothing in the modelled network limits: nothing was lost, and its busiest resource, \
             {name}, was in use for {} of the time",
            percent(*share)
        ),
        Some((name, share)) => {
            format!("{name} is busiest: in use for {} of the time", percent(*share))
        }
    };
    if let Some((name, share)) = utilised.get(1).filter(|(_, share)| *share >= BUSY_MIN) {
        words += &format!(", then {name} ({})", percent(*share));
    }
    if loss > 0.0 {
        words += &format!("; {} of the packets were lost", percent(loss));
    }
    words += ".";
    if let Some((stage, share)) = slowest_stage(ledger).filter(|_| idle) {
        words += &format!(" Most latency is spent in {stage} ({}).", percent(share));
    }
    words += match (decides, idle) {
        (Decides::WhatIfs, _) => {
            " Whether it limits is decided by what-ifs, which this run left out: run it without \
             --quick and --no-what-ifs."
        }
        (Decides::Live, true) => {
            " What limits the programs is in themselves, their hosts, or the round trip."
        }
        (Decides::Live, false) => {
            " Whether it limits is decided by another run in which it is faster, with --set."
        }
    };
    let nothing = idle && decides == Decides::Live;
    Some(Verdict {
        resource: None,
        utilisation: busiest.map(|&(_, share)| share),
        confidence: if nothing { Confidence::Medium } else { Confidence::Undecided },
        runner_up: busiest.map(|(name, _)| name.clone()),
        words,
    })
}
