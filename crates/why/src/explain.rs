//! How each figure of the output was measured, by name.

use super::own::{ASLEEP, RECEIVER_CORE, SENDER_CORE, SHARED_CORE, SOCKETS};
use lastmeter_lab::document::nearest;
use lastmeter_live::stages::{self, Stage};

/// Figures that need no run to be explained.
const FIGURES: [(&str, &str); 15] = [
    (
        "goodput",
        "bytes through the receiver's socket over time, in 25 windows of the measured part; the \
         median of those windows in which other programs took less than 3 % of the CPU",
    ),
    (
        "latency",
        "for request/response, from request to answer by the sender's own clock; for streams, the \
         CPU time of both ends per message in the whole run (the scheduler's own count), plus what \
         the ends' waits for their CPUs, sleep in `send`, and time queued in the sockets",
    ),
    (SOCKETS, "mean bytes not sent and in flight (`TCP_INFO`) over goodput: Little's law"),
    (ASLEEP, "time of a round trip in which neither end ran or waited for a CPU"),
    (SENDER_CORE, "the scheduler's count of the sending threads' time on and waiting for a CPU"),
    (
        RECEIVER_CORE,
        "the scheduler's count of the receiving threads' time on and waiting for a CPU",
    ),
    (SHARED_CORE, "the same for all threads of both ends, which run on one core"),
    (
        "wait",
        "seconds that a thread was ready while something else ran (/proc/thread-self/schedstat), \
         per message; for the sockets see `queued in sockets`",
    ),
    ("blocked", "seconds asleep in `send`, per message: neither running, ready, nor pausing"),
    (
        "waits",
        "by the kernel's tracepoints, in a look of 0.3 s at a transfer of its own for that: from \
         wake-up to switch, from `softirq_raise` to `softirq_entry`, from `net_dev_queue` to \
         `net_dev_start_xmit`, from `netif_rx` to `netif_receive_skb`, and from there to the \
         reader's copy. Recording makes what is looked at slower",
    ),
    (
        "residual",
        "the latency of the whole run less the sum of the stages, which were measured in runs of \
         their own",
    ),
    (
        "verdict",
        "an end that is never blocked limits, and its largest part says why; while both are \
         blocked, the sender's TCP says what stood between them. Without a lead of a tenth over \
         the next candidate the verdict is undecided",
    ),
    (
        "what-ifs",
        "the model's ratio of changed to unchanged, times what was measured; the model knows only \
         this host's calibrated constants. Error: predicted over measured, less one",
    ),
    (
        "confidence",
        "the share of the time by which the limit leads the next candidate, less what other \
         programs disturbed: high from 40 %, medium from 20 %",
    ),
    ("others", "time that CPUs were neither idle nor ours (/proc/stat)"),
];

/// What can be explained, or a figure's explanation.
pub enum Explained {
    /// Known without measuring.
    Figure(&'static str),
    /// A stage, whose cost has to be measured first.
    Stage(&'static str),
}

/// Finds what is meant by `name`.
///
/// # Errors
/// Says what can be explained.
pub fn find(name: &str) -> Result<Explained, String> {
    let wanted = name.trim();
    if let Some(stage) = stages::NAMES.into_iter().find(|stage| *stage == wanted) {
        return Ok(Explained::Stage(stage));
    }
    if let Some((_, words)) = FIGURES.into_iter().find(|(figure, _)| *figure == wanted) {
        return Ok(Explained::Figure(words));
    }
    let known = || stages::NAMES.into_iter().chain(FIGURES.into_iter().map(|(name, _)| name));
    // An unambiguous prefix is enough.
    let begun: Vec<&str> = known().filter(|name| name.starts_with(wanted)).collect();
    if let ([one], false) = (begun.as_slice(), wanted.is_empty()) {
        return find(one);
    }
    let hint = nearest(wanted, known()).map(|near| format!("did you mean `{near}`? "));
    let all: Vec<&str> = known().collect();
    Err(format!(
        "there is no stage or figure `{name}`: {}they are {}",
        hint.unwrap_or_default(),
        all.join("; ")
    ))
}

/// A stage's cost and how it was measured, or why there is none.
pub fn stage(name: &str, found: &stages::Stages) -> String {
    match found.stages.iter().find(|stage| stage.name == name) {
        Some(stage) => words(stage),
        None => {
            let why = found.notes.iter().find(|note| note.starts_with(name));
            let why = why.map_or("not part of this transfer", String::as_str);
            format!("`{name}`: {why}.")
        }
    }
}

fn words(stage: &Stage) -> String {
    stages::explain(stage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_and_an_unknown_one_gets_suggestions() {
        assert!(matches!(find("copy out"), Ok(Explained::Stage("copy out"))));
        assert!(matches!(find("good"), Ok(Explained::Figure(_))));
        let Err(error) = find("copy ouch") else { panic!("found") };
        assert!(error.contains("did you mean `copy out`?"), "{error}");
    }
}
