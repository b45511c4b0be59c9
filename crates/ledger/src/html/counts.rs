//! Transfers, quantities over time, and counters.

use super::table;
use super::text::{escape, figure, time_figure};
use crate::figures;
use crate::{Estimate, Ledger, Level, Transfers};

/// Counters that the page lists; the files beside it have all.
const COUNTERS_MAX: usize = 400;

/// What became of connections, and what elements counted.
pub(super) fn section(ledger: &Ledger, out: &mut String) {
    if !ledger.transfers.is_empty() {
        out.push_str("<section aria-label=\"Transfers\">\n<h2>Transfers</h2>\n");
        out.push_str(
            "<p class=\"key\">From the start of a connection to the acknowledgement of its last \
             byte.</p>\n",
        );
        let titles = [
            "traffic",
            "began",
            "completed",
            "mean",
            "p50",
            "p99",
            "longest",
            "least goodput",
            "mean goodput",
            "greatest",
            "Jain's index",
        ];
        let rows: Vec<_> = ledger.transfers.iter().map(|one| (false, cells(one))).collect();
        out.push_str(&table("Transfers", &titles, &rows));
        out.push_str("</section>\n");
    }
    if !ledger.levels.is_empty() {
        out.push_str("<section aria-label=\"Levels\">\n<h2>Levels</h2>\n");
        out.push_str("<p class=\"key\">Shares of the time, not of changes.</p>\n");
        let titles = ["quantity", "mean", "least", "p50", "p90", "p99", "most"];
        let rows: Vec<_> = ledger.levels.iter().map(|one| (false, level(one))).collect();
        out.push_str(&table("Levels", &titles, &rows));
        out.push_str("</section>\n");
    }
    if let Some(runs) = ledger.estimates.iter().map(|one| one.runs).max() {
        out.push_str(&format!("<section aria-label=\"Seeds\">\n<h2>Over {runs} seeds</h2>\n"));
        out.push_str(
            "<p class=\"key\">Means with their 95 % confidence intervals; all else on this page is \
             of the first seed.</p>\n",
        );
        let titles = ["of", "figure", "runs", "mean", "half of the interval"];
        let rows: Vec<_> = ledger.estimates.iter().map(|one| (false, estimate(one))).collect();
        out.push_str(&table("Seeds", &titles, &rows));
        out.push_str("</section>\n");
    }
    let counted: Vec<_> = ledger.counters.iter().filter(|counter| counter.value > 0).collect();
    if counted.is_empty() {
        return;
    }
    out.push_str("<section aria-label=\"Counters\">\n<h2>Counters</h2>\n<details>");
    let shown = counted.len().min(COUNTERS_MAX);
    out.push_str(&format!(
        "<summary>{shown} of {} that are not zero; <code>lastmeter kinds NAME</code> says what \
         each counts</summary>\n",
        counted.len()
    ));
    let row = |counter: &&crate::Counter| {
        let value = figure(&figures::count_cell(counter.value), counter.value as f64, "", "count");
        (false, vec![escape(&counter.element), escape(&counter.name), value])
    };
    let rows: Vec<_> = counted.iter().take(COUNTERS_MAX).map(row).collect();
    out.push_str(&table("Counters", &["element", "counter", "value"], &rows));
    out.push_str("</details>\n</section>\n");
}

fn estimate(one: &Estimate) -> Vec<String> {
    let shown = |value, what| figure(&figures::quantity(value, &one.unit), value, &one.unit, what);
    let half = one.half_width.map(|half| shown(half, "half of the 95 % confidence interval"));
    vec![
        escape(&one.of),
        escape(&one.measure),
        one.runs.to_string(),
        shown(one.mean, "mean over seeds"),
        half.unwrap_or_else(|| "-".to_owned()),
    ]
}

fn level(one: &Level) -> Vec<String> {
    let shown = |(value, what): (f64, &str)| match one.unit.as_str() {
        "s" => time_figure(value, what),
        unit => figure(&figures::significant(value), value, unit, what),
    };
    let values = [
        (one.mean, "mean over time"),
        (one.least, "least"),
        (one.p50, "not exceeded for half of the time"),
        (one.p90, "not exceeded for 90 % of the time"),
        (one.p99, "not exceeded for 99 % of the time"),
        (one.most, "greatest"),
    ];
    std::iter::once(escape(&one.name)).chain(values.map(shown)).collect()
}

fn cells(one: &Transfers) -> Vec<String> {
    let time = |value: Option<f64>, what: &str| {
        value.map_or("-".to_owned(), |value| time_figure(value, what))
    };
    let rate = |value: f64, what: &str| figure(&figures::rate(value), value, "bit/s", what);
    let times = one.completion;
    vec![
        escape(&one.name),
        one.begun.to_string(),
        one.completed.to_string(),
        time(times.map(|times| times.mean), "mean time to complete"),
        time(times.and_then(|times| times.p50), "median time to complete"),
        time(times.and_then(|times| times.p99), "99th percentile"),
        time(times.and_then(|times| times.max), "longest"),
        rate(one.goodput.least, "least goodput of a transfer"),
        rate(one.goodput.mean, "mean goodput of a transfer"),
        rate(one.goodput.most, "greatest goodput of a transfer"),
        format!("{:.3}", one.fairness),
    ]
}
