//! The application's side of a connection.

use super::{Connection, Ended, ORIGIN, State};
use crate::tcp::Segment;

impl Connection {
    /// Bytes that the send buffer has room for.
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

    /// Writes bytes; gives how many of them the buffer took. Without
    /// [`Config::content`](super::Config::content) only their number is kept.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = self.writable().min(bytes.len() as u64) as usize;
        if let Some(content) = &mut self.content {
            content.sent.extend(&bytes[..taken]);
        }
        self.written += taken as u64;
        taken
    }

    /// Writes `bytes` bytes that are not told, zeros where content is kept; gives how many the
    /// buffer took.
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

    /// Bytes that have arrived in order and that the application has not taken.
    #[inline]
    pub fn readable(&self) -> u64 {
        let end = self.fin.map_or(self.next, |fin| fin.get().min(self.next));
        end.saturating_sub(self.consumed)
    }

    /// Bytes that the application has taken since the connection was made.
    #[inline]
    pub fn delivered(&self) -> u64 {
        self.consumed - (ORIGIN + 1)
    }

    /// Takes up to `bytes` bytes; gives how many there were. The window may open by that, and
    /// `transmit` then tells the peer.
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

    /// Takes bytes into `out`; gives how many. Without content they are zeros.
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

    /// Whether the peer has no more to send and everything has been taken.
    pub fn at_end(&self) -> bool {
        let finished = self.fin.is_some_and(|fin| self.next > fin.get());
        self.readable() == 0 && (finished || self.state == State::Closed)
    }

    /// There is no more to send: a FIN follows what was written. Before the handshake is over it
    /// waits for that, unless nothing was written.
    pub fn close(&mut self) {
        self.closing = true;
        let unused = self.state == State::SynSent && self.written == ORIGIN + 1;
        if unused || self.state == State::Listen {
            self.end(Ended::Aborted);
        }
    }

    /// Gives the connection up: the peer is told by a reset, where it knows of the connection.
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

    /// Copies the data of a segment that [`Connection::transmit`] gave into `out`, from content.
    /// Says whether all of it was there: without content nothing is.
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
