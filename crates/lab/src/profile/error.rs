//! Errors in constants and in what is computed from them.

use crate::document::{Fault, Problem, whole_file};
use std::fmt;

/// Why something cannot be computed at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no such thing; the message suggests others.
    Unknown {
        /// What was looked for: "row, system or experiment".
        what: &'static str,
        /// The name given.
        name: String,
        /// What may have been meant, nearest first.
        near: Vec<String>,
        /// Where nothing was: what there is, in words; empty if it would be too long.
        there: String,
    },
    /// Errors in the files of an experiment, for their author to fix.
    Problems(Vec<Problem>),
    /// A failed computation, for its author to fix.
    Computation {
        /// Its registered name.
        name: &'static str,
        /// What went wrong.
        message: String,
    },
}

const NEAR_MAX: usize = 3;

impl Error {
    /// An error in this line of a file.
    pub fn file(file: &str, line: u64, found: impl Into<String>) -> Error {
        Error::Problems(vec![Problem {
            file: file.to_owned(),
            line,
            column: 1,
            key: String::new(),
            found: found.into(),
            right: String::new(),
            suggestion: None,
            excerpt: String::new(),
            highlight: 0..0,
        }])
    }

    /// The problems with `file`.
    pub fn problems(self, file: &str) -> Vec<Problem> {
        match self {
            Error::Problems(problems) => problems,
            error => vec![whole_file(file, Fault::new(error.to_string(), "fix the profile"))],
        }
    }

    /// Nothing is called `name`; suggests similar names.
    pub fn unknown(
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = String>,
    ) -> Error {
        let lower = name.to_lowercase();
        // At most one typing error per three letters; beyond that it is another word.
        let slips = |known: &str| strsim::damerau_levenshtein(&lower, &known.to_lowercase());
        let near = |known: String| {
            let (slips, len) = (slips(&known), known.chars().count());
            let lower_known = known.to_lowercase();
            let begins = lower.len() >= 2 && lower_known.starts_with(&lower);
            let is_part = lower.len() >= 3 && lower_known.contains(&lower);
            (begins || is_part || slips * 3 <= len.max(3)).then_some((slips, known))
        };
        let mut near: Vec<(usize, String)> = known.into_iter().filter_map(near).collect();
        near.sort();
        near.dedup();
        let near = near.into_iter().map(|(_, known)| known).take(NEAR_MAX).collect();
        Error::Unknown { what, name: name.to_owned(), near, there: String::new() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unknown { what, name, near, there } => {
                write!(f, "there is no {what} `{name}`")?;
                match near.as_slice() {
                    [] if there.is_empty() => Ok(()),
                    [] => write!(f, ", and nothing is called nearly so: {there}"),
                    near => write!(f, "; did you mean `{}`?", near.join("`, `")),
                }
            }
            Error::Problems(problems) => {
                let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Error::Computation { name, message } => write!(f, "computation `{name}`: {message}"),
        }
    }
}

impl std::error::Error for Error {}
