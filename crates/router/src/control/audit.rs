//! The audit log: a line for each change, in a file that does not grow without a bound.

use std::fs::{OpenOptions, rename};
use std::io::{Result, Write};
use std::path::Path;

/// Bytes of the log; what is older is in `audit.1.jsonl`, and what is older than that is gone.
pub(super) const BYTES_MAX: u64 = 16 << 20;

/// Appends a line to `audit.jsonl` in a folder; before that the file becomes `audit.1.jsonl` if it has `most` bytes.
pub(super) fn append(folder: &Path, line: &str, most: u64) -> Result<()> {
    let path = folder.join("audit.jsonl");
    if path.metadata().is_ok_and(|log| log.len() >= most) {
        rename(&path, folder.join("audit.1.jsonl"))?;
    }
    writeln!(OpenOptions::new().create(true).append(true).open(path)?, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_goes_and_what_is_new_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..10 {
            append(folder.path(), &format!("line {number}"), 20).expect("written");
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a log");
        // Lines of 7 bytes: a file is full with the third.
        assert_eq!(read("audit.1.jsonl"), "line 6\nline 7\nline 8\n");
        assert_eq!(read("audit.jsonl"), "line 9\n");
    }
}
