//! Receiving: the handshake, data in and out of order, FIN and resets (RFC 9293 §3.10.7).

use super::{Connection, Ended, ORIGIN, State};
use crate::tcp::control::Kind;
use crate::tcp::segment::{CWR, ECE, Flags};
use crate::tcp::{Lingering, Segment};
use lastmeter_base::{Bytes, Ecn, Time};
use std::num::NonZeroU64;

/// The largest shift of a window (RFC 7323 §2.3).
const SCALE_MAX: u8 = 14;
/// Bytes that timestamps take in every segment, padding included (RFC 7323 appendix A).
const TIMESTAMPS_LEN: u64 = 12;
/// The MSS of a peer that does not send one (RFC 9293 §3.7.1).
const MSS_DEFAULT: u16 = 536;

impl Connection {
    /// Processes a segment. `payload` is its data, or empty where only the length is known.
    #[inline]
    pub fn receive(&mut self, now: Time, segment: &Segment, payload: &[u8]) {
        self.counters.received += 1;
        self.burst_left = self.config.burst_max.unwrap_or(u32::MAX);
        match self.state {
            State::Closed => self.refuse(segment),
            State::Listen => self.receive_listening(now, segment),
            State::SynSent => self.receive_opening(now, segment, payload),
            _ => self.receive_synchronized(now, segment, payload),
        }
    }

    /// Answers a segment without connection with a reset (RFC 9293 §3.10.7.1).
    fn refuse(&mut self, segment: &Segment) {
        if segment.has(Flags::RST) {
            return;
        }
        let reset = match segment.has(Flags::ACK) {
            true => Segment { seq: segment.ack, flags: Flags::RST, ..Segment::default() },
            false => Segment {
                ack: segment.seq.wrapping_add(segment.space() as u32),
                flags: Flags::RST.and(Flags::ACK),
                ..Segment::default()
            },
        };
        self.reply = Some(Box::new(reset));
    }

    fn receive_listening(&mut self, _now: Time, segment: &Segment) {
        if segment.has(Flags::RST) {
            return;
        }
        if segment.has(Flags::ACK) {
            self.refuse(segment);
            return;
        }
        if !segment.has(Flags::SYN) {
            return;
        }
        self.agree(segment);
        self.ecn = self.config.ecn && segment.has(ECE.and(CWR));
        self.state = State::SynReceived;
        self.syn_due = true;
    }

    /// Records the options of the peer's SYN (RFC 7323 §2.2, RFC 2018 §2, RFC 6691).
    fn agree(&mut self, syn: &Segment) {
        self.opener_lingers = self.config.lingering == Lingering::Negotiate && syn.opener_lingers;
        self.irs = syn.seq;
        self.next = ORIGIN + 1;
        self.advertised = self.next;
        let mss = syn.mss.unwrap_or(MSS_DEFAULT).min(self.config.mss);
        self.timestamps = self.config.timestamps && syn.timestamps.is_some();
        self.sack = self.config.sack && syn.sack_permitted;
        let options = if self.timestamps { TIMESTAMPS_LEN } else { 0 };
        self.mss = u64::from(mss).saturating_sub(options).max(1);
        self.window.mss = self.mss;
        self.window.congestion = u64::from(self.config.initial_window.max(1)) * self.mss;
        match syn.scale.filter(|_| self.config.scaling) {
            Some(scale) => {
                self.scale_out = scale.min(SCALE_MAX);
                self.scale_in = self.scale_offered();
            }
            None => (self.scale_out, self.scale_in) = (0, 0),
        }
        if let Some((value, _)) = syn.timestamps.filter(|_| self.timestamps) {
            self.ts_recent = value;
        }
        // The window of a SYN is never scaled.
        self.wnd = syn.window.into();
        self.wnd_max = self.wnd;
        (self.wl1, self.wl2) = (ORIGIN, ORIGIN);
    }

    /// The shift that allows the whole receive buffer to be advertised.
    pub(super) fn scale_offered(&self) -> u8 {
        let buffer = self.config.receive_buffer.0;
        (0..SCALE_MAX).find(|&shift| buffer >> shift <= 0xffff).unwrap_or(SCALE_MAX)
    }

    fn receive_opening(&mut self, now: Time, segment: &Segment, payload: &[u8]) {
        let acks = segment.has(Flags::ACK);
        let ack = self.place_of_ack(segment.ack);
        if acks && (ack <= ORIGIN || ack > self.max) {
            self.refuse(segment);
            return;
        }
        if segment.has(Flags::RST) {
            if acks {
                self.end(Ended::Refused);
            }
            return;
        }
        if !segment.has(Flags::SYN) {
            return;
        }
        self.agree(segment);
        if !acks {
            // Simultaneous open.
            self.ecn = self.config.ecn && segment.has(ECE.and(CWR));
            self.state = State::SynReceived;
            self.syn_due = true;
            return;
        }
        self.ecn = self.config.ecn && segment.has(ECE) && !segment.has(CWR);
        self.una = ack;
        let sent = self.timed.take().filter(|_| self.tries == 0);
        self.establish(now);
        if let Some((_, sent)) = sent {
            self.rtt.sample(&self.config, now.saturating_since(sent));
        }
        match self.config.acknowledge_opening {
            true => self.reply_with_echo(now),
            false => self.ack_due = true,
        }
        self.take_data(now, segment, self.next, payload);
    }

    fn establish(&mut self, _now: Time) {
        self.state = State::Established;
        if self.tries > 0 {
            // The handshake lost a segment: RFC 5681 §3.1 and RFC 6298 §5.7.
            self.window.congestion = self.mss;
            self.rtt.begin_again(&self.config);
            self.tries = 0;
        }
        if self.config.acknowledge_first {
            self.unacknowledged = self.config.acknowledge_every.saturating_sub(1);
        }
        self.timer_at = super::NEVER;
        self.recover = ORIGIN; // RFC 6582 §3.2: below all data.
        self.rxt = self.una;
    }

    fn receive_synchronized(&mut self, now: Time, segment: &Segment, payload: &[u8]) {
        let start = match segment.has(Flags::SYN) {
            true => self.place(segment.seq.wrapping_add(1)),
            false => self.place(segment.seq),
        };
        if self.timestamps && !segment.has(Flags::RST) {
            // RFC 7323 §3.2: a segment without the option is dropped, one with an old timestamp (§5.3) refused.
            let Some((value, _)) = segment.timestamps else { return };
            if (value.wrapping_sub(self.ts_recent) as i32) < 0 {
                self.ack_due = true;
                return;
            }
            if start <= self.acked {
                self.ts_recent = value;
            }
        }
        if segment.has(Flags::RST) {
            self.receive_reset(start);
            return;
        }
        if segment.has(Flags::SYN) {
            // RFC 5961 §4.2: a challenge ACK. A SYN that crossed ours is answered by ours.
            let crossed = self.state == State::SynReceived && segment.seq == self.irs;
            self.syn_due |= crossed && !segment.has(Flags::ACK);
            self.ack_due |= !crossed || segment.has(Flags::ACK);
            if !(crossed && segment.has(Flags::ACK)) {
                return;
            }
        }
        if !self.acceptable(start, segment) {
            self.ack_due = true;
            if self.state == State::TimeWait {
                self.linger_at = now + self.config.linger;
            }
            return;
        }
        if !segment.has(Flags::ACK) {
            return;
        }
        let ack = self.place_of_ack(segment.ack);
        if self.state == State::SynReceived {
            if ack <= ORIGIN || ack > self.max {
                self.refuse(segment);
                return;
            }
            self.una = ack.min(ORIGIN + 1);
            self.establish(now);
            (self.wl1, self.wl2) = (start, ack);
            self.wnd = u64::from(segment.window) << self.scale_out;
            self.wnd_max = self.wnd;
        }
        if self.acknowledge(now, segment, start, ack) && self.state != State::Closed {
            self.take_data(now, segment, start, payload);
        }
    }

    fn receive_reset(&mut self, start: u64) {
        // RFC 5961 §3.2: only the exact number counts; any other in the window gets a challenge ACK.
        if start == self.next {
            let why = match self.state {
                State::SynReceived => Ended::Refused,
                State::TimeWait => Ended::Done,
                _ => Ended::Reset,
            };
            self.end(why);
        } else if start > self.next && start < self.advertised {
            self.ack_due = true;
        }
    }

    /// RFC 9293 §3.10.7.4, first check. With a closed window, a segment at its edge still counts for its
    /// acknowledgement.
    #[inline]
    fn acceptable(&self, start: u64, segment: &Segment) -> bool {
        let end = start.wrapping_add(segment.space() - u64::from(segment.has(Flags::SYN)));
        match segment.space() {
            0 => start >= self.next && start <= self.advertised,
            _ => (start < self.advertised && end > self.next) || start == self.next,
        }
    }

    /// Data and FIN, which start at position `start`.
    fn take_data(&mut self, now: Time, segment: &Segment, start: u64, payload: &[u8]) {
        if self.ecn {
            self.note_mark(now, segment);
        }
        if segment.space() == u64::from(segment.has(Flags::SYN)) {
            return;
        }
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            // The peer's FIN has come, so this is a retransmission.
            self.ack_due = true;
            if self.state == State::TimeWait {
                self.linger_at = now + self.config.linger;
            }
            return;
        }
        let mut end = start + u64::from(segment.len);
        let fin = NonZeroU64::new(end);
        if segment.has(Flags::FIN) && end <= self.advertised && (self.fin.or(fin) == fin) {
            self.fin = fin;
            end += 1;
        }
        end = end.min(self.advertised.max(self.fin.map_or(0, |fin| fin.get() + 1)));
        let first = start.max(self.next);
        if first >= end {
            self.ack_due = true;
            return;
        }
        self.store(start, first, end, payload);
        if first > self.next {
            // RFC 5681 §4.2: out of order, so acknowledged at once.
            if self.held.insert(first, end) > 0 || self.held.around(first).is_some() {
                self.note_recent(first);
            }
            self.ack_due = true;
            return;
        }
        self.next = end;
        let fills = !self.held.is_empty();
        if fills {
            self.fill();
        }
        self.note_received(now, u64::from(segment.len), fills);
        if self.fin.is_some_and(|fin| self.next > fin.get()) {
            self.receive_fin(now);
        }
    }

    /// Delivers data that had arrived out of order and is in order now.
    fn fill(&mut self) {
        if let Some((_, right)) = self.held.around(self.next) {
            self.next = right;
        }
        self.held.remove_below(self.next);
    }

    fn store(&mut self, start: u64, first: u64, end: u64, payload: &[u8]) {
        let Some(content) = &mut self.content else { return };
        let end = end.min(start + payload.len() as u64);
        if first < end {
            let bytes = &payload[(first - start) as usize..(end - start) as usize];
            content.store(first - self.consumed, bytes);
        }
    }

    /// Data came in order: acknowledged at once, or together with the next (RFC 1122 §4.2.3.2).
    #[inline]
    fn note_received(&mut self, now: Time, len: u64, fills: bool) {
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        let every = self.config.acknowledge_every;
        let ends = |size: Bytes| self.next / size.0 > self.next.saturating_sub(len) / size.0;
        let pushed = self.config.acknowledge_writes.is_some_and(ends);
        if fills || pushed || !self.held.is_empty() || self.unacknowledged >= every || len == 0 {
            self.ack_due = true;
        } else if self.ack_at == super::NEVER {
            self.ack_at = now + self.config.acknowledge_within;
        }
    }

    fn note_recent(&mut self, position: u64) {
        let range = self.held.around(position);
        let mut kept = [position, 0, 0, 0];
        let others = self.recent.iter().filter(|&&other| self.held.around(other) != range);
        kept[1..].iter_mut().zip(others).for_each(|(place, &other)| *place = other);
        self.recent = kept;
    }

    fn receive_fin(&mut self, now: Time) {
        self.ack_due = true;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    /// Echoes marks: until the peer has reduced its window (RFC 3168 §6.1.3), or each one exactly
    /// (RFC 8257 §3.2).
    fn note_mark(&mut self, now: Time, segment: &Segment) {
        let marked = segment.ecn == Ecn::Ce;
        if self.config.control == Kind::Dctcp {
            if segment.len > 0 && marked != self.echo {
                // What came before is acknowledged with its own echo, at once.
                if self.unacknowledged > 0 {
                    self.reply_with_echo(now);
                }
                self.echo = marked;
            }
            return;
        }
        if segment.has(CWR) {
            self.echo = false;
        }
        self.echo |= marked;
    }

    /// The application has read data: a window update is sent when the window has opened by a segment or by half
    /// the buffer (RFC 9293 §3.8.6.2.2).
    #[inline]
    pub(super) fn note_window(&mut self) {
        let buffer = self.config.receive_buffer.0;
        let step = self.mss.min(buffer / 2);
        let edge = self.consumed + buffer;
        let closed = self.advertised < self.next + self.mss.min(buffer);
        if closed && edge >= self.advertised + step && self.fin.is_none() {
            self.ack_due = true;
        }
    }
}
