//! The ledger as a table in the terminal: the verdict first, then why.
//!
//! No line exceeds the width. If space is short, names are broken at their joints and columns dropped, and the table
//! says which; below 60 columns a row's figures are below its name. If there are too many rows, the small ones are
//! folded into one that gives their number. What was not measured is a dash. Colour only repeats what words and marks
//! say.

mod connection;
mod counts;
mod drawing;
mod escaped;
mod layers;
pub(crate) mod paint;
mod parts;
mod stages;
mod table;
mod waits;

pub use escaped::escaped;
pub use layers::render_layers;
pub use paint::wrap;

use crate::figures;
use crate::shape;
use crate::{Count, Deadlines, Latency, Ledger, Path, Series};
use paint::Ink;

/// Paths that are shown stage by stage.
const PATHS_DETAILED: usize = 3;
/// Percentiles of latency shown as well as the median, the 99th and the maximum.
const SHARES: [f64; 4] = [0.01, 0.1, 0.9, 0.95];
/// Most quantities over time that are shown, a line each.
const SERIES_MAX: usize = 8;
/// Steps of such a line.
const SPARKS: usize = 32;
/// Terminals with fewer columns get a layout of one column.
pub const WIDTH_COLUMNS: usize = 60;
/// Least width; anything narrower is unreadable.
const WIDTH_MIN: usize = 40;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Its width in columns; at least 40 are used.
    pub width: usize,
    /// Whether ANSI colours may be used.
    pub color: bool,
    /// Whether it shows box and block characters; if not, only ASCII is printed.
    pub unicode: bool,
}

/// Draws a ledger.
///
/// ```
/// use lastmeter_ledger::terminal::{Style, render};
/// use lastmeter_ledger::{Ledger, Provenance};
/// let (paths, resources) = (Vec::new(), Vec::new());
/// let ledger = Ledger::new("an empty graph", 0.0, paths, resources, Provenance::default());
/// let text = render(&ledger, Style { width: 80, color: false, unicode: true });
/// assert!(text.contains("an empty graph"));
/// ```
pub fn render(ledger: &Ledger, style: Style) -> String {
    drawn(style, |style, out| {
        parts::header(style, ledger, out);
        parts::verdict(style, ledger, out);
        measured(style, ledger, out);
        parts::what_ifs(style, ledger, out);
        concluded(style, ledger, out);
    })
}

/// Draws what is known of a ledger before its verdict and what-ifs, to be printed while they are searched for;
/// [`render_conclusion`] draws the rest.
pub fn render_run(ledger: &Ledger, style: Style) -> String {
    drawn(style, |style, out| {
        parts::header(style, ledger, out);
        measured(style, ledger, out);
    })
}

/// Draws what [`render`] does and [`render_run`] does not. If the search was stopped early, it says so.
pub fn render_conclusion(ledger: &Ledger, style: Style) -> String {
    drawn(style, |style, out| {
        if ledger.provenance.partial {
            out.push('\n');
            parts::loud(style, "PARTIAL: stopped early; not all changes were tried.", out);
        }
        parts::verdict(style, ledger, out);
        parts::what_ifs(style, ledger, out);
        concluded(style, ledger, out);
    })
}

fn drawn(style: Style, draw: impl FnOnce(&Style, &mut String)) -> String {
    let mut out = String::new();
    draw(&Style { width: style.width.max(WIDTH_MIN), ..style }, &mut out);
    out
}

/// Paths, resources, and what they did over time.
fn measured(style: &Style, ledger: &Ledger, out: &mut String) {
    let order = shape::paths_by_weight(ledger);
    let mut detailed: Vec<usize> = order.iter().copied().take(PATHS_DETAILED).collect();
    detailed.sort_unstable();
    if ledger.paths.len() > PATHS_DETAILED {
        parts::paths(style, ledger, &order, out);
    }
    for place in detailed {
        path(style, ledger, &ledger.paths[place], out);
    }
    parts::resources(style, ledger, out);
    waits::waits(style, ledger, out);
    counts::transfers(style, ledger, out);
    series(style, ledger, out);
}

/// What else was counted or estimated, and where all of it comes from.
fn concluded(style: &Style, ledger: &Ledger, out: &mut String) {
    connection::connection(style, ledger, out);
    counts::levels(style, ledger, out);
    counts::estimates(style, ledger, out);
    counts::counters(style, ledger, out);
    parts::footer(style, ledger, out);
}

fn path(style: &Style, ledger: &Ledger, path: &Path, out: &mut String) {
    heading(style, "PATH", &path_name(path), out);
    drawing::draw(style, ledger, path, out);
    if !path.stages.is_empty() {
        out.push('\n');
        stages::draw(style, ledger, path, out);
    }
    out.push('\n');
    totals(style, path, out);
}

/// What went in, what came out, and how late.
fn totals(style: &Style, path: &Path, out: &mut String) {
    let totals = &path.totals;
    let packets = |packets| figures::plural(packets, "packet");
    let amount =
        |count: Count| format!("{}, {}", packets(count.packets), figures::size(count.bytes));
    let mut traffic = Vec::new();
    traffic.extend(totals.offered.map(|offered| ("offered", amount(offered))));
    traffic.push(("delivered", amount(totals.delivered)));
    for (name, number) in [
        ("dropped", totals.dropped.map(|dropped| dropped.packets)),
        ("held at the end", totals.held),
        ("reordered", totals.reordered),
        ("corrupted", totals.corrupted),
    ] {
        let some = number.filter(|&number| number > 0);
        traffic.extend(some.map(|number| (name, packets(number))));
    }
    parts::joined(style, "  ", &traffic, Ink::Plain, out);
    let mut flow = vec![("goodput", figures::rate(totals.goodput))];
    flow.extend(totals.loss.map(|loss| ("loss", figures::share(loss))));
    if totals.delivered.packets == 0 {
        return parts::joined(style, "  ", &flow, Ink::Plain, out);
    }
    if let Some(multiple) = totals.memory_multiple.filter(|&multiple| multiple > 0.0) {
        let multiple = figures::significant(multiple);
        flow.push(("memory multiple", format!("{multiple} B/B")));
    }
    parts::joined(style, "  ", &flow, Ink::Plain, out);
    let of = |part: fn(Latency) -> Option<f64>| totals.latency.and_then(part);
    let times = [
        ("latency mean", of(|latency| Some(latency.mean))),
        ("p50", of(|latency| latency.p50)),
        ("p99", of(|latency| latency.p99)),
        ("max", of(|latency| latency.max)),
        ("jitter", totals.jitter),
    ];
    let known = times.into_iter().filter_map(|(name, time)| Some((name, figures::time(time?))));
    let times: Vec<(&str, String)> = known.collect();
    parts::joined(style, "  ", &times, Ink::Plain, out);
    spread(style, path, out);
    if let Some(Deadlines { made, met, late }) = totals.deadlines {
        let deadlines = [
            ("deadlines", format!("{} of {} met", figures::count(met), figures::count(made))),
            ("late", figures::count(late)),
            ("lost or in flight", figures::count(made.saturating_sub(met + late))),
        ];
        parts::joined(style, "  ", &deadlines, Ink::Plain, out);
    }
}

/// Quantities over time: from the least to the greatest value, and the greatest of each part of the run.
fn series(style: &Style, ledger: &Ledger, out: &mut String) {
    let all: Vec<&Series> = ledger.series.iter().filter(|one| !one.steps.is_empty()).collect();
    if all.is_empty() {
        return;
    }
    heading(style, "OVER TIME", "least to greatest; each mark the greatest of a part", out);
    let value = |series: &Series, value: f64| match series.unit.as_str() {
        "s" => figures::time(value),
        unit => format!("{value:.0} {unit}"),
    };
    for one in all.iter().take(SERIES_MAX) {
        let least = one.steps.iter().map(|step| step.least).fold(f64::INFINITY, f64::min);
        let most = one.steps.iter().map(|step| step.most).fold(0.0, f64::max);
        let facts = [
            ("", one.name.clone()),
            ("", format!("{} to {}", value(one, least), value(one, most))),
            ("", sparks(style, one, most)),
        ];
        parts::joined(style, "  ", &facts, Ink::Plain, out);
    }
    if all.len() > SERIES_MAX {
        let more = all.len() - SERIES_MAX;
        parts::joined(style, "  ", &[("and", format!("{more} more"))], Ink::Dim, out);
    }
}

/// The greatest value of each part of the run as a row of bars.
fn sparks(style: &Style, series: &Series, most: f64) -> String {
    let levels: Vec<char> = style.pick("▁▂▃▄▅▆▇█", "._-~=+*#").chars().collect();
    let parts = series.steps.len().min(SPARKS);
    let mark = |part: usize| {
        let (from, to) =
            (part * series.steps.len() / parts, (part + 1) * series.steps.len() / parts);
        let top = series.steps[from..to].iter().map(|step| step.most).fold(0.0, f64::max);
        let share = if most > 0.0 { top / most } else { 0.0 };
        levels[((share * levels.len() as f64) as usize).min(levels.len() - 1)]
    };
    (0..parts).map(mark).collect()
}

/// The shares of the distribution of latency that the totals do not have.
fn spread(style: &Style, path: &Path, out: &mut String) {
    let shown = path.latencies.iter().filter(|one| SHARES.contains(&one.share));
    let facts: Vec<(&str, String)> = shown
        .map(|one| ("", format!("{:.0} % {}", one.share * 100.0, figures::time(one.latency))))
        .collect();
    if !facts.is_empty() {
        parts::joined(style, "  latency within: ", &facts, Ink::Dim, out);
    }
}

/// A path and its class, where it has one.
fn path_name(path: &Path) -> String {
    match path.class.is_empty() {
        true => path.name.clone(),
        false => format!("{} · {}", path.name, path.class),
    }
}

/// An empty line, then a title and its explanation.
fn heading(style: &Style, title: &str, about: &str, out: &mut String) {
    let about = style.clean(&about.replace('·', style.pick("·", "-")));
    let about = style.elide(&about, style.width.saturating_sub(title.len() + 2));
    out.push('\n');
    out.push_str(&style.ink(Ink::Bold, title));
    if !about.is_empty() {
        out.push_str("  ");
        out.push_str(&about);
    }
    out.push('\n');
}
