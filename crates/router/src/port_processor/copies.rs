//! Copies of packets for the control processor (D-29): a bounded buffer that a port processor never waits for.
//!
//! ```text
//! packet whose rule says `copy` --> [ at most 512 copies, 1 MiB ] --> `lastmeter router copies`, as pcapng
//!                                       full or in use: counted as lost
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Limit on copies that wait.
pub const COPIES_MAX: usize = 512;
/// Limit on their bytes.
pub const COPIES_BYTES_MAX: usize = 1 << 20;

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// When it arrived, in nanoseconds since the port processor began.
    pub at: u64,
    /// On which port.
    pub port: u16,
    /// The whole frame, without a check sequence.
    pub frame: Vec<u8>,
}

/// Copies that nobody has fetched yet.
#[derive(Debug)]
pub struct Copies {
    began: Instant,
    waiting: Mutex<(VecDeque<Copied>, usize)>,
    /// Copies made.
    pub made: AtomicU64,
    /// Packets that should have been copied, and were not.
    pub lost: AtomicU64,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies {
            began: Instant::now(),
            waiting: Mutex::default(),
            made: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }
}

impl Copies {
    /// Copies a frame, if there is room and nobody fetches copies at this moment.
    pub fn put(&self, port: u16, frame: &[u8]) {
        if let Ok(mut waiting) = self.waiting.try_lock()
            && waiting.0.len() < COPIES_MAX
            && waiting.1 + frame.len() <= COPIES_BYTES_MAX
        {
            let at = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            waiting.1 += frame.len();
            waiting.0.push_back(Copied { at, port, frame: frame.to_vec() });
            self.made.fetch_add(1, Relaxed);
        } else {
            self.lost.fetch_add(1, Relaxed);
        }
    }
    /// What has been copied since the last time.
    pub fn take(&self) -> Vec<Copied> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.1 = 0;
        waiting.0.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_not_kept() {
        let copies = Copies::default();
        (0..COPIES_MAX + 3).for_each(|at| copies.put(1, &[at as u8; 60]));
        let taken = copies.take();
        assert_eq!((taken.len(), copies.lost.load(Relaxed)), (COPIES_MAX, 3));
        assert_eq!((taken[1].port, &taken[1].frame[..]), (1, &[1; 60][..]));
        (0..COPIES_BYTES_MAX / 4000 + 5).for_each(|_| copies.put(0, &[0; 4000]));
        let bytes: usize = copies.take().iter().map(|copied| copied.frame.len()).sum();
        assert!(bytes <= COPIES_BYTES_MAX && bytes > COPIES_BYTES_MAX - 4000, "{bytes}");
        assert!(copies.take().is_empty());
    }
}
