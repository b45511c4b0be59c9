//! `router/overload@1x` to `@10x`: what a router forwards that is offered so many times the most that it can forward.
//!
//! ```text
//! forwarded |    ______________ flat: what is too much is dropped by the interface before it costs the router anything
//!           |   /
//!           |  /      - . _     livelock: work is spent on packets that are dropped later
//!           | /             - .
//!           +------------------- offered
//! ```
//!
//! First the highest rate is looked for, then offered once, twice, five and ten times. The value of each is its
//! share of the most that was forwarded at any rate. `router/overload/POLICY@10x` is the same for the other policies of
//! `receive`, each beside its own peak.
//!
//! Rows: E-133.

use super::files::{COMPLETE, Case, Files, RANDOM};
use super::place::Between;
use super::{Bench, Complaint, Line, rounds, started};
use lastmeter_router::port_processor::reception::Receive;

/// Frames a second among which the highest rate is looked for, a third apart: the curve is flat there.
const SEARCH: &[f64] = &[0.3e6, 0.45e6, 0.6e6, 0.8e6, 1.0e6];
/// The same for a quick look.
const QUICK: &[f64] = &[0.45e6, 0.8e6];
/// The same for the other policies, some of which forward less the more they are offered.
const POLICIES: &[f64] = &[0.05e6, 0.1e6, 0.2e6, 0.4e6, 0.8e6];
/// Multiples of it that are offered.
const MULTIPLES: &[f64] = &[1.0, 2.0, 5.0, 10.0];
/// Bytes of a frame.
const LEN: usize = 60;

/// The most that was forwarded.
fn peak(all: &[Between]) -> f64 {
    all.iter().map(|one| one.rate).fold(0.0, f64::max)
}

/// The name of a way to receive.
pub(super) fn name(receive: &str) -> String {
    match receive == Receive::NAMES[0] {
        true => "router/overload".to_owned(),
        false => format!("router/overload/{receive}"),
    }
}

pub(super) fn curve(
    bench: &Bench,
    files: &Files,
    receive: &'static str,
    quick: bool,
) -> Result<Vec<Line>, Complaint> {
    let own = receive == Receive::NAMES[0];
    let mut place = started(files, Case { receive: Some(receive), ..COMPLETE })?;
    let list = files.folder.join(RANDOM);
    let mut at = |rate: f64| rounds(&mut place, bench, LEN, rate, &list);
    let rates = match (quick, own) {
        (true, _) => QUICK,
        (false, true) => SEARCH,
        (false, false) => POLICIES,
    };
    let search: Vec<Between> = rates.iter().map(|rate| at(*rate)).collect::<Result<_, _>>()?;
    // What forwards nothing is offered ten times the least of these.
    let highest = Some(peak(&search)).filter(|peak| *peak > 0.0).unwrap_or(rates[0]);
    let multiples = if own { MULTIPLES } else { &MULTIPLES[MULTIPLES.len() - 1..] };
    let over: Vec<Between> =
        multiples.iter().map(|times| at(times * highest)).collect::<Result<_, _>>()?;
    let most = peak(&search).max(peak(&over));
    let line = |(times, found): (&f64, &Between)| Line {
        name: format!("{}@{times}x", name(receive)),
        value: if most > 0.0 { found.rate / most } else { 0.0 },
        unit: "share of peak",
        peer: None,
        note: format!(
            "offered {:.2} M/s, forwarded {:.2} of at most {:.2} M/s, {:.2} cores",
            found.offered / 1e6,
            found.rate / 1e6,
            most / 1e6,
            found.cores
        ),
    };
    Ok(multiples.iter().zip(&over).map(line).collect())
}
