//! What limited a transfer, as the ledger's verdict.

use super::own::{RECEIVER_CORE, SENDER_CORE, SHARED_CORE};
use lastmeter_ledger::{Confidence, Verdict};
use lastmeter_live::limit::{self, Limit, Limited};
use lastmeter_live::transfer::{Measurement, Placement};

/// Lead over the runner-up, as a share of the time, for high confidence.
const SURE: f64 = 0.4;
/// And from which the confidence is medium.
const LIKELY: f64 = 0.2;

/// A verdict on a transfer of our own.
pub fn of(m: &Measurement) -> Verdict {
    let limited: Limited = limit::of(m);
    let name = |limit| resource(limit, m.setting.placement);
    let named = name(limited.by);
    let confidence = match limited.by {
        Limit::Undecided => Confidence::Undecided,
        _ if limited.lead >= SURE => Confidence::High,
        _ if limited.lead >= LIKELY => Confidence::Medium,
        _ => Confidence::Low,
    };
    let runner_up = limited.runner_up.filter(|(_, fraction)| *fraction > 0.0);
    Verdict {
        resource: named.map(str::to_owned),
        utilisation: named.map(|_| limited.fraction),
        confidence,
        runner_up: runner_up.and_then(|(limit, _)| name(limit)).map(str::to_owned),
        words: limited.words.clone(),
    }
}

/// The ledger's name for a limit; `None` where no resource is the limit.
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
        // Waiting that no resource causes, or no result.
        _ => None,
    }
}
