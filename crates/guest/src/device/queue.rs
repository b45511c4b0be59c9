//! The rings that a device serves: of virtio, or of registers.

use crate::memory::Memory;
use crate::registers;
use crate::ring::{Broken, Chain, Ring};

/// A ring in use.
#[derive(Clone, Debug)]
pub enum Queue {
    /// A split virtqueue.
    Split(Ring),
    /// A ring whose indexes are registers.
    Registers(registers::ring::Ring),
}

impl From<Ring> for Queue {
    fn from(ring: Ring) -> Queue {
        Queue::Split(ring)
    }
}

impl From<registers::ring::Ring> for Queue {
    fn from(ring: registers::ring::Ring) -> Queue {
        Queue::Registers(ring)
    }
}

impl Queue {
    pub(super) fn base(&self) -> u16 {
        match self {
            Queue::Split(ring) => ring.base(),
            Queue::Registers(ring) => ring.base(),
        }
    }

    pub(super) fn offered(&self, memory: &Memory) -> Result<u16, Broken> {
        match self {
            Queue::Split(ring) => ring.offered(memory),
            Queue::Registers(ring) => ring.offered(),
        }
    }

    pub(super) fn take(&mut self, memory: &Memory, limit: u16) -> Result<Option<Chain>, Broken> {
        match self {
            Queue::Split(ring) => ring.take(memory, limit),
            Queue::Registers(ring) => ring.take(memory, limit),
        }
    }

    /// Gives chains back, and lets the guest see them.
    pub(super) fn give(&mut self, memory: &Memory, given: &[(u16, u32)]) -> Result<(), Broken> {
        let mut given = given.iter();
        match self {
            Queue::Split(ring) => {
                given.try_for_each(|&(head, written)| ring.give(memory, head, written))?;
                ring.publish(memory)
            }
            Queue::Registers(ring) => {
                given.try_for_each(|&(slot, written)| ring.give(memory, slot, written))
            }
        }
    }

    /// Whether the guest wants the interrupt that is due now.
    pub(super) fn wants_interrupt(&mut self, memory: &Memory) -> Result<bool, Broken> {
        match self {
            Queue::Split(ring) => ring.wants_interrupt(memory),
            Queue::Registers(ring) => Ok(ring.raise()),
        }
    }
}
