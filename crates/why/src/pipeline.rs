//! Which stage of a pipeline is the slowest, by who waits for whom.
//!
//! ```text
//! tar --full--> zstd --empty--> ssh        before the slowest, pipes are full; behind it, empty
//! ```

use lastmeter_ledger::Confidence;
use lastmeter_live::observe::Stage;

/// Waiting this share of the time, a stage is held up by its neighbour.
const WAITS: f64 = 0.3;
/// The other end of the pipe waits less than this share of that.
const CLEARLY: f64 = 0.5;

/// What holds a pipeline up.
#[derive(Clone, Debug, PartialEq)]
pub struct Slowest {
    /// Its place among the stages; `None` if nothing is clear.
    pub stage: Option<usize>,
    /// The share of the time in which its neighbours waited for it.
    pub share: f64,
    /// High if every pipe says the same.
    pub confidence: Confidence,
    /// In a sentence.
    pub words: String,
}

/// A pipe between two stages.
#[derive(Clone, Copy, PartialEq)]
enum Pipe {
    /// Its writer waits.
    Full,
    /// Its reader waits.
    Empty,
    /// Both or neither.
    Unclear,
}

/// Finds the slowest of two stages or more.
pub fn judge(stages: &[Stage]) -> Option<Slowest> {
    if stages.len() < 2 {
        return None;
    }
    let pipes: Vec<Pipe> =
        stages.windows(2).map(|pair| pipe(pair[0].blocked, pair[1].starved)).collect();
    let fits = |place: usize| {
        pipes[..place].iter().all(|pipe| *pipe == Pipe::Full)
            && pipes[place..].iter().all(|pipe| *pipe == Pipe::Empty)
    };
    let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
    let all = names.join(" | ");
    let Some(place) = (0..stages.len()).find(|&place| fits(place)) else {
        let words = format!("No stage of {all} clearly waits for another, so none is named.");
        return Some(Slowest { stage: None, share: 0.0, confidence: Confidence::Undecided, words });
    };
    let (slowest, before) = (&stages[place], place.checked_sub(1).map(|at| &stages[at]));
    let after = stages.get(place + 1);
    let share = before.map_or(0.0, |stage| stage.blocked).max(after.map_or(0.0, |s| s.starved));
    let percent = |share: f64| format!("{:.0} % of the time", 100.0 * share);
    let mut words = format!("`{}` is the slowest of {all}: it {}", slowest.name, doing(slowest));
    if let Some(before) = before {
        words += &format!("; `{}` waits for room {}", before.name, percent(before.blocked));
    }
    if let Some(after) = after {
        words += &format!("; `{}` waits for data {}", after.name, percent(after.starved));
    }
    words += &format!(". {}.", advice(slowest));
    Some(Slowest { stage: Some(place), share, confidence: Confidence::High, words })
}

fn pipe(blocked: f64, starved: f64) -> Pipe {
    match (blocked, starved) {
        (blocked, starved) if blocked >= WAITS && starved < CLEARLY * blocked => Pipe::Full,
        (blocked, starved) if starved >= WAITS && blocked < CLEARLY * starved => Pipe::Empty,
        _ => Pipe::Unclear,
    }
}

/// What it did most, besides waiting for its neighbours.
fn most(stage: &Stage) -> (&'static str, f64) {
    let all = [
        ("was on a CPU", stage.run),
        ("waited for a CPU", stage.wait),
        ("slept by its own choice", stage.timer),
        ("waited for a disk", stage.disk),
        ("waited for a socket or for events", stage.socket),
    ];
    let most = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("there are some");
    match most.1 >= WAITS {
        true => most,
        // Such as a shell that waits for its children.
        false => ("waited for something else", 1.0 - stage.starved - stage.blocked),
    }
}

fn doing(stage: &Stage) -> String {
    let (words, share) = most(stage);
    format!("{words} {:.0} % of the time", 100.0 * share)
}

fn advice(stage: &Stage) -> &'static str {
    match most(stage).0 {
        "was on a CPU" => "Give it more threads, or less to do (a lower level of compression)",
        "waited for a CPU" => "Give it a core of its own",
        "slept by its own choice" => "Take its pauses out",
        "waited for a disk" => "Use a faster disk, or read ahead",
        "waited for something else" => "Look at what it starts or waits for",
        _ => "Look at the connection behind it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, starved: f64, blocked: f64) -> Stage {
        let run = (1.0 - starved - blocked).max(0.0);
        let (name, zero) = (name.to_owned(), 0.0);
        Stage {
            name,
            pid: 1,
            starved,
            blocked,
            run,
            wait: zero,
            timer: zero,
            disk: zero,
            socket: zero,
        }
    }

    #[test]
    fn pipes_are_full_before_the_slowest_and_empty_behind_it() {
        let three = [stage("tar", 0.0, 0.9), stage("zstd", 0.0, 0.05), stage("ssh", 0.8, 0.0)];
        let found = judge(&three).unwrap();
        assert_eq!((found.stage, found.confidence), (Some(1), Confidence::High));
        assert!(
            found.words.starts_with("`zstd` is the slowest of tar | zstd | ssh"),
            "{}",
            found.words
        );
        let first = [stage("tar", 0.0, 0.0), stage("zstd", 0.7, 0.0), stage("ssh", 0.9, 0.0)];
        assert_eq!(judge(&first).unwrap().stage, Some(0));
        let last = [stage("tar", 0.0, 0.9), stage("zstd", 0.1, 0.7), stage("ssh", 0.0, 0.0)];
        assert_eq!(judge(&last).unwrap().stage, Some(2));
    }

    #[test]
    fn nothing_is_named_where_the_pipes_disagree() {
        let odd = [stage("a", 0.0, 0.0), stage("b", 0.9, 0.9), stage("c", 0.0, 0.0)];
        assert_eq!(judge(&odd).unwrap().stage, None);
        assert_eq!(judge(&odd[..1]), None);
    }
}
