//! What a host's connection costs.

use super::table;
use super::text::escape;
use crate::{Ledger, figures};

/// Part by part, and together.
pub(super) fn section(ledger: &Ledger, out: &mut String) {
    let Some(connection) = &ledger.connection else { return };
    out.push_str("<section aria-label=\"Connection\">\n<h2>Connection</h2>\n<p class=\"key\">");
    let rate = figures::rate(connection.delivered);
    out.push_str(&format!(
        "A host's, which gets {rate}; price and power are a host's share.</p>\n"
    ));
    let titles = ["part", "hosts that share it", "price", "a Gbit/s", "power", "a Gbit/s"];
    let cells = |row: &[String; 6]| (false, row.iter().map(|cell| escape(cell)).collect());
    let rows: Vec<_> = connection.rows().iter().map(cells).collect();
    out.push_str(&table("Connection", &titles, &rows));
    out.push_str("</section>\n");
}
