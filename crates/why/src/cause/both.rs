//! What neither side can see alone.

use super::advice::{self, Advice};
use super::facts::{self, MOST, SOME};
use super::{Cause, DISTURBED, Finding};
use lastmeter_ledger::Confidence;
use lastmeter_live::observe::Witnesses;

/// A side whose process nobody could look at attributes less than this share of its time.
const HIDDEN: f64 = 0.9;
/// A connection that has lasted fewer round trips has no rate yet from which to take the time of its way back.
const TRIPS: f64 = 6.0;
/// A reader that keeps up fills half of its buffer this often at most.
pub(super) const SELDOM: f64 = 0.1;

/// Whether the process at this end could not be looked at: only its socket was.
pub fn is_hidden(w: &Witnesses) -> bool {
    w.not_attributed >= HIDDEN && w.connections > 0
}

fn finding(cause: Cause, share: f64, words: &str, advice: Advice, sure: bool) -> Finding {
    Finding {
        cause: Some(cause),
        share: share.clamp(0.0, 1.0),
        confidence: if sure { Confidence::High } else { Confidence::Medium },
        next: None,
        elsewhere: false,
        words: format!("{words}. {}.", advice.knob()),
        advice: Some(advice),
    }
}

/// A window that holds the sender back, and what its owner's socket says of why.
pub(super) fn buffers(
    out: &Witnesses,
    sender: &Finding,
    back: &Witnesses,
    receiver: &Finding,
) -> Option<Finding> {
    let open = sender.cause.is_none() || sender.cause == Some(Cause::ReceiverSlow);
    if !out.sends || out.window_limited < SOME || !open || receiver.cause.is_some() {
        return None;
    }
    let percent = |share: f64| format!("{:.0} % of the", 100.0 * share);
    let sure = out.wait < DISTURBED && !is_hidden(back);
    if is_hidden(back) && back.unread >= MOST && back.queue_full >= SOME {
        let words = format!(
            "The receiving program does not read fast enough: its window held the data back {} \
             time, data lay unread at its side at {} looks, and its buffer was half full or more \
             at {:.0} % of them; why, only a user who may see its process can tell",
            percent(out.window_limited),
            percent(back.unread),
            100.0 * back.queue_full
        );
        let advice = advice::as_its_user(out);
        return Some(finding(Cause::ReceiverSlow, out.window_limited, &words, advice, false));
    }
    // Its window is all that limits, and nothing lies in it for long.
    let reads = back.queue_full < SELDOM && (is_hidden(back) || facts::in_receive(back) >= MOST);
    let fills = out.window_limited >= MOST && facts::is_window_a_trip(out);
    if sender.cause.is_none() && reads && fills && back.receive_buffer_fixed {
        let words = format!(
            "The receive buffer is too small for a round trip of {:.1} ms: its window held the \
             data back {} time, though the receiving program reads at once",
            1e3 * out.rtt_min,
            percent(out.window_limited)
        );
        let advice = advice::receive_buffer(out);
        return Some(finding(Cause::ReceiveBuffer, out.window_limited, &words, advice, sure));
    }
    None
}

/// What passes the data on between the two ends, and the way back; `clock` is by how much the ends' clocks may be
/// apart.
pub(super) fn path(
    out: &Witnesses,
    sender: &Finding,
    back: &Witnesses,
    receiver: &Finding,
    clock: f64,
) -> Option<Finding> {
    let sure = out.wait < DISTURBED && back.wait < DISTURBED;
    let waits = back.receive + back.poll;
    // A window that is not filled each round trip has an owner who is slow, though it may seem to vary only. One that
    // keeps its size may wait in a full link as well.
    let waits_for_it = out.sends && out.window_limited >= MOST && !facts::is_window_a_trip(out);
    let unfilled = waits_for_it && !facts::is_window_steady(out);
    let slow = match sender.cause {
        None => sender.elsewhere && unfilled,
        cause => cause == Some(Cause::ReceiverSlow),
    };
    // A receiver that takes its buffer for small only sees that little comes; its sender sees the window shut.
    let open = receiver.cause.is_none_or(|cause| cause == Cause::ReceiveBuffer);
    if slow && open && waits >= MOST {
        let words = "The sender's data is not taken while the receiver waits for data: what \
                     passes it on between them is the limit";
        return Some(finding(Cause::Proxy, out.window_limited, words, advice::proxy(out), sure));
    }
    // Bytes that have arrived and are not yet known to: the time that acknowledgements take.
    let ahead = back.at.1 as f64 - out.at.1 as f64 + (out.at.0 - back.at.0) * out.rate / 8.0;
    let way_back = ahead * 8.0 / out.rate.max(1.0);
    let plain = sender.cause.is_none_or(|cause| cause == Cause::LinkRate);
    let queue = out.rtt - out.rtt_min;
    // Otherwise the sender is held back elsewhere, and the round trip is longer for that.
    // A queue on the way there would lose data, and what is lost makes what has arrived uneven.
    let held = out.window_limited >= SOME || out.lost > 0.0 || out.connections > 1;
    let full = facts::queued(out) && out.congestion_filled >= MOST && !held;
    let young = out.seconds < TRIPS * out.rtt;
    if out.sends && plain && full && !young && clock <= queue / 4.0 && way_back >= queue / 2.0 {
        let words = format!(
            "The way back is full: acknowledgements take {:.0} ms of a round trip of {:.0} ms",
            1e3 * way_back,
            1e3 * out.rtt
        );
        return Some(finding(Cause::AckPath, out.busy, &words, advice::ack_path(out), sure));
    }
    None
}
