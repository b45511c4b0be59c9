//! What the configuration space says of a network adapter of virtio: who it is, and where its structures are.
//!
//! ```text
//! 0x40 MSI-X --> 0x4c common --> 0x5c notifications --> 0x70 ISR --> 0x80 device --> 0x90 window
//! ```
//!
//! The window reads and writes the region by the configuration space, for firmware that has not mapped it.

use super::{COMMON, CONFIGURATION, ISR, MULTIPLIER, NOTIFY, VECTORS};
use crate::vfio::config::{BAR_SIZE, Config, Identity};
use crate::words::u32_at;

const IDENTITY: Identity = Identity {
    vendor: 0x1af4,
    // 0x1040, and the number of a network adapter.
    device: 0x1041,
    revision: 1,
    vectors: VECTORS,
};
/// Where the window's capability is.
const WINDOW: u64 = 0x90;
/// In it: region, offset, length, data.
const REGION: u64 = WINDOW + 4;
/// The region's number, where in it, and how many bytes; then these.
const OFFSET: u64 = WINDOW + 8;
const LENGTH: u64 = WINDOW + 12;
const DATA: u64 = WINDOW + 16;
const VENDOR_SPECIFIC: u8 = 9;

/// A structure's capability, without what follows.
fn capability(kind: u8, (offset, len): (u64, u32), more: &[u8]) -> Vec<u8> {
    let head = [VENDOR_SPECIFIC, 0, 16 + more.len() as u8, kind, 0, 0, 0, 0];
    [&head[..], &(offset as u32).to_le_bytes(), &len.to_le_bytes(), more].concat()
}

/// After power-on.
pub fn config() -> Config {
    let capabilities = [
        capability(1, COMMON, &[]),
        capability(2, NOTIFY, &MULTIPLIER.to_le_bytes()),
        capability(3, ISR, &[]),
        capability(4, CONFIGURATION, &[]),
        capability(5, (0, 0), &[0; 4]),
    ];
    let mut config = Config::new(&IDENTITY, &capabilities);
    config.allow(REGION, &[0xff]);
    config.allow(OFFSET, &[0xff; 8]);
    config
}

/// Where in the region an access to the configuration space goes, if it goes through the window.
pub fn window(config: &Config, offset: u64, count: usize) -> Option<u64> {
    let chosen = config.read(WINDOW, (DATA - WINDOW) as usize)?;
    let word = |at: u64| u32_at(chosen, (at - WINDOW) as usize);
    let (region, at, len) = (word(REGION) as u8, word(OFFSET), word(LENGTH) as usize);
    let fits = offset == DATA && count == len && matches!(len, 1 | 2 | 4) && region == 0;
    let inside = at.checked_add(len as u32).is_some_and(|end| end <= BAR_SIZE);
    (fits && inside && at.is_multiple_of(len as u32)).then_some(at.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_found_as_linux_looks_for_them() {
        let config = config();
        assert_eq!(config.read(0, 4), Some(&[0xf4, 0x1a, 0x41, 0x10][..]));
        assert_eq!(config.read(8, 4), Some(&[1, 0, 0, 2][..]), "revision 1, an Ethernet adapter");
        let byte = |at: u8| config.read(at.into(), 1).unwrap()[0];
        let (mut at, mut found) = (byte(0x34), Vec::new());
        while at != 0 {
            if byte(at) == VENDOR_SPECIFIC {
                let whole = config.read(at.into(), 16).unwrap();
                let (offset, len) = (u32_at(whole, 8), u32_at(whole, 12));
                found.push((whole[3], u64::from(offset), len));
                assert!(whole[2] >= 16 && whole[4] == 0, "region 0");
            } else {
                assert_eq!((byte(at), byte(at + 2)), (0x11, 2), "three vectors of MSI-X");
            }
            at = byte(at + 1);
        }
        let of = |kind, (offset, len)| (kind, offset, len);
        let wanted = [of(1, COMMON), of(2, NOTIFY), of(3, ISR), of(4, CONFIGURATION), (5, 0, 0)];
        assert_eq!(found, wanted);
        assert_eq!(config.read(0x6c, 4), Some(&MULTIPLIER.to_le_bytes()[..]));
    }

    #[test]
    fn the_window_goes_where_it_is_told_and_not_beyond() {
        let mut config = config();
        assert_eq!(window(&config, DATA, 4), None, "no length");
        config.write(OFFSET, &[0x14, 0, 0, 0, 1, 0, 0, 0]).unwrap();
        assert_eq!(window(&config, DATA, 1), Some(0x14));
        assert_eq!((window(&config, DATA, 4), window(&config, OFFSET, 1)), (None, None));
        for (offset, len, region) in
            [(BAR_SIZE, 4u32, 0), (2, 4, 0), (0, 3, 0), (u32::MAX, 4, 0), (0, 4, 1)]
        {
            config.write(REGION, &[region]).unwrap();
            config.write(OFFSET, &offset.to_le_bytes()).unwrap();
            config.write(LENGTH, &len.to_le_bytes()).unwrap();
            assert_eq!(window(&config, DATA, len as usize), None, "{offset:#x} {len}");
        }
    }
}
