//! The ledger as a table in the terminal: the verdict first, then why.
//!
//! No line is wider than asked. Where there is no room, names are shortened in their middle and
//! columns go, and the table says which; where there are too many rows, the small ones are folded
//! into one that says how many they are. Colour repeats what words and marks say already.

mod drawing;
mod paint;
mod parts;
mod stages;
mod table;

use crate::figures;
use crate::shape;
use crate::{Count, Deadlines, Ledger, Path, Totals};
use paint::Ink;

/// Paths that are shown stage by stage.
const PATHS_DETAILED: usize = 3;
/// Narrower than this nothing reads well, so nothing is drawn narrower.
const WIDTH_MIN: usize = 40;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// How many columns it has; at least 40 are used.
    pub width: usize,
    /// Whether ANSI colours may be used.
    pub color: bool,
    /// Whether it shows box and block characters; if not, only ASCII is printed.
    pub unicode: bool,
}

/// Draws a ledger.
///
/// ```
/// use lastmeter_engine::Graph;
/// use lastmeter_lab::close::{Close, close};
/// use lastmeter_ledger::terminal::{Style, render};
/// let outcome = Graph::new(1).build(1)?.finish()?;
/// let ledger = close(&outcome, Close { title: "an empty graph".into(), ..Close::default() });
/// let text = render(&ledger, Style { width: 80, color: false, unicode: true });
/// assert!(text.contains("an empty graph"));
/// # Ok::<(), lastmeter_engine::Error>(())
/// ```
pub fn render(ledger: &Ledger, style: Style) -> String {
    let style = Style { width: style.width.max(WIDTH_MIN), ..style };
    let mut out = String::new();
    parts::header(&style, ledger, &mut out);
    parts::verdict(&style, ledger, &mut out);
    let order = shape::paths_by_weight(ledger);
    let mut detailed: Vec<usize> = order.iter().copied().take(PATHS_DETAILED).collect();
    detailed.sort_unstable();
    if ledger.paths.len() > PATHS_DETAILED {
        parts::paths(&style, ledger, &order, &mut out);
    }
    for place in detailed {
        path(&style, ledger, &ledger.paths[place], &mut out);
    }
    parts::resources(&style, ledger, &mut out);
    parts::what_ifs(&style, ledger, &mut out);
    parts::footer(&style, ledger, &mut out);
    out
}

fn path(style: &Style, ledger: &Ledger, path: &Path, out: &mut String) {
    heading(style, "PATH", &path_name(path), out);
    drawing::draw(style, ledger, path, out);
    if !path.stages.is_empty() {
        out.push('\n');
        stages::draw(style, ledger, path, out);
    }
    out.push('\n');
    totals(style, &path.totals, out);
}

/// What went in, what came out, and how late.
fn totals(style: &Style, totals: &Totals, out: &mut String) {
    let packets = |packets| figures::plural(packets, "packet");
    let amount =
        |count: Count| format!("{}, {}", packets(count.packets), figures::size(count.bytes));
    let mut traffic =
        vec![("offered", amount(totals.offered)), ("delivered", amount(totals.delivered))];
    for (name, number) in [
        ("dropped", totals.dropped.packets),
        ("held at the end", totals.held),
        ("reordered", totals.reordered),
        ("corrupted", totals.corrupted),
    ] {
        if number > 0 {
            traffic.push((name, packets(number)));
        }
    }
    parts::joined(style, "  ", &traffic, Ink::Plain, out);
    let mut flow =
        vec![("goodput", figures::rate(totals.goodput)), ("loss", figures::share(totals.loss))];
    if totals.delivered.packets == 0 {
        return parts::joined(style, "  ", &flow, Ink::Plain, out);
    }
    // A live run without performance counters does not know it.
    if totals.memory_multiple > 0.0 {
        let multiple = figures::significant(totals.memory_multiple);
        flow.push(("over memory", format!("{multiple} bytes for each delivered")));
    }
    parts::joined(style, "  ", &flow, Ink::Plain, out);
    let latency = &totals.latency;
    let times = [
        ("latency mean", latency.mean),
        ("p50", latency.p50),
        ("p99", latency.p99),
        ("max", latency.max),
        ("jitter", totals.jitter),
    ];
    // Where only the mean is known, the others would be false zeros.
    let known = if latency.mean > 0.0 && latency.max == 0.0 { 1 } else { times.len() };
    let times: Vec<(&str, String)> =
        times[..known].iter().map(|(name, seconds)| (*name, figures::time(*seconds))).collect();
    parts::joined(style, "  ", &times, Ink::Plain, out);
    if let Some(Deadlines { made, met, late }) = totals.deadlines {
        let deadlines = [
            ("deadlines", format!("{} of {} met", figures::count(met), figures::count(made))),
            ("late", figures::count(late)),
            ("lost or on their way", figures::count(made.saturating_sub(met + late))),
        ];
        parts::joined(style, "  ", &deadlines, Ink::Plain, out);
    }
}

/// A path and its class, where it has one.
fn path_name(path: &Path) -> String {
    match path.class.is_empty() {
        true => path.name.clone(),
        false => format!("{} · {}", path.name, path.class),
    }
}

/// An empty line, then a title and what it is about.
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
