//! SCSI: command descriptor blocks and sense.
//!
//! ```text
//! 6 bytes:  opcode | 21 bits of address | blocks 1 | control
//! 10 bytes: opcode | flags | address 4 | group | blocks 2 | control
//! 12 bytes: opcode | flags | address 4 | blocks 4 | group | control
//! 16 bytes: opcode | flags | address 8 | blocks 4 | group | control
//! ```
//!
//! Source: SPC-4 (all devices) and SBC-3 (disks).
//!
//! ```
//! use lastmeter_wire::scsi::{Command, Range};
//! let read = [0x28, 0, 0, 0, 0, 16, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
//! let command = Command::parse(&read).expect("it is a READ(10)");
//! assert!(matches!(command, Command::Read(io) if io.range == Range { lba: 16, blocks: 8 }));
//! ```

mod opcodes;
mod sense;

pub use opcodes::{OPCODES, Opcode};
pub use sense::{Place, Sense, key};

/// Bytes of a command descriptor block.
pub const CDB_LEN: usize = 16;

/// How a command ended.
pub mod status {
    /// Successfully.
    pub const GOOD: u8 = 0x00;
    /// With an error, which the sense explains.
    pub const CHECK_CONDITION: u8 = 0x02;
    /// Another initiator has reserved the unit.
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    /// No room for another task.
    pub const TASK_SET_FULL: u8 = 0x28;
    /// It was aborted.
    pub const TASK_ABORTED: u8 = 0x40;
}

/// Blocks of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// A command on blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Which.
    pub range: Range,
    /// Whether it reaches the medium before it ends (force unit access).
    pub fua: bool,
    /// Protection information that is wanted; there is none.
    pub protect: u8,
}

/// How data are compared with the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Not at all: the medium is only read.
    Medium,
    /// With as many blocks of data.
    Blocks,
    /// Each block with the one block of data.
    Repeated,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of the standard's tables")]
pub enum Command {
    TestUnitReady,
    RequestSense { descriptors: bool, room: u32 },
    Inquiry { page: Option<u8>, room: u32 },
    ModeSense { long: bool, descriptor: bool, control: u8, page: u8, subpage: u8, room: u32 },
    ModeSelect { long: bool, format: bool, save: bool, length: u32 },
    ReadCapacity10,
    ReadCapacity16 { room: u32 },
    ReportLuns { select: u8, room: u32 },
    ReportOpcodes { timeouts: bool, options: u8, opcode: u8, action: u16, room: u32 },
    ReportFunctions { room: u32 },
    ReportGroups { extended: bool, room: u32 },
    Read(Io),
    Write(Io),
    WriteVerify { io: Io, compare: bool },
    OrWrite(Io),
    Verify { io: Io, compare: Compare },
    CompareAndWrite(Io),
    WriteSame { io: Io, unmap: bool, anchor: bool, no_data: bool },
    Unmap { anchor: bool, length: u32 },
    Prefetch(Range),
    Synchronize(Range),
    LbaStatus { lba: u64, room: u32 },
    ReadDefects { long: bool, lists: u8, room: u32 },
    StartStop { start: bool, eject: bool, condition: u8, no_flush: bool },
    Prevent { prevent: u8 },
    Reserve,
    Release,
    PersistentIn { action: u8, room: u32 },
    PersistentOut { action: u8, scope: u8, kind: u8, length: u32 },
    ExtendedCopy { length: u32 },
    CopyResults { action: u8, list: u8, room: u32 },
}

fn half(cdb: &[u8; CDB_LEN], at: usize) -> u32 {
    u32::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]))
}
fn word(cdb: &[u8; CDB_LEN], at: usize) -> u32 {
    half(cdb, at) << 16 | half(cdb, at + 2)
}
fn double(cdb: &[u8; CDB_LEN], at: usize) -> u64 {
    u64::from(word(cdb, at)) << 32 | u64::from(word(cdb, at + 4))
}

/// The blocks of a command of 10, 12 or 16 bytes.
fn range(cdb: &[u8; CDB_LEN]) -> Range {
    match cdb[0] >> 5 {
        1 | 2 => Range { lba: word(cdb, 2).into(), blocks: half(cdb, 7) },
        5 => Range { lba: word(cdb, 2).into(), blocks: word(cdb, 6) },
        _ => Range { lba: double(cdb, 2), blocks: word(cdb, 10) },
    }
}

fn io(cdb: &[u8; CDB_LEN]) -> Io {
    Io { range: range(cdb), fua: cdb[1] & 8 != 0, protect: cdb[1] >> 5 }
}

impl Command {
    /// # Errors
    /// The sense of a command that is not known, or has a field that is not supported.
    pub fn parse(cdb: &[u8; CDB_LEN]) -> Result<Command, Sense> {
        let field = |byte: u16| Err(Sense::INVALID_FIELD.at(Place::Command(byte)));
        let short = || {
            let lba = u64::from(word(cdb, 0) & 0x1f_ffff);
            // Zero means all that fit.
            let blocks = if cdb[4] == 0 { 256 } else { cdb[4].into() };
            Io { range: Range { lba, blocks }, fua: false, protect: 0 }
        };
        Ok(match cdb[0] {
            0x00 => Command::TestUnitReady,
            0x03 => Command::RequestSense { descriptors: cdb[1] & 1 != 0, room: cdb[4].into() },
            0x08 => Command::Read(short()),
            0x0a => Command::Write(short()),
            0x12 => {
                let wants = cdb[1] & 1 != 0;
                if !wants && cdb[2] != 0 {
                    return field(2);
                }
                Command::Inquiry { page: wants.then_some(cdb[2]), room: half(cdb, 3) }
            }
            0x15 => mode_select(cdb, false, cdb[4].into()),
            0x55 => mode_select(cdb, true, half(cdb, 7)),
            0x16 => Command::Reserve,
            0x17 => Command::Release,
            0x1a => mode_sense(cdb, false, cdb[4].into()),
            0x5a => mode_sense(cdb, true, half(cdb, 7)),
            0x1b => Command::StartStop {
                start: cdb[4] & 1 != 0,
                eject: cdb[4] & 2 != 0,
                no_flush: cdb[4] & 4 != 0,
                condition: cdb[4] >> 4,
            },
            0x1e => Command::Prevent { prevent: cdb[4] & 3 },
            0x25 => Command::ReadCapacity10,
            0x28 | 0x88 | 0xa8 => Command::Read(io(cdb)),
            0x2a | 0x8a | 0xaa => Command::Write(io(cdb)),
            0x2e | 0x8e | 0xae => match cdb[1] >> 1 & 3 {
                check @ (0 | 1) => {
                    Command::WriteVerify { io: Io { fua: true, ..io(cdb) }, compare: check == 1 }
                }
                _ => return field(1),
            },
            0x2f | 0x8f | 0xaf => {
                let compare = match cdb[1] >> 1 & 3 {
                    0 => Compare::Medium,
                    1 => Compare::Blocks,
                    3 => Compare::Repeated,
                    _ => return field(1),
                };
                Command::Verify { io: Io { fua: false, ..io(cdb) }, compare }
            }
            0x8b => Command::OrWrite(io(cdb)),
            0x89 => {
                let range = Range { lba: double(cdb, 2), blocks: cdb[13].into() };
                Command::CompareAndWrite(Io { range, ..io(cdb) })
            }
            0x41 | 0x93 => Command::WriteSame {
                io: Io { fua: false, ..io(cdb) },
                unmap: cdb[1] & 8 != 0,
                anchor: cdb[1] & 16 != 0,
                no_data: cdb[0] == 0x93 && cdb[1] & 1 != 0,
            },
            0x42 => Command::Unmap { anchor: cdb[1] & 1 != 0, length: half(cdb, 7) },
            0x34 | 0x90 => Command::Prefetch(range(cdb)),
            0x35 | 0x91 => Command::Synchronize(range(cdb)),
            0x37 => Command::ReadDefects { long: false, lists: cdb[2], room: half(cdb, 7) },
            0xb7 => Command::ReadDefects { long: true, lists: cdb[1], room: word(cdb, 6) },
            0x5e => Command::PersistentIn { action: cdb[1] & 31, room: half(cdb, 7) },
            0x5f => Command::PersistentOut {
                action: cdb[1] & 31,
                scope: cdb[2] >> 4,
                kind: cdb[2] & 15,
                length: word(cdb, 5),
            },
            0x83 if cdb[1] & 31 == 0 => Command::ExtendedCopy { length: word(cdb, 10) },
            0x84 => {
                let (action, list) = (cdb[1] & 31, cdb[2]);
                Command::CopyResults { action, list, room: word(cdb, 10) }
            }
            0x9e => match cdb[1] & 31 {
                0x10 => Command::ReadCapacity16 { room: word(cdb, 10) },
                0x12 => Command::LbaStatus { lba: double(cdb, 2), room: word(cdb, 10) },
                _ => return field(1),
            },
            0xa0 => Command::ReportLuns { select: cdb[2], room: word(cdb, 6) },
            0xa3 => match cdb[1] & 31 {
                0x0a => Command::ReportGroups { extended: cdb[1] >> 5 == 1, room: word(cdb, 6) },
                0x0c => Command::ReportOpcodes {
                    timeouts: cdb[2] & 0x80 != 0,
                    options: cdb[2] & 7,
                    opcode: cdb[3],
                    action: half(cdb, 4) as u16,
                    room: word(cdb, 6),
                },
                0x0d => Command::ReportFunctions { room: word(cdb, 6) },
                _ => return field(1),
            },
            0x83 => return field(1),
            _ => return Err(Sense::INVALID_OPCODE.at(Place::Command(0))),
        })
    }
    /// Bytes of data that it takes from its initiator, on a disk with such blocks.
    pub fn data_out(&self, block: u32) -> u64 {
        let blocks = |io: &Io| u64::from(io.range.blocks) * u64::from(block);
        match self {
            Command::Write(io) | Command::OrWrite(io) => blocks(io),
            Command::WriteVerify { io, .. } => blocks(io),
            Command::CompareAndWrite(io) => 2 * blocks(io),
            Command::Verify { io, compare: Compare::Blocks } => blocks(io),
            Command::Verify { io, compare: Compare::Repeated } if io.range.blocks > 0 => {
                block.into()
            }
            Command::WriteSame { no_data: false, .. } => block.into(),
            Command::Unmap { length, .. }
            | Command::ModeSelect { length, .. }
            | Command::PersistentOut { length, .. }
            | Command::ExtendedCopy { length } => u64::from(*length),
            _ => 0,
        }
    }
}

fn mode_sense(cdb: &[u8; CDB_LEN], long: bool, room: u32) -> Command {
    Command::ModeSense {
        long,
        descriptor: cdb[1] & 8 == 0,
        control: cdb[2] >> 6,
        page: cdb[2] & 0x3f,
        subpage: cdb[3],
        room,
    }
}

fn mode_select(cdb: &[u8; CDB_LEN], long: bool, length: u32) -> Command {
    Command::ModeSelect { long, format: cdb[1] & 16 != 0, save: cdb[1] & 1 != 0, length }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cdb(bytes: &[u8]) -> [u8; CDB_LEN] {
        std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
    }

    #[test]
    fn addresses_of_each_length() {
        let range = |bytes: &[u8]| match Command::parse(&cdb(bytes)) {
            Ok(Command::Read(io)) => (io.range.lba, io.range.blocks),
            other => panic!("{other:?}"),
        };
        assert_eq!(range(&[0x08, 0xff, 2, 3, 4]), (0x1f_0203, 4));
        assert_eq!(range(&[0x08, 0, 0, 0, 0]), (0, 256));
        assert_eq!(range(&[0x28, 0, 1, 2, 3, 4, 0, 5, 6]), (0x0102_0304, 0x506));
        assert_eq!(range(&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8]), (0x0102_0304, 0x0506_0708));
        let long = [0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(range(&long), (0x0102_0304_0506_0708, 0x090a_0b0c));
    }

    #[test]
    fn what_is_unknown_is_reported_with_its_place() {
        let sense = |bytes: &[u8]| Command::parse(&cdb(bytes)).expect_err("refused");
        assert_eq!(sense(&[0xff]), Sense::INVALID_OPCODE.at(Place::Command(0)));
        assert_eq!(sense(&[0x9e, 0x1f]), Sense::INVALID_FIELD.at(Place::Command(1)));
        assert_eq!(sense(&[0x12, 0, 5]), Sense::INVALID_FIELD.at(Place::Command(2)));
    }

    /// The table that is reported to initiators is the one that is parsed.
    #[test]
    fn each_command_of_the_table_is_parsed_and_no_other() {
        for code in 0..=255u8 {
            for action in 0..32u8 {
                let tabled = OPCODES.iter().any(|row| {
                    row.code == code && row.action.is_none_or(|own| own == u16::from(action))
                });
                let parsed = Command::parse(&cdb(&[code, action]));
                let unknown = matches!(parsed, Err(sense) if sense.code == 0x20)
                    || matches!(parsed, Err(sense) if sense.code == 0x24 && has_action(code));
                // Service actions of reservations and copies are checked by the unit.
                let checked_later = matches!(code, 0x5e | 0x5f | 0x84);
                assert!(tabled != unknown || checked_later, "{code:#x}/{action:#x}: {parsed:?}");
            }
        }
    }

    fn has_action(code: u8) -> bool {
        OPCODES.iter().any(|row| row.code == code && row.action.is_some())
    }
}
