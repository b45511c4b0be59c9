//! The table of open circuits: one lookup for each cell that does not follow one of the same circuit.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Maps a circuit's 28 bits to its slot. Never iterated.
pub(super) type CircuitTable = HashMap<u32, u32, BuildHasherDefault<CircuitHasher>>;

/// Circuits are opened by their owner, not by traffic, so traffic cannot choose colliding keys.
#[derive(Default)]
pub(super) struct CircuitHasher(u64);

impl Hasher for CircuitHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }
    fn write_u32(&mut self, value: u32) {
        // Fibonacci hashing: the table uses bits from the top and from the bottom.
        let mixed = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
