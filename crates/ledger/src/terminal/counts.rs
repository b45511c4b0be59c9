//! Transfers, quantities over time, and counters.

use super::paint::Ink;
use super::parts::{fold_line, joined};
use super::table::{Cell, Column, Table};
use super::{Style, heading};
use crate::figures;
use crate::{Estimate, Ledger, Level, Transfers};

/// Rows of the table of transfers, and lines of counters.
const TRANSFERS_MAX: usize = 12;
const LEVELS_MAX: usize = 12;
const ESTIMATES_MAX: usize = 24;
const COUNTERS_MAX: usize = 8;

/// What became of connections, one line for each traffic.
pub(super) fn transfers(style: &Style, ledger: &Ledger, out: &mut String) {
    if ledger.transfers.is_empty() {
        return;
    }
    let what = "time from opening to the last byte; goodput while it lasted";
    heading(style, "TRANSFERS", what, out);
    let columns = vec![
        Column::name("traffic", 12, 0),
        Column::number("completed", "completed, of those that began", 0),
        Column::number("mean", "mean time to complete", 0),
        Column::number("p50", "median time", 4),
        Column::number("p99", "p99 of time", 2),
        Column::number("slowest", "least goodput", 1),
        Column::number("average", "mean goodput", 5),
        Column::number("fastest", "greatest goodput", 3),
        Column::number("Jain", "Jain's index of fairness", 2),
    ];
    let row = |one: &Transfers| {
        let time = |value: Option<f64>| Cell::new(value.map_or("-".into(), figures::time_cell));
        let rate = |value: f64| Cell::new(figures::rate(value));
        vec![
            Cell::new(style.clean(&one.name)),
            Cell::new(format!("{}/{}", one.completed, one.begun)),
            time(one.completion.map(|times| times.mean)),
            time(one.completion.and_then(|times| times.p50)),
            time(one.completion.and_then(|times| times.p99)),
            rate(one.goodput.least),
            rate(one.goodput.mean),
            rate(one.goodput.most),
            Cell::new(format!("{:.3}", one.fairness)),
        ]
    };
    let rows = ledger.transfers.iter().take(TRANSFERS_MAX).map(row).collect();
    Table { columns, rows }.draw(style, out);
    if ledger.transfers.len() > TRANSFERS_MAX {
        let more = ledger.transfers.len() - TRANSFERS_MAX;
        fold_line(style, &format!("{more} more kinds of traffic"), out);
    }
}

/// For how long quantities had which value, one line for each.
pub(super) fn levels(style: &Style, ledger: &Ledger, out: &mut String) {
    if ledger.levels.is_empty() {
        return;
    }
    heading(style, "LEVELS", "shares of the time, not of changes", out);
    let number = |title, what, keep| Column::number(title, what, keep);
    let columns = vec![
        Column::name("quantity", 12, 0),
        number("mean", "mean over time", 0),
        number("p50", "not exceeded for half of the time", 3),
        number("p90", "for 90 % of the time", 1),
        number("p99", "for 99 % of the time", 2),
        number("most", "greatest", 4),
    ];
    let row = |one: &Level| {
        let shown = |value: f64| match one.unit.as_str() {
            "s" => Cell::new(figures::time_cell(value)),
            _ => Cell::new(figures::significant(value)),
        };
        let mut cells = vec![Cell::new(style.clean(&one.name))];
        cells.extend([one.mean, one.p50, one.p90, one.p99, one.most].map(shown));
        cells
    };
    let rows = ledger.levels.iter().take(LEVELS_MAX).map(row).collect();
    Table { columns, rows }.draw(style, out);
    if ledger.levels.len() > LEVELS_MAX {
        let more = figures::plural((ledger.levels.len() - LEVELS_MAX) as u64, "more row");
        fold_line(style, &format!("{more}; --json and --out have all"), out);
    }
}

/// Figures over several seeds.
pub(super) fn estimates(style: &Style, ledger: &Ledger, out: &mut String) {
    let Some(runs) = ledger.estimates.iter().map(|one| one.runs).max() else { return };
    let what = format!("{runs} of them: mean and 95 % confidence interval");
    heading(style, "SEEDS", &what, out);
    let columns = vec![
        Column::name("of", 12, 0),
        Column::name("figure", 8, 0),
        Column::number("mean", "mean over seeds", 0),
        Column::number("+-", "half of the interval", 1),
        Column::number("share", "half of the interval, as a share of the mean", 2),
    ];
    let row = |one: &Estimate| {
        let shown = |value| Cell::new(figures::quantity(value, &one.unit));
        let share = one.half_width.filter(|_| one.mean != 0.0).map(|half| half / one.mean.abs());
        vec![
            Cell::new(style.clean(&one.of)),
            Cell::new(one.measure.clone()),
            shown(one.mean),
            one.half_width.map_or(Cell::new("-"), shown),
            share.map_or(Cell::new("-"), |share| Cell::new(figures::share(share))),
        ]
    };
    let rows = ledger.estimates.iter().take(ESTIMATES_MAX).map(row).collect();
    Table { columns, rows }.draw(style, out);
    if ledger.estimates.len() > ESTIMATES_MAX {
        let more = figures::plural((ledger.estimates.len() - ESTIMATES_MAX) as u64, "more row");
        fold_line(style, &format!("{more}; --json and --out have all"), out);
    }
}

/// What elements counted, without what stayed zero.
pub(super) fn counters(style: &Style, ledger: &Ledger, out: &mut String) {
    let counted: Vec<_> = ledger.counters.iter().filter(|counter| counter.value > 0).collect();
    let elements: Vec<_> = counted.chunk_by(|a, b| a.element == b.element).collect();
    if elements.is_empty() {
        return;
    }
    heading(style, "COUNTERS", "`lastmeter kinds NAME` says what each counts", out);
    for counters in elements.iter().take(COUNTERS_MAX) {
        let mut facts = vec![("", counters[0].element.clone())];
        facts.extend(counters.iter().map(|one| match one.name.strip_suffix("_ps") {
            Some(name) => (name, figures::time(one.value as f64 / 1e12)),
            None => (one.name.as_str(), figures::count_cell(one.value)),
        }));
        joined(style, "  ", &facts, Ink::Plain, out);
    }
    if elements.len() > COUNTERS_MAX {
        let more = elements.len() - COUNTERS_MAX;
        let more = figures::plural(more as u64, "more element");
        fold_line(style, &format!("{more}; --json and --out have all"), out);
    }
}
