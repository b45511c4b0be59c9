//! What the program and its helper processes say to each other: JSON with a length in front.
//!
//! ```text
//! | length, u32 little endian | JSON |
//! ```

use crate::error::Error;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// The longest message: a minute of samples of eight threads stays well below it.
const MESSAGE_MAX: usize = 64 << 20;

/// Sends `message`.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message).map_err(io::Error::other)?;
    assert!(json.len() <= MESSAGE_MAX, "a message of {} bytes", json.len());
    to.write_all(&(json.len() as u32).to_le_bytes())?;
    to.write_all(&json)
}

/// Receives a message; `None` when the other side is gone.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_MAX {
        return Err(io::Error::other(format!(
            "a message of {length} bytes; at most {MESSAGE_MAX}"
        )));
    }
    let mut json = vec![0; length];
    from.read_exact(&mut json)?;
    serde_json::from_slice(&json).map(Some).map_err(io::Error::other)
}

/// What came instead of an answer, as an error about having been asked to `doing`.
pub(crate) fn instead(doing: &str, found: impl std::fmt::Debug) -> Error {
    Error::Worker { doing: doing.to_owned(), found: format!("{found:?}") }
}
