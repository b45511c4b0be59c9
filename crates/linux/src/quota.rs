//! A control group with a quota of CPU time for one process, removed at the end.

use crate::error::{Doing, Error, Result};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Microseconds of a period: the kernel's default.
const PERIOD: u64 = 100_000;
/// The greatest weight of a group in either version.
const WEIGHT_MAX_V1: u32 = 262_144;
/// See [`WEIGHT_MAX_V1`].
const WEIGHT_MAX_V2: u32 = 10_000;
/// The kernel needs a moment until a group whose last process has ended is empty.
const TRIES: u32 = 50;

/// A group; dropping it moves its processes back and removes it.
pub struct Quota {
    folder: PathBuf,
    parent: PathBuf,
    members: &'static str,
}

impl Quota {
    /// Puts `pid` into a new group that gets `share` of a core.
    ///
    /// # Errors
    /// Without the rights, or without control groups.
    pub fn of(pid: u32, share: f64) -> Result<Quota> {
        let group = format!("lastmeter-{}-{pid}", std::process::id());
        // The first hierarchy is that of version 1, the second that of version 2.
        let kinds = [("/sys/fs/cgroup/cpu", "tasks"), ("/sys/fs/cgroup", "cgroup.procs")];
        let mut refusal = None;
        for (parent, members) in kinds {
            let parent = PathBuf::from(parent);
            if !parent.join("cgroup.procs").exists() {
                continue;
            }
            let quota = Quota { folder: parent.join(&group), parent, members };
            match quota.make(pid, share) {
                Ok(()) => return Ok(quota),
                Err(error) => refusal = Some(error),
            }
        }
        let none = || Error::System {
            doing: "making a control group".to_owned(),
            source: std::io::ErrorKind::Unsupported.into(),
        };
        Err(refusal.unwrap_or_else(none))
    }

    fn make(&self, pid: u32, share: f64) -> Result<()> {
        let what = || format!("making the control group {}", self.folder.display());
        fs::create_dir(&self.folder).doing(what)?;
        self.set(Some(share))?;
        // Within its quota it has priority, as the other helpers have.
        let (weight, most) = if self.members == "tasks" {
            ("cpu.shares", WEIGHT_MAX_V1)
        } else {
            ("cpu.weight", WEIGHT_MAX_V2)
        };
        fs::write(self.folder.join(weight), most.to_string()).doing(what)?;
        fs::write(self.folder.join(self.members), pid.to_string()).doing(what)
    }

    /// Changes its quota; `None` takes it away.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set(&self, share: Option<f64>) -> Result<()> {
        let what = || format!("setting the quota of {}", self.folder.display());
        let quota = share.map(|share| ((share * PERIOD as f64) as u64).max(1000));
        if self.members == "tasks" {
            let period = self.folder.join("cpu.cfs_period_us");
            fs::write(period, PERIOD.to_string()).doing(what)?;
            let quota = quota.map_or("-1".to_owned(), |us| us.to_string());
            fs::write(self.folder.join("cpu.cfs_quota_us"), quota).doing(what)
        } else {
            let quota = quota.map_or("max".to_owned(), |us| us.to_string());
            fs::write(self.folder.join("cpu.max"), format!("{quota} {PERIOD}")).doing(what)
        }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let members = fs::read_to_string(self.folder.join(self.members)).unwrap_or_default();
        for pid in members.split_ascii_whitespace() {
            // One that has ended needs no moving.
            let _ = fs::write(self.parent.join(self.members), pid);
        }
        for _ in 0..TRIES {
            if fs::remove_dir(&self.folder).is_ok() || !self.folder.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
