//! The folder of results that every command writes: ledger.json, ledger.html, tables in Parquet.

use crate::{Complaint, output};
use lastmeter_ledger as report;
use lastmeter_ledger::Ledger;
use lastmeter_ledger::parquet::Table;
use std::fs;
use std::path::{Path, PathBuf};

/// The files in a folder of results.
pub(crate) const JSON: &str = "ledger.json";
const HTML: &str = "ledger.html";

/// Writes a folder of results; returns the path of its HTML page.
///
/// # Errors
/// A file cannot be written; says which.
pub fn write(folder: &Path, ledger: &Ledger) -> Result<PathBuf, Complaint> {
    save(folder, JSON, report::json::to_json(ledger).as_bytes())?;
    for table in Table::ALL {
        let mut rows = Vec::new();
        report::parquet::write(ledger, table, &mut rows)?;
        save(folder, &format!("{}.parquet", table.name()), &rows)?;
    }
    save(folder, HTML, report::html::render(ledger).as_bytes())?;
    Ok(folder.join(HTML))
}

/// Creates the folder of results that the user named, if any, before the work whose results it is to hold.
///
/// # Errors
/// Nothing can be written there.
pub(crate) fn prepare(folder: Option<&Path>) -> Result<(), Complaint> {
    let Some(folder) = folder else { return Ok(()) };
    let complain = |error| Complaint(format!("--out {}: {error}", folder.display()));
    if folder.is_file() {
        return Err(complain(std::io::Error::other("this is a file: name a folder, new or old")));
    }
    fs::create_dir_all(folder).map_err(complain)?;
    let probe = folder.join(format!(".lastmeter-{}", std::process::id()));
    fs::File::create_new(&probe).and_then(|_| fs::remove_file(&probe)).map_err(complain)
}

/// Makes sure that a file of results that the user named can be written, before the work whose results it is to
/// hold. What it holds stays until then.
///
/// # Errors
/// It cannot be written.
pub(crate) fn prepare_file(path: Option<&Path>) -> Result<(), Complaint> {
    let Some(path) = path else { return Ok(()) };
    // A pipe, or a link to one, waits for a reader.
    if path.exists() && !path.is_file() && !path.is_dir() {
        return Ok(());
    }
    let was_there = path.exists();
    let opened = fs::File::options().append(true).create(true).open(path);
    let removed = opened.and_then(|_| if was_there { Ok(()) } else { fs::remove_file(path) });
    removed.map_err(|error| Complaint(format!("cannot write `{}`: {error}", path.display())))
}

/// Writes the folder of results that the user named, if any, and prints where.
///
/// # Errors
/// As [`write`].
pub(crate) fn offer(folder: Option<&Path>, ledger: &Ledger) -> Result<(), Complaint> {
    if let Some(folder) = folder {
        let page = write(folder, ledger)?;
        output::note(&format!("Written to {}; open {}", folder.display(), page.display()));
    }
    Ok(())
}

/// Writes a file that the user named, and prints where.
pub(crate) fn file(path: &Path, content: &[u8]) -> Result<(), Complaint> {
    fs::write(path, content).map_err(|error| Complaint(format!("{}: {error}", path.display())))?;
    output::note(&format!("Written to {}", path.display()));
    Ok(())
}

/// Writes one file into a folder, creating the folder if needed.
pub(crate) fn save(folder: &Path, name: &str, content: &[u8]) -> Result<(), Complaint> {
    let complain = |path: &Path, error: std::io::Error| {
        Complaint(format!("cannot write `{}`: {error}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| complain(folder, error))?;
    let path = folder.join(name);
    fs::write(&path, content).map_err(|error| complain(&path, error))
}
