//! Why bytes do not parse, or a value cannot be emitted.

use std::fmt;

/// Why bytes could not be parsed or a value not emitted. Captures have their own error type, which includes the
/// position in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Fewer bytes than the format needs: they were truncated on the way.
    Truncated {
        /// The format.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes available.
        have: usize,
    },
    /// A field has a value that the format does not allow: the sender's fault.
    Invalid {
        /// The format and field.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// A checksum or CRC does not match: the bytes were corrupted on the way.
    Corrupt {
        /// The format.
        what: &'static str,
    },
    /// A value is too large for its field: the emitter's fault.
    DoesNotFit {
        /// The format and field.
        what: &'static str,
        /// The value.
        value: u64,
        /// The largest that fits.
        max: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated { what, need, have } => {
                write!(f, "{what}: {have} bytes where {need} are needed")
            }
            Error::Invalid { what, found } => write!(f, "{what}: {found} is not allowed"),
            Error::Corrupt { what } => write!(f, "{what}: checksum mismatch"),
            Error::DoesNotFit { what, value, max } => {
                write!(f, "{what}: {value} does not fit; the maximum is {max}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// The first `N` bytes of `data` and the rest, or an error that names `what` and the bytes missing.
pub(crate) fn split<'a, const N: usize>(
    data: &'a [u8],
    what: &'static str,
) -> Result<(&'a [u8; N], &'a [u8]), Error> {
    data.split_first_chunk::<N>().ok_or(Error::Truncated { what, need: N, have: data.len() })
}

/// `value` as the type of its field, or an error that names the field.
pub(crate) fn fit<T: TryFrom<u64>>(value: usize, max: u64, what: &'static str) -> Result<T, Error> {
    let value = value as u64;
    let too_large = Error::DoesNotFit { what, value, max };
    if value > max { Err(too_large) } else { T::try_from(value).map_err(|_| too_large) }
}
