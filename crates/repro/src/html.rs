//! A reproduction as one page: a sentence and one figure, ours against the published values; behind folds a line per
//! system, each table and figure, and the documents' contradictions.

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
    opening(report, &mut out);
    scatter(report, &mut out);
    out.push_str("<details><summary>Systems, a line each</summary>\n");
    summaries(&report.summaries(), &mut out);
    out.push_str("</details>\n");
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

/// What the page shows, in a sentence.
fn opening(report: &Report, out: &mut String) {
    let (all, good) =
        report.rows().fold((0, 0), |(all, good), row| (all + 1, good + i32::from(row.pass)));
    let summaries = report.summaries();
    let [right, asked] = [|one: &Summary| one.predicted.right, |one: &Summary| one.predicted.asked]
        .map(|part| summaries.iter().map(part).sum::<u64>());
    let failing = match all - good {
        0 => "None falls short.".to_owned(),
        1 => "One falls short, marked in the figure and first to be read.".to_owned(),
        count => format!("{count} fall short, marked in the figure and first to be read."),
    };
    out.push_str(&format!(
        "<p><b>{good} of {all} published values are met within their tolerance, among them {right} \
         of {asked} numbers that were predicted</b>, from constants that were not fitted to them. \
         {failing}</p>\n"
    ));
}

/// Side of the figure of all values, and its margins.
const SIDE: f64 = 520.0;
const MARGIN: f64 = 64.0;

/// Ours against the published value of each row with a positive number, on logarithmic axes in the row's own unit.
fn scatter(report: &Report, out: &mut String) {
    let numbers = |row: &Row| {
        let published = serde_json::to_value(&row.published).ok()?.as_f64()?;
        let bound = row.tolerance.starts_with(['<', '>']) && !row.tolerance.ends_with('%');
        let ours = row.measured?;
        (!bound && published > 0.0 && ours > 0.0).then_some((published.log10(), ours.log10()))
    };
    let dots: Vec<(&Row, (f64, f64))> =
        report.rows().filter_map(|row| Some((row, numbers(row)?))).collect();
    let ends = dots.iter().flat_map(|(_, (published, ours))| [*published, *ours]);
    let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| {
        (low.min(one.floor()), high.max(one.ceil()))
    });
    if dots.is_empty() {
        return;
    }
    let high = high.max(low + 1.0);
    let at = |value: f64| (value - low) / (high - low) * (SIDE - 2.0 * MARGIN);
    let (x, y) = (|value: f64| MARGIN + at(value), |value: f64| SIDE - MARGIN - at(value));
    let words =
        format!("Ours against the published value, {} numbers, logarithmic axes", dots.len());
    out.push_str(&format!(
        "<figure><div class=\"table\"><svg class=\"drawing\" id=\"against\" \
         style=\"max-width:620px\" viewBox=\"0 0 {SIDE} {SIDE}\" \
         role=\"img\" aria-label=\"{words}\">\n"
    ));
    axes((low, high), x, y, out);
    // Failures are drawn last, so that nothing hides them.
    let (good, bad): (Vec<_>, Vec<_>) = dots.into_iter().partition(|(row, _)| row.pass);
    for (row, (published, ours)) in good.into_iter().chain(bad) {
        let (across, up) = (x(published), y(ours));
        let [value, measured, _] = cells(row);
        let title = escape(&format!(
            "{} {}: published {value} {unit}, ours {measured} {unit}",
            row.id,
            row.item,
            unit = row.unit
        ));
        let (mark, end, fill) = match row.pass {
            true => {
                (format!("circle cx=\"{across:.1}\" cy=\"{up:.1}\" r=\"3\""), "circle", "service")
            }
            false => (
                format!(
                    "rect x=\"{:.1}\" y=\"{:.1}\" width=\"9\" height=\"9\"",
                    across - 4.5,
                    up - 4.5
                ),
                "rect",
                "limit",
            ),
        };
        out.push_str(&format!(
            "<{mark} style=\"fill:var(--{fill})\"><title>{title}</title></{end}>\n"
        ));
    }
    out.push_str(
        "</svg></div>\n<figcaption class=\"soft\">Ours against the published value, \
         each in its own unit, on logarithmic axes; on the line they are equal. Squares fall \
         short. Statements, bounds and ranges have no point.</figcaption></figure>\n",
    );
}

/// A line for each power of ten, the line of equal values, and the names of the axes.
fn axes((low, high): (f64, f64), x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64, out: &mut String) {
    let step = ((high - low) / 8.0).ceil() as i32;
    for power in (low as i32..=high as i32).step_by(step.max(1) as usize) {
        let (across, up) = (x(f64::from(power)), y(f64::from(power)));
        let [from, to] = [MARGIN, SIDE - MARGIN];
        let label = format!("10<tspan dy=\"-6\" font-size=\"9\">{power}</tspan>");
        out.push_str(&format!(
            "<line class=\"host\" x1=\"{across:.1}\" x2=\"{across:.1}\" y1=\"{from}\" y2=\"{to}\"/>\
             <line class=\"host\" x1=\"{from}\" x2=\"{to}\" y1=\"{up:.1}\" y2=\"{up:.1}\"/>\
             <text class=\"dim\" x=\"{across:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{label}\
             </text>\
             <text class=\"dim\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n",
            to + 18.0,
            from - 8.0,
            up + 4.0
        ));
    }
    out.push_str(&format!(
        "<line class=\"box\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>\
         <text class=\"dim\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">published</text>\
         <text class=\"dim\" x=\"{MARGIN}\" y=\"{:.0}\" text-anchor=\"middle\">ours</text>\n",
        x(low),
        y(low),
        x(high),
        y(high),
        SIDE / 2.0,
        SIDE - 18.0,
        MARGIN - 14.0
    ));
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
    let shown = if good < count { " open" } else { "" };
    out.push_str(&format!("<details{shown}><summary>{count} rows, ours beside them</summary>\n"));
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
