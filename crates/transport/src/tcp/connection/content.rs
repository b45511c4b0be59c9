//! The data of a connection that carries real bytes.

use super::ORIGIN;
use std::collections::VecDeque;

/// Unacknowledged data, and data waiting for the application.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) sent: VecDeque<u8>,
    /// The position of the first byte of `sent`.
    pub(super) sent_from: u64,
    /// From the first byte that the application has not read; zeros where data is missing.
    pub(super) received: VecDeque<u8>,
}

impl Default for Content {
    fn default() -> Content {
        Content { sent: VecDeque::new(), sent_from: ORIGIN + 1, received: VecDeque::new() }
    }
}

impl Content {
    /// Forgets what was acknowledged, up to position `una`.
    pub(super) fn acknowledged(&mut self, una: u64) {
        let count = una.saturating_sub(self.sent_from).min(self.sent.len() as u64);
        self.sent.drain(..count as usize);
        self.sent_from += count;
    }

    /// Stores bytes at `offset` after the first that the application has not read. The caller has checked that
    /// they are in the window.
    pub(super) fn store(&mut self, offset: u64, bytes: &[u8]) {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if self.received.len() < end {
            self.received.resize(end, 0);
        }
        let places = self.received.range_mut(start..end);
        places.zip(bytes).for_each(|(place, byte)| *place = *byte);
    }
}
