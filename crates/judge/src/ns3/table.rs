//! What comes of it, for the terminal and for programs.
//!
//! ```text
//! round trips, drop-tail 1/4, NewReno
//!          metric      shipped   mended     ours      off  two halves, theirs, ours
//! theirs   loss (%)      2.268    1.839    1.821   -1.0 %     1.2 %     1.4 %
//! ```

use super::{AGAIN, BEYOND, LEAST, Report, Row};
use lastmeter_repro::Style;
use lastmeter_repro::table::{Paint, padded, right, wrapped};

const HEADER: [&str; 7] =
    ["metric", "ns-3", "mended", "ours", "off", "halves, theirs", "halves, ours"];
/// What fits before each line.
const INDENT: usize = 9;

impl Report {
    /// One line of JSON for each cell.
    ///
    /// # Errors
    /// Never for what [`super::run`] gives.
    pub fn json_lines(&self) -> Result<String, serde_json::Error> {
        self.rows.iter().map(|row| Ok(serde_json::to_string(row)? + "\n")).collect()
    }

    /// The whole report as text.
    pub fn table(&self, style: Style) -> String {
        let cells: Vec<[String; 7]> = self.rows.iter().map(cells).collect();
        let widths: [usize; 7] = std::array::from_fn(|column| {
            let all = cells.iter().map(|cells| cells[column].chars().count());
            all.chain([HEADER[column].len()]).max().unwrap_or_default()
        });
        let line = |cells: &[&str; 7]| {
            let rest = (1..7).map(|at| format!("  {}", right(cells[at], widths[at])));
            padded(cells[0], widths[0]) + &rest.collect::<String>()
        };
        let width = style.width.max(Style::WIDTH_MIN);
        let mut text = String::new();
        let mut add = |line: &str| text.extend([line, "\n"]);
        let mut causes: Vec<(&str, &str)> = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            let is_of = |other: Option<&Row>| other.is_some_and(|o| o.scenario == row.scenario);
            if !is_of(at.checked_sub(1).map(|at| &self.rows[at])) {
                add(&style.paint(Paint::Strong, &row.scenario));
                add(&style.paint(Paint::Faint, &format!("{:INDENT$}{}", "", line(&HEADER))));
            }
            let (paint, mark) = match (row.pass, &row.why) {
                (false, _) => (Paint::Bad, "BEYOND".to_owned()),
                (_, Some(why)) => {
                    let cause = (row.whose.as_deref().unwrap_or_default(), why.as_str());
                    let at = causes.iter().position(|known| *known == cause);
                    let at = at.unwrap_or_else(|| {
                        causes.push(cause);
                        causes.len() - 1
                    });
                    (Paint::Strong, format!("{} {}", cause.0, at + 1))
                }
                _ if row.first_off.is_some() => (Paint::Good, "again".to_owned()),
                _ if row.beyond_shipped => (Paint::Good, "mended".to_owned()),
                _ => (Paint::Good, "ok".to_owned()),
            };
            let shown = line(&std::array::from_fn(|column| cells[at][column].as_str()));
            let gap = INDENT.saturating_sub(mark.len()).max(1);
            add(&format!("{}{:gap$}{shown}", style.paint(paint, &mark), ""));
            if !is_of(self.rows.get(at + 1)) {
                add("");
            }
        }
        for (at, (whose, why)) in causes.iter().enumerate() {
            let words = format!("{whose} {}: {}", at + 1, why.trim());
            wrapped(&words, width, 0, INDENT).iter().for_each(|line| add(line));
        }
        for cell in &self.stale {
            add(&format!("listed, and not beyond: {cell}"));
        }
        wrapped(&self.words(), width, 0, INDENT).iter().for_each(|line| add(line));
        text
    }

    /// In a few sentences.
    fn words(&self) -> String {
        let count = |is: fn(&Row) -> bool| self.rows.iter().filter(|row| is(row)).count();
        let mended = count(|row| row.beyond_shipped && !row.beyond);
        let whose = |whose: &str| {
            self.rows.iter().filter(|row| row.whose.as_deref() == Some(whose)).count()
        };
        let again = count(|row| row.first_off.is_some());
        let agrees = count(|row| row.first_off.is_some() && !row.beyond);
        let again = match again {
            0 => String::new(),
            _ => format!(
                "{again} cells lay beyond in the first runs and were judged by {AGAIN} times as \
                 many others, by which {agrees} agree (\"again\"). "
            ),
        };
        format!(
            "{again}{} of {} cells agree with ns-3 3.37 with its known faults mended; {mended} of \
             these (\"mended\") do not with ns-3 as it is shipped. {} lie beyond: {} for a cause \
             of ours, {} for one of theirs, {} for one unknown, {} not listed. Beyond is more than \
             {BEYOND} times how far two halves of the same simulator's runs are apart (of both, as \
             a root of the sum of squares), and more than {} %",
            count(|row| !row.beyond),
            self.rows.len(),
            count(|row| row.beyond),
            whose("ours"),
            whose("theirs"),
            whose("unknown"),
            count(|row| !row.pass),
            100.0 * LEAST,
        )
    }
}

fn cells(row: &Row) -> [String; 7] {
    let name = match row.unit {
        "" => row.metric.clone(),
        unit => format!("{} ({unit})", row.metric),
    };
    let share = |value: f64| format!("{:.1} %", 100.0 * value / row.theirs);
    [
        name,
        digits(row.shipped),
        digits(row.theirs),
        digits(row.ours),
        format!("{:+.1} %", 100.0 * (row.ours / row.theirs - 1.0)),
        share(row.theirs_apart),
        share(row.ours_apart),
    ]
}

/// Four digits, or all before the point.
fn digits(value: f64) -> String {
    let whole = (value.abs().max(1e-9) * 1.000_05).log10().floor() as i32 + 1;
    format!("{value:.*}", (4 - whole).clamp(0, 4) as usize)
}
