//! What can be chosen of a connection; each choice is a switch of its own.

use super::control::Kind;
use lastmeter_base::{Bytes, Duration};

/// How a sender that has no selective acknowledgements repairs losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Retransmits the first segment and starts again from a window of one (Jacobson 1988).
    Tahoe,
    /// Fast recovery that the first new acknowledgement ends (RFC 2581 §3.2).
    Reno,
    /// Fast recovery in which an acknowledgement of a part retransmits the next segment, until all
    /// that had been sent is acknowledged (RFC 6582; Hoe 1995).
    NewReno,
}

/// Which end is left in `TIME_WAIT`, and so keeps the state (Faber, Touch & Yue, INFOCOM 1999).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lingering {
    /// Whoever closes first (RFC 9293 §3.6).
    First,
    /// An end that opened the connection and closes last takes it over: when its own FIN is
    /// acknowledged it resets the peer and lingers itself. (N-74)
    Shift,
    /// An option in both SYNs leaves it with the end that opened the connection. (N-74)
    Negotiate,
}

/// The choices. Connections of one kind share them.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The largest segment that it takes, options not counted (RFC 9293 §3.7.1).
    pub mss: u16,
    /// How the window grows and shrinks.
    pub control: Kind,
    /// What is done about losses without selective acknowledgements.
    pub recovery: Recovery,
    /// Selective acknowledgements are offered (RFC 2018), and repair follows RFC 6675.
    pub sack: bool,
    /// With SACK, the window is reduced in proportion to what arrives (RFC 9937) and not at once.
    pub proportional: bool,
    /// Timestamps are offered (RFC 7323 §3).
    pub timestamps: bool,
    /// Window scaling is offered (RFC 7323 §2).
    pub scaling: bool,
    /// Congestion marks are offered (RFC 3168).
    pub ecn: bool,
    /// Most bytes that wait for their acknowledgement or for being sent.
    pub send_buffer: Bytes,
    /// Most bytes that wait for the application, and the window that is offered.
    pub receive_buffer: Bytes,
    /// Segments of the first window (RFC 6928: 10; RFC 5681: 2 to 4).
    pub initial_window: u32,
    /// The first threshold; `None` for no limit (RFC 5681 §3.1).
    pub initial_threshold: Option<Bytes>,
    /// In slow start an acknowledgement adds at most so many segments: `L` of RFC 3465 §2.2.
    pub growth_max: u32,
    /// Acknowledge every so many full segments (RFC 1122 §4.2.3.2: 2); 1 acknowledges each.
    pub acknowledge_every: u8,
    /// And no later than after this.
    pub acknowledge_within: Duration,
    /// The first segment with data is acknowledged at once: it opens the sender's window sooner, and
    /// RFC 5681 §4.2 allows it. Linux does so, and ns-3.
    pub acknowledge_first: bool,
    /// Duplicate acknowledgements that mean a loss (RFC 5681: 3).
    pub duplicates: u8,
    /// The first duplicate acknowledgements send new segments (RFC 3042).
    pub limited_transmit: bool,
    /// Small segments wait while something is unacknowledged (RFC 9293 §3.7.4).
    pub nagle: bool,
    /// Timer before the first sample (RFC 6298 §2.1).
    pub timeout_initial: Duration,
    /// The shortest timer (RFC 6298 §2.4).
    pub timeout_min: Duration,
    /// The longest timer (RFC 6298 §2.5).
    pub timeout_max: Duration,
    /// The clock's granularity, `G` of RFC 6298, and the unit of timestamps.
    pub granularity: Duration,
    /// Timeouts in a row without any progress, after which the connection is given up.
    pub retries: u8,
    /// The same while it opens.
    pub retries_opening: u8,
    /// How long `TIME_WAIT` lasts: twice the maximum life of a segment.
    pub linger: Duration,
    /// Which end lingers.
    pub lingering: Lingering,
    /// Tahoe and Reno too take duplicates of what had been sent before the timer expired for no new
    /// loss (RFC 2582 §5; ns-2's `bugFix_` as of 1997). NewReno always does.
    pub careful: bool,
    /// Hoe: one new segment for every two duplicate acknowledgements in recovery, instead of a
    /// window that they inflate.
    pub one_for_two: bool,
    /// Hoe: no acknowledgement sends more segments than this.
    pub burst_max: Option<u32>,
    /// Hoe: the first acknowledgements estimate the path's capacity, which sets the threshold.
    pub estimates_start: bool,
    /// Real bytes are kept and delivered; otherwise only their number.
    pub content: bool,
}

impl Config {
    /// What most hosts of today do, with the loss control of RFC 5681 and RFC 6675.
    ///
    /// The least timer is Linux's 200 ms, where RFC 6298 §2.4 says 1 s; delayed acknowledgements
    /// wait Linux's 40 ms at most (both in its `include/net/tcp.h`).
    pub const fn modern() -> Config {
        Config {
            mss: 1460,
            control: Kind::Reno,
            recovery: Recovery::NewReno,
            sack: true,
            proportional: false,
            timestamps: true,
            scaling: true,
            ecn: false,
            send_buffer: Bytes(1 << 20),
            receive_buffer: Bytes(1 << 20),
            initial_window: 10,
            initial_threshold: None,
            growth_max: 2,
            acknowledge_every: 2,
            acknowledge_within: Duration::from_ms(40),
            acknowledge_first: false,
            duplicates: 3,
            limited_transmit: true,
            nagle: true,
            timeout_initial: Duration::from_secs(1),
            timeout_min: Duration::from_ms(200),
            timeout_max: Duration::from_secs(60),
            granularity: Duration::from_ms(1),
            retries: 15,
            retries_opening: 6,
            linger: Duration::from_secs(60),
            lingering: Lingering::First,
            careful: false,
            one_for_two: false,
            burst_max: None,
            estimates_start: false,
            content: false,
        }
    }

    /// What hosts did in 1990: Reno, windows of 64 KiB at most, one segment at the start, no options
    /// but the segment size, and a clock of 500 ms (Stevens, TCP/IP Illustrated, Volume 2, 1995).
    pub const fn classic() -> Config {
        Config {
            recovery: Recovery::Reno,
            sack: false,
            timestamps: false,
            scaling: false,
            send_buffer: Bytes(65_535),
            receive_buffer: Bytes(65_535),
            initial_window: 1,
            initial_threshold: Some(Bytes(65_535)),
            growth_max: 1,
            acknowledge_within: Duration::from_ms(200),
            limited_transmit: false,
            timeout_initial: Duration::from_secs(3),
            timeout_min: Duration::from_secs(1),
            timeout_max: Duration::from_secs(64),
            granularity: Duration::from_ms(500),
            ..Config::modern()
        }
    }
}
