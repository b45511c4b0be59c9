//! What experiments of the page may open: files of the folder, and bundled ones.

use crate::world::Disk;
use lastmeter_lab::library::{Builtin, Library};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A [`Disk`] that opens nothing outside a folder: a page must not read other files by naming them as
/// captures.
pub(super) struct Confined {
    disk: Disk,
    /// The folder that names are relative to, and the one nothing may leave; `None` for bundled ones.
    within: Option<(PathBuf, PathBuf)>,
}

impl Confined {
    /// For a bundled experiment.
    pub(super) fn bundled() -> Confined {
        Confined { disk: Disk::new(None), within: None }
    }
    /// For a file in `at`, which is `root` or within it; both exist and are absolute.
    pub(super) fn new(at: PathBuf, root: PathBuf) -> Confined {
        Confined { disk: Disk::new(Some(at.clone())), within: Some((at, root)) }
    }

    /// The folder that names are relative to, and the one nothing may leave.
    pub(super) fn within(&self) -> Option<&(PathBuf, PathBuf)> {
        self.within.as_ref()
    }

    fn check(&self, path: &Path) -> Result<(), String> {
        let Some((_, root)) = &self.within else { return Ok(()) };
        // A missing file is reported by whoever opens it.
        let Ok(real) = path.canonicalize() else { return Ok(()) };
        match real.starts_with(root) {
            true => Ok(()),
            false => Err(format!(
                "`{}` is outside `{}`, the folder that is served",
                path.display(),
                root.display()
            )),
        }
    }
}

impl Library for Confined {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        let plain = |text: &str| !text.contains(['/', '\\', '\0']) && !text.starts_with('.');
        if !plain(folder) || !plain(name) {
            return Builtin.profile(folder, name);
        }
        if let Some((at, _)) = &self.within {
            self.check(&at.join("profiles").join(folder).join(format!("{name}.toml")))?;
        }
        self.disk.profile(folder, name)
    }
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String> {
        if let Some((at, _)) = &self.within {
            self.check(&at.join(path))?;
        }
        self.disk.open(path)
    }
    fn names(&self, folder: &str) -> Vec<String> {
        self.disk.names(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn captures_and_profiles_outside_the_folder_are_not_opened() {
        let space = tempfile::tempdir().unwrap();
        let space = space.path().canonicalize().unwrap();
        let (root, at) = (space.join("root"), space.join("root/one"));
        fs::create_dir_all(at.join("profiles/hosts")).unwrap();
        for file in ["root/inside.pcap", "outside.pcap", "outside.toml"] {
            fs::write(space.join(file), "secret").unwrap();
        }
        std::os::unix::fs::symlink(space.join("outside.toml"), at.join("profiles/hosts/x.toml"))
            .unwrap();
        let library = Confined::new(at, root);
        assert!(library.open("../inside.pcap").is_ok());
        let refused = |result: Result<(), String>| assert!(result.unwrap_err().contains("outside"));
        refused(library.open("../../outside.pcap").map(|_| ()));
        refused(library.open("/etc/hostname").map(|_| ()));
        refused(library.profile("hosts", "x").map(|_| ()));
        assert!(library.profile("hosts", "../../../outside").unwrap_err().contains("no profile"));
        assert!(library.profile("hosts", "harts").is_ok());
    }
}
