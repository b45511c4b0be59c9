//! Fragments of application data units on a byte link, and their reassembly.
//!
//! ```text
//! type 4 | priority 4 | flags 8 | unit 16 | length 16 | CRC-8 of the header | data | at the end: CRC-32
//!                        1 start, 2 end, 4 abort
//! ```
//!
//! A unit is one or more fragments, between which only fragments of a more urgent unit can come. So a receiver
//! needs one reassembly buffer per priority. The CRC-32 is that of AAL5 over the whole unit.
//!
//! Source: Aurora, §2.4 names "header formats and forwarding algorithms" and gives none; these are ours (A-167).
//!
//! ```
//! use lastmeter_wire::framing::{Arrived, Reassembler, Fragment, emit};
//! let unit = b"a whole unit";
//! let mut line = Vec::new();
//! emit(&Fragment::part(7, 0, unit, 0..6), &mut line)?;
//! emit(&Fragment::part(9, 5, b"urgent", 0..6), &mut line)?;
//! emit(&Fragment::part(7, 0, unit, 6..12), &mut line)?;
//! let arrived = Reassembler::default().receive(&line)?;
//! assert_eq!(arrived[0], Arrived { unit: 9, priority: 5, data: b"urgent".to_vec() });
//! assert_eq!(arrived[1].data, unit);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```
//!
//! Over a network, each fragment is a datagram ([`datagrams`]): a lost one costs its unit and no other, and the
//! receiver gets whole units only. A camera's frames travel like this.

use crate::Error;
use crate::crc::{crc8, crc32};
use std::ops::Range;

/// Value of the first four bits.
const TYPE: u8 = 0xa;
/// Number of priorities; greater is more urgent.
pub const PRIORITIES: usize = 16;
/// Length of a fragment's header.
pub const HEADER_LEN: usize = 7;
/// Length of the trailer of a unit's last fragment.
pub const TRAILER_LEN: usize = 4;
/// The longest unit that a receiver accepts.
pub const UNIT_LEN_MAX: usize = 1 << 20;

const START: u8 = 1;
const END: u8 = 2;
const ABORT: u8 = 4;

/// A fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Number of its unit.
    pub unit: u16,
    /// Below [`PRIORITIES`].
    pub priority: u8,
    /// Whether it is the first of its unit.
    pub start: bool,
    /// The CRC-32 of the whole unit, in its last fragment.
    pub end: Option<u32>,
    /// Whether the unit is aborted here.
    pub abort: bool,
    /// Its data.
    pub data: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// A part of a unit.
    pub fn part(unit: u16, priority: u8, data: &'a [u8], range: Range<usize>) -> Fragment<'a> {
        let end = (range.end == data.len()).then(|| crc32(data));
        let start = range.start == 0;
        Fragment { unit, priority, start, end, abort: false, data: &data[range] }
    }
}

/// Appends a fragment.
///
/// # Errors
/// If its priority or its length is out of range.
pub fn emit(fragment: &Fragment<'_>, bytes: &mut Vec<u8>) -> Result<(), Error> {
    let refuse = |what, value: usize, max: usize| Error::DoesNotFit {
        what,
        value: value as u64,
        max: max as u64,
    };
    if usize::from(fragment.priority) >= PRIORITIES {
        return Err(refuse("fragment's priority", fragment.priority.into(), PRIORITIES - 1));
    }
    let len = u16::try_from(fragment.data.len())
        .map_err(|_| refuse("fragment's data", fragment.data.len(), u16::MAX.into()))?;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(fragment.start, START)
        | flag(fragment.end.is_some(), END)
        | flag(fragment.abort, ABORT);
    let start = bytes.len();
    bytes.extend([TYPE << 4 | fragment.priority, flags]);
    bytes.extend(fragment.unit.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.push(crc8(&bytes[start..]));
    bytes.extend(fragment.data);
    bytes.extend(fragment.end.iter().flat_map(|crc| crc.to_be_bytes()));
    Ok(())
}

/// The datagrams of a unit, of at most `most` bytes, each with a fragment.
///
/// # Errors
/// If the unit or its priority is out of range, or there is no room for data.
///
/// ```
/// use lastmeter_wire::framing::{Reassembler, datagrams};
/// let unit = [7; 3000];
/// let parts = datagrams(1, 0, &unit, 1472)?;
/// assert_eq!(parts.len(), 3);
/// let mut receiver = Reassembler::limited(3000);
/// let arrived: Vec<_> = parts.iter().filter_map(|part| receiver.datagram(part)).collect();
/// assert_eq!(arrived[0].data, unit);
/// # Ok::<(), lastmeter_wire::Error>(())
/// ```
pub fn datagrams(unit: u16, priority: u8, data: &[u8], most: usize) -> Result<Vec<Vec<u8>>, Error> {
    let refuse = |what, value: usize, max: usize| Error::DoesNotFit {
        what,
        value: value as u64,
        max: max as u64,
    };
    if data.len() > UNIT_LEN_MAX {
        return Err(refuse("unit", data.len(), UNIT_LEN_MAX));
    }
    let overhead = HEADER_LEN + TRAILER_LEN;
    if most <= overhead {
        return Err(refuse("fragment", overhead + 1, most));
    }
    let room = (most - overhead).min(u16::MAX.into());
    let count = data.len().div_ceil(room).max(1);
    let part = |at: usize| {
        let range = at * room..((at + 1) * room).min(data.len());
        let mut bytes = Vec::with_capacity(range.len() + overhead);
        emit(&Fragment::part(unit, priority, data, range), &mut bytes).map(|()| bytes)
    };
    (0..count).map(part).collect()
}

/// Parses the first fragment of `bytes`, and returns the rest.
///
/// # Errors
/// If it is truncated, its header is damaged, or a field is invalid.
pub fn parse(bytes: &[u8]) -> Result<(Fragment<'_>, &[u8]), Error> {
    let short = |need| Error::Truncated { what: "fragment", need, have: bytes.len() };
    let Some((&[kind, flags, u0, u1, l0, l1, _], rest)) = bytes.split_first_chunk::<HEADER_LEN>()
    else {
        return Err(short(HEADER_LEN));
    };
    // A header followed by its own CRC leaves zero.
    if crc8(&bytes[..HEADER_LEN]) != 0 {
        return Err(Error::Corrupt { what: "fragment's header" });
    }
    if kind >> 4 != TYPE
        || flags & !(START | END | ABORT) != 0
        || flags & END != 0 && flags & ABORT != 0
    {
        return Err(Error::Invalid { what: "fragment's header", found: kind.into() });
    }
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    let trailer = if flags & END == 0 { 0 } else { TRAILER_LEN };
    if rest.len() < len + trailer {
        return Err(short(HEADER_LEN + len + trailer));
    }
    let (data, rest) = rest.split_at(len);
    let (crc, rest) = rest.split_at(trailer);
    let fragment = Fragment {
        unit: u16::from_be_bytes([u0, u1]),
        priority: kind & 0xf,
        start: flags & START != 0,
        end: crc.first_chunk().map(|crc| u32::from_be_bytes(*crc)),
        abort: flags & ABORT != 0,
        data,
    };
    Ok((fragment, rest))
}

/// A reassembled unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub unit: u16,
    /// Its priority.
    pub priority: u8,
    /// Its data.
    pub data: Vec<u8>,
}

/// Counters of a receiver, the load on an end node's processor (A-168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Fragments whose header was read.
    pub fragments: u64,
    /// Units delivered whole: one interrupt each.
    pub units: u64,
    /// Units discarded: damaged, aborted, or too long.
    pub discarded: u64,
    /// Fragments of a unit whose start was not received.
    pub strays: u64,
}

/// Reassembles units, one per priority at a time.
#[derive(Debug)]
pub struct Reassembler {
    places: [Option<(u16, Vec<u8>)>; PRIORITIES],
    len_max: usize,
    /// Its counters.
    pub counts: Counts,
}

impl Default for Reassembler {
    fn default() -> Reassembler {
        Reassembler::limited(UNIT_LEN_MAX)
    }
}

impl Reassembler {
    /// For units of at most this many bytes; longer ones are discarded.
    pub fn limited(len_max: usize) -> Reassembler {
        Reassembler { places: Default::default(), len_max, counts: Counts::default() }
    }

    /// Receives a datagram with one fragment; returns the unit that it completes. Anything else is ignored.
    pub fn datagram(&mut self, bytes: &[u8]) -> Option<Arrived> {
        match parse(bytes) {
            Ok((fragment, [])) => self.take(&fragment),
            _ => None,
        }
    }

    /// Receives all fragments of `bytes`, and returns the completed units.
    ///
    /// # Errors
    /// If a fragment cannot be parsed; those before it were received.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<Vec<Arrived>, Error> {
        let mut arrived = Vec::new();
        while !bytes.is_empty() {
            let (fragment, rest) = parse(bytes)?;
            arrived.extend(self.take(&fragment));
            bytes = rest;
        }
        Ok(arrived)
    }

    /// Receives a fragment; returns the unit that it completes.
    pub fn take(&mut self, fragment: &Fragment<'_>) -> Option<Arrived> {
        self.counts.fragments += 1;
        let place = &mut self.places[usize::from(fragment.priority) % PRIORITIES];
        if fragment.start {
            // The previous unit was never finished.
            self.counts.discarded += u64::from(place.is_some());
            *place = Some((fragment.unit, Vec::new()));
        }
        let Some((unit, mut data)) = place.take().filter(|(unit, _)| *unit == fragment.unit) else {
            self.counts.strays += 1;
            return None;
        };
        data.extend_from_slice(fragment.data);
        if fragment.abort || data.len() > self.len_max {
            self.counts.discarded += 1;
            return None;
        }
        match fragment.end {
            None => {
                *place = Some((unit, data));
                None
            }
            Some(crc) if crc == crc32(&data) => {
                self.counts.units += 1;
                Some(Arrived { unit, priority: fragment.priority, data })
            }
            Some(_) => {
                self.counts.discarded += 1;
                None
            }
        }
    }

    /// Discards unfinished units, as after a link reset; returns their number.
    pub fn reset(&mut self) -> u64 {
        let open = self.places.iter_mut().filter_map(Option::take).count() as u64;
        self.counts.discarded += open;
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Units cut at random places, each interrupted there by a more urgent one.
    fn interrupted(units: &[Vec<u8>], cut: &[prop::sample::Index]) -> Vec<u8> {
        fn send(units: &[Vec<u8>], cut: &[prop::sample::Index], level: usize, line: &mut Vec<u8>) {
            let Some(unit) = units.get(level) else { return };
            let at = cut[level].index(unit.len() + 1);
            let priority = level as u8;
            emit(&Fragment::part(level as u16, priority, unit, 0..at), line).unwrap();
            send(units, cut, level + 1, line);
            if at < unit.len() {
                emit(&Fragment::part(level as u16, priority, unit, at..unit.len()), line).unwrap();
            }
        }
        let mut line = Vec::new();
        send(units, cut, 0, &mut line);
        line
    }

    proptest! {
        #[test]
        fn units_come_out_byte_for_byte_wherever_they_were_interrupted(
            units in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..16),
            cut in prop::collection::vec(any::<prop::sample::Index>(), 16),
        ) {
            let line = interrupted(&units, &cut);
            let mut receiver = Reassembler::default();
            let mut arrived = receiver.receive(&line).unwrap();
            arrived.sort_by_key(|one| one.unit);
            prop_assert!(arrived.iter().map(|one| &one.data).eq(&units));
            prop_assert_eq!(receiver.reset(), 0);
        }

        #[test]
        fn damage_is_found(
            unit in prop::collection::vec(any::<u8>(), 1..100), at: prop::sample::Index, bit in 0u8..8,
        ) {
            let mut line = Vec::new();
            emit(&Fragment::part(1, 0, &unit, 0..unit.len()), &mut line).unwrap();
            let at = at.index(line.len());
            line[at] ^= 1 << bit;
            let arrived = Reassembler::default().receive(&line);
            prop_assert!(arrived.is_err() || arrived.unwrap().is_empty());
        }
    }

    proptest! {
        #[test]
        fn datagrams_bring_the_units_of_which_none_was_lost_a_167(
            units in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20),
            most in HEADER_LEN + TRAILER_LEN + 1..100,
            lost in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let mut line: Vec<(usize, Vec<u8>)> = Vec::new();
            for (at, unit) in units.iter().enumerate() {
                let parts = datagrams(at as u16, 3, unit, most).unwrap();
                prop_assert!(parts.iter().all(|part| part.len() <= most));
                line.extend(parts.into_iter().map(|part| (at, part)));
            }
            let mut hurt = std::collections::BTreeSet::new();
            for index in lost {
                if !line.is_empty() {
                    hurt.insert(line.remove(index.index(line.len())).0);
                }
            }
            let mut receiver = Reassembler::limited(300);
            let arrived: Vec<_> = line.iter().filter_map(|(_, part)| receiver.datagram(part)).collect();
            let whole = (0..units.len()).filter(|at| !hurt.contains(at));
            let wanted: Vec<_> = whole.map(|at| (at as u16, &units[at])).collect();
            prop_assert_eq!(arrived.iter().map(|one| (one.unit, &one.data)).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn a_unit_or_a_datagram_out_of_range_is_refused() {
        assert!(datagrams(0, 0, b"x", HEADER_LEN + TRAILER_LEN).is_err());
        assert!(datagrams(0, PRIORITIES as u8, b"x", 100).is_err());
        assert!(datagrams(0, 0, &vec![0; UNIT_LEN_MAX + 1], 1472).is_err());
        let mut receiver = Reassembler::limited(10);
        let parts = datagrams(0, 0, &[1; 11], 20).unwrap();
        assert!(parts.iter().all(|part| receiver.datagram(part).is_none()));
        assert_eq!((receiver.counts.units, receiver.counts.discarded), (0, 1));
        assert_eq!(receiver.datagram(b"noise"), None);
    }

    #[test]
    fn what_is_aborted_or_reset_is_thrown_away_and_nothing_else() {
        let mut receiver = Reassembler::default();
        let whole = b"whole".as_slice();
        assert_eq!(receiver.take(&Fragment::part(1, 0, whole, 0..2)), None);
        assert_eq!(receiver.take(&Fragment::part(2, 3, whole, 0..2)), None);
        let abort = Fragment { abort: true, start: false, ..Fragment::part(2, 3, whole, 0..0) };
        assert_eq!(receiver.take(&abort), None);
        assert!(receiver.take(&Fragment::part(1, 0, whole, 2..5)).is_some());
        assert_eq!(receiver.take(&Fragment::part(4, 1, whole, 0..2)), None);
        assert_eq!((receiver.reset(), receiver.counts.discarded, receiver.counts.units), (1, 2, 1));
    }
}
