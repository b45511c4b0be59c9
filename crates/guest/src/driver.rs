//! The guest's side of a ring, in Rust: what tests, fuzzing and the hostile guest use in place of a kernel.
//!
//! ```text
//! | descriptors | available | used |  at `base`, in the guest's memory
//! ```

use crate::memory::{Memory, Outside};
use crate::ring::Place;

/// A driver of one ring.
#[derive(Clone, Debug)]
pub struct Driver {
    /// Where its ring is.
    pub place: Place,
    pub(crate) offered: u16,
    pub(crate) seen: u16,
}

impl Driver {
    /// Bytes of a ring of this length.
    pub fn size(length: u32) -> u64 {
        let length = u64::from(length);
        (16 * length + 4 + 2 * length).next_multiple_of(4) + 4 + 8 * length
    }

    /// A ring at `base`.
    pub fn new(base: u64, length: u32) -> Driver {
        let available = base + 16 * u64::from(length);
        let used = (available + 4 + 2 * u64::from(length)).next_multiple_of(4);
        let place = Place { length, descriptors: base, available, used };
        Driver { place, offered: 0, seen: 0 }
    }

    /// Writes a descriptor of the table.
    ///
    /// # Errors
    /// It is outside the memory.
    pub fn describe(
        &self,
        memory: &Memory,
        number: u16,
        (address, len): (u64, u32),
        (flags, next): (u16, u16),
    ) -> Result<(), Outside> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        memory.write(self.place.descriptors + 16 * u64::from(number), &bytes)
    }

    /// Offers the chain that begins with this descriptor.
    ///
    /// # Errors
    /// The ring is outside the memory.
    pub fn offer(&mut self, memory: &Memory, head: u16) -> Result<(), Outside> {
        let slot = u64::from(self.offered) % u64::from(self.place.length);
        memory.write(self.place.available + 4 + 2 * slot, &head.to_le_bytes())?;
        self.offered = self.offered.wrapping_add(1);
        memory.store(self.place.available + 2, self.offered)
    }

    /// Whether the device shall interrupt.
    ///
    /// # Errors
    /// The ring is outside the memory.
    pub fn interrupts(&self, memory: &Memory, wanted: bool) -> Result<(), Outside> {
        memory.store(self.place.available, u16::from(!wanted))
    }

    /// The next chain that the device has given back: its head, and the bytes written.
    ///
    /// # Errors
    /// The ring is outside the memory.
    pub fn take(&mut self, memory: &Memory) -> Result<Option<(u32, u32)>, Outside> {
        if memory.load(self.place.used + 2)? == self.seen {
            return Ok(None);
        }
        let slot = u64::from(self.seen) % u64::from(self.place.length);
        let mut element = [0; 8];
        memory.read(self.place.used + 4 + 8 * slot, &mut element)?;
        self.seen = self.seen.wrapping_add(1);
        let [a, b, c, d, e, f, g, h] = element;
        Ok(Some((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))))
    }
}

/// Descriptors of a [`Nic`]'s rings.
pub const LENGTH: u32 = 256;
/// Bytes of each of its buffers.
pub const BUFFER: u32 = 2048;
/// Bytes of memory that it needs.
pub const MEMORY: usize = 0x20_0000;
const RECEIVE_AT: u64 = 0x1000;
const TRANSMIT_AT: u64 = 0x4000;
const BUFFERS_AT: [u64; 2] = [0x10_0000, 0x8_0000];
const HEADER: u32 = crate::device::HEADER as u32;

/// A driver of a network adapter: both rings, a buffer for each descriptor, from address 0 on.
#[derive(Clone, Debug)]
pub struct Nic {
    /// The rings: [`crate::device::RECEIVE`] and [`crate::device::TRANSMIT`].
    pub rings: [Driver; 2],
    /// Chains of the transmit ring that are free.
    free: Vec<u16>,
}

impl Nic {
    /// With all buffers offered for reception.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn new(memory: &Memory) -> Result<Nic, Outside> {
        let mut receive = Driver::new(RECEIVE_AT, LENGTH);
        for slot in 0..LENGTH as u16 {
            let at = BUFFERS_AT[0] + u64::from(slot) * u64::from(BUFFER);
            receive.describe(memory, slot, (at, BUFFER), (2, 0))?;
            receive.offer(memory, slot)?;
        }
        let free = (0..LENGTH as u16).rev().collect();
        Ok(Nic { rings: [receive, Driver::new(TRANSMIT_AT, LENGTH)], free })
    }

    /// Offers a frame to be sent, without ringing; `false` if the ring is full or the frame too long.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn send(&mut self, memory: &Memory, frame: &[u8]) -> Result<bool, Outside> {
        let transmit = &mut self.rings[1];
        while let Some((head, _)) = transmit.take(memory)? {
            self.free.push(head as u16);
        }
        if frame.len() > (BUFFER - HEADER) as usize {
            return Ok(false);
        }
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let at = BUFFERS_AT[1] + u64::from(slot) * u64::from(BUFFER);
        memory.write(at, &[0; HEADER as usize])?;
        memory.write(at + u64::from(HEADER), frame)?;
        transmit.describe(memory, slot, (at, HEADER + frame.len() as u32), (0, 0))?;
        transmit.offer(memory, slot)?;
        Ok(true)
    }

    /// The next received frame; its buffer is offered again, without ringing.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn receive(&mut self, memory: &Memory) -> Result<Option<Vec<u8>>, Outside> {
        let receive = &mut self.rings[0];
        let Some((head, written)) = receive.take(memory)? else { return Ok(None) };
        let at = BUFFERS_AT[0] + u64::from(head) * u64::from(BUFFER);
        let mut frame = vec![0; written.saturating_sub(HEADER) as usize];
        memory.read(at + u64::from(HEADER), &mut frame)?;
        receive.offer(memory, head as u16)?;
        Ok(Some(frame))
    }
}
