//! Replaying captures: the one place that knows how they are read.

use lastmeter_net::traffic::Records;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a capture says how it broke while it was replayed.
///
/// A source cannot fail a run, so it ends there, and whoever ran it looks here afterwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot(Arc<Mutex<Option<String>>>);

impl Slot {
    /// How the capture broke, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    #[expect(dead_code, reason = "the reader of captures calls it")]
    fn fail(&self, message: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
    }
}

/// The records of a capture, and where it will say how it broke.
///
/// # Errors
/// If it does not begin as a capture does.
pub(crate) fn open(_reader: Box<dyn Read + Send>) -> Result<(Records, Slot), String> {
    Err("captures cannot be read yet".to_owned())
}
