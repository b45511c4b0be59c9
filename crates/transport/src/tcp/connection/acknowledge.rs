//! Processing of acknowledgements, and loss recovery.
//!
//! * *open*.
//! * *recovery* is entered on three duplicates (RFC 5681 §3.2), or when the scoreboard says so (RFC 6675
//!   §5). With Reno the first new acknowledgement ends it, otherwise that of all data sent before.
//! * *loss* is entered on a timeout (RFC 6298 §5.4), with Tahoe also on three duplicates, and ends when all
//!   data sent before is acknowledged.

use super::paced::Reported;
use super::start_up::StartUp;
use super::{Connection, Ended, NEVER, ORIGIN, Phase, Proportional, State};
use crate::tcp::Segment;
use crate::tcp::config::Recovery;
use crate::tcp::control::Acknowledged;
use crate::tcp::segment::{ECE, Flags};
use lastmeter_base::Time;

/// Doublings of the persist timer that are counted.
const PROBES_MAX: u8 = 10;

impl Connection {
    /// Processes the acknowledgement of a segment that starts at position `start`; returns whether the rest of the
    /// segment counts.
    pub(super) fn acknowledge(
        &mut self,
        now: Time,
        segment: &Segment,
        start: u64,
        ack: u64,
    ) -> bool {
        if ack > self.max {
            self.ack_due = true;
            return false;
        }
        if ack < self.una {
            return true;
        }
        let window = self.wnd;
        self.update_window(segment, start, ack);
        if self.una == self.max {
            self.tries = 0; // The peer is alive, even if its window is closed.
            return true;
        }
        let model = self.before_model();
        let before = self.una + self.sacked.covered();
        let flight = self.outstanding();
        let new_blocks = self.sack && !segment.blocks.is_empty() && self.note_blocks(now, segment);
        let acked = ack - self.una;
        let marked = self.ecn && segment.has(ECE);
        if acked > 0 {
            self.advance(now, segment, ack);
            self.control.observed(self.una, self.max, acked, marked);
            if self.state == State::Closed {
                return false;
            }
        }
        // RFC 5681 §2, or new blocks (RFC 6675 §2).
        let duplicate = acked == 0
            && match self.sack {
                true => new_blocks,
                false => segment.space() == 0 && window == self.wnd,
            };
        let delivered = self.una + self.sacked.covered() - before;
        match self.phase {
            Phase::Open => {
                self.acknowledge_open(now, acked, (flight, delivered), duplicate, marked);
            }
            Phase::Recovery => self.acknowledge_recovery(now, acked, delivered, duplicate),
            Phase::Loss => self.acknowledge_loss(now, acked, delivered),
        }
        if let Some(before) = model {
            self.update_model(now, before, Reported { delivered, duplicate });
        }
        if self.una == self.max {
            self.timer_at = NEVER;
        } else if acked > 0 && !(self.phase == Phase::Recovery && self.restarted && !self.sack) {
            // RFC 6298 §5.3; in NewReno's recovery only the first time (RFC 6582 §4, "impatient").
            self.restarted = self.phase == Phase::Recovery;
            self.timer_at = now + self.timeout();
        }
        true
    }

    /// RFC 9293 §3.10.7.4: not by an older segment.
    #[inline]
    fn update_window(&mut self, segment: &Segment, start: u64, ack: u64) {
        if self.wl1 < start || (self.wl1 == start && self.wl2 <= ack) {
            self.wnd = u64::from(segment.window) << self.scale_out;
            self.wnd_max = self.wnd_max.max(self.wnd);
            (self.wl1, self.wl2) = (start, ack);
            if self.wnd > 0 {
                self.probes = 0;
            }
        }
    }

    /// New data is acknowledged.
    #[inline]
    fn advance(&mut self, now: Time, segment: &Segment, ack: u64) {
        self.una = ack;
        self.tries = 0;
        if ack > self.rxt || self.timestamps {
            self.rtt.forget_back_off();
        }
        if let Some(StartUp::HyStart(hystart)) = self.start_up.as_deref_mut() {
            let echo = segment.timestamps.map_or(0, |(_, echo)| echo);
            let clock = self.config.granularity;
            let ticks = ((now.as_ps() / clock.as_ps().max(1)) as u32).wrapping_sub(echo);
            if echo != 0 && ticks < 1 << 20 {
                hystart.sample(clock * u64::from(ticks));
            }
        }
        match self.timed {
            Some((end, sent)) if ack >= end.get() => {
                self.timed = None;
                self.rtt.sample(&self.config, now.saturating_since(sent));
            }
            // Without timestamps, retransmitted segments give no sample (Karn; RFC 7323 §4.1).
            None if self.timestamps && self.phase != Phase::Open => {
                let echo = segment.timestamps.map_or(0, |(_, echo)| echo);
                let ticks = self.ticks(now).wrapping_sub(echo);
                if echo != 0 && ticks < 1 << 20 {
                    self.rtt
                        .sample(&self.config, self.config.granularity * u64::from(ticks.max(1)));
                }
            }
            _ => {}
        }
        self.rxt = self.rxt.max(ack);
        if !self.sacked.is_empty() {
            self.sacked.remove_below(ack);
        }
        if let Some(content) = &mut self.content {
            content.acknowledged(ack.min(self.written));
        }
        if self.closing && ack == self.written + 1 {
            match self.state {
                State::FinWait1 => self.state = State::FinWait2,
                State::Closing => self.enter_time_wait(now),
                State::LastAck => self.finish_last(now),
                _ => {}
            }
        }
    }

    /// Enters blocks into the scoreboard; returns whether one was new.
    fn note_blocks(&mut self, now: Time, segment: &Segment) -> bool {
        let mut new = 0;
        for &(left, right) in segment.blocks.as_slice() {
            let (left, right) = (self.place_of_ack(left), self.place_of_ack(right));
            if self.una < right && left < right && right <= self.max {
                let left = left.max(self.una);
                self.note_arrived(now, left, right);
                new += self.sacked.insert(left, right);
            }
        }
        new > 0
    }

    #[inline]
    fn acknowledge_open(
        &mut self,
        now: Time,
        acked: u64,
        (flight, delivered): (u64, u64),
        duplicate: bool,
        marked: bool,
    ) {
        if acked > 0 {
            self.duplicates = 0;
            if let Some(StartUp::Capacity(_)) = self.start_up.as_deref() {
                self.estimate(now);
            }
            if marked && self.una > self.marked_until {
                self.reduce(now, flight);
            } else if !marked && self.is_limited(flight) {
                self.grow(now, delivered);
            }
        } else if duplicate {
            self.duplicates += 1;
        } else {
            return;
        }
        let by_count = self.duplicates >= u32::from(self.config.duplicates);
        let by_blocks = !self.sacked.is_empty() && self.lost_below() > self.una;
        if (by_count && self.may_recover()) || by_blocks {
            self.enter_recovery(now, flight, delivered);
        }
    }

    /// Whether the congestion window, and not the application or the peer, limits the sender: otherwise it must
    /// not grow (RFC 7661 §1; in slow start using half of it suffices).
    #[inline]
    fn is_limited(&self, flight: u64) -> bool {
        let congestion = self.window.congestion;
        flight + self.mss > congestion || (self.window.in_slow_start() && congestion < 2 * flight)
    }

    /// The window grows by what an acknowledgement says has arrived; what had been SACKed before does not count again,
    /// as in Linux (`tcp_cong_avoid`).
    #[inline]
    fn grow(&mut self, now: Time, bytes: u64) {
        let bytes = match self.config.counts_bytes {
            true => bytes,
            false => bytes.min(self.mss),
        };
        let bytes = match self.start_up.as_deref_mut() {
            Some(StartUp::HyStart(hystart)) if self.window.in_slow_start() => {
                hystart.acknowledged(self.una, self.max, bytes, &mut self.window)
            }
            _ => bytes,
        };
        let acked = Acknowledged { now, bytes, rtt: &self.rtt, config: &self.config };
        self.control.acknowledged(&mut self.window, acked);
    }

    /// Once per window with marks (RFC 3168 §6.1.2).
    fn reduce(&mut self, now: Time, flight: u64) {
        let flight = self.halved(flight);
        self.window.threshold = self.control.marked(now, &self.window, flight);
        self.window.congestion = self.window.threshold;
        self.marked_until = self.max;
        self.cwr_due = true;
        self.counters.reductions += 1;
    }

    /// Duplicates caused by retransmissions do not count (RFC 6582 §3.2 step 1). The older algorithms count
    /// them, unless they have the fix.
    fn may_recover(&self) -> bool {
        let knows = self.config.recovery == Recovery::NewReno || self.config.careful;
        self.sack || !knows || self.una > self.recover
    }

    #[inline]
    pub(super) fn lost_below(&self) -> u64 {
        self.sacked.lost_below(self.mss, self.config.duplicates.max(1).into())
    }

    /// Twice the threshold after a loss.
    fn halved(&mut self, flight: u64) -> u64 {
        if let Some(StartUp::HyStart(_)) = self.start_up.as_deref() {
            self.start_up = None;
        }
        let congestion = self.window.congestion;
        match self.config.halves_window {
            true => congestion / (2 * self.mss) * 2 * self.mss,
            // Segments beyond the window, sent for the first duplicates, do not count (RFC 3042 §3).
            false => flight.min(congestion),
        }
    }

    fn enter_recovery(&mut self, now: Time, flight: u64, delivered: u64) {
        let flight = self.halved(flight);
        self.window.threshold = self.control.lost(now, &self.window, flight);
        self.counters.recoveries += 1;
        self.repairs_since = now;
        self.recover = self.max;
        self.rxt = self.una;
        self.timed = None;
        self.restarted = false;
        self.marked_until = self.max;
        if self.config.recovery == Recovery::Tahoe && !self.sack {
            self.phase = Phase::Loss;
            self.window.congestion = self.mss;
            return;
        }
        self.phase = Phase::Recovery;
        self.head_due = true;
        self.halves = 0;
        let threshold = self.window.threshold;
        if self.sack && self.config.proportional {
            let flight = self.outstanding() - self.sacked.covered() + delivered;
            self.proportional = Proportional { flight, ..Proportional::default() };
            self.reduce_in_proportion(delivered, false);
        } else if self.sack || self.config.one_for_two {
            self.window.congestion = threshold;
        } else {
            self.window.congestion = threshold + u64::from(self.duplicates) * self.mss;
        }
    }

    fn acknowledge_recovery(&mut self, now: Time, acked: u64, delivered: u64, duplicate: bool) {
        let (mss, threshold) = (self.mss, self.window.threshold);
        if acked > 0 && self.una >= self.recover {
            let most = self.outstanding().max(mss) + mss;
            // RFC 6582 §3.2 step 3, in the form that avoids a burst; with SACK as RFC 6675 §5 (A).
            self.window.congestion = match self.sack || self.config.burst_max.is_some() {
                true => threshold,
                false => threshold.min(most),
            };
            self.leave_recovery(now);
            if self.config.recovery == Recovery::Reno {
                self.recover = ORIGIN;
            }
        } else if self.sack {
            if self.config.proportional {
                self.reduce_in_proportion(delivered, acked > 0);
            }
        } else if acked > 0 {
            if self.config.recovery == Recovery::Reno {
                self.window.congestion = threshold;
                self.leave_recovery(now);
                self.recover = ORIGIN; // Anything else missing is a separate loss.
                return;
            }
            // A partial acknowledgement: retransmit the next hole at once (RFC 6582 §3.2 step 3, A-165).
            self.head_due = true;
            if !self.config.one_for_two {
                let rest = self.window.congestion.saturating_sub(acked);
                self.window.congestion = (rest + if acked >= mss { mss } else { 0 }).max(mss);
            }
        } else if duplicate {
            match self.config.one_for_two {
                true => self.halves += 1,
                false => self.window.congestion += mss,
            }
        }
    }

    fn leave_recovery(&mut self, now: Time) {
        self.counters.repairing += now.saturating_since(self.repairs_since);
        self.phase = Phase::Open;
        self.duplicates = 0;
        self.head_due = false;
    }

    fn acknowledge_loss(&mut self, now: Time, acked: u64, delivered: u64) {
        if acked > 0 {
            self.grow(now, delivered);
            if self.una >= self.recover {
                self.leave_recovery(now);
            }
        }
    }

    /// RFC 9937 §6.2: conservative where further loss is detected, and like slow start where the
    /// acknowledgement advances without it.
    fn reduce_in_proportion(&mut self, delivered: u64, advances: bool) {
        let threshold = self.window.threshold;
        self.proportional.delivered += delivered;
        let lost = self.lost_below();
        let safe = advances && lost <= self.proportional.lost;
        self.proportional.lost = lost;
        let Proportional { delivered: all, out, flight, .. } = self.proportional;
        let pipe = self.pipe();
        let send = match pipe > threshold {
            true => (all * threshold).div_ceil(flight.max(1)).saturating_sub(out),
            false => {
                let more = if safe { self.mss } else { 0 };
                let limit = all.saturating_sub(out).max(delivered) + more;
                limit.min(threshold - pipe)
            }
        };
        // The first retransmission goes at once.
        let send = send.max(if out == 0 { self.mss } else { 0 });
        self.window.congestion = pipe + send;
    }

    /// The estimate of data in flight (RFC 6675 §4, `SetPipe`).
    pub(super) fn pipe(&self) -> u64 {
        let unsacked = |start: u64, end: u64| match start < end {
            true => end - start - self.sacked.covered_in(start, end),
            false => 0,
        };
        match self.phase {
            Phase::Open if self.sack && self.config.limited_transmit => {
                self.outstanding() - self.sacked.covered()
            }
            Phase::Recovery if self.sack => {
                unsacked(self.lost_until(), self.max) + unsacked(self.una, self.rxt)
            }
            Phase::Loss => unsacked(self.recover, self.max) + unsacked(self.una, self.rxt),
            _ => self.outstanding(),
        }
    }

    /// The position below which missing data counts as lost; the first segment always does.
    pub(super) fn lost_until(&self) -> u64 {
        self.lost_below().max((self.una + self.mss).min(self.max))
    }

    /// Hoe's estimate of the path sets `ssthresh`.
    fn estimate(&mut self, now: Time) {
        let una = self.una;
        let Some(StartUp::Capacity(capacity)) = self.start_up.as_deref_mut() else { return };
        let found = capacity.acknowledged(now, una);
        let rtt = self.rtt.least.as_secs_f64();
        if let Some(rate) = found {
            let held = (rate * rtt) as u64 / self.mss * self.mss;
            let threshold = held.max(self.window.least()).min(self.wnd_max.max(self.mss));
            self.window.threshold = self.window.threshold.min(threshold);
        }
        if found.is_some() || !self.window.in_slow_start() {
            self.start_up = None;
        }
    }

    /// The retransmission timer has expired (RFC 6298 §5.4 to §5.6, RFC 5681 §3.1).
    pub(super) fn time_out(&mut self, now: Time) {
        self.tries += 1;
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        let most = if opening { self.config.retries_opening } else { self.config.retries };
        if self.tries > most {
            self.end(Ended::TimedOut);
            return;
        }
        self.counters.timeouts += 1;
        self.counters.waited += self.timeout();
        self.rtt.back_off();
        self.timed = None;
        if opening {
            self.syn_due = true;
            return;
        }
        if self.tries == 1 {
            let flight = self.halved(self.outstanding());
            self.window.threshold = self.control.timed_out(now, &self.window, flight);
        }
        self.window.congestion = self.mss;
        if self.phase == Phase::Open {
            self.repairs_since = now;
        }
        self.phase = Phase::Loss;
        self.recover = self.max;
        self.rxt = self.una;
        self.duplicates = 0;
        self.head_due = false;
        self.burst_left = self.config.burst_max.unwrap_or(u32::MAX);
        if self.sacked.around(self.una).is_some() {
            // The peer may have discarded what it had reported (RFC 2018 §8).
            self.sacked.clear();
        }
    }

    /// The persist timer: the window is too small for the waiting data (RFC 9293 §3.8.6.1).
    pub(super) fn persist(&mut self, now: Time) {
        let waits = self.written + u64::from(self.closing) > self.max;
        if !waits || matches!(self.state, State::TimeWait | State::FinWait2 | State::Closed) {
            return;
        }
        self.tries += 1;
        if self.tries > self.config.retries {
            self.end(Ended::TimedOut);
            return;
        }
        self.probes = (self.probes + 1).min(PROBES_MAX);
        self.probe_due = true;
        self.arm_persist(now);
    }

    pub(super) fn arm_persist(&mut self, now: Time) {
        let wait = self.timeout() * (1 << self.probes);
        self.timer_at = now + wait.min(self.config.timeout_max);
    }

    /// Flags that echo the marks seen by this end.
    #[inline]
    pub(super) fn echo_flags(&self) -> Flags {
        match self.ecn && self.echo {
            true => ECE,
            false => Flags::default(),
        }
    }
}
