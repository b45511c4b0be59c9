//! Memory of another process that may change it at any time, such as a guest's.
#![allow(unsafe_code)]

use crate::port::memory::Memory;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU16, Ordering};

/// A mapping whose bytes are only ever copied, because its owner may change them meanwhile.
#[derive(Debug)]
pub struct Foreign(Memory);

impl Foreign {
    /// Maps part of a file in memory (memfd) that can no longer shrink: touching what is gone would end this process.
    ///
    /// # Errors
    /// The file may shrink or is shorter, or the kernel refuses.
    pub fn map(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Foreign> {
        let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if !fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return wrong("the memory may shrink: it must be a memfd that is sealed");
        }
        let end = offset.checked_add(len as u64);
        if len == 0 || end.is_none_or(|end| end > fstat(fd).map_or(0, |stat| stat.st_size as u64)) {
            return wrong("the memory is shorter than stated");
        }
        Ok(Foreign(Memory::of_file(fd, len, offset)?))
    }

    /// Memory of this process, for tests.
    ///
    /// # Errors
    /// There is not enough.
    pub fn fresh(len: usize) -> io::Result<Foreign> {
        Memory::anonymous(len).map(Foreign)
    }

    /// Its length in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// Copies bytes out; panics beyond the end.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.0.at(at, into.len());
        // SAFETY: the range lies within the mapping and `into` is not part of it. Whatever the owner writes
        // meanwhile, every value is a valid byte, and no reference to the mapping exists.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies bytes in; panics beyond the end.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.0.at(at, bytes.len());
        // SAFETY: as for `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// A number of 16 bits that both sides change; panics beyond the end or if it is not aligned.
    fn word(&self, at: usize) -> &AtomicU16 {
        assert!(at.is_multiple_of(2), "an atomic word is aligned");
        // SAFETY: the word lies within the mapping, which begins at a page, and is aligned.
        unsafe { AtomicU16::from_ptr(self.0.at(at, 2).cast()) }
    }

    /// Reads such a number: what its owner wrote before is visible afterwards, and so is that of ours to him.
    pub fn load(&self, at: usize) -> u16 {
        std::sync::atomic::fence(Ordering::SeqCst);
        u16::from_le(self.word(at).load(Ordering::Acquire))
    }

    /// Writes such a number after all that was written before.
    pub fn store(&self, at: usize, value: u16) {
        self.word(at).store(value.to_le(), Ordering::Release);
    }
}
