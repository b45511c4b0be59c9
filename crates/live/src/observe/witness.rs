//! The facts on which a verdict rests, each with where it was read.
//!
//! Shares are of the looks or of the time in which the connections were seen. Connections to the same
//! host are one: their rates are added, their looks are counted together.

use super::processes::State;
use super::tally::{Connection, Looks, Thread};
use super::{EVERY, KEPT_MAX};
use crate::tcp_info::TcpInfo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What was read of the connections to one host, and of the thread that moves their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Witnesses {
    /// The program sends more than it receives.
    pub sends: bool,
    /// Connections to this host.
    pub connections: usize,
    /// Looks at them.
    pub looks: u32,
    /// Seconds from the first look at one to the last.
    pub seconds: f64,
    /// Bytes in both directions.
    pub bytes: u64,
    /// Bits per second, in the main direction.
    pub rate: f64,

    /// `tcpi_busy_time`: data to send or in flight.
    pub busy: f64,
    /// `tcpi_rwnd_limited`.
    pub window_limited: f64,
    /// `tcpi_sndbuf_limited`.
    pub buffer_limited: f64,
    /// `tcpi_unacked` near `tcpi_snd_cwnd`.
    pub congestion_filled: f64,
    /// `tcpi_unacked` near `tcpi_snd_wnd`.
    pub window_filled: f64,
    /// `tcpi_snd_wnd` below two segments.
    pub window_closed: f64,
    /// The smallest `tcpi_snd_wnd` over the greatest: 1 is constant.
    pub window_constant: f64,
    /// Greatest `tcpi_snd_wnd`, bytes.
    pub window: u32,
    /// Less than a segment waits to be sent while another is not acknowledged and both windows are open.
    pub tail_held: f64,
    /// A segment or more waits to be sent (`tcpi_notsent_bytes`).
    pub not_sent: f64,
    /// `tcpi_delivery_rate_app_limited`.
    pub application_limited: f64,
    /// Mean `tcpi_rtt`, seconds.
    pub rtt: f64,
    /// `tcpi_min_rtt`.
    pub rtt_min: f64,
    /// Segments repeated (less `tcpi_dsack_dups`) of those sent with data.
    pub lost: f64,
    /// `tcpi_max_pacing_rate`, bits per second; `None` if the program set none.
    pub pacing_max: Option<f64>,
    /// Segments with data sent, over those received.
    pub out_over_in: f64,

    /// `SK_MEMINFO`: the send queue near `sk_sndbuf`.
    pub send_full: f64,
    /// `sk_sndbuf`, bytes.
    pub send_buffer: u32,
    /// Data that the program has not read.
    pub unread: f64,
    /// `SK_MEMINFO`: the receive queue takes half of `sk_rcvbuf` or more.
    pub queue_full: f64,
    /// Greatest `sk_rcvbuf`, bytes.
    pub receive_buffer: u32,
    /// `sk_rcvbuf` did not grow.
    pub receive_buffer_fixed: bool,
    /// Greatest `tcpi_rcv_wnd`, bytes.
    pub receive_window: u32,
    /// `tcpi_rcv_rtt`, seconds; 0 if unknown.
    pub receive_rtt: f64,

    /// The thread was on a CPU (`schedstat`).
    pub run: f64,
    /// It was ready for one.
    pub wait: f64,
    /// Of its CPU time, that in user mode; `None` below ten ticks.
    pub user: Option<f64>,
    /// Its control group was kept from its CPUs (`cpu.stat`); `None` if nothing counts it.
    pub throttled: Option<f64>,
    /// Asleep until a time of its own choice (`wchan`).
    pub timer: f64,
    /// Asleep in a disk or file system.
    pub disk: f64,
    /// Asleep in a pipe.
    pub pipe: f64,
    /// Asleep writing to a socket.
    pub send: f64,
    /// Asleep reading from a socket.
    pub receive: f64,
    /// Asleep until one of several descriptors is ready.
    pub poll: f64,
    /// Asleep in anything else.
    pub other: f64,
    /// The share of the time in which it is not known what the thread did.
    pub not_attributed: f64,
}

/// Of the host with most data.
pub(super) fn of(
    all: &[&Connection],
    threads: &[&Thread],
    elapsed: f64,
    throttled: Option<f64>,
) -> Option<Witnesses> {
    let mut hosts: BTreeMap<IpAddr, (u64, Vec<&Connection>)> = BTreeMap::new();
    for connection in all.iter().take(KEPT_MAX) {
        let host = hosts.entry(connection.remote).or_default();
        host.0 = host.0.saturating_add(connection.bytes());
        host.1.push(connection);
    }
    let (bytes, group) = hosts.into_values().max_by_key(|(bytes, _)| *bytes)?;
    let mut w = Witnesses { connections: group.len(), bytes, throttled, ..Witnesses::default() };
    let (from, to) = group
        .iter()
        .fold((f64::MAX, f64::MIN), |(from, to), c| (from.min(c.first_at), to.max(c.last_at)));
    // A connection that was seen once may have lasted as long as the command.
    w.seconds = if to - from < EVERY { elapsed.max(EVERY) } else { to - from };
    network(&mut w, &group);
    thread(&mut w, &group, threads);
    Some(w)
}

fn network(w: &mut Witnesses, group: &[&Connection]) {
    let sum = |of: &dyn Fn(&Connection) -> f64| group.iter().map(|c| of(c)).sum::<f64>();
    let grown = |what: fn(&TcpInfo) -> f64| {
        let seen = sum(&|c| c.last_at - c.first_at).max(EVERY);
        (sum(&|c| (what(&c.last) - what(&c.first)).max(0.0)) / seen).clamp(0.0, 1.0)
    };
    let looks = sum(&|c| c.looks.all.into());
    let share = |which: fn(&Looks) -> u32| sum(&|c| which(&c.looks).into()) / looks.max(1.0);
    let counted = |what: fn(&TcpInfo) -> u32| {
        sum(&|c| f64::from(what(&c.last)) - f64::from(what(&c.first))).max(0.0)
    };
    w.looks = looks as u32;
    let bytes = |what: fn(&TcpInfo) -> u64| {
        sum(&|c| match c.last_at - c.first_at < EVERY {
            true => what(&c.last) as f64,
            false => what(&c.last).saturating_sub(what(&c.first)) as f64,
        })
    };
    let (sent, received) = (bytes(|t| t.bytes_acked), bytes(|t| t.bytes_received));
    w.sends = sent >= received;
    w.rate = sent.max(received) * 8.0 / w.seconds;
    w.busy = grown(|t| t.busy);
    w.window_limited = grown(|t| t.receiver_window_limited);
    w.buffer_limited = grown(|t| t.send_buffer_limited);
    w.congestion_filled = share(|l| l.congestion_filled);
    w.window_filled = share(|l| l.window_filled);
    w.window_closed = share(|l| l.window_closed);
    w.tail_held = share(|l| l.tail_held);
    w.not_sent = share(|l| l.not_sent);
    w.application_limited = share(|l| l.application_limited);
    w.send_full = share(|l| l.send_full);
    w.unread = share(|l| l.unread);
    w.queue_full = share(|l| l.queue_full);
    w.rtt = sum(&|c| c.rtt_sum) / looks.max(1.0);
    let least = |a: f64, b: f64| if a > 0.0 && a < b { a } else { b };
    w.rtt_min = group.iter().map(|c| c.last.rtt_min).fold(f64::MAX, |a, b| least(b, a));
    w.rtt_min = if w.rtt_min < f64::MAX { w.rtt_min } else { 0.0 };
    let repeated = counted(|t| t.retransmits) - counted(|t| t.spurious);
    let (out, back) = (counted(|t| t.data_segments_out), counted(|t| t.data_segments_in));
    w.lost = repeated.max(0.0) / out.max(1.0);
    w.out_over_in = out / back.max(1.0);
    let Some(main) = group.iter().max_by_key(|c| c.bytes()) else { return };
    let pacing = main.last.pacing_max;
    w.pacing_max = (pacing > 0.0).then_some(pacing * group.len() as f64);
    w.window = main.send_window.1;
    w.window_constant = f64::from(main.send_window.0) / f64::from(main.send_window.1.max(1));
    w.send_buffer = main.send_buffer;
    w.receive_buffer = main.receive_buffer.1;
    w.receive_buffer_fixed = main.receive_buffer.0 == main.receive_buffer.1;
    w.receive_window = main.receive_window.1;
    w.receive_rtt = main.last.receive_rtt;
}

/// The thread of the processes that hold the connections which was most on a CPU or asleep in a socket.
fn thread(w: &mut Witnesses, group: &[&Connection], threads: &[&Thread]) {
    let holds = |t: &&&Thread| group.iter().any(|c| c.pid == t.first.pid);
    let activity = |t: &Thread| {
        let sockets = t.count(State::Send) + t.count(State::Receive) + t.count(State::Ready);
        let cpu = (t.last.run - t.first.run) / EVERY;
        f64::from(sockets) + cpu + 0.5 * f64::from(t.count(State::Timer) + t.count(State::Poll))
    };
    let Some(mover) =
        threads.iter().filter(holds).max_by(|a, b| activity(a).total_cmp(&activity(b)))
    else {
        w.not_attributed = 1.0;
        return;
    };
    let looks = f64::from(mover.all.max(1));
    let share = |state: State| f64::from(mover.count(state)) / looks;
    w.timer = share(State::Timer);
    w.disk = share(State::Disk);
    w.pipe = share(State::Pipe);
    w.send = share(State::Send);
    w.receive = share(State::Receive);
    w.poll = share(State::Poll);
    w.other = share(State::Other);
    let (first, last) = (mover.first, mover.last);
    w.run = ((last.run - first.run) / w.seconds).clamp(0.0, 1.0);
    w.wait = ((last.wait - first.wait) / w.seconds).clamp(0.0, 1.0 - w.run);
    let (user, system) = (last.user - first.user, last.system - first.system);
    w.user = (user + system >= 0.1).then(|| user / (user + system));
    let asleep = w.timer + w.disk + w.pipe + w.send + w.receive + w.poll;
    let known = (w.run + w.wait + w.throttled.unwrap_or(0.0)).min(1.0);
    w.not_attributed = (1.0 - known - asleep).clamp(0.0, 1.0);
}
