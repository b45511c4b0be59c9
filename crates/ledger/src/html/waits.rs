//! How long data and threads waited between the stages.

use super::table;
use super::text::escape;
use crate::{Ledger, Wait, figures};

/// A row for each kind of waiting.
pub(super) fn section(ledger: &Ledger, out: &mut String) {
    let Some(waits) = &ledger.waits else { return };
    let words = escape(&waits.facts().join(", "));
    out.push_str("<section aria-label=\"Waits\">\n<h2>Waits</h2>\n<p class=\"key\">");
    out.push_str(&format!("By the kernel's tracepoints: {words}.</p>\n"));
    let titles = ["what waited", "waits", "mean", "p50", "p99", "longest"];
    let row = |wait: &Wait| {
        let times = [wait.mean, wait.p50, wait.p99, wait.max].map(figures::time);
        let named = [escape(&wait.name), figures::count(wait.count)];
        (false, named.into_iter().chain(times).collect())
    };
    let rows: Vec<_> = waits.rows.iter().map(row).collect();
    out.push_str(&table("Waits", &titles, &rows));
    out.push_str("</section>\n");
}
