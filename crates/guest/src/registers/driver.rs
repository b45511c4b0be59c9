//! A driver of `simple-nic` in Rust: what tests, fuzzing and the hostile guest use in place of a kernel.
//!
//! ```text
//! 0 | ring | ring | ... 0x8_0000 | buffers to send | 0x10_0000 | buffers to receive |    the guest's memory
//! ```

use super::{ARM, BASE, ENABLE, LENGTH, RINGS, TAIL, ring};
use crate::device::{RECEIVE, TRANSMIT};
use crate::memory::{Memory, Outside};

/// Descriptors of each ring.
pub const DESCRIPTORS: u16 = 256;
/// Bytes of each buffer.
pub const BUFFER: u32 = 2048;
/// Bytes of memory that it needs.
pub const MEMORY: usize = 0x20_0000;
/// Where the rings are.
pub const RINGS_AT: [u64; 2] = [0x1000, 0x4000];
const BUFFERS_AT: [u64; 2] = [0x10_0000, 0x8_0000];

/// Writes a register of the device.
pub type Write<'a> = &'a mut dyn FnMut(u64, u32);

/// A driver.
#[derive(Clone, Debug, Default)]
pub struct Nic {
    /// Descriptors offered, by ring.
    pub offered: [u16; 2],
    /// Descriptors taken back, by ring.
    pub taken: [u16; 2],
}

impl Nic {
    /// Starts both rings, with all buffers offered for reception, and waits for interrupts.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn start(&mut self, memory: &Memory, write: Write<'_>) -> Result<(), Outside> {
        *self = Nic::default();
        for which in [RECEIVE, TRANSMIT] {
            let register = |register| RINGS[which] + register;
            write(register(BASE), RINGS_AT[which] as u32);
            write(register(LENGTH), DESCRIPTORS.into());
            write(register(ENABLE), 1);
            self.arm(which, write);
        }
        (0..DESCRIPTORS).try_for_each(|_| self.offer(memory, RECEIVE, BUFFER))?;
        self.ring(RECEIVE, write);
        Ok(())
    }

    /// Waits for the next interrupt of a ring.
    pub fn arm(&self, which: usize, write: Write<'_>) {
        write(RINGS[which] + ARM, self.taken[which].into());
    }

    /// Rings the doorbell.
    pub fn ring(&self, which: usize, write: Write<'_>) {
        write(RINGS[which] + TAIL, self.offered[which].into());
    }

    fn place(which: usize, number: u16) -> (u64, u64) {
        let slot = u64::from(number % DESCRIPTORS);
        (RINGS_AT[which] + slot * ring::DESCRIPTOR, BUFFERS_AT[which] + slot * u64::from(BUFFER))
    }

    /// Offers the next buffer, without ringing.
    fn offer(&mut self, memory: &Memory, which: usize, len: u32) -> Result<(), Outside> {
        let (descriptor, buffer) = Nic::place(which, self.offered[which]);
        memory.write(descriptor, &buffer.to_le_bytes())?;
        memory.write(descriptor + 8, &len.to_le_bytes())?;
        memory.store(descriptor + 12, 0)?;
        self.offered[which] = self.offered[which].wrapping_add(1);
        Ok(())
    }

    /// The next descriptor that the device has done with: its length.
    fn take(&mut self, memory: &Memory, which: usize) -> Result<Option<u32>, Outside> {
        let (descriptor, _) = Nic::place(which, self.taken[which]);
        if self.taken[which] == self.offered[which] || memory.load(descriptor + 12)? != ring::DONE {
            return Ok(None);
        }
        let mut len = [0; 4];
        memory.read(descriptor + 8, &mut len)?;
        self.taken[which] = self.taken[which].wrapping_add(1);
        Ok(Some(u32::from_le_bytes(len)))
    }

    /// Offers a frame to be sent, without ringing; `false` if the ring is full or the frame too long.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn send(&mut self, memory: &Memory, frame: &[u8]) -> Result<bool, Outside> {
        while self.take(memory, TRANSMIT)?.is_some() {}
        let waiting = self.offered[TRANSMIT].wrapping_sub(self.taken[TRANSMIT]);
        if frame.len() > BUFFER as usize || waiting == DESCRIPTORS {
            return Ok(false);
        }
        let (_, buffer) = Nic::place(TRANSMIT, self.offered[TRANSMIT]);
        memory.write(buffer, frame)?;
        self.offer(memory, TRANSMIT, frame.len() as u32)?;
        Ok(true)
    }

    /// The next received frame; its buffer is offered again, without ringing.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn receive(&mut self, memory: &Memory) -> Result<Option<Vec<u8>>, Outside> {
        let (_, buffer) = Nic::place(RECEIVE, self.taken[RECEIVE]);
        let Some(len) = self.take(memory, RECEIVE)? else { return Ok(None) };
        let mut frame = vec![0; len.min(BUFFER) as usize];
        memory.read(buffer, &mut frame)?;
        self.offer(memory, RECEIVE, BUFFER)?;
        Ok(Some(frame))
    }
}
