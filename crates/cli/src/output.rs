//! Printing. A reader that closes the pipe early is not an error.

use lastmeter_ledger::terminal::Style;
use lastmeter_ledger::terminal::escaped;
use std::io::{Error, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The least width; nothing narrower is readable.
const WIDTH_MIN: usize = 40;
/// The width where there is no terminal.
const WIDTH_DEFAULT: usize = 120;

/// Prints `text` on standard output.
pub(crate) fn print(text: &str) {
    let text = &escaped(text, colours());
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
    remember(written.and_then(|()| out.flush()));
}

/// The first failure to write standard output.
static FAILED: Mutex<Option<Error>> = Mutex::new(None);

/// Keeps a failure for [`failure`]. A closed pipe is none: the reader has all it wants.
pub(crate) fn remember(written: Result<(), Error>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Why standard output is incomplete, if it is.
pub(crate) fn failure() -> Option<Error> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

static QUIET: AtomicBool = AtomicBool::new(false);

/// Prints neither notes nor progress from now on.
pub(crate) fn hush() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether notes and progress are not wanted.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints a note on standard error.
pub(crate) fn note(text: &str) {
    if !is_quiet() {
        let _ = writeln!(std::io::stderr(), "{}", escaped(text, error_colours()));
    }
}

/// # Errors
/// Standard output could not be written: nobody has read what was printed, so there is nothing to wait for.
pub(crate) fn check() -> Result<(), crate::Complaint> {
    failure().map_or(Ok(()), |error| Err(crate::Complaint(unwritten(&error))))
}

/// What is wrong with standard output, in words.
pub(crate) fn unwritten(error: &Error) -> String {
    format!("cannot write standard output: {error}")
}

/// Prints an error on standard error.
pub(crate) fn complain(text: &str) {
    // A problem with a location is already rendered, `error:` included.
    let colours = |c: char| c == '\u{1b}' || c == '[' || c == 'm' || c == ';' || c.is_ascii_digit();
    let is_rendered = text.trim_start_matches(colours).starts_with("error");
    let text = escaped(text, error_colours());
    let _ = match is_rendered {
        true => writeln!(std::io::stderr(), "{text}"),
        false => writeln!(std::io::stderr(), "error: {text}"),
    };
}

/// Whether standard output is a terminal that shows colours.
pub(crate) fn colours() -> bool {
    std::io::stdout().is_terminal() && may_colour()
}

/// Whether standard error is a terminal that shows colours.
pub(crate) fn error_colours() -> bool {
    std::io::stderr().is_terminal() && may_colour()
}

/// Unless the user or the terminal wants none (no-color.org).
fn may_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none() && !is_dumb()
}

/// Whether the terminal can only print lines.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
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
