//! How long data and threads waited between the stages.

use super::paint::Ink;
use super::parts::joined;
use super::table::{Cell, Column, Table};
use super::{Style, heading};
use crate::{Ledger, Wait, figures};

/// Rows that are shown.
const WAITS_MAX: usize = 16;

/// A line for each kind of waiting.
pub(super) fn waits(style: &Style, ledger: &Ledger, out: &mut String) {
    let Some(waits) = &ledger.waits else { return };
    heading(style, "WAITS", "between the stages, by the kernel's tracepoints", out);
    let facts: Vec<_> = waits.facts().into_iter().map(|fact| ("", fact)).collect();
    joined(style, "  ", &facts, Ink::Dim, out);
    let columns = vec![
        Column::name("what waited", 12, 0),
        Column::number("waits", "how often", 1),
        Column::number("mean", "mean wait", 2),
        Column::number("p50", "median wait", 0),
        Column::number("p99", "p99 of waits", 0),
        Column::number("longest", "longest wait", 3),
    ];
    let row = |wait: &Wait| {
        let mut cells = vec![Cell::new(style.clean(&wait.name))];
        cells.push(Cell::new(figures::count_cell(wait.count)));
        let times = [wait.mean, wait.p50, wait.p99, wait.max];
        cells.extend(times.map(|time| Cell::new(figures::time_cell(time))));
        cells
    };
    let rows = waits.rows.iter().take(WAITS_MAX).map(row).collect();
    Table { columns, rows }.draw(style, out);
}
