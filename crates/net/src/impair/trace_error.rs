//! What is wrong with a trace, and in which line.

use std::fmt;

/// Why a text is not a trace, for its author to fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there, and what would be right.
    pub reason: String,
}

impl TraceError {
    pub(super) fn new(line: usize, reason: impl Into<String>) -> TraceError {
        TraceError { line, reason: reason.into() }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}
impl std::error::Error for TraceError {}

/// How much of a line is shown.
const SHOWN_MAX: usize = 40;

/// The beginning of a line, for messages.
pub(super) fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX)]);
    let text = text.chars().map(|c| if c.is_control() { '?' } else { c });
    text.chain((line.len() > SHOWN_MAX).then_some('…')).collect()
}

/// The lines of a text, from number 1, without their ends; what ends the text ends its last line.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    (1..).zip(text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii))
}
