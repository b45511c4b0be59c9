//! A disk in transfers: it gives its blocks, and takes blocks, or frames of a camera as records.

use super::gate::Gate;
use super::{Disk, MEDIUM, POLICY};
use crate::access::Access;
use crate::account::Account;
use crate::transfer::{Give, PIECE_MAX, Party, Take};
use lastmeter_plugin::request::block;
use lastmeter_wire::ticket::{Cargo, From, RECORD_UNIT, Ticket, To, record};
use std::io::ErrorKind;

impl Party for Disk {
    fn access(&self) -> &Access {
        &self.access
    }
    fn account(&self) -> &Account {
        &self.account
    }
    fn give<'a>(&'a self, client: &str, ticket: &Ticket) -> Result<Box<dyn Give + 'a>, String> {
        let From::Blocks { offset, length } = ticket.from else {
            return Err("a disk has no frames".to_owned());
        };
        let gate = self.range(client, offset, length)?;
        // Pieces of frames begin with them.
        let frame = match ticket.cargo() {
            Ok(Cargo::Pixels { frame, .. }) => frame,
            _ => u64::MAX,
        };
        Ok(Box::new(Giving { gate, at: offset, begin: offset, end: offset + length, frame }))
    }
    fn take<'a>(&'a self, client: &str, ticket: &Ticket) -> Result<Box<dyn Take + 'a>, String> {
        let To::Blocks { offset, length } = ticket.to else {
            return Err("a disk has no screen".to_owned());
        };
        if self.medium.is_read_only() {
            return Err("read only".to_owned());
        }
        let frames = matches!(ticket.cargo(), Ok(Cargo::Pictures { .. }));
        if frames && !offset.is_multiple_of(RECORD_UNIT as u64) {
            return Err(format!("frames begin at multiples of {RECORD_UNIT} bytes"));
        }
        let gate = self.range(client, offset, length)?;
        Ok(Box::new(Taking { gate, at: offset, end: offset + length, frames }))
    }
}

impl Disk {
    /// The client's gate, if the range is on its disk and has whole blocks.
    fn range(&self, client: &str, offset: u64, length: u64) -> Result<Gate<'_>, String> {
        let gate = Gate::new(self, client)?;
        let block = u64::from(self.medium.block());
        if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(format!("not whole blocks of {block} bytes"));
        }
        if offset.checked_add(length).is_none_or(|end| end > gate.size()) {
            return Err("beyond the end of the issuer's disk".to_owned());
        }
        Ok(gate)
    }
}

/// A range that is read, each piece of which is a request of the issuer.
struct Giving<'a> {
    gate: Gate<'a>,
    at: u64,
    begin: u64,
    end: u64,
    /// Bytes of a frame.
    frame: u64,
}

impl Give for Giving<'_> {
    fn next(&mut self, piece: &mut Vec<u8>) -> Result<bool, String> {
        let (disk, block) = (self.gate.disk(), u64::from(self.gate.disk().medium.block()));
        if self.at >= self.end {
            return Ok(false);
        }
        let left = self.frame - (self.at - self.begin) % self.frame;
        let length = left.min(self.end - self.at).min(PIECE_MAX as u64);
        // A frame need not end with a block.
        let (first, last) = (self.at / block * block, (self.at + length).next_multiple_of(block));
        let mut lap = disk.account.begin();
        let asked = match disk.unit.allows_others(false) {
            true => self.gate.bytes(block::READ, first, (last - first) as u32, &[]),
            false => Err(super::gate::Refusal::Reserved),
        };
        lap.served(POLICY);
        let place = asked.map_err(|refusal| refusal.words().to_owned())?;
        piece.resize(length as usize, 0);
        let read = disk.medium.read(place + (self.at - first), piece);
        lap.served(MEDIUM);
        read.map_err(|_| "the medium failed".to_owned())?;
        disk.account.end(lap, length);
        self.at += length;
        Ok(true)
    }
}

/// A range that is written.
struct Taking<'a> {
    gate: Gate<'a>,
    at: u64,
    end: u64,
    /// What comes are frames, which become records.
    frames: bool,
}

impl Take for Taking<'_> {
    fn put(&mut self, piece: &[u8]) -> Result<(), String> {
        let disk = self.gate.disk();
        let own = if self.frames { record(clock(), piece) } else { Vec::new() };
        let data = if self.frames { &own[..] } else { piece };
        if data.len() as u64 > self.end - self.at {
            return Err("the ticket's range is full".to_owned());
        }
        let mut lap = disk.account.begin();
        let asked = match disk.unit.allows_others(true) {
            true => self.gate.bytes(block::WRITE, self.at, data.len() as u32, data),
            false => Err(super::gate::Refusal::Reserved),
        };
        lap.served(POLICY);
        let place = asked.map_err(|refusal| refusal.words().to_owned())?;
        let written = disk.medium.write(place, data, false);
        lap.served(MEDIUM);
        written.map_err(|error| match error.kind() {
            ErrorKind::StorageFull => "the medium is full".to_owned(),
            _ => "the medium failed".to_owned(),
        })?;
        disk.account.end(lap, data.len() as u64);
        self.at += data.len() as u64;
        Ok(())
    }
    fn finish(&mut self) -> Result<(), String> {
        self.gate.disk().medium.flush().map_err(|_| "the medium failed".to_owned())
    }
}

/// Microseconds since 1970.
fn clock() -> u64 {
    crate::camera::store::clock()
}
