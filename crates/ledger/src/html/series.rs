//! Quantities over time: token rotation, which station holds the token, skew of stripes.
//!
//! A band from the least to the greatest value of each step, with the greatest as a line; a quantity that
//! has no SI unit (a station's number) is drawn as bars from least to greatest.

use super::table;
use super::text::{escape, figure, time, time_figure};
use crate::figures;
use crate::{Ledger, Series, Step};

const WIDTH: f64 = 1180.0;
const HEIGHT: f64 = 170.0;
/// Margins for the labels at the left and below.
const LEFT: f64 = 90.0;
const BELOW: f64 = 22.0;
const ABOVE: f64 = 8.0;

/// One picture for each series that is not empty, each with its table.
pub(super) fn section(ledger: &Ledger, out: &mut String) {
    let all: Vec<&Series> = ledger.series.iter().filter(|one| !one.steps.is_empty()).collect();
    if all.is_empty() {
        return;
    }
    out.push_str("<section aria-label=\"Over time\">\n<h2>Over time</h2>\n");
    out.push_str(
        "<p class=\"key\">From the least to the greatest value of each step of time.</p>\n",
    );
    all.into_iter().for_each(|one| picture(one, out));
    out.push_str("</section>\n");
}

fn value(series: &Series, value: f64) -> String {
    match series.unit.as_str() {
        "s" => time(value),
        unit => format!("{} {value:.0}", escape(unit)),
    }
}

fn picture(series: &Series, out: &mut String) {
    let last = &series.steps[series.steps.len() - 1];
    let begin = series.steps[0].at;
    let end = last.at + series.step;
    let most = series.steps.iter().map(|step| step.most).fold(0.0, f64::max);
    let least = series.steps.iter().map(|step| step.least).fold(f64::INFINITY, f64::min);
    let scale = |number: f64, whole: f64| if whole > 0.0 { number / whole } else { 0.0 };
    let x = |at: f64| LEFT + (WIDTH - LEFT - 4.0) * scale(at - begin, end - begin);
    let y = |value: f64| ABOVE + (HEIGHT - ABOVE - BELOW) * (1.0 - scale(value, most));
    let name = escape(&series.name);
    let span = format!("from {} to {}", value(series, least), value(series, most));
    out.push_str(&format!("<figure>\n<figcaption>{name}</figcaption>\n"));
    out.push_str(&format!(
        "<svg class=\"series\" role=\"img\" aria-label=\"{name} {span}\" \
         viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\">\n"
    ));
    // Counts have no half steps.
    let lines: &[f64] = if series.unit == "s" { &[1.0, 0.5, 0.0] } else { &[1.0, 0.0] };
    for &part in lines {
        let (share, anchor) = (1.0 - part, most * part);
        let at = ABOVE + (HEIGHT - ABOVE - BELOW) * share;
        out.push_str(&format!(
            "<path class=\"axis\" d=\"M{LEFT:.0} {at:.1}H{WIDTH:.0}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT - 8.0,
            at + 4.0,
            value(series, anchor)
        ));
    }
    match series.unit.as_str() {
        "s" => band(series, &x, &y, out),
        _ => bars(series, &x, &y, out),
    }
    for (at, anchor) in [(begin, "start"), (end, "end")] {
        out.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>\n",
            x(at),
            HEIGHT - 4.0,
            time(at)
        ));
    }
    out.push_str("</svg>\n<details><summary>Table</summary>\n");
    out.push_str(&values(series));
    out.push_str("</details>\n</figure>\n");
}

/// Steps without a gap between them are one piece.
fn pieces(series: &Series) -> impl Iterator<Item = &[Step]> {
    let near = |a: &Step, b: &Step| b.at - a.at < 1.5 * series.step;
    series.steps.chunk_by(near)
}

fn band(series: &Series, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64, out: &mut String) {
    for piece in pieces(series) {
        let mut upper = String::new();
        let mut lower = String::new();
        for (place, step) in piece.iter().enumerate() {
            let (from, to) = (x(step.at), x(step.at + series.step));
            let first = if place == 0 { 'M' } else { 'L' };
            let most = y(step.most);
            upper.push_str(&format!("{first}{from:.1} {most:.1}H{to:.1}"));
            lower = format!("L{to:.1} {:.1}H{from:.1}{lower}", y(step.least));
        }
        out.push_str(&format!("<path class=\"band\" d=\"{upper}{lower}Z\"/>\n"));
        out.push_str(&format!("<path class=\"most\" d=\"{upper}\"/>\n"));
    }
}

fn bars(series: &Series, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64, out: &mut String) {
    let mut path = String::new();
    for piece in pieces(series) {
        for (place, step) in piece.iter().enumerate() {
            let (from, to) = (x(step.at), x(step.at + series.step));
            let first = if place == 0 { 'M' } else { 'L' };
            let (least, most) = (y(step.least), y(step.most));
            path.push_str(&format!("{first}{from:.1} {least:.1}V{most:.1}H{to:.1}"));
        }
    }
    out.push_str(&format!("<path class=\"held\" d=\"{path}\"/>\n"));
}

fn values(series: &Series) -> String {
    let cell = |number: f64, what: &str| match series.unit.as_str() {
        "s" => time_figure(number, what),
        unit => figure(&figures::significant(number), number, unit, what),
    };
    let row = |step: &Step| {
        let at = time_figure(step.at, "when the step begins");
        (false, vec![at, cell(step.least, "least value"), cell(step.most, "greatest value")])
    };
    let rows: Vec<_> = series.steps.iter().map(row).collect();
    table(&escape(&series.name), &["at", "least", "greatest"], &rows)
}
