//! The layers of paths, as a table.

use super::paint::Ink;
use super::table::{Cell, Column, Table};
use super::{PATHS_DETAILED, Style, WIDTH_MIN, heading, parts, path_name};
use crate::layers::{Layer, by_function, chain, layers};
use crate::{Ledger, figures, shape};

/// Draws what each stage of the weightiest paths is for, the jitter that it adds, and the packets that wait there.
pub fn render_layers(ledger: &Ledger, style: Style) -> String {
    let style = Style { width: style.width.max(WIDTH_MIN), ..style };
    let mut out = String::new();
    for at in shape::paths_by_weight(ledger).into_iter().take(PATHS_DETAILED) {
        let path = &ledger.paths[at];
        let layers = layers(ledger, path);
        if layers.is_empty() {
            continue;
        }
        heading(&style, "LAYERS", &path_name(path), &mut out);
        let columns = vec![
            Column::name("stage", 12, 0),
            Column::name("function", 10, 0),
            Column::number("time", "mean time there", 1),
            Column::number("jitter", "99th percentile less median", 0),
            Column::number("waiting", "packets that wait there, on average", 0),
        ];
        let row = |layer: &Layer<'_>| {
            let or_dash = |text: Option<String>| Cell::new(text.unwrap_or_else(|| "-".to_owned()));
            vec![
                Cell::new(style.clean(&layer.stage.name)),
                Cell::new(layer.function.name()),
                Cell::new(figures::time_cell(layer.time)),
                or_dash(layer.jitter.map(figures::time_cell)),
                or_dash(layer.waiting.map(figures::significant)),
            ]
        };
        Table { columns, rows: layers.iter().map(row).collect() }.draw(&style, &mut out);
        let mut facts: Vec<(&str, String)> = by_function(&layers)
            .into_iter()
            .map(|(function, time)| (function.name(), figures::time(time)))
            .collect();
        if let Some(packets) = chain(&layers) {
            facts.push((
                "in all buffers of the path",
                format!("{} packets", figures::significant(packets)),
            ));
        }
        parts::joined(&style, "  ", &facts, Ink::Plain, &mut out);
    }
    out
}
