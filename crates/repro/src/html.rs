//! A reproduction as one page: a line per system, then each table and figure with our values beside the
//! published ones, and the documents' contradictions.

use crate::{Report, Row, Sheet, Summary, Tally, cells};
use lastmeter_ledger::drawing::{self, Drawing};
use lastmeter_ledger::html::{begin, end, escape, table_marking};
use lastmeter_ledger::plots::{Plot, figures};

/// Ratios of ours to the published value are drawn from this to its inverse; others are at the edge.
const RATIO_MIN: f64 = 0.5;
/// Width of the ratio chart, and height of a line.
const WIDTH: f64 = 640.0;
const ROW: f64 = 22.0;
const LEFT: f64 = 240.0;

/// Renders a report, with figures from our runs, as an HTML document that loads nothing from the network.
///
/// ```
/// use lastmeter_repro::html::render;
/// use lastmeter_repro::{Options, Shelf, run};
/// let page = render(&run("J-18", &Shelf::builtin(), Options { seed: 1 })?, &[], &[]);
/// assert!(page.contains("J-18"));
/// # Ok::<(), lastmeter_repro::Error>(())
/// ```
pub fn render(report: &Report, plots: &[Plot], drawings: &[Drawing]) -> String {
    let mut out = begin("Reproduced");
    out.push_str("<header>\n<h1>Published values and ours</h1>\n</header>\n<main>\n");
    summaries(&report.summaries(), &mut out);
    if !(plots.is_empty() && drawings.is_empty()) {
        out.push_str("<section aria-label=\"Figures\">\n");
        out.push_str(&figures(plots));
        out.push_str(&drawing::figures(drawings));
        out.push_str("</section>\n");
    }
    report.sheets.iter().for_each(|sheet| section(sheet, &mut out));
    out.push_str("</main>\n");
    let rows: Vec<&Row> = report.rows().collect();
    let json = serde_json::to_string(&rows);
    let json = json.expect("text and plain numbers can be written as JSON");
    end(&mut out, "rows", &json);
    out
}

fn summaries(summaries: &[Summary], out: &mut String) {
    out.push_str("<section class=\"verdict quiet\" aria-label=\"Systems\">\n");
    let percent = |error: Option<f64>| {
        error.map_or("-".to_owned(), |error| format!("{:.2}\u{a0}%", error * 100.0))
    };
    let row = |one: &Summary| {
        let right = |tally: Tally| format!("{} of {}", tally.right, tally.asked);
        let cells = vec![
            escape(&one.system),
            right(one.predicted),
            percent(one.error_median),
            percent(one.error_p90),
            percent(one.error_worst),
            right(one.shapes),
            right(one.derived),
            one.constants.fitted.to_string(),
            one.predicted_per_fitted().map_or("-".to_owned(), |ratio| format!("{ratio:.1}")),
            one.contradictions.to_string(),
        ];
        (one.predicted.right < one.predicted.asked, cells)
    };
    let rows: Vec<(bool, Vec<String>)> = summaries.iter().map(row).collect();
    let titles = [
        "system",
        "predicted",
        "median error",
        "9 in 10 below",
        "worst error",
        "shapes",
        "derived",
        "fitted constants",
        "predicted for each",
        "contradictions",
    ];
    out.push_str(&table_marking("short", "Systems", &titles, &rows));
    out.push_str("</section>\n");
}

fn section(sheet: &Sheet, out: &mut String) {
    let good = sheet.rows.iter().filter(|row| row.pass).count();
    let (name, title) = (escape(&sheet.name), escape(&sheet.title));
    let count = sheet.rows.len();
    out.push_str(&format!(
        "<section id=\"{name}\" aria-label=\"{title}\">\n<h2>{title}</h2>\n\
         <p class=\"soft\">{} ({}). {good} of {count} rows.</p>\n",
        escape(&sheet.question),
        escape(&sheet.system),
    ));
    ratios(sheet, out);
    for one in &sheet.contradictions {
        out.push_str(&format!(
            "<p class=\"warn\">The document contradicts itself ({}): {}. Its own numbers: {}</p>\n",
            escape(&one.rows.join(", ")),
            escape(&one.document),
            escape(&one.arithmetic)
        ));
    }
    let row = |row: &Row| {
        let [published, measured, error] = cells(row);
        let role = serde_json::to_value(row.role).unwrap_or_default();
        let hover = match row.note.as_str() {
            "" => row.section.clone(),
            note => format!("{}: {note}", row.section),
        };
        let unit = match row.unit.as_str() {
            "" => String::new(),
            unit => format!("\u{a0}{}", escape(unit)),
        };
        let cells = vec![
            format!(
                "<span title=\"{}\">{} {}</span>",
                escape(&hover),
                escape(&row.id),
                escape(&row.item)
            ),
            format!("{}{unit}", escape(&published)),
            format!("{}{unit}", escape(&measured)),
            escape(&error),
            escape(&row.tolerance),
            escape(role.as_str().unwrap_or_default()),
            if row.pass { "✓ yes" } else { "✗ no" }.to_owned(),
        ];
        (!row.pass, cells)
    };
    let rows: Vec<(bool, Vec<String>)> = sheet.rows.iter().map(row).collect();
    let titles = ["row", "published", "ours", "error", "tolerance", "role", "within"];
    let failing = rows.iter().filter(|(failing, _)| *failing).count();
    let open = if failing > 0 || count <= 12 { " open" } else { "" };
    out.push_str(&format!("<details{open}><summary>Table, {count} rows</summary>\n"));
    out.push_str(&table_marking("short", &title, &titles, &rows));
    out.push_str("</details>\n</section>\n");
}

/// The ratio of ours to the published value for each numeric row, on a logarithmic axis.
fn ratios(sheet: &Sheet, out: &mut String) {
    let ratio = |row: &Row| {
        let published = serde_json::to_value(&row.published).ok()?.as_f64()?;
        let bound = row.tolerance.starts_with(['<', '>']) && !row.tolerance.ends_with('%');
        let ratio = row.measured? / published;
        (!bound && ratio.is_finite() && ratio > 0.0).then_some((row.clone(), ratio))
    };
    let dots: Vec<(Row, f64)> = sheet.rows.iter().filter_map(ratio).collect();
    if dots.is_empty() {
        return;
    }
    let height = ROW * (dots.len() as f64 + 1.5);
    let x = |ratio: f64| {
        let share = (ratio / RATIO_MIN).ln() / (RATIO_MIN.recip() / RATIO_MIN).ln();
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - 20.0)
    };
    let words = format!("Ratio of ours to published, {} rows of {}", dots.len(), sheet.title);
    out.push_str(&format!(
        "<div class=\"table\"><svg class=\"drawing\" style=\"min-width:480px;max-width:760px\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(&words)
    ));
    for (mark, label) in
        [(0.5, "half"), (0.8, "0.8"), (1.0, "equal"), (1.25, "1.25"), (2.0, "twice")]
    {
        let at = x(mark);
        let class = if mark == 1.0 { "box" } else { "host" };
        out.push_str(&format!(
            "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{ROW}\" \
             y2=\"{height:.0}\"/>\
             <text class=\"dim\" x=\"{at:.1}\" y=\"14\" text-anchor=\"middle\">{label}</text>\n"
        ));
    }
    for (place, (row, ratio)) in dots.iter().enumerate() {
        let y = ROW * (place as f64 + 1.5);
        let item = lastmeter_ledger::html::shorten(&format!("{} {}", row.id, row.item), 30);
        let [published, measured, _] = cells(row);
        let title = escape(&format!(
            "{}, {}: published {published} {unit}, ours {measured} {unit}, {}",
            row.id,
            row.item,
            row.section,
            unit = row.unit
        ));
        let (fill, shape) = match row.pass {
            true => ("service", format!("<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5\"", x(*ratio))),
            false => (
                "limit",
                format!(
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\"",
                    x(*ratio) - 5.0,
                    y - 5.0
                ),
            ),
        };
        out.push_str(&format!(
            "<text class=\"dim\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             {shape} style=\"fill:var(--{fill})\"><title>{title}</title>{}\n",
            LEFT - 8.0,
            y + 4.0,
            escape(&item),
            if row.pass { "</circle>" } else { "</rect>" }
        ));
    }
    out.push_str("</svg></div>\n");
}
