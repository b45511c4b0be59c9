//! Files of a known greatest length, read whole.

use std::io::Read;
use std::path::Path;

/// Reads a file of at most so many bytes.
///
/// # Errors
/// When it cannot be read or is longer, with its path.
pub fn read(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let place = |error| format!("{}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(place)?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(place)?;
    if bytes.len() > most {
        return Err(format!("{}: more than {most} bytes", path.display()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_file_is_refused_with_its_path() {
        let path = std::env::temp_dir().join(format!("lastmeter-files-{}", std::process::id()));
        std::fs::write(&path, [7; 10]).expect("written");
        assert_eq!(read(&path, 10), Ok(vec![7; 10]));
        assert!(read(&path, 9).expect_err("longer").contains("more than 9 bytes"));
        std::fs::remove_file(&path).expect("removed");
        assert!(read(&path, 9).expect_err("gone").contains("lastmeter-files-"));
    }
}
