//! What can go wrong while measuring, and who can mend it.

use std::fmt;

/// Why a measurement was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused: the user needs a right, or the kernel lacks a feature.
    System {
        /// What was being done.
        doing: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A parameter is out of range: whoever wrote the setting can mend it.
    Setting {
        /// The parameter.
        name: &'static str,
        /// What was found.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A helper process ended or answered out of turn: a defect of this program, or it was killed.
    Worker {
        /// What it was asked.
        doing: String,
        /// What came instead of the answer.
        found: String,
    },
    /// An agent on another host cannot be reached, or does not do what it is asked: whoever runs it
    /// can mend it.
    Agent {
        /// The host's name, and where its agent was looked for.
        host: String,
        /// What was found.
        found: String,
    },
    /// A profile cannot be read: whoever wrote the file can mend it.
    Profile {
        /// The constant or place in the file.
        place: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The run was made but its samples do not allow a result; a longer run may.
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
                write!(f, "a helper process was asked to {doing}, and instead: {found}")
            }
            Error::Agent { host, found } => write!(f, "the agent of {host}: {found}"),
            Error::Profile { place, message } => write!(f, "profile, {place}: {message}"),
            Error::TooFewSamples { wanted, found, needed } => {
                write!(
                    f,
                    "{wanted} needs {needed} samples, the run gave {found}: let it run longer"
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

/// Says what was being done when a system call failed.
pub(crate) trait Doing<T> {
    /// Wraps the error with `what`, a gerund: "creating a veth pair".
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::System { doing: what(), source: e.into() })
    }
}
