//! How TCP's window grows back from one segment, read from the trace; the other costs of loss are in
//! `experiments/tcp-recovery/repro.toml`.

use super::{Computed, Setting, row};
use crate::Error;
use crate::sweep::run;
use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_engine::TraceKind;

const SENDER: &str = "a sends stream";
/// Headers of IPv4 and TCP, without options.
const HEADERS: u64 = 40;

/// Packets in the first round trip, and round trips to half of the window and to all of it.
fn rounds(setting: &Setting<'_>, rate: u64) -> Result<[f64; 3], Error> {
    let packet: Bytes = setting.constants.get("packet")?;
    let round_trip: Duration = setting.constants.get("round_trip")?;
    let given = [("rate", rate.into())];
    let number = |formula: &str| setting.formula_of("regrowth", &given, formula);
    let (window, after) = (number("window")? as u64, number("first")? as usize);
    let sent = setting.run("regrowth", &given)?.times(SENDER, TraceKind::Make)?;
    // The first retransmission, which ends the longest silence after the loss.
    let gap = |&at: &usize| sent[at + 1].saturating_since(sent[at]);
    let begins = (after..sent.len() - 1).rev().max_by_key(gap).map_or(Time::START, |at| sent[at]);
    // Each packet counts in the round whose start is nearest.
    let rate = Rate::from_bits(rate);
    let round = round_trip + rate.time_for(packet) + rate.time_for(Bytes(HEADERS));
    let mut counts = Vec::new();
    for &at in sent.iter().filter(|&&at| at >= begins) {
        let place = (at.saturating_since(begins) + round / 2).as_ps() / round.as_ps();
        counts.resize(counts.len().max(place as usize + 1), 0);
        counts[place as usize] += 1;
    }
    let reaches = |many: u64| {
        let found = counts.iter().position(|&count| count >= many);
        found.map_or(f64::NAN, |place| place as f64)
    };
    Ok([counts[0] as f64, reaches(window / 2), reaches(window - 1)])
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    if !setting.wants("A-164") {
        return Ok(Vec::new());
    }
    let rates: Vec<u64> = setting.constants.get("rates_traced")?;
    let found = run::all(&rates, setting.means, |kbit| rounds(setting, kbit * 1000))?;
    let mut rows = Vec::new();
    for (kbit, values) in rates.iter().zip(&found) {
        for (what, &value) in ["first", "half", "whole"].iter().zip(values) {
            let key = format!("A-164/{what}-{}", kbit / 1000);
            rows.push(row(key, value));
        }
    }
    let later = found.windows(2).all(|pair| pair[0][2] < pair[1][2]);
    rows.push(row("A-164/later", later));
    Ok(rows)
}
