//! Bottlenecks made on purpose between two hosts of our own, and whether the verdicts name them.
//!
//! Every case is a transfer with one thing wrong, at three severities, looked at from the sender, from the
//! receiver and from both, as any other program would be; and from both by a user who may not see the receiver's
//! process, only its socket, as an agent of `why --to` may be. What cannot be seen from a side should be left open
//! there: a verdict that names nothing, but says that the fault lies elsewhere where it does, is counted apart from
//! those that are undecided.

mod cases;
pub mod prove;
mod what_ifs;

use crate::cause::{self, Cause, Finding};
pub use cases::CASES;
use lastmeter_ledger::Confidence;
use lastmeter_live::observe::Witnesses;
use lastmeter_live::staged::{End, Play, Running};
use serde::Serialize;

/// How bad, from 1 to this.
pub const SEVERITIES: u32 = 3;

/// A bottleneck.
pub struct Case {
    /// For `--case`.
    pub name: &'static str,
    /// What is wrong.
    pub truth: Cause,
    /// What may be said instead from the sender's side, and where only the receiver's socket is seen.
    pub from_sender: Option<Cause>,
    play: fn(u32) -> Play,
}

/// Whether a verdict is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Score {
    /// It names the truth.
    Right,
    /// It names nothing, and says that the fault is not at its side, which is so.
    Elsewhere,
    /// It names nothing.
    Undecided,
    /// It names something else.
    Wrong,
}

/// One verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name, with `@load` where other programs kept every core busy.
    pub case: String,
    /// `sender`, `receiver`, `both`; `socket` is both without the receiver's process.
    pub side: &'static str,
    /// From 1.
    pub severity: u32,
    /// What was made.
    pub truth: Cause,
    /// What the verdict says.
    pub said: Option<Cause>,
    /// What it advises.
    pub knob: Option<String>,
    /// How sure it is.
    pub confidence: Confidence,
    /// Whether it is right.
    pub score: Score,
    /// The whole sentence.
    pub words: String,
    /// What was read, where one side judges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub witnesses: Option<Witnesses>,
}

/// Makes the bottleneck and judges it from all sides; with `load`, while other programs keep every core
/// busy.
///
/// # Errors
/// A path needs network namespaces, which may be forbidden, and a quota a control group.
pub fn run(case: &Case, severity: u32, load: bool) -> lastmeter_linux::Result<Vec<Line>> {
    let play = Play { load, ..(case.play)(severity) };
    let witnesses = Running::start(&play)?.look()?.map(|end| end.witnesses);
    let [sender, receiver] =
        [0, 1].map(|end| witnesses[end].as_ref().map_or_else(cause::unseen, cause::judge));
    let both =
        cause::joined((witnesses[0].as_ref(), &sender), (witnesses[1].as_ref(), &receiver), 0.0);
    let hidden = witnesses[1].as_ref().map(Witnesses::of_the_socket);
    let alone = hidden.as_ref().map_or_else(cause::unseen, cause::judge);
    let socket = cause::joined((witnesses[0].as_ref(), &sender), (hidden.as_ref(), &alone), 0.0);
    let [out, back] = witnesses;
    let sides = [
        ("sender", sender, out),
        ("receiver", receiver, back),
        ("both", both, None),
        ("socket", socket, None),
    ];
    let line = |(side, finding, witnesses)| Line {
        witnesses,
        ..line(case, severity, load, side, finding)
    };
    Ok(sides.into_iter().map(line).collect())
}

/// Whether the bottleneck is a CPU: then others that keep every core busy are the bottleneck, too.
fn is_cpu(cause: Cause) -> bool {
    use Cause::*;
    matches!(
        cause,
        SenderComputes
            | ReceiverComputes
            | SenderCpu
            | ReceiverCpu
            | SmallMessages
            | Softirq
            | NoNetwork
            | Proxy
    )
}

impl Case {
    /// Whether what is wrong can be seen at this side.
    fn is_at(&self, side: &str) -> bool {
        use Cause::*;
        match side {
            "receiver" => {
                let reads = self.from_sender == Some(ReceiverSlow) && self.truth != Proxy;
                let shared = self.truth == SharedCpu && (self.play)(1).hog != Some(End::Sender);
                let both = [RoundTrips, Softirq, NoNetwork, DatagramOverflow, ReceiveBuffer];
                reads || shared || both.contains(&self.truth)
            }
            "sender" => self.from_sender.is_none() && self.truth != DatagramOverflow,
            _ => true,
        }
    }
}

fn line(case: &Case, severity: u32, load: bool, side: &'static str, finding: Finding) -> Line {
    let from_here = ["sender", "socket"].contains(&side) && finding.cause == case.from_sender;
    let shared = load && is_cpu(case.truth) && finding.cause == Some(Cause::SharedCpu);
    let score = match finding.cause {
        None if finding.elsewhere && !case.is_at(side) => Score::Elsewhere,
        None => Score::Undecided,
        Some(cause) if cause == case.truth || from_here || shared => Score::Right,
        Some(_) => Score::Wrong,
    };
    Line {
        case: format!("{}{}", case.name, if load { "@load" } else { "" }),
        side,
        severity,
        truth: case.truth,
        said: finding.cause,
        knob: finding.advice.map(|advice| advice.knob()),
        confidence: finding.confidence,
        score,
        words: finding.words,
        witnesses: None,
    }
}

/// A line for people; with `words`, what it rests on, which is told of a wrong one anyway.
pub fn row(line: &Line, words: bool) -> String {
    let score = match line.score {
        Score::Right => "right",
        Score::Elsewhere => "elsewhere",
        Score::Undecided => "undecided",
        Score::Wrong => "WRONG",
    };
    let said = line.said.map_or("-", cause::name);
    let mut row = format!("{:<26} {:<8} {} {score:<9} {said}", line.case, line.side, line.severity);
    if words || line.score == Score::Wrong {
        row += &format!("\n    {}", line.words);
    }
    row
}

/// The score of each side.
pub fn summary(lines: &[Line]) -> String {
    let mut out = String::new();
    for side in ["sender", "receiver", "both", "socket"] {
        let of = |score| lines.iter().filter(|l| l.side == side && l.score == score).count();
        let sure = |l: &&Line| l.score == Score::Wrong && l.confidence == Confidence::High;
        out += &format!(
            "{side}: {} right, {} rightly said to lie elsewhere, {} undecided, {} wrong ({} of \
             them with high confidence)\n",
            of(Score::Right),
            of(Score::Elsewhere),
            of(Score::Undecided),
            of(Score::Wrong),
            lines.iter().filter(|l| l.side == side).filter(sure).count(),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_message() {
        let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
        assert!(CASES.len() >= 40);
        for case in CASES {
            let plays = (1..=SEVERITIES).map(case.play);
            let messages: Vec<usize> = plays.map(|play| play.message).collect();
            assert!(messages.iter().all(|message| *message > 0), "{}", case.name);
        }
    }

    #[test]
    fn a_sender_may_say_less_than_the_receiver() {
        let far = CASES.iter().find(|case| case.from_sender.is_some()).unwrap();
        let said = Finding { cause: Some(Cause::ReceiverSlow), ..cause::unseen() };
        assert_eq!(line(far, 1, false, "sender", said.clone()).score, Score::Right);
        assert_eq!(line(far, 1, false, "socket", said.clone()).score, Score::Right);
        assert_eq!(line(far, 1, false, "both", said).score, Score::Wrong);
        assert_eq!(line(far, 1, false, "both", cause::unseen()).score, Score::Undecided);
        let elsewhere = Finding { elsewhere: true, ..cause::unseen() };
        assert_eq!(line(far, 1, false, "sender", elsewhere.clone()).score, Score::Elsewhere);
        assert_eq!(line(far, 1, false, "receiver", elsewhere.clone()).score, Score::Undecided);
        let near = CASES.iter().find(|case| case.name == "sender-sleeps").unwrap();
        assert_eq!(line(near, 1, false, "receiver", elsewhere.clone()).score, Score::Elsewhere);
        assert_eq!(line(near, 1, false, "sender", elsewhere).score, Score::Undecided);
    }
}
