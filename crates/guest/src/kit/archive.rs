//! Archives that a kernel unpacks as its first file system: `cpio` in the format "newc".
//!
//! Source: Linux, `Documentation/driver-api/early-userspace/buffer-format.rst`. Archives may follow each other; later
//! files replace earlier ones.

use std::fs;
use std::io;
use std::path::Path;

/// Files of an initial file system, at most.
pub const FILES_MAX: u32 = 10_000;
/// Bytes of an initial file system, at most.
pub const BYTES_MAX: usize = 1 << 28;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive that is being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

impl Archive {
    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let len = u32::try_from(content.len()).ok();
        let fits = self.files < FILES_MAX && self.bytes.len() + content.len() < BYTES_MAX;
        let (Some(len), true) = (len, fits) else {
            return Err(io::Error::other(format!("{name}: an initial file system of this size")));
        };
        self.files += 1;
        let name_len = name.len() as u32 + 1;
        // Magic, inode, mode, owner, group, links, time, length, device, the device it is, length of the name, sum.
        let fields = [self.files, mode, 0, 0, 1, 0, len, 0, 0, device.0, device.1, name_len, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// A folder.
    ///
    /// # Errors
    /// The archive is full.
    pub fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, FOLDER, (0, 0), &[])
    }

    /// A file that can be executed.
    ///
    /// # Errors
    /// The archive is full.
    pub fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name, FILE, (0, 0), content)
    }

    /// A character device by its major and minor number.
    ///
    /// # Errors
    /// The archive is full.
    pub fn device(&mut self, name: &str, numbers: (u32, u32)) -> io::Result<()> {
        self.entry(name, CHARACTER_DEVICE, numbers, &[])
    }

    /// What is in a folder, by name; links are followed.
    ///
    /// # Errors
    /// A file cannot be read, or the archive is full.
    pub fn tree(&mut self, folder: &Path) -> io::Result<()> {
        self.below(folder, "")
    }

    fn below(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        let entries: io::Result<Vec<_>> = fs::read_dir(folder)?.collect();
        let mut entries = entries?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let path = entry.path();
            if path.is_dir() {
                self.folder(&name)?;
                self.below(&path, &format!("{name}/"))?;
            } else {
                self.file(&name, &fs::read(&path)?)?;
            }
        }
        Ok(())
    }

    /// The archive's bytes.
    ///
    /// # Errors
    /// The archive is full.
    pub fn end(mut self) -> io::Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Names and contents of an archive, read as the format's description says.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut files = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |at: usize| {
                let digits = std::str::from_utf8(&bytes[6 + 8 * at..14 + 8 * at]).unwrap();
                u32::from_str_radix(digits, 16).unwrap()
            };
            let (mode, len, name_len) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..109 + name_len].to_vec()).unwrap();
            assert_eq!(bytes[109 + name_len], 0);
            let from = (110 + name_len).next_multiple_of(4);
            let content = bytes[from..from + len].to_vec();
            bytes = &bytes[(from + len).next_multiple_of(4)..];
            if name == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return files;
            }
            files.push((name, mode, content));
        }
    }

    proptest! {
        #[test]
        fn what_was_put_in_is_read_back(
            files in prop::collection::vec(("[a-z]{1,20}", prop::collection::vec(any::<u8>(), 0..99)), 0..9),
        ) {
            let mut archive = Archive::default();
            for (name, content) in &files {
                archive.file(name, content).unwrap();
            }
            let found = read(&archive.end().unwrap());
            prop_assert_eq!(found.len(), files.len());
            for ((name, content), (found, mode, bytes)) in files.iter().zip(found) {
                prop_assert_eq!((name, content, FILE), (&found, &bytes, mode));
            }
        }
    }

    #[test]
    fn a_tree_is_packed_with_its_folders_in_order() {
        let folder = std::env::temp_dir().join(format!("lastmeter-archive-{}", std::process::id()));
        fs::create_dir_all(folder.join("b/c")).unwrap();
        fs::write(folder.join("b/c/x"), "1").unwrap();
        fs::write(folder.join("a"), "2").unwrap();
        let mut archive = Archive::default();
        archive.tree(&folder).unwrap();
        let names: Vec<String> = read(&archive.end().unwrap()).into_iter().map(|f| f.0).collect();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(names, ["a", "b", "b/c", "b/c/x"]);
    }
}
