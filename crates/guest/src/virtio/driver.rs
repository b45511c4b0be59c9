//! How a driver starts the device, in the order of Linux: what tests, fuzzing and the hostile guest use in place of a
//! kernel. Its rings are those of [`crate::driver`].

use super::field::{
    CONFIG_VECTOR, DESCRIPTORS, DRIVER_FEATURES, DRIVER_SELECT, ENABLE, LENGTH, SELECT, STATUS,
    VECTOR,
};
use super::{COMMON, DRIVER_OK, FEATURES_OK, MULTIPLIER, NOTIFY};
use crate::ring::Place;

/// Writes a field of the region.
pub type Write<'a> = &'a mut dyn FnMut(u64, &[u8]);

/// The driver has found the device, and knows how to drive it.
const FOUND: u8 = 1 | 2;

/// Resets the device, chooses features, says where the rings are, and begins.
pub fn start(features: u64, rings: &[Place; 2], write: Write<'_>) {
    let mut put = |field: u64, value: &[u8]| write(COMMON.0 + field, value);
    put(STATUS, &[0]);
    put(STATUS, &[FOUND]);
    for (select, half) in [(0u32, features as u32), (1, (features >> 32) as u32)] {
        put(DRIVER_SELECT, &select.to_le_bytes());
        put(DRIVER_FEATURES, &half.to_le_bytes());
    }
    put(STATUS, &[FOUND | FEATURES_OK]);
    put(CONFIG_VECTOR, &[0, 0]);
    for (which, place) in (0u16..).zip(rings) {
        put(SELECT, &which.to_le_bytes());
        put(LENGTH, &(place.length as u16).to_le_bytes());
        let parts = [place.descriptors, place.available, place.used];
        for (at, part) in (DESCRIPTORS..).step_by(4).zip(parts.iter().flat_map(halves)) {
            put(at, &part);
        }
        put(VECTOR, &(which + 1).to_le_bytes());
        put(ENABLE, &[1, 0]);
    }
    put(STATUS, &[FOUND | FEATURES_OK | DRIVER_OK]);
}

/// An address is written in two pieces.
fn halves(address: &u64) -> [[u8; 4]; 2] {
    [*address as u32, (address >> 32) as u32].map(u32::to_le_bytes)
}

/// Rings the doorbell of a ring.
pub fn ring(which: usize, write: Write<'_>) {
    let at = NOTIFY.0 + which as u64 * u64::from(MULTIPLIER);
    write(at, &(which as u16).to_le_bytes());
}
