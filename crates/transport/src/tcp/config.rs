//! The options of a connection; each mechanism is a switch of its own.

use super::control::Kind;
use lastmeter_base::{Bytes, Duration};

/// Loss recovery of a sender without selective acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Retransmits the first segment and starts again from a window of one (Jacobson 1988).
    Tahoe,
    /// Fast recovery, which ends with the first new acknowledgement (RFC 2581 §3.2).
    Reno,
    /// Fast recovery in which a partial acknowledgement retransmits the next segment, until all that had
    /// been sent is acknowledged (RFC 6582; Hoe 1995).
    NewReno,
}

/// Which end stays in `TIME_WAIT` and keeps the state (Faber, Touch & Yue, INFOCOM 1999).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lingering {
    /// Whoever closes first (RFC 9293 §3.6).
    First,
    /// An end that opened the connection and closes last takes over: when its own FIN is acknowledged it
    /// resets the peer and lingers itself. (N-74)
    Shift,
    /// An option in both SYNs assigns it to the end that opened the connection. (N-74)
    Negotiate,
}

/// The options. Connections of one kind share them.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The largest segment that it accepts, without options (RFC 9293 §3.7.1).
    pub mss: u16,
    /// The congestion control.
    pub control: Kind,
    /// Loss recovery without selective acknowledgements.
    pub recovery: Recovery,
    /// Selective acknowledgements are offered (RFC 2018), and repair follows RFC 6675.
    pub sack: bool,
    /// With SACK, proportional rate reduction (RFC 9937) instead of cutting the window at once.
    pub proportional: bool,
    /// Timestamps are offered (RFC 7323 §3).
    pub timestamps: bool,
    /// Window scaling is offered (RFC 7323 §2).
    pub scaling: bool,
    /// ECN is offered (RFC 3168).
    pub ecn: bool,
    /// Size of the send buffer: bytes unsent or unacknowledged.
    pub send_buffer: Bytes,
    /// Size of the receive buffer, which limits the advertised window.
    pub receive_buffer: Bytes,
    /// The initial window in segments (RFC 6928: 10; RFC 5681: 2 to 4).
    pub initial_window: u32,
    /// The initial `ssthresh`; `None` for no limit (RFC 5681 §3.1).
    pub initial_threshold: Option<Bytes>,
    /// In slow start an acknowledgement adds at most this many segments: `L` of RFC 3465 §2.2.
    pub growth_max: u32,
    /// The window grows by the bytes acknowledged, as in Linux (RFC 3465); otherwise by acknowledgements, each of
    /// which counts as a segment at most (RFC 5681 §3.1).
    pub counts_bytes: bool,
    /// A loss halves the window in whole segments, as in Linux and BSD, not the data in flight (RFC 5681
    /// equation 4). CUBIC always reduces the window (RFC 9438 §4.6).
    pub halves_window: bool,
    /// CUBIC's estimate of Reno's window grows as Reno's once it has reached the window before the last loss (RFC 9438
    /// §4.3). Linux's keeps growing as slowly as before (6.18, `bictcp_update`).
    pub catches_up: bool,
    /// The first slow start ends when round-trip times rise: HyStart++ (RFC 9406). It needs timestamps.
    pub hystart: bool,
    /// Full segments per acknowledgement (RFC 1122 §4.2.3.2: 2); 1 acknowledges each.
    pub acknowledge_every: u8,
    /// The program writes this much at a time, and the segment that ends a write is acknowledged at once, as by Linux
    /// when its program has read all that there is (6.18, `tcp_cleanup_rbuf`).
    pub acknowledge_writes: Option<Bytes>,
    /// Maximum delay of an acknowledgement.
    pub acknowledge_within: Duration,
    /// The first segment with data is acknowledged at once: this opens the sender's window sooner, and RFC 5681
    /// §4.2 allows it. Linux and ns-3 do so.
    pub acknowledge_first: bool,
    /// The acknowledgement that ends the handshake is sent on its own, as by Linux after `connect` and by ns-3;
    /// otherwise the first data carries it, which RFC 9293 §3.10.7.3 allows.
    pub acknowledge_opening: bool,
    /// Duplicate acknowledgements that indicate a loss (RFC 5681: 3).
    pub duplicates: u8,
    /// Limited transmit: the first duplicate acknowledgements send new segments (RFC 3042).
    pub limited_transmit: bool,
    /// Nagle: small segments wait while something is unacknowledged (RFC 9293 §3.7.4).
    pub nagle: bool,
    /// RTO before the first sample (RFC 6298 §2.1).
    pub timeout_initial: Duration,
    /// Minimum RTO (RFC 6298 §2.4).
    pub timeout_min: Duration,
    /// Maximum RTO (RFC 6298 §2.5).
    pub timeout_max: Duration,
    /// The clock's granularity, `G` of RFC 6298, and the unit of timestamps.
    pub granularity: Duration,
    /// Consecutive timeouts without progress after which the connection is aborted.
    pub retries: u8,
    /// The same during the handshake.
    pub retries_opening: u8,
    /// How long `TIME_WAIT` lasts: twice the maximum segment lifetime.
    pub linger: Duration,
    /// Which end lingers.
    pub lingering: Lingering,
    /// Tahoe and Reno, too, do not take duplicates for data sent before the timeout as a new loss
    /// (RFC 2582 §5; ns-2's `bugFix_` as of 1997). NewReno never does.
    pub careful: bool,
    /// Hoe: one new segment for every two duplicate acknowledgements in recovery, instead of window
    /// inflation.
    pub one_for_two: bool,
    /// Hoe: no acknowledgement sends more segments than this.
    pub burst_max: Option<u32>,
    /// Hoe: the first acknowledgements estimate the path's capacity, which sets `ssthresh`.
    pub estimates_start: bool,
    /// Real bytes are stored and delivered; otherwise only their count.
    pub content: bool,
}

impl Config {
    /// Like most hosts of today, with the loss recovery of RFC 5681 and RFC 6675.
    ///
    /// The minimum RTO is Linux's 200 ms, where RFC 6298 §2.4 says 1 s; acknowledgements are delayed by at most
    /// Linux's 40 ms (both in its `include/net/tcp.h`).
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
            counts_bytes: true,
            halves_window: true,
            catches_up: true,
            hystart: false,
            acknowledge_every: 2,
            acknowledge_writes: None,
            acknowledge_within: Duration::from_ms(40),
            acknowledge_first: false,
            acknowledge_opening: false,
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

    /// Like hosts of 1990: Reno, windows of at most 64 KiB, an initial window of one segment, no options except
    /// the MSS, and a clock of 500 ms (Stevens, TCP/IP Illustrated, Volume 2, 1995).
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
