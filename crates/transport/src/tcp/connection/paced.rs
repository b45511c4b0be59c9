//! The connection's interface to a model-based control: [`Bbr`](crate::tcp::control::Bbr).
//!
//! It learns what is sent and what arrives, paces segments, and sets the window. For connections with other
//! controls the cost is one test of the control's kind.

use super::{Connection, Phase};
use crate::tcp::control::bbr::Seen;
use crate::tcp::control::{Bbr, Control};
use lastmeter_base::Time;

/// The state before an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    window: u64,
    flight: u64,
    phase: Phase,
    una: u64,
}

/// What an acknowledgement reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    /// Bytes that it and its blocks report as arrived.
    pub(super) delivered: u64,
    pub(super) duplicate: bool,
}

impl Connection {
    /// The control, if it has a model.
    #[inline]
    pub(super) fn model(&mut self) -> Option<&mut Bbr> {
        match &mut self.control {
            Control::Bbr(bbr) => Some(bbr),
            _ => None,
        }
    }

    /// The state before an acknowledgement, for a model-based control.
    #[inline]
    pub(super) fn before_model(&self) -> Option<Before> {
        let Control::Bbr(bbr) = &self.control else { return None };
        let window = self.window.congestion - bbr.inflated;
        let Connection { phase, una, .. } = *self;
        Some(Before { window, flight: self.flight(bbr), phase, una })
    }

    /// Bytes in flight; without SACK, less what duplicates report as arrived, and less the head if it is lost and
    /// not retransmitted yet.
    fn flight(&self, bbr: &Bbr) -> u64 {
        let head = if self.head_due && !self.sack { self.mss } else { 0 };
        self.pipe().saturating_sub(bbr.left + head)
    }

    /// A SACK block: its new part has arrived.
    pub(super) fn note_arrived(&mut self, now: Time, left: u64, right: u64) {
        let Connection { control: Control::Bbr(bbr), sacked, .. } = self else { return };
        let mut from = left;
        while let Some((start, end)) = sacked.gap(from, right) {
            bbr.delivery.arrived(now, start, end);
            from = end;
        }
    }

    /// The model processes an acknowledgement and sets the window.
    pub(super) fn update_model(&mut self, now: Time, before: Before, told: Reported) {
        let (una, mss, phase) = (self.una, self.mss, self.phase);
        let acked = una - before.una;
        let begins = before.phase == Phase::Open && phase != Phase::Open;
        let lost_until = match phase {
            Phase::Loss => self.recover,
            _ if begins => self.lost_until(),
            _ => self.lost_below(),
        };
        let Control::Bbr(bbr) = &mut self.control else { return };
        bbr.delivery.arrived_below(now, una);
        let (delivered, lost) = if self.sack {
            let from = bbr.lost_until.max(una);
            // After a timeout everything counts as lost.
            let counts = phase != Phase::Loss && from < lost_until;
            let lost = match counts {
                true => lost_until - from - self.sacked.covered_in(from, lost_until),
                false => 0,
            };
            bbr.lost_until = bbr.lost_until.max(lost_until);
            (told.delivered, lost)
        } else {
            // Each duplicate is a segment that has left; a later acknowledgement's new data is
            // less by that much, and consists of the hole and what came after it.
            let partial = phase == Phase::Recovery && acked > 0;
            let lost = if begins || partial { mss } else { 0 };
            let delivered = match acked {
                0 if told.duplicate && phase != Phase::Loss => mss,
                0 => 0,
                _ => acked.saturating_sub(bbr.left).max(acked.min(mss)),
            };
            bbr.left = match phase {
                Phase::Open if acked > 0 => 0,
                Phase::Loss => 0,
                _ if acked > 0 => bbr.left.saturating_sub(acked.saturating_sub(mss)),
                _ => bbr.left + delivered,
            };
            (delivered, lost)
        };
        let Connection { control: Control::Bbr(bbr), .. } = &*self else { return };
        let seen = Seen {
            now,
            phase,
            delivered,
            lost,
            flight_before: before.flight,
            flight: self.flight(bbr),
            smoothed: self.rtt.smoothed,
            delayed: acked > 0 && acked < mss,
        };
        let Connection { control: Control::Bbr(bbr), window, .. } = self else { return };
        // Without SACK, new segments can go only if the window grows by what has left.
        let inflates = phase == Phase::Recovery;
        window.congestion = bbr.acknowledged(&seen, before.window);
        bbr.inflated = if inflates { bbr.left } else { 0 };
        window.congestion += bbr.inflated;
    }

    /// The positions to send next, if their time has come.
    pub(super) fn paced_range(&mut self, now: Time) -> Option<(u64, u64)> {
        let Connection { control: Control::Bbr(bbr), window, rtt, iss, .. } = self else {
            return None;
        };
        let all = self.written + u64::from(self.closing);
        if self.max >= all {
            self.note_limited();
            if self.phase == Phase::Open {
                return None;
            }
        } else {
            bbr.begin(now, window, rtt, *iss);
        }
        if !self.model()?.releases(now) {
            return None;
        }
        let range = self.next_range(now);
        if range.is_none() && self.written.saturating_sub(self.max) < self.mss {
            self.note_limited();
        }
        range
    }

    /// `OnApplicationWrite` of the delivery rate's draft (§3.4): there is nothing to send or retransmit, and the
    /// window would allow it. If the send buffer is full, the application is not the limit.
    fn note_limited(&mut self) {
        if self.writable() == 0 && !self.closing {
            return;
        }
        let lost_until = match self.phase {
            Phase::Open => 0,
            Phase::Recovery => self.lost_until(),
            Phase::Loss => self.recover,
        };
        let repaired =
            !self.head_due && self.sacked.gap(self.rxt.max(self.una), lost_until).is_none();
        let Control::Bbr(bbr) = &self.control else { return };
        let flight = self.flight(bbr);
        if repaired && flight < self.window.congestion - bbr.inflated {
            let Some(bbr) = self.model() else { return };
            bbr.delivery.limit(flight);
        }
    }

    /// Positions are sent.
    pub(super) fn note_sent(&mut self, now: Time, start: u64, end: u64) {
        let idle = self.una == self.max;
        let Connection { control: Control::Bbr(bbr), window, .. } = self else { return };
        bbr.sent(now, (start, end), idle, &mut window.congestion);
    }
}
