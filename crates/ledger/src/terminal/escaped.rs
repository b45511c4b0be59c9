//! Text that cannot control a terminal.

use std::borrow::Cow;

/// The text with its control characters written as `\u001b`, which is the same text within a string of JSON.
/// Lines and tabs stay, and colours (`ESC [ 1 m`) where the program may have written them. What comes from
/// files, programs and other hosts cannot control the terminal then.
///
/// ```
/// use lastmeter_ledger::terminal::escaped;
/// assert_eq!(escaped("a\u{1b}]0;title\u{7}\n\u{9b}2J", true), "a\\u001b]0;title\\u0007\n\\u009b2J");
/// assert_eq!(escaped("\u{1b}[1;31mred\u{1b}[0m", true), "\u{1b}[1;31mred\u{1b}[0m");
/// ```
pub fn escaped(text: &str, colours: bool) -> Cow<'_, str> {
    let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(odd) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        match odd(c) && !(colours && is_colour(&text[at..])) {
            true => safe += &format!("\\u{:04x}", c as u32),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Whether a text begins with a sequence that sets colours: `ESC [ 1 ; 31 m`.
fn is_colour(text: &str) -> bool {
    text.strip_prefix("\u{1b}[").is_some_and(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
    })
}
