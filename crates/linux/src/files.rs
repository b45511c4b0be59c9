//! Files and folders that other users, links or pipes cannot turn into something else.

use crate::error::{Doing, Result};
use crate::token;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Reads a file of at most so many bytes.
///
/// # Errors
/// When it cannot be read or is longer, with its path.
pub fn read(path: &Path, most: usize) -> std::result::Result<Vec<u8>, String> {
    let place = |error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(place)?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(place)?;
    if bytes.len() > most {
        return Err(format!("{}: more than {most} bytes", path.display()));
    }
    Ok(bytes)
}

/// Opens a regular file for reading; its last part may not be a symbolic link. Never waits, as a pipe
/// would.
///
/// # Errors
/// It cannot be opened, or is something else.
pub fn regular(path: &Path) -> io::Result<File> {
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, how, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Reads a regular file of at most so many bytes, as [`regular`] opens it.
///
/// # Errors
/// As for [`regular`], or it is longer.
pub fn read_regular(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > most {
        true => Err(io::Error::new(ErrorKind::InvalidData, format!("more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Writes a new file under a random name and renames it to `path`: readers see the old content or the
/// new, and what is there already, even a link or a pipe, is replaced and not written to.
///
/// # Errors
/// It cannot be written; then nothing has changed.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let random = token::random().map_err(io::Error::other)?;
    let half = path.with_file_name(format!(".{name}.{random}.part"));
    let write = || {
        let mut file = File::create_new(&half)?;
        file.write_all(content)?;
        // A file that is replaced keeps its permissions.
        if let Ok(old) = fs::symlink_metadata(path)
            && old.is_file()
        {
            file.set_permissions(old.permissions())?;
        }
        fs::rename(&half, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&half)))
}

/// The number of the user whose rights this process has.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this is a folder of this user that nobody else may enter, and not a link to one.
pub fn is_private(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|about| about.is_dir() && about.uid() == user() && about.mode() & 0o077 == 0)
}

/// Creates a folder that only this user may enter, or makes sure that it is one: not a link, ours, and
/// closed to everybody else.
///
/// # Errors
/// It cannot be created, or is not such a folder: says why.
pub fn private_folder(path: &Path) -> Result<()> {
    let doing = || format!("making the folder {}", path.display());
    if let Err(error) = DirBuilder::new().mode(0o700).create(path)
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(error).doing(doing);
    }
    let about = fs::symlink_metadata(path).doing(doing)?;
    let own = user();
    let found = match about.mode() & 0o777 {
        _ if about.is_symlink() => "a symbolic link".to_owned(),
        _ if !about.is_dir() => "not a folder".to_owned(),
        _ if about.uid() != own => format!("the folder of user {}", about.uid()),
        mode if mode & 0o077 != 0 => format!("open to others (mode {mode:03o})"),
        _ => return Ok(()),
    };
    let right = format!("it is {found}, not a folder of user {own} with mode 700: remove it");
    Err(io::Error::other(right)).doing(doing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    struct Space(PathBuf);

    impl Space {
        fn new(name: &str) -> Space {
            let name = format!("lastmeter-files-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            private_folder(&path).expect("made");
            Space(path)
        }
        fn fifo(&self) -> PathBuf {
            let path = self.0.join("fifo");
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.is_ok_and(|status| status.success()));
            path
        }
    }

    impl Drop for Space {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_longer_file_is_refused_with_its_path() {
        let space = Space::new("long");
        let path = space.0.join("long");
        fs::write(&path, [7; 10]).expect("written");
        assert_eq!(read(&path, 10), Ok(vec![7; 10]));
        assert!(read(&path, 9).expect_err("longer").contains("more than 9 bytes"));
        fs::remove_file(&path).expect("removed");
        assert!(read(&path, 9).expect_err("gone").contains("lastmeter-files-"));
    }

    #[test]
    fn links_pipes_and_folders_are_not_opened_as_files() {
        let space = Space::new("odd");
        let (file, link) = (space.0.join("file"), space.0.join("link"));
        fs::write(&file, "text").expect("written");
        symlink(&file, &link).expect("made");
        assert!(regular(&file).is_ok());
        for odd in [link, space.fifo(), space.0.clone()] {
            assert!(regular(&odd).is_err(), "{}", odd.display());
        }
    }

    #[test]
    fn a_replaced_link_or_pipe_is_not_written_to() {
        let space = Space::new("replaced");
        let (file, link) = (space.0.join("file"), space.0.join("link"));
        fs::write(&file, "old").expect("written");
        symlink(&file, &link).expect("made");
        for path in [link, space.fifo()] {
            replace(&path, b"new").expect("written");
            assert_eq!(fs::read(&path).expect("read"), b"new");
            assert!(fs::symlink_metadata(&path).expect("there").is_file());
        }
        assert_eq!(fs::read(&file).expect("read"), b"old");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
        replace(&file, b"new").expect("written");
        assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o640);
        // Nothing half-written stays.
        assert_eq!(fs::read_dir(&space.0).expect("listed").count(), 3);
    }

    #[test]
    fn a_folder_that_others_may_enter_is_not_private() {
        let space = Space::new("private");
        let (folder, link) = (space.0.join("folder"), space.0.join("link"));
        private_folder(&folder).expect("made");
        private_folder(&folder).expect("still there");
        symlink(&folder, &link).expect("made");
        let refused = |path: &Path, why: &str| {
            let error = private_folder(path).expect_err("refused").to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&link, "a symbolic link");
        refused(&space.fifo(), "not a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("set");
        refused(&folder, "open to others (mode 755)");
    }
}
