//! `lastmeter bench auth`: what authentication costs a packet, in the steps of ATOMIC-2's Fig 12 (N-83 to
//! N-86) with the algorithms of then and of today.
//!
//! ```text
//! packet --> copied and summed, as TCP does --> + header --> + checksum or hash
//! ```
//!
//! The steps are cumulative: the copy with its Internet checksum, then the header, then one pass of an
//! algorithm over the packet. The rates are those of a host that does nothing else, and compare with the
//! document's: 90 Mbit/s without, 55 with the alternate hash, 30 with MD5.
//!
//! **AHA here is not the document's**, which is unpublished, and it is **insecure**: it only does as little
//! work per word as that one is said to, in independent blocks, in native byte order. MD5 is broken as
//! well. Both are for comparison only.

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, KeyInit};
use lastmeter_base::Stream;
use lastmeter_base::bench::{Case, Work};
use lastmeter_wire::internet::checksum::Sum;
use md5::{Digest, Md5};
use sha2::Sha256;

/// Myrinet's packets.
pub(super) const PACKET_LEN: usize = 8192;
/// Packets used in rotation, so that the source is not in the L1 cache.
const PACKETS: usize = 512;
const PACKETS_QUICK: usize = 8;
/// AH: next header, length, identity, sequence number, and 16 bytes of authentication.
pub(super) const HEADER_LEN: usize = 28;
/// Of the bucket hash: Rogaway's example for messages of some thousand words.
const BUCKETS: usize = 140;
const BLOCK_LEN: usize = 64;
const KEY: [u8; 16] = *b"lastmeter's test";

/// Hashes a packet, of which the number is given, too.
pub(super) type Hash = Box<dyn FnMut(u64, &[u8]) -> u64 + Send>;

/// The steps of the ladder.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "auth/none",
        unit: "B",
        what: "copies packets of 8 KiB and sums them; a SPARC 20/71 of 1995: 90 Mbit/s",
        prepare: |quick| ladder(quick, false, nothing()),
    },
    Case {
        name: "auth/header",
        unit: "B",
        what: "the same with a header in front (Null-AH)",
        prepare: |quick| ladder(quick, true, nothing()),
    },
    Case {
        name: "auth/checksum",
        unit: "B",
        what: "the same with an Internet checksum as hash (Cksum): what touching data costs",
        prepare: |quick| ladder(quick, true, checksum()),
    },
    Case {
        name: "auth/aha",
        unit: "B",
        what: "an alternate hash, INSECURE, for comparison; in 1995: 55 Mbit/s with the authors'",
        prepare: |quick| ladder(quick, true, aha()),
    },
    Case {
        name: "auth/aha-swapped",
        unit: "B",
        what: "the same with the bytes of each word reordered first",
        prepare: |quick| ladder(quick, true, aha_swapped()),
    },
    Case {
        name: "auth/bucket",
        unit: "B",
        what: "Rogaway's bucket hash, the buckets hashed by MD5",
        prepare: |quick| ladder(quick, true, bucket()),
    },
    Case {
        name: "auth/md5",
        unit: "B",
        what: "MD5, broken; in 1995: 30 Mbit/s",
        prepare: |quick| ladder(quick, true, md5()),
    },
    Case {
        name: "auth/sha256",
        unit: "B",
        what: "SHA-256",
        prepare: |quick| ladder(quick, true, sha256()),
    },
    Case {
        name: "auth/blake3",
        unit: "B",
        what: "BLAKE3, keyed",
        prepare: |quick| ladder(quick, true, blake3()),
    },
    Case {
        name: "auth/aes-gmac",
        unit: "B",
        what: "AES-128-GMAC, a nonce for each packet",
        prepare: |quick| ladder(quick, true, aes_gmac()),
    },
];

/// Null-AH.
pub(super) fn nothing() -> Hash {
    Box::new(|_, _| 0)
}

pub(super) fn checksum() -> Hash {
    Box::new(|_, packet| Sum::of(packet).value().into())
}

pub(super) fn aha() -> Hash {
    Box::new(|_, packet| alternate(packet, u32::from_ne_bytes))
}

/// What reordering the bytes of each word costs: on a processor with the other order, the standard's hashes need it.
pub(super) fn aha_swapped() -> Hash {
    Box::new(|_, packet| alternate(packet, |word| u32::from_ne_bytes(word).swap_bytes()))
}

pub(super) fn md5() -> Hash {
    Box::new(|_, packet| first(&Md5::digest(packet)))
}

pub(super) fn sha256() -> Hash {
    Box::new(|_, packet| first(&Sha256::digest(packet)))
}

pub(super) fn blake3() -> Hash {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&KEY);
    Box::new(move |_, packet| first(blake3::keyed_hash(&key, packet).as_bytes()))
}

pub(super) fn aes_gmac() -> Hash {
    let cipher = Aes128Gcm::new(&KEY.into());
    Box::new(move |number, packet| {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        let nothing: &mut [u8] = &mut [];
        let tag = cipher.encrypt_inout_detached(&nonce.into(), packet, nothing.into());
        tag.map_or(0, |tag| first(&tag))
    })
}

/// Bucket hashing (P. Rogaway, Crypto '95): each word is added, by exclusive or, to three buckets that a secret
/// selects, and the buckets are hashed by MD5 with the key.
pub(super) fn bucket() -> Hash {
    let mut random = Stream::new(1, "bucket hash");
    let mut three = || {
        let (mut places, mut len) = ([0; 3], 0);
        while len < places.len() {
            let place = random.below(BUCKETS as u64) as u8;
            if !places[..len].contains(&place) {
                places[len] = place;
                len += 1;
            }
        }
        places
    };
    let places: Vec<[u8; 3]> = (0..PACKET_LEN / 4).map(|_| three()).collect();
    Box::new(move |_, packet| {
        let mut buckets = [0_u32; BUCKETS];
        let (words, rest) = packet.as_chunks::<4>();
        for (word, places) in words.iter().zip(places.iter().cycle()) {
            let word = u32::from_ne_bytes(*word);
            for place in places {
                buckets[usize::from(*place)] ^= word;
            }
        }
        let mut digest = Md5::new_with_prefix(KEY);
        buckets.iter().for_each(|bucket| digest.update(bucket.to_ne_bytes()));
        digest.update(rest);
        first(&digest.finalize())
    })
}

/// Packets that go through all steps up to `hash`, which is given their indices.
fn ladder(quick: bool, header: bool, mut hash: Hash) -> Box<dyn FnMut() -> Work> {
    let count = if quick { PACKETS_QUICK } else { PACKETS };
    let data: Vec<u8> = (0..count * PACKET_LEN).map(|at| (at * 31 + at / 251) as u8).collect();
    let mut buffer = vec![0; HEADER_LEN + PACKET_LEN];
    Box::new(move || {
        let mut result = 0_u64;
        for (number, packet) in data.chunks_exact(PACKET_LEN).enumerate() {
            buffer[HEADER_LEN..].copy_from_slice(packet);
            let sum = Sum::of(&buffer[HEADER_LEN..]).value();
            result = result.wrapping_mul(31).wrapping_add(sum.into());
            if header {
                buffer[..4].copy_from_slice(&[6, 5, 0, 0]);
                buffer[4..8].copy_from_slice(&1_u32.to_be_bytes());
                buffer[8..12].copy_from_slice(&(number as u32).to_be_bytes());
                let digest = hash(number as u64, &buffer[HEADER_LEN..]);
                buffer[12..20].copy_from_slice(&digest.to_be_bytes());
                result = result.rotate_left(1) ^ digest;
            }
        }
        Work { units: data.len() as u64, hash: std::hint::black_box(result) }
    })
}

fn first(digest: &[u8]) -> u64 {
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Adds up blocks of 64 bytes, each mixed with its number in four lanes. **Insecure.**
fn alternate(packet: &[u8], read: impl Fn([u8; 4]) -> u32) -> u64 {
    let mut lanes = [0x6c61_7374_u32, 0x6d65_7465, 0x7273_2061, 0x6861_2121];
    for (number, block) in packet.chunks(BLOCK_LEN).enumerate() {
        for (at, word) in block.chunks(4).enumerate() {
            let mut bytes = [0; 4];
            bytes[..word.len()].copy_from_slice(word);
            let mixed = read(bytes) ^ (number as u32).wrapping_mul(0x9e37_79b9);
            let lane = &mut lanes[at % 4];
            *lane = lane.wrapping_add(mixed.rotate_left(at as u32));
        }
    }
    let [a, b, c, d] = lanes;
    u64::from(a ^ c.rotate_left(16)) << 32 | u64::from(b ^ d.rotate_left(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_repeatable_and_touches_every_byte() {
        for case in CASES {
            let mut work = (case.prepare)(true);
            let done = work();
            assert_eq!(done.units, (PACKETS_QUICK * PACKET_LEN) as u64, "{}", case.name);
            assert_eq!(work(), done, "{}", case.name);
        }
    }

    #[test]
    fn the_hashes_are_those_of_the_standards() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // RFC 1321, A.5, and FIPS 180-4's examples.
        assert_eq!(hex(&Md5::digest("abc")), "900150983cd24fb0d6963f7d28e17f72");
        assert!(hex(&Sha256::digest("abc")).starts_with("ba7816bf8f01cfea414140de5dae2223"));
    }

    #[test]
    fn hashes_without_a_standard_change_with_each_bit() {
        for hash in [aha, aha_swapped, bucket] {
            let (mut packet, mut hash) = (vec![0_u8; 203], hash());
            let before = hash(0, &packet);
            for bit in 0..packet.len() * 8 {
                packet[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(hash(0, &packet), before, "bit {bit}");
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            assert_eq!(hash(0, &packet), before);
        }
    }
}
