//! The facts on which a verdict rests, each with where it was read.
//!
//! Shares are of the looks or of the time in which the connections were seen. Connections to the same
//! host are one: their rates are added, their looks are counted together.

use super::datagrams::Udp;
use super::processes::State;
use super::surroundings::{MachineChange, Network};
use super::tally::{Connection, Looks, Thread};
use super::{EVERY, KEPT_MAX};
use lastmeter_linux::tcp_info::TcpInfo;
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
    /// Looks at the program.
    pub program_looks: u32,
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
    /// Segments that arrived for each segment with data sent: acknowledgements.
    pub acknowledged: f64,
    /// Segments that arrived, and segments that were sent.
    pub segments: (u64, u64),
    /// Segments with data sent each second.
    pub data_out: f64,
    /// Of the connection with most data: when it was last seen (seconds of the monotonic clock), and how
    /// many bytes were acknowledged or had arrived by then.
    pub at: (f64, u64),
    /// Of the segments repeated, those repeated for nothing (`tcpi_dsack_dups`).
    pub spurious: f64,
    /// Times that segments were seen to overtake each other (`tcpi_reord_seen`).
    pub reordered: u32,
    /// Bytes of data in a segment, in the main direction.
    pub payload: f64,
    /// `tcpi_snd_mss`.
    pub segment: u32,
    /// Nothing to send and nothing in flight.
    pub empty: f64,
    /// Deviation of the rate of windows of 0.1 s from their mean; `None` below five.
    pub variation: Option<f64>,
    /// The share of these windows in which something was repeated.
    pub lossy_windows: f64,
    /// What BBR takes the path to carry, bits per second; `None` under another congestion control.
    pub bbr_rate: Option<f64>,
    /// Mean congestion window of the looks, segments.
    pub congestion_window: f64,

    /// Connections opened or accepted in the namespace each second (`/proc/net/snmp`).
    pub opened: f64,
    /// Bytes of a connection, on average.
    pub bytes_each: f64,
    /// The share of the looks with a socket to a name server.
    pub names: f64,
    /// Datagrams that the namespace received and sent each second.
    pub datagrams: (f64, f64),
    /// Of the datagrams that arrived, the share dropped at a full buffer.
    pub overflowed: f64,
    /// Its UDP sockets.
    #[serde(default)]
    pub udp: Udp,
    /// Packets dropped by interfaces, queueing disciplines and CPU backlogs.
    pub dropped: u64,
    /// The greatest share of its time that a CPU spent in softirqs (`/proc/stat`).
    pub softirq: f64,
    /// The idle share of all CPUs.
    pub idle: f64,
    /// The share of the time in which some thread of the machine waited for a CPU (PSI).
    pub pressure: f64,

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
    /// Of `pipe`, writing one that is full; the rest is reading one that is empty.
    pub pipe_write: f64,
    /// Asleep until a connection is made, or with one whose handshake is not over (`TCP_SYN_SENT`).
    pub connect: f64,
    /// Asleep until somebody connects.
    pub accept: f64,
    /// Asleep until another thread or a child does something.
    pub others: f64,
    /// Asleep in anything else.
    pub other: f64,
    /// The share of the time in which it is not known what the thread did.
    pub not_attributed: f64,
}

impl Witnesses {
    /// What is known to a user who may not see the process: its socket, and the machine.
    #[must_use]
    pub fn of_the_socket(&self) -> Witnesses {
        Witnesses {
            names: 0.0,
            run: 0.0,
            wait: 0.0,
            user: None,
            throttled: None,
            timer: 0.0,
            disk: 0.0,
            pipe: 0.0,
            send: 0.0,
            receive: 0.0,
            poll: 0.0,
            pipe_write: 0.0,
            connect: 0.0,
            accept: 0.0,
            others: 0.0,
            other: 0.0,
            not_attributed: 1.0,
            ..*self
        }
    }
}

/// A connection that carries less than this part of another's bytes, and lasts as long, is idle.
const IDLE_PART: u64 = 100;

/// What was read besides connections and threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    pub(super) throttled: Option<f64>,
    pub(super) network: Network,
    pub(super) machine: MachineChange,
    /// The share of the looks with a socket to a name server.
    pub(super) names: f64,
    /// Looks at the program.
    pub(super) looks: u32,
    /// Those at which all connections were listed.
    pub(super) listings: u32,
    pub(super) udp: Udp,
}

/// Of the host with most data; without a connection, of the program itself.
pub(super) fn of(
    all: &[&Connection],
    threads: &[&Thread],
    elapsed: f64,
    around: &Around,
) -> Option<Witnesses> {
    let mut w =
        Witnesses { throttled: around.throttled, names: around.names, ..Witnesses::default() };
    surroundings(&mut w, around, elapsed);
    let mut hosts: BTreeMap<IpAddr, (u64, Vec<&Connection>)> = BTreeMap::new();
    for connection in all.iter().take(KEPT_MAX) {
        let host = hosts.entry(connection.remote).or_default();
        host.0 = host.0.saturating_add(connection.bytes());
        host.1.push(connection);
    }
    let Some((bytes, mut group)) = hosts.into_values().max_by_key(|(bytes, _)| *bytes) else {
        (w.looks, w.seconds) = (around.looks, elapsed.max(EVERY));
        thread(&mut w, &[], threads);
        return (!threads.is_empty()).then_some(w);
    };
    // One beside the data that carries next to nothing (a control connection) says nothing of the data.
    if let Some(&main) = group.iter().max_by_key(|one| one.bytes()) {
        let idle = |one: &Connection| one.bytes() < main.bytes() / IDLE_PART;
        let lasts = |one: &Connection| one.seen() >= main.seen() / 2.0;
        group.retain(|one| !(idle(one) && lasts(one)));
    }
    (w.connections, w.bytes) = (group.len(), bytes);
    w.bytes_each = bytes as f64 / group.len() as f64;
    let (from, to) = group
        .iter()
        .fold((f64::MAX, f64::MIN), |(from, to), c| (from.min(c.first_at), to.max(c.last_at)));
    // A connection that was seen once may have lasted as long as the command.
    w.seconds = if to - from < EVERY { elapsed.max(EVERY) } else { to - from };
    network(&mut w, &group, around.listings);
    thread(&mut w, &group, threads);
    Some(w)
}

fn surroundings(w: &mut Witnesses, around: &Around, elapsed: f64) {
    let (network, machine) = (around.network, around.machine);
    // Of a program that has ended its namespace's counters were last read before.
    let seconds = if network.at > 0.0 { network.at } else { elapsed };
    let each_second = |count: u64| count as f64 / seconds.max(EVERY);
    w.opened = each_second(network.opened);
    w.datagrams = (each_second(network.datagrams_in), each_second(network.datagrams_out));
    let arrived = (network.datagrams_in + network.overflows).max(1) as f64;
    w.overflowed = network.overflows as f64 / arrived;
    w.dropped = network.interface_drops + network.queue_drops + machine.backlog_drops;
    w.program_looks = around.looks;
    w.udp = around.udp;
    (w.softirq, w.idle, w.pressure) = (machine.softirq, machine.idle, machine.pressure);
}

fn network(w: &mut Witnesses, group: &[&Connection], listings: u32) {
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
    let segments = |what: fn(&TcpInfo) -> u32| counted(what) as u64;
    w.segments = (segments(|t| t.segments_in), segments(|t| t.segments_out));
    w.acknowledged = w.segments.0 as f64 / out.max(1.0);
    w.spurious = counted(|t| t.spurious) / counted(|t| t.retransmits).max(1.0);
    w.reordered = counted(|t| t.reordered) as u32;
    w.payload = if w.sends { sent / out.max(1.0) } else { received / back.max(1.0) };
    w.empty = share(|l| l.empty);
    let connecting = sum(&|c| c.looks.connecting.into());
    w.connect = (connecting / f64::from(listings.max(1))).min(1.0);
    w.data_out = out / w.seconds;
    w.congestion_window = sum(&|c| c.congestion_sum) / looks.max(1.0);
    let Some(main) = group.iter().max_by_key(|c| c.bytes()) else { return };
    let pacing = main.last.pacing_max;
    w.pacing_max = (pacing > 0.0).then_some(pacing * group.len() as f64);
    w.at = (main.last_at, main.bytes());
    w.segment = main.last.segment;
    w.bbr_rate = main.bbr_rate.map(|_| sum(&|c| c.bbr_rate.unwrap_or(0.0)));
    w.variation = main.windows.variation();
    w.lossy_windows = main.windows.with_loss();
    w.window = main.send_window.1;
    let (least, most) = main.send_window;
    w.window_constant = (f64::from(least) / f64::from(most.max(1))).min(1.0);
    w.send_buffer = main.send_buffer;
    w.receive_buffer = main.receive_buffer.1;
    w.receive_buffer_fixed = main.receive_buffer.0 == main.receive_buffer.1;
    w.receive_window = main.receive_window.1;
    w.receive_rtt = main.last.receive_rtt;
}

/// The thread that moves the data: of the processes that hold the connections, or of all where there are
/// none, the one that was most on a CPU or asleep in a socket.
pub(super) fn mover<'a>(group: &[&Connection], threads: &[&'a Thread]) -> Option<&'a Thread> {
    let holds = |t: &&&Thread| group.is_empty() || group.iter().any(|c| c.pid == t.first.pid);
    // One that was seen in a socket moves the data; a pipe is nearer to it than a timer.
    let activity = |t: &Thread| {
        let sockets = [State::Send, State::Receive, State::Ready, State::Connect, State::Accept];
        let pipes = [State::PipeRead, State::PipeWrite, State::Disk];
        let rest = [State::Timer, State::Poll, State::PipeOrSocket];
        let count = |states: &[State]| states.iter().map(|s| f64::from(t.count(*s))).sum::<f64>();
        let cpu = (t.last.run - t.first.run) / EVERY;
        count(&sockets) + cpu + 0.6 * count(&pipes) + 0.4 * count(&rest)
    };
    threads.iter().filter(holds).max_by(|a, b| activity(a).total_cmp(&activity(b))).copied()
}

fn thread(w: &mut Witnesses, group: &[&Connection], threads: &[&Thread]) {
    let Some(mover) = mover(group, threads) else {
        w.not_attributed = 1.0;
        return;
    };
    let looks = f64::from(mover.all.max(1));
    let share = |state: State| f64::from(mover.count(state)) / looks;
    w.timer = share(State::Timer);
    w.disk = share(State::Disk);
    w.pipe_write = share(State::PipeWrite);
    // Whoever sends waits for what it is to send, whoever receives for what is sent to it.
    let (pipe, socket) = match (w.sends, share(State::PipeOrSocket)) {
        (true, share) => (share, 0.0),
        (false, share) => (0.0, share),
    };
    w.pipe = share(State::PipeRead) + pipe + w.pipe_write;
    w.connect = w.connect.max(share(State::Connect));
    w.accept = share(State::Accept);
    w.others = share(State::Others);
    w.send = share(State::Send);
    w.receive = share(State::Receive);
    w.poll = share(State::Poll) + socket;
    w.other = share(State::Other);
    let (first, last) = (mover.first, mover.last);
    let (user, system) = (last.user - first.user, last.system - first.system);
    w.user = (user + system >= 0.1).then(|| user / (user + system));
    let asleep = [State::Timer, State::Disk, State::PipeRead, State::PipeWrite, State::Send]
        .into_iter()
        .chain([State::Receive, State::Poll, State::PipeOrSocket, State::Connect])
        .chain([State::Accept, State::Others])
        .map(share)
        .sum::<f64>();
    w.run = ((last.run - first.run) / w.seconds).clamp(0.0, 1.0);
    // The kernel counts some of the time asleep as waiting (delayed dequeueing), but not both are so.
    let awake = (1.0 - w.run - asleep).max(0.0);
    w.wait = ((last.wait - first.wait) / w.seconds).clamp(0.0, awake);
    let known = (w.run + w.wait + w.throttled.unwrap_or(0.0)).min(1.0);
    w.not_attributed = (1.0 - known - asleep).clamp(0.0, 1.0);
}
