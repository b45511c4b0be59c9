//! The folder of a sweep: its plan, and its rows as two Parquet data sets that grow part by part.
//!
//! ```text
//! plan.json                    everything that the rows depend on
//! runs/part-00000.parquet      a row for each run
//! paths/part-00000.parquet     a row for each path and class of each run
//! parts.sha256                 the checksum of each part, as `sha256sum --check` reads it
//! sweep.json                   a line for each point, with intervals
//! ```
//!
//! A part is written under another name and then renamed; its line of `parts.sha256` comes before that, and of
//! its two files `runs` comes last. So whatever interrupts the program, each run is in the data set exactly
//! once or not at all. A part that is continued with must have its checksum.

use crate::{Complaint, results};
use lastmeter_lab::sweep::{self, Plan, Report, Row};
use lastmeter_ledger::columns::Columns;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const PLAN: &str = "plan.json";
const RUNS: &str = "runs";
const PATHS: &str = "paths";
const RESULT: &str = "sweep.json";
const SUMS: &str = "parts.sha256";
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
        let sums = Sums::read(path)?;
        for (_, file) in parts_of(&path.join(PATHS))? {
            let bytes = fs::read(&file).map_err(|error| complain(&file, error))?;
            sums.check(PATHS, &file, &bytes)?;
        }
        let (mut rows, mut parts) = (Vec::new(), 0);
        for (number, file) in parts_of(&path.join(RUNS))? {
            let bytes = fs::read(&file).map_err(|error| complain(&file, error))?;
            sums.check(RUNS, &file, &bytes)?;
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
            Sums::add(&self.path, &format!("{table}/{name}"), &bytes)?;
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

/// The checksums of the parts, by name. Of two lines for one name, which an interruption leaves, the last counts.
struct Sums(BTreeMap<String, String>);

impl Sums {
    fn read(folder: &Path) -> Result<Sums, Complaint> {
        let path = folder.join(SUMS);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // Nothing has been added yet.
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(complain(&path, error)),
        };
        let line = |line: &str| line.split_once("  ").map(|(sum, name)| (name.into(), sum.into()));
        Ok(Sums(text.lines().filter_map(line).collect()))
    }

    fn check(&self, table: &str, file: &Path, bytes: &[u8]) -> Result<(), Complaint> {
        let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
        let found = sum(bytes);
        let (problem, hint) = match self.0.get(&format!("{table}/{name}")) {
            Some(wanted) if *wanted == found => return Ok(()),
            Some(_) => ("differs from its checksum", "damaged or changed"),
            None => ("has no checksum", "not written by this sweep"),
        };
        let all = format!("{RUNS}/{name} and {PATHS}/{name}");
        let right = format!("it was {hint}: delete {all}, and --resume runs them again");
        Err(complain(file, format_args!("{problem} in {SUMS}; {right}")))
    }

    fn add(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Complaint> {
        let path = folder.join(SUMS);
        let file = File::options().append(true).create(true).open(&path);
        let line = format!("{}  {name}\n", sum(bytes));
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|error| complain(&path, error))
    }
}

/// SHA-256, in hexadecimal digits.
fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
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
