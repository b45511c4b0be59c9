//! Congestion control: how the window grows, and how it is reduced on a loss or a mark.
//!
//! One file for each; a [`Control`] holds the state of one. Windows are in bytes.

pub(crate) mod bbr;
mod cubic;
mod dctcp;
mod reno;

pub use bbr::{Bbr, Mode};
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use reno::Reno;

use super::{Config, Rtt};
use lastmeter_base::Time;

/// The kind of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Slow start and congestion avoidance of RFC 5681, counting bytes (RFC 3465).
    Reno,
    /// RFC 9438.
    Cubic,
    /// RFC 8257; it requires ECN marks.
    Dctcp,
    /// draft-cardwell-iccrg-bbr-congestion-control-00.
    Bbr,
}

/// The window and the threshold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// `cwnd`: how much may be in flight.
    pub congestion: u64,
    /// `ssthresh`: below it the window doubles in each round trip.
    pub threshold: u64,
    /// A full segment's data.
    pub mss: u64,
}

impl Window {
    /// Whether the window is below the threshold.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.congestion < self.threshold
    }
    /// Two segments: no control goes below (RFC 5681 equation 4).
    pub fn least(&self) -> u64 {
        2 * self.mss
    }
    /// Slow start: adds what was acknowledged, at most `growth_max` segments, up to the threshold;
    /// returns the part of `acked` beyond it (RFC 3465 §2.2).
    #[inline]
    pub fn slow_start(&mut self, acked: u64, growth_max: u32) -> u64 {
        let growth = acked.min(u64::from(growth_max) * self.mss);
        let grown = (self.congestion + growth).min(self.threshold.max(self.congestion));
        let left = growth - (grown - self.congestion);
        self.congestion = grown;
        left
    }
}

/// An acknowledgement of new data, for a control.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged<'a> {
    /// When it arrived.
    pub now: Time,
    /// New bytes.
    pub bytes: u64,
    /// The connection's round-trip time.
    pub rtt: &'a Rtt,
    /// The connection's options.
    pub config: &'a Config,
}

/// The state of a congestion control.
#[derive(Clone, Debug)]
pub enum Control {
    /// See [`Reno`].
    Reno(Reno),
    /// See [`Cubic`].
    Cubic(Box<Cubic>),
    /// See [`Dctcp`].
    Dctcp(Box<Dctcp>),
    /// See [`Bbr`].
    Bbr(Box<Bbr>),
}

impl Control {
    /// The control of a new connection.
    pub fn new(kind: Kind) -> Control {
        match kind {
            Kind::Reno => Control::Reno(Reno::default()),
            Kind::Cubic => Control::Cubic(Box::default()),
            Kind::Dctcp => Control::Dctcp(Box::default()),
            Kind::Bbr => Control::Bbr(Box::default()),
        }
    }

    /// New data was acknowledged while the window limited the sender, outside loss recovery.
    #[inline]
    pub fn acknowledged(&mut self, window: &mut Window, acked: Acknowledged<'_>) {
        match self {
            Control::Reno(reno) => reno.acknowledged(window, acked),
            Control::Cubic(cubic) => cubic.acknowledged(window, acked),
            Control::Dctcp(dctcp) => dctcp.reno.acknowledged(window, acked),
            // It handles every acknowledgement in more detail: `Bbr::acknowledged`.
            Control::Bbr(_) => {}
        }
    }

    /// A loss was detected with `flight` bytes in flight: returns the new threshold.
    pub fn lost(&mut self, now: Time, window: &Window, flight: u64) -> u64 {
        match self {
            Control::Reno(reno) => reno.lost(window, flight),
            Control::Cubic(cubic) => cubic.lost(now, window),
            Control::Dctcp(dctcp) => dctcp.reno.lost(window, flight),
            Control::Bbr(bbr) => {
                bbr.lost(window.congestion);
                window.congestion
            }
        }
    }

    /// The timer expired with `flight` bytes in flight: returns the new threshold.
    pub fn timed_out(&mut self, now: Time, window: &Window, flight: u64) -> u64 {
        match self {
            Control::Cubic(cubic) => cubic.timed_out(now, window),
            Control::Bbr(bbr) => {
                bbr.timed_out(window.congestion);
                window.congestion
            }
            _ => self.lost(now, window, flight),
        }
    }

    /// A window with marks has been acknowledged: returns the new threshold.
    pub fn marked(&mut self, now: Time, window: &Window, flight: u64) -> u64 {
        match self {
            Control::Dctcp(dctcp) => dctcp.marked(window),
            Control::Bbr(_) => window.congestion,
            _ => self.lost(now, window, flight),
        }
    }

    /// Counts the marked share of the bytes acknowledged, up to position `una` of `max` sent.
    #[inline]
    pub fn observed(&mut self, una: u64, max: u64, bytes: u64, marked: bool) {
        if let Control::Dctcp(dctcp) = self {
            dctcp.observed(una, max, bytes, marked);
        }
    }
}
