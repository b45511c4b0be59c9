//! Rings whose indexes are registers: what a driver offers by the tail, and what the device has done up to the head.
//!
//! ```text
//! | address, 8 B | length, 4 B | status, 2 B: 1 done | 0, 2 B |  x length, in the guest's memory
//! ```
//!
//! A descriptor is a buffer for one frame. The device writes `length` (of a frame that is received) and then `status`.
//! Head and tail count descriptors, modulo 2^16; a descriptor's place is its number modulo the ring's length.
//!
//! A vector is masked by its interrupt, until the driver arms it with the number of descriptors that it has taken: if
//! more were done meanwhile, and their interrupt was due, it comes at once, and otherwise not for nothing.

use crate::memory::Memory;
use crate::ring::{Broken, CHAIN_BYTES_MAX, Chain, LENGTH_MAX, Piece};

/// Length of a descriptor.
pub const DESCRIPTOR: u64 = 16;
/// Where its status is.
const STATUS: u64 = 12;
/// The device has done with it.
pub const DONE: u16 = 1;

/// A ring in use.
#[derive(Clone, Debug)]
pub struct Ring {
    base: u64,
    length: u32,
    /// Whether the device writes its buffers.
    writable: bool,
    /// The next descriptor to take.
    next: u16,
    /// Up to which descriptors are offered.
    tail: u16,
    /// How many descriptors are done.
    head: u16,
    masked: bool,
    /// An interrupt was due while it was masked.
    pending: bool,
}

impl Ring {
    /// An empty ring, masked.
    ///
    /// # Errors
    /// It is not in the guest's memory or not aligned, or its length is wrong.
    pub fn new(base: u64, length: u32, writable: bool, memory: &Memory) -> Result<Ring, Broken> {
        if !length.is_power_of_two() || length > LENGTH_MAX {
            return Err(Broken::Length(length));
        }
        memory.check(base, (u64::from(length) * DESCRIPTOR) as usize)?;
        memory.load(base)?;
        let (next, tail, head) = (0, 0, 0);
        Ok(Ring { base, length, writable, next, tail, head, masked: true, pending: false })
    }

    /// The next descriptor to take.
    pub fn base(&self) -> u16 {
        self.next
    }

    /// How many descriptors are done.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Up to which descriptors are offered.
    pub fn tail(&self) -> u16 {
        self.tail
    }

    /// The driver offers descriptors up to this one.
    pub fn set_tail(&mut self, tail: u16) {
        self.tail = tail;
    }

    /// The tail.
    ///
    /// # Errors
    /// It is further than the ring is long.
    pub fn offered(&self) -> Result<u16, Broken> {
        let jump = self.tail.wrapping_sub(self.next);
        if u32::from(jump) > self.length { Err(Broken::Index(jump)) } else { Ok(self.tail) }
    }

    /// Takes the next descriptor, unless `limit` is reached.
    ///
    /// # Errors
    /// Its buffer is wrong.
    pub fn take(&mut self, memory: &Memory, limit: u16) -> Result<Option<Chain>, Broken> {
        if self.next == limit {
            return Ok(None);
        }
        let head = (u32::from(self.next) % self.length) as u16;
        let mut bytes = [0; 12];
        memory.read(self.place(head), &mut bytes)?;
        let [a, b, c, d, e, f, g, h, l0, l1, l2, l3] = bytes;
        let address = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        if u64::from(len) > CHAIN_BYTES_MAX {
            return Err(Broken::Bytes(len.into()));
        }
        memory.check(address, len as usize)?;
        self.next = self.next.wrapping_add(1);
        let pieces = vec![Piece { address, len, writable: self.writable }];
        Ok(Some(Chain { head, pieces }))
    }

    fn place(&self, slot: u16) -> u64 {
        self.base + u64::from(slot) * DESCRIPTOR
    }

    /// Gives a descriptor back, with so many bytes written to its buffer.
    ///
    /// # Errors
    /// Memory that has gone meanwhile.
    pub fn give(&mut self, memory: &Memory, slot: u16, written: u32) -> Result<(), Broken> {
        let place = self.place(slot);
        memory.write(place + 8, &written.to_le_bytes())?;
        memory.store(place + STATUS, DONE)?;
        self.head = self.head.wrapping_add(1);
        Ok(())
    }

    /// Whether an interrupt that is due now is to come; if so, its vector is masked.
    pub fn raise(&mut self) -> bool {
        self.pending = self.masked;
        !std::mem::replace(&mut self.masked, true)
    }

    /// Whether its vector is masked, and whether an interrupt is pending.
    pub fn mask(&self) -> (bool, bool) {
        (self.masked, self.pending)
    }

    /// The driver has seen that an interrupt is pending.
    pub fn clear(&mut self) {
        self.pending = false;
    }

    /// The driver masks the vector, or not; returns whether an interrupt comes at once.
    pub fn set_mask(&mut self, masked: bool) -> bool {
        self.masked = masked;
        !masked && self.pending && self.raise()
    }

    /// The driver has taken so many descriptors and waits for the next; returns whether an interrupt comes at once.
    pub fn arm(&mut self, taken: u16) -> bool {
        self.pending &= taken != self.head;
        self.set_mask(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::memory;

    fn describe(memory: &Memory, slot: u64, address: u64, len: u32) {
        memory.write(slot * DESCRIPTOR, &address.to_le_bytes()).unwrap();
        memory.write(slot * DESCRIPTOR + 8, &len.to_le_bytes()).unwrap();
        memory.store(slot * DESCRIPTOR + STATUS, 0).unwrap();
    }

    #[test]
    fn descriptors_are_taken_up_to_the_tail_and_given_back_in_any_order() {
        let memory = memory(0, 0, 4096);
        let mut ring = Ring::new(0, 4, true, &memory).unwrap();
        (0..4).for_each(|slot| describe(&memory, slot, 1024 + slot, 100));
        ring.set_tail(4);
        let limit = ring.offered().unwrap();
        let taken: Vec<Chain> = std::iter::from_fn(|| ring.take(&memory, limit).unwrap()).collect();
        let at: Vec<_> = taken.iter().map(|one| (one.head, one.pieces[0].address)).collect();
        assert_eq!(at, [(0, 1024), (1, 1025), (2, 1026), (3, 1027)]);
        ring.give(&memory, 2, 60).unwrap();
        assert_eq!((ring.head(), memory.load(2 * DESCRIPTOR + STATUS)), (1, Ok(DONE)));
        assert_eq!((memory.load(2 * DESCRIPTOR + 8), memory.load(STATUS)), (Ok(60), Ok(0)));
        ring.set_tail(9);
        assert_eq!(ring.offered(), Err(Broken::Index(5)));
    }

    #[test]
    fn what_is_outside_or_too_long_breaks_the_ring() {
        let memory = memory(0, 0, 4096);
        assert_eq!(Ring::new(0, 3, true, &memory).unwrap_err(), Broken::Length(3));
        assert!(matches!(Ring::new(4090, 4, true, &memory), Err(Broken::Outside(_))));
        assert!(matches!(Ring::new(1, 4, true, &memory), Err(Broken::Outside(_))), "not aligned");
        let mut ring = Ring::new(0, 4, false, &memory).unwrap();
        describe(&memory, 0, 4000, 97);
        assert!(matches!(ring.take(&memory, 1), Err(Broken::Outside(_))));
        describe(&memory, 0, 0, u32::MAX);
        assert!(matches!(ring.take(&memory, 1), Err(Broken::Bytes(_))));
    }

    #[test]
    fn an_armed_vector_interrupts_once_and_never_for_what_was_taken() {
        let memory = memory(0, 0, 4096);
        let mut ring = Ring::new(0, 4, true, &memory).unwrap();
        assert!(!ring.raise() && ring.set_mask(false), "it was due while masked");
        assert!(!ring.raise(), "masked by its interrupt");
        // It is pending, for a descriptor that the driver has found by itself.
        ring.give(&memory, 0, 0).unwrap();
        assert!(!ring.arm(1) && ring.mask() == (false, false));
        assert!(ring.raise() && !ring.raise());
        ring.give(&memory, 1, 0).unwrap();
        assert!(ring.arm(1), "it has not seen the second");
    }
}
