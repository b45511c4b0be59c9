//! Commands on blocks (SBC-3, section 5).

use super::{
    COMPARE_MAX, Data, PROTECTED, Reply, SAME_MAX, TRANSFER_MAX, Task, UNMAP_MAX, failed,
    parameters,
};
use crate::disk::gate::Refusal;
use crate::disk::medium::Extent;
use crate::disk::{MEDIUM, POLICY};
use lastmeter_plugin::request::block;
use lastmeter_wire::scsi::{Command, Compare, Io, Place, Range, Sense};

/// Descriptors of GET LBA STATUS, at most.
const EXTENTS_MAX: usize = 256;

impl Task<'_, '_> {
    pub(super) fn io(&mut self, command: Command, data: &[u8]) -> Result<Reply, Reply> {
        match command {
            Command::Write(_)
            | Command::WriteVerify { .. }
            | Command::OrWrite(_)
            | Command::CompareAndWrite(_)
            | Command::WriteSame { .. }
            | Command::Unmap { .. } => self.writable()?,
            _ => {}
        }
        match command {
            Command::Read(io) => self.read(io),
            Command::Write(io) => self.write(io, data, false),
            Command::WriteVerify { io, compare } => self.write(io, data, compare),
            Command::OrWrite(io) => self.or_write(io, data),
            Command::Verify { io, compare } => self.verify(io, compare, data),
            Command::CompareAndWrite(io) => self.compare_and_write(io, data),
            Command::WriteSame { io, unmap, anchor, no_data } => {
                self.write_same(io, unmap, anchor, (!no_data).then_some(data))
            }
            Command::Unmap { anchor, length } => self.unmap(anchor, parameters(data, length)?),
            Command::Prefetch(range) => {
                // No blocks: to the end.
                let left = self.gate.blocks().saturating_sub(range.lba);
                let blocks =
                    if range.blocks == 0 { left.min(u32::MAX.into()) as u32 } else { range.blocks };
                let at = self.place(block::READ, Range { blocks, ..range }, &[])?;
                self.gate.disk().medium.prefetch(at, u64::from(blocks) * self.block());
                self.lap.served(MEDIUM);
                Ok(Reply::good())
            }
            Command::Synchronize(range) => {
                let end = range.lba.checked_add(range.blocks.into());
                if end.is_none_or(|end| end > self.gate.blocks()) {
                    return Err(Sense::BEYOND_END.into());
                }
                self.flush()
            }
            Command::LbaStatus { lba, room } => self.lba_status(lba, room),
            Command::ReadDefects { long, lists, room } => {
                // There are none.
                let head = if long {
                    vec![0, lists & 0x1f, 0, 0, 0, 0, 0, 0]
                } else {
                    vec![0, lists & 0x1f, 0, 0]
                };
                Ok(Reply::parameters(head, room))
            }
            _ => Err(Sense::INVALID_OPCODE.into()),
        }
    }

    fn block(&self) -> u64 {
        self.gate.disk().medium.block().into()
    }

    /// Refuses to write what is protected, before anything else is said of the command.
    pub(super) fn writable(&self) -> Result<(), Reply> {
        let disk = self.gate.disk();
        if disk.medium.is_read_only() {
            return Err(Refusal::ReadOnly.into());
        }
        let protected = disk.unit.flags() & PROTECTED != 0;
        if protected { Err(Sense::SOFTWARE_PROTECTED.into()) } else { Ok(()) }
    }

    /// Where a command's blocks are on the medium.
    fn place(&mut self, operation: u16, range: Range, data: &[u8]) -> Result<u64, Reply> {
        let placed = self.gate.range(operation, range, data);
        self.lap.served(POLICY);
        Ok(placed?)
    }

    /// Checks what is common to commands that transfer blocks; the bytes of the blocks.
    fn length(&self, io: &Io) -> Result<u32, Reply> {
        if io.protect != 0 {
            return Err(Sense::INVALID_FIELD.at(Place::Command(1)).into());
        }
        let bytes = u64::from(io.range.blocks) * self.block();
        let fits = u32::try_from(bytes).ok().filter(|bytes| *bytes <= TRANSFER_MAX);
        // Beyond the end is said first.
        let end = io.range.lba.checked_add(io.range.blocks.into());
        if end.is_none_or(|end| end > self.gate.blocks()) {
            return Err(Sense::BEYOND_END.into());
        }
        fits.ok_or(Sense::INVALID_FIELD.at(Place::Command(10)).into())
    }

    fn read(&mut self, io: Io) -> Result<Reply, Reply> {
        let length = self.length(&io)?;
        let at = self.place(block::READ, io.range, &[])?;
        Ok(Reply { data: Data::Medium { at, length }, ..Reply::good() })
    }

    fn write(&mut self, io: Io, data: &[u8], compare: bool) -> Result<Reply, Reply> {
        let length = self.length(&io)?;
        // An initiator that sends less than its command says writes what it sends, in whole blocks.
        let data = &data[..data.len().min(length as usize)];
        let whole = data.len() - data.len() % self.block() as usize;
        let blocks = (whole as u64 / self.block()) as u32;
        let at = self.place(block::WRITE, Range { blocks, ..io.range }, &data[..whole])?;
        let medium = &self.gate.disk().medium;
        let done = medium.write(at, &data[..whole], io.fua);
        self.lap.served(MEDIUM);
        done.map_err(|error| failed(&error, true))?;
        if compare { self.same(at, &data[..whole]) } else { Ok(Reply::good()) }
    }

    fn or_write(&mut self, io: Io, data: &[u8]) -> Result<Reply, Reply> {
        let length = self.length(&io)? as usize;
        let data = data.get(..length).ok_or(Sense::INCOMPLETE)?;
        let at = self.place(block::WRITE, io.range, data)?;
        let done = self.gate.disk().medium.or_write(at, data, io.fua);
        self.lap.served(MEDIUM);
        done.map_err(|error| failed(&error, true))?;
        Ok(Reply::good())
    }

    /// Whether the medium has these data.
    fn same(&mut self, at: u64, data: &[u8]) -> Result<Reply, Reply> {
        let differs = self.gate.disk().medium.differs(at, data);
        self.lap.served(MEDIUM);
        match differs.map_err(|error| failed(&error, false))? {
            None => Ok(Reply::good()),
            Some(first) => Err(Sense::MISCOMPARED.at(Place::Information(first as u64)).into()),
        }
    }

    fn verify(&mut self, io: Io, compare: Compare, data: &[u8]) -> Result<Reply, Reply> {
        let length = match compare {
            Compare::Blocks => u64::from(self.length(&io)?),
            // Nothing is transferred.
            _ if io.protect != 0 => {
                return Err(Sense::INVALID_FIELD.at(Place::Command(1)).into());
            }
            _ => u64::from(io.range.blocks) * self.block(),
        };
        let at = self.place(block::READ, io.range, &[])?;
        if io.range.blocks == 0 {
            return Ok(Reply::good());
        }
        match compare {
            Compare::Blocks => {
                let data = data.get(..length as usize).ok_or(Sense::INCOMPLETE)?;
                self.same(at, data)
            }
            Compare::Repeated => {
                let one = data.get(..self.block() as usize).ok_or(Sense::INCOMPLETE)?;
                for number in 0..u64::from(io.range.blocks) {
                    self.same(at + number * self.block(), one)?;
                }
                Ok(Reply::good())
            }
            Compare::Medium => {
                let mut part = vec![0; (64 << 10).min(length as usize)];
                let mut done = 0;
                while done < length {
                    let len = part.len().min((length - done) as usize);
                    let read = self.gate.disk().medium.read(at + done, &mut part[..len]);
                    read.map_err(|error| failed(&error, false))?;
                    done += len as u64;
                }
                self.lap.served(MEDIUM);
                Ok(Reply::good())
            }
        }
    }

    /// Refuses a command whose initiator sends other than what it says: what it means is not known.
    fn exactly(&self, takes: u64) -> Result<(), Reply> {
        let fits = u64::from(self.offered) == takes;
        if fits { Ok(()) } else { Err(Sense::INVALID_FIELD.into()) }
    }

    fn compare_and_write(&mut self, io: Io, data: &[u8]) -> Result<Reply, Reply> {
        self.exactly(2 * u64::from(io.range.blocks) * self.block())?;
        if io.range.blocks > COMPARE_MAX {
            return Err(Sense::INVALID_FIELD.at(Place::Command(13)).into());
        }
        let length = self.length(&io)? as usize;
        let data = data.get(..2 * length).ok_or(Sense::INCOMPLETE)?;
        let (expected, new) = data.split_at(length);
        let at = self.place(block::COMPARE_AND_WRITE, io.range, new)?;
        let differs = self.gate.disk().medium.compare_and_write(at, expected, new, io.fua);
        self.lap.served(MEDIUM);
        match differs.map_err(|error| failed(&error, true))? {
            None => Ok(Reply::good()),
            Some(first) => Err(Sense::MISCOMPARED.at(Place::Information(first as u64)).into()),
        }
    }

    /// WRITE SAME: one block many times; without data, zeros.
    fn write_same(
        &mut self,
        io: Io,
        unmap: bool,
        anchor: bool,
        data: Option<&[u8]>,
    ) -> Result<Reply, Reply> {
        if anchor || io.protect != 0 {
            return Err(Sense::INVALID_FIELD.at(Place::Command(1)).into());
        }
        let (blocks, block) = (u64::from(io.range.blocks), self.block());
        let end = io.range.lba.checked_add(blocks);
        if end.is_none_or(|end| end > self.gate.blocks()) {
            return Err(Sense::BEYOND_END.into());
        }
        if blocks == 0 || blocks > SAME_MAX.into() {
            return Err(Sense::INVALID_FIELD.at(Place::Command(10)).into());
        }
        if data.is_some() {
            self.exactly(block)?;
        }
        let one = match data {
            None => None,
            Some(data) => {
                let one = data.get(..block as usize).ok_or(Sense::INCOMPLETE)?;
                Some(one).filter(|one| one.iter().any(|byte| *byte != 0))
            }
        };
        let medium = &self.gate.disk().medium;
        let operation = match one {
            None if unmap => block::TRIM,
            None => block::ZERO,
            Some(_) => block::WRITE,
        };
        let at = self.place(operation, io.range, one.unwrap_or(&[]))?;
        let done = match one {
            None => medium.zero(at, blocks * block, unmap, false),
            Some(one) => medium.repeat(at, one, blocks),
        };
        self.lap.served(MEDIUM);
        done.map_err(|error| failed(&error, true))?;
        Ok(Reply::good())
    }

    fn unmap(&mut self, anchor: bool, data: &[u8]) -> Result<Reply, Reply> {
        if anchor {
            return Err(Sense::INVALID_FIELD.at(Place::Command(1)).into());
        }
        if data.is_empty() {
            return Ok(Reply::good());
        }
        if data.len() < 8 {
            return Err(Sense::LIST_LENGTH.into());
        }
        let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
        let list = &data[8..];
        let list = &list[..list.len().min(length)];
        if list.len() / 16 > UNMAP_MAX {
            return Err(Sense::INVALID_PARAMETER.at(Place::Parameter(2)).into());
        }
        // All are allowed, or nothing is done.
        let mut places = Vec::new();
        for descriptor in list.chunks_exact(16) {
            let lba = u64::from_be_bytes(std::array::from_fn(|at| descriptor[at]));
            let blocks = u32::from_be_bytes(std::array::from_fn(|at| descriptor[8 + at]));
            let at = self.place(block::TRIM, Range { lba, blocks }, &[])?;
            places.push((at, u64::from(blocks) * self.block()));
        }
        for (at, length) in places {
            // What is unmapped reads as zeros, also where the file system has no holes.
            let done = self.gate.disk().medium.zero(at, length, true, false);
            done.map_err(|error| failed(&error, true))?;
        }
        self.lap.served(MEDIUM);
        Ok(Reply::good())
    }

    fn lba_status(&mut self, lba: u64, room: u32) -> Result<Reply, Reply> {
        let left = self.gate.blocks().checked_sub(lba).filter(|left| *left > 0);
        let left = left.ok_or(Sense::BEYOND_END)?;
        // A policy decides about as many blocks as one command can have.
        let blocks = left.min(u32::MAX.into()) as u32;
        let at = self.place(block::READ, Range { lba, blocks }, &[])?;
        let most = (room.saturating_sub(8) as usize / 16).clamp(1, EXTENTS_MAX);
        let length = u64::from(blocks) * self.block();
        let extents = self.gate.disk().medium.extents(at, length, most);
        self.lap.served(MEDIUM);
        let (mut list, mut next) = (Vec::new(), lba);
        for Extent { length, hole } in extents {
            let blocks = (length / self.block()) as u32;
            list.extend(next.to_be_bytes());
            list.extend(blocks.to_be_bytes());
            list.extend([u8::from(hole), 0, 0, 0]);
            next += u64::from(blocks);
        }
        let head = (list.len() as u32 + 4).to_be_bytes();
        Ok(Reply::parameters([&head[..], &[0; 4], &list].concat(), room))
    }
}
