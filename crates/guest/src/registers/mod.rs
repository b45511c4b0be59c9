//! The registers of `simple-nic`: what a driver reads and writes to run an adapter by rings in its memory.
//!
//! ```text
//! 0x000 ID        "LMN1"                          0x100 receive ring, 0x140 transmit ring:
//! 0x004 CONTROL   1: reset                         +0x00 BASE, 8 B
//! 0x008 STATUS    1 link, 0x100 << ring: broken    +0x08 LENGTH  descriptors, a power of two
//! 0x00c MAC       6 B, then 2 B of 0               +0x0c ENABLE  1: runs
//! 0x014 CAUSE     1 << ring: pending; 1 clears     +0x10 HEAD    descriptors done
//! 0x018 MASK      1 << ring: no interrupt          +0x14 TAIL    descriptors offered: the doorbell
//! 0x01c BUFFERED  bytes on their way in            +0x18 ARM     descriptors taken: interrupt for the next
//! 0x020 IN_FLIGHT frames on their way out
//! 0x024 LOST      frames in, 4 B, and out, 4 B
//! ```
//!
//! Registers have 32 bits. Reading changes nothing. What is written to others, or to a ring that runs and is not TAIL
//! or ARM, is ignored. [`ring`] says what is in memory; `guest/driver/lastmeter_nic.c` is a driver.
//!
//! Rows: A-34 (the state of FIFOs in registers of their own).

pub mod driver;
pub mod program;
pub mod ring;

use crate::device::{Device, HeaderFormat, RECEIVE, TRANSMIT};
use crate::memory::Memory;
use lastmeter_base::Time;
use ring::Ring;

/// What [`ID`] says: "LMN1".
pub const MAGIC: u32 = 0x314e_4d4c;
/// Identifies the device.
pub const ID: u64 = 0x00;
/// Resets it.
pub const CONTROL: u64 = 0x04;
/// Link, broken rings.
pub const STATUS: u64 = 0x08;
/// The Ethernet address.
pub const MAC: u64 = 0x0c;
/// Pending interrupts.
pub const CAUSE: u64 = 0x14;
/// Masked interrupts.
pub const MASK: u64 = 0x18;
/// Bytes in the adapter's buffers that wait to be received.
pub const BUFFERED: u64 = 0x1c;
/// Frames in the adapter that wait to be sent.
pub const IN_FLIGHT: u64 = 0x20;
/// Frames lost, in and out.
pub const LOST: u64 = 0x24;
/// Where a ring's registers begin.
pub const RINGS: [u64; 2] = [0x100, 0x140];
/// Of a ring: where it is, 8 bytes.
pub const BASE: u64 = 0x00;
/// Of a ring: its length in descriptors.
pub const LENGTH: u64 = 0x08;
/// Of a ring: whether it runs.
pub const ENABLE: u64 = 0x0c;
/// Of a ring: descriptors done.
pub const HEAD: u64 = 0x10;
/// Of a ring: descriptors offered.
pub const TAIL: u64 = 0x14;
/// Of a ring: descriptors taken, and the next interrupts.
pub const ARM: u64 = 0x18;
/// Length of a ring's registers.
const RING: u64 = 0x20;
const RESET: u32 = 1;
const LINK: u32 = 1;
const BROKEN: u32 = 0x100;

/// Where the driver says that a ring is.
#[derive(Clone, Copy, Debug, Default)]
struct Described {
    base: [u32; 2],
    length: u32,
    /// It could not be started.
    wrong: bool,
}

/// The registers.
#[derive(Clone, Debug)]
pub struct Registers {
    mac: [u8; 6],
    rings: [Described; 2],
}

impl Registers {
    /// After power-on.
    pub fn new(mac: [u8; 6]) -> Registers {
        Registers { mac, rings: Default::default() }
    }

    /// Reads a register.
    pub fn read(&self, offset: u64, device: &Device) -> u32 {
        let each = |flag: &dyn Fn(usize) -> bool| {
            [RECEIVE, TRANSMIT].map(|which| u32::from(flag(which)) << which).iter().sum::<u32>()
        };
        let mask = |which| device.registers_ring(which).map(Ring::mask);
        let lost = |which: usize| device.account().lost[which].values().sum::<u64>() as u32;
        let [a, b, c, d, e, f] = self.mac;
        match offset {
            ID => MAGIC,
            STATUS => LINK + BROKEN * each(&|which| self.is_broken(which, device)),
            MAC => u32::from_le_bytes([a, b, c, d]),
            0x10 => u32::from_le_bytes([e, f, 0, 0]),
            CAUSE => each(&|which| mask(which).is_some_and(|(_, pending)| pending)),
            MASK => each(&|which| mask(which).is_none_or(|(masked, _)| masked)),
            BUFFERED => device.buffered().0 as u32,
            IN_FLIGHT => device.held(TRANSMIT) as u32,
            LOST => lost(RECEIVE),
            0x28 => lost(TRANSMIT),
            _ => match ring_of(offset) {
                Some((which, register)) => self.read_ring(which, register, device),
                None => 0,
            },
        }
    }

    fn read_ring(&self, which: usize, register: u64, device: &Device) -> u32 {
        let (described, ring) = (&self.rings[which], device.registers_ring(which));
        match register {
            BASE => described.base[0],
            0x04 => described.base[1],
            LENGTH => described.length,
            ENABLE => ring.is_some().into(),
            HEAD => ring.map_or(0, |ring| ring.head().into()),
            TAIL => ring.map_or(0, |ring| ring.tail().into()),
            _ => 0,
        }
    }

    fn is_broken(&self, which: usize, device: &Device) -> bool {
        self.rings[which].wrong || device.broken(which).is_some()
    }

    /// Writes a register. Only a device that is a `master` of its bus may reach memory.
    pub fn write(
        &mut self,
        now: Time,
        (offset, value): (u64, u32),
        master: bool,
        device: &mut Device,
        memory: &Memory,
    ) {
        let has = |which: usize| value & 1 << which != 0;
        match offset {
            CONTROL if value & RESET != 0 => self.reset(device),
            CAUSE => {
                [RECEIVE, TRANSMIT].into_iter().filter(|&which| has(which)).for_each(|which| {
                    device.registers_ring_mut(which).into_iter().for_each(Ring::clear);
                })
            }
            MASK => [RECEIVE, TRANSMIT].into_iter().for_each(|which| {
                device.interrupts_of(now, which, |ring| ring.set_mask(has(which)));
            }),
            _ => {
                let Some((which, register)) = ring_of(offset) else { return };
                self.write_ring(now, (which, register, value), master, device, memory);
            }
        }
    }

    fn write_ring(
        &mut self,
        now: Time,
        (which, register, value): (usize, u64, u32),
        master: bool,
        device: &mut Device,
        memory: &Memory,
    ) {
        let described = &mut self.rings[which];
        let runs = device.registers_ring(which).is_some();
        match register {
            BASE if !runs => described.base[0] = value,
            0x04 if !runs => described.base[1] = value,
            LENGTH if !runs => described.length = value,
            ENABLE if value == 0 => {
                described.wrong = false;
                device.forget(which);
            }
            ENABLE if !runs && master => {
                let base = u64::from(described.base[1]) << 32 | u64::from(described.base[0]);
                let ring = Ring::new(base, described.length, which == RECEIVE, memory);
                described.wrong = ring.is_err();
                device.set_header_format(HeaderFormat::None);
                ring.into_iter().for_each(|ring| device.start(now, which, ring, memory));
            }
            TAIL if runs => {
                let ring = device.registers_ring_mut(which);
                ring.into_iter().for_each(|ring| ring.set_tail(value as u16));
                device.doorbell(now, which, memory);
            }
            ARM => device.interrupts_of(now, which, |ring| ring.arm(value as u16)),
            _ => {}
        }
    }

    /// As after power-on.
    pub fn reset(&mut self, device: &mut Device) {
        self.rings = Default::default();
        self.halt(device);
    }

    /// Both rings stop.
    pub fn halt(&mut self, device: &mut Device) {
        [RECEIVE, TRANSMIT].into_iter().for_each(|which| device.forget(which));
    }
}

/// The ring, and which of its registers.
fn ring_of(offset: u64) -> Option<(usize, u64)> {
    let found = RINGS.iter().position(|&from| (from..from + RING).contains(&offset))?;
    Some((found, offset - RINGS[found]))
}

#[cfg(test)]
mod tests;
