//! Replaying captures: the only place that reads them.

use lastmeter_base::kind::{PACKET_MAX, TIME_MAX};
use lastmeter_base::{Bytes, Duration};
use lastmeter_engine::site::Records;
use lastmeter_wire::capture::{Reader, Record};
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

/// Records how a capture broke while it was replayed.
///
/// A source cannot fail a run, so it just ends there, and the run's caller checks this afterwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot(Arc<Mutex<Option<String>>>);

impl Slot {
    /// How the capture broke, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn fail(&self, message: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
    }
}

/// The records of a capture, and where an error in it will be reported.
///
/// # Errors
/// If it does not start like a capture.
pub(crate) fn open(reader: Box<dyn Read + Send>, name: &str) -> Result<(Records, Slot), String> {
    let mut reader = Reader::open(reader).map_err(|error| error.to_string())?;
    let slot = Slot::default();
    let (told, name) = (slot.clone(), name.to_owned());
    let mut record = Record::default();
    let mut next = move || -> Result<Option<(Duration, Bytes)>, String> {
        let more = reader.read(&mut record).map_err(|error| error.to_string())?;
        // No run is longer than this, so the rest of the capture comes after its end.
        if !more || record.since_first > TIME_MAX {
            return Ok(None);
        }
        if record.len_on_wire > PACKET_MAX {
            let (number, len) = (reader.records(), record.len_on_wire);
            return Err(format!("record {number} is {len} long, more than {PACKET_MAX}"));
        }
        Ok(Some((record.since_first, record.len_on_wire)))
    };
    let records = std::iter::from_fn(move || {
        next().unwrap_or_else(|error| {
            told.fail(format!("the capture `{name}` broke: {error}"));
            None
        })
    });
    Ok((Box::new(records), slot))
}
