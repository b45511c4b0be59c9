//! A connection's interface to the application.

use super::{Connection, Ended, ORIGIN, State};
use crate::tcp::Segment;

impl Connection {
    /// Free space in the send buffer, in bytes.
    #[inline]
    pub fn writable(&self) -> u64 {
        match self.closing || self.state == State::Closed {
            true => 0,
            false => {
                let held = self.written - self.una.max(ORIGIN + 1);
                self.config.send_buffer.0.saturating_sub(held)
            }
        }
    }

    /// Writes bytes; returns how many of them the buffer took. Without
    /// [`Config::content`](super::Config::content) only their count is stored.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = self.writable().min(bytes.len() as u64) as usize;
        if let Some(content) = &mut self.content {
            content.sent.extend(&bytes[..taken]);
        }
        self.written += taken as u64;
        taken
    }

    /// Writes `bytes` unspecified bytes, zeros where content is stored; returns how many the buffer
    /// took.
    #[inline]
    pub fn offer(&mut self, bytes: u64) -> u64 {
        let taken = self.writable().min(bytes);
        if let Some(content) = &mut self.content {
            content.sent.resize(content.sent.len() + taken as usize, 0);
        }
        self.written += taken;
        taken
    }

    /// Bytes written that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.una.min(self.written).saturating_sub(ORIGIN + 1)
    }

    /// Bytes that have arrived in order and that the application has not read.
    #[inline]
    pub fn readable(&self) -> u64 {
        let end = self.fin.map_or(self.next, |fin| fin.get().min(self.next));
        end.saturating_sub(self.consumed)
    }

    /// Bytes that have arrived in order since the connection was opened.
    #[inline]
    pub fn received(&self) -> u64 {
        self.delivered() + self.readable()
    }

    /// Bytes that the application has read since the connection was opened.
    #[inline]
    pub fn delivered(&self) -> u64 {
        self.consumed - (ORIGIN + 1)
    }

    /// Consumes up to `bytes` bytes; returns how many there were. This may open the window, and `transmit`
    /// then tells the peer.
    #[inline]
    pub fn consume(&mut self, bytes: u64) -> u64 {
        let taken = self.readable().min(bytes);
        if let Some(content) = &mut self.content {
            content.received.drain(..taken as usize);
        }
        self.consumed += taken;
        if taken > 0 {
            self.note_window();
        }
        taken
    }

    /// Reads bytes into `out`; returns how many. Without content they are zeros.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let len = self.readable().min(out.len() as u64) as usize;
        match &self.content {
            Some(content) => {
                let bytes = content.received.range(..len);
                out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
            }
            None => out[..len].fill(0),
        }
        self.consume(len as u64) as usize
    }

    /// Whether the peer has no more to send and everything has been read.
    pub fn at_end(&self) -> bool {
        let finished = self.fin.is_some_and(|fin| self.next > fin.get());
        self.readable() == 0 && (finished || self.state == State::Closed)
    }

    /// No more data: a FIN follows what was written. During the handshake it waits, unless nothing was
    /// written.
    pub fn close(&mut self) {
        self.closing = true;
        let unused = self.state == State::SynSent && self.written == ORIGIN + 1;
        if unused || self.state == State::Listen {
            self.end(Ended::Aborted);
        }
    }

    /// Aborts the connection, with a reset to the peer if it knows of the connection.
    pub fn abort(&mut self) {
        let known =
            !matches!(self.state, State::Closed | State::Listen | State::SynSent | State::TimeWait);
        if known {
            self.reply = Some(Box::new(self.reset()));
        }
        if self.state != State::Closed {
            self.end(Ended::Aborted);
        }
    }

    /// Copies the data of a segment from [`Connection::transmit`] into `out`, from content.
    /// Returns whether all of it was there: without content nothing is.
    pub fn payload(&self, segment: &Segment, out: &mut Vec<u8>) -> bool {
        let Some(content) = &self.content else { return segment.len == 0 };
        let start = self.place_of_ack(segment.seq).saturating_sub(content.sent_from) as usize;
        let end = start + usize::from(segment.len);
        let all = end <= content.sent.len();
        if all {
            out.extend(content.sent.range(start..end));
        }
        all
    }
}
