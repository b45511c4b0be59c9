//! The path in one or two lines of text, the limiting resource marked.
//!
//! ```text
//! alice [cpu 72 %]→[nic 20 %] ══ link 16 % + 5 us ═▶ bob [nic 8 %]→[pci 22 %]→[cpu 98 %]
//!                                                                                  ▲ limits
//! ```

use super::Style;
use super::paint::{Ink, pad};
use crate::figures;
use crate::shape::{self, Hop, Line};
use crate::{Ledger, Path};
use unicode_width::UnicodeWidthStr;

/// Most lines of a drawing, not counting its marks.
const LINES_MAX: usize = 2;
/// Length to which a name in a box is cut.
const NAME_MAX: usize = 32;

struct Piece {
    text: String,
    ink: Ink,
    limits: bool,
    /// Begins what should stay on one line if it fits: a host.
    begins: bool,
}

/// Draws a path.
pub(super) fn draw(style: &Style, ledger: &Ledger, path: &Path, out: &mut String) {
    let hops = shape::hops(ledger, path);
    let limiting = shape::limiting(ledger);
    let weight = |hop: &Hop<'_>| match hop.resource {
        Some(resource) if Some(resource.name.as_str()) == limiting => f64::INFINITY,
        Some(resource) => resource.utilisation(),
        None => 0.0,
    };
    let weights: Vec<f64> = hops.iter().map(weight).collect();
    for most in (1..=hops.len()).rev() {
        let lines = lines(style, pieces(style, &hops, limiting, &shape::fold(&weights, most)));
        if lines.len() <= LINES_MAX || most == 1 {
            lines.iter().for_each(|line| draw_line(style, line, out));
            return;
        }
    }
}

fn pieces(style: &Style, hops: &[Hop<'_>], limiting: Option<&str>, shown: &[Line]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut host = None;
    for line in shown {
        let place = match line {
            Line::Shown(place) => *place,
            Line::Folded(range) => {
                let mark = style.pick("…", "...");
                let text = format!(" {mark} {} more {mark} ", range.len());
                pieces.push(Piece { text, ink: Ink::Dim, limits: false, begins: true });
                host = None;
                continue;
            }
        };
        let hop = &hops[place];
        if let Some(name) = hop.host.filter(|name| host != Some(*name)) {
            let name = style.elide(&style.clean(name), NAME_MAX);
            let text = if pieces.is_empty() { format!("{name} ") } else { format!(" {name} ") };
            pieces.push(Piece { text, ink: Ink::Bold, limits: false, begins: true });
        } else if host.is_some() && hop.host == host || (hop.host.is_none() && place > 0) {
            let text = joint(style, hops, place).to_owned();
            pieces.push(Piece { text, ink: Ink::Plain, limits: false, begins: hop.is_link() });
        }
        host = hop.host;
        pieces.push(piece(style, hop, limiting));
    }
    pieces
}

fn joint(style: &Style, hops: &[Hop<'_>], place: usize) -> &'static str {
    let link = |place: usize| hops[place].is_link();
    match place > 0 && !link(place) && !link(place - 1) {
        true => style.pick("→", "->"),
        false => " ",
    }
}

fn piece(style: &Style, hop: &Hop<'_>, limiting: Option<&str>) -> Piece {
    let name = style.elide(&style.clean(hop.name), NAME_MAX);
    let percent = |resource: &crate::Resource| format!("{:.0} %", resource.utilisation() * 100.0);
    let figure = match hop.resource {
        Some(resource) if hop.delay > 0.0 => {
            format!("{} + {}", percent(resource), figures::time(hop.delay))
        }
        Some(resource) => percent(resource),
        None => figures::time(hop.mean),
    };
    let limits = hop.resource.is_some_and(|resource| Some(resource.name.as_str()) == limiting);
    let text = match (hop.is_link(), hop.resource) {
        (true, Some(_)) => {
            format!("{} {name} {figure} {}", style.pick("══", "=="), style.pick("═▶", "=>"))
        }
        (true, None) => {
            format!("{} {name} {figure} {}", style.pick("╌╌", "--"), style.pick("╌▶", "->"))
        }
        (false, Some(_)) => format!("[{name} {figure}]"),
        (false, None) => format!("({name} {figure})"),
    };
    Piece { text, ink: if limits { Ink::Loud } else { Ink::Plain }, limits, begins: false }
}

/// Breaks pieces into lines: never within a piece, within a host only if it is longer than a line.
fn lines(style: &Style, mut pieces: Vec<Piece>) -> Vec<Vec<Piece>> {
    let room = style.width - 2;
    let mut lines: Vec<Vec<Piece>> = vec![Vec::new()];
    let mut used = 0;
    let widths: Vec<usize> = pieces.iter().map(|piece| piece.text.width()).collect();
    let begins: Vec<bool> = pieces.iter().map(|piece| piece.begins).collect();
    for (place, mut piece) in pieces.drain(..).enumerate() {
        let next = (place + 1..begins.len()).find(|&p| begins[p]).unwrap_or(begins.len());
        let whole: usize = widths[place..next].iter().sum();
        // No host name or arrow alone at the end of a line.
        let follower = match piece.text.ends_with([']', ')', '▶', '>']) {
            true => 0,
            false => widths.get(place + 1).copied().unwrap_or(0),
        };
        let needed = match piece.begins && whole <= room {
            true => whole,
            false => widths[place] + follower,
        };
        if used + needed > room && used > 0 {
            lines.push(Vec::new());
            used = 0;
            piece.text = piece.text.trim_start().to_owned();
        }
        used += piece.text.width();
        if let Some(line) = lines.last_mut() {
            line.push(piece);
        }
    }
    lines
}

fn draw_line(style: &Style, line: &[Piece], out: &mut String) {
    out.push_str("  ");
    let mut column = 2;
    let mut mark = None;
    for piece in line {
        if piece.limits {
            mark = mark.or(Some(column + piece.text.width() / 2));
        }
        column += piece.text.width();
        out.push_str(&style.ink(piece.ink, &piece.text));
    }
    out.push('\n');
    if let Some(column) = mark {
        let words = style.pick("▲ limits", "^ limits");
        // Near the right edge the words go before the mark.
        let text = match column + words.width() <= style.width {
            true => pad("", column, false) + &style.ink(Ink::Loud, words),
            false => {
                let words = style.pick("limits ▲", "limits ^");
                pad("", column + 1 - words.width(), false) + &style.ink(Ink::Loud, words)
            }
        };
        out.push_str(&text);
        out.push('\n');
    }
}
