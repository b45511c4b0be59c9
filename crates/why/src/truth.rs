//! Bottlenecks made on purpose between two hosts of our own, and whether the verdicts name them.
//!
//! Every case is a transfer with one thing wrong, at three severities, looked at from the sender, from the
//! receiver and from both, as any other program would be. What one side cannot see it should leave open,
//! which counts as undecided, not as right.

use crate::cause::{self, Cause, Finding};
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_ledger::Confidence;
use lastmeter_live::observe;
use lastmeter_live::transfer::{Pause, Relay, Setting, Workload};
use serde::Serialize;

/// How bad, from 1 to this.
pub const SEVERITIES: u32 = 3;
/// Long enough for a hundred looks.
const LASTS: Duration = Duration::from_ms(2000);

/// A bottleneck.
pub struct Case {
    /// For `--case`.
    pub name: &'static str,
    /// What is wrong.
    pub truth: Cause,
    /// What the sender's side may say instead, since it cannot see more.
    pub from_sender: Option<Cause>,
    setting: fn(u32) -> Setting,
}

const PLAIN: Setting = Setting { duration: LASTS, ..Setting::PLAIN };

/// A path with this round trip, and with a rate if there is one.
const fn path(round_trip_ms: u64, rate: Option<Rate>) -> Setting {
    let delay = Duration::from_us(round_trip_ms * 500);
    Setting { relay: Some(Relay { delay, rate }), ..PLAIN }
}

const fn case(name: &'static str, truth: Cause, setting: fn(u32) -> Setting) -> Case {
    Case { name, truth, from_sender: None, setting }
}

/// One whose cause the sender sees only as a reader that is slow.
const fn far(name: &'static str, truth: Cause, setting: fn(u32) -> Setting) -> Case {
    Case { name, truth, from_sender: Some(Cause::ReceiverSlow), setting }
}

fn sleep(us: u64) -> Pause {
    Pause::Sleep(Duration::from_us(us))
}

fn work(us: u64) -> Pause {
    Pause::Work(Duration::from_us(us))
}

/// All of them.
pub const CASES: &[Case] = &[
    case("sender-sleeps", Cause::SenderSleeps, |s| Setting {
        sender_pause: sleep(2000 * u64::from(s)),
        ..PLAIN
    }),
    case("sender-sleeps-far", Cause::SenderSleeps, |s| Setting {
        sender_pause: sleep(20_000 * u64::from(s)),
        ..path(10, None)
    }),
    case("sender-sleeps-small", Cause::SenderSleeps, |s| Setting {
        sender_pause: sleep(1000 * u64::from(s)),
        message: Bytes::from_kib(4),
        ..PLAIN
    }),
    case("sender-paces-itself", Cause::SenderSleeps, |s| Setting {
        sender_rate: Some(Rate::from_mbit(200 / u64::from(s))),
        ..PLAIN
    }),
    case("sender-computes", Cause::SenderComputes, |s| Setting {
        sender_pause: work(1000 * u64::from(s)),
        ..PLAIN
    }),
    case("sender-computes-far", Cause::SenderComputes, |s| Setting {
        sender_pause: work(20_000 * u64::from(s)),
        ..path(10, None)
    }),
    far("receiver-sleeps", Cause::ReceiverSleeps, |s| Setting {
        receiver_pause: sleep(2000 * u64::from(s)),
        ..PLAIN
    }),
    far("receiver-sleeps-far", Cause::ReceiverSleeps, |s| Setting {
        receiver_pause: sleep(20_000 * u64::from(s)),
        ..path(10, None)
    }),
    far("receiver-computes", Cause::ReceiverComputes, |s| Setting {
        receiver_pause: work(1000 * u64::from(s)),
        ..PLAIN
    }),
    far("receiver-computes-far", Cause::ReceiverComputes, |s| Setting {
        receiver_pause: work(20_000 * u64::from(s)),
        ..path(10, None)
    }),
    case("send-buffer", Cause::SendBuffer, |s| Setting {
        send_buffer: Some(Bytes::from_kib(64 >> s)),
        ..path(20, None)
    }),
    case("send-buffer-long", Cause::SendBuffer, |s| Setting {
        send_buffer: Some(Bytes::from_kib(64 >> s)),
        ..path(80, None)
    }),
    case("receive-buffer", Cause::ReceiveBuffer, |s| Setting {
        receive_buffer: Some(Bytes::from_kib(64 >> s)),
        ..path(20, None)
    }),
    case("receive-buffer-long", Cause::ReceiveBuffer, |s| Setting {
        receive_buffer: Some(Bytes::from_kib(64 >> s)),
        ..path(80, None)
    }),
    case("link", Cause::LinkRate, |s| path(2, Some(Rate::from_mbit(100 >> s)))),
    case("link-far", Cause::LinkRate, |s| path(20, Some(Rate::from_mbit(100 >> s)))),
    case("link-many", Cause::LinkRate, |s| Setting {
        streams: 4,
        ..path(10, Some(Rate::from_mbit(100 >> s)))
    }),
    case("round-trips", Cause::RoundTrips, |s| Setting {
        workload: Workload::RequestResponse,
        message: Bytes(256),
        ..path(10 * u64::from(s), None)
    }),
    case("round-trips-large", Cause::RoundTrips, |s| Setting {
        workload: Workload::RequestResponse,
        message: Bytes::from_kib(8),
        ..path(10 * u64::from(s), None)
    }),
    case("small-messages", Cause::SenderCpu, |s| Setting {
        workload: Workload::SmallMessages,
        message: Bytes(256 >> s),
        ..PLAIN
    }),
    case("receiver-shares-its-cpu", Cause::SharedCpu, |s| Setting {
        competitor: true,
        receiver_pause: work(200 * u64::from(s)),
        ..PLAIN
    }),
];

/// Whether a verdict is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Score {
    /// It names the truth.
    Right,
    /// It names nothing.
    Undecided,
    /// It names something else.
    Wrong,
}

/// One verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub case: &'static str,
    /// `sender`, `receiver`, `both`.
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
}

/// Makes the bottleneck and judges it from three sides.
///
/// # Errors
/// A path needs network namespaces, which may be forbidden.
pub fn run(case: &Case, severity: u32) -> lastmeter_live::Result<Vec<Line>> {
    let (_, ends) = observe::both_ends(&(case.setting)(severity))?;
    let unseen = || cause::unseen();
    let [sender, receiver] =
        ends.map(|end| end.witnesses.as_ref().map_or_else(unseen, cause::judge));
    let both = cause::joined(&sender, &receiver);
    let sides = [("sender", sender), ("receiver", receiver), ("both", both)];
    Ok(sides.into_iter().map(|(side, finding)| line(case, severity, side, finding)).collect())
}

fn line(case: &Case, severity: u32, side: &'static str, finding: Finding) -> Line {
    let from_here = side == "sender" && finding.cause == case.from_sender;
    let score = match finding.cause {
        None => Score::Undecided,
        Some(cause) if cause == case.truth || from_here => Score::Right,
        Some(_) => Score::Wrong,
    };
    Line {
        case: case.name,
        side,
        severity,
        truth: case.truth,
        said: finding.cause,
        knob: finding.knob,
        confidence: finding.confidence,
        score,
        words: finding.words,
    }
}

/// A line for people.
pub fn row(line: &Line) -> String {
    let score = match line.score {
        Score::Right => "right",
        Score::Undecided => "undecided",
        Score::Wrong => "WRONG",
    };
    let said = line.said.map_or("-", cause::name);
    format!("{:<24} {:<8} {} {score:<9} {said}", line.case, line.side, line.severity)
}

/// The score of each side.
pub fn summary(lines: &[Line]) -> String {
    let mut out = String::new();
    for side in ["sender", "receiver", "both"] {
        let of = |score| lines.iter().filter(|l| l.side == side && l.score == score).count();
        let sure = |l: &&Line| l.score == Score::Wrong && l.confidence == Confidence::High;
        out += &format!(
            "{side}: {} right, {} undecided, {} wrong ({} of them with high confidence)\n",
            of(Score::Right),
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
    fn every_case_is_a_possible_setting_with_a_name_of_its_own() {
        let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
        for case in CASES {
            (1..=SEVERITIES).for_each(|severity| (case.setting)(severity).check().unwrap());
        }
    }

    #[test]
    fn a_sender_may_say_less_than_the_receiver() {
        let far = CASES.iter().find(|case| case.from_sender.is_some()).unwrap();
        let said = Finding { cause: Some(Cause::ReceiverSlow), ..cause::unseen() };
        assert_eq!(line(far, 1, "sender", said.clone()).score, Score::Right);
        assert_eq!(line(far, 1, "both", said).score, Score::Wrong);
        assert_eq!(line(far, 1, "both", cause::unseen()).score, Score::Undecided);
    }
}
