//! What each change would buy: predicted as a bar, measured as a mark beside it.

use super::table;
use super::text::{escape, figure, name, percent, share_figure};
use crate::{Ledger, WhatIf};
use crate::{figures, shape};

/// Changes that are shown before the others unfold.
const CHANGES_OPEN: usize = 12;

/// The picture and, behind it, the table.
pub(super) fn section(ledger: &Ledger, out: &mut String) {
    let ranked = shape::ranked(ledger);
    if ranked.is_empty() {
        return;
    }
    out.push_str("<section aria-label=\"What if\">\n<h2>What if</h2>\n<p class=\"key\"><span>");
    out.push_str("What each change would buy, best first.</span>");
    if ranked.iter().any(|one| one.measured.is_some()) {
        out.push_str(
            "<span><svg class=\"bar\"><path class=\"measured\" d=\"M9-1l5 6-5 6-5-6z\"/></svg>\
             measured, where it was applied</span>",
        );
    }
    out.push_str("</p>\n");
    let (low, high) = range(&ranked);
    let open = ranked.len().min(CHANGES_OPEN);
    bars(&ranked[..open], low, high, out);
    if ranked.len() > open {
        let more = ranked.len() - open;
        out.push_str(&format!("<details><summary>{more} more changes</summary>\n"));
        bars(&ranked[open..], low, high, out);
        out.push_str("</details>\n");
    }
    out.push_str("<details><summary>Table of what-ifs</summary>\n");
    out.push_str(&what_ifs_table(&ranked));
    out.push_str("</details>\n</section>\n");
}

/// The span of the axis, in gains: zero, and all that was predicted or measured.
fn range(ranked: &[&WhatIf]) -> (f64, f64) {
    let gains = || ranked.iter().flat_map(|one| [Some(one.gain), measured_gain(one)]).flatten();
    let low = gains().fold(0.0, f64::min);
    let high = gains().fold(0.0, f64::max);
    if high - low > 1e-9 { (low, high) } else { (0.0, 1.0) }
}

/// The measured gain, on the scale of the predicted one.
fn measured_gain(one: &WhatIf) -> Option<f64> {
    let change = one.predicted - one.baseline;
    let measured = one.measured? - one.baseline;
    // Only what made the ledger knows whether more is better; the sign of the gain says so.
    let scale = if change.abs() > 0.0 { one.gain / change } else { 1.0 / one.baseline.abs() };
    Some(measured * scale).filter(|gain| gain.is_finite())
}

fn bars(ranked: &[&WhatIf], low: f64, high: f64, out: &mut String) {
    let words = |one: &&WhatIf| format!("{}: {}", one.change, figures::gain(one.gain));
    let label = escape(&ranked.iter().map(words).collect::<Vec<String>>().join("; "));
    out.push_str(&format!("<div class=\"gains\" role=\"img\" aria-label=\"Gains: {label}\">\n"));
    ranked.iter().for_each(|one| bar(one, low, high, out));
    out.push_str("</div>\n");
}

fn bar(one: &WhatIf, low: f64, high: f64, out: &mut String) {
    let place = |gain: f64| (gain - low) / (high - low);
    let (from, to) = (place(one.gain.min(0.0)), place(one.gain.max(0.0)));
    let value = |value: f64| value_of(one, value);
    let class = if one.gain > 0.0 { "good" } else { "worse" };
    let title = format!(
        "{}: {} from {} to {} predicted",
        escape(&one.change),
        escape(&one.metric),
        value(one.baseline),
        value(one.predicted)
    );
    let mut drawn = format!(
        "<rect class=\"{class}\" x=\"{}\" y=\"6\" width=\"{}\" height=\"14\"><title>{title}</title>\
         </rect>",
        percent(from),
        percent(to - from)
    );
    let zero = percent(place(0.0));
    drawn.push_str(&format!(
        "<line class=\"zero\" x1=\"{zero}\" x2=\"{zero}\" y1=\"1\" y2=\"25\"/>"
    ));
    let mut note =
        format!("{} {} → {}", escape(&one.metric), value(one.baseline), value(one.predicted));
    if let (Some(measured), Some(gain)) = (one.measured, measured_gain(one)) {
        let error =
            one.error.map_or(String::new(), |error| format!(", error {}", figures::gain(error)));
        let words = format!("measured {}{error}", value(measured));
        drawn.push_str(&format!(
            "<svg x=\"{}\" y=\"13\" width=\"1\" height=\"1\" overflow=\"visible\"><path \
             class=\"measured\" d=\"M0-7l5 7-5 7-5-7z\"><title>{words}</title></path></svg>",
            percent(place(gain))
        ));
        note.push_str(&format!("; {words}"));
    }
    out.push_str(&format!(
        "<div class=\"row\"><div class=\"label\">{}<small>{note}</small></div>\
         <svg class=\"bar\" aria-hidden=\"true\">{drawn}</svg>\
         <div class=\"value\">{}</div></div>\n",
        name(&one.change),
        figure(&figures::gain(one.gain), one.gain, "of the baseline", "predicted gain")
    ));
}

/// A value in its unit; HTML.
fn value_of(one: &WhatIf, value: f64) -> String {
    escape(&figures::metric(&one.metric, value).replace(" us", " µs"))
}

fn what_ifs_table(ranked: &[&WhatIf]) -> String {
    let row = |one: &&WhatIf| {
        let exact =
            |value: f64, what: &str| figure(&value_of(one, value), value, "in SI units", what);
        let cells = vec![
            escape(&one.change),
            escape(&one.metric),
            exact(one.baseline, "in this run"),
            exact(one.predicted, "with the change, by the model"),
            figure(&figures::gain(one.gain), one.gain, "of the baseline", "predicted gain"),
            one.measured.map_or("not applied".to_owned(), |value| exact(value, "measured")),
            one.error.map_or(String::new(), |error| share_figure(error, "of what was measured")),
        ];
        (false, cells)
    };
    let rows: Vec<_> = ranked.iter().map(row).collect();
    let titles = ["change", "metric", "now", "predicted", "gain", "measured", "error"];
    table("Best first", &titles, &rows)
}
