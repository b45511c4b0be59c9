//! The folder of a sweep: its plan, and its rows as two Parquet data sets that grow part by part.
//!
//! ```text
//! plan.json                    everything that the rows depend on
//! runs/part-00000.parquet      a row for each run
//! paths/part-00000.parquet     a row for each path and class of each run
//! sweep.json                   a line for each point, with intervals
//! ```
//!
//! A part is written under another name and then renamed; of its two files, `runs` comes last. So
//! whatever interrupts the program, each run is in the data set exactly once or not at all.

use crate::{Complaint, results};
use lastmeter_lab::sweep::{self, Plan, Report, Row};
use lastmeter_ledger::columns::Columns;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

const PLAN: &str = "plan.json";
const RUNS: &str = "runs";
const PATHS: &str = "paths";
const RESULT: &str = "sweep.json";
const EXTENSION: &str = "parquet";

/// The folder of a sweep, locked against other writers while this exists.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    plan: Plan,
    parts: u64,
    /// Locked while it is open.
    _lock: File,
}

fn complain(path: &Path, error: impl std::fmt::Display) -> Complaint {
    Complaint(format!("`{}`: {error}", path.display()))
}

impl Folder {
    /// Whether there is a sweep in this folder.
    pub fn is_there(path: &Path) -> bool {
        path.join(PLAN).is_file()
    }

    /// Creates the folder of a new sweep.
    ///
    /// # Errors
    /// It holds a sweep already, or cannot be created.
    pub fn create(path: &Path, plan: Plan) -> Result<Folder, Complaint> {
        if Folder::is_there(path) {
            let hint = "continue with --resume, or choose another folder";
            return Err(complain(path, format_args!("holds a sweep already: {hint}")));
        }
        for folder in [RUNS, PATHS] {
            let folder = path.join(folder);
            fs::create_dir_all(&folder).map_err(|error| complain(&folder, error))?;
            if parts_of(&folder)?.next().is_some() {
                return Err(complain(&folder, "holds tables that are not of this sweep"));
            }
        }
        results::save(path, PLAN, plan.to_json().as_bytes())?;
        let lock = lock(path)?;
        Ok(Folder { path: path.to_owned(), plan, parts: 0, _lock: lock })
    }

    /// Opens the folder of an interrupted sweep, with its rows.
    ///
    /// # Errors
    /// There is none, it cannot be read, or another process is writing it.
    pub fn open(path: &Path) -> Result<(Folder, Vec<Row>), Complaint> {
        let file = path.join(PLAN);
        let text = fs::read_to_string(&file).map_err(|error| complain(&file, error))?;
        let plan = Plan::from_json(&text).map_err(|error| complain(&file, error))?;
        let lock = lock(path)?;
        let (mut rows, mut parts) = (Vec::new(), 0);
        for (number, file) in parts_of(&path.join(RUNS))? {
            let bytes = fs::read(&file).map_err(|error| complain(&file, error))?;
            let columns = Columns::read(bytes).map_err(|error| complain(&file, error))?;
            rows.extend(sweep::runs_back(&plan, &columns).map_err(|error| complain(&file, error))?);
            parts = parts.max(number + 1);
        }
        Ok((Folder { path: path.to_owned(), plan, parts, _lock: lock }, rows))
    }

    /// What is swept.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Appends rows as one part.
    ///
    /// # Errors
    /// A file cannot be written; says which.
    pub fn add(&mut self, rows: &[Row]) -> Result<(), Complaint> {
        if rows.is_empty() {
            return Ok(());
        }
        let hash = self.plan.hash();
        let about = [("lastmeter.schema", "lastmeter.sweep/1"), ("lastmeter.plan", &hash)];
        let name = format!("part-{:05}.{EXTENSION}", self.parts);
        let tables =
            [(PATHS, sweep::paths(&self.plan, rows)), (RUNS, sweep::runs(&self.plan, rows))];
        for (table, columns) in tables {
            // Runs that all failed have no paths.
            if columns.rows() == 0 {
                continue;
            }
            let folder = self.path.join(table);
            let mut bytes = Vec::new();
            columns.write(table, &about, &mut bytes)?;
            let (file, begun) = (folder.join(&name), folder.join(format!("{name}.new")));
            fs::write(&begun, bytes).map_err(|error| complain(&begun, error))?;
            fs::rename(&begun, &file).map_err(|error| complain(&file, error))?;
        }
        self.parts += 1;
        Ok(())
    }

    /// Writes the result, point by point.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn conclude(&self, report: &Report<'_>) -> Result<(), Complaint> {
        results::save(&self.path, RESULT, format!("{:#}\n", report.json()).as_bytes())
    }
}

/// The parts of a table, by number.
fn parts_of(folder: &Path) -> Result<impl Iterator<Item = (u64, PathBuf)>, Complaint> {
    let entries = fs::read_dir(folder).map_err(|error| complain(folder, error))?;
    let mut files: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let number = name.strip_prefix("part-")?.strip_suffix(&format!(".{EXTENSION}"))?;
            Some((number.parse().ok()?, path.clone()))
        })
        .collect();
    files.sort();
    Ok(files.into_iter())
}

fn lock(path: &Path) -> Result<File, Complaint> {
    let file = path.join(PLAN);
    let lock = File::open(&file).map_err(|error| complain(&file, error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            Err(complain(path, "another process is running this sweep"))
        }
        Err(TryLockError::Error(error)) => Err(complain(&file, error)),
    }
}
