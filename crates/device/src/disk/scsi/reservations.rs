//! Who has reserved the unit: persistent reservations (SPC-4, section 5.13), and the old RESERVE (SPC-2).
//!
//! Registrations outlive sessions, but not the server (`PTPL_C` is 0); an old reservation ends with its session.

use super::nexus;
use lastmeter_wire::scsi::Sense;
use std::collections::BTreeMap;

/// Registrations, at most.
const REGISTRATIONS_MAX: usize = 1024;

/// Kinds of persistent reservations.
mod kind {
    /// Others may read.
    pub(super) const WRITE_EXCLUSIVE: u8 = 1;
    /// Others may do nothing.
    pub(super) const EXCLUSIVE: u8 = 3;
    /// Those that are registered may write, others read.
    pub(super) const WRITE_REGISTRANTS: u8 = 5;
    /// Those that are registered may do all, others nothing.
    pub(super) const EXCLUSIVE_REGISTRANTS: u8 = 6;
    /// As [`WRITE_REGISTRANTS`]; all that are registered hold it.
    pub(super) const WRITE_ALL: u8 = 7;
    /// As [`EXCLUSIVE_REGISTRANTS`]; all that are registered hold it.
    pub(super) const EXCLUSIVE_ALL: u8 = 8;
    /// All of them, as REPORT CAPABILITIES tells them: bits 1, 3, 5, 6 and 7, and 8 in the next byte.
    pub(super) const MASK: [u8; 2] = [0b1110_1010, 1];
}

/// What a command does that reservations may forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It tells nothing of the medium and changes nothing.
    Free,
    /// It reads.
    Read,
    /// It writes, or changes the unit.
    Write,
    /// It is about persistent reservations itself.
    Persistent,
    /// It is RESERVE or RELEASE.
    Simple,
}

/// A persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    /// The initiator port; for the kinds that all hold, the one that made it.
    holder: String,
    kind: u8,
}

/// What an action on reservations leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notices {
    /// These initiator ports are owed this attention.
    pub(super) attentions: Vec<(String, Sense)>,
    /// The tasks of these are aborted.
    pub(super) aborted: Vec<String>,
}

/// Why an action is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum No {
    /// A reservation forbids it.
    Conflict,
    /// It makes no sense.
    Wrong(Sense),
}

/// All reservations of a unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    generation: u32,
    keys: BTreeMap<String, u64>,
    held: Option<Held>,
    /// The nexus that has reserved the unit in the old way.
    simple: Option<u64>,
}

/// An action on persistent reservations: PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Action {
    /// Its number.
    pub(super) action: u8,
    /// The kind of reservation.
    pub(super) kind: u8,
    /// The initiator's key.
    pub(super) key: u64,
    /// The key that is registered, or preempted.
    pub(super) other: u64,
}

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;

impl Reservations {
    /// Whether anything is reserved, so that commands must ask.
    pub(super) fn is_any(&self) -> bool {
        self.held.is_some() || self.simple.is_some() || !self.keys.is_empty()
    }
    /// Whether a nexus, with the name of its port, may do this.
    pub(super) fn allow(&self, nexus: u64, port: &str, access: Access) -> bool {
        let simple = self.simple.is_none_or(|holder| holder == nexus);
        match access {
            Access::Free => true,
            // With registrations, the old commands are refused (SPC-2 and SPC-4, annex B).
            Access::Simple => self.keys.is_empty(),
            Access::Persistent => simple,
            Access::Read | Access::Write => simple && self.allow_held(port, access),
        }
    }
    fn allow_held(&self, port: &str, access: Access) -> bool {
        let Some(held) = &self.held else { return true };
        let registered = self.keys.contains_key(port);
        let own = held.holder == port || (self.all_hold() && registered);
        let reads = access == Access::Read;
        own || match held.kind {
            kind::WRITE_EXCLUSIVE => reads,
            kind::EXCLUSIVE => false,
            kind::WRITE_REGISTRANTS | kind::WRITE_ALL => reads || registered,
            _ => registered,
        }
    }
    fn all_hold(&self) -> bool {
        self.held
            .as_ref()
            .is_some_and(|held| matches!(held.kind, kind::WRITE_ALL | kind::EXCLUSIVE_ALL))
    }
    fn holds(&self, port: &str) -> bool {
        let registered = self.keys.contains_key(port);
        self.held
            .as_ref()
            .is_some_and(|held| held.holder == port || (registered && self.all_hold()))
    }
    /// RESERVE; false if somebody else has.
    pub(super) fn reserve(&mut self, nexus: u64) -> bool {
        let free = self.simple.is_none_or(|holder| holder == nexus);
        if free {
            self.simple = Some(nexus);
        }
        free
    }
    /// RELEASE, or the end of a session. Of what it does not have, nothing.
    pub(super) fn release(&mut self, nexus: u64) {
        if self.simple == Some(nexus) {
            self.simple = None;
        }
    }
    /// A reset ends old reservations.
    pub(super) fn reset(&mut self) {
        self.simple = None;
    }

    /// PERSISTENT RESERVE OUT by an initiator port.
    ///
    /// # Errors
    /// Why it is not done.
    pub(super) fn act(&mut self, port: &str, action: Action) -> Result<Notices, No> {
        let registered = self.keys.get(port).copied();
        if matches!(action.action, REGISTER | REGISTER_AND_IGNORE) {
            return self.register(port, registered, action);
        }
        // All others need the key.
        if registered != Some(action.key) {
            return Err(No::Conflict);
        }
        match action.action {
            RESERVE => self.reserve_persistently(port, action.kind),
            RELEASE => self.release_persistently(port, action.kind),
            CLEAR => {
                let others = self.others(port);
                self.keys.clear();
                self.held = None;
                self.generation = self.generation.wrapping_add(1);
                let told = others.into_iter().map(|name| (name, Sense::PREEMPTED));
                Ok(Notices { attentions: told.collect(), aborted: Vec::new() })
            }
            PREEMPT | PREEMPT_AND_ABORT => self.preempt(port, action),
            _ => Err(No::Wrong(Sense::INVALID_FIELD)),
        }
    }

    fn others(&self, port: &str) -> Vec<String> {
        self.keys.keys().filter(|name| *name != port).cloned().collect()
    }

    fn register(
        &mut self,
        port: &str,
        registered: Option<u64>,
        action: Action,
    ) -> Result<Notices, No> {
        if action.action == REGISTER && action.key != registered.unwrap_or(0) {
            return Err(No::Conflict);
        }
        let mut notices = Notices::default();
        if action.other != 0 {
            if registered.is_none() && self.keys.len() >= REGISTRATIONS_MAX {
                return Err(No::Wrong(Sense::REGISTRATIONS));
            }
            self.keys.insert(port.to_owned(), action.other);
        } else if registered.is_some() {
            let held = self.holds(port);
            self.keys.remove(port);
            let last = self.keys.is_empty();
            if held && (!self.all_hold() || last) {
                let kind = self.held.take().map_or(0, |held| held.kind);
                if matches!(kind, kind::WRITE_REGISTRANTS | kind::EXCLUSIVE_REGISTRANTS) {
                    let told = self.others(port).into_iter().map(|name| (name, Sense::RELEASED));
                    notices.attentions = told.collect();
                }
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    fn reserve_persistently(&mut self, port: &str, kind: u8) -> Result<Notices, No> {
        if !matches!(kind, 1 | 3 | 5..=8) {
            return Err(No::Wrong(Sense::INVALID_FIELD));
        }
        match &self.held {
            None => {
                self.held = Some(Held { holder: port.to_owned(), kind });
                Ok(Notices::default())
            }
            Some(held) if held.kind == kind && self.holds(port) => Ok(Notices::default()),
            Some(_) => Err(No::Conflict),
        }
    }

    fn release_persistently(&mut self, port: &str, kind: u8) -> Result<Notices, No> {
        if !self.holds(port) {
            return Ok(Notices::default());
        }
        let held = self.held.take().expect("somebody holds it");
        if held.kind != kind {
            self.held = Some(held);
            return Err(No::Wrong(Sense::INVALID_RELEASE));
        }
        let shared = !matches!(kind, kind::WRITE_EXCLUSIVE | kind::EXCLUSIVE);
        let others = if shared { self.others(port) } else { Vec::new() };
        let told = others.into_iter().map(|name| (name, Sense::RELEASED));
        Ok(Notices { attentions: told.collect(), aborted: Vec::new() })
    }

    fn preempt(&mut self, port: &str, action: Action) -> Result<Notices, No> {
        let holder_key = self.held.as_ref().and_then(|held| self.keys.get(&held.holder)).copied();
        let takes = self.held.is_some()
            && (holder_key == Some(action.other) || self.all_hold() && action.other == 0);
        if action.other == 0 && !takes {
            return Err(No::Wrong(Sense::INVALID_PARAMETER));
        }
        if takes && !matches!(action.kind, 1 | 3 | 5..=8) {
            return Err(No::Wrong(Sense::INVALID_FIELD));
        }
        let meant = |name: &String, key: u64| {
            name != port && (key == action.other || takes && self.all_hold() && action.other == 0)
        };
        let removed: Vec<String> = self
            .keys
            .iter()
            .filter(|(name, key)| meant(name, **key))
            .map(|(n, _)| n.clone())
            .collect();
        let own = self.keys.get(port) == Some(&action.other);
        if removed.is_empty() && !takes && !own {
            return Err(No::Conflict);
        }
        removed.iter().for_each(|name| {
            self.keys.remove(name);
        });
        let mut notices = Notices::default();
        if takes {
            let old = self.held.replace(Held { holder: port.to_owned(), kind: action.kind });
            let changed = old.is_some_and(|old| old.kind != action.kind);
            if changed {
                let told = self.others(port).into_iter().map(|name| (name, Sense::RELEASED));
                notices.attentions.extend(told);
            }
        }
        if action.action == PREEMPT_AND_ABORT {
            notices.aborted.clone_from(&removed);
        }
        notices.attentions.extend(removed.into_iter().map(|name| (name, Sense::UNREGISTERED)));
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    /// PERSISTENT RESERVE IN: the parameters that answer it.
    ///
    /// # Errors
    /// If there is no such action.
    pub(super) fn report(&self, action: u8) -> Result<Vec<u8>, Sense> {
        let mut bytes = self.generation.to_be_bytes().to_vec();
        let mut list = Vec::new();
        let holder_key =
            |held: &Held| self.keys.get(&held.holder).copied().filter(|_| !self.all_hold());
        match action {
            0 => self.keys.values().for_each(|key| list.extend(key.to_be_bytes())),
            1 => {
                if let Some(held) = &self.held {
                    list.extend(holder_key(held).unwrap_or(0).to_be_bytes());
                    list.extend([0, 0, 0, 0, 0, held.kind, 0, 0]);
                }
            }
            2 => {
                // Length 8; no specified ports, no persistence; the mask of kinds is valid.
                const MASK_VALID: u8 = 0x80;
                return Ok(vec![0, 8, 0, MASK_VALID, kind::MASK[0], kind::MASK[1], 0, 0]);
            }
            3 => {
                for (name, key) in &self.keys {
                    let held = self.held.as_ref().filter(|_| self.holds(name));
                    let port = transport_id(nexus::port(name));
                    list.extend(key.to_be_bytes());
                    list.extend([0, 0, 0, 0, u8::from(held.is_some()), held.map_or(0, |h| h.kind)]);
                    list.extend([0, 0, 0, 0, 0, 1]);
                    list.extend((port.len() as u32).to_be_bytes());
                    list.extend(port);
                }
            }
            _ => return Err(Sense::INVALID_FIELD),
        }
        bytes.extend((list.len() as u32).to_be_bytes());
        bytes.extend(list);
        Ok(bytes)
    }
}

/// The transport's identity of an initiator port (SPC-4, section 7.6.4.6): iSCSI, name and session.
fn transport_id(name: &str) -> Vec<u8> {
    const ISCSI_PORT: u8 = 0x45;
    let len = (name.len() + 1).next_multiple_of(4).max(20);
    let mut bytes = vec![ISCSI_PORT, 0];
    bytes.extend((len as u16).to_be_bytes());
    bytes.extend(name.bytes());
    bytes.resize(4 + len, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(reservations: &mut Reservations, port: &str, action: [u64; 4]) -> Result<Notices, No> {
        let [action, kind, key, other] = action;
        reservations.act(port, Action { action: action as u8, kind: kind as u8, key, other })
    }

    /// SPC-4, table 65: what others may do under each kind.
    #[test]
    fn the_table_of_the_standard() {
        for (kind, other_reads, other_writes, registered_reads, registered_writes) in [
            (1, true, false, true, false),
            (3, false, false, false, false),
            (5, true, false, true, true),
            (6, false, false, true, true),
            (7, true, false, true, true),
            (8, false, false, true, true),
        ] {
            let mut unit = Reservations::default();
            act(&mut unit, "holder", [0, 0, 0, 1]).expect("registered");
            act(&mut unit, "registered", [0, 0, 0, 2]).expect("registered");
            act(&mut unit, "holder", [1, kind, 1, 0]).expect("reserved");
            let allow = |port, access| unit.allow(9, port, access);
            assert!(allow("holder", Access::Read) && allow("holder", Access::Write));
            assert_eq!(allow("other", Access::Read), other_reads, "kind {kind}");
            assert_eq!(allow("other", Access::Write), other_writes, "kind {kind}");
            assert_eq!(allow("registered", Access::Read), registered_reads, "kind {kind}");
            assert_eq!(allow("registered", Access::Write), registered_writes, "kind {kind}");
            assert!(allow("other", Access::Free) && allow("other", Access::Persistent));
            assert!(!allow("holder", Access::Simple));
            assert_eq!(
                act(&mut unit, "registered", [1, 5, 9, 0]),
                Err(No::Conflict),
                "a wrong key"
            );
        }
    }

    #[test]
    fn whoever_preempts_takes_the_reservation_and_others_are_told() {
        let mut unit = Reservations::default();
        act(&mut unit, "one", [0, 0, 0, 1]).expect("registered");
        act(&mut unit, "two", [0, 0, 0, 2]).expect("registered");
        act(&mut unit, "one", [1, 3, 1, 0]).expect("reserved");
        let notices = act(&mut unit, "two", [5, 1, 2, 1]).expect("preempted");
        assert_eq!(notices.attentions, [("one".to_owned(), Sense::UNREGISTERED)]);
        assert_eq!(notices.aborted, ["one"]);
        assert!(unit.allow(9, "two", Access::Write) && !unit.allow(9, "one", Access::Write));
        assert_eq!(unit.report(0).expect("keys")[4..], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2]);
        act(&mut unit, "two", [2, 1, 2, 0]).expect("released");
        assert!(unit.allow(9, "one", Access::Write) && unit.is_any());
        act(&mut unit, "two", [0, 0, 2, 0]).expect("no longer registered");
        assert!(!unit.is_any());
    }

    #[test]
    fn an_old_reservation_ends_with_its_session() {
        let mut unit = Reservations::default();
        assert!(unit.reserve(1) && !unit.reserve(2));
        assert!(!unit.allow(2, "two", Access::Read) && unit.allow(1, "one", Access::Write));
        unit.release(2);
        assert!(!unit.reserve(2), "it was not its own");
        unit.release(1);
        assert!(unit.reserve(2));
    }

    #[test]
    fn registrations_are_bounded() {
        let mut unit = Reservations::default();
        for number in 0..REGISTRATIONS_MAX {
            act(&mut unit, &format!("port {number}"), [0, 0, 0, 1]).expect("registered");
        }
        let no = act(&mut unit, "one more", [0, 0, 0, 1]);
        assert_eq!(no, Err(No::Wrong(Sense::REGISTRATIONS)));
    }
}
