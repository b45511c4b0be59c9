//! What comes of it, for the terminal and for programs.
//!
//! ```text
//! 40 ms, drop-tail 1, 1 connection, Reno
//!         metric             Linux  its runs            ours     off
//! ok      goodput (Mbit/s)   9.413  9.412 .. 9.414     9.412  -0.0 %
//! ```

use super::{AGREE, METRICS, Report, Row};
use lastmeter_repro::Style;
use lastmeter_repro::table::{Paint, padded, right, wrapped};

const HEADER: [&str; 5] = ["metric", "Linux", "its runs", "ours", "off"];
/// What fits before each line, and the columns.
const INDENT: usize = 8;
const WIDTHS: [usize; 5] = [18, 8, 20, 8, 9];

impl Report {
    /// One line of JSON for each row.
    ///
    /// # Errors
    /// Never for what [`super::run`] gives.
    pub fn json_lines(&self) -> Result<String, serde_json::Error> {
        self.rows.iter().map(|row| Ok(serde_json::to_string(row)? + "\n")).collect()
    }

    /// The whole report as text.
    pub fn table(&self, style: Style) -> String {
        let mut text = String::new();
        let mut add = |line: &str| text.extend([line, "\n"]);
        for rows in self.rows.chunks(METRICS.len()) {
            add(&style.paint(Paint::Strong, &rows[0].scenario));
            let header = HEADER.map(str::to_owned);
            add(&style.paint(Paint::Faint, &format!("{:INDENT$}{}", "", line(&header))));
            for row in rows {
                let (paint, mark) = match row.pass {
                    true => (Paint::Good, "ok"),
                    false => (Paint::Bad, "OFF"),
                };
                let gap = INDENT - mark.len();
                add(&format!("{}{:gap$}{}", style.paint(paint, mark), "", line(&cells(row))));
            }
            add("");
        }
        let (agree, of) = self.agree();
        let tolerances = METRICS.map(|m| format!("{} {:.0} %", m.name, 100.0 * m.tolerance));
        let words = format!(
            "{agree} of {of} scenarios agree with Linux in everything; {AGREE} of 12 were asked \
             for. Tolerances: {}",
            tolerances.join(", ")
        );
        wrapped(&words, style.width.max(Style::WIDTH_MIN), 0, 0).iter().for_each(|line| add(line));
        text
    }
}

fn line(cells: &[String; 5]) -> String {
    let rest = (1..5).map(|at| format!("  {}", right(&cells[at], WIDTHS[at])));
    padded(&cells[0], WIDTHS[0]) + &rest.collect::<String>()
}

fn cells(row: &Row) -> [String; 5] {
    let digits = |value: f64| format!("{value:.3}");
    [
        format!("{} ({})", row.metric, row.unit),
        digits(row.theirs),
        format!("{} .. {}", digits(row.theirs_least), digits(row.theirs_most)),
        digits(row.ours),
        format!("{:+.1} %", 100.0 * (row.ours / row.theirs - 1.0)),
    ]
}
