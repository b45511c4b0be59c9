//! What is kept of each connection and each thread from look to look.

use super::diag::Connection as Seen;
use super::processes::{State, ThreadLook};
use super::timeline::History;
use super::{Mark, Observed};
use lastmeter_linux::tcp_info::TcpInfo;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// The most recent marks kept of a connection: eight seconds of looks.
const MARKS_MAX: usize = 400;

/// A receive queue is full from this share of its buffer: the kernel closes the window before the rest.
const FULL: f64 = 0.5;
/// A window is filled from this share of it: the last segment may not fit.
const FILLED: f64 = 0.9;

/// Counts of looks at a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    pub(super) all: u32,
    pub(super) unread: u32,
    pub(super) queue_full: u32,
    pub(super) send_full: u32,
    pub(super) window_filled: u32,
    pub(super) window_closed: u32,
    pub(super) congestion_filled: u32,
    pub(super) tail_held: u32,
    pub(super) not_sent: u32,
    pub(super) application_limited: u32,
    /// Of those at which all connections were listed.
    pub(super) connecting: u32,
    /// Nothing to send and nothing in flight.
    pub(super) empty: u32,
}

/// A connection while it is followed.
pub(super) struct Connection {
    local: String,
    ends: (SocketAddr, SocketAddr),
    pub(super) remote: IpAddr,
    remote_words: String,
    pub(super) pid: u32,
    pub(super) first_at: f64,
    pub(super) last_at: f64,
    pub(super) first: TcpInfo,
    pub(super) last: TcpInfo,
    pub(super) looks: Looks,
    pub(super) rtt_sum: f64,
    pub(super) congestion_sum: f64,
    pub(super) send_buffer: u32,
    pub(super) receive_buffer: (u32, u32),
    pub(super) send_window: (u32, u32),
    pub(super) receive_window: (u32, u32),
    pub(super) windows: Windows,
    pub(super) bbr_rate: Option<f64>,
    /// Sums of bytes: not sent, in flight, not read.
    held: [f64; 3],
    marks: VecDeque<Mark>,
}

/// Seconds over which a rate is taken, where its steadiness matters.
const WINDOW: f64 = 0.1;

/// The rate of a connection in windows of [`WINDOW`], after the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Windows {
    from: f64,
    bytes: u64,
    retransmits: u32,
    /// Sum and sum of squares of the rates, in bits per second.
    sums: (f64, f64),
    all: u32,
    with_loss: u32,
}

impl Windows {
    fn note(&mut self, at: f64, tcp: &TcpInfo) {
        if at - self.from < WINDOW {
            return;
        }
        let bytes = tcp.bytes_acked.max(tcp.bytes_received);
        // The first ends with the slow start, not with a window.
        if self.from > 0.0 {
            let rate = bytes.saturating_sub(self.bytes) as f64 * 8.0 / (at - self.from);
            self.sums = (self.sums.0 + rate, self.sums.1 + rate * rate);
            self.all += 1;
            self.with_loss += u32::from(tcp.retransmits > self.retransmits);
        }
        (self.from, self.bytes, self.retransmits) = (at, bytes, tcp.retransmits);
    }

    /// Standard deviation of the rate over its mean; `None` below five windows.
    pub(super) fn variation(&self) -> Option<f64> {
        let count = f64::from(self.all);
        let mean = self.sums.0 / count;
        let variance = (self.sums.1 / count - mean * mean).max(0.0);
        (self.all >= 5 && mean > 0.0).then(|| variance.sqrt() / mean)
    }

    /// The share of the windows in which something was sent again.
    pub(super) fn with_loss(&self) -> f64 {
        f64::from(self.with_loss) / f64::from(self.all.max(1))
    }
}

/// The least and the greatest of nothing: before it answers, a peer has no window.
const UNKNOWN: (u32, u32) = (u32::MAX, 0);

fn widen((low, high): (u32, u32), value: u32) -> (u32, u32) {
    (low.min(value), high.max(value))
}

impl Connection {
    pub(super) fn new(seen: &Seen, pid: u32, at: f64) -> Connection {
        let tcp = seen.tcp;
        Connection {
            local: seen.local.to_string(),
            ends: (seen.local, seen.remote),
            remote: seen.remote.ip(),
            remote_words: seen.remote.to_string(),
            pid,
            first_at: at,
            last_at: at,
            first: tcp,
            last: tcp,
            looks: Looks::default(),
            rtt_sum: 0.0,
            congestion_sum: 0.0,
            send_buffer: 0,
            receive_buffer: (seen.memory.receive_max, seen.memory.receive_max),
            send_window: if seen.connecting { UNKNOWN } else { (tcp.send_window, tcp.send_window) },
            receive_window: (tcp.receive_window, tcp.receive_window),
            windows: Windows::default(),
            bbr_rate: seen.bbr_rate,
            held: [0.0; 3],
            marks: VecDeque::new(),
        }
    }

    /// Keeps how far the data had come `at` the last look.
    pub(super) fn mark(&mut self, at: f64) {
        if self.marks.len() == MARKS_MAX {
            self.marks.pop_front();
        }
        let tcp = &self.last;
        let (sent, acked, received) = (tcp.departed(), tcp.bytes_acked, tcp.bytes_received);
        self.marks.push_back(Mark { at, sent, acked, received });
    }

    /// A look at it; `listed` if it was found among all connections, as a new one would have been.
    pub(super) fn note(&mut self, seen: &Seen, at: f64, listed: bool) {
        let (tcp, memory) = (seen.tcp, seen.memory);
        let in_flight = f64::from(tcp.unacked) * f64::from(tcp.segment);
        let flying = tcp.departed().saturating_sub(tcp.bytes_acked) as f64;
        let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1));
        let looks = &mut self.looks;
        let count = |which: &mut u32, is: bool| *which += u32::from(is);
        count(&mut looks.all, true);
        count(&mut looks.unread, seen.receive_queue > 0);
        count(&mut looks.queue_full, share(memory.receive, memory.receive_max) >= FULL);
        // The kernel wakes a writer when a third of the buffer is free.
        count(&mut looks.send_full, share(memory.send, memory.send_max) >= 2.0 / 3.0);
        let window = f64::from(tcp.send_window);
        let room = window - in_flight;
        let filled = tcp.unacked > 0 && (in_flight >= FILLED * window || room < tcp.segment.into());
        count(&mut looks.window_filled, filled && !seen.connecting);
        count(&mut looks.window_closed, tcp.send_window < 2 * tcp.segment && !seen.connecting);
        let congested = f64::from(tcp.unacked) >= FILLED * f64::from(tcp.congestion_window);
        count(&mut looks.congestion_filled, tcp.unacked > 0 && congested);
        // The end of a message has room, and waits for no more than that what was sent before it is acknowledged.
        let tail = tcp.not_sent > 0 && tcp.not_sent < tcp.segment && tcp.unacked > 0;
        let has_room = window - flying.min(in_flight) >= f64::from(tcp.not_sent);
        count(&mut looks.tail_held, tail && has_room && !congested);
        count(&mut looks.not_sent, tcp.not_sent >= tcp.segment.max(1));
        count(&mut looks.application_limited, tcp.application_limited);
        count(&mut looks.connecting, seen.connecting && listed);
        count(&mut looks.empty, tcp.unacked == 0 && tcp.not_sent == 0);
        self.windows.note(at, &tcp);
        self.bbr_rate = seen.bbr_rate;
        self.last_at = at;
        self.last = tcp;
        self.rtt_sum += tcp.rtt;
        self.congestion_sum += f64::from(tcp.congestion_window);
        let now = [tcp.not_sent.into(), flying, seen.receive_queue.into()];
        self.held.iter_mut().zip(now).for_each(|(sum, bytes): (&mut f64, f64)| *sum += bytes);
        self.send_buffer = memory.send_max;
        self.receive_buffer = widen(self.receive_buffer, memory.receive_max);
        if !seen.connecting {
            self.send_window = widen(self.send_window, tcp.send_window);
        }
        self.receive_window = widen(self.receive_window, tcp.receive_window);
    }

    /// Its own address and port, and the other end's.
    pub(super) fn ends(&self) -> (SocketAddr, SocketAddr) {
        self.ends
    }

    /// For how many seconds it was seen.
    pub(super) fn seen(&self) -> f64 {
        self.last_at - self.first_at
    }

    pub(super) fn bytes(&self) -> u64 {
        self.last.bytes_acked.saturating_add(self.last.bytes_received)
    }

    pub(super) fn observed(&self) -> Observed {
        let looks = f64::from(self.looks.all.max(1));
        let [not_sent, in_flight, unread] = self.held.map(|sum| sum / looks);
        Observed {
            not_sent,
            in_flight,
            unread,
            marks: self.marks.iter().copied().collect(),
            local: self.local.clone(),
            remote: self.remote_words.clone(),
            seen: self.seen(),
            sent: self.last.bytes_acked,
            received: self.last.bytes_received,
            rtt: self.rtt_sum / looks,
            first: self.first,
            last: self.last,
        }
    }
}

/// A thread while it is followed.
pub(super) struct Thread {
    pub(super) first: ThreadLook,
    pub(super) last: ThreadLook,
    pub(super) all: u32,
    /// Looks by [`State`].
    states: [u32; State::COUNT],
    pub(super) history: History,
}

impl Thread {
    pub(super) fn new(look: ThreadLook, at: f64) -> Thread {
        let states = [0; State::COUNT];
        Thread { first: look, last: look, all: 0, states, history: History::new(at) }
    }

    pub(super) fn note(&mut self, look: ThreadLook, at: f64) {
        self.history.note(at, &self.last, &look);
        self.last = look;
        self.all += 1;
        self.states[look.state as usize] += 1;
    }

    /// Looks at which it was in `state`.
    pub(super) fn count(&self, state: State) -> u32 {
        self.states[state as usize]
    }

    /// The share of its time in which it slept in one of `states`. The kernel counts how long it did not sleep; looks
    /// only divide the rest. For a look needs a CPU, too, and a thread that was just woken may be waiting for that one,
    /// so looks by themselves find too few asleep.
    pub(super) fn asleep(&self, states: &[State]) -> f64 {
        let asleep = self.all - self.count(State::Ready);
        if asleep == 0 {
            return 0.0;
        }
        let found: u32 = states.iter().map(|state| self.count(*state)).sum();
        let awake = self.last.run + self.last.wait - self.first.run - self.first.wait;
        let awake = match self.history.seconds() {
            seconds if seconds > 0.0 => (awake / seconds).clamp(0.0, 1.0),
            _ => f64::from(self.count(State::Ready)) / f64::from(self.all),
        };
        f64::from(found) / f64::from(asleep) * (1.0 - awake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_has_not_answered_yet_closes_no_window() {
        let end = SocketAddr::from(([10, 0, 0, 1], 80));
        let id = crate::observe::diag::Id { family: 2, bytes: [0; 48] };
        let mut seen = Seen {
            id,
            inode: 1,
            connecting: true,
            local: end,
            remote: end,
            receive_queue: 0,
            tcp: TcpInfo { segment: 1448, unacked: 1, ..TcpInfo::default() },
            memory: crate::observe::diag::Memory::default(),
            bbr_rate: None,
        };
        let mut connection = Connection::new(&seen, 1, 0.0);
        connection.note(&seen, 0.1, true);
        seen.connecting = false;
        for (at, window) in [(0.2, 64_000), (0.3, 128_000)] {
            seen.tcp.send_window = window;
            connection.note(&seen, at, false);
        }
        let looks = &connection.looks;
        assert_eq!((looks.all, looks.window_closed, looks.window_filled), (3, 0, 0));
        assert_eq!(connection.send_window, (64_000, 128_000));
        // 500 bytes behind a small segment, on an interface whose segments are half of the window.
        seen.tcp = TcpInfo { segment: 32_768, send_window: 65_536, not_sent: 500, ..seen.tcp };
        seen.tcp.congestion_window = 18;
        (seen.tcp.bytes_sent, seen.tcp.bytes_acked) = (13_900, 13_801);
        connection.note(&seen, 0.4, false);
        assert_eq!(connection.looks.tail_held, 1);
    }

    #[test]
    fn time_asleep_is_what_is_left_of_time_awake_however_often_it_was_seen_so() {
        let look =
            |run, state| ThreadLook { pid: 1, run, wait: run, user: 0.0, system: 0.0, state };
        let mut thread = Thread::new(look(0.0, State::Ready), 0.0);
        assert_eq!(thread.asleep(&[State::PipeWrite]), 0.0);
        // A tenth of the time on a CPU, a tenth waiting for one; nine looks in twelve find it so.
        for number in 1..=12 {
            let state = match number % 4 {
                0 if number == 12 => State::Disk,
                0 => State::PipeWrite,
                _ => State::Ready,
            };
            thread.note(look(0.01 * f64::from(number), state), 0.1 * f64::from(number));
        }
        let near = |states: &[State], share: f64| (thread.asleep(states) - share).abs() < 1e-9;
        assert!(near(&[State::PipeWrite], 0.8 * 2.0 / 3.0) && near(&[State::Disk], 0.8 / 3.0));
        assert!(near(&[State::PipeWrite, State::Disk], 0.8));
    }
}
