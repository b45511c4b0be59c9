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
//! share of the most that was forwarded at any rate; a rate is that of the time which others left of the router's core,
//! and decides nothing if they took a tenth or more. `router/overload/POLICY@10x` is the same for the other policies of
//! `receive`, each beside its own peak.
//!
//! Rows: E-133.

use super::files::{COMPLETE, Case, Files, RANDOM};
use super::place::Between;
use super::search::is_calm;
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

/// Packets forwarded for each second that others left of the router's core.
fn forwarded(found: &Between) -> f64 {
    found.rate / (1.0 - found.others).max(0.01)
}

/// Where most was forwarded, undisturbed if there was any such.
fn peak<'a>(all: impl Iterator<Item = &'a Between>) -> Option<&'a Between> {
    all.max_by(|a, b| is_calm(a).cmp(&is_calm(b)).then(forwarded(a).total_cmp(&forwarded(b))))
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
    let highest = peak(search.iter()).map(forwarded).filter(|peak| *peak > 0.0).unwrap_or(rates[0]);
    let multiples = if own { MULTIPLES } else { &MULTIPLES[MULTIPLES.len() - 1..] };
    let over: Vec<Between> =
        multiples.iter().map(|times| at(times * highest)).collect::<Result<_, _>>()?;
    let Some(most) = peak(search.iter().chain(&over)) else { return Ok(Vec::new()) };
    let line = |(times, found): (&f64, &Between)| Line {
        name: format!("{}@{times}x", name(receive)),
        value: share(found, most),
        unit: "share of peak",
        peer: None,
        note: format!(
            "{}offered {:.2} M/s, forwarded {:.2} of at most {:.2} M/s, {:.2} cores",
            disturbed(&[found, most]),
            found.offered / 1e6,
            forwarded(found) / 1e6,
            forwarded(most) / 1e6,
            found.cores
        ),
    };
    Ok(multiples.iter().zip(&over).map(line).collect())
}

/// The share of the peak, which another run with others beside it may seem to exceed.
fn share(found: &Between, most: &Between) -> f64 {
    (forwarded(found) / forwarded(most).max(1e-9)).min(1.0)
}

/// For a note: that others took so much of the router's core that nothing is decided.
fn disturbed(all: &[&Between]) -> String {
    let took = all.iter().filter(|one| !is_calm(one)).map(|one| one.others).fold(0.0, f64::max);
    match took > 0.0 {
        true => format!("UNDECIDED: others took {took:.2} of its core; "),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rate: f64, others: f64) -> Between {
        let (offered, per_cpu, bits_per_cpu, cores, kernel) = (0.0, rate, 0.0, 1.0 - others, 0.5);
        Between { offered, rate, per_cpu, bits_per_cpu, cores, kernel, others }
    }

    #[test]
    fn what_others_took_of_the_core_is_no_livelock_and_much_of_it_decides_nothing_e_133() {
        // Others took 5 %, and 5 % less was forwarded.
        let (most, less) = (found(100.0, 0.0), found(95.0, 0.05));
        assert!((share(&less, &most) - 1.0).abs() < 1e-9 && disturbed(&[&less, &most]).is_empty());
        // Nobody took anything, and half was forwarded.
        assert!((share(&found(50.0, 0.0), &most) - 0.5).abs() < 1e-9);
        // A disturbed run is the peak only if all are.
        let wild = found(80.0, 0.5);
        assert!(peak([&most, &wild].into_iter()).is_some_and(|peak| peak.others == 0.0));
        assert!(peak([&wild].into_iter()).is_some_and(|peak| peak.others == 0.5));
        assert!(disturbed(&[&less, &wild]).starts_with("UNDECIDED: others took 0.50"));
        assert_eq!(share(&wild, &most), 1.0);
    }
}
