//! Updates on each acknowledgement: `BBRUpdateOnACK` (§4.1 to §4.3).

use super::delivery::Sample;
use super::{
    Bbr, CYCLE, FULL_GROWTH, FULL_ROUNDS, Mode, ONE, PROBE_RTT_LASTS, RTPROP_WITHIN, Seen,
    WINDOW_INITIAL, WINDOW_MIN,
};
use crate::tcp::connection::Phase;
use lastmeter_base::Time;

impl Bbr {
    /// An acknowledgement has arrived: returns the new window.
    pub(crate) fn acknowledged(&mut self, seen: &Seen, mut window: u64) -> u64 {
        let sample = self.delivery.sample(seen.now, seen.delivered);
        self.update_bandwidth(sample);
        self.update_cycle(seen);
        self.check_full(sample);
        self.check_drain(seen);
        self.update_round_trip(seen, &mut window);
        self.delivery.round_trip = None;
        if !self.timed && seen.smoothed.is_some() {
            self.pace_first(window, seen.smoothed);
        }
        self.pace(self.pacing_gain());
        self.window(seen, window)
    }

    /// `BBRUpdateBtlBw` and `BBRUpdateRound` (§4.1.1): application-limited samples count only if they are
    /// higher.
    fn update_bandwidth(&mut self, sample: Option<Sample>) {
        self.round_begins = false;
        let Some(sample) = sample else { return };
        if sample.delivered_before >= self.round_ends {
            self.round_ends = self.delivery.delivered;
            self.round += 1;
            self.round_begins = true;
            self.conserves = false;
        }
        if !sample.limited || sample.rate >= self.bandwidth.greatest() {
            self.bandwidth.add(self.round, sample.rate);
        }
    }

    /// `BBRCheckCyclePhase` (§4.3.4).
    fn update_cycle(&mut self, seen: &Seen) {
        let Mode::ProbeBw(phase) = self.mode else { return };
        let long = self.rtprop.is_none_or(|rtprop| {
            self.delivery.delivered_at.saturating_since(self.phase_at) > rtprop
        });
        let gain = self.pacing_gain();
        let ends = if gain > ONE {
            // Until a quarter more is in flight; small buffers cannot hold that.
            long && (seen.lost > 0 || seen.flight_before >= self.inflight(gain))
        } else if gain < ONE {
            long || seen.flight_before <= self.inflight(ONE)
        } else {
            long
        };
        if ends {
            self.mode = Mode::ProbeBw((phase + 1) % CYCLE.len() as u8);
            self.phase_at = self.delivery.delivered_at;
        }
    }

    /// `BBREnterProbeBW` (§4.3.4): in any phase except the draining one.
    fn enter_probe_bw(&mut self) {
        let count = CYCLE.len() as u64;
        let phase = (count - self.random.below(count - 1)) % count;
        self.mode = Mode::ProbeBw(phase as u8);
        self.phase_at = self.delivery.delivered_at;
    }

    /// `BBRCheckFullPipe` (§4.3.2).
    fn check_full(&mut self, sample: Option<Sample>) {
        let limited = sample.is_none_or(|sample| sample.limited);
        if self.full || !self.round_begins || limited {
            return;
        }
        let bandwidth = u128::from(self.bandwidth.greatest());
        let (more, than) = FULL_GROWTH;
        if bandwidth * u128::from(than) >= u128::from(self.full_bandwidth) * u128::from(more) {
            self.full_bandwidth = self.bandwidth.greatest();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.full = self.full_rounds >= FULL_ROUNDS;
    }

    /// `BBRCheckDrain` (§4.3.3).
    fn check_drain(&mut self, seen: &Seen) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && seen.flight <= self.inflight(ONE) {
            self.enter_probe_bw();
        }
    }

    /// `BBRUpdateRTprop` and `BBRCheckProbeRTT` (§4.1.2, §4.3.5).
    fn update_round_trip(&mut self, seen: &Seen, window: &mut u64) {
        let expired = seen.now.saturating_since(self.rtprop_at) > RTPROP_WITHIN;
        if let Some(round_trip) = self.delivery.round_trip
            && (self.rtprop.is_none_or(|rtprop| round_trip <= rtprop) || expired && !seen.delayed)
        {
            self.rtprop = Some(round_trip);
            self.rtprop_at = seen.now;
        }
        if expired && !self.restarts && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.keep(*window);
            self.probe_ends = None;
        }
        if self.mode == Mode::ProbeRtt {
            // Samples from this time say little about the path.
            self.delivery.limit(seen.flight);
            if self.probe_ends.is_some() {
                self.probe_round |= self.round_begins;
                if self.probe_round {
                    self.end_probe(seen.now, window);
                }
            } else if seen.flight <= WINDOW_MIN * self.mss {
                self.probe_ends = Some(seen.now + PROBE_RTT_LASTS);
                self.probe_round = false;
                self.round_ends = self.delivery.delivered;
            }
        }
        if seen.delivered > 0 {
            self.restarts = false;
        }
    }

    /// Leaves PROBE_RTT when its time is over.
    pub(super) fn end_probe(&mut self, now: Time, window: &mut u64) {
        if self.probe_ends.is_none_or(|ends| now <= ends) {
            return;
        }
        self.rtprop_at = now;
        *window = self.prior.max(*window);
        match self.full {
            true => self.enter_probe_bw(),
            false => self.mode = Mode::Startup,
        }
    }

    /// `BBRSaveCwnd` (§4.2.3): the last window before a cut.
    fn keep(&mut self, window: u64) {
        let whole = self.repaired == Phase::Open && self.mode != Mode::ProbeRtt;
        self.prior = if whole { window } else { self.prior.max(window) };
    }

    /// Recovery begins.
    pub(crate) fn lost(&mut self, window: u64) {
        self.keep(window - self.inflated);
    }

    /// The timer has expired: everything that was sent is lost (§4.2.3).
    pub(crate) fn timed_out(&mut self, window: u64) {
        self.lost(window);
        self.repaired = Phase::Loss;
        self.full_bandwidth = 0;
        self.round_begins = true;
        (self.left, self.inflated) = (0, 0);
    }

    /// `BBRSetCwnd` (§4.2.3).
    fn window(&mut self, seen: &Seen, mut window: u64) -> u64 {
        let conserving = seen.delivered > 0 && self.repair(seen, &mut window);
        if seen.delivered > 0 && !conserving {
            let target = self.inflight(self.window_gain());
            if self.full {
                window = (window + seen.delivered).min(target);
            } else if window < target || self.delivery.delivered < WINDOW_INITIAL * self.mss {
                window += seen.delivered;
            }
            window = window.max(WINDOW_MIN * self.mss);
        }
        match self.mode {
            Mode::ProbeRtt => window.min(WINDOW_MIN * self.mss),
            _ => window,
        }
    }

    /// `BBRModulateCwndForRecovery` (§4.2.3): packet conservation in the first round of recovery, and the previous
    /// window after recovery. Returns whether it is in packet conservation.
    fn repair(&mut self, seen: &Seen, window: &mut u64) -> bool {
        *window = window.saturating_sub(seen.lost).max(self.mss);
        let before = std::mem::replace(&mut self.repaired, seen.phase);
        if seen.phase == Phase::Recovery && before != Phase::Recovery {
            self.conserves = true;
            self.round_ends = self.delivery.delivered;
            *window = seen.flight + seen.delivered;
        } else if seen.phase == Phase::Open && before != Phase::Open {
            self.conserves = false;
            *window = self.prior.max(*window);
        }
        if self.conserves {
            *window = (*window).max(seen.flight + seen.delivered);
        }
        self.conserves
    }
}
