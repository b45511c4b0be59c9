//! Two ledgers as one page: totals, then stages and resources with the largest change first.

use super::text::{escape, figure, name};
use super::{begin, end, table};
use crate::compare::{Comparison, Kind, Line};

/// Lines of a part that are shown before the others unfold.
const LINES_OPEN: usize = 16;

/// Draws a comparison as a complete HTML document, which loads nothing from the network.
pub fn render(comparison: &Comparison) -> String {
    let [first, second] = &comparison.names;
    let mut out = begin(&format!("{first} beside {second}"));
    out.push_str("<header>\n<h1>");
    out.push_str(&format!("A: {} <br> B: {}", escape(first), escape(second)));
    out.push_str("</h1>\n</header>\n<main>\n");
    verdicts(comparison, &mut out);
    totals(&comparison.totals, &mut out);
    let key = "Mean time of a delivered packet; the largest change first.";
    part("Stages", key, &comparison.stages, &mut out);
    let key = "Busy and blocked share of the time; the largest change first.";
    part("Resources", key, &comparison.resources, &mut out);
    out.push_str("</main>\n");
    let json = serde_json::to_string(comparison);
    let json = json.expect("text and plain numbers always have a JSON");
    end(&mut out, "comparison", &json);
    out
}

fn verdicts(comparison: &Comparison, out: &mut String) {
    out.push_str("<section class=\"verdict quiet\" aria-label=\"Verdicts\">\n");
    for place in [0, 1] {
        let (letter, title) = (["A", "B"][place], escape(&comparison.titles[place]));
        let words = match comparison.verdicts[place].as_str() {
            "" => "no verdict: run without what-ifs".to_owned(),
            words => escape(words),
        };
        out.push_str(&format!("<p><b>{letter}</b> {title}: {words}</p>\n"));
    }
    if comparison.same_experiment {
        out.push_str("<p class=\"soft\">Both are of the same experiment, changes and seed.</p>\n");
    }
    out.push_str("</section>\n");
}

fn cells(line: &Line) -> Vec<String> {
    let what = format!("{}, {}", line.of, line.what);
    let cell = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) => figure(&shown(line.kind, value), value, line.kind.unit(), &what),
    };
    let change = escape(&line.change());
    vec![cell(line.first), cell(line.second), change]
}

fn shown(kind: Kind, value: f64) -> String {
    escape(&kind.words(value)).replace(" us", " µs").replace(' ', "\u{a0}")
}

fn totals(lines: &[Line], out: &mut String) {
    out.push_str("<section aria-label=\"Totals\">\n<h2>Totals</h2>\n");
    for lines in lines.chunk_by(|a, b| a.of == b.of) {
        let row = |line: &Line| {
            let mut row = vec![escape(&line.what)];
            row.extend(cells(line));
            (false, row)
        };
        let rows: Vec<(bool, Vec<String>)> = lines.iter().map(row).collect();
        out.push_str(&table(&escape(&lines[0].of), &["", "A", "B", "change"], &rows));
    }
    out.push_str("</section>\n");
}

/// Bars of both, one above the other, and behind them the table.
fn part(title: &str, key: &str, lines: &[Line], out: &mut String) {
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("<section aria-label=\"{title}\">\n<h2>{title}</h2>\n"));
    out.push_str(&format!("<p class=\"key\">{key} Upper bar: A; lower bar: B.</p>\n"));
    let both = |line: &Line| [line.first, line.second].into_iter().flatten().fold(0.0, f64::max);
    let longest = match lines[0].kind {
        Kind::Share => 1.0,
        _ => lines.iter().map(both).fold(f64::MIN_POSITIVE, f64::max),
    };
    let open = lines.len().min(LINES_OPEN);
    bars(&lines[..open], longest, out);
    if lines.len() > open {
        let more = lines.len() - open;
        out.push_str(&format!("<details><summary>{more} more</summary>\n"));
        bars(&lines[open..], longest, out);
        out.push_str("</details>\n");
    }
    let row = |line: &Line| {
        let mut row = vec![name(&line.of)];
        row.extend(cells(line));
        (false, row)
    };
    let rows: Vec<(bool, Vec<String>)> = lines.iter().map(row).collect();
    out.push_str(&format!("<details><summary>Table of {}</summary>\n", title.to_lowercase()));
    out.push_str(&table(title, &["", "A", "B", "change"], &rows));
    out.push_str("</details>\n</section>\n");
}

fn bars(lines: &[Line], longest: f64, out: &mut String) {
    let label: Vec<String> =
        lines.iter().map(|line| format!("{} {}", line.of, line.change())).collect();
    let label = escape(&label.join(", "));
    out.push_str(&format!("<div role=\"img\" aria-label=\"{label}\">\n"));
    for line in lines {
        let bar = |place: usize, value: Option<f64>| {
            let (letter, fill) = (["A", "B"][place], ["soft", "service"][place]);
            let value = value.unwrap_or(0.0);
            let width = (value / longest * 100.0).clamp(0.0, 100.0);
            let title = format!("{letter}: {}", shown(line.kind, value));
            format!(
                "<span title=\"{title}\" style=\"display:block;height:11px;margin:1px 0;\
                 min-width:1px;width:{width:.2}%;background:var(--{fill})\"></span>"
            )
        };
        let (first, second) = (bar(0, line.first), bar(1, line.second));
        let change = escape(&line.change()).replace(' ', "\u{a0}");
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |v| shown(line.kind, v));
        let (before, now) = (cell(line.first), cell(line.second));
        out.push_str(&format!(
            "<div class=\"row\"><span class=\"label\">{}</span>\
             <span class=\"bar\">{first}{second}</span>\
             <span class=\"value\">{now}<small>from {before}, {change}</small></span></div>\n",
            name(&line.of)
        ));
    }
    out.push_str("</div>\n");
}
