//! What each change would buy: predicted as a bar, measured as a mark beside it, or as the bar where nothing is
//! predicted.

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
    let applied = ranked.iter().all(|one| one.predicted.is_none());
    out.push_str(match applied {
        true => "What each change brought when it was applied, best first.</span>",
        false => "What each change would buy, best first.</span>",
    });
    if let Some(share) = ranked[0].share {
        out.push_str(&format!(
            "<span>Found by repeating {:.0} % of the run with each; with those after the best, \
             less.</span>",
            share * 100.0
        ));
    }
    if ranked.iter().any(|one| mark_gain(one).is_some()) {
        out.push_str(
            "<span><svg class=\"bar\"><path class=\"measured\" d=\"M9-1l5 6-5 6-5-6z\"/></svg>\
             measured, where it was applied</span>",
        );
    }
    out.push_str("</p>\n");
    let (low, high) = range(&ranked);
    let open = ranked.len().min(CHANGES_OPEN);
    bars(&ranked[..open], (low, high), applied, out);
    if ranked.len() > open {
        let more = ranked.len() - open;
        out.push_str(&format!("<details><summary>{more} more changes</summary>\n"));
        bars(&ranked[open..], (low, high), applied, out);
        out.push_str("</details>\n");
    }
    out.push_str("<details><summary>Table of what-ifs</summary>\n");
    out.push_str(&what_ifs_table(&ranked));
    out.push_str("</details>\n</section>\n");
}

/// The span of the axis, in gains: zero, and all that was predicted or measured.
fn range(ranked: &[&WhatIf]) -> (f64, f64) {
    let gains = || ranked.iter().flat_map(|one| [bar_gain(one), mark_gain(one)]).flatten();
    let low = gains().fold(0.0, f64::min);
    let high = gains().fold(0.0, f64::max);
    if high - low > 1e-9 { (low, high) } else { (0.0, 1.0) }
}

/// The gain that belongs to a value of the metric.
fn gain_at(one: &WhatIf, value: f64) -> Option<f64> {
    let known = one.measured.or(one.predicted)? - one.baseline;
    // Only what made the ledger knows whether more is better; the sign of the gain says so.
    let scale = if known.abs() > 0.0 { one.gain / known } else { 1.0 / one.baseline.abs() };
    Some((value - one.baseline) * scale).filter(|gain| gain.is_finite())
}

/// What the bar shows: the predicted gain, else the measured one.
fn bar_gain(one: &WhatIf) -> Option<f64> {
    one.predicted.map_or(Some(one.gain), |value| gain_at(one, value))
}

/// What the mark shows: the measured gain beside a predicted one.
fn mark_gain(one: &WhatIf) -> Option<f64> {
    one.predicted.and(one.measured).and_then(|value| gain_at(one, value))
}

/// `applied`: all were measured and none predicted.
fn bars(ranked: &[&WhatIf], span: (f64, f64), applied: bool, out: &mut String) {
    let words = |one: &&WhatIf| format!("{}: {}", one.change, figures::gain(one.gain));
    let label = escape(&ranked.iter().map(words).collect::<Vec<String>>().join("; "));
    out.push_str(&format!("<div class=\"gains\" role=\"img\" aria-label=\"Gains: {label}\">\n"));
    ranked.iter().for_each(|one| bar(one, span, applied, out));
    out.push_str("</div>\n");
}

fn bar(one: &WhatIf, (low, high): (f64, f64), applied: bool, out: &mut String) {
    let place = |gain: f64| (gain - low) / (high - low);
    let gain = bar_gain(one).unwrap_or(one.gain);
    let (from, to) = (place(gain.min(0.0)), place(gain.max(0.0)));
    let value = |value: f64| value_of(one, value);
    let class = if gain > 0.0 { "good" } else { "worse" };
    let (shown, how) = match (one.predicted, one.measured) {
        (Some(predicted), _) => (predicted, "predicted"),
        (None, measured) => (measured.unwrap_or(one.baseline), "measured"),
    };
    let title = format!(
        "{}: {} from {} to {} {how}",
        escape(&one.change),
        escape(&one.metric),
        value(one.baseline),
        value(shown)
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
    let mut note = format!("{} {} → {}", escape(&one.metric), value(one.baseline), value(shown));
    if one.predicted.is_none() && !applied {
        note.push_str(", measured");
    }
    if let (Some(measured), Some(gain)) = (one.measured, mark_gain(one)) {
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
        figure(&figures::gain(one.gain), one.gain, "of the baseline", &gain_words(one))
    ));
}

/// Where the gain comes from.
fn gain_words(one: &WhatIf) -> String {
    let how = if one.measured.is_some() { "measured" } else { "predicted" };
    format!("{how} gain")
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
            one.predicted.map_or("not predicted".to_owned(), |value| {
                exact(value, "with the change, by the model")
            }),
            figure(&figures::gain(one.gain), one.gain, "of the baseline", &gain_words(one)),
            one.measured.map_or("not applied".to_owned(), |value| exact(value, "measured")),
            one.error.map_or(String::new(), |error| share_figure(error, "of what was measured")),
        ];
        (false, cells)
    };
    let rows: Vec<_> = ranked.iter().map(row).collect();
    let titles = ["change", "metric", "now", "predicted", "gain", "measured", "error"];
    table("Best first", &titles, &rows)
}
