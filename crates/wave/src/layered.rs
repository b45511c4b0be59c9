//! Receiver-driven layered multicast, the rival: receivers subscribe to as many layers as arrive without loss.
//!
//! ```text
//! loss of a time of detection above the threshold --> the highest layer is left; routers stop it later
//! no loss for the time of the next attempt --------> the next layer is joined; if that fails, the next one is later
//! ```
//!
//! A layer is a number of bands, each a multicast group. The receiver sees only what arrives.
//!
//! Source: McCanne, Jacobson & Vetterli, Receiver-driven Layered Multicast, ACM SIGCOMM 1996, §3, with its threshold
//! of 25 % of loss. Deviations: one receiver, so no shared learning; the attempt's outcome is judged after
//! one time of detection; leaving takes as long as two queries for the last member (RFC 2236, 8.8: 1 s each).

use crate::stream::HEADERS_LEN;
use crate::study::{Filter, Waiting};
use lastmeter_base::{Duration, Time};
use lastmeter_wire::wave;

/// The first bands of the next layer, by priority: one for each level of luma, and the finest chroma by itself.
pub const LAYERS: [u8; 6] = [3, 6, 15, 24, 27, 33];

/// How it is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timers {
    /// The time over which loss is measured.
    pub detection: Duration,
    /// Loss above which a layer is left.
    pub threshold: f64,
    /// From leaving a layer until routers no longer send it.
    pub leaves: Duration,
    /// From the last change to the first attempt to join a layer.
    pub attempt: Duration,
    /// The longest such time; each failure doubles it up to this.
    pub attempt_max: Duration,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            detection: Duration::from_secs(1),
            threshold: 0.25,
            leaves: Duration::from_secs(2),
            attempt: Duration::from_secs(5),
            attempt_max: Duration::from_secs(600),
        }
    }
}

/// A receiver, and the groups that routers send it.
#[derive(Clone, Debug)]
pub struct Layered {
    timers: Timers,
    /// Layers it has subscribed to.
    layers: usize,
    /// Layers that still arrive, and until when.
    sends: usize,
    until: Time,
    /// The time of the next attempt, for each layer.
    attempts: [Duration; LAYERS.len()],
    /// When it last changed.
    changed: Time,
    /// The layer last joined, until it has been judged.
    trying: bool,
    began: Time,
    sent: u64,
    arrived: u64,
    /// Each change: when, and to how many layers.
    pub changes: Vec<(Time, usize)>,
}

impl Layered {
    /// Subscribed to all layers.
    pub fn new(timers: Timers) -> Layered {
        Layered {
            timers,
            layers: LAYERS.len(),
            sends: LAYERS.len(),
            until: Time::START,
            attempts: [timers.attempt; LAYERS.len()],
            changed: Time::START,
            trying: false,
            began: Time::START,
            sent: 0,
            arrived: 0,
            changes: Vec::new(),
        }
    }
    fn change(&mut self, now: Time, layers: usize) {
        self.layers = layers;
        self.changed = now;
        self.changes.push((now, layers));
    }
    /// At the end of a time of detection.
    fn judge(&mut self, now: Time) {
        let loss = 1.0 - self.arrived as f64 / (self.sent as f64).max(1.0);
        (self.began, self.sent, self.arrived) = (now, 0, 0);
        // While a layer that was left still arrives, its loss is no news.
        if now < self.until {
            return;
        }
        self.sends = self.layers;
        if loss > self.timers.threshold && self.layers > 1 {
            let left = self.layers - 1;
            if self.trying {
                self.attempts[left] = (self.attempts[left] * 2).min(self.timers.attempt_max);
            }
            self.until = now + self.timers.leaves;
            self.trying = false;
            self.change(now, left);
            return;
        }
        self.trying = false;
        let next = self.layers;
        if next < LAYERS.len() && now >= self.changed + self.attempts[next] {
            self.trying = true;
            self.change(now, next + 1);
            self.sends = self.layers;
        }
    }
}

impl Filter for Layered {
    fn passes(&mut self, now: Time, packet: &[u8], _waiting: &Waiting) -> bool {
        if now >= self.began + self.timers.detection {
            self.judge(now);
        }
        let Ok(piece) = wave::Packet::parse(&packet[HEADERS_LEN.min(packet.len())..]) else {
            return true;
        };
        let passes = piece.band.priority() < LAYERS[self.sends - 1];
        self.sent += u64::from(passes);
        passes
    }
    fn arrived(&mut self, _now: Time) {
        self.arrived += 1;
    }
}
