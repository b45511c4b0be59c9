//! A table that fits a width: first long names are broken into lines, then columns dropped, the least needed first,
//! and a note says which. On a narrow terminal each row is a name with its figures below.

use super::paint::{Ink, pad, wrap_name};
use super::{Style, WIDTH_COLUMNS};
use unicode_width::UnicodeWidthStr;

/// A cell of a table.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    ink: Ink,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ink: Ink::Plain }
    }
    pub(super) fn in_ink(text: impl Into<String>, ink: Ink) -> Cell {
        Cell { text: text.into(), ink }
    }
}

/// How a column behaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub title: &'static str,
    /// Its name in the note of columns not shown.
    pub meaning: &'static str,
    pub right: bool,
    /// Least width at which its texts are broken into lines; `None`: never.
    pub shortest: Option<usize>,
    /// Columns with higher numbers are dropped first; zero stays.
    pub goes: u8,
}

impl Column {
    /// Left-aligned, may be broken into lines.
    pub(super) const fn name(title: &'static str, shortest: usize, goes: u8) -> Column {
        Column { title, meaning: title, right: false, shortest: Some(shortest), goes }
    }
    /// Right-aligned, never broken.
    pub(super) const fn number(title: &'static str, meaning: &'static str, goes: u8) -> Column {
        Column { title, meaning, right: true, shortest: None, goes }
    }
    /// Left-aligned, never broken.
    pub(super) const fn bar(title: &'static str, goes: u8) -> Column {
        Column { title, meaning: title, right: false, shortest: None, goes }
    }
}

/// Rows under titles.
pub(super) struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

const INDENT: usize = 2;
const GAP: usize = 2;
/// Names are never broken into shorter lines than this.
const NAME_MIN: usize = 6;

impl Table {
    /// Leaves out all columns but these, which are in order.
    pub(super) fn keep_columns(&mut self, places: &[usize]) {
        let kept = |place: usize| places.contains(&place);
        let mut at = 0..;
        self.columns.retain(|_| at.next().is_some_and(kept));
        for row in &mut self.rows {
            let mut at = 0..;
            row.retain(|_| at.next().is_some_and(kept));
        }
    }

    /// Draws the table; titles are left out where all are empty.
    pub(super) fn draw(&self, style: &Style, out: &mut String) {
        if style.width < WIDTH_COLUMNS && self.columns.len() > 2 {
            self.rows.iter().for_each(|row| self.draw_stacked(style, row, out));
            return;
        }
        let (shown, widths) = self.fit(style);
        let titles: Vec<Cell> =
            self.columns.iter().map(|column| Cell::in_ink(column.title, Ink::Dim)).collect();
        if self.columns.iter().any(|column| !column.title.is_empty()) {
            self.draw_row(style, &titles, &shown, &widths, out);
        }
        for row in &self.rows {
            self.draw_row(style, row, &shown, &widths, out);
        }
        let gone: Vec<&str> = (0..self.columns.len())
            .filter(|place| !shown.contains(place))
            .map(|place| self.columns[place].meaning)
            .filter(|meaning| !meaning.is_empty()) // A bar repeats the figure next to it.
            .collect();
        if !gone.is_empty() {
            let note = format!("not shown at this width: {}", gone.join(", "));
            for line in super::paint::wrap(&note, style.width - INDENT) {
                out.push_str("  ");
                out.push_str(&style.ink(Ink::Dim, &line));
                out.push('\n');
            }
        }
    }

    fn draw_row(
        &self,
        style: &Style,
        row: &[Cell],
        shown: &[usize],
        widths: &[usize],
        out: &mut String,
    ) {
        let cells = shown.iter().zip(widths);
        let broken: Vec<Vec<String>> = cells
            .map(|(&column, &width)| match self.columns[column].shortest {
                Some(_) => wrap_name(&row[column].text, width),
                None => vec![row[column].text.clone()],
            })
            .collect();
        for part in 0..broken.iter().map(Vec::len).max().unwrap_or(0) {
            let mut line = " ".repeat(INDENT);
            for (place, (&column, &width)) in shown.iter().zip(widths).enumerate() {
                if place > 0 {
                    line.push_str(&" ".repeat(GAP));
                }
                let text = broken[place].get(part).map_or("", String::as_str);
                let padded = pad(text, width, self.columns[column].right);
                // Coloured spaces would prevent trimming.
                let end = padded.trim_end().len();
                line.push_str(&style.ink(row[column].ink, &padded[..end]));
                line.push_str(&padded[end..]);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }

    /// A row without columns: its first name, then every figure with what it means.
    fn draw_stacked(&self, style: &Style, row: &[Cell], out: &mut String) {
        let first = self.columns.iter().position(|column| column.shortest.is_some());
        if let Some(first) = first {
            for line in wrap_name(&row[first].text, style.width - INDENT) {
                out.push_str(&" ".repeat(INDENT));
                out.push_str(&style.ink(row[first].ink, &line));
                out.push('\n');
            }
        }
        let is_said = |text: &str| !["", "-"].contains(&text.trim());
        let facts: Vec<(&str, String)> = self
            .columns
            .iter()
            .zip(row)
            .enumerate()
            .filter(|(place, (_, cell))| Some(*place) != first && is_said(&cell.text))
            .map(|(_, (column, cell))| (column.meaning, cell.text.trim().to_owned()))
            .collect();
        super::parts::joined(style, "    ", &facts, Ink::Plain, out);
    }

    /// Which columns are shown, and how wide.
    fn fit(&self, style: &Style) -> (Vec<usize>, Vec<usize>) {
        let natural = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].text.width());
            cells.max().unwrap_or(0).max(self.columns[column].title.width())
        };
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        loop {
            let mut widths: Vec<usize> = shown.iter().map(|&column| natural(column)).collect();
            let room = style.width.saturating_sub(INDENT + GAP * shown.len().saturating_sub(1));
            let missing = widths.iter().sum::<usize>().saturating_sub(room);
            let least = shown.iter().copied().max_by_key(|&column| self.columns[column].goes);
            let least = least.filter(|&column| self.columns[column].goes > 0);
            // Names are broken beyond readability only when nothing else can be dropped.
            let shortest = if least.is_some() { 0 } else { NAME_MIN };
            if self.shorten(&shown, &mut widths, missing, shortest) {
                return (shown, widths);
            }
            match least {
                Some(least) => shown.retain(|&column| column != least),
                None => return (shown, widths),
            }
        }
    }

    /// Takes `missing` columns from the widest texts that may be broken, down to each one's least
    /// width or to `shortest` if that is not zero; returns whether that was enough.
    fn shorten(
        &self,
        shown: &[usize],
        widths: &mut [usize],
        mut missing: usize,
        shortest: usize,
    ) -> bool {
        while missing > 0 {
            let least = |least: usize| if shortest > 0 { least.min(shortest) } else { least };
            let can = |place: usize| {
                self.columns[shown[place]].shortest.is_some_and(|own| widths[place] > least(own))
            };
            let Some(widest) = (0..shown.len()).filter(|&p| can(p)).max_by_key(|&p| widths[p])
            else {
                return false;
            };
            widths[widest] -= 1;
            missing -= 1;
        }
        true
    }
}
