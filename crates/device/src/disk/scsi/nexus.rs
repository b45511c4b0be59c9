//! Nexuses: each is an initiator port that has a session with this target. What one does that
//! concerns the others reaches them as unit attentions, which end their next command.

use lastmeter_wire::scsi::Sense;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Attentions that a nexus is owed, at most; the oldest are kept.
const ATTENTIONS_MAX: usize = 8;

/// What ends a session's connection.
pub type Close = Box<dyn Fn() + Send + Sync>;

/// A copy that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    /// The identifier of its list.
    pub(super) list: u8,
    /// How many segments it had.
    pub(super) segments: u16,
    /// And bytes.
    pub(super) bytes: u32,
}

/// How the unit calls an initiator port: initiators only claim their names, so that the device's client belongs to it.
/// Otherwise one client could end sessions of another, or act on its reservations. Names of ports have no zero byte.
fn name(client: &str, port: &str) -> String {
    format!("{client}\0{port}")
}

/// The initiator port of such a name: the initiator's own name and its part of the session's identity.
pub(super) fn port(name: &str) -> &str {
    name.rsplit('\0').next().unwrap_or(name)
}

/// One nexus.
pub struct Nexus {
    /// The client and its initiator port, as `name` makes it.
    pub name: String,
    id: u64,
    attentive: AtomicBool,
    attentions: Mutex<VecDeque<Sense>>,
    /// Grows when others clear this nexus's tasks.
    cleared: AtomicU64,
    /// The last copy.
    copied: Mutex<Option<Copied>>,
    close: Close,
}

impl Nexus {
    pub(super) fn copied(&self) -> Option<Copied> {
        *self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn set_copied(&self, copied: Copied) {
        *self.copied.lock().unwrap_or_else(PoisonError::into_inner) = Some(copied);
    }
    /// Its number, which no other nexus ever had.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// How often its tasks were cleared by others.
    pub fn cleared(&self) -> u64 {
        self.cleared.load(Relaxed)
    }
    /// The next attention, if any; it is owed no longer.
    pub fn attention(&self) -> Option<Sense> {
        if !self.attentive.load(Relaxed) {
            return None;
        }
        let mut attentions = self.attentions.lock().unwrap_or_else(PoisonError::into_inner);
        let next = attentions.pop_front();
        self.attentive.store(!attentions.is_empty(), Relaxed);
        next
    }
    /// Owes it an attention.
    pub fn attend(&self, sense: Sense) {
        let mut attentions = self.attentions.lock().unwrap_or_else(PoisonError::into_inner);
        if !attentions.contains(&sense) && attentions.len() < ATTENTIONS_MAX {
            attentions.push_back(sense);
        }
        self.attentive.store(true, Relaxed);
    }
    /// Ends its session.
    pub fn close(&self) {
        (self.close)();
    }
}

/// All nexuses.
#[derive(Default)]
pub(super) struct Nexuses {
    all: BTreeMap<u64, Arc<Nexus>>,
    last: u64,
}

impl Nexuses {
    /// A new one; an older one of the same client and port ends, and is returned.
    pub(super) fn join(
        &mut self,
        client: &str,
        port: &str,
        close: Close,
    ) -> (Arc<Nexus>, Option<Arc<Nexus>>) {
        let name = name(client, port);
        let old = self.all.values().find(|nexus| nexus.name == name).map(|nexus| nexus.id);
        let old = old.and_then(|id| self.all.remove(&id));
        self.last += 1;
        let nexus = Arc::new(Nexus {
            name,
            id: self.last,
            attentive: AtomicBool::new(true),
            attentions: Mutex::new(VecDeque::from([Sense::POWER_ON])),
            cleared: AtomicU64::new(0),
            copied: Mutex::new(None),
            close,
        });
        self.all.insert(self.last, nexus.clone());
        (nexus, old)
    }
    /// It has gone.
    pub(super) fn leave(&mut self, id: u64) {
        self.all.remove(&id);
    }
    /// Owes an attention to all but one.
    pub(super) fn attend_others(&self, but: u64, sense: Sense) {
        self.others(but).for_each(|nexus| nexus.attend(sense));
    }
    /// Owes an attention to those of these names.
    pub(super) fn attend_named(&self, names: &[String], sense: Sense) {
        let named = self.all.values().filter(|nexus| names.contains(&nexus.name));
        named.for_each(|nexus| nexus.attend(sense));
    }
    /// Clears the tasks of all but one.
    pub(super) fn clear_others(&self, but: u64) {
        self.others(but).for_each(|nexus| {
            nexus.cleared.fetch_add(1, Relaxed);
        });
    }
    /// Clears the tasks of those of these names.
    pub(super) fn clear_named(&self, names: &[String]) {
        let named = self.all.values().filter(|nexus| names.contains(&nexus.name));
        named.for_each(|nexus| {
            nexus.cleared.fetch_add(1, Relaxed);
        });
    }
    /// All but one.
    pub(super) fn others(&self, but: u64) -> impl Iterator<Item = &Arc<Nexus>> {
        self.all.values().filter(move |nexus| nexus.id != but)
    }
}
