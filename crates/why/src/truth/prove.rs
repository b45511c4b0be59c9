//! What-ifs scored: a bottleneck is made and judged, the change that the verdict or the table names is made, too, and
//! what it brought stands beside what was predicted.
//!
//! Socket options, affinity and quotas change under the running programs, and are put back; what is the
//! program's own or the path's (its sleep, the link) is made anew with the change.

use super::CASES;
use super::what_ifs::{WHAT_IFS, WhatIf};
use crate::cause::{self, Cause, Gain, Lift};
use lastmeter_ledger::figures;
use lastmeter_linux::{Result, load};
use lastmeter_live::observe::Witnesses;
use lastmeter_live::observe::lift::{Change, Lifted};
use lastmeter_live::staged::{End, Pattern, Play, Running, Side, Work};
use serde::Serialize;
use std::time::Duration;

/// A prediction is right within this.
pub const OFF_MAX: f64 = 0.15;
/// The share of the predictions that should be, and of the bands that should hold.
pub const RIGHT_MIN: f64 = 0.9;
/// How long the machine is looked at for other programs, before each.
const LOOK: Duration = Duration::from_millis(200);
/// After a change, and after a start, until the rate is what it will be: slow starts on the paths made are over.
const SETTLE: Duration = Duration::from_millis(1500);

/// A what-if, predicted and measured.
#[derive(Clone, Debug, Serialize)]
pub struct Proof {
    /// Its name.
    pub what_if: String,
    /// The made bottleneck.
    pub case: &'static str,
    /// From 1.
    pub severity: u32,
    /// The change, where one can be made.
    pub lift: Option<Lift>,
    /// At which end it was judged: `sender`, `receiver`.
    pub side: Option<&'static str>,
    /// What was named there.
    pub said: Option<Cause>,
    /// The predicted gain.
    pub gain: Option<Gain>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// Bits per second before and with the change.
    pub rates: Option<[f64; 2]>,
    /// The second over the first.
    pub measured: Option<f64>,
    /// The prediction over what was measured, less one.
    pub off: Option<f64>,
    /// Whether the measurement lies in the predicted band.
    pub holds: Option<bool>,
    /// Other programs kept more than a quarter of the CPUs busy.
    pub busy: bool,
}

/// Of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    /// What-ifs that were run.
    pub what_ifs: usize,
    /// Those with a prediction and a measurement.
    pub predicted: usize,
    /// Of these, those within [`OFF_MAX`].
    pub within: usize,
    /// Of these, those whose band held.
    pub hold: usize,
    /// Of all, those that ran on a busy machine.
    pub busy: usize,
}

impl Sum {
    /// Counts them.
    pub fn of(proofs: &[Proof]) -> Sum {
        let count = |is: fn(&Proof) -> bool| proofs.iter().filter(|proof| is(proof)).count();
        Sum {
            what_ifs: proofs.len(),
            predicted: count(|p| p.off.is_some()),
            within: count(|p| p.off.is_some_and(|off| off.abs() <= OFF_MAX)),
            hold: count(|p| p.holds == Some(true)),
            busy: count(|p| p.busy),
        }
    }

    /// Whether enough of them are right, and enough bands hold.
    pub fn is_enough(&self) -> bool {
        let least = RIGHT_MIN * self.predicted as f64;
        self.within as f64 >= least && self.hold as f64 >= least
    }

    /// In words.
    pub fn words(&self) -> String {
        let Sum { what_ifs, predicted, within, hold, busy } = *self;
        format!(
            "{within} of {predicted} predictions within {:.0} %; the band holds in {hold} of \
             {predicted}. {} what-ifs of {what_ifs} have no prediction. {busy} ran on a busy \
             machine.",
            100.0 * OFF_MAX,
            what_ifs - predicted
        )
    }
}

/// What-ifs of this name, or of this made bottleneck; all without a name.
pub fn named(name: Option<&str>) -> Vec<&'static WhatIf> {
    let is = |one: &&WhatIf| name.is_none_or(|name| name == one.name || name == one.case);
    WHAT_IFS.iter().filter(is).collect()
}

/// Runs one, at this severity instead of its own if there is one.
///
/// # Errors
/// As [`super::run`], and when the kernel refuses the change.
pub fn prove(one: &WhatIf, severity: Option<u32>) -> Result<Proof> {
    let busy = load::others(LOOK)?.is_busy();
    let severity = severity.unwrap_or(one.severity);
    let case = CASES.iter().find(|case| case.name == one.case).expect("a test looks for them");
    let play = Play { seconds: one.seconds, ..(case.play)(severity) };
    let none = Proof {
        what_if: one.name.to_owned(),
        case: case.name,
        severity,
        lift: one.lift,
        side: None,
        said: None,
        gain: None,
        why_not: None,
        rates: None,
        measured: None,
        off: None,
        holds: None,
        busy,
    };
    let settle = if one.young { Duration::ZERO } else { SETTLE };
    let look = |running: &mut Running| -> Result<[Option<Witnesses>; 2]> {
        running.settle(settle);
        Ok(running.look()?.map(|end| end.witnesses))
    };
    let mut running = Running::start(&play)?;
    let seen = look(&mut running)?;
    let found = match find(one, &seen) {
        Ok(found) => found,
        Err(why) => return Ok(Proof { why_not: Some(why), ..none }),
    };
    let Found { end, lift, gain, said } = found;
    let before = rate(&play, &seen, end);
    let during = if let Some(change) = change(lift) {
        let lifted = Lifted::apply(running.pid(end), change)?;
        let seen = look(&mut running)?;
        drop(lifted);
        rate(&play, &seen, end)
    } else if lift == Lift::Quota {
        running.lift_quota()?;
        rate(&play, &look(&mut running)?, end)
    } else {
        drop(running);
        let changed = changed(play, lift);
        let mut running = Running::start(&changed)?;
        rate(&changed, &look(&mut running)?, end)
    };
    let side = Some(if end == End::Sender { "sender" } else { "receiver" });
    Ok(Proof { lift: Some(lift), side, said: Some(said), gain: gain.ok(), ..none }
        .measured([before, during], gain.err()))
}

impl Proof {
    /// With what was measured; `why_not` is why nothing was predicted.
    fn measured(self, rates: [f64; 2], why_not: Option<&str>) -> Proof {
        let [before, during] = rates;
        let measured = during / before.max(1.0);
        Proof {
            rates: Some(rates),
            measured: Some(measured),
            off: self.gain.map(|gain| gain.expected / measured.max(1e-3) - 1.0),
            holds: self.gain.map(|gain| (gain.low..=gain.high).contains(&measured)),
            why_not: why_not.map(str::to_owned),
            ..self
        }
    }
}

struct Found {
    end: End,
    lift: Lift,
    gain: cause::Predicted,
    said: Cause,
}

/// The end whose verdict names the change or says what it brings, or why there is none.
fn find(one: &WhatIf, seen: &[Option<Witnesses>; 2]) -> std::result::Result<Found, String> {
    let mut words = Vec::new();
    let mut unpredicted = None;
    for (end, w) in [End::Sender, End::Receiver].into_iter().zip(seen) {
        let finding = w.as_ref().map_or_else(cause::unseen, cause::judge);
        let lift = one.lift.or(finding.advice.and_then(|advice| advice.lift));
        let (Some(said), Some(lift), Some(w)) = (finding.cause, lift, w) else {
            words.push(finding.words);
            continue;
        };
        let found = Found { end, lift, gain: cause::gain(said, lift, w), said };
        match found.gain {
            Ok(_) => return Ok(found),
            Err(_) => _ = unpredicted.get_or_insert(found),
        }
    }
    unpredicted.ok_or_else(|| words.join(" "))
}

/// The change of `live` for what can be changed from outside.
pub fn change(lift: Lift) -> Option<Change> {
    let number = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
    Some(match lift {
        // The kernel counts twice what is asked for.
        Lift::SendBuffer(ask) => Change::SendBuffer(number(2 * ask)),
        Lift::ReceiveBuffer(ask) => Change::ReceiveBuffer(number(2 * ask)),
        Lift::NoDelay => Change::NoDelay,
        Lift::Pacing(rate) => Change::Pacing(number(rate / 8)),
        Lift::Bbr => Change::Bbr,
        Lift::Affinity => Change::Affinity,
        _ => return None,
    })
}

/// The play with the change.
fn changed(play: Play, lift: Lift) -> Play {
    let mut play = play;
    match lift {
        Lift::Work(part) => {
            for side in [&mut play.sender, &mut play.receiver] {
                *side = Side { work: less(side.work, part), ..*side };
            }
        }
        Lift::Link(factor) => {
            if let Some((out, _)) = &mut play.path {
                out.rate = out.rate.map(|rate| rate * factor);
                out.policer = out.policer.map(|(rate, burst)| (rate * factor, burst));
            }
        }
        Lift::Loss(part) => play.path.iter_mut().for_each(|(out, _)| out.loss *= part),
        Lift::Trip(part) => play.path.iter_mut().for_each(|(out, back)| {
            out.delay *= part;
            back.delay *= part;
        }),
        Lift::Connections(count) => play.connections *= count as usize,
        Lift::KeepOpen => play.pattern = Pattern::Request { reply: 1 },
        Lift::NoLookUp => play.pattern = Pattern::Connect,
        Lift::Message(factor) => play.message = (play.message as f64 * factor) as usize,
        _ => {}
    }
    play
}

/// This part of a work.
fn less(work: Work, part: f64) -> Work {
    let of = |whole: u64| (whole as f64 * part).round() as u64;
    match work {
        Work::None => Work::None,
        Work::Sleep(us) => Work::Sleep(of(us)),
        Work::Compute(us) => Work::Compute(of(us)),
        Work::Disk(pieces) => Work::Disk(of(pieces as u64) as usize),
        Work::Pipe(us) => Work::Pipe(of(us)),
        Work::Cipher(times) => Work::Cipher(of(times.into()) as u32),
    }
}

/// Bits of messages each second; those of a connection of their own are counted, since looks miss most.
fn rate(play: &Play, seen: &[Option<Witnesses>; 2], end: End) -> f64 {
    let bits = 8.0 * play.message as f64;
    let [sender, receiver] = seen;
    let of = |w: &Option<Witnesses>, of: fn(&Witnesses) -> f64| w.as_ref().map_or(0.0, of);
    match (play.pattern, end) {
        (Pattern::Connect | Pattern::LookUp { .. }, _) => bits * of(sender, |w| w.opened),
        (Pattern::Udp, _) => bits * of(receiver, |w| w.datagrams.0),
        (_, End::Sender) => of(sender, |w| w.rate),
        (_, End::Receiver) => of(receiver, |w| w.rate),
    }
}

/// A line for people.
pub fn row(proof: &Proof) -> String {
    let name = format!("{:<24} {}", proof.what_if, proof.severity);
    let lift = proof.lift.map_or(String::new(), |lift| lift.words());
    let busy = if proof.busy { ", busy machine" } else { "" };
    let (Some([before, during]), Some(measured)) = (proof.rates, proof.measured) else {
        let why = proof.why_not.as_deref().unwrap_or_default();
        return format!("{name} {lift:<28} no prediction: {why}{busy}");
    };
    let found = format!("{measured:.2} ({} to {})", figures::rate(before), figures::rate(during));
    match (proof.gain, proof.off, proof.holds) {
        (Some(Gain { low, expected, high }), Some(off), Some(holds)) => format!(
            "{name} {lift:<28} predicted {expected:.2} ({low:.2} to {high:.2}), measured {found}: \
             {:+.0} %, {}{busy}",
            100.0 * off,
            if holds { "holds" } else { "DOES NOT HOLD" }
        ),
        _ => {
            let why = proof.why_not.as_deref().unwrap_or_default();
            format!("{name} {lift:<28} measured {found}; no prediction: {why}{busy}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(gain: Option<Gain>, rates: [f64; 2], busy: bool) -> Proof {
        let none = Proof {
            what_if: "a".to_owned(),
            case: "link",
            severity: 1,
            lift: Some(Lift::Link(2.0)),
            side: Some("sender"),
            said: Some(Cause::LinkRate),
            gain,
            why_not: None,
            rates: None,
            measured: None,
            off: None,
            holds: None,
            busy,
        };
        let why = gain.is_none().then_some("nobody knows");
        none.measured(rates, why)
    }

    #[test]
    fn what_is_off_what_holds_and_what_has_no_prediction_are_counted() {
        let gain = Some(Gain { low: 1.6, expected: 2.0, high: 2.2 });
        let all = [
            proof(gain, [1e6, 2e6], false),
            // 2.3: within 15 %, outside of the band.
            proof(gain, [1e6, 2.3e6], true),
            // 1.65: inside of the band, 21 % off.
            proof(gain, [1e6, 1.65e6], false),
            proof(None, [1e6, 9e6], false),
        ];
        let sum = Sum::of(&all);
        assert_eq!(sum, Sum { what_ifs: 4, predicted: 3, within: 2, hold: 2, busy: 1 });
        assert!(!sum.is_enough() && Sum::of(&all[..1]).is_enough());
        assert_eq!(
            sum.words(),
            "2 of 3 predictions within 15 %; the band holds in 2 of 3. 1 what-ifs of 4 have no \
             prediction. 1 ran on a busy machine."
        );
        assert!((all[2].off.unwrap() - (2.0 / 1.65 - 1.0)).abs() < 1e-9);
        assert!(row(&all[1]).ends_with("-13 %, DOES NOT HOLD, busy machine"), "{}", row(&all[1]));
        assert!(row(&all[3]).ends_with("no prediction: nobody knows"), "{}", row(&all[3]));
    }

    #[test]
    fn a_what_if_names_a_case_and_changes_its_play_or_its_sockets() {
        let mut names: Vec<&str> = WHAT_IFS.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WHAT_IFS.len());
        assert!(WHAT_IFS.len() >= 20);
        for one in WHAT_IFS {
            let case = CASES.iter().find(|case| case.name == one.case);
            let play = (case.unwrap_or_else(|| panic!("{}", one.case)).play)(one.severity);
            if let Some(lift) = one.lift.filter(|lift| change(*lift).is_none()) {
                assert!(changed(play, lift) != play || lift == Lift::Quota, "{}", one.name);
            }
        }
        assert_eq!(less(Work::Pipe(3000), 0.5), Work::Pipe(1500));
    }
}
