//! Text of a known width: eliding, wrapping, bars, and colour that never carries meaning alone.

use super::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a piece of text is drawn where there is colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// Plain.
    Plain,
    /// Secondary text: units, zeros, captions.
    Dim,
    /// Headings.
    Bold,
    /// The limiting resource, and what went wrong.
    Loud,
    /// Gains.
    Good,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Ink::Plain => "",
            Ink::Dim => "2",
            Ink::Bold => "1",
            Ink::Loud => "1;31",
            Ink::Good => "32",
        }
    }
}

impl Style {
    /// Text in its ink.
    pub(super) fn ink(&self, ink: Ink, text: &str) -> String {
        match self.color && ink != Ink::Plain && !text.trim().is_empty() {
            true => format!("\x1b[{}m{text}\x1b[0m", ink.code()),
            false => text.to_owned(),
        }
    }

    /// The first if the terminal shows Unicode, else the second.
    pub(super) fn pick(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    /// Removes control characters: names and words come from outside and must not control the terminal.
    pub(super) fn clean(&self, text: &str) -> String {
        let steers = |c: char| {
            c.is_control()
                || ('\u{200b}'..='\u{200f}').contains(&c)
                || ('\u{2028}'..='\u{202e}').contains(&c)
                || ('\u{2066}'..='\u{2069}').contains(&c)
        };
        let safe = |c: char| match c {
            '\t' | '\n' => ' ',
            c if steers(c) || (!self.unicode && !c.is_ascii()) => '?',
            c => c,
        };
        text.chars().map(safe).collect()
    }

    /// At most `width` columns of a clean text, cut in the middle: names differ at their ends.
    pub(super) fn elide(&self, text: &str, width: usize) -> String {
        if text.width() <= width {
            return text.to_owned();
        }
        let mark = self.pick("…", "~");
        let room = width.saturating_sub(1);
        let head = take(text.chars(), room - room / 2);
        let tail: String = take(text.chars().rev(), room / 2).chars().rev().collect();
        format!("{head}{mark}{tail}")
    }

    /// A bar of at most `width` columns, always as wide as that.
    pub(super) fn bar(&self, share: f64, width: usize) -> String {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        let eighths = (share * width as f64 * 8.0).round() as usize;
        let mut bar = String::new();
        if self.unicode {
            const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
            bar.push_str(&"█".repeat(eighths / 8));
            bar.push_str(PARTS[eighths % 8]);
        } else {
            bar.push_str(&"#".repeat((eighths + 4) / 8));
        }
        // More than zero is always at least one cell.
        if bar.is_empty() && share > 0.0 {
            bar.push_str(self.pick("▏", "."));
        }
        let missing = width.saturating_sub(bar.width());
        bar + &" ".repeat(missing)
    }

    /// Busy, blocked and idle on one bar that is always full.
    pub(super) fn split_bar(&self, busy: f64, blocked: f64, width: usize) -> String {
        let columns = |share: f64| (share.clamp(0.0, 1.0) * width as f64).round() as usize;
        let taken = columns(busy + blocked).min(width);
        let busy = columns(busy).min(taken);
        let [full, held, free] = match self.unicode {
            true => ["█", "▒", "·"],
            false => ["#", "x", "."],
        };
        [full.repeat(busy), held.repeat(taken - busy), free.repeat(width - taken)].concat()
    }
}

fn take(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= width
    };
    chars.take_while(fits).collect()
}

/// Pads a text to a width.
pub(super) fn pad(text: &str, width: usize, right: bool) -> String {
    let missing = " ".repeat(width.saturating_sub(text.width()));
    if right { missing + text } else { text.to_owned() + &missing }
}

/// Breaks clean text into lines of at most `width` columns; a word longer than that is cut.
///
/// ```
/// use lastmeter_ledger::terminal::wrap;
/// assert_eq!(wrap("two packets were dropped", 12), ["two packets", "were dropped"]);
/// ```
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        }
        while word.width() > width {
            let head = take(word.chars(), width.max(2));
            word = word[head.len()..].to_owned();
            lines.push(head);
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Breaks a clean name into lines of at most `width` columns: at spaces, else after its dots, arrows and dashes, and
/// within a word only if that alone is longer.
pub(crate) fn wrap_name(name: &str, width: usize) -> Vec<String> {
    if name.width() <= width {
        return vec![name.to_owned()];
    }
    let mut lines = vec![String::new()];
    let mut add = |part: &str| {
        let Some(line) = lines.last_mut() else { return };
        match line.width() + part.trim_end().width() <= width {
            true => line.push_str(part),
            false => {
                if line.is_empty() {
                    lines.pop();
                }
                lines.extend(wrap(part, width));
                // What follows a space is another word.
                if let Some(line) = lines.last_mut().filter(|_| part.ends_with(' ')) {
                    line.push(' ');
                }
            }
        }
    };
    name.split_inclusive([' ', '.', '>', '-', '·']).for_each(&mut add);
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style { width: 80, color: false, unicode: true };

    #[test]
    fn a_long_name_keeps_both_ends() {
        assert_eq!(STYLE.elide("bob.checksum and copy", 11), "bob.c… copy");
        assert_eq!(STYLE.elide("bob", 11), "bob");
        assert!(STYLE.elide("受信側のコピー処理", 9).width() <= 9);
    }

    #[test]
    fn bars_have_the_requested_width() {
        for share in [0.0, 0.001, 0.5, 1.0, 7.0, f64::NAN] {
            assert_eq!(STYLE.bar(share, 10).width(), 10);
            assert_eq!(STYLE.split_bar(share, 0.1, 10).width(), 10);
        }
        assert_eq!(STYLE.bar(0.0001, 4), "▏   ");
        assert_eq!(STYLE.split_bar(0.5, 0.25, 4), "██▒·");
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        assert_eq!(STYLE.clean("a\u{1b}[31m\u{202e}b\n"), "a?[31m?b ");
    }

    #[test]
    fn a_name_is_broken_at_its_joints_and_loses_nothing() {
        assert_eq!(wrap_name("alice->router transmit", 13), ["alice->router", "transmit"]);
        assert_eq!(wrap_name("bob.checksum and copy", 12), ["bob.checksum", "and copy"]);
        for width in 2..30 {
            let lines = wrap_name("s.3.protocol of acknowledgements->r1", width);
            assert!(lines.iter().all(|line| line.width() <= width), "{lines:?}");
            let joined: String = lines.concat().split_whitespace().collect();
            assert_eq!(joined, "s.3.protocolofacknowledgements->r1");
        }
    }

    #[test]
    fn wrapped_lines_fit() {
        let lines = wrap("a bb ccc dddddddddd e", 4);
        assert_eq!(lines, ["a bb", "ccc", "dddd", "dddd", "dd e"]);
    }
}
