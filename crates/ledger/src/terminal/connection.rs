//! What a host's connection costs.

use super::table::{Cell, Column, Table};
use super::{Style, heading};
use crate::{Ledger, figures};

/// Parts that are listed.
const PARTS_MAX: usize = 24;

/// Part by part, and together.
pub(super) fn connection(style: &Style, ledger: &Ledger, out: &mut String) {
    let Some(connection) = &ledger.connection else { return };
    let what = format!("of a host, which gets {}", figures::rate(connection.delivered));
    heading(style, "CONNECTION", &what, out);
    let columns = vec![
        Column::name("part", 12, 0),
        Column::number("hosts", "hosts that share it", 3),
        Column::number("price", "a host's share of its price", 1),
        Column::number("$/(Gbit/s)", "price of a Gbit/s that is delivered", 0),
        Column::number("power", "a host's share of its power", 4),
        Column::number("W/(Gbit/s)", "power for a Gbit/s that is delivered", 2),
    ];
    let all = connection.rows();
    let shown = all.iter().take(PARTS_MAX).chain(all.last().filter(|_| all.len() > PARTS_MAX));
    let rows = shown.map(|row| row.iter().map(|cell| Cell::new(style.clean(cell))).collect());
    Table { columns, rows: rows.collect() }.draw(style, out);
}
