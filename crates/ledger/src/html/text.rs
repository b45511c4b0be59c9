//! Text escaped for HTML, and figures that show their exact value on hover.

use crate::{Place, figures};

/// Escapes a name or word from outside, so that it cannot close an attribute or open an element.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// At most `length` characters, cut in the middle; not escaped yet.
pub fn shorten(text: &str, length: usize) -> String {
    let count = text.chars().count();
    if count <= length {
        return text.to_owned();
    }
    let tail = length.saturating_sub(1) / 2;
    let head = length.saturating_sub(1) - tail;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

/// A name of at most two lines, shown in full on hover.
pub(super) fn name(text: &str) -> String {
    let text = escape(text);
    match text.len() > 40 {
        true => format!("<span title=\"{text}\">{text}</span>"),
        false => text,
    }
}

/// The name of a resource or a stage, and on hover where its constants come from.
pub(super) fn sourced(text: &str, place: &Place) -> String {
    let Some(source) = &place.source else { return name(text) };
    let text = escape(text);
    format!("<span title=\"{text}: constants from {}\">{text}</span>", escape(source))
}

/// A time in words, with the sign for micro that a page can show.
pub(super) fn time(seconds: f64) -> String {
    figures::time(seconds).replace(" us", "\u{a0}µs").replace(' ', "\u{a0}")
}

/// A share in words.
pub(super) fn share(share: f64) -> String {
    figures::share(share).replace('<', "&lt;").replace(' ', "\u{a0}")
}

/// A figure that shows its meaning and exact value on hover.
pub(super) fn figure(shown: &str, exact: impl std::fmt::Display, unit: &str, what: &str) -> String {
    let space = if unit.is_empty() { "" } else { " " };
    let what = escape(what);
    format!("<span title=\"{what}: exactly {exact}{space}{unit}\">{shown}</span>")
}

/// [`figure`] of a time.
pub(super) fn time_figure(seconds: f64, what: &str) -> String {
    figure(&time(seconds), seconds, "s", what)
}

/// [`figure`] of a share.
pub(super) fn share_figure(value: f64, what: &str) -> String {
    figure(&share(value), value, "of one", what)
}

/// [`figure`] of a count.
pub(super) fn count_figure(number: u64, unit: &str, what: &str) -> String {
    let shown = figures::count(number).replace(' ', "\u{202f}");
    figure(&shown, number, unit, what)
}

/// A dash if it is not known.
pub(super) fn known<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "<span title=\"not measured\">–</span>".to_owned(), shown)
}

/// A position on a picture, in percent of its width, clamped to it.
pub(super) fn percent(share: f64) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    format!("{:.2}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_text() {
        assert_eq!(escape("<b a=\"'&\u{1b}"), "&lt;b a=&quot;&#39;&amp;\u{fffd}");
        assert_eq!(shorten("abcdefghij", 5), "ab…ij");
        assert_eq!(percent(f64::NAN), "0.00%");
    }
}
