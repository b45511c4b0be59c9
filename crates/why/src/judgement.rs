//! The measuring side's verdict in the ledger's terms.

use super::own::{RECEIVER_CORE, SENDER_CORE, SHARED_CORE};
use lastmeter_ledger::{Confidence, Verdict};
use lastmeter_live::transfer::Placement;
use lastmeter_live::verdict::{self as live, Limit};

/// A lead over the runner-up, as a share of the time, from which a verdict is sure.
const SURE: f64 = 0.4;
/// And from which it is more than a hint.
const LIKELY: f64 = 0.2;

/// A verdict on a transfer of our own.
pub fn of(verdict: &live::Verdict, placement: Placement) -> Verdict {
    judged(verdict, |limit| resource(limit, placement))
}

/// A verdict whose limits are called by `name`.
pub(super) fn judged(
    verdict: &live::Verdict,
    name: impl Fn(Limit) -> Option<&'static str>,
) -> Verdict {
    let named = name(verdict.limit);
    let confidence = match verdict.limit {
        Limit::Undecided => Confidence::Undecided,
        _ if verdict.confidence >= SURE => Confidence::High,
        _ if verdict.confidence >= LIKELY => Confidence::Medium,
        _ => Confidence::Low,
    };
    let runner_up = verdict.runner_up.filter(|(_, fraction)| *fraction > 0.0);
    Verdict {
        resource: named.map(str::to_owned),
        utilisation: named.map(|_| verdict.fraction),
        confidence,
        runner_up: runner_up.and_then(|(limit, _)| name(limit)).map(str::to_owned),
        words: verdict.words.clone(),
    }
}

/// What the ledger calls a limit; nothing where no resource is one.
fn resource(limit: Limit, placement: Placement) -> Option<&'static str> {
    match limit {
        Limit::SenderApplication => Some("sending application"),
        Limit::SendBuffer => Some("send buffer"),
        Limit::Network(_) => Some("network"),
        Limit::ReceiverWindow => Some("receiver's window"),
        Limit::ReceiverApplication => Some("receiving application"),
        Limit::SenderCpu => Some(SENDER_CORE),
        Limit::ReceiverCpu => Some(RECEIVER_CORE),
        Limit::SharedCpu if placement == Placement::SameCore => Some(SHARED_CORE),
        Limit::SharedCpu => Some("a core that others use"),
        // Time that no resource takes, or nothing known.
        _ => None,
    }
}
