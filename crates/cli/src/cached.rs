//! The folder in which measurements of this host are kept between runs.

use crate::Complaint;
use lastmeter_live::calibrate::Calibration;
use std::fs;
use std::path::{Path, PathBuf};

/// The place of a file in `$XDG_CACHE_HOME` or `~/.cache`; `None` without a home.
pub fn path(name: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = match set("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(set("HOME")?).join(".cache"),
    };
    Some(folder.join("lastmeter").join(name))
}

/// Creates the folder of a file.
pub(crate) fn make_folder(path: &Path) -> Result<(), Complaint> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    fs::create_dir_all(folder)
        .map_err(|error| Complaint(format!("cannot write `{}`: {error}", path.display())))
}

/// Writes a calibration atomically.
///
/// # Errors
/// If the file cannot be written.
pub fn keep(path: &Path, calibration: &Calibration) -> Result<(), Complaint> {
    let complain =
        |error: std::io::Error| Complaint(format!("cannot write `{}`: {error}", path.display()));
    make_folder(path)?;
    let text = calibration.to_toml()?;
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}", std::process::id()));
    fs::write(&part, text).map_err(complain)?;
    fs::rename(&part, path).map_err(complain)
}
