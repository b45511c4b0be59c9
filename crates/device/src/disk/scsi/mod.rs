//! A SCSI disk: executes commands of initiators on the medium behind the client's gate.
//!
//! ```text
//! command --> attention owed? --> reserved? --> parse --> gate: size, policies --> medium --> status, sense, data
//! ```
//!
//! One logical unit, number 0. It is not removable, has no protection information, and unmapped blocks read as zeros.
//! Policies are asked about commands on blocks (reads, writes, zeros, unmaps, comparisons, flushes) and about those
//! that take the unit from others (reservations, mode parameters, resets), which they see as the operation `reserve`.
//!
//! Source: SAM-5, SPC-4, SBC-3.

mod copy;
mod inquiry;
mod io;
mod mode;
mod nexus;
mod reservations;

pub use nexus::{Close, Nexus};

use super::gate::{Gate, Refusal};
use super::{MEDIUM, POLICY};
use crate::account::Lap;
use lastmeter_plugin::request::block;
use lastmeter_wire::scsi::{CDB_LEN, Command, Place, Sense, key, status};
use nexus::Nexuses;
use reservations::{Access, Action, No, Reservations};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a transfer, at most.
pub const TRANSFER_MAX: u32 = 8 << 20;
/// Blocks of COMPARE AND WRITE, at most.
pub const COMPARE_MAX: u32 = 255;
/// Blocks that WRITE SAME writes, at most.
pub const SAME_MAX: u32 = 0xffff;
/// Descriptors of UNMAP, at most.
pub const UNMAP_MAX: usize = 256;
/// Bytes of parameters, at most.
pub const PARAMETERS_MAX: u32 = 64 << 10;

/// Flags of the unit: sense has descriptors; it is protected by software; something is reserved.
const DESCRIPTOR_SENSE: u8 = 1;
const PROTECTED: u8 = 2;
const RESERVED: u8 = 4;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// One of [`status`].
    pub status: u8,
    /// Why it failed.
    pub sense: Option<Sense>,
    /// What it read.
    pub data: Data,
    /// Why it was refused, for the account.
    pub refused: Option<&'static str>,
}

/// What a command read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Bytes.
    Bytes(Vec<u8>),
    /// This part of the medium, which is still to be read.
    Medium {
        /// The first byte.
        at: u64,
        /// How many.
        length: u32,
    },
}

impl Data {
    /// How many bytes.
    pub fn length(&self) -> u64 {
        match self {
            Data::Bytes(bytes) => bytes.len() as u64,
            Data::Medium { length, .. } => (*length).into(),
        }
    }
}

impl Reply {
    fn good() -> Reply {
        Reply::bytes(Vec::new())
    }
    fn bytes(bytes: Vec<u8>) -> Reply {
        Reply { status: status::GOOD, sense: None, data: Data::Bytes(bytes), refused: None }
    }
    /// Parameters, of which the initiator takes as many as it has room for.
    fn parameters(mut bytes: Vec<u8>, room: u32) -> Reply {
        bytes.truncate(room as usize);
        Reply::bytes(bytes)
    }
    /// It failed.
    pub fn check(sense: Sense) -> Reply {
        let refused = Some(words(sense));
        Reply { status: status::CHECK_CONDITION, sense: Some(sense), refused, ..Reply::good() }
    }
    /// It ended with this status only.
    pub fn only(status: u8, why: &'static str) -> Reply {
        Reply { status, refused: Some(why), ..Reply::good() }
    }
}

fn words(sense: Sense) -> &'static str {
    match (sense.key, sense.code) {
        (key::ATTENTION, _) => "attention",
        (_, 0x20) if sense.key == key::ILLEGAL => "unknown command",
        (_, 0x21) => "beyond the end",
        (_, 0x24 | 0x26 | 0x1a) => "a field has a wrong value",
        (_, 0x25) => "no such unit",
        (key::MISCOMPARE, _) => "the data differ",
        (key::MEDIUM, _) => "the medium failed",
        (key::PROTECT, 0x27) if sense.qualifier == 7 => "the medium is full",
        _ => "not possible",
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Reply {
        let sense = match refusal {
            Refusal::ReadOnly => Sense::WRITE_PROTECTED,
            Refusal::Beyond => Sense::BEYOND_END,
            Refusal::Unaligned => Sense::INVALID_FIELD,
            // A policy's own sense, if it has one.
            Refusal::Denied(code) if Sense::from_bits(code).key != key::NONE => {
                Sense::from_bits(code)
            }
            Refusal::Denied(_) | Refusal::Part | Refusal::Astray | Refusal::Reserved => {
                Sense::ACCESS_DENIED
            }
        };
        Reply { refused: Some(refusal.words()), ..Reply::check(sense) }
    }
}

impl From<Sense> for Reply {
    fn from(sense: Sense) -> Reply {
        Reply::check(sense)
    }
}

/// What initiators share.
pub struct Unit {
    name: String,
    id: u64,
    flags: AtomicU8,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nexuses: Nexuses,
    reservations: Reservations,
}

impl Unit {
    /// The unit of the target with this name. `identity` distinguishes its disk from others, and is the same after a
    /// restart.
    pub fn new(name: &str, identity: &str) -> Unit {
        // FNV-1a, 64 bits.
        let id = identity.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Unit { name: name.to_owned(), id, flags: AtomicU8::new(0), state: Mutex::default() }
    }
    /// The target's name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Its name in binary: locally assigned (NAA 3).
    pub fn designator(&self) -> [u8; 8] {
        (3 << 60 | self.id >> 4).to_be_bytes()
    }
    fn serial(&self) -> String {
        format!("{:016x}", self.id)
    }
    fn flags(&self) -> u8 {
        self.flags.load(Relaxed)
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether sense has descriptors.
    pub fn describes(&self) -> bool {
        self.flags() & DESCRIPTOR_SENSE != 0
    }
    /// A session of a client's initiator port begins; an older one of the same port ends.
    pub fn join(&self, client: &str, port: &str, close: Close) -> Arc<Nexus> {
        let (nexus, old) = self.state().nexuses.join(client, port, close);
        if let Some(old) = old {
            self.leave(&old);
            old.close();
        }
        nexus
    }
    /// It ends.
    pub fn leave(&self, nexus: &Nexus) {
        let mut state = self.state();
        state.nexuses.leave(nexus.id());
        state.reservations.release(nexus.id());
        self.note(&state);
    }
    /// Whether a client that is no initiator may do this.
    pub fn allows_others(&self, writes: bool) -> bool {
        self.flags() & RESERVED == 0 || {
            let access = if writes { Access::Write } else { Access::Read };
            self.state().reservations.allow(0, "", access)
        }
    }
    fn note(&self, state: &State) {
        match state.reservations.is_any() {
            true => self.flags.fetch_or(RESERVED, Relaxed),
            false => self.flags.fetch_and(!RESERVED, Relaxed),
        };
    }
    /// The tasks of all other initiators are cleared.
    pub fn clear(&self, nexus: &Nexus) {
        let state = self.state();
        state.nexuses.clear_others(nexus.id());
        state.nexuses.attend_others(nexus.id(), Sense::CLEARED);
    }
    /// The unit begins anew.
    pub fn reset(&self, nexus: &Nexus) {
        let mut state = self.state();
        state.reservations.reset();
        state.nexuses.clear_others(nexus.id());
        state.nexuses.attend_others(nexus.id(), Sense::RESET);
        nexus.attend(Sense::RESET);
        self.flags.fetch_and(!(DESCRIPTOR_SENSE | PROTECTED), Relaxed);
        self.note(&state);
    }
    /// All sessions end but this one, whose caller ends it.
    pub fn end_others(&self, nexus: &Nexus) {
        let others: Vec<Arc<Nexus>> = self.state().nexuses.others(nexus.id()).cloned().collect();
        others.iter().for_each(|other| other.close());
    }
}

/// Whether this number is that of the only unit there is.
pub fn is_unit(lun: u64) -> bool {
    // Peripheral or flat addressing.
    lun & !(1 << 62) == 0
}

/// One command of an initiator.
pub struct Task<'a, 'b> {
    /// The client's gate.
    pub gate: &'a mut Gate<'b>,
    /// The initiator.
    pub nexus: &'a Nexus,
    /// Bytes that it has to write.
    pub offered: u32,
    /// Its times.
    pub lap: &'a mut Lap,
}

impl Task<'_, '_> {
    /// Executes a command with the data that came with it.
    pub fn execute(&mut self, lun: u64, cdb: &[u8; CDB_LEN], data: &[u8]) -> Reply {
        let parsed = Command::parse(cdb);
        if !is_unit(lun) {
            return absent(&parsed);
        }
        let exempt = matches!(
            parsed,
            Ok(Command::Inquiry { .. } | Command::ReportLuns { .. } | Command::RequestSense { .. })
        );
        if !exempt && let Some(attention) = self.nexus.attention() {
            return Reply::check(attention);
        }
        let command = match parsed {
            Ok(command) => command,
            Err(sense) => return Reply::check(sense),
        };
        let unit = &self.gate.disk().unit;
        if unit.flags() & RESERVED != 0 {
            let (id, port) = (self.nexus.id(), &self.nexus.name);
            if !unit.state().reservations.allow(id, port, access(&command)) {
                return Reply::only(status::RESERVATION_CONFLICT, "reserved by another");
            }
        }
        self.run(command, data).unwrap_or_else(|reply| reply)
    }

    fn run(&mut self, command: Command, data: &[u8]) -> Result<Reply, Reply> {
        let unit = &self.gate.disk().unit;
        Ok(match command {
            Command::TestUnitReady => Reply::good(),
            Command::RequestSense { descriptors, room } => {
                let sense = self.nexus.attention().unwrap_or(Sense::NOTHING);
                let bytes = if descriptors { sense.descriptors() } else { sense.fixed() };
                Reply::parameters(bytes, room)
            }
            Command::Inquiry { page: None, room } => Reply::parameters(inquiry::standard(), room),
            Command::Inquiry { page: Some(page), room } => {
                Reply::parameters(inquiry::vital(unit, self.gate, page)?, room)
            }
            Command::ReadCapacity10 => Reply::bytes(inquiry::capacity_short(self.gate)),
            Command::ReadCapacity16 { room } => {
                Reply::parameters(inquiry::capacity(self.gate), room)
            }
            Command::ReportLuns { select, room } => {
                Reply::parameters(inquiry::luns(select, room)?, room)
            }
            Command::ReportOpcodes { timeouts, options, opcode, action, room } => {
                Reply::parameters(inquiry::opcodes(timeouts, options, opcode, action)?, room)
            }
            Command::ReportFunctions { room } => Reply::parameters(inquiry::functions(), room),
            Command::ReportGroups { extended, room } => {
                Reply::parameters(inquiry::groups(extended), room)
            }
            Command::ModeSense { long, descriptor, control, page, subpage, room } => {
                let wanted = mode::Wanted { long, descriptor, control, page, subpage };
                let medium = &self.gate.disk().medium;
                let (blocks, block) = (self.gate.blocks(), medium.block());
                let pages = mode::sense(unit, wanted, blocks, block, medium.is_read_only())?;
                Reply::parameters(pages, room)
            }
            Command::ModeSelect { long, format, save, length } => {
                self.mode_select(long, format, save, parameters(data, length)?)?
            }
            Command::Reserve => {
                self.gate.pass(block::RESERVE)?;
                let mut state = unit.state();
                if !state.reservations.reserve(self.nexus.id()) {
                    return Err(Reply::only(status::RESERVATION_CONFLICT, "reserved by another"));
                }
                unit.note(&state);
                Reply::good()
            }
            Command::Release => {
                let mut state = unit.state();
                state.reservations.release(self.nexus.id());
                unit.note(&state);
                Reply::good()
            }
            Command::PersistentIn { action, room } => {
                let report = unit.state().reservations.report(action);
                let bytes = report.map_err(|sense| sense.at(Place::Command(1)))?;
                Reply::parameters(bytes, room)
            }
            Command::PersistentOut { action, scope, kind, length } => {
                self.persistent_out(action, scope, kind, parameters(data, length)?)?
            }
            // Nothing stops or leaves.
            Command::StartStop { start, no_flush, condition: 0, .. } if !start && !no_flush => {
                self.flush()?
            }
            Command::StartStop { .. } | Command::Prevent { .. } => Reply::good(),
            Command::ExtendedCopy { length } => self.copy(parameters(data, length)?)?,
            Command::CopyResults { action, list, room } => {
                Reply::parameters(copy::results(self.nexus, action, list)?, room)
            }
            other => self.io(other, data)?,
        })
    }

    fn mode_select(
        &mut self,
        long: bool,
        format: bool,
        save: bool,
        data: &[u8],
    ) -> Result<Reply, Reply> {
        let unit = &self.gate.disk().unit;
        if !format || save {
            return Err(Sense::INVALID_FIELD.at(Place::Command(1)).into());
        }
        let flags = mode::select(unit, long, data)?;
        self.gate.pass(block::RESERVE)?;
        let state = unit.state();
        let old = unit.flags();
        if (old ^ flags) & (DESCRIPTOR_SENSE | PROTECTED) != 0 {
            unit.flags.store(flags | old & RESERVED, Relaxed);
            state.nexuses.attend_others(self.nexus.id(), Sense::MODE_CHANGED);
        }
        Ok(Reply::good())
    }

    fn persistent_out(
        &mut self,
        action: u8,
        scope: u8,
        kind: u8,
        data: &[u8],
    ) -> Result<Reply, Reply> {
        const LENGTH: usize = 24;
        let registers = matches!(action, 0 | 6);
        if action > 6 {
            return Err(Sense::INVALID_FIELD.at(Place::Command(1)).into());
        }
        if scope != 0 && !registers {
            return Err(Sense::INVALID_FIELD.at(Place::Command(2)).into());
        }
        if data.len() != LENGTH {
            return Err(Sense::LIST_LENGTH.into());
        }
        // Ports that are specified, all ports, persistence through loss of power: none is there.
        if data[20] & 0x0d != 0 {
            return Err(Sense::INVALID_PARAMETER.at(Place::Parameter(20)).into());
        }
        self.gate.pass(block::RESERVE)?;
        let key = |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| data[at + byte]));
        let action = Action { action, kind, key: key(0), other: key(8) };
        let unit = &self.gate.disk().unit;
        let mut state = unit.state();
        let notices = match state.reservations.act(&self.nexus.name, action) {
            Ok(notices) => notices,
            Err(No::Conflict) => {
                return Err(Reply::only(status::RESERVATION_CONFLICT, "reserved by another"));
            }
            Err(No::Wrong(sense)) => return Err(sense.into()),
        };
        unit.note(&state);
        for (name, sense) in notices.attentions {
            state.nexuses.attend_named(&[name], sense);
        }
        state.nexuses.clear_named(&notices.aborted);
        Ok(Reply::good())
    }

    fn flush(&mut self) -> Result<Reply, Reply> {
        self.gate.pass(block::FLUSH)?;
        self.lap.served(POLICY);
        let done = self.gate.disk().medium.flush();
        self.lap.served(MEDIUM);
        done.map_err(|error| failed(&error, true))?;
        Ok(Reply::good())
    }
}

/// The answer to a command for a unit that is not there.
fn absent(parsed: &Result<Command, Sense>) -> Reply {
    match parsed {
        Ok(Command::Inquiry { page: None, room }) => {
            let mut bytes = inquiry::standard();
            bytes[0] = inquiry::ABSENT;
            Reply::parameters(bytes, *room)
        }
        Ok(Command::ReportLuns { select, room }) => match inquiry::luns(*select, *room) {
            Ok(bytes) => Reply::parameters(bytes, *room),
            Err(sense) => Reply::check(sense),
        },
        Ok(Command::RequestSense { descriptors: false, room }) => {
            Reply::parameters(Sense::NO_UNIT.fixed(), *room)
        }
        Ok(Command::RequestSense { descriptors: true, room }) => {
            Reply::parameters(Sense::NO_UNIT.descriptors(), *room)
        }
        _ => Reply::check(Sense::NO_UNIT),
    }
}

/// What reservations say about a command (SPC-4, table 65; SBC-3, table 13).
fn access(command: &Command) -> Access {
    match command {
        Command::TestUnitReady
        | Command::RequestSense { .. }
        | Command::Inquiry { .. }
        | Command::ReadCapacity10
        | Command::ReadCapacity16 { .. }
        | Command::ReportLuns { .. }
        | Command::ReportOpcodes { .. }
        | Command::ReportFunctions { .. }
        | Command::ReportGroups { .. }
        | Command::Prevent { prevent: 0 }
        | Command::CopyResults { .. } => Access::Free,
        Command::PersistentIn { .. } | Command::PersistentOut { .. } => Access::Persistent,
        Command::Reserve | Command::Release => Access::Simple,
        Command::Read(_)
        | Command::Verify { .. }
        | Command::Prefetch(_)
        | Command::LbaStatus { .. }
        | Command::ReadDefects { .. }
        | Command::ModeSense { .. } => Access::Read,
        _ => Access::Write,
    }
}

/// As many parameters as the command says.
fn parameters(data: &[u8], length: u32) -> Result<&[u8], Sense> {
    data.get(..length as usize).ok_or(Sense::LIST_LENGTH)
}

/// The medium failed.
fn failed(error: &std::io::Error, writes: bool) -> Reply {
    const NO_SPACE: i32 = 28;
    match error.raw_os_error() {
        Some(NO_SPACE) if writes => Reply::check(Sense::NO_ROOM),
        _ if writes => Reply::check(Sense::WRITE_ERROR),
        _ => Reply::check(Sense::READ_ERROR),
    }
}
