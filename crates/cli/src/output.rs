//! Printing. A reader that closes the pipe early is not an error.

use lastmeter_ledger::terminal::Style;
use std::io::{IsTerminal, Write};

/// Narrower terminals than this are treated as if they were this wide.
const WIDTH_MIN: usize = 60;
/// The width where there is no terminal.
const WIDTH_DEFAULT: usize = 100;

/// Prints `text` on standard output.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    // A closed pipe is not an error: the reader has all it wants.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
}

/// Prints a note on standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints an error on standard error.
pub(crate) fn complain(text: &str) {
    // A problem with a location is already rendered, `error:` included.
    let colours = |c: char| c == '\u{1b}' || c == '[' || c == 'm' || c == ';' || c.is_ascii_digit();
    let is_rendered = text.trim_start_matches(colours).starts_with("error");
    let _ = match is_rendered {
        true => writeln!(std::io::stderr(), "{text}"),
        false => writeln!(std::io::stderr(), "error: {text}"),
    };
}

/// Whether standard output is a terminal that shows colours.
pub(crate) fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Whether standard error is a terminal that shows colours.
pub(crate) fn error_colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// The width of the terminal, in columns.
pub(crate) fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    columns.or(terminal).unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN)
}

/// What standard output can show.
pub(crate) fn style() -> Style {
    Style { width: width(), color: colours(), unicode: true }
}
