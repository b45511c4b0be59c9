//! A path stage by stage, in the terminal.

use super::Style;
use super::paint::{Ink, wrap};
use super::table::{Cell, Column, Table};
use crate::figures;
use crate::shape::{self, Line};
use crate::{Ledger, Path, Stage, Times};

/// Stages of a path that have a line of their own.
const STAGES_MAX: usize = 24;
/// Stages and reasons that are listed under the table.
const DROPS_MAX: usize = 4;
/// Length to which reasons are cut there.
const REASON_MAX: usize = 32;
/// On narrower terminals each stage stands for itself.
const NARROW: usize = super::WIDTH_COLUMNS;
/// Width of the bar of a stage's share; with the figure beside it, as wide as its title.
const BAR: usize = 9;

/// Draws the table, and under it what was dropped and why.
pub(super) fn draw(style: &Style, ledger: &Ledger, path: &Path, out: &mut String) {
    // If no stage blocked, a column of zeros would waste space.
    let held = |times: Times| times.p99.unwrap_or(0.0) + times.mean > 0.0;
    let blocked = path.stages.iter().any(|stage| stage.blocked.is_some_and(held));
    let dropped = path.stages.iter().any(|stage| shape::dropped(stage) > 0);
    let weights: Vec<f64> = path.stages.iter().map(|stage| weight(path, stage)).collect();
    let lines = shape::fold(&weights, STAGES_MAX);
    let mut above = None;
    let rows = lines.iter().map(|line| match line {
        Line::Shown(place) => {
            let stage = &path.stages[*place];
            let name = below(above, &stage.name, style.width < NARROW);
            above = Some(stage.name.as_str());
            row(style, ledger, path, stage, name)
        }
        Line::Folded(range) => {
            above = None;
            folded(style, path, &path.stages[range.clone()])
        }
    });
    let mut table = Table { columns: columns().to_vec(), rows: rows.collect() };
    // Usually each stage served exactly the packets delivered, which the totals already say.
    let uneven = path.stages.iter().any(|stage| stage.packets != path.totals.delivered.packets);
    // A live run knows only means of what happens inside the kernel.
    let wide = |times: Times| times.p99.is_some_and(|p99| p99 > 0.0);
    let parts = path.stages.iter().flat_map(|s| [s.wait, s.service, s.blocked]);
    let spread = parts.flatten().any(wide);
    let copied = path.stages.iter().any(|s| s.copies.unwrap_or(0) + s.touches.unwrap_or(0) > 0);
    let unused = |title: &str| match title {
        "blocked" => !blocked,
        "p99 " => !blocked || !spread,
        "p99" | " p99" => !spread,
        "c/t" => !copied,
        "drops" => !dropped,
        "packets" => !uneven,
        _ => false,
    };
    let kept: Vec<bool> = table.columns.iter().map(|column| !unused(column.title)).collect();
    let keep = |row: Vec<Cell>| row.into_iter().zip(&kept).filter(|c| *c.1).map(|c| c.0).collect();
    table.rows = table.rows.into_iter().map(keep).collect();
    let mut place = 0;
    table.columns.retain(|_| {
        place += 1;
        kept[place - 1]
    });
    table.draw(style, out);
    drops(style, path, out);
}

/// A stage's name under the one above it: the host or the link that both share is not repeated.
fn below(above: Option<&str>, name: &str, repeats: bool) -> String {
    let place = |name: &str| name.find([' ', '.']).map(|at| at + 1);
    let shared =
        place(name).filter(|&at| above.is_some_and(|above| above.get(..at) == name.get(..at)));
    match shared {
        Some(at) if !repeats => format!("  {}", &name[at..]),
        _ => name.to_owned(),
    }
}

/// The small stages are folded, never those that dropped.
fn weight(path: &Path, stage: &Stage) -> f64 {
    let mean = path.totals.latency_mean();
    let share = if mean > 0.0 { stage.mean() / mean } else { 0.0 };
    share + if shape::dropped(stage) > 0 { 1.0 } else { 0.0 }
}

fn columns() -> [Column; 13] {
    [
        Column::name("stage", 24, 0),
        Column::name("on", 14, 8),
        Column::number("packets", "packets", 9),
        Column::number("mean", "mean", 0),
        Column::bar("share of latency", 0),
        Column::number("wait", "wait", 1),
        Column::number("p99", "p99 of wait", 6),
        Column::number("service", "service", 2),
        Column::number(" p99", "p99 of service", 11),
        Column::number("blocked", "blocked", 4),
        Column::number("p99 ", "p99 of blocked", 10),
        Column::number("c/t", "copies/touches", 7),
        Column::number("drops", "drops", 3),
    ]
}

fn row(style: &Style, ledger: &Ledger, path: &Path, stage: &Stage, name: String) -> Vec<Cell> {
    let limits = stage.resource.is_some() && stage.resource.as_deref() == shape::limiting(ledger);
    let ink = if limits { Ink::Loud } else { Ink::Plain };
    let total = path.totals.latency_mean();
    let share = if total > 0.0 { stage.mean() / total } else { 0.0 };
    // Within the stage's own host the resource needs no other name.
    let host = stage.place.host.as_deref();
    let resource = stage.resource.as_deref().map(|name| shape::within(host, name));
    let resource = resource.map_or("-".to_owned(), |name| style.clean(name));
    let time = |seconds: f64| {
        let ink = if seconds > 0.0 { Ink::Plain } else { Ink::Dim };
        Cell::in_ink(figures::time_cell(seconds), ink)
    };
    let number = |number: u64| {
        let ink = if number > 0 { Ink::Plain } else { Ink::Dim };
        Cell::in_ink(figures::count_cell(number), ink)
    };
    let known = |seconds: Option<f64>| seconds.map_or_else(unknown, time);
    let pair = |times: Option<Times>| {
        [known(times.map(|times| times.mean)), known(times.and_then(|times| times.p99))]
    };
    let [wait, wait_p99] = pair(stage.wait);
    let [service, service_p99] = pair(stage.service);
    let [blocked, blocked_p99] = pair(stage.blocked);
    vec![
        Cell::in_ink(style.clean(&name), ink),
        Cell::in_ink(resource, ink),
        number(stage.packets),
        time(stage.mean()),
        Cell::in_ink(share_bar(style, share), ink),
        wait,
        wait_p99,
        service,
        service_p99,
        blocked,
        blocked_p99,
        work(stage.copies, stage.touches),
        number(shape::dropped(stage)),
    ]
}

fn share_bar(style: &Style, share: f64) -> String {
    format!("{} {:>6}", style.bar(share, BAR), figures::share(share))
}

fn unknown() -> Cell {
    Cell::in_ink("-".to_owned(), Ink::Dim)
}

fn work(copies: Option<u32>, touches: Option<u32>) -> Cell {
    let (Some(copies), Some(touches)) = (copies, touches) else { return unknown() };
    let ink = if copies + touches > 0 { Ink::Plain } else { Ink::Dim };
    Cell::in_ink(format!("{copies}/{touches}"), ink)
}

fn folded(style: &Style, path: &Path, stages: &[Stage]) -> Vec<Cell> {
    let mean: f64 = stages.iter().map(Stage::mean).sum();
    let total = path.totals.latency_mean();
    let share = if total > 0.0 { mean / total } else { 0.0 };
    let sum = |part: fn(&Stage) -> Option<Times>| {
        let mut known = stages.iter().filter_map(part).map(|times| times.mean).peekable();
        let some = known.peek().is_some();
        let sum: f64 = known.sum();
        if some { Cell::in_ink(figures::time_cell(sum), Ink::Dim) } else { unknown() }
    };
    let empty = || Cell::new("");
    let text = format!("{} {} more stages", style.pick("…", "..."), stages.len());
    vec![
        Cell::in_ink(text, Ink::Dim),
        empty(),
        empty(),
        Cell::in_ink(figures::time_cell(mean), Ink::Dim),
        Cell::in_ink(share_bar(style, share), Ink::Dim),
        sum(|stage| stage.wait),
        empty(),
        sum(|stage| stage.service),
        empty(),
        sum(|stage| stage.blocked),
        empty(),
        work(stages.iter().map(|one| one.copies).sum(), stages.iter().map(|one| one.touches).sum()),
        empty(),
    ]
}

/// Packets dropped, by stage and reason, most first.
fn drops(style: &Style, path: &Path, out: &mut String) {
    let short = |text: &str| style.elide(&style.clean(text), REASON_MAX);
    let reasons = |stage: &&Stage| {
        let one = |(reason, number): (&String, &u64)| {
            format!("{} {}", figures::count(*number), short(reason))
        };
        let all: Vec<String> = stage.drops.iter().take(DROPS_MAX).map(one).collect();
        format!("{} ({})", style.clean(&stage.name), all.join(", "))
    };
    let mut dropping: Vec<&Stage> =
        path.stages.iter().filter(|stage| shape::dropped(stage) > 0).collect();
    if dropping.is_empty() {
        return;
    }
    dropping.sort_by_key(|stage| std::cmp::Reverse(shape::dropped(stage)));
    let listed: Vec<String> = dropping.iter().take(DROPS_MAX).map(reasons).collect();
    let more = match dropping.len() - listed.len() {
        0 => String::new(),
        more => format!("; and at {more} more stages"),
    };
    for line in wrap(&format!("dropped at {}{more}", listed.join("; ")), style.width - 2) {
        out.push_str(&format!("  {line}\n"));
    }
}
