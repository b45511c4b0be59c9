//! Errors of measurements, and who can fix them.

use std::fmt;

/// Why a measurement failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused: the user lacks a privilege, or the kernel a feature.
    System {
        /// What was being done.
        doing: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A parameter is out of range: fix the setting.
    Setting {
        /// The parameter.
        name: &'static str,
        /// What was found.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A helper process ended or replied out of turn: a bug in this program, or it was killed.
    Worker {
        /// What was requested.
        doing: String,
        /// What came instead of the reply.
        found: String,
    },
    /// An agent on another host cannot be reached, or does not do what is requested: fix it there.
    Agent {
        /// The host's name, and its agent's address.
        host: String,
        /// What was found.
        found: String,
    },
    /// A profile cannot be read: fix the file.
    Profile {
        /// The constant or place in the file.
        place: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The run has too few samples for a result; a longer one may have enough.
    TooFewSamples {
        /// What was to be computed.
        wanted: String,
        /// How many samples there were.
        found: usize,
        /// How many are needed.
        needed: usize,
    },
}

/// The result of anything that measures.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System { doing, source } => write!(f, "{doing}: {source}"),
            Error::Setting { name, found, expected } => {
                write!(f, "`{name}` is {found}; it must be {expected}")
            }
            Error::Worker { doing, found } => {
                write!(f, "a helper process did not {doing}: {found}")
            }
            Error::Agent { host, found } => write!(f, "the agent of {host}: {found}"),
            Error::Profile { place, message } => write!(f, "profile, {place}: {message}"),
            Error::TooFewSamples { wanted, found, needed } => {
                write!(
                    f,
                    "{wanted} requires {needed} samples, the run has {found}: let it run longer"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// An error of the setting `name`.
///
/// # Errors
/// Always.
pub fn wrong<T>(
    name: &'static str,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> Result<T> {
    Err(Error::Setting { name, found: found.into(), expected: expected.into() })
}

/// Adds to a failed system call what was being done.
pub trait Doing<T> {
    /// Wraps the error with `what`, a gerund: "creating a veth pair".
    ///
    /// # Errors
    /// The call's own, so wrapped.
    fn doing(self, what: impl What) -> Result<T>;
}

/// What was being done: a text, or what makes one in case of an error.
pub trait What {
    /// The text.
    fn text(self) -> String;
}

impl What for &str {
    fn text(self) -> String {
        self.to_owned()
    }
}

impl<F: FnOnce() -> String> What for F {
    fn text(self) -> String {
        self()
    }
}

impl<T, E: Into<std::io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl What) -> Result<T> {
        self.map_err(|e| Error::System { doing: what.text(), source: e.into() })
    }
}
