//! The results of runs: a folder each, with its record in the list and its ledger.

use super::events::Figures;
use super::work::COURSE;
use crate::{Complaint, results};
use lastmeter_ledger::{Ledger, json};
use lastmeter_linux::{files, token};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{BufReader, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The file with a run's record in the list.
const RECORD: &str = "run.json";
/// The file that is locked while a server uses the folder.
const LOCK: &str = ".lock";
/// What the names of temporary folders begin with.
const PASSING: &str = "lastmeter-serve-";
/// The longest record: the problems of a text, each with an excerpt.
const RECORD_MAX: usize = 4 << 20;
/// Numbers of runs that are tried if others have them.
const CLAIMS_MAX: u64 = 10_000;
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
    /// Locked while the server lives.
    _lock: File,
    read: Mutex<Vec<(u64, Arc<Ledger>)>>,
}

impl Store {
    /// # Errors
    /// The folder cannot be made, or another server has it.
    pub(super) fn new(named: Option<PathBuf>) -> Result<Store, Complaint> {
        let passing = named.is_none();
        let folder = match named {
            Some(folder) => folder,
            None => {
                let folder = std::env::temp_dir();
                sweep(&folder);
                folder.join(format!("{PASSING}{}", token::random()?))
            }
        };
        let made = DirBuilder::new().recursive(!passing).mode(0o700).create(&folder);
        let made = made.and_then(|()| folder.canonicalize());
        let failed = |error| Complaint(format!("cannot write `{}`: {error}", folder.display()));
        let folder = made.map_err(failed)?;
        let lock = lock(&folder)?;
        Ok(Store { folder, passing, _lock: lock, read: Mutex::default() })
    }

    /// The records of earlier servers. Runs that had not finished have failed: their processes are gone. One
    /// whose record cannot be read is shown as that.
    pub(super) fn records(&self) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut records: Vec<Record> = entries
            .flatten()
            // Symbolic links lead to what is not ours.
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| {
                let name = entry.file_name();
                let id: u64 = name.to_str()?.strip_prefix("run-")?.parse().ok()?;
                // Under another name it would not be found again.
                (self.path(id) == entry.path()).then(|| self.record(id))?
            })
            .collect();
        for record in records.iter_mut().filter(|record| !record.stands.is_over()) {
            record.stands = Status::Failed;
            record.words = "the server ended before the run did".to_owned();
        }
        records.sort_by_key(|record| record.id);
        records
    }

    /// A run's record; `None` if the folder is not the run's own, because it was renamed or copied.
    fn record(&self, id: u64) -> Option<Record> {
        let text = match files::read_regular(&self.path(id).join(RECORD), RECORD_MAX) {
            Ok(text) => text,
            // A folder without one is something else.
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => return Some(Record::unreadable(id, &error.to_string())),
        };
        match serde_json::from_slice::<Record>(&text) {
            Ok(record) => (record.id == id).then_some(record),
            Err(error) => Some(Record::unreadable(id, &error.to_string())),
        }
    }

    /// Creates the folder of a new run, whose number is at least `from`; nobody else has it.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn claim(&self, from: u64) -> Result<u64, Complaint> {
        for id in from..from + CLAIMS_MAX {
            let path = self.path(id);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(id),
                // A folder, a file, or a link of somebody else.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Complaint(format!("cannot write `{}`: {error}", path.display())));
                }
            }
        }
        let folder = self.folder.display();
        Err(Complaint(format!("`{folder}` is full of folders of other runs")))
    }

    pub(super) fn path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("run-{id:04}"))
    }

    /// Fills the folder of a new run.
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
        // Written aside and renamed: whatever ends the server, there is the old record or the new one.
        let path = self.path(record.id).join(RECORD);
        files::replace(&path, &serde_json::to_vec(record)?)
            .map_err(|error| Complaint(format!("cannot write `{}`: {error}", path.display())))
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

impl Record {
    /// Of a run whose record is damaged: what else is in its folder may still be of use.
    fn unreadable(id: u64, why: &str) -> Record {
        Record {
            id,
            experiment: String::new(),
            title: format!("run {id}"),
            note: String::new(),
            quick: false,
            stands: Status::Failed,
            words: format!("the record of this run is cut off or damaged: {why}"),
            problems: Vec::new(),
            figures: None,
            size: 0,
            began: 0,
            took: 0.0,
        }
    }
}

/// Locks a folder of results for as long as the file is open.
fn lock(folder: &Path) -> Result<File, Complaint> {
    let path = folder.join(LOCK);
    let failed =
        |error: std::io::Error| Complaint(format!("cannot write `{}`: {error}", path.display()));
    // The name appears once the file is locked, so that nobody takes it for one that was left behind.
    let half = folder.join(format!("{LOCK}-{}", token::random()?));
    let file = match files::regular(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let file = File::create_new(&half).map_err(failed)?;
            file.lock().map_err(failed)?;
            let linked = fs::hard_link(&half, &path);
            fs::remove_file(&half).map_err(failed)?;
            match linked {
                Ok(()) => return Ok(file),
                // Another server was faster.
                Err(_) => files::regular(&path).map_err(failed)?,
            }
        }
        Err(error) => return Err(failed(error)),
    };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Complaint(format!(
            "another `lastmeter serve` uses `{}`: choose another folder, or stop it",
            folder.display()
        ))),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Deletes the temporary folders of servers that ended without deleting them.
fn sweep(within: &Path) {
    let Ok(entries) = fs::read_dir(within) else { return };
    for entry in entries.flatten() {
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(PASSING));
        // Nobody but the user can have put anything there.
        if !is_one || !files::is_private(&entry.path()) {
            continue;
        }
        let Ok(lock) = files::regular(&entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The file for a process's standard error.
pub(super) fn words_of(folder: &Path) -> Result<File, Complaint> {
    Ok(File::create_new(folder.join(WORDS))?)
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
        let open = || Store::new(Some(space.path().join("out")));
        // A program that another test is starting has the lock, too, until it is executed.
        let named = || {
            for _ in 0..500 {
                match open() {
                    Ok(store) => return store,
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
                }
            }
            open().unwrap()
        };
        let first = named();
        assert_eq!((first.claim(1).unwrap(), first.claim(1).unwrap()), (1, 2));
        first.begin(&record(1, Status::Done), "title = \"x\"").unwrap();
        first.begin(&record(2, Status::Running), "").unwrap();
        fs::create_dir(first.path(3)).unwrap();
        fs::copy(first.path(1).join(RECORD), first.path(3).join(RECORD)).unwrap();
        assert!(!first.has_room(RUNS_MAX));
        first.close();
        let error = open().unwrap_err().0;
        assert!(error.contains("another `lastmeter serve`"), "{error}");
        drop(first);
        let records = named().records();
        let stands: Vec<_> = records.iter().map(|record| (record.id, record.stands)).collect();
        assert_eq!(stands, [(1, Status::Done), (2, Status::Failed)]);
        assert!(records[1].words.contains("ended before"));
    }

    #[test]
    fn a_cut_record_is_shown_and_a_taken_number_is_not_used() {
        let space = tempfile::tempdir().unwrap();
        let store = Store::new(Some(space.path().join("out"))).unwrap();
        store.claim(1).unwrap();
        store.begin(&record(1, Status::Done), "").unwrap();
        let path = store.path(1).join(RECORD);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        let records = store.records();
        assert_eq!((records.len(), records[0].id, records[0].stands), (1, 1, Status::Failed));
        assert!(records[0].words.contains("cut off"), "{}", records[0].words);
        // A link, a file and a folder have the next numbers.
        let elsewhere = space.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, store.path(2)).unwrap();
        fs::write(store.path(3), "").unwrap();
        fs::create_dir(store.path(4)).unwrap();
        let id = store.claim(2).unwrap();
        assert_eq!(id, 5);
        store.begin(&record(5, Status::Done), "").unwrap();
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        // A record is replaced, not written to: what it was linked to stays as it was.
        let outside = space.path().join("outside");
        fs::write(&outside, "untouched").unwrap();
        fs::remove_file(store.path(5).join(RECORD)).unwrap();
        std::os::unix::fs::symlink(&outside, store.path(5).join(RECORD)).unwrap();
        store.keep(&record(5, Status::Done)).unwrap();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
        assert_eq!(store.records().len(), 2);
    }

    #[test]
    fn folders_of_dead_servers_are_swept_and_those_of_living_ones_stay() {
        let space = tempfile::tempdir().unwrap();
        let folder = |name: &str, mode: u32| {
            let path = space.path().join(format!("{PASSING}{name}"));
            DirBuilder::new().mode(mode).create(&path).unwrap();
            path
        };
        let (dead, living) = (folder("dead", 0o700), folder("living", 0o700));
        let (open, new) = (folder("open", 0o777), folder("new", 0o700));
        // Whatever the mask.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&open, mode).unwrap();
        drop(lock(&dead).unwrap());
        drop(lock(&open).unwrap());
        let _living = lock(&living).unwrap();
        sweep(space.path());
        // One that is open to others may be somebody else's; one without a lock is just being made.
        assert!(!dead.exists() && living.exists() && open.exists() && new.exists());
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
