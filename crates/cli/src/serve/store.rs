//! The results of runs: a folder each, with its record in the list and its ledger.

use super::events::Figures;
use super::work::COURSE;
use crate::{Complaint, results};
use lastmeter_ledger::{Ledger, json};
use lastmeter_live::token;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, DirBuilder, File};
use std::io::BufReader;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The file with a run's record in the list.
const RECORD: &str = "run.json";
/// The text that was run.
const TEXT: &str = "experiment.toml";
/// What the process wrote to standard error.
pub(super) const WORDS: &str = "stderr.txt";
/// Limits on the runs kept and the bytes of their ledgers: beyond them the oldest are deleted, or, in a
/// folder that the user has named, no further run starts.
pub(super) const RUNS_MAX: usize = 200;
const BYTES_MAX: u64 = 8 << 30;
/// Ledgers cached in memory, since whoever views a part will view another.
const READ_MAX: usize = 2;
/// A longer ledger is only served as a file.
const LEDGER_MAX: u64 = 1 << 30;

/// A run's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// In the queue.
    Waiting,
    Running,
    /// Told to stop, and not stopped yet.
    Stopping,
    Done,
    /// Stopped; it has results so far.
    Stopped,
    /// Failed, without results.
    Failed,
}

impl Status {
    /// Whether nothing more will happen to it.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Status::Done | Status::Stopped | Status::Failed)
    }
}

/// A run's record in the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: u64,
    /// `bundled/NAME` or `file/PATH`.
    pub(super) experiment: String,
    /// The experiment's own title.
    pub(super) title: String,
    /// The user's note: what was changed.
    pub(super) note: String,
    pub(super) quick: bool,
    pub(super) stands: Status,
    /// Why it failed.
    pub(super) words: String,
    /// The problems of the text, each with its place.
    pub(super) problems: Vec<Value>,
    pub(super) figures: Option<Figures>,
    /// Bytes of its ledger.
    pub(super) size: u64,
    /// When it started, in seconds since 1970.
    pub(super) began: u64,
    /// How long it took, in seconds.
    pub(super) took: f64,
}

/// The folder of all results.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    /// The user has not named it: it is deleted when the server ends.
    passing: bool,
    read: Mutex<Vec<(u64, Arc<Ledger>)>>,
}

impl Store {
    /// # Errors
    /// The folder cannot be made.
    pub(super) fn new(named: Option<PathBuf>) -> Result<Store, Complaint> {
        let passing = named.is_none();
        let folder = match named {
            Some(folder) => folder,
            None => std::env::temp_dir().join(format!("lastmeter-{}", token::random()?)),
        };
        let made = DirBuilder::new().recursive(!passing).mode(0o700).create(&folder);
        let made = made.and_then(|()| folder.canonicalize());
        let failed = |error| Complaint(format!("cannot write `{}`: {error}", folder.display()));
        Ok(Store { folder: made.map_err(failed)?, passing, read: Mutex::default() })
    }

    /// The records of earlier servers. Runs that had not finished have failed: their processes are gone.
    pub(super) fn records(&self) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut records: Vec<Record> = entries
            .flatten()
            .filter_map(|entry| {
                let text = fs::read(entry.path().join(RECORD)).ok()?;
                let record: Record = serde_json::from_slice(&text).ok()?;
                // A folder that was renamed or copied is not the run's own.
                (self.path(record.id) == entry.path()).then_some(record)
            })
            .collect();
        for record in records.iter_mut().filter(|record| !record.stands.is_over()) {
            record.stands = Status::Failed;
            record.words = "the server ended before the run did".to_owned();
        }
        records.sort_by_key(|record| record.id);
        records
    }

    pub(super) fn path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("run-{id:04}"))
    }

    /// Makes a run's folder, with its text.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin(&self, record: &Record, text: &str) -> Result<(), Complaint> {
        results::save(&self.path(record.id), TEXT, text.as_bytes())?;
        self.keep(record)
    }

    /// # Errors
    /// It cannot be written.
    pub(super) fn keep(&self, record: &Record) -> Result<(), Complaint> {
        results::save(&self.path(record.id), RECORD, &serde_json::to_vec(record)?)
    }

    pub(super) fn forget(&self, id: u64) {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).retain(|(read, _)| *read != id);
        // A folder that cannot be deleted is no longer listed, which is what was requested.
        let _ = fs::remove_dir_all(self.path(id));
    }

    /// Which of these runs, oldest first, have to be deleted to make room.
    pub(super) fn too_many(&self, records: &[&Record]) -> Vec<u64> {
        let (mut bytes, mut kept, mut go) = (0, 0, Vec::new());
        for record in records.iter().rev() {
            bytes += record.size;
            kept += 1;
            // The newest stays, however large.
            let over = kept > RUNS_MAX || (kept > 1 && bytes > BYTES_MAX);
            if over && record.stands.is_over() {
                go.push(record.id);
            }
        }
        if self.passing { go } else { Vec::new() }
    }

    /// Whether there is room for one more.
    pub(super) fn has_room(&self, records: usize) -> bool {
        self.passing || records < RUNS_MAX
    }

    /// # Errors
    /// There is none, or it is too long to be shown.
    pub(super) fn ledger(&self, id: u64) -> Result<Arc<Ledger>, String> {
        // Concurrent callers wait, and find it read.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ledger)) = read.iter().find(|(known, _)| *known == id) {
            return Ok(ledger.clone());
        }
        let file = File::open(self.path(id).join(results::JSON));
        let file = file.map_err(|_| "this run has no ledger".to_owned())?;
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        if length > LEDGER_MAX {
            return Err(format!("the ledger has {length} bytes: download it instead"));
        }
        let ledger = serde_json::from_reader(BufReader::with_capacity(1 << 20, file))
            .and_then(json::from_value)
            .map_err(|error| format!("the ledger cannot be read: {error}"))?;
        let ledger = Arc::new(ledger);
        read.insert(0, (id, ledger.clone()));
        read.truncate(READ_MAX);
        Ok(ledger)
    }

    /// A run's figures over simulated time; empty where it has not come that far.
    pub(super) fn course(&self, id: u64) -> Value {
        let text = fs::read(self.path(id).join(COURSE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// The last lines that a run's process wrote to standard error, if any.
    pub(super) fn last_words(&self, id: u64) -> String {
        const LENGTH: usize = 2000;
        let text = fs::read(self.path(id).join(WORDS)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(LENGTH)..]);
        text.trim().to_owned()
    }

    /// Deletes the folder where the user has not named it.
    pub(super) fn close(&self) {
        if self.passing {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// The file for a process's standard error.
pub(super) fn words_of(folder: &Path) -> Result<File, Complaint> {
    Ok(File::create(folder.join(WORDS))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u64, stands: Status) -> Record {
        Record {
            id,
            experiment: "bundled/mm1".to_owned(),
            title: String::new(),
            note: String::new(),
            quick: false,
            stands,
            words: String::new(),
            problems: Vec::new(),
            figures: None,
            size: 0,
            began: 0,
            took: 0.0,
        }
    }

    #[test]
    fn the_oldest_results_are_deleted_but_never_the_newest_or_a_running_one() {
        let store = Store::new(None).unwrap();
        let mut records: Vec<Record> =
            (1..=RUNS_MAX as u64 + 2).map(|id| record(id, Status::Done)).collect();
        records[0].stands = Status::Running;
        assert_eq!(store.too_many(&records.iter().collect::<Vec<_>>()), [2]);
        let mut huge = [record(1, Status::Done), record(2, Status::Done)];
        huge.iter_mut().for_each(|record| record.size = BYTES_MAX + 1);
        assert_eq!(store.too_many(&huge.iter().collect::<Vec<_>>()), [1]);
        store.close();
    }

    #[test]
    fn a_named_folder_keeps_everything_for_the_next_server() {
        let space = tempfile::tempdir().unwrap();
        let named = || Store::new(Some(space.path().join("out"))).unwrap();
        let first = named();
        first.begin(&record(1, Status::Done), "title = \"x\"").unwrap();
        first.begin(&record(2, Status::Running), "").unwrap();
        fs::create_dir(first.path(3)).unwrap();
        fs::copy(first.path(1).join(RECORD), first.path(3).join(RECORD)).unwrap();
        assert!(!first.has_room(RUNS_MAX));
        first.close();
        let records = named().records();
        let stands: Vec<_> = records.iter().map(|record| (record.id, record.stands)).collect();
        assert_eq!(stands, [(1, Status::Done), (2, Status::Failed)]);
        assert!(records[1].words.contains("ended before"));
    }

    #[test]
    fn a_temporary_folder_is_private_and_deleted_at_the_end() {
        use std::os::unix::fs::PermissionsExt;
        let store = Store::new(None).unwrap();
        let mode = fs::metadata(&store.folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        store.close();
        assert!(!store.folder.exists());
    }
}
