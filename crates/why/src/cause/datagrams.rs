//! What limits datagrams: nothing tells a sender of UDP that the other end or the path is slower.

use super::Cause;
use super::advice::{self, Advice};
use super::facts::*;
use super::rows::{Row, percent};
use lastmeter_ledger::figures::rate as in_words;
use lastmeter_live::observe::Witnesses;

/// Datagrams for each call from which a program is said to send or receive several at once.
const SEVERAL: f64 = 1.5;

pub(super) const LINK: Row = Row {
    cause: Cause::LinkRate,
    needs: &[SENDS_DATAGRAMS, OUT_FULL],
    refuted_by: &[ON_CPU, TIMER, OWN_DROPS],
    share: |w| w.udp.blocked.max(w.send),
    words: |w| {
        let rate = in_words(8.0 * w.datagrams.1 * w.udp.bytes.1);
        format!(
            "A link or queueing discipline of this host is full at {rate}: {:.0} packets were \
             dropped there, and the program waited {} for room",
            w.dropped as f64,
            percent(w.send)
        )
    },
    advice: advice::slower,
};

pub(super) const SENDER_COMPUTES: Row = Row {
    cause: Cause::SenderComputes,
    needs: &[SENDS_DATAGRAMS, ON_CPU, COMPUTING],
    refuted_by: &[WAITED, QUOTA, OWN_DROPS, TIMER, NAMES],
    share: |w| w.run,
    words: |w| {
        format!(
            "The program that sends the datagrams computed: its thread ran {}, {:.0} % of that in \
             user mode",
            percent(w.run),
            100.0 * w.user.unwrap_or(0.0)
        )
    },
    advice: advice::profile_datagrams,
};

pub(super) const SENDER_CPU: Row = Row {
    cause: Cause::SenderCpu,
    needs: &[SENDS_DATAGRAMS, ON_CPU, MOVING],
    refuted_by: &[WAITED, QUOTA, OWN_DROPS, TIMER, NAMES],
    share: |w| w.run,
    words: |w| format!("The sender's CPU was busy sending datagrams {}", percent(w.run)),
    advice: batches,
};

pub(super) const RECEIVER_COMPUTES: Row = Row {
    cause: Cause::ReceiverComputes,
    needs: &[GETS_DATAGRAMS, ON_CPU, COMPUTING],
    refuted_by: &[WAITED, QUOTA, OVERFLOW, OWN_DROPS, TIMER, NAMES],
    share: |w| w.run,
    words: |w| {
        format!(
            "The program that receives the datagrams computed: its thread ran {}, {:.0} % of that \
             in user mode",
            percent(w.run),
            100.0 * w.user.unwrap_or(0.0)
        )
    },
    advice: advice::profile_datagrams,
};

pub(super) const RECEIVER_CPU: Row = Row {
    cause: Cause::ReceiverCpu,
    needs: &[GETS_DATAGRAMS, ON_CPU, MOVING],
    refuted_by: &[WAITED, QUOTA, OVERFLOW, OWN_DROPS, TIMER, NAMES],
    share: |w| w.run,
    words: |w| format!("The receiver's CPU was busy receiving datagrams {}", percent(w.run)),
    advice: batches,
};

/// Fewer calls, where each moves one datagram.
fn batches(w: &Witnesses) -> Advice {
    let each = w.udp.per_call.map(|(receive, send)| match w.datagrams.1 > w.datagrams.0 {
        true => send,
        false => receive,
    });
    advice::batches(each.is_some_and(|each| each >= SEVERAL))
}

/// What is to be said of datagrams where nothing holds: whether what limits is elsewhere, and the words.
pub(super) fn open(w: &Witnesses) -> (bool, String) {
    let (arrived, left) = w.datagrams;
    let waited = w.poll + w.receive;
    let inside = match w.udp.quic {
        true => {
            "QUIC's congestion control, pacing and windows are inside the program, and the kernel \
                 knows nothing of them; ask the program (qlog)"
        }
        false => {
            "what it waits for (its pacing, replies, its own congestion control) is inside the \
                  program"
        }
    };
    if left > arrived && waited >= MOST {
        let share = percent(waited);
        return (
            false,
            format!("The program sends {left:.0} datagrams a second and waited {share}: {inside}."),
        );
    }
    let words = format!(
        "{arrived:.0} datagrams arrived and {left:.0} left each second; none was dropped at this \
         host's buffers, so what limits them lies elsewhere."
    );
    let quic = if w.udp.quic { format!(" Of a QUIC sender: {inside}.") } else { String::new() };
    (true, words + &quic)
}
