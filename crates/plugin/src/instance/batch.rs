//! A batch in the plugin's memory: written before the plugin is called, read and checked afterwards.

use super::Failure;
use crate::abi::{DESCRIPTOR_LEN, Description, HEADER_LEN, field};
use crate::request::{
    Answer, Answers, Descriptor, Fault, Request, Verdict, nanoseconds, number, u32_at, u64_at,
};
use lastmeter_base::Time;

/// Where the parts of a batch lie in the room.
pub(super) struct Places {
    /// Bytes of data that the plugin wants with each request.
    wanted: usize,
    /// Bytes kept for the data of each.
    slot: usize,
    /// Length of all descriptors.
    table: usize,
    /// The address of the first request's data.
    first: u32,
}

impl Places {
    pub(super) fn of(description: &Description, requests: usize) -> Places {
        let table = DESCRIPTOR_LEN * requests;
        Places {
            wanted: description.wanted as usize,
            slot: description.slot(),
            table,
            first: description.room + (HEADER_LEN + table) as u32,
        }
    }
    /// Writes a batch into the room.
    pub(super) fn fill(&self, room: &mut [u8], now: Time, requests: &[Request<'_>]) {
        let Places { wanted, slot, table, first } = *self;
        let (header, rest) = room.split_at_mut(HEADER_LEN);
        let kind = requests.first().map_or(0, |request| request.body.kind() as u32);
        header[..4].copy_from_slice(&(requests.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&nanoseconds(now).to_le_bytes());
        let (table, mut data) = rest.split_at_mut(table);
        let (table, _) = table.as_chunks_mut::<DESCRIPTOR_LEN>();
        let mut address = first;
        for (request, descriptor) in requests.iter().zip(table) {
            let seen = &request.data[..request.data.len().min(wanted)];
            request.emit(descriptor, address, seen.len() as u32, slot as u32);
            let (place, others) = data.split_at_mut(slot);
            copy(place, seen);
            data = others;
            address += slot as u32;
        }
    }
    /// Reads and checks the verdicts.
    pub(super) fn read(
        &self,
        room: &[u8],
        requests: &[Request<'_>],
        answers: &mut Answers,
    ) -> Result<(), Failure> {
        let Places { wanted, slot, table, first } = *self;
        let (table, data) = room[HEADER_LEN..].split_at(table);
        let (table, _) = table.as_chunks::<DESCRIPTOR_LEN>();
        let Answers { answers, bytes } = answers;
        let (mut wrong, mut end) = (None, bytes.len());
        answers.extend(requests.iter().zip(table).enumerate().map(
            |(place, (request, descriptor))| {
                let (begin, at) = (end, place * slot);
                let (kind, offset) = (request.body.kind() as u8, first + at as u32);
                let kept = u32_at(descriptor, field::OFFSET) == offset
                    && u32_at(descriptor, field::ROOM) == slot as u32
                    && descriptor[field::KIND] == kind;
                let mut verdict = Verdict::Allow;
                if !kept || descriptor[field::VERDICT] != number::ALLOW {
                    verdict = decided(kept, request, descriptor, &data[at..][..slot], bytes)
                        .unwrap_or_else(|fault| {
                            // What is answered from here on is taken back.
                            wrong.get_or_insert((place, fault));
                            Verdict::Allow
                        });
                    end = bytes.len();
                }
                Answer {
                    verdict,
                    mark: u64_at(descriptor, field::MARK),
                    seen: request.data.len().min(wanted) as u32,
                    data: (begin, end),
                }
            },
        ));
        match wrong {
            None => Ok(()),
            Some((number, Fault(what))) => {
                Err(Failure::Verdict(format!("request {number}: {what}")))
            }
        }
    }
}

/// A verdict that is more than to allow, or is wrong. Apart from the loop, which is quicker without it.
#[inline(never)]
fn decided(
    kept: bool,
    request: &Request<'_>,
    descriptor: &Descriptor,
    data: &[u8],
    bytes: &mut Vec<u8>,
) -> Result<Verdict, Fault> {
    if !kept {
        return Err(Fault("its descriptor's kind, offset or room was overwritten"));
    }
    let verdict = Verdict::read(descriptor, &request.body)?;
    if verdict == Verdict::Changed {
        let changed = data.get(..u32_at(descriptor, field::CAPTURED) as usize);
        bytes.extend(changed.ok_or(Fault("more changed data than there is room for"))?);
    }
    Ok(verdict)
}

/// Copies bytes into a place of at least so many: mostly a header, for which a call would take longer than the copying.
#[inline]
fn copy(place: &mut [u8], bytes: &[u8]) {
    const HEADER: usize = 64;
    #[cold]
    #[inline(never)]
    fn others(place: &mut [u8], bytes: &[u8]) {
        place[..bytes.len()].copy_from_slice(bytes);
    }
    match (<&mut [u8; HEADER]>::try_from(&mut *place), <&[u8; HEADER]>::try_from(bytes)) {
        (Ok(place), Ok(bytes)) => *place = *bytes,
        _ => others(place, bytes),
    }
}
