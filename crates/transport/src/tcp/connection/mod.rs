//! A connection: from handshake to `TIME_WAIT`, without input or output.
//!
//! ```text
//! CLOSED --connect--> SYN_SENT ----SYN,ACK---> ESTABLISHED --FIN sent--> FIN_WAIT_1 --ACK--> FIN_WAIT_2
//! LISTEN ----SYN----> SYN_RECEIVED ---ACK-----^    |                         |                   |
//!            SYN_SENT ---SYN---> SYN_RECEIVED      | FIN                     | FIN               | FIN
//!                                                  v                         v                   v
//!                     CLOSED <--ACK-- LAST_ACK <-- CLOSE_WAIT             CLOSING ---ACK---> TIME_WAIT
//! ```
//!
//! Its owner calls `receive` for each arriving segment, `expire` at [`Connection::ready_at`], and after
//! either, or after the application has acted, `transmit` until there is nothing left. Missed deadlines
//! are served late and once. Invalid segments are answered as in RFC 9293 §3.10.7 and RFC 5961, and never
//! cause a panic.
//!
//! Within the connection a byte is identified by a *position* that does not wrap: the initial sequence
//! number is position 2^32, and the low 32 bits of a position are its distance from there.
//!
//! ```
//! use lastmeter_base::Time;
//! use lastmeter_transport::tcp::{Config, Connection, State};
//! let mut client = Connection::connect(Time::START, Config::modern(), 1000);
//! let mut server = Connection::listen(Config::modern(), 9000);
//! client.offer(2896);
//! let now = Time::START;
//! loop {
//!     let (there, back) = (client.transmit(now), server.transmit(now));
//!     there.iter().for_each(|segment| server.receive(now, segment, &[]));
//!     back.iter().for_each(|segment| client.receive(now, segment, &[]));
//!     if (there, back) == (None, None) {
//!         break;
//!     }
//! }
//! assert_eq!((client.state(), server.readable()), (State::Established, 2896));
//! ```

mod acknowledge;
mod application;
mod content;
mod hystart;
mod paced;
mod receive;
mod start_up;
mod transmit;

use super::control::{Control, Window};
use super::ranges::Ranges;
use super::segment::Flags;
use super::{Config, Lingering, Rtt, Segment};
use content::Content;
use lastmeter_base::{Duration, Time, prefetch};
use start_up::StartUp;
use std::num::NonZeroU64;
use std::sync::Arc;

/// The position of the initial sequence number.
const ORIGIN: u64 = 1 << 32;
/// A timer that is not set.
const NEVER: Time = Time::MAX;

/// States of RFC 9293 §3.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no connection, or no longer one.
    Closed,
    /// Waits for a SYN.
    Listen,
    /// Has sent a SYN.
    SynSent,
    /// Has received a SYN and sent its own.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// Has sent its FIN, which is not acknowledged yet.
    FinWait1,
    /// Its FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer has sent its FIN; data may still be sent.
    CloseWait,
    /// Both have sent a FIN; its own is not acknowledged yet.
    Closing,
    /// The peer's FIN came first; its own is not acknowledged yet.
    LastAck,
    /// Both are done; old segments may still be in flight.
    TimeWait,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides have closed normally.
    Done,
    /// The application aborted it.
    Aborted,
    /// The peer reset it.
    Reset,
    /// The peer answered the SYN with a reset.
    Refused,
    /// Retransmissions got no acknowledgement.
    TimedOut,
}

/// A connection's counters.
///
/// Those updated by every segment come last: they share a cache line with the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Loss events detected by acknowledgements, counted once however many segments were lost.
    pub recoveries: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Total running time of the timers that expired.
    pub waited: Duration,
    /// Time from detecting losses until all data sent by then was acknowledged.
    pub repairing: Duration,
    /// Window reductions due to marks.
    pub reductions: u64,
    /// Probes of a closed window.
    pub probes: u64,
    /// Retransmitted segments with data or FIN.
    pub retransmissions: u64,
    /// Bytes of data sent, including retransmissions.
    pub bytes_sent: u64,
    /// Segments sent, of any kind.
    pub sent: u64,
    /// Segments received, of any kind.
    pub received: u64,
}

/// The state of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery.
    Recovery,
    /// After a timeout: everything sent before it counts as lost.
    Loss,
}

/// Proportional rate reduction (RFC 9937 §6): `prr_delivered`, `prr_out`, `RecoverFS`.
#[derive(Clone, Copy, Debug, Default)]
struct Proportional {
    delivered: u64,
    out: u64,
    flight: u64,
    /// Below this, everything missing counted as lost at the last acknowledgement.
    lost: u64,
}

/// One end of a connection.
///
/// Ten thousand of them exceed the near caches. So fields used by each segment come first, in whole cache
/// lines of 64 bytes, then those of a sender, then those for losses and rare events; counters of rare and
/// of frequent events are in separate lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Connection {
    config: Arc<Config>,
    // The sending side; names are those of RFC 9293 §3.3.1.
    /// `SND.UNA`.
    una: u64,
    /// The position after all data ever sent: `SND.NXT` of a sender that never goes back.
    max: u64,
    /// `RCV.NXT`.
    next: u64,
    /// The position after the window last advertised to the peer.
    advertised: u64,
    /// The position after the application's last byte.
    written: u64,
    iss: u32,
    irs: u32,
    state: State,
    phase: Phase,
    /// The application has no more to send.
    closing: bool,
    syn_due: bool,
    ack_due: bool,
    probe_due: bool,
    /// Full segments not acknowledged yet.
    unacknowledged: u8,
    // Negotiated options.
    timestamps: bool,

    /// `SND.WND`, in bytes.
    wnd: u64,
    /// `SND.WL1` and `SND.WL2`.
    wl1: u64,
    wl2: u64,
    /// The effective segment size: the peer's MSS, less the options of every segment.
    mss: u64,
    /// The last position acknowledged: decides which timestamp is echoed (RFC 7323 §4.3).
    acked: u64,
    /// The position after the data that the application has read.
    consumed: u64,
    ts_recent: u32,
    /// New segments that the present acknowledgement may still send.
    burst_left: u32,
    sack: bool,
    ecn: bool,
    /// ECN marks: to echo, to answer with CWR, and, below, the position up to which they were answered.
    echo: bool,
    cwr_due: bool,
    scale_in: u8,
    scale_out: u8,
    tries: u8,
    probes: u8,

    ack_at: Time,
    /// The retransmission timer, or the persist timer while nothing is in flight.
    timer_at: Time,
    linger_at: Time,
    /// The position of the peer's FIN.
    fin: Option<NonZeroU64>,
    wnd_max: u64,
    reply: Option<Box<Segment>>,
    content: Option<Box<Content>>,
    /// What watches the first slow start.
    start_up: Option<Box<StartUp>>,

    held: Ranges,
    sacked: Ranges,

    marked_until: u64,
    counters: Counters,
    window: Window,
    control: Control,

    rtt: Rtt,
    /// The segment that is being timed: its end, and when it was sent.
    timed: Option<(NonZeroU64, Time)>,

    // Loss recovery.
    duplicates: u32,
    /// Two duplicate acknowledgements send one new segment.
    halves: u32,
    /// `RecoveryPoint` of RFC 6675, `recover` of RFC 6582.
    recover: u64,
    /// When the losses under repair were detected.
    repairs_since: Time,
    /// `HighRxt` of RFC 6675: everything below has been retransmitted in this phase.
    rxt: u64,
    proportional: Proportional,
    /// The ranges that changed last, most recent first (RFC 2018 §4).
    recent: [u64; 4],
    /// The first unacknowledged segment must be retransmitted now.
    head_due: bool,
    /// The retransmission timer has been restarted by a partial acknowledgement (RFC 6582 §4).
    restarted: bool,
    ended: Option<Ended>,
    /// Whether this end opened the connection, and whether the opener lingers in any case.
    opener: bool,
    opener_lingers: bool,
}

/// The window lies in a line with what each segment counts, and the round-trip time is in the next.
const _: () = assert!(
    std::mem::offset_of!(Connection, window) % 64 == 24
        && std::mem::offset_of!(Connection, rtt) % 64 == 0
        && std::mem::offset_of!(Connection, duplicates) % 64 == 0
);

impl Connection {
    /// Opens a connection with this initial sequence number; `transmit` returns the SYN.
    pub fn connect(_now: Time, config: impl Into<Arc<Config>>, iss: u32) -> Connection {
        let mut connection = Connection::new(config.into(), iss, State::SynSent);
        connection.syn_due = true;
        connection
    }

    /// Waits for a connection, which will have this initial sequence number.
    pub fn listen(config: impl Into<Arc<Config>>, iss: u32) -> Connection {
        Connection::new(config.into(), iss, State::Listen)
    }

    fn new(config: Arc<Config>, iss: u32, state: State) -> Connection {
        let mss = u64::from(config.mss).max(1);
        Connection {
            state,
            ended: None,
            phase: Phase::Open,
            iss,
            mss,
            una: ORIGIN,
            max: ORIGIN,
            written: ORIGIN + 1,
            closing: false,
            wnd: 0,
            wnd_max: 0,
            wl1: 0,
            wl2: 0,
            window: Window {
                congestion: u64::from(config.initial_window.max(1)) * mss,
                threshold: config.initial_threshold.map_or(u64::MAX, |bytes| bytes.0),
                mss,
            },
            control: Control::new(config.control),
            rtt: Rtt::new(&config),
            timed: None,
            duplicates: 0,
            recover: ORIGIN,
            repairs_since: Time::START,
            rxt: ORIGIN,
            sacked: Ranges::default(),
            head_due: false,
            proportional: Proportional::default(),
            restarted: false,
            burst_left: config.burst_max.unwrap_or(u32::MAX),
            halves: 0,
            start_up: StartUp::of(&config).map(Box::new),
            irs: 0,
            next: ORIGIN,
            advertised: ORIGIN,
            consumed: ORIGIN + 1,
            held: Ranges::default(),
            recent: [0; 4],
            fin: None,
            ts_recent: 0,
            acked: 0,
            syn_due: false,
            ack_due: false,
            reply: None,
            probe_due: false,
            unacknowledged: 0,
            ack_at: NEVER,
            timer_at: NEVER,
            linger_at: NEVER,
            tries: 0,
            probes: 0,
            scale_in: 0,
            scale_out: 0,
            sack: false,
            timestamps: false,
            ecn: false,
            opener: state == State::SynSent,
            opener_lingers: false,
            echo: false,
            cwr_due: false,
            marked_until: ORIGIN,
            counters: Counters::default(),
            content: config.content.then(Box::default),
            config,
        }
    }

    /// Prefetches the memory that a segment will need; a sender needs more.
    #[inline]
    pub(crate) fn prefetch(&self, sends: bool) {
        prefetch(&self.una);
        prefetch(&self.wnd);
        prefetch(&self.ack_at);
        prefetch(&self.counters.sent);
        prefetch(&self.held);
        if sends {
            prefetch(&self.rtt);
        }
    }

    /// The initial sequence number of this side.
    pub fn initial_sequence(&self) -> u32 {
        self.iss
    }
    /// Its state.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }
    /// Why it is closed; `None` while it is not.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }
    /// Its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// The congestion window and `ssthresh`.
    pub fn window(&self) -> Window {
        self.window
    }
    /// Its round-trip time estimate.
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }
    /// The present RTO.
    pub fn timeout(&self) -> Duration {
        self.rtt.timeout(&self.config)
    }
    /// The congestion control's state.
    pub fn control(&self) -> &Control {
        &self.control
    }
    /// The peer's advertised window, in bytes.
    pub fn peer_window(&self) -> u64 {
        self.wnd
    }
    /// Bytes sent and not acknowledged.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.max - self.una
    }
    /// Bytes of data that a full segment carries.
    pub fn segment_size(&self) -> u64 {
        self.mss
    }

    /// When to call [`Connection::expire`]; `None` while it waits only for segments or its application.
    #[inline]
    pub fn ready_at(&self) -> Option<Time> {
        let mut at = self.ack_at.min(self.timer_at).min(self.linger_at);
        if let Control::Bbr(bbr) = &self.control {
            at = at.min(bbr.wakes_at().unwrap_or(NEVER));
        }
        (at != NEVER).then_some(at)
    }

    /// Serves every timer that is due.
    pub fn expire(&mut self, now: Time) {
        if let Some(bbr) = self.model() {
            bbr.woken(now);
        }
        if self.ack_at <= now {
            self.ack_at = NEVER;
            self.ack_due = true;
        }
        if self.linger_at <= now {
            self.end(Ended::Done);
        }
        if self.timer_at <= now {
            self.timer_at = NEVER;
            match self.max == self.una && !self.syn_due {
                true => self.persist(now),
                false => self.time_out(now),
            }
        }
    }

    /// Releases everything except data that can still be read.
    fn end(&mut self, why: Ended) {
        self.state = State::Closed;
        self.ended = Some(why);
        (self.ack_at, self.timer_at, self.linger_at) = (NEVER, NEVER, NEVER);
        (self.syn_due, self.ack_due, self.probe_due, self.head_due) = (false, false, false, false);
        self.sacked.clear();
        self.held.clear();
        self.start_up = None;
        if let Some(bbr) = self.model() {
            bbr.end();
        }
    }

    /// Both FINs are acknowledged, and the peer's was the last: this end lingers, unless the peer
    /// does.
    fn enter_time_wait(&mut self, now: Time) {
        if self.opener_lingers && !self.opener {
            if self.ack_due {
                self.reply_with_echo(now);
            }
            self.end(Ended::Done);
            return;
        }
        self.linger(now);
    }

    fn linger(&mut self, now: Time) {
        self.state = State::TimeWait;
        self.timer_at = NEVER;
        self.linger_at = now + self.config.linger;
    }

    /// The peer has acknowledged the last FIN: it lingers, unless this end takes over.
    fn finish_last(&mut self, now: Time) {
        if self.opener && self.config.lingering == Lingering::Shift {
            self.reply = Some(Box::new(self.reset()));
            self.linger(now);
        } else if self.opener && self.opener_lingers {
            self.linger(now);
        } else {
            self.end(Ended::Done);
        }
    }

    /// A reset that the peer accepts.
    fn reset(&self) -> Segment {
        let seq = self.number(self.max);
        let ack = self.irs.wrapping_add(self.next as u32);
        Segment { seq, ack, flags: Flags::RST.and(Flags::ACK), ..Segment::default() }
    }

    /// A position as a sequence number of ours.
    #[inline]
    fn number(&self, position: u64) -> u32 {
        self.iss.wrapping_add(position as u32)
    }
    /// A sequence number of the peer as a position: the one nearest to the next expected.
    #[inline]
    fn place(&self, seq: u32) -> u64 {
        let expected = self.irs.wrapping_add(self.next as u32);
        self.next.wrapping_add_signed(i64::from(seq.wrapping_sub(expected) as i32))
    }
    /// An acknowledgement of ours as a position.
    #[inline]
    fn place_of_ack(&self, ack: u32) -> u64 {
        let una = self.number(self.una);
        self.una.wrapping_add_signed(i64::from(ack.wrapping_sub(una) as i32))
    }
    /// The value of the timestamp clock.
    #[inline]
    fn ticks(&self, now: Time) -> u32 {
        (now.as_ps() / self.config.granularity.as_ps().max(1)) as u32
    }
}
