//! The storage of a disk's blocks: a file, preallocated or sparse, or memory.
//!
//! A write is durable once a later flush, or the write itself with FUA, has been answered: only then has the
//! kernel written it to the medium (`fdatasync`).
//!
//! Rows: N-78.

use super::timing::{Access, Timed, Timing, wait};
use rustix::fs::{
    Advice, FallocateFlags, MemfdFlags, SeekFrom, fadvise, fallocate, memfd_create, seek, sendfile,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

/// Bytes that are written or compared at once where a command has many.
const PIECE: usize = 1 << 16;

/// Blocks of a disk.
#[derive(Debug)]
pub struct Medium {
    file: File,
    /// The same, of which the kernel reads no more than is asked for.
    scattered: Option<File>,
    size: u64,
    block: u32,
    read_only: bool,
    memory: bool,
    /// Writes share it; whoever changes what it has read is alone.
    turn: RwLock<()>,
    /// What it takes as long as.
    timed: Option<Timed>,
}

/// An extent of the disk, as block status reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// Whether it is unallocated and reads as zeros.
    pub hole: bool,
}

impl Medium {
    /// A file of at least `size` bytes, created sparse if missing. Without `size`, of its existing length.
    ///
    /// # Errors
    /// If it cannot be opened, or its length is not a multiple of the block size.
    pub fn file(path: &Path, size: Option<u64>, block: u32, read_only: bool) -> io::Result<Medium> {
        let mut options = File::options();
        options.read(true).write(!read_only).create(size.is_some() && !read_only);
        let file = options.open(path)?;
        let length = file.metadata()?.len();
        if let Some(size) = size.filter(|size| *size > length && !read_only) {
            file.set_len(size)?;
        }
        let mut medium = Medium::new(file, block, read_only, false)?;
        // Without it, reads at once may read more than they need.
        medium.scattered = File::open(format!("/proc/self/fd/{}", medium.file.as_raw_fd()))
            .ok()
            .filter(|file| fadvise(file, 0, None, Advice::Random).is_ok());
        Ok(medium)
    }
    /// Memory.
    ///
    /// # Errors
    /// If the kernel has none.
    pub fn memory(size: u64, block: u32) -> io::Result<Medium> {
        let file = File::from(memfd_create("lastmeter-disk", MemfdFlags::CLOEXEC)?);
        file.set_len(size)?;
        Medium::new(file, block, false, true)
    }
    fn new(file: File, block: u32, read_only: bool, memory: bool) -> io::Result<Medium> {
        let size = file.metadata()?.len();
        if !matches!(block, 512 | 4096) || size == 0 || !size.is_multiple_of(block.into()) {
            let why = format!("{size} bytes are not one or more blocks of {block} (512 or 4096)");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (turn, timed, scattered) = (RwLock::new(()), None, None);
        Ok(Medium { file, scattered, size, block, read_only, memory, turn, timed })
    }
    /// The same, with commands that take as long as in a model.
    #[must_use]
    pub fn timed(self, model: Box<dyn Timing>) -> Medium {
        Medium { timed: Some(Timed::new(model)), ..self }
    }
    /// Does something that a model has done only after a while.
    fn take<T>(&self, write: bool, at: u64, length: u64, act: impl FnOnce() -> T) -> T {
        let Some(timed) = self.timed.as_ref().filter(|_| length > 0) else { return act() };
        let due = timed.due(Access { write, at, length });
        let done = act();
        wait(due);
        done
    }
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
    /// Bytes of a block.
    pub fn block(&self) -> u32 {
        self.block
    }
    /// Whether nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
    /// Whether it is memory, of which no read fails.
    pub fn is_memory(&self) -> bool {
        self.memory
    }
    /// Sends a range, which must be within the disk, without copying it on the way.
    ///
    /// # Errors
    /// If the medium or the connection fails.
    pub fn send(&self, at: u64, length: usize, to: impl AsFd) -> io::Result<()> {
        self.take(false, at, length as u64, || ());
        let (mut place, end) = (at, at + length as u64);
        while place < end {
            let left = (end - place) as usize;
            match sendfile(&to, &self.file, Some(&mut place), left) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
    /// Begins a read, which must be within the disk: several that were begun go on at the same time.
    pub fn begin(&self, at: u64, length: usize) -> Reading {
        let access = Access { write: false, at, length: length as u64 };
        let due = self.timed.as_ref().filter(|_| length > 0).map(|timed| timed.due(access));
        Reading { at, due, told: false }
    }
    /// Reads; the range must be within the disk.
    ///
    /// # Errors
    /// If the medium fails.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.take(false, at, bytes.len() as u64, || self.file.read_exact_at(bytes, at))
    }
    /// Writes; with `fua` it is durable afterwards.
    ///
    /// # Errors
    /// If the medium fails or is full.
    pub fn write(&self, at: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        let turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        self.take(true, at, bytes.len() as u64, || self.file.write_all_at(bytes, at))?;
        drop(turn);
        if fua { self.flush() } else { Ok(()) }
    }
    /// Writes one block many times.
    ///
    /// # Errors
    /// If the medium fails or is full.
    pub fn repeat(&self, at: u64, block: &[u8], times: u64) -> io::Result<()> {
        let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        let several = (PIECE / block.len().max(1)).max(1) as u64;
        let piece = block.repeat(several.min(times) as usize);
        let (mut done, length) = (0, times * block.len() as u64);
        while done < length {
            let part = (length - done).min(piece.len() as u64);
            let piece = &piece[..part as usize];
            self.take(true, at + done, part, || self.file.write_all_at(piece, at + done))?;
            done += part;
        }
        Ok(())
    }
    /// The first byte that is not as these are; none if all are.
    ///
    /// # Errors
    /// If the medium fails.
    pub fn differs(&self, at: u64, bytes: &[u8]) -> io::Result<Option<usize>> {
        let mut found = vec![0; PIECE.min(bytes.len())];
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            let found = &mut found[..piece.len()];
            self.read(at + (number * PIECE) as u64, found)?;
            if found != piece {
                let first = piece.iter().zip(found.iter()).position(|(one, other)| one != other);
                return Ok(first.map(|first| number * PIECE + first));
            }
        }
        Ok(None)
    }
    /// Writes `new` if what is there is `expected`, and nobody writes between; else the first byte that differs.
    ///
    /// # Errors
    /// If the medium fails or is full.
    pub fn compare_and_write(
        &self,
        at: u64,
        expected: &[u8],
        new: &[u8],
        fua: bool,
    ) -> io::Result<Option<usize>> {
        let turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        let differs = self.differs(at, expected)?;
        if differs.is_none() {
            self.take(true, at, new.len() as u64, || self.file.write_all_at(new, at))?;
        }
        drop(turn);
        if fua && differs.is_none() {
            self.flush()?;
        }
        Ok(differs)
    }
    /// Sets the bits that these have, and nobody writes between.
    ///
    /// # Errors
    /// If the medium fails or is full.
    pub fn or_write(&self, at: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        let turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        let mut found = vec![0; bytes.len()];
        self.read(at, &mut found)?;
        found.iter_mut().zip(bytes).for_each(|(found, byte)| *found |= byte);
        self.take(true, at, found.len() as u64, || self.file.write_all_at(&found, at))?;
        drop(turn);
        if fua { self.flush() } else { Ok(()) }
    }
    /// Reads ahead, where the kernel wants to.
    pub fn prefetch(&self, at: u64, length: u64) {
        // It is advice: without it, reads take longer.
        let _ = fadvise(&self.file, at, NonZeroU64::new(length), Advice::WillNeed);
    }
    /// Makes every answered write durable.
    ///
    /// # Errors
    /// If the medium fails.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn allocate(&self, flags: FallocateFlags, at: u64, length: u64) -> rustix::io::Result<()> {
        let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        fallocate(&self.file, flags, at, length)
    }
    /// Discards data, which may then read as zeros.
    ///
    /// # Errors
    /// If the medium fails. A file system that cannot do it has done nothing, which is right, too.
    pub fn trim(&self, at: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.allocate(flags, at, length) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }
    /// Writes zeros, as a hole where `hole` allows it.
    ///
    /// # Errors
    /// If the medium fails or is full.
    pub fn zero(&self, at: u64, length: u64, hole: bool, fua: bool) -> io::Result<()> {
        let flags = match hole {
            true => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            false => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        if length > 0 && self.allocate(flags, at, length).is_err() {
            // All lengths are whole blocks.
            let block = self.block as usize;
            self.repeat(at, &vec![0; block], length / block as u64)?;
        }
        if fua { self.flush() } else { Ok(()) }
    }
    /// What is allocated from `at` on: extents of at most `length` bytes together, at most `most` of them.
    pub fn extents(&self, at: u64, length: u64, most: usize) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let (mut place, end) = (at, at + length);
        while place < end && extents.len() < most {
            let data = match seek(&self.file, SeekFrom::Data(place)) {
                Ok(data) => data.min(end),
                Err(Errno::NXIO) => end,
                // A file system that cannot tell: everything counts as data.
                Err(_) => {
                    extents.push(Extent { length: end - place, hole: false });
                    return extents;
                }
            };
            if data > place {
                extents.push(Extent { length: data - place, hole: true });
                place = data;
            }
            if place < end && extents.len() < most {
                let hole =
                    seek(&self.file, SeekFrom::Hole(place)).map_or(end, |hole| hole.min(end));
                extents.push(Extent { length: hole - place, hole: false });
                place = hole;
            }
        }
        extents
    }
}

/// A read that was begun.
#[derive(Debug)]
pub struct Reading {
    at: u64,
    /// When the model has done it.
    due: Option<Instant>,
    /// The medium was told to bring the bytes.
    told: bool,
}

impl Reading {
    /// Reads into `bytes`, as many as were asked for: whether that is done, which it is if it may `wait`.
    ///
    /// # Errors
    /// If the medium fails.
    pub fn finish(&mut self, medium: &Medium, bytes: &mut [u8], wait: bool) -> io::Result<bool> {
        if !wait && !self.is_due() {
            return Ok(false);
        }
        let file = medium.scattered.as_ref().unwrap_or(&medium.file);
        if wait || medium.memory {
            file.read_exact_at(bytes, self.at)?;
            if let Some(due) = self.due {
                super::timing::wait(due);
            }
            return Ok(true);
        }
        let length = bytes.len() as u64;
        let part = &mut [IoSliceMut::new(bytes)];
        // The kernel begins to bring what it has not, but for what follows a part that it has.
        let (read, begun) = match preadv2(file, part, self.at, ReadWriteFlags::NOWAIT) {
            Ok(read) => (read as u64, false),
            Err(Errno::AGAIN) => (0, true),
            // A file system that cannot say whether it would wait.
            Err(Errno::INTR | Errno::OPNOTSUPP) => (0, false),
            Err(error) => return Err(error.into()),
        };
        if read < length && !begun && !self.told {
            let _ = fadvise(file, self.at + read, NonZeroU64::new(length - read), Advice::WillNeed);
            self.told = true;
        }
        Ok(read == length)
    }
    fn is_due(&self) -> bool {
        self.due.is_none_or(|due| Instant::now() >= due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_was_not_is_a_hole() {
        let medium = Medium::memory(1 << 20, 512).expect("memory");
        medium.write(65536, &[7; 4096], true).expect("written");
        let mut bytes = [1; 4096];
        medium.read(65536, &mut bytes).expect("read");
        assert_eq!(bytes, [7; 4096]);
        medium.read(0, &mut bytes).expect("read");
        assert_eq!(bytes, [0; 4096]);
        let extents = medium.extents(0, 1 << 20, 10);
        let hole = |length| Extent { length, hole: true };
        let data = Extent { length: 4096, hole: false };
        assert_eq!(extents, [hole(65536), data, hole((1 << 20) - 65536 - 4096)]);
        medium.trim(65536, 4096).expect("trimmed");
        assert_eq!(medium.extents(0, 1 << 20, 10), [hole(1 << 20)]);
        medium.zero(0, 100_000, false, false).expect("zeros");
        medium.read(0, &mut bytes).expect("read");
        assert_eq!(bytes, [0; 4096]);
    }

    #[test]
    fn a_length_that_is_no_number_of_blocks_is_refused() {
        assert!(Medium::memory(1000, 512).is_err());
        assert!(Medium::memory(4096, 1024).is_err());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.img");
        assert!(Medium::file(&path, None, 512, false).is_err(), "there is none, and no size");
        let made = Medium::file(&path, Some(1 << 30), 4096, false).expect("made");
        assert_eq!(made.size(), 1 << 30);
        let again = Medium::file(&path, None, 4096, true).expect("it is there");
        assert!(again.is_read_only() && again.size() == 1 << 30);
    }
}
