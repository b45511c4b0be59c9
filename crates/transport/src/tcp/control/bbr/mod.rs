//! BBR, version 1: window and pacing rate follow a model of the path instead of losses.
//!
//! ```text
//! BtlBw   maximum delivery rate of the last 10 round trips           (packet-timed)
//! RTprop  minimum round trip of the last 10 s
//! pace    pacing_gain * BtlBw,  1 % less
//! cwnd    cwnd_gain * BtlBw * RTprop + 3 send quanta
//!
//! STARTUP --no 25 % more in 3 rounds--> DRAIN --queue gone--> PROBE_BW <--10 s without a shorter
//!   2/ln 2                              ln 2/2              5/4 3/4 1 1 1 1 1 1    RTT--> PROBE_RTT
//! ```
//!
//! | | |
//! |---|---|
//! | the model, states, gains, window | Cardwell et al., draft-cardwell-iccrg-bbr-congestion-control-00, §4 |
//! | delivery rates | draft-cheng-iccrg-delivery-rate-estimation-00: [`delivery`] |
//! | why | Cardwell et al., BBR: Congestion-Based Congestion Control, ACM Queue 14(5), 2016 |
//! | 1 % less than the bandwidth; an even number of segments, two more while probing | Linux's `tcp_bbr.c` |
//!
//! Names in backquotes are the drafts'. The constants below are from the drafts and not configurable. Only
//! the phase in which gain cycling starts is random; it follows from the connection's initial sequence
//! number.
//!
//! Deviations. The maximum is exact over the rounds, where Linux keeps three candidates. Linux's additions
//! to the draft are left out: the policer model, the extra window for aggregated acknowledgements, and
//! the undo of spurious timeouts. ECN marks change nothing, as in Linux.

mod delivery;
mod model;

use super::Window;
use crate::tcp::Rtt;
use crate::tcp::connection::Phase;
use delivery::Delivery;
use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};

/// Gains are in thousandths.
const ONE: u64 = 1000;
/// `BBRHighGain`, 2/ln 2 = 2.8854, rounded up: the smallest gain that doubles the rate in each round
/// (§4.2.1 of the draft).
const GAIN_HIGH: u64 = 2886;
/// Its inverse: drains STARTUP's queue in one round (§4.3.3).
const GAIN_DRAIN: u64 = ONE * ONE / GAIN_HIGH;
/// `cwnd_gain` of PROBE_BW: tolerates delayed acknowledgements (§4.2.3).
const GAIN_WINDOW: u64 = 2 * ONE;
/// `pacing_gain_cycle` (§4.3.4).
const CYCLE: [u64; 8] = [1250, 750, ONE, ONE, ONE, ONE, ONE, ONE];
/// `BtlBwFilterLen`, in rounds (§4.1.1).
const BANDWIDTH_ROUNDS: u64 = 10;
/// `RTpropFilterLen` (§4.1.2).
const RTPROP_WITHIN: Duration = Duration::from_secs(10);
/// `ProbeRTTDuration` (§4.3.5).
const PROBE_RTT_LASTS: Duration = Duration::from_ms(200);
/// `BBRMinPipeCwnd`, in segments (§4.2.3).
const WINDOW_MIN: u64 = 4;
/// The pipe is full when the rate has not grown by a quarter in this many rounds (§4.3.2).
const FULL_ROUNDS: u8 = 3;
const FULL_GROWTH: (u64, u64) = (5, 4);
/// Pacing rate in percent of the bandwidth, so that queues drain (`bbr_pacing_margin_percent`).
const PACED: u64 = 99;
/// Below this rate a send quantum is one segment, above it at least two, and at most this many bytes
/// (§4.2.2).
const QUANTUM_ONE_BELOW: u64 = 1_200_000;
const QUANTUM_TIME: Duration = Duration::from_ms(1);
const QUANTUM_MAX: u64 = 64 << 10;
/// The window while no round trip is known, and below which it always grows (RFC 6928).
const WINDOW_INITIAL: u64 = 10;
/// The round trip assumed before the first sample (§4.2.1: 1 ms).
const ROUND_TRIP_NOMINAL: Duration = Duration::from_ms(1);
/// Picoseconds of bits in bytes: bits per second times picoseconds over this are bytes.
const BYTES: u128 = 8_000_000_000_000;

/// The state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The rate doubles in each round.
    Startup,
    /// STARTUP's queue drains.
    Drain,
    /// It cycles through gains; this is the phase, of eight.
    ProbeBw(u8),
    /// Four segments in flight, so that the queue empties and the propagation delay shows.
    ProbeRtt,
}

/// An acknowledgement's information, in addition to delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) now: Time,
    pub(crate) phase: Phase,
    /// Bytes delivered, and bytes found lost, by it.
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    /// Bytes in flight before it, and now.
    pub(crate) flight_before: u64,
    pub(crate) flight: u64,
    /// `SRTT`.
    pub(crate) smoothed: Option<Duration>,
    /// The receiver may have delayed it.
    pub(crate) delayed: bool,
}

/// The maximum over the last rounds.
#[derive(Clone, Debug, Default)]
struct MaxFilter {
    /// The value of each round, by its number modulo the window's length.
    rounds: [u64; BANDWIDTH_ROUNDS as usize + 1],
    newest: u64,
}

impl MaxFilter {
    /// A value of round `round`; rounds without values expire nothing until the next with one.
    fn add(&mut self, round: u64, value: u64) {
        let count = self.rounds.len() as u64;
        for gone in (self.newest + 1..=round).take(self.rounds.len()) {
            self.rounds[(gone % count) as usize] = 0;
        }
        self.newest = round;
        let place = &mut self.rounds[(round % count) as usize];
        *place = value.max(*place);
    }

    fn greatest(&self) -> u64 {
        self.rounds.iter().copied().max().unwrap_or(0)
    }
}

/// Pacing: a send quantum goes at once, and the next when that has gone at the pacing rate.
#[derive(Clone, Debug, Default)]
struct Pacer {
    rate: Option<Rate>,
    /// When the next quantum may start.
    next_at: Time,
    /// When the present one started, and what is left of it.
    begun_at: Time,
    left: u64,
    /// Something was held back until then.
    wakes_at: Option<Time>,
}

/// The state of BBR.
#[derive(Clone, Debug)]
pub struct Bbr {
    pub(crate) delivery: Delivery,
    pacer: Pacer,
    mode: Mode,
    mss: u64,
    // The model.
    bandwidth: MaxFilter,
    rtprop: Option<Duration>,
    rtprop_at: Time,
    /// A round trip was known when the first pacing rate was set.
    timed: bool,
    /// Packet-timed rounds: count, end of the present one, whether one has just started.
    round: u64,
    round_ends: u64,
    round_begins: bool,
    // STARTUP.
    full_bandwidth: u64,
    full_rounds: u8,
    full: bool,
    // PROBE_BW.
    phase_at: Time,
    random: Stream,
    // PROBE_RTT.
    probe_ends: Option<Time>,
    probe_round: bool,
    /// Sends again after it had nothing to send.
    restarts: bool,
    // Recovery.
    repaired: Phase,
    conserves: bool,
    /// `prior_cwnd`: the window before losses or PROBE_RTT cut it.
    prior: u64,
    /// Losses have been counted up to this position.
    pub(crate) lost_until: u64,
    /// Without SACK: bytes that duplicates report as having left, and the resulting increase of the connection's
    /// window.
    pub(crate) left: u64,
    pub(crate) inflated: u64,
}

impl Default for Bbr {
    fn default() -> Bbr {
        Bbr {
            delivery: Delivery::default(),
            pacer: Pacer::default(),
            mode: Mode::Startup,
            mss: 1,
            bandwidth: MaxFilter::default(),
            rtprop: None,
            rtprop_at: Time::START,
            timed: false,
            round: 0,
            round_ends: 0,
            round_begins: false,
            full_bandwidth: 0,
            full_rounds: 0,
            full: false,
            phase_at: Time::START,
            random: Stream::new(0, "bbr"),
            probe_ends: None,
            probe_round: false,
            restarts: false,
            repaired: Phase::Open,
            conserves: false,
            prior: 0,
            lost_until: 0,
            left: 0,
            inflated: 0,
        }
    }
}

/// Its model of the path.
impl Bbr {
    /// Its state.
    pub fn mode(&self) -> Mode {
        self.mode
    }
    /// `BtlBw`; `None` before the first sample.
    pub fn bandwidth(&self) -> Option<Rate> {
        Some(self.bandwidth.greatest()).filter(|&bits| bits > 0).map(Rate::from_bits)
    }
    /// `RTprop`; `None` before the first sample.
    pub fn round_trip(&self) -> Option<Duration> {
        self.rtprop
    }
    /// The pacing rate; `None` before there is one.
    pub fn pacing_rate(&self) -> Option<Rate> {
        self.pacer.rate
    }
    /// Packet-timed rounds so far.
    pub fn rounds(&self) -> u64 {
        self.round
    }
    /// `pacing_gain`, in thousandths.
    pub fn pacing_gain(&self) -> u64 {
        match self.mode {
            Mode::Startup => GAIN_HIGH,
            Mode::Drain => GAIN_DRAIN,
            Mode::ProbeBw(phase) => CYCLE[usize::from(phase)],
            Mode::ProbeRtt => ONE,
        }
    }
    /// `cwnd_gain`, in thousandths.
    pub fn window_gain(&self) -> u64 {
        match self.mode {
            Mode::Startup | Mode::Drain => GAIN_HIGH,
            Mode::ProbeBw(_) => GAIN_WINDOW,
            Mode::ProbeRtt => ONE,
        }
    }
    /// `send_quantum`: the burst size, in bytes (§4.2.2).
    pub fn quantum(&self) -> u64 {
        let rate = self.pacer.rate.map_or(1, Rate::as_bits);
        let least = if rate < QUANTUM_ONE_BELOW { 1 } else { 2 };
        let bytes = bytes_of(rate, QUANTUM_TIME, ONE).min(QUANTUM_MAX);
        (bytes / self.mss).max(least) * self.mss
    }

    /// `BBRInflight(gain)`, in bytes: the bandwidth-delay product times a gain, plus the quanta held in hosts
    /// (§4.2.3).
    fn inflight(&self, gain: u64) -> u64 {
        let (mss, bandwidth) = (self.mss, self.bandwidth.greatest());
        let Some(rtprop) = self.rtprop else { return WINDOW_INITIAL * mss };
        let product = bytes_of(bandwidth, rtprop, gain).div_ceil(mss);
        let quanta = product + 3 * (self.quantum() / mss);
        let more = if self.mode == Mode::ProbeBw(0) { 2 } else { 0 };
        (quanta.next_multiple_of(2) + more) * mss
    }
}

/// Bytes that `rate` (bits per second) carries in `time`, times a gain, rounded up.
fn bytes_of(rate: u64, time: Duration, gain: u64) -> u64 {
    let bits = u128::from(rate) * u128::from(time.as_ps()) * u128::from(gain);
    u64::try_from(bits.div_ceil(BYTES * u128::from(ONE))).unwrap_or(u64::MAX / 8)
}

/// When segments go.
impl Bbr {
    /// The first data is about to be sent: `BBRInit`.
    pub(crate) fn begin(&mut self, now: Time, window: &Window, rtt: &Rtt, seed: u32) {
        if self.pacer.rate.is_some() {
            return;
        }
        self.mss = window.mss;
        self.rtprop = rtt.smoothed.map(|_| rtt.least);
        self.rtprop_at = now;
        self.random = Stream::new(seed.into(), "bbr");
        self.pace_first(window.congestion, rtt.smoothed);
    }

    /// Before there is a bandwidth sample: a window per round trip (§4.2.1).
    fn pace_first(&mut self, window: u64, smoothed: Option<Duration>) {
        self.timed = smoothed.is_some();
        let round_trip = smoothed.unwrap_or(ROUND_TRIP_NOMINAL).max(Duration::from_us(1));
        let bits = u128::from(window) * BYTES / u128::from(round_trip.as_ps());
        self.pacer.rate = paced(u64::try_from(bits).unwrap_or(u64::MAX), GAIN_HIGH);
    }

    /// Whether a segment may go now; if not, records when it may.
    pub(crate) fn releases(&mut self, now: Time) -> bool {
        let Pacer { next_at, begun_at, left, .. } = self.pacer;
        let may = now >= next_at || (now == begun_at && left > 0);
        self.pacer.wakes_at = (!may).then_some(next_at);
        may
    }

    /// When something that was held back may go.
    #[inline]
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        self.pacer.wakes_at
    }

    /// That time has come.
    pub(crate) fn woken(&mut self, now: Time) {
        self.pacer.wakes_at = self.pacer.wakes_at.filter(|&at| at > now);
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self) {
        self.delivery.clear();
        self.pacer.wakes_at = None;
    }

    /// The positions of `range` are sent, while nothing else is in flight if `idle`; `window` may be
    /// restored.
    pub(crate) fn sent(&mut self, now: Time, range: (u64, u64), idle: bool, window: &mut u64) {
        if idle && self.delivery.is_limited() {
            self.restart(now, window);
        }
        self.delivery.sent(now, range, idle);
        let quantum = self.quantum();
        let pacer = &mut self.pacer;
        if now >= pacer.next_at {
            (pacer.begun_at, pacer.left, pacer.next_at) = (now, quantum, now);
        }
        let len = range.1 - range.0;
        pacer.left = pacer.left.saturating_sub(len);
        if let Some(rate) = pacer.rate {
            pacer.next_at += rate.time_for(Bytes(len));
        }
    }

    /// `BBRHandleRestartFromIdle` (§4.3.4): at the bandwidth, not above it.
    fn restart(&mut self, now: Time, window: &mut u64) {
        self.restarts = true;
        match self.mode {
            Mode::ProbeBw(_) => self.pace(ONE),
            Mode::ProbeRtt => self.end_probe(now, window),
            _ => {}
        }
    }

    /// Sets the pacing rate, which does not fall until the pipe is full (§4.2.1).
    fn pace(&mut self, gain: u64) {
        if let Some(rate) = paced(self.bandwidth.greatest(), gain)
            && (self.full || self.pacer.rate.is_none_or(|old| rate > old))
        {
            self.pacer.rate = Some(rate);
        }
    }
}

/// A bandwidth times a gain, less the margin; `None` for nothing.
fn paced(bandwidth: u64, gain: u64) -> Option<Rate> {
    let bits = u128::from(bandwidth) * u128::from(gain * PACED) / u128::from(100 * ONE);
    Some(u64::try_from(bits).unwrap_or(u64::MAX)).filter(|&bits| bits > 0).map(Rate::from_bits)
}
