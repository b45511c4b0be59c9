//! Why there is no guest, and what to do about it.

use std::fmt;
use std::time::Duration;

/// Why there is no guest, or none that ended well.
#[derive(Debug)]
pub enum Error {
    /// A piece of the kit is not there.
    Missing(String),
    /// A system call failed.
    System {
        /// What was being done.
        doing: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The guest or QEMU ended before the command did.
    Ended {
        /// What was found.
        found: String,
        /// The end of what it wrote.
        console: String,
    },
    /// The command did not end in time.
    Limit {
        /// The time it had.
        limit: Duration,
        /// The end of what it wrote.
        console: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing(what) => write!(f, "{what} is missing: run `make guest`"),
            Error::System { doing, source } => write!(f, "{doing}: {source}"),
            Error::Ended { found, console } => write!(f, "the guest {found}; it said:\n{console}"),
            Error::Limit { limit, console } => {
                let seconds = limit.as_secs_f64();
                write!(f, "the guest did not end within {seconds:.1} s; it said:\n{console}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// The result of anything with a guest.
pub type Result<T> = std::result::Result<T, Error>;

pub(super) fn doing<T>(what: &str, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|source| Error::System { doing: what.to_owned(), source })
}
