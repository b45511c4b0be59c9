//! The result for the terminal and for programs.
//!
//! ```text
//! M/D/1: Poisson arrivals, constant service
//!      quantity             theory      ours      off    s.e.  two runs      z
//! ok   wait, load 0.3 (us)   2.143     2.141  -0.09 %  0.2 %     0.3 %  -0.40
//!      Pollaczek 1930, Khinchin 1932; Kleinrock 1975, §5.5 and 5.7. No limit to the queue
//! ```

use super::{ERRORS_MAX, Report, Row};
use lastmeter_repro::Style;
use lastmeter_repro::table::{INDENT, Paint, padded, right, wrapped};

const HEADER: [&str; 7] = ["quantity", "theory", "ours", "off", "s.e.", "two runs", "z"];

impl Report {
    /// One line of JSON per quantity.
    ///
    /// # Errors
    /// Never for results of [`super::run`].
    pub fn json_lines(&self) -> Result<String, serde_json::Error> {
        self.rows.iter().map(|row| Ok(serde_json::to_string(row)? + "\n")).collect()
    }

    /// The whole report as text.
    pub fn table(&self, style: Style) -> String {
        let cells: Vec<[String; 7]> = self.rows.iter().map(cells).collect();
        let width = |column: usize| {
            let all = cells.iter().map(|cells| cells[column].chars().count());
            all.chain([HEADER[column].len()]).max().unwrap_or_default()
        };
        let widths: [usize; 7] = std::array::from_fn(width);
        let line = |cells: &[&str; 7]| {
            let rest = (1..7).map(|at| format!("  {}", right(cells[at], widths[at])));
            padded(cells[0], widths[0]) + &rest.collect::<String>()
        };
        let width = style.width.max(Style::WIDTH_MIN);
        let mut text = String::new();
        let mut add = |line: &str| text.extend([line, "\n"]);
        for (at, row) in self.rows.iter().enumerate() {
            let is_of = |other: Option<&Row>| other.is_some_and(|other| other.case == row.case);
            if !is_of(at.checked_sub(1).map(|at| &self.rows[at])) {
                add(&style.paint(Paint::Strong, row.case));
                add(&style.paint(Paint::Faint, &format!("{:INDENT$}{}", "", line(&HEADER))));
            }
            let (paint, mark) = if row.pass { (Paint::Good, "ok") } else { (Paint::Bad, "FAIL") };
            let shown = line(&std::array::from_fn(|column| cells[at][column].as_str()));
            add(&format!("{}{:2$}{shown}", style.paint(paint, mark), "", INDENT - mark.len()));
            if !is_of(self.rows.get(at + 1)) {
                let words = format!("{}. Assumes: {}", row.source, row.assumes);
                for line in wrapped(&words, width, INDENT, INDENT) {
                    add(&style.paint(Paint::Faint, &line));
                }
                add("");
            }
        }
        wrapped(&self.words(), width, 0, INDENT).iter().for_each(|line| add(line));
        text
    }

    /// A summary in a few sentences.
    fn words(&self) -> String {
        let passed = self.rows.iter().filter(|row| row.pass).count();
        let z: Vec<f64> = self.rows.iter().filter_map(|row| row.z).collect();
        let worst = z.iter().fold(0.0f64, |worst, z| worst.max(z.abs()));
        let square = (z.iter().map(|z| z * z).sum::<f64>() / z.len() as f64).sqrt();
        format!(
            "{passed} of {} quantities agree with theory: {} random ones within {ERRORS_MAX} \
             standard errors of their means, the others exactly. Ours less theory, in standard \
             errors: {square:.2} in the root mean square, where 1 is expected, {worst:.2} at most. \
             \"Two runs\" is how far the means of one half of the runs and of the other are apart",
            self.rows.len(),
            z.len(),
        )
    }
}

fn cells(row: &Row) -> [String; 7] {
    let random = row.z.is_some();
    let share = |value: f64| {
        if random { format!("{:.2} %", 100.0 * value / row.theory) } else { "-".to_owned() }
    };
    let name = match row.unit {
        "" => row.quantity.clone(),
        unit => format!("{} ({unit})", row.quantity),
    };
    [
        name,
        format!("{}{}", if row.is == "bound" { "<= " } else { "" }, digits(row.theory)),
        digits(row.ours),
        format!("{:+.2} %", 100.0 * (row.ours / row.theory - 1.0)),
        share(row.standard_error),
        share(row.yardstick),
        row.z.map_or_else(|| row.is.to_owned(), |z| format!("{z:+.2}")),
    ]
}

/// Four significant digits, or all before the point.
fn digits(value: f64) -> String {
    let whole = (value.abs().max(1e-9) * 1.000_05).log10().floor() as i32 + 1;
    format!("{value:.*}", (4 - whole).max(0) as usize)
}
