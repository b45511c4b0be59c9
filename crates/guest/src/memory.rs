//! A guest's memory: regions, and every access checked against them.
//!
//! The guest may change all of it at any time, so nothing is read twice and believed the first time.

use crate::vhost::message::Region;
use lastmeter_linux::shared::Foreign;

/// An address that the guest's memory does not have, or not in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// The address.
    pub address: u64,
    /// Bytes that were wanted there.
    pub len: u64,
}

impl std::fmt::Display for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x}, outside the guest's memory", self.len, self.address)
    }
}

impl std::error::Error for Outside {}

/// A region and what is mapped for it, unless it cannot be reached.
#[derive(Debug)]
struct Part {
    region: Region,
    memory: Option<Foreign>,
}

impl Part {
    /// Whether it has some of these bytes.
    fn overlaps(&self, from: u64, to: u64) -> bool {
        self.region.guest < to && from < self.region.guest.saturating_add(self.region.size)
    }
}

/// A guest's memory.
#[derive(Debug, Default)]
pub struct Memory(Vec<Part>);

impl Memory {
    /// No memory.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds a region; `false` if the mapping has another length.
    pub fn add(&mut self, region: Region, memory: Foreign) -> bool {
        let fits = memory.size() as u64 == region.size;
        if fits {
            self.0.push(Part { region, memory: Some(memory) });
        }
        fits
    }

    /// Adds a region that is there but cannot be reached.
    pub fn reserve(&mut self, region: Region) {
        self.0.push(Part { region, memory: None });
    }

    /// How many regions there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether a region has some of these bytes.
    pub fn overlaps(&self, address: u64, size: u64) -> bool {
        let end = address.saturating_add(size);
        self.0.iter().any(|part| part.overlaps(address, end))
    }

    /// Removes the regions within these bytes; `false`, and nothing is changed, if there are none, or one is only
    /// partly within.
    pub fn remove(&mut self, address: u64, size: u64) -> bool {
        let end = address.saturating_add(size);
        let within = |part: &Part| {
            let Region { guest, size, .. } = part.region;
            guest >= address && guest.saturating_add(size) <= end
        };
        let count = |is: &dyn Fn(&Part) -> bool| self.0.iter().filter(|part| is(part)).count();
        let touched = count(&|part| part.overlaps(address, end));
        if touched == 0 || touched != count(&within) {
            return false;
        }
        self.0.retain(|part| !within(part));
        true
    }

    /// The guest's address of what QEMU sees at `user`.
    ///
    /// # Errors
    /// QEMU has nothing of the guest there.
    pub fn of_user(&self, user: u64) -> Result<u64, Outside> {
        let mut parts = self.0.iter().map(|part| part.region);
        let found = parts.find_map(|region| {
            let within = user.checked_sub(region.user).filter(|&within| within < region.size)?;
            region.guest.checked_add(within)
        });
        found.ok_or(Outside { address: user, len: 1 })
    }

    /// Where a range is.
    fn find(&self, address: u64, len: usize) -> Result<(&Foreign, usize), Outside> {
        let found = self.0.iter().find_map(|part| {
            let within = address.checked_sub(part.region.guest)?;
            let end = within.checked_add(len as u64)?;
            let memory = part.memory.as_ref()?;
            (end <= part.region.size).then_some((memory, within as usize))
        });
        found.ok_or(Outside { address, len: len as u64 })
    }

    /// Whether a range is in the guest's memory.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, address: u64, len: usize) -> Result<(), Outside> {
        self.find(address, len).map(|_| ())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// They are not in the guest's memory.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Outside> {
        let (memory, at) = self.find(address, into.len())?;
        memory.read(at, into);
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// Their place is not in the guest's memory; then nothing is changed.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        let (memory, at) = self.find(address, bytes.len())?;
        memory.write(at, bytes);
        Ok(())
    }

    /// Reads a number that the guest writes last.
    ///
    /// # Errors
    /// It is outside or not aligned.
    pub fn load(&self, address: u64) -> Result<u16, Outside> {
        let (memory, at) = self.word(address)?;
        Ok(memory.load(at))
    }

    /// Writes a number that the guest reads first.
    ///
    /// # Errors
    /// It is outside or not aligned.
    pub fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        let (memory, at) = self.word(address)?;
        memory.store(at, value);
        Ok(())
    }

    fn word(&self, address: u64) -> Result<(&Foreign, usize), Outside> {
        let found = self.find(address, 2)?;
        if found.1.is_multiple_of(2) { Ok(found) } else { Err(Outside { address, len: 2 }) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Memory of so many bytes, at `guest` for the guest and at `user` for QEMU.
    pub(crate) fn memory(guest: u64, user: u64, len: usize) -> Memory {
        let mut memory = Memory::new();
        let region = Region { guest, size: len as u64, user, offset: 0 };
        assert!(memory.add(region, Foreign::fresh(len).unwrap()));
        memory
    }

    #[test]
    fn what_is_written_is_read_at_the_same_address_and_nowhere_else() {
        let memory = memory(0x1000, 0x7f00_0000, 4096);
        memory.write(0x1ffe, &[1, 2]).unwrap();
        assert_eq!(memory.load(0x1ffe), Ok(0x0201));
        assert_eq!(memory.write(0x1fff, &[1, 2]), Err(Outside { address: 0x1fff, len: 2 }));
        assert_eq!(memory.load(0x1fff).unwrap_err().address, 0x1fff);
        assert_eq!(memory.of_user(0x7f00_0ffe), Ok(0x1ffe));
        assert!(memory.of_user(0x7f00_1000).is_err() && memory.of_user(0x1ffe).is_err());
    }

    #[test]
    fn regions_go_whole_or_not_at_all() {
        let mut two = memory(0, 0, 4096);
        two.reserve(Region { guest: 8192, size: 4096, user: 0, offset: 0 });
        assert!(two.check(8192, 1).is_err(), "there, but not to be reached");
        assert!(two.overlaps(4095, 1) && two.overlaps(9000, 1) && !two.overlaps(4096, 4096));
        assert!(!two.remove(0, 9000) && !two.remove(4096, 4096) && two.count() == 2);
        assert!(two.remove(8192, 4096) && two.remove(0, u64::MAX) && two.count() == 0);
    }

    #[test]
    fn a_range_over_two_regions_is_refused() {
        let mut two = memory(0, 0, 4096);
        let next = Region { guest: 4096, size: 4096, user: 4096, offset: 0 };
        assert!(two.add(next, Foreign::fresh(4096).unwrap()));
        assert!(two.check(4090, 6).is_ok() && two.check(4096, 4096).is_ok());
        assert!(two.check(4090, 7).is_err(), "regions need not be neighbours in this process");
    }

    proptest! {
        #[test]
        fn any_address_is_inside_or_refused(address: u64, len in 0usize..9000) {
            let memory = memory(0x1000, u64::MAX - 10, 8192);
            let mut bytes = vec![0; len];
            let inside = address >= 0x1000 && address - 0x1000 <= 8192 - len.min(8192) as u64 && len <= 8192;
            prop_assert_eq!(memory.read(address, &mut bytes).is_ok(), inside);
            let _ = (memory.load(address), memory.store(address, 1), memory.of_user(address));
        }
    }
}
