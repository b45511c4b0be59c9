//! What stands between a client's command and the medium, whatever protocol it came by: the client's size, the owner's
//! policies.
//!
//! ```text
//! command --> whole blocks? --> within the client's size? --> policies --> place on the medium
//! ```
//!
//! Policies let a command pass as a whole, at its own blocks or others, or not at all: neither NBD nor SCSI has partial
//! replies.
//!
//! Rows: N-31.

use super::Disk;
use lastmeter_plugin::chain::{Chain, Effect};
use lastmeter_plugin::request::{Body, Request, block};
use lastmeter_wire::scsi::Range;

/// Why a command does not reach the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody may write.
    ReadOnly,
    /// It goes beyond the client's disk.
    Beyond,
    /// It has a part of a block, or nothing.
    Unaligned,
    /// A policy denies it, with a sense of 20 bits or zero.
    Denied(u32),
    /// A policy allows a part of it.
    Part,
    /// A policy leads beyond the medium.
    Astray,
    /// An initiator has reserved the disk.
    Reserved,
}

impl Refusal {
    /// In words, for clients and the account.
    pub fn words(self) -> &'static str {
        match self {
            Refusal::ReadOnly => "read only",
            Refusal::Beyond => "beyond the end",
            Refusal::Unaligned => "not whole blocks",
            Refusal::Denied(_) => "a policy denies it",
            Refusal::Part => "a policy allows a part",
            Refusal::Astray => "a policy leads beyond the disk",
            Refusal::Reserved => "reserved by another",
        }
    }
}

/// The gate of one client.
pub struct Gate<'a> {
    disk: &'a Disk,
    number: u32,
    size: u64,
    chain: Chain,
    marks: Vec<u64>,
}

impl<'a> Gate<'a> {
    /// The gate of this client.
    ///
    /// # Errors
    /// If its policies cannot be made.
    pub fn new(disk: &'a Disk, client: &str) -> Result<Gate<'a>, String> {
        let chain = disk.access.chain(client, disk.now())?;
        let (number, size) = (disk.access.number(client), disk.size(client));
        let marks = vec![0; chain.len()];
        Ok(Gate { disk, number, size, chain, marks })
    }
    /// The disk behind it.
    pub fn disk(&self) -> &'a Disk {
        self.disk
    }
    /// Bytes of the client's disk.
    pub fn size(&self) -> u64 {
        self.size
    }
    /// Blocks of the client's disk.
    pub fn blocks(&self) -> u64 {
        self.size / u64::from(self.disk.medium.block())
    }
    /// Where a command on bytes goes: its first byte on the medium.
    ///
    /// # Errors
    /// Why it goes nowhere.
    pub fn bytes(
        &mut self,
        operation: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> Result<u64, Refusal> {
        self.check(operation, offset, length.into())?;
        let block = self.disk.medium.block();
        if !offset.is_multiple_of(block.into()) || !length.is_multiple_of(block) || length == 0 {
            return Err(Refusal::Unaligned);
        }
        let range = Range { lba: offset / u64::from(block), blocks: length / block };
        self.ask(operation, range, data)
    }
    /// Where a command on blocks goes: its first byte on the medium. No blocks go where they say.
    ///
    /// # Errors
    /// Why it goes nowhere.
    pub fn range(&mut self, operation: u16, range: Range, data: &[u8]) -> Result<u64, Refusal> {
        let block = u64::from(self.disk.medium.block());
        let offset = range.lba.checked_mul(block).ok_or(Refusal::Beyond)?;
        self.check(operation, offset, u64::from(range.blocks) * block)?;
        if range.blocks == 0 { Ok(offset) } else { self.ask(operation, range, data) }
    }
    /// Whether a command that is about no blocks passes: a flush, a reservation.
    ///
    /// # Errors
    /// Why it does not.
    pub fn pass(&mut self, operation: u16) -> Result<(), Refusal> {
        self.ask(operation, Range { lba: 0, blocks: 0 }, &[]).map(|_| ())
    }

    fn check(&self, operation: u16, offset: u64, length: u64) -> Result<(), Refusal> {
        if block::writes(operation) && self.disk.medium.is_read_only() {
            return Err(Refusal::ReadOnly);
        }
        let within = offset.checked_add(length).is_some_and(|end| end <= self.size);
        if within { Ok(()) } else { Err(Refusal::Beyond) }
    }

    fn ask(&mut self, operation: u16, range: Range, data: &[u8]) -> Result<u64, Refusal> {
        let block = u64::from(self.disk.medium.block());
        let Range { lba, blocks } = range;
        if self.chain.is_empty() {
            return Ok(lba * block);
        }
        let body = Body::Block { operation, lba, blocks, initiator: self.number };
        let (now, flow) = (self.disk.now(), u64::from(self.number));
        let length = u32::try_from(u64::from(blocks) * block).unwrap_or(u32::MAX);
        let asked = Request { body, flow, arrival: now, mark: 0, length, data };
        match self.chain.decide(now, &asked, &mut self.marks).effect {
            Effect::Block { lba, blocks: allowed } if allowed == blocks => {
                let end = lba.checked_add(blocks.into()).and_then(|end| end.checked_mul(block));
                let fits = end.is_some_and(|end| end <= self.disk.medium.size());
                lba.checked_mul(block).filter(|_| fits).ok_or(Refusal::Astray)
            }
            Effect::Block { .. } => Err(Refusal::Part),
            Effect::Denied { code, .. } => Err(Refusal::Denied(code)),
            _ => Err(Refusal::Denied(0)),
        }
    }
}
