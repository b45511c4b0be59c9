//! Sending: replies, the handshake, retransmissions, new data, acknowledgements.

use super::{Connection, NEVER, ORIGIN, Phase, State};
use crate::tcp::control::Control;
use crate::tcp::segment::{Blocks, CWR, ECE, Flags};
use crate::tcp::{Lingering, Segment};
use lastmeter_base::{Ecn, Time};
use std::num::NonZeroU64;

/// The largest unscaled window.
const WINDOW_FIELD_MAX: u64 = 0xffff;

impl Connection {
    /// The next segment to send, or `None` until something else happens. Its data is found with
    /// [`Connection::payload`].
    #[inline]
    pub fn transmit(&mut self, now: Time) -> Option<Segment> {
        let segment = self.next_segment(now);
        if segment.is_some() {
            self.counters.sent += 1;
        }
        segment
    }

    #[inline]
    fn next_segment(&mut self, now: Time) -> Option<Segment> {
        if let Some(reply) = self.reply.take() {
            return Some(*reply);
        }
        match self.state {
            State::Closed | State::Listen => None,
            State::SynSent | State::SynReceived => self.next_opening(now),
            State::TimeWait | State::FinWait2 => self.next_acknowledgement(now),
            _ => match self.due_range(now) {
                Some((start, end)) => Some(self.send(now, start, end)),
                None => self.next_acknowledgement(now),
            },
        }
    }

    #[inline]
    fn due_range(&mut self, now: Time) -> Option<(u64, u64)> {
        match self.control {
            Control::Bbr(_) => self.paced_range(now),
            _ => self.next_range(now),
        }
    }

    #[inline]
    fn next_acknowledgement(&mut self, now: Time) -> Option<Segment> {
        if self.probe_due {
            return Some(self.probe(now));
        }
        self.ack_due.then(|| self.segment(now, self.number(self.max)))
    }

    /// A window probe: a sequence number just below the window, which every receiver answers with its window.
    #[cold]
    fn probe(&mut self, now: Time) -> Segment {
        self.probe_due = false;
        self.counters.probes += 1;
        let seq = self.number(self.una).wrapping_sub(1);
        self.segment(now, seq)
    }

    /// A SYN, or its answer.
    fn next_opening(&mut self, now: Time) -> Option<Segment> {
        if !std::mem::take(&mut self.syn_due) {
            let answers = self.state == State::SynReceived && self.ack_due;
            return answers.then(|| self.acknowledgement(now));
        }
        if self.max == ORIGIN {
            self.max = ORIGIN + 1;
            self.time(self.max, now);
        }
        self.timer_at = now + self.timeout();
        let answers = self.state == State::SynReceived;
        let config = &self.config;
        let offers = |asked: bool, agreed: bool| if answers { agreed } else { asked };
        let scaling = config.scaling && (!answers || self.scale_in + self.scale_out > 0);
        let mut syn = Segment {
            seq: self.iss,
            flags: Flags::SYN,
            window: config.receive_buffer.0.min(WINDOW_FIELD_MAX) as u16,
            mss: Some(config.mss),
            scale: scaling.then(|| self.scale_offered()),
            sack_permitted: offers(config.sack, self.sack),
            opener_lingers: offers(config.lingering == Lingering::Negotiate, self.opener_lingers),
            ..Segment::default()
        };
        if offers(config.timestamps, self.timestamps) {
            syn.timestamps = Some((self.ticks(now), self.ts_recent));
        }
        if answers {
            syn.ack = self.irs.wrapping_add(self.next as u32);
            syn.flags = syn.flags.and(Flags::ACK);
            self.acked = self.next;
            self.advertised = self.next + u64::from(syn.window);
            self.ack_due = false;
        }
        if offers(config.ecn, self.ecn) {
            syn.flags = syn.flags.and(if answers { ECE } else { ECE.and(CWR) });
        }
        Some(syn)
    }

    /// A pure acknowledgement of all data in order.
    fn acknowledgement(&mut self, now: Time) -> Segment {
        let seq = self.number(self.max);
        self.segment(now, seq)
    }

    /// RFC 8257 §3.2: acknowledges the data so far with the echo that applied to it.
    pub(super) fn reply_with_echo(&mut self, now: Time) {
        let segment = self.acknowledgement(now);
        self.reply = Some(Box::new(segment));
    }

    #[inline(always)]
    fn segment(&mut self, now: Time, seq: u32) -> Segment {
        let window = self.window_field();
        self.ack_due = false;
        self.unacknowledged = 0;
        self.ack_at = NEVER;
        self.acked = self.next;
        let mut segment = Segment {
            seq,
            ack: self.irs.wrapping_add(self.next as u32),
            window,
            flags: Flags::ACK.and(self.echo_flags()),
            ..Segment::default()
        };
        if self.timestamps {
            segment.timestamps = Some((self.ticks(now), self.ts_recent));
        }
        if self.sack && !self.held.is_empty() {
            segment.blocks = self.blocks();
        }
        segment
    }

    /// The advertised window, whose edge never moves back, and forward only by a sufficient step (RFC 9293
    /// §3.8.6.2.2).
    #[inline]
    fn window_field(&mut self) -> u16 {
        let buffer = self.config.receive_buffer.0;
        let step = self.mss.min(buffer / 2);
        let free = self.consumed + buffer;
        let edge = match free >= self.advertised + step {
            true => free,
            false => self.advertised,
        };
        let room = edge.saturating_sub(self.next);
        let mut field = (room >> self.scale_in).min(WINDOW_FIELD_MAX);
        let least = self.advertised.saturating_sub(self.next);
        if field << self.scale_in < least && field < WINDOW_FIELD_MAX {
            field += 1;
        }
        self.advertised = self.advertised.max(self.next + (field << self.scale_in));
        field as u16
    }

    /// The blocks that changed last, as many as fit (RFC 2018 §4).
    #[inline(never)]
    fn blocks(&self) -> Blocks {
        let most = if self.timestamps { 3 } else { 4 };
        let mut told: [(u64, u64); 4] = [(0, 0); 4];
        let mut count = 0;
        let recent = self.recent.iter().filter_map(|&position| self.held.around(position));
        for range in recent.chain(self.held.as_slice().iter().copied()) {
            if count < most && !told[..count].contains(&range) {
                told[count] = range;
                count += 1;
            }
        }
        let number = |position: u64| self.irs.wrapping_add(position as u32);
        told[..count].iter().map(|&(left, right)| (number(left), number(right))).collect()
    }

    /// The positions to send next, if any.
    #[inline]
    pub(super) fn next_range(&mut self, now: Time) -> Option<(u64, u64)> {
        let end = self.written + u64::from(self.closing);
        if self.una == end {
            return None;
        }
        if self.phase != Phase::Open
            && let Some(range) = self.lost_range()
        {
            return Some(range);
        }
        let fresh = self.fresh_range(now, end);
        match fresh {
            None if self.phase == Phase::Recovery && self.sack => self.doubtful_range(),
            _ => fresh,
        }
    }

    /// The next retransmission: the first segment where that is due, else the next lost one.
    fn lost_range(&mut self) -> Option<(u64, u64)> {
        let full = |(start, end): (u64, u64), mss: u64| (start, end.min(start + mss));
        if std::mem::take(&mut self.head_due) {
            self.timer_at = NEVER;
            return self.sacked.gap(self.una, self.max).map(|gap| full(gap, self.mss));
        }
        if self.phase == Phase::Recovery && !self.sack {
            return None;
        }
        let until = match self.phase {
            Phase::Loss => self.recover,
            _ => self.lost_until(),
        };
        let gap = self.sacked.gap(self.rxt.max(self.una), until)?;
        let room = self.pipe() + self.mss <= self.window.congestion;
        (room && self.burst_left > 0).then(|| full(gap, self.mss))
    }

    /// RFC 6675 §4, rule 3 of `NextSeg`: data missing below something that has arrived, although it does not
    /// count as lost yet, when there is nothing else to send.
    fn doubtful_range(&self) -> Option<(u64, u64)> {
        let (start, end) = self.sacked.gap(self.rxt.max(self.una), self.sacked.end()?)?;
        let room = self.pipe() + self.mss <= self.window.congestion;
        (room && self.burst_left > 0).then(|| (start, end.min(start + self.mss)))
    }

    /// New data, as the windows, Nagle's rule and the silly-window rule allow.
    #[inline]
    fn fresh_range(&mut self, now: Time, end: u64) -> Option<(u64, u64)> {
        if self.max >= end {
            return None;
        }
        let waiting = self.written - self.max;
        if waiting == 0 {
            return Some((self.max, end)); // Only the FIN, which needs no window.
        }
        let full = self.mss - self.blocks_len();
        let room = (self.una + self.wnd).saturating_sub(self.max);
        let len = waiting.min(full).min(room);
        if len < full && !self.may_send_short(now, len, waiting) {
            return None;
        }
        if !self.congestion_allows(len) {
            return None;
        }
        self.probe_due = false;
        Some((self.max, self.max + len + u64::from(self.closing && len == waiting)))
    }

    /// Whether a short segment may go: RFC 9293 §3.7.4 (Nagle) and §3.8.6.2.1.
    fn may_send_short(&mut self, now: Time, len: u64, waiting: u64) -> bool {
        let idle = self.max == self.una;
        if len == waiting {
            return !self.config.nagle || self.closing || idle;
        }
        let worth = len > 0 && (2 * len >= self.wnd_max || self.probe_due);
        if !worth && idle && self.timer_at == NEVER {
            self.arm_persist(now);
        }
        worth
    }

    /// Whether the congestion window and the burst limit allow `len` more bytes.
    #[inline]
    fn congestion_allows(&mut self, len: u64) -> bool {
        if self.burst_left == 0 && self.max > self.una {
            return false;
        }
        if self.phase == Phase::Open {
            let mut flight = self.max - self.una;
            if self.config.limited_transmit {
                // RFC 3042: each of the first two duplicates means that a segment has left the network.
                flight -= match self.sack {
                    true => self.sacked.covered(),
                    false => (u64::from(self.duplicates.min(2)) * self.mss).min(flight),
                };
            }
            return flight + len <= self.window.congestion;
        }
        if self.phase == Phase::Recovery && !self.sack && self.config.one_for_two {
            // Hoe: half the rate at which segments leave.
            let allowed = self.halves >= 2;
            self.halves -= if allowed { 2 } else { 0 };
            return allowed;
        }
        self.pipe() + len <= self.window.congestion
    }

    /// Bytes that blocks will take in the next segment.
    #[inline]
    fn blocks_len(&self) -> u64 {
        match self.sack && !self.held.is_empty() {
            true => {
                let most = if self.timestamps { 3 } else { 4 };
                4 + 8 * self.held.as_slice().len().min(most) as u64
            }
            false => 0,
        }
        .min(self.mss - 1)
    }

    /// Sends positions `start` to `end`, data and FIN. Inlined, because a segment is too large to be copied
    /// needlessly.
    #[inline(always)]
    fn send(&mut self, now: Time, start: u64, end: u64) -> Segment {
        let data_end = end.min(self.written);
        let len = data_end - start;
        let seq = self.number(start);
        let mut segment = self.segment(now, seq);
        segment.len = len as u16;
        if data_end == self.written {
            segment.flags = segment.flags.and(Flags::PSH);
        }
        if end > self.written {
            segment.flags = segment.flags.and(Flags::FIN);
            self.note_fin_sent();
        }
        self.counters.bytes_sent += len;
        if let Control::Bbr(_) = self.control {
            self.note_sent(now, start, end);
        }
        if self.phase == Phase::Recovery {
            self.proportional.out += len;
        }
        self.burst_left = self.burst_left.saturating_sub(1);
        if start < self.max {
            self.counters.retransmissions += 1;
            self.timed = None;
            self.rxt = self.rxt.max(end);
        } else {
            self.max = end;
            if self.timed.is_none() && self.phase == Phase::Open {
                self.time(end, now);
            }
            if self.ecn {
                // RFC 3168 §6.1.5: retransmissions are not ECN-capable.
                segment.ecn = Ecn::Ect0;
                if std::mem::take(&mut self.cwr_due) {
                    segment.flags = segment.flags.and(CWR);
                }
            }
        }
        if self.timer_at == NEVER {
            self.timer_at = now + self.timeout();
        }
        segment
    }

    /// Starts an RTT sample of the segment that ends at position `end`.
    fn time(&mut self, end: u64, now: Time) {
        self.timed = NonZeroU64::new(end).map(|end| (end, now));
    }

    fn note_fin_sent(&mut self) {
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => {}
        }
    }
}
