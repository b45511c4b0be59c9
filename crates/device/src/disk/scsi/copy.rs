//! EXTENDED COPY with short lists (SPC-4, section 6.3): blocks of this disk to blocks of this disk, without their data
//! crossing the network. The client's gate is asked about reading and about writing.

use super::nexus::Copied;
use super::{Nexus, Reply, Task, failed};
use crate::disk::{MEDIUM, POLICY};
use lastmeter_plugin::request::block;
use lastmeter_wire::scsi::{Place, Range, Sense};

/// Targets of a copy, at most.
const TARGETS_MAX: usize = 2;
/// Segments of a copy, at most.
const SEGMENTS_MAX: usize = 8;
/// Bytes of all descriptors, at most.
const DESCRIPTORS_MAX: usize = TARGETS_MAX * TARGET_LEN + SEGMENTS_MAX * SEGMENT_LEN;
/// Bytes of a segment, at most.
const SEGMENT_MAX: u64 = 64 << 20;
/// Bytes that are copied at once.
const PIECE: u64 = 256 << 10;
const HEADER_LEN: usize = 16;
const TARGET_LEN: usize = 32;
const SEGMENT_LEN: usize = 28;
const IDENTIFIED: u8 = 0xe4;
const BLOCKS_TO_BLOCKS: u8 = 0x02;

/// RECEIVE COPY RESULTS: what copies may have, or how the last one ended.
///
/// # Errors
/// If something else is asked, or the last copy has another list's identifier.
pub(super) fn results(nexus: &Nexus, action: u8, list: u8) -> Result<Vec<u8>, Sense> {
    const STATUS: u8 = 0;
    const PARAMETERS: u8 = 3;
    match action {
        STATUS => {
            let copied = nexus.copied().filter(|copied| copied.list == list);
            let copied = copied.ok_or(Sense::INVALID_FIELD.at(Place::Command(2)))?;
            const DONE: u8 = 1;
            let [high, low] = copied.segments.to_be_bytes();
            let mut bytes = vec![0, 0, 0, 8, DONE, high, low, 0];
            bytes.extend(copied.bytes.to_be_bytes());
            Ok(bytes)
        }
        PARAMETERS => {
            let mut bytes = vec![0; 44];
            bytes[..4].copy_from_slice(&42u32.to_be_bytes());
            bytes[8..10].copy_from_slice(&(TARGETS_MAX as u16).to_be_bytes());
            bytes[10..12].copy_from_slice(&(SEGMENTS_MAX as u16).to_be_bytes());
            bytes[12..16].copy_from_slice(&(DESCRIPTORS_MAX as u32).to_be_bytes());
            bytes[16..20].copy_from_slice(&(SEGMENT_MAX as u32).to_be_bytes());
            // One copy at a time; granularities of 512 bytes.
            bytes[35] = 1;
            (bytes[37], bytes[38], bytes[39]) = (9, 9, 9);
            bytes[43] = 2;
            bytes.extend([BLOCKS_TO_BLOCKS, IDENTIFIED]);
            Ok(bytes)
        }
        _ => Err(Sense::INVALID_FIELD.at(Place::Command(1))),
    }
}

const TOO_MANY_TARGETS: Sense = Sense::new(5, 0x26, 0x06);
const NO_SUCH_TARGET: Sense = Sense::new(5, 0x26, 0x07);
const TOO_MANY_SEGMENTS: Sense = Sense::new(5, 0x26, 0x08);
const NO_SUCH_SEGMENT: Sense = Sense::new(5, 0x26, 0x09);
/// A copy ended where its target could not.
const ABORTED: Sense = Sense::new(10, 0, 0);

struct Segment {
    from: Range,
    to: u64,
}

impl Task<'_, '_> {
    pub(super) fn copy(&mut self, data: &[u8]) -> Result<Reply, Reply> {
        if data.is_empty() {
            return Ok(Reply::good());
        }
        self.writable()?;
        let segments = self.segments(data)?;
        let size = u64::from(self.gate.disk().medium.block());
        // All are allowed, or nothing is done.
        let mut places = Vec::new();
        for Segment { from, to } in segments {
            let length = u64::from(from.blocks) * size;
            if length > SEGMENT_MAX {
                return Err(Sense::INVALID_PARAMETER.into());
            }
            let to = Range { lba: to, blocks: from.blocks };
            let beyond = |range: Range| {
                range
                    .lba
                    .checked_add(range.blocks.into())
                    .is_none_or(|end| end > self.gate.blocks())
            };
            if beyond(from) || beyond(to) {
                return Err(ABORTED.into());
            }
            let from = self.gate.range(block::READ, from, &[])?;
            let to = self.gate.range(block::WRITE, to, &[])?;
            places.push((from, to, length));
        }
        self.lap.served(POLICY);
        let medium = &self.gate.disk().medium;
        let bytes: u64 = places.iter().map(|(_, _, length)| length).sum();
        let segments = places.len() as u16;
        let mut piece = Vec::new();
        for (from, to, length) in places {
            let mut done = 0;
            while done < length {
                piece.resize((length - done).min(PIECE) as usize, 0);
                medium.read(from + done, &mut piece).map_err(|error| failed(&error, false))?;
                medium.write(to + done, &piece, false).map_err(|error| failed(&error, true))?;
                done += piece.len() as u64;
            }
        }
        self.lap.served(MEDIUM);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.nexus.set_copied(Copied { list: data[0], segments, bytes });
        Ok(Reply::good())
    }

    /// What is to be copied, where all descriptors make sense.
    fn segments(&self, data: &[u8]) -> Result<Vec<Segment>, Reply> {
        if data.len() < HEADER_LEN {
            return Err(Sense::LIST_LENGTH.into());
        }
        let targets_len = usize::from(u16::from_be_bytes([data[2], data[3]]));
        let segments_len = u32::from_be_bytes([data[8], data[9], data[10], data[11]]) as usize;
        let inline = u32::from_be_bytes([data[12], data[13], data[14], data[15]]);
        let body = &data[HEADER_LEN..];
        let ends = targets_len.checked_add(segments_len).filter(|len| *len <= body.len());
        if ends.is_none() || targets_len + segments_len > DESCRIPTORS_MAX + TARGET_LEN {
            return Err(Sense::LIST_LENGTH.into());
        }
        if inline != 0 {
            return Err(Sense::INVALID_PARAMETER.at(Place::Parameter(12)).into());
        }
        let (targets, segments) = body[..targets_len + segments_len].split_at(targets_len);
        if let Some(other) = targets.chunks(TARGET_LEN).find(|target| target[0] != IDENTIFIED) {
            let known = (0xe0..=0xea).contains(&other[0]);
            return Err(if known { NO_SUCH_TARGET } else { Sense::INVALID_PARAMETER }.into());
        }
        if targets.len() / TARGET_LEN > TARGETS_MAX {
            return Err(TOO_MANY_TARGETS.into());
        }
        if segments.first().is_some_and(|kind| *kind != BLOCKS_TO_BLOCKS) {
            return Err(NO_SUCH_SEGMENT.into());
        }
        if segments.len() / SEGMENT_LEN > SEGMENTS_MAX {
            return Err(TOO_MANY_SEGMENTS.into());
        }
        if targets.len() % TARGET_LEN != 0 || segments.len() % SEGMENT_LEN != 0 {
            return Err(Sense::LIST_LENGTH.into());
        }
        // All targets must be this disk.
        let own = self.gate.disk().unit.designator();
        let named = self.gate.disk().unit.serial();
        for target in targets.chunks_exact(TARGET_LEN) {
            let designator = &target[8..][..usize::from(target[7]).min(20)];
            let is_own =
                designator == own || designator.ends_with(&named.as_bytes()[..named.len().min(12)]);
            if !is_own {
                return Err(Sense::COPY_TARGET.into());
            }
        }
        let count = (targets.len() / TARGET_LEN) as u16;
        let mut all = Vec::new();
        for segment in segments.chunks_exact(SEGMENT_LEN) {
            let half = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
            let double = |at: usize| u64::from_be_bytes(std::array::from_fn(|n| segment[at + n]));
            if segment[0] != BLOCKS_TO_BLOCKS {
                return Err(NO_SUCH_SEGMENT.into());
            }
            if half(4) >= count || half(6) >= count {
                return Err(Sense::COPY_TARGET.into());
            }
            let from = Range { lba: double(12), blocks: half(10).into() };
            all.push(Segment { from, to: double(20) });
        }
        Ok(all)
    }
}
