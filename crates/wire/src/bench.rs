//! The benchmarks of `lastmeter bench wire`.

use crate::aal::aal5::{MTU_DEFAULT, Segmenter, cells as cells_of};
use crate::aal::reassembly::{CircuitOptions, Options, Reassembler};
use crate::atm::{Cell, Circuit, Header, Interface, PAYLOAD_LEN, hec};
use crate::crc::crc32;
use crate::internet::checksum::{self, Sum};
use lastmeter_base::bench::{Case, Work};
use lastmeter_base::{Stream, Time};

/// Working set of the out-of-cache cases, in bytes: larger than any cache.
const OUT_OF_CACHE: usize = 256 << 20;
/// The same for the cells of `wire/aal5`: twice the last-level cache of the machines used.
const CELLS_OUT_OF_CACHE: usize = 64 << 20;
/// The same for small inputs.
const QUICK: usize = 64 << 10;
/// An Ethernet packet.
const PACKET_LEN: usize = 1500;
const CIRCUIT: Circuit = Circuit { vpi: 1, vci: 42 };

/// The benchmarks of this crate.
pub const CASES: &[Case] = &[
    Case {
        name: "wire/aal5",
        unit: "B",
        what: "segments and reassembles PDUs of 9180 bytes out of cache, including both CRCs",
        prepare: aal5,
    },
    Case {
        name: "wire/copy",
        unit: "B",
        what: "copies the same bytes into the payloads of the same cells and back",
        prepare: copy_cells,
    },
    Case {
        name: "wire/checksum",
        unit: "B",
        what: "Internet checksum of 1500 bytes in cache",
        prepare: sum,
    },
    Case {
        name: "wire/copy-checksum",
        unit: "B",
        what: "copies packets of 1500 bytes out of cache while summing them",
        prepare: copy_sum,
    },
    Case {
        name: "wire/copy-1500",
        unit: "B",
        what: "copies the same packets without summing",
        prepare: copy_packets,
    },
    // The generator that both directions of Jetstream's card share makes 32 bits at 30 MHz: 120 MB/s (J-47).
    Case {
        name: "wire/crc32",
        unit: "B",
        what: "CRC-32 of AAL5 and Jetstream of packets of 1500 bytes in cache",
        prepare: crc,
    },
    Case {
        name: "wire/crc32-words",
        unit: "B",
        what: "the same, 32 bits at a time by tables, as hardware without carry-less products",
        prepare: crc_words,
    },
    Case {
        name: "wire/hec",
        unit: "headers",
        what: "checks the HEC of cell headers",
        prepare: headers,
    },
];

fn bytes(len: usize) -> Vec<u8> {
    let mut random = Stream::new(1, "wire/bench");
    let words = (0..len.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes());
    words.take(len).collect()
}

/// FNV-1a over words.
fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x0100_0000_01b3)
}

/// Consecutive packets of 9180 bytes, which `wire/aal5` and `wire/copy` move through one buffer of cells.
fn payloads(quick: bool) -> Vec<u8> {
    let count = if quick { 4 } else { CELLS_OUT_OF_CACHE / MTU_DEFAULT };
    bytes(64 * 1024 + 7).into_iter().cycle().take(count * MTU_DEFAULT).collect()
}

fn aal5(quick: bool) -> Box<dyn FnMut() -> Work> {
    let payloads = payloads(quick);
    let segmenter = Segmenter::new(&Header::data(CIRCUIT), Interface::Uni)
        .expect("the circuit fits a user interface");
    let mut reassembler = Reassembler::new(Options::default_at(Interface::Uni));
    reassembler.open(CIRCUIT, CircuitOptions::AAL5).expect("nothing else is open");
    let each = cells_of(MTU_DEFAULT);
    let mut cells = vec![Cell::IDLE; payloads.len() / MTU_DEFAULT * each];
    Box::new(move || {
        let mut work = Work { units: 0, hash: 0 };
        for (payload, cells) in payloads.chunks(MTU_DEFAULT).zip(cells.chunks_mut(each)) {
            segmenter.segment_into(payload, 0, cells).expect("the payload fits the cells");
        }
        reassembler.receive_burst(Time::START, &cells, |pdu| {
            work.units += pdu.payload.len() as u64;
            work.hash = ends(work.hash, pdu.payload);
        });
        work
    })
}

fn copy_cells(quick: bool) -> Box<dyn FnMut() -> Work> {
    let payloads = payloads(quick);
    let each = cells_of(MTU_DEFAULT);
    let mut cells = vec![Cell::IDLE; payloads.len() / MTU_DEFAULT * each];
    let mut out = vec![[0; PAYLOAD_LEN]; each];
    Box::new(move || {
        let mut work = Work { units: 0, hash: 0 };
        for (payload, cells) in payloads.chunks(MTU_DEFAULT).zip(cells.chunks_mut(each)) {
            let (chunks, rest) = payload.as_chunks::<PAYLOAD_LEN>();
            for (cell, chunk) in cells.iter_mut().zip(chunks) {
                cell.0[5..].copy_from_slice(chunk);
            }
            cells[chunks.len()].0[5..5 + rest.len()].copy_from_slice(rest);
        }
        for cells in cells.chunks(each) {
            for (cell, chunk) in cells.iter().zip(&mut out) {
                *chunk = *cell.payload();
            }
            work.units += MTU_DEFAULT as u64;
            work.hash =
                ends(work.hash, &std::hint::black_box(&mut out).as_flattened()[..MTU_DEFAULT]);
        }
        work
    })
}

/// Mixes the first and the last byte into the hash.
fn ends(hash: u64, data: &[u8]) -> u64 {
    let [first, last] = [data.first(), data.last()].map(|byte| byte.copied().unwrap_or(0));
    mix(hash, u64::from(first) << 8 | u64::from(last))
}

fn sum(quick: bool) -> Box<dyn FnMut() -> Work> {
    let rounds = if quick { 4 } else { 10_000 };
    let mut packet = bytes(PACKET_LEN);
    Box::new(move || {
        let mut work = Work { units: 0, hash: 0 };
        for round in 0..rounds {
            packet[0] = round as u8;
            work.hash = mix(work.hash, Sum::of(&packet).value().into());
            work.units += PACKET_LEN as u64;
        }
        work
    })
}

fn crc(quick: bool) -> Box<dyn FnMut() -> Work> {
    crc_by(quick, crc32)
}

fn crc_words(quick: bool) -> Box<dyn FnMut() -> Work> {
    let tables = word_tables();
    crc_by(quick, move |data| crc32_words(&tables, data))
}

fn crc_by(quick: bool, of: impl Fn(&[u8]) -> u32 + 'static) -> Box<dyn FnMut() -> Work> {
    let rounds = if quick { 4 } else { 10_000 };
    let mut packet = bytes(PACKET_LEN);
    Box::new(move || {
        let mut work = Work { units: 0, hash: 0 };
        for round in 0..rounds {
            packet[0] = round as u8;
            work.hash = mix(work.hash, of(&packet).into());
            work.units += PACKET_LEN as u64;
        }
        work
    })
}

/// What each byte of a word adds to the remainder.
fn word_tables() -> [[u32; 256]; 4] {
    let mut tables = [[0u32; 256]; 4];
    for byte in 0..=u8::MAX {
        let mut rest = u32::from(byte) << 24;
        for place in (0..4).rev() {
            for _ in 0..8 {
                rest = rest << 1 ^ if rest >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            }
            tables[place][usize::from(byte)] = rest;
        }
    }
    tables
}

fn crc32_words(tables: &[[u32; 256]; 4], data: &[u8]) -> u32 {
    let (words, rest) = data.as_chunks::<4>();
    let mut crc = words.iter().fold(u32::MAX, |crc, word| {
        let bytes = (crc ^ u32::from_be_bytes(*word)).to_be_bytes();
        (0..4).fold(0, |sum, at| sum ^ tables[at][usize::from(bytes[at])])
    });
    for &byte in rest {
        crc = crc << 8 ^ tables[3][usize::from((crc >> 24) as u8 ^ byte)];
    }
    !crc
}

/// Consecutive packets, source and copy.
fn packets(quick: bool) -> (Vec<u8>, Vec<u8>) {
    let len = if quick { QUICK } else { OUT_OF_CACHE } / PACKET_LEN * PACKET_LEN;
    // A pattern that is fast to generate and differs from packet to packet.
    let pattern = bytes(64 * 1024 + 7);
    let from = pattern.iter().copied().cycle().take(len).collect();
    (from, vec![1; len])
}

fn copy_sum(quick: bool) -> Box<dyn FnMut() -> Work> {
    let (from, mut to) = packets(quick);
    Box::new(move || {
        let mut work = Work { units: 0, hash: 0 };
        for (from, to) in from.chunks(PACKET_LEN).zip(to.chunks_mut(PACKET_LEN)) {
            let sum = checksum::copy(from, to).expect("source and copy have the same length");
            work.hash = mix(work.hash, sum.value().into());
            work.units += from.len() as u64;
        }
        work
    })
}

fn copy_packets(quick: bool) -> Box<dyn FnMut() -> Work> {
    let (from, mut to) = packets(quick);
    Box::new(move || {
        let mut work = Work { units: 0, hash: 0 };
        for (from, to) in from.chunks(PACKET_LEN).zip(to.chunks_mut(PACKET_LEN)) {
            to.copy_from_slice(from);
            let to = std::hint::black_box(to);
            work.hash = mix(work.hash, to[0].into());
            work.units += from.len() as u64;
        }
        work
    })
}

fn headers(quick: bool) -> Box<dyn FnMut() -> Work> {
    let count = if quick { 100 } else { 1_000_000 };
    let words = bytes(4 * 4096);
    Box::new(move || {
        let mut work = Work { units: 0, hash: 0 };
        let (words, _) = words.as_chunks::<4>();
        let mut receiver = hec::Receiver::default();
        for &header in words.iter().cycle().take(count) {
            let [a, b, c, d] = header;
            let checked = receiver.check([a, b, c, d, a]);
            work.hash = mix(work.hash, (checked == hec::Checked::Accepted).into());
            work.units += 1;
        }
        work
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j_47_by_words_and_by_carry_less_products_is_the_same_crc() {
        for len in [0, 1, 4, 7, 48, 1500] {
            let data = bytes(len);
            assert_eq!(crc32_words(&word_tables(), &data), crc32(&data), "{len} bytes");
        }
    }

    #[test]
    fn every_case_does_the_same_each_round() {
        for case in CASES {
            let mut work = (case.prepare)(true);
            let first = work();
            assert!(first.units > 0, "{}", case.name);
            assert_eq!(work(), first, "{}", case.name);
        }
    }
}
