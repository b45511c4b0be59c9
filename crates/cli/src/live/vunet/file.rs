//! The file from which the programs of a host take their channels (A-70), shared by its processes.
//!
//! ```text
//! lock the file beside it --> read --> choose --> write a new file, rename it --> unlock
//! ```
//!
//! The blocks of hosts are disjoint ([`Block::of`]), so no host asks another; the lock keeps the programs of one host
//! apart, and the version in the file tells them if somebody wrote it without the lock.

use lastmeter_lan::vunet::vci::{Block, SharedFile};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The longest file: every channel taken.
const LEN_MAX: u64 = 4 << 20;

/// A host's file.
#[derive(Clone, Debug)]
pub(super) struct Channels {
    path: PathBuf,
}

impl Channels {
    /// Writes the file of owner number `owner` of `owners`, with all channels free.
    pub(super) fn create(path: &Path, owner: usize, owners: usize) -> Result<Channels, String> {
        let file = SharedFile::new(owner as u16, Block::of(owner, owners)?);
        fs::write(path, file.emit()).map_err(|error| said(path, &error))?;
        Ok(Channels::at(path))
    }

    pub(super) fn at(path: &Path) -> Channels {
        Channels { path: path.to_owned() }
    }

    /// Reads the file, changes it, and writes it if that succeeds.
    pub(super) fn with<T>(
        &self,
        change: impl FnOnce(&mut SharedFile) -> Result<T, String>,
    ) -> Result<T, String> {
        let beside = |ending: &str| PathBuf::from(format!("{}.{ending}", self.path.display()));
        let (lock, new) = (beside("lock"), beside("new"));
        let held = File::create(&lock).map_err(|error| said(&lock, &error))?;
        flock(&held, FlockOperation::LockExclusive).map_err(|error| said(&lock, &error.into()))?;
        let len = fs::metadata(&self.path).map_err(|error| said(&self.path, &error))?.len();
        if len > LEN_MAX {
            return Err(format!("{} has {len} bytes; at most {LEN_MAX}", self.path.display()));
        }
        let text = fs::read_to_string(&self.path).map_err(|error| said(&self.path, &error))?;
        let mut file = SharedFile::parse(&text)
            .map_err(|wrong| format!("{}: {wrong}", self.path.display()))?;
        let value = change(&mut file)?;
        fs::write(&new, file.emit()).map_err(|error| said(&new, &error))?;
        fs::rename(&new, &self.path).map_err(|error| said(&self.path, &error))?;
        Ok(value)
    }
}

fn said(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_70_programs_that_share_a_file_on_disk_never_get_the_same_channel() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<Channels> = (0..2)
            .map(|host| {
                let path = folder.path().join(format!("host.{host}"));
                Channels::create(&path, host, 22).unwrap()
            })
            .collect();
        let work = |who: u32| {
            let mine = Channels::at(&files[who as usize % 2].path);
            move || {
                let mut held: Vec<u16> = Vec::new();
                for round in 0..30 {
                    held.extend(
                        mine.with(|file| file.allocate(who, 5).ok_or("none left".into())).unwrap(),
                    );
                    if round % 3 == 0 {
                        let back: Vec<u16> = held.drain(..5).collect();
                        let given = |file: &mut SharedFile| {
                            file.give_back(who, &back).map_err(|refusal| format!("{refusal:?}"))
                        };
                        mine.with(given).unwrap();
                    }
                }
                held
            }
        };
        let threads: Vec<_> = (0..6).map(|who| std::thread::spawn(work(who))).collect();
        let held: Vec<u16> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(held.len(), 6 * 100);
        assert_eq!(held.iter().collect::<BTreeSet<_>>().len(), held.len(), "two have the same");
    }
}
