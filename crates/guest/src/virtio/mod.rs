//! A network adapter of virtio as a PCI function: what the stock driver of a guest reads and writes.
//!
//! ```text
//! region 0   0x0000 common configuration   features, status, where rings are and which vectors they have
//!            0x0100 ISR                    what an interrupt was for, where MSI-X is off
//!            0x0200 device configuration   the Ethernet address, the link
//!            0x1000 notifications          a doorbell for each ring, 4 B apart
//!            0x2000 MSI-X                  vectors: changes, receive ring, transmit ring
//! ```
//!
//! Nothing takes time here: rings and doorbells are handed to the [`Device`], which its description times. Rings begin
//! with `DRIVER_OK`. A driver that asks for features that were not offered, or does without version 1, does not get
//! `FEATURES_OK`; one whose ring makes no sense finds `DEVICE_NEEDS_RESET`, and is told by the vector for changes.
//!
//! What is written with another width than a field's, to fields that are read only, or to a ring that is enabled, is
//! ignored.
//!
//! Source: Virtual I/O Device (VIRTIO) Version 1.2, sections 2.1, 2.2, 3.1, 4.1 and 5.1. Not offered: checksums and
//! segmentation by the device, several pairs of rings, a control queue, event indices, packed rings, resets of single
//! rings. Vendor and device are what the specification gives any network adapter of virtio.

pub mod config;
pub mod driver;

use crate::device::{Device, HeaderFormat, RECEIVE, TRANSMIT};
use crate::memory::Memory;
use crate::ring::{Place, Ring};
use lastmeter_base::Time;

/// The driver may be sent frames whose checksums are not complete, or are known to be right. Of both, only the second
/// happens, where just headers are copied.
pub const GUEST_CHECKSUM: u64 = 1 << 1;
/// The device configuration has an Ethernet address.
pub const ADDRESS: u64 = 1 << 5;
/// A frame may be spread over several chains.
pub const MERGED_BUFFERS: u64 = 1 << 15;
/// The device configuration has the state of the link.
pub const LINK: u64 = 1 << 16;
/// Chains may have their descriptors in a table of their own.
pub const INDIRECT: u64 = 1 << 28;
/// It is as in version 1 of the specification, or later.
pub const VERSION_1: u64 = 1 << 32;
/// What is offered.
pub const FEATURES: u64 = GUEST_CHECKSUM | ADDRESS | MERGED_BUFFERS | LINK | INDIRECT | VERSION_1;

/// Status: the driver has chosen its features.
pub const FEATURES_OK: u8 = 8;
/// Status: the driver is ready.
pub const DRIVER_OK: u8 = 4;
/// Status: the device needs to be reset.
pub const NEEDS_RESET: u8 = 64;

/// The longest ring: as long as QEMU's own adapter has them.
pub const LENGTH_MAX: u16 = 256;
/// Vectors of MSI-X: for changes of the configuration, and for each ring.
pub const VECTORS: u16 = 3;
/// No vector.
pub const NO_VECTOR: u16 = 0xffff;

/// Where the common configuration is, and its length.
pub const COMMON: (u64, u32) = (0x0000, 0x3c);
/// Where the ISR status is, and its length.
pub const ISR: (u64, u32) = (0x0100, 1);
/// Where the device configuration is, and its length.
pub const CONFIGURATION: (u64, u32) = (0x0200, 12);
/// Where notifications are, and their length.
pub const NOTIFY: (u64, u32) = (0x1000, MULTIPLIER * 2);
/// Bytes from one ring's notification to the next.
pub const MULTIPLIER: u32 = 4;

/// Fields of the common configuration.
pub mod field {
    /// Which 32 of the offered features are seen.
    pub const DEVICE_SELECT: u64 = 0x00;
    /// These features.
    pub const DEVICE_FEATURES: u64 = 0x04;
    /// Which 32 of the chosen features are seen.
    pub const DRIVER_SELECT: u64 = 0x08;
    /// These features.
    pub const DRIVER_FEATURES: u64 = 0x0c;
    /// The vector for changes of the configuration.
    pub const CONFIG_VECTOR: u64 = 0x10;
    /// How many rings there are.
    pub const RINGS: u64 = 0x12;
    /// The state of device and driver; 0 resets.
    pub const STATUS: u64 = 0x14;
    /// Changes with the device configuration.
    pub const GENERATION: u64 = 0x15;
    /// The ring whose fields follow.
    pub const SELECT: u64 = 0x16;
    /// Its length.
    pub const LENGTH: u64 = 0x18;
    /// Its vector.
    pub const VECTOR: u64 = 0x1a;
    /// Whether it is enabled.
    pub const ENABLE: u64 = 0x1c;
    /// The number of its notification.
    pub const NOTIFY_OFFSET: u64 = 0x1e;
    /// Where its descriptors are, 8 bytes; then where the driver offers, and where the device gives back.
    pub const DESCRIPTORS: u64 = 0x20;
    /// After these.
    pub const NOTIFY_DATA: u64 = 0x38;
}
use field::*;

/// Causes in the ISR status: a ring, a change of the configuration.
const USED: u8 = 1;
const CHANGED: u8 = 2;
/// The link is up.
const LINK_UP: u16 = 1;

/// What the driver says of a ring.
#[derive(Clone, Copy, Debug)]
struct Described {
    length: u16,
    vector: u16,
    enabled: bool,
    /// It could not be started, or was stopped.
    wrong: bool,
    /// Descriptors, what the driver offers, what the device gives back.
    parts: [u64; 3],
}

impl Described {
    const NONE: Described =
        Described { length: 0, vector: NO_VECTOR, enabled: false, wrong: false, parts: [0; 3] };
}

/// The registers.
#[derive(Clone, Debug)]
pub struct Registers {
    mac: [u8; 6],
    device_select: u32,
    driver_select: u32,
    chosen: u64,
    status: u8,
    config_vector: u16,
    select: u16,
    rings: [Described; 2],
    causes: u8,
    /// The driver has been told that the device needs a reset.
    told: bool,
}

impl Registers {
    /// After power-on.
    pub fn new(mac: [u8; 6]) -> Registers {
        Registers {
            mac,
            device_select: 0,
            driver_select: 0,
            chosen: 0,
            status: 0,
            config_vector: NO_VECTOR,
            select: 0,
            rings: [Described { length: LENGTH_MAX, ..Described::NONE }; 2],
            causes: 0,
            told: false,
        }
    }

    /// Reads bytes of the region. Reading the ISR status clears it.
    pub fn read(&mut self, offset: u64, count: usize, device: &Device) -> Vec<u8> {
        let (common, configuration) = (self.common(device), self.configuration());
        let isr = self.causes;
        let mut is_read = false;
        let within = |at: u64, (from, len): (u64, u32)| {
            at.checked_sub(from).filter(|&at| at < len.into()).map(|at| at as usize)
        };
        let mut byte = |at: u64| {
            if let Some(at) = within(at, COMMON) {
                return common[at];
            }
            if let Some(at) = within(at, CONFIGURATION) {
                return configuration[at];
            }
            is_read |= at == ISR.0;
            if at == ISR.0 { isr } else { 0 }
        };
        let bytes = (0..count as u64).map(|at| byte(offset.saturating_add(at))).collect();
        if is_read {
            self.causes = 0;
        }
        bytes
    }

    fn common(&self, device: &Device) -> [u8; COMMON.1 as usize] {
        let half = |select: u32, features: u64| match select {
            0 => features as u32,
            1 => (features >> 32) as u32,
            _ => 0,
        };
        let ring = self.rings.get(usize::from(self.select)).unwrap_or(&Described::NONE);
        let notify = if usize::from(self.select) < self.rings.len() { self.select } else { 0 };
        let mut bytes = [0; COMMON.1 as usize];
        let mut put = |at: u64, value: &[u8]| {
            bytes[at as usize..at as usize + value.len()].copy_from_slice(value);
        };
        put(DEVICE_SELECT, &self.device_select.to_le_bytes());
        put(DEVICE_FEATURES, &half(self.device_select, FEATURES).to_le_bytes());
        put(DRIVER_SELECT, &self.driver_select.to_le_bytes());
        put(DRIVER_FEATURES, &half(self.driver_select, self.chosen).to_le_bytes());
        put(CONFIG_VECTOR, &self.config_vector.to_le_bytes());
        put(RINGS, &(self.rings.len() as u16).to_le_bytes());
        put(STATUS, &[self.status(device)]);
        put(SELECT, &self.select.to_le_bytes());
        put(LENGTH, &ring.length.to_le_bytes());
        put(VECTOR, &ring.vector.to_le_bytes());
        put(ENABLE, &u16::from(ring.enabled).to_le_bytes());
        put(NOTIFY_OFFSET, &notify.to_le_bytes());
        for (at, part) in (DESCRIPTORS..).step_by(8).zip(ring.parts) {
            put(at, &part.to_le_bytes());
        }
        bytes
    }

    fn configuration(&self) -> [u8; CONFIGURATION.1 as usize] {
        let mut bytes = [0; CONFIGURATION.1 as usize];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6..8].copy_from_slice(&LINK_UP.to_le_bytes());
        // One pair of rings; it says so only to drivers that have asked for several.
        bytes[8..10].copy_from_slice(&1u16.to_le_bytes());
        bytes
    }

    fn status(&self, device: &Device) -> u8 {
        self.status | if self.needs_reset(device) { NEEDS_RESET } else { 0 }
    }

    fn needs_reset(&self, device: &Device) -> bool {
        let is_broken = |which: usize| self.rings[which].wrong || device.broken(which).is_some();
        self.status & DRIVER_OK != 0 && [RECEIVE, TRANSMIT].into_iter().any(is_broken)
    }

    /// Whether the device needs a reset, once until it is reset.
    pub fn has_news(&mut self, device: &Device) -> bool {
        let news = self.needs_reset(device) && !self.told;
        self.told |= news;
        if news {
            self.causes |= CHANGED;
        }
        news
    }

    /// The vector of a ring.
    pub fn vector(&self, ring: usize) -> Option<usize> {
        known(self.rings[ring].vector)
    }

    /// The vector for changes of the configuration.
    pub fn config_vector(&self) -> Option<usize> {
        known(self.config_vector)
    }

    /// A ring's interrupt is due, and MSI-X is off: the driver may look for it.
    pub fn note(&mut self) {
        self.causes |= USED;
    }

    /// Writes a field. Only a device that is a `master` of its bus may reach memory.
    pub fn write(
        &mut self,
        now: Time,
        (offset, data): (u64, &[u8]),
        master: bool,
        device: &mut Device,
        memory: &Memory,
    ) {
        if data.len() > 8 {
            return;
        }
        let value = data.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        match (offset, data.len()) {
            (DEVICE_SELECT, 4) => self.device_select = value as u32,
            (DRIVER_SELECT, 4) => self.driver_select = value as u32,
            (DRIVER_FEATURES, 4) if self.status & FEATURES_OK == 0 => self.choose(value),
            (CONFIG_VECTOR, 2) => self.config_vector = vector(value),
            (STATUS, 1) if value == 0 => self.reset(device),
            (STATUS, 1) => self.set_status(now, value as u8, master, device, memory),
            (SELECT, 2) => self.select = value as u16,
            (LENGTH..NOTIFY_DATA, len) => self.describe(offset, len, value),
            (_, 2 | 4) => {
                let Some(at) = offset.checked_sub(NOTIFY.0) else { return };
                let (which, odd) = (at / u64::from(MULTIPLIER), at % u64::from(MULTIPLIER));
                if odd == 0 && which < self.rings.len() as u64 {
                    device.doorbell(now, which as usize, memory);
                }
            }
            _ => {}
        }
    }

    fn choose(&mut self, half: u64) {
        let shift = match self.driver_select {
            0 => 0,
            1 => 32,
            _ => return,
        };
        self.chosen = self.chosen & !(0xffff_ffff << shift) | half << shift;
    }

    fn set_status(
        &mut self,
        now: Time,
        status: u8,
        master: bool,
        device: &mut Device,
        memory: &Memory,
    ) {
        let mut new = status & !self.status & !NEEDS_RESET;
        let is_offered = self.chosen & !FEATURES == 0 && self.chosen & VERSION_1 != 0;
        if !is_offered {
            new &= !FEATURES_OK;
        }
        self.status |= new;
        // A driver that goes on without its features runs nothing.
        if self.status & FEATURES_OK == 0 {
            self.status &= !DRIVER_OK;
        } else if new & DRIVER_OK != 0 {
            self.start(now, master, device, memory);
        }
    }

    fn start(&mut self, now: Time, master: bool, device: &mut Device, memory: &Memory) {
        device.set_header_format(match self.chosen & MERGED_BUFFERS != 0 {
            true => HeaderFormat::Merged,
            false => HeaderFormat::Long,
        });
        for which in [RECEIVE, TRANSMIT] {
            let described = &mut self.rings[which];
            let [descriptors, available, used] = described.parts;
            let place = Place { length: described.length.into(), descriptors, available, used };
            if !described.enabled {
                continue;
            }
            match Ring::new(place, 0, memory) {
                Ok(ring) if master => device.start(now, which, ring, memory),
                _ => described.wrong = true,
            }
        }
    }

    /// A field of the selected ring.
    fn describe(&mut self, offset: u64, len: usize, value: u64) {
        let Some(ring) = self.rings.get_mut(usize::from(self.select)) else { return };
        match (offset, len) {
            (VECTOR, 2) => ring.vector = vector(value),
            _ if ring.enabled => {}
            (LENGTH, 2) if value <= LENGTH_MAX.into() => ring.length = value as u16,
            // A ring that is enabled later than the driver is ready would need a feature that is not offered.
            (ENABLE, 2) if value == 1 && self.status & DRIVER_OK == 0 => ring.enabled = true,
            (DESCRIPTORS.., 4 | 8) if offset.is_multiple_of(4) => {
                let part = &mut ring.parts[((offset - DESCRIPTORS) / 8) as usize];
                let shift = 8 * (offset % 8);
                *part = match len {
                    8 if shift == 0 => value,
                    8 => return,
                    _ => *part & !(0xffff_ffff << shift) | value << shift,
                };
            }
            _ => {}
        }
    }

    /// As after power-on.
    pub fn reset(&mut self, device: &mut Device) {
        [RECEIVE, TRANSMIT].into_iter().for_each(|which| device.forget(which));
        *self = Registers::new(self.mac);
    }

    /// Both rings stop: the device may reach no memory any more.
    pub fn halt(&mut self, device: &mut Device) {
        for which in [RECEIVE, TRANSMIT] {
            device.forget(which);
            self.rings[which].wrong |= self.rings[which].enabled;
        }
    }
}

/// A vector that the device has, or none.
fn vector(value: u64) -> u16 {
    if value < VECTORS.into() { value as u16 } else { NO_VECTOR }
}

fn known(vector: u16) -> Option<usize> {
    (vector < VECTORS).then_some(vector.into())
}

#[cfg(test)]
mod tests;
