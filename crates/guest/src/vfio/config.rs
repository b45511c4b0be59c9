//! The configuration space of a PCI function: type 0, one region of registers, MSI-X, further capabilities.
//!
//! ```text
//! 0x00 vendor, device   0x04 command, status   0x08 class   0x10 BAR 0   0x34 --> 0x40 MSI-X: table and pending bits
//!                                                                                 --> further ones
//! ```
//!
//! What a client may write, and how it finds a region's size by writing ones, is as in PCI Local Bus Specification 3.0,
//! chapter 6. There is no pin: interrupts are by MSI-X alone.

/// Its length.
pub const SIZE: usize = 256;
/// No vendor of the PCI-SIG.
pub const VENDOR: u16 = 0x4c4d;
/// `simple-nic`.
pub const DEVICE: u16 = 0x0001;
/// Length of BAR 0: registers, then MSI-X's table and pending bits.
pub const BAR_SIZE: u32 = 0x4000;
/// Where MSI-X's table is in BAR 0.
pub const TABLE: u32 = 0x2000;
/// Where its pending bits are.
pub const PENDING: u32 = 0x3000;
/// Vectors of `simple-nic`: one for each ring.
pub const VECTORS: u16 = 2;

const COMMAND: usize = 0x04;
const MEMORY: u8 = 2;
const MASTER: u8 = 4;
const MSI_X: u8 = 0x40;
/// Length of MSI-X's capability: what follows begins there.
const MSI_X_LEN: u8 = 12;
/// Of MSI-X's control, the upper half: it is on.
const MSI_X_ON: u8 = 0x80;

/// What a function says of itself. Its subsystem is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who made it.
    pub vendor: u16,
    /// What it is.
    pub device: u16,
    /// Its revision.
    pub revision: u8,
    /// Vectors of MSI-X.
    pub vectors: u16,
}

/// `simple-nic`.
pub const SIMPLE: Identity =
    Identity { vendor: VENDOR, device: DEVICE, revision: 1, vectors: VECTORS };

/// A configuration space.
#[derive(Clone, Debug)]
pub struct Config {
    bytes: [u8; SIZE],
    /// The bits that a client may change.
    writable: [u8; SIZE],
}

impl Config {
    /// Of an Ethernet adapter with these capabilities after MSI-X. In each, the second byte is set here: it says where
    /// the next one is.
    pub fn new(identity: &Identity, capabilities: &[Vec<u8>]) -> Config {
        let mut config = Config { bytes: [0; SIZE], writable: [0; SIZE] };
        let msi_x = usize::from(MSI_X);
        for (at, value) in [
            (0x00, &identity.vendor.to_le_bytes()[..]),
            (0x02, &identity.device.to_le_bytes()),
            (0x06, &[0x10]), // There are capabilities.
            (0x08, &[identity.revision, 0, 0, 2]),
            (0x2c, &identity.vendor.to_le_bytes()),
            (0x2e, &identity.device.to_le_bytes()),
            (0x34, &[MSI_X]),
            (msi_x, &[0x11, 0]),
            (msi_x + 2, &(identity.vectors - 1).to_le_bytes()),
            (msi_x + 4, &TABLE.to_le_bytes()),
            (msi_x + 8, &PENDING.to_le_bytes()),
        ] {
            config.bytes[at..at + value.len()].copy_from_slice(value);
        }
        for (at, bits) in [
            (COMMAND as u64, &[MEMORY | MASTER, 4][..]), // And the pin off.
            (0x0c, &[0xff]),                             // Length of a cache line.
            (0x10, &(!(BAR_SIZE - 1)).to_le_bytes()),
            (0x3c, &[0xff]), // The number of an interrupt, for the system's own use.
            (u64::from(MSI_X) + 3, &[MSI_X_ON | 0x40]), // On, and all masked.
        ] {
            config.allow(at, bits);
        }
        let (mut before, mut at) = (msi_x, usize::from(MSI_X + MSI_X_LEN));
        for capability in capabilities {
            config.bytes[at..at + capability.len()].copy_from_slice(capability);
            config.bytes[before + 1] = at as u8;
            (before, at) = (at, (at + capability.len()).next_multiple_of(4));
        }
        config
    }

    /// Lets a client change these bits.
    pub fn allow(&mut self, at: u64, bits: &[u8]) {
        self.writable[at as usize..at as usize + bits.len()].copy_from_slice(bits);
    }

    /// Its bytes there; `None` beyond the end.
    pub fn read(&self, offset: u64, count: usize) -> Option<&[u8]> {
        let offset = usize::try_from(offset).ok()?;
        self.bytes.get(offset..offset.checked_add(count)?)
    }

    /// Writes what may be written; `None` beyond the end.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Option<()> {
        let offset = usize::try_from(offset).ok()?;
        let range = offset..offset.checked_add(data.len())?;
        let kept = self.bytes.get_mut(range.clone())?.iter_mut();
        for ((byte, bits), new) in kept.zip(&self.writable[range]).zip(data) {
            *byte = (*byte & !bits) | (new & bits);
        }
        Some(())
    }

    /// Whether the device may reach memory.
    pub fn is_master(&self) -> bool {
        self.bytes[COMMAND] & MASTER != 0
    }

    /// Whether interrupts are by MSI-X.
    pub fn is_msi_x(&self) -> bool {
        self.bytes[usize::from(MSI_X) + 3] & MSI_X_ON != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_client_finds_the_regions_size_and_msi_x() {
        let mut config = Config::new(&SIMPLE, &[]);
        assert_eq!(config.read(0, 4), Some(&[0x4d, 0x4c, 1, 0][..]));
        config.write(0x10, &[0xff; 4]).unwrap();
        let bar = u32::from_le_bytes(config.read(0x10, 4).unwrap().try_into().unwrap());
        assert_eq!((!bar) + 1, BAR_SIZE, "32 bits, in memory");
        let pointer = u64::from(config.read(0x34, 1).unwrap()[0]);
        assert_eq!(config.read(pointer, 4), Some(&[0x11, 0, 1, 0][..]), "two vectors");
        assert!(!config.is_master());
        config.write(4, &[6, 0]).unwrap();
        assert!(config.is_master());
    }

    proptest! {
        #[test]
        fn what_is_fixed_stays(offset in 0u64..300, data in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut config = Config::new(&SIMPLE, &[]);
            let inside = offset as usize + data.len() <= SIZE;
            prop_assert_eq!(config.write(offset, &data).is_some(), inside);
            let fresh = Config::new(&SIMPLE, &[]);
            for at in 0..SIZE {
                prop_assert_eq!(config.bytes[at] & !fresh.writable[at], fresh.bytes[at] & !fresh.writable[at]);
            }
            prop_assert!(config.read(u64::MAX, 4).is_none() && config.read(4, usize::MAX).is_none());
        }
    }
}
