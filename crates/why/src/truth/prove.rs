//! Made bottlenecks taken away for a while: the gain that was predicted beside the one that was measured.

use super::Case;
use crate::cause::{self, Gain, Lift};
use lastmeter_ledger::figures;
use lastmeter_live::observe::lift::{Change, Lifted};
use lastmeter_live::staged::{End, Running};
use serde::Serialize;

/// What lifting a bottleneck brought.
#[derive(Clone, Debug, Serialize)]
pub struct Proof {
    /// The made bottleneck.
    pub case: &'static str,
    /// From 1.
    pub severity: u32,
    /// At which end: `sender`, `receiver`.
    pub side: &'static str,
    /// What was changed.
    pub lift: Lift,
    /// The predicted gain.
    pub gain: Option<Gain>,
    /// Bits per second before, during and after.
    pub rates: [f64; 3],
    /// Rate during over rate before.
    pub measured: f64,
    /// Whether that lies in the predicted band.
    pub holds: bool,
}

/// The change of `live` for a lift.
pub fn change(lift: Lift) -> Change {
    let number = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
    match lift {
        // The kernel counts twice what is asked for.
        Lift::SendBuffer(ask) => Change::SendBuffer(number(2 * ask)),
        Lift::ReceiveBuffer(ask) => Change::ReceiveBuffer(number(2 * ask)),
        Lift::NoDelay => Change::NoDelay,
        Lift::Pacing(rate) => Change::Pacing(number(rate / 8)),
        Lift::Bbr => Change::Bbr,
        Lift::Affinity => Change::Affinity,
    }
}

/// Makes the bottleneck, judges it, lifts it and puts it back; `None` where the verdict names nothing that
/// can be lifted from outside.
///
/// # Errors
/// As [`super::run`], and when the kernel refuses the change.
pub fn prove(case: &Case, severity: u32) -> lastmeter_linux::Result<Option<Proof>> {
    let mut running = Running::start(&(case.play)(severity))?;
    let before = running.look()?.map(|end| end.witnesses);
    let ends = [("sender", End::Sender), ("receiver", End::Receiver)];
    let found = ends.into_iter().zip(&before).find_map(|((side, end), witnesses)| {
        let witnesses = witnesses.as_ref()?;
        let advice = cause::judge(witnesses).advice?;
        Some((side, end, advice.gain, advice.lift?, witnesses.rate))
    });
    let Some((side, end, gain, lift, rate)) = found else { return Ok(None) };
    let pid = running.pid(end);
    let mut look = || {
        let [sender, receiver] = running.look()?.map(|end| end.witnesses.map_or(0.0, |w| w.rate));
        lastmeter_linux::Result::Ok(if end == End::Sender { sender } else { receiver })
    };
    let lifted = Lifted::apply(pid, change(lift))?;
    let during = look()?;
    drop(lifted);
    let after = look()?;
    let measured = during / rate.max(1.0);
    let holds = gain.is_some_and(|gain| (gain.low..=gain.high).contains(&measured));
    let rates = [rate, during, after];
    Ok(Some(Proof { case: case.name, severity, side, lift, gain, rates, measured, holds }))
}

/// A line for people.
pub fn row(proof: &Proof) -> String {
    let gain = proof.gain.map_or("no gain predicted".to_owned(), |gain| gain.words());
    let [before, during, after] = proof.rates.map(figures::rate);
    let holds = if proof.holds { "holds" } else { "DOES NOT HOLD" };
    format!(
        "{:<20} {} {:<8} {before}, lifted {during}, put back {after}: {:.2} times; {gain}: {holds}",
        proof.case, proof.severity, proof.side, proof.measured
    )
}
