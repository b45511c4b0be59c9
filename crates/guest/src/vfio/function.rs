//! The registers in the region of a PCI function: of `simple-nic`, or of virtio.

use super::config::{Config, SIMPLE};
use super::message::Access;
use super::session::CONFIG;
use crate::device::Device;
use crate::memory::Memory;
use crate::{registers, virtio};
use lastmeter_base::Time;

/// A function's registers.
#[derive(Clone, Debug)]
pub enum Function {
    /// Its own, for which there is a driver of ours.
    Simple(registers::Registers),
    /// Those of virtio, which every Linux drives.
    Virtio(virtio::Registers),
}

impl Function {
    /// `simple-nic`, with this Ethernet address.
    pub fn simple(mac: [u8; 6]) -> Function {
        Function::Simple(registers::Registers::new(mac))
    }

    /// A network adapter of virtio, with this Ethernet address.
    pub fn virtio(mac: [u8; 6]) -> Function {
        Function::Virtio(virtio::Registers::new(mac))
    }

    /// Its configuration space after power-on.
    pub(super) fn config(&self) -> Config {
        match self {
            Function::Simple(_) => Config::new(&SIMPLE, &[]),
            Function::Virtio(_) => virtio::config::config(),
        }
    }

    /// How many vectors it has.
    pub(super) fn vectors(&self) -> u16 {
        match self {
            Function::Simple(_) => SIMPLE.vectors,
            Function::Virtio(_) => virtio::VECTORS,
        }
    }

    /// Where in the region an access to the configuration space goes, if it goes there.
    pub(super) fn window(&self, config: &Config, access: &Access) -> Option<u64> {
        match self {
            Function::Virtio(_) if access.region == CONFIG => {
                virtio::config::window(config, access.offset, access.count as usize)
            }
            _ => None,
        }
    }

    /// Reads bytes of the region.
    pub(super) fn read(&mut self, offset: u64, count: usize, device: &Device) -> Vec<u8> {
        match self {
            Function::Simple(registers) => {
                let byte =
                    |at: u64| registers.read(at & !3, device).to_le_bytes()[(at & 3) as usize];
                (offset..offset + count as u64).map(byte).collect()
            }
            Function::Virtio(registers) => registers.read(offset, count, device),
        }
    }

    /// Writes bytes of the region; `false` if there is nothing of that width.
    pub(super) fn write(
        &mut self,
        now: Time,
        (offset, data): (u64, &[u8]),
        master: bool,
        device: &mut Device,
        memory: &Memory,
    ) -> bool {
        match self {
            Function::Simple(registers) => {
                let (words, rest) = data.as_chunks::<4>();
                if !offset.is_multiple_of(4) || !rest.is_empty() {
                    return false;
                }
                for (offset, word) in (offset..).step_by(4).zip(words) {
                    let value = u32::from_le_bytes(*word);
                    registers.write(now, (offset, value), master, device, memory);
                }
            }
            Function::Virtio(registers) => {
                registers.write(now, (offset, data), master, device, memory);
            }
        }
        true
    }

    /// The vector of a ring whose interrupt is due.
    pub(super) fn interrupt(&mut self, ring: usize, config: &Config) -> Option<usize> {
        match self {
            Function::Simple(_) => Some(ring),
            Function::Virtio(registers) if !config.is_msi_x() => {
                registers.note();
                None
            }
            Function::Virtio(registers) => registers.vector(ring),
        }
    }

    /// The vector for changes, if the device has come to need a reset since the last call.
    pub(super) fn trouble(&mut self, device: &Device) -> Option<usize> {
        match self {
            Function::Simple(_) => None,
            Function::Virtio(registers) => {
                registers.has_news(device).then(|| registers.config_vector()).flatten()
            }
        }
    }

    /// As after power-on.
    pub(super) fn reset(&mut self, device: &mut Device) {
        match self {
            Function::Simple(registers) => registers.reset(device),
            Function::Virtio(registers) => registers.reset(device),
        }
    }

    /// Both rings stop.
    pub(super) fn halt(&mut self, device: &mut Device) {
        match self {
            Function::Simple(registers) => registers.halt(device),
            Function::Virtio(registers) => registers.halt(device),
        }
    }
}
