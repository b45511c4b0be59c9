//! A reproduction for the terminal: our values beside the published ones, at any width, plain or coloured.
//!
//! ```text
//! cim-equations (E)  The CIM's delay equations
//!      id     item                published   ours   error  tolerance
//! ok   E-64   T_FC, 4 KB (us)          1510  1509.5  0.0 %  printed
//!      Eq 5.1 by hand with Table 5.1; not printed. 1509.5 before rounding
//! ```

use super::folder::Role;
use super::report::{Report, Row, Sheet, Summary, Tally};
use crate::Origins;

/// The appearance of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; below [`Style::WIDTH_MIN`] the cells of a row are below one another.
    pub width: usize,
    /// Whether to use colours.
    pub colour: bool,
}

/// The meaning of a piece of text, which decides its colour.
#[derive(Clone, Copy)]
pub enum Paint {
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// A remark.
    Faint,
    /// A heading.
    Strong,
}

const ITEM_MIN: usize = 16;
/// Indentation below a row.
pub const INDENT: usize = 5;

impl Style {
    /// The narrowest table.
    pub const WIDTH_MIN: usize = 80;

    /// `text` in the colour of its meaning, if colours are used.
    pub fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Good => "32",
            Paint::Bad => "1;31",
            Paint::Faint => "2",
            Paint::Strong => "1",
        };
        match self.colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// The widths of the columns.
struct Columns {
    id: usize,
    item: usize,
    published: usize,
    measured: usize,
    error: usize,
    tolerance: usize,
}

/// Which rows of a sheet are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// All.
    All,
    /// Those outside their tolerance.
    Failing,
}

impl Report {
    /// The whole report as text.
    pub fn table(&self, style: Style) -> String {
        let sheets: String = self.sheets.iter().map(|one| one.text(Shown::All, style)).collect();
        sheets + &self.closing(style)
    }

    /// The summary of each system.
    pub fn closing(&self, style: Style) -> String {
        let words = self.summaries().into_iter().map(|one| one.words());
        let lines = |words: String| wrapped(&words, style.width, 0, INDENT).join("\n") + "\n";
        words.map(lines).collect()
    }
}

impl Sheet {
    /// A line that sums it up, then these rows.
    pub fn text(&self, shown: Shown, style: Style) -> String {
        let mut text = String::new();
        match style.width < Style::WIDTH_MIN {
            true => sheet_text(&mut text, self, None, shown, style),
            false => {
                sheet_text(&mut text, self, Some(&Columns::of(self, style.width)), shown, style);
            }
        }
        text
    }
}

impl Columns {
    fn of(sheet: &Sheet, width: usize) -> Columns {
        let widest = |header: &str, cell: fn(&Row) -> String| {
            let cells = sheet.rows.iter().map(|row| len(&cell(row)));
            cells.chain([len(header)]).max().unwrap_or_default()
        };
        let mut columns = Columns {
            id: widest("id", |row| row.id.clone()),
            item: 0,
            published: widest("published", published),
            measured: widest("ours", measured),
            error: widest("error", error),
            tolerance: widest("tolerance", |row| row.tolerance.clone()),
        };
        let Columns { id, published, measured, error, tolerance, .. } = columns;
        let taken = INDENT + id + published + measured + error + tolerance + 5 * 2;
        let longest = widest("item", item);
        columns.item = width.saturating_sub(taken).clamp(ITEM_MIN, longest.max(ITEM_MIN));
        columns
    }

    /// A line without its mark.
    fn line(&self, [id, item, published, measured, error, tolerance]: [&str; 6]) -> String {
        let line = format!(
            "{}  {}  {}  {}  {}  {tolerance}",
            padded(id, self.id),
            padded(item, self.item),
            right(published, self.published),
            right(measured, self.measured),
            right(error, self.error),
        );
        line.trim_end().to_owned()
    }
}

fn sheet_text(
    text: &mut String,
    sheet: &Sheet,
    columns: Option<&Columns>,
    shown: Shown,
    style: Style,
) {
    let mut add = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    let good = sheet.rows.iter().filter(|row| row.pass).count();
    let name = format!("{} ({})", sheet.name, sheet.system);
    let about = format!("  {}: {good} of {} rows within tolerance", sheet.title, sheet.rows.len());
    let about = wrapped(&(name.clone() + &about), style.width, 0, INDENT).join("\n");
    add(&about.replacen(&name, &style.paint(Paint::Strong, &name), 1));
    let rows: Vec<&Row> =
        sheet.rows.iter().filter(|row| shown == Shown::All || !row.pass).collect();
    if let Some(columns) = columns.filter(|_| !rows.is_empty()) {
        let header = columns.line(["id", "item", "published", "ours", "error", "tolerance"]);
        add(&style.paint(Paint::Faint, &format!("{:INDENT$}{header}", "")));
    }
    for (at, row) in rows.iter().enumerate() {
        let lines = columns.map_or_else(|| stacked(row, style), |c| row_lines(row, c, style));
        lines.iter().for_each(|line| add(line));
        // Rows with the same note print it once, after the last of them.
        let next = rows.get(at + 1).map(|row| remark(row));
        if next.as_deref() != Some(&remark(row)) {
            for line in wrapped(&remark(row), style.width, INDENT, INDENT) {
                add(&style.paint(Paint::Faint, &line));
            }
        }
    }
    if shown == Shown::Failing {
        return;
    }
    for contradiction in &sheet.contradictions {
        let rows = contradiction.rows.join(", ");
        let words = format!(
            "contradiction ({rows}). The document: {}. Its own numbers: {}",
            contradiction.document, contradiction.arithmetic
        );
        wrapped(&words, style.width, 0, INDENT).iter().for_each(|line| add(line));
    }
    if sheet.later > 0 {
        let words =
            format!("{} more rows are judged with --full, or where one is named", sheet.later);
        add(&style.paint(Paint::Faint, &words));
    }
    add("");
}

fn row_lines(row: &Row, columns: &Columns, style: Style) -> Vec<String> {
    let mark = match row.pass {
        true => style.paint(Paint::Good, "ok"),
        false => style.paint(Paint::Bad, "FAIL"),
    };
    let gap = if row.pass { INDENT - 2 } else { INDENT - 4 };
    let item = wrapped(&item(row), columns.item, 0, 0);
    let (first, rest) = item.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
    let cells = [&row.id, first, &published(row), &measured(row), &error(row), &row.tolerance];
    let mut lines = vec![format!("{mark}{:gap$}{}", "", columns.line(cells))];
    let indent = INDENT + columns.id + 2;
    lines.extend(rest.iter().map(|part| format!("{:indent$}{part}", "")));
    lines
}

/// A row without columns, for narrow terminals.
fn stacked(row: &Row, style: Style) -> Vec<String> {
    let [mark, gap] = if row.pass { ["ok", "   "] } else { ["FAIL", " "] };
    let paint = if row.pass { Paint::Good } else { Paint::Bad };
    let first = wrapped(&format!("{} {}", row.id, item(row)), style.width - INDENT, 0, 0);
    let mark = format!("{}{gap}", style.paint(paint, mark));
    let mut lines: Vec<String> = Vec::new();
    for (place, line) in first.into_iter().enumerate() {
        lines.push(if place == 0 {
            format!("{mark}{line}")
        } else {
            format!("{:INDENT$}{line}", "")
        });
    }
    let figures = format!(
        "published {}, ours {}, error {}, tolerance {}",
        published(row),
        measured(row),
        error(row),
        row.tolerance
    );
    lines.extend(wrapped(&figures, style.width, INDENT, INDENT));
    lines
}

/// The item and its unit.
fn item(row: &Row) -> String {
    match row.unit.as_str() {
        "" => row.item.clone(),
        unit => format!("{} ({unit})", row.item),
    }
}

/// The published value, ours and the error, as shown.
pub(crate) fn cells(row: &Row) -> [String; 3] {
    [published(row), measured(row), error(row)]
}

fn published(row: &Row) -> String {
    // A bound is shown with its side.
    match row.tolerance.as_str() {
        side @ ("<" | "<=" | ">" | ">=") => format!("{side} {}", row.published),
        _ => row.published.to_string(),
    }
}

fn measured(row: &Row) -> String {
    match (row.measured, &row.published) {
        (None, _) => "-".to_owned(),
        (Some(value), super::Published::Holds) => {
            if value == 1.0 { "holds" } else { "does not" }.to_owned()
        }
        (Some(value), _) => number(value),
    }
}

/// Up to seven significant digits, without trailing zeros.
fn number(value: f64) -> String {
    const DIGITS: i32 = 7;
    let whole = value.abs().max(1.0).log10().floor() as i32 + 1;
    let decimals = (DIGITS - whole).max(0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn error(row: &Row) -> String {
    match row.error {
        _ if row.role == Role::Given => "given".to_owned(),
        None => "-".to_owned(),
        Some(error) => percent(error),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        p if p.abs() < 0.01 => "<0.01 %".to_owned(),
        p if p.abs() < 1.0 => format!("{p:+.2} %"),
        p => format!("{p:+.1} %"),
    }
}

/// The section, and the notes.
fn remark(row: &Row) -> String {
    match row.note.as_str() {
        "" => row.section.clone(),
        note => format!("{}: {note}", row.section),
    }
}

impl Summary {
    /// One sentence for the end of a table.
    pub fn words(&self) -> String {
        let share = |error: Option<f64>| {
            error.map_or("-".to_owned(), |error| percent(error).trim_start_matches('+').to_owned())
        };
        let counted = |count: u64, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {many}"),
        };
        let right = |tally: Tally| format!("{} of {}", tally.right, tally.asked);
        let Origins { document, assumed, fitted } = self.constants;
        let ratio = self.predicted_per_fitted();
        format!(
            "{}: {} predicted numbers within tolerance; error median {}, 9 in 10 below {}, worst \
             {}. {} shapes, {} numbers derived, {} fitted to, {} given. Constants: {document} from \
             the document, {assumed} assumed, {fitted} fitted{}. {}",
            self.system,
            right(self.predicted),
            share(self.error_median),
            share(self.error_p90),
            share(self.error_worst),
            right(self.shapes),
            right(self.derived),
            right(self.fitted),
            right(self.given),
            ratio
                .map_or(String::new(), |ratio| format!(" ({ratio:.1} predicted numbers for each)")),
            counted(self.contradictions, "contradiction", "contradictions"),
        )
    }
}

fn len(text: &str) -> usize {
    text.chars().count()
}

/// `text` left-aligned in this many columns.
pub fn padded(text: &str, width: usize) -> String {
    format!("{text}{:1$}", "", width.saturating_sub(len(text)))
}

/// `text` right-aligned in this many columns.
pub fn right(text: &str, width: usize) -> String {
    format!("{:1$}{text}", "", width.saturating_sub(len(text)))
}

/// `text` in lines of at most `width` where words allow: the first indented by `first`, the others by `rest`.
pub fn wrapped(text: &str, width: usize, first: usize, rest: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = " ".repeat(first);
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && len(&line) + 1 + len(word) > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(rest)));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    if !empty {
        lines.push(line);
    }
    lines
}
