//! What a program does for each message: before it sends one, after it has received one.

use lastmeter_linux::{Doing, Result};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// Bytes of the file that stands for a disk.
const FILE: u64 = 16 << 20;
/// Bytes of one access to it, aligned as `O_DIRECT` requires.
const PIECE: usize = 4096;

/// The work for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Nothing.
    None,
    /// Sleeps this many microseconds.
    Sleep(u64),
    /// Computes for this many microseconds.
    Compute(u64),
    /// Reads or writes this many pieces of 4 KiB of a file, each on the disk before the next.
    Disk(usize),
    /// The data goes through a pipe, whose other end sleeps this many microseconds for each message.
    Pipe(u64),
    /// Encrypts or decrypts it this many times (ChaCha20, RFC 8439 §2.4).
    Cipher(u32),
}

/// Work in progress.
pub(super) struct Worker {
    work: Work,
    file: Option<File>,
    pipe: Option<(File, Vec<u8>)>,
    piece: Vec<u8>,
    place: u64,
}

impl Worker {
    /// `writes` is whether the data ends here, as a receiver's does.
    pub(super) fn new(work: Work, message: usize, writes: bool) -> Result<Worker> {
        let mut worker =
            Worker { work, file: None, pipe: None, piece: Vec::new(), place: 0x9e37_79b9 };
        match work {
            Work::Disk(_) => {
                worker.file = Some(disk()?);
                worker.piece = vec![0; 2 * PIECE];
            }
            Work::Pipe(us) => worker.pipe = Some((pipe(us, message, writes)?, vec![0; message])),
            _ => {}
        }
        Ok(worker)
    }

    /// Does the work for `data`.
    pub(super) fn run(&mut self, data: &mut [u8], writes: bool) -> Result<()> {
        match self.work {
            Work::None => {}
            Work::Sleep(us) => std::thread::sleep(Duration::from_micros(us)),
            Work::Compute(us) => compute(Duration::from_micros(us)),
            Work::Disk(pieces) => self.access(pieces, writes)?,
            Work::Pipe(_) => {
                let (pipe, buffer) = self.pipe.as_mut().expect("it was opened for this work");
                let len = data.len().min(buffer.len());
                match writes {
                    true => pipe.write_all(&data[..len]).doing("writing a pipe")?,
                    false => pipe.read_exact(&mut buffer[..len]).doing("reading a pipe")?,
                }
            }
            Work::Cipher(times) => (0..times).for_each(|nonce| encrypt(data, nonce)),
        }
        Ok(())
    }

    fn access(&mut self, pieces: usize, writes: bool) -> Result<()> {
        let file = self.file.as_ref().expect("it was opened for this work");
        let skip = self.piece.as_ptr().align_offset(PIECE);
        for _ in 0..pieces {
            self.place = self.place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (self.place >> 33) % (FILE / PIECE as u64) * PIECE as u64;
            let piece = &mut self.piece[skip..skip + PIECE];
            if writes {
                file.write_all_at(piece, at).doing("writing a file")?;
                file.sync_data().doing("writing a file to the disk")?;
            } else {
                file.read_exact_at(piece, at).doing("reading a file")?;
            }
        }
        Ok(())
    }
}

/// A file without a name, which bypasses the page cache.
fn disk() -> Result<File> {
    let what = "making a file for the disk";
    let name = format!("lastmeter-disk-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let direct = OFlags::DIRECT.bits() as i32;
    let mut plain = File::create(&path).doing(what)?;
    plain.write_all(&vec![1; FILE as usize]).doing(what)?;
    plain.sync_all().doing(what)?;
    let opened = OpenOptions::new().read(true).write(true).custom_flags(direct).open(&path);
    std::fs::remove_file(&path).doing(what)?;
    opened.doing(what)
}

/// Our end of a pipe; the thread at the other end sleeps for each message.
fn pipe(us: u64, message: usize, writes: bool) -> Result<File> {
    let (read, write) = rustix::pipe::pipe().doing("making a pipe")?;
    let (ours, theirs) = if writes { (write, read) } else { (read, write) };
    let mut theirs = File::from(theirs);
    std::thread::spawn(move || {
        let mut data = vec![0; message];
        loop {
            std::thread::sleep(Duration::from_micros(us));
            let moved = match writes {
                true => theirs.read_exact(&mut data),
                false => theirs.write_all(&data),
            };
            if moved.is_err() {
                return;
            }
        }
    });
    Ok(File::from(ours))
}

/// Computes for this long.
fn compute(time: Duration) {
    let from = Instant::now();
    let mut state = 1_u64;
    while from.elapsed() < time {
        for _ in 0..1000 {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005) | 1);
        }
    }
}

/// Adds ChaCha20's key stream to `data`, with a fixed key.
fn encrypt(data: &mut [u8], nonce: u32) {
    for (counter, block) in data.chunks_mut(64).enumerate() {
        let stream = block_of(&[7; 8], counter as u32, [nonce, 0, 0]);
        block.iter_mut().zip(stream).for_each(|(byte, key)| *byte ^= key);
    }
}

fn block_of(key: &[u32; 8], counter: u32, nonce: [u32; 3]) -> [u8; 64] {
    let mut first = [0_u32; 16];
    first[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    first[4..12].copy_from_slice(key);
    first[12] = counter;
    first[13..].copy_from_slice(&nonce);
    let mut state = first;
    for _ in 0..10 {
        for [a, b, c, d] in [
            [0, 4, 8, 12],
            [1, 5, 9, 13],
            [2, 6, 10, 14],
            [3, 7, 11, 15],
            [0, 5, 10, 15],
            [1, 6, 11, 12],
            [2, 7, 8, 13],
            [3, 4, 9, 14],
        ] {
            for (sum, add, target, turn) in
                [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]
            {
                state[sum] = state[sum].wrapping_add(state[add]);
                state[target] = (state[target] ^ state[sum]).rotate_left(turn);
            }
        }
    }
    let mut bytes = [0; 64];
    for (to, (word, add)) in bytes.chunks_exact_mut(4).zip(state.into_iter().zip(first)) {
        to.copy_from_slice(&word.wrapping_add(add).to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439 §2.3.2.
    #[test]
    fn the_key_stream_is_that_of_the_rfc() {
        let key: [u32; 8] = std::array::from_fn(|i| {
            u32::from_le_bytes(std::array::from_fn(|byte| (4 * i + byte) as u8))
        });
        let block = block_of(&key, 1, [0x0900_0000, 0x4a00_0000, 0]);
        assert_eq!(block[..8], [0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15]);
        assert_eq!(block[60..], [0xa2, 0x50, 0x3c, 0x4e]);
    }

    #[test]
    fn a_pipe_passes_the_data_on() {
        let mut worker = Worker::new(Work::Pipe(0), 1000, false).unwrap();
        worker.run(&mut [0; 1000], false).unwrap();
        let mut worker = Worker::new(Work::Pipe(0), 1000, true).unwrap();
        worker.run(&mut [0; 1000], true).unwrap();
    }
}
