//! The work of a sweep on this machine: all cores, and parts of the data set now and then.

use super::Folder;
use crate::Complaint;
use lastmeter_lab::run::Runner;
use lastmeter_lab::sweep::{self, Plan, Row, Schedule};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A part is written at most this often ...
const EVERY: Duration = Duration::from_secs(2);
/// ... and not before this share of the sweep's elapsed time, so that there are hundreds of parts and not
/// thousands.
const SHARE: f64 = 0.02;

/// Rows not in the folder yet.
struct Pending {
    rows: Vec<Row>,
    written: Instant,
}

/// Does the rest of a sweep, until it is done or stopped through the runner's watch; returns the rows added.
/// Whatever happens, finished rows are in the folder when this returns.
///
/// # Errors
/// A part of the data set cannot be written.
pub fn local(
    plan: &Plan,
    schedule: &Mutex<Schedule>,
    folder: Option<&mut Folder>,
    runner: Runner<'_>,
) -> Result<Vec<Row>, Complaint> {
    let began = Instant::now();
    let folder = folder.map(Mutex::new);
    let done: Mutex<Vec<Row>> = Mutex::default();
    let pending = Mutex::new(Pending { rows: Vec::new(), written: began });
    let write = |rows: &[Row]| match &folder {
        Some(folder) => folder.lock().unwrap_or_else(PoisonError::into_inner).add(rows),
        None => Ok(()),
    };
    let keep = |row: Row| {
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.rows.push(row);
        let due = EVERY.max(began.elapsed().mul_f64(SHARE));
        if pending.written.elapsed() >= due {
            let result = write(&pending.rows);
            done.lock().unwrap_or_else(PoisonError::into_inner).append(&mut pending.rows);
            pending.written = Instant::now();
            return result.map_err(|Complaint(words)| words);
        }
        Ok(())
    };
    let worked = sweep::work(plan, schedule, runner, &keep);
    let pending = pending.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut rows = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    worked.map_err(Complaint)?;
    if let Some(folder) = folder {
        folder.into_inner().unwrap_or_else(PoisonError::into_inner).add(&pending.rows)?;
    }
    rows.extend(pending.rows);
    Ok(rows)
}
