//! A host's network thread: everything between its machines and its socket.

use crate::datagram::{DATAGRAM_LEN_MAX, Datagram, Refused};
use crate::host::Shared;
use lastmeter_base::{Duration, Time};
use lastmeter_transport::channel::message::Node as NodeId;
use lastmeter_transport::channel::station::Departure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// Datagrams received before handling what is due.
const BATCH: usize = 64;
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_ms(100);
/// Bytes that may wait in the kernel for the thread.
const BUFFER_LEN: usize = 4 << 20;

/// How late packets left: from when their last bit should have been sent until the kernel took them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lags {
    /// Departures.
    pub departures: u64,
    /// Of these, at most 10 us, 20 us, 100 us and 1 ms late.
    pub within: [u64; 4],
    /// The latest, in nanoseconds.
    pub worst: u64,
}

impl Lags {
    /// What the steps of `within` mean.
    pub const STEPS: [Duration; 4] = [
        Duration::from_us(10),
        Duration::from_us(20),
        Duration::from_us(100),
        Duration::from_ms(1),
    ];

    fn record(&mut self, lag: Duration) {
        self.departures += 1;
        for (within, step) in self.within.iter_mut().zip(Lags::STEPS) {
            *within += u64::from(lag <= step);
        }
        self.worst = self.worst.max(lag.as_ps() / 1000);
    }

    /// Those of several hosts.
    pub fn and(self, other: Lags) -> Lags {
        let mut within = self.within;
        within.iter_mut().zip(other.within).for_each(|(mine, other)| *mine += other);
        let departures = self.departures + other.departures;
        Lags { departures, within, worst: self.worst.max(other.worst) }
    }
}

/// What a host's socket has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// How late packets left.
    pub lags: Lags,
    /// Datagrams from neighbours.
    pub received: u64,
    /// Datagrams that the kernel did not take.
    pub unsent: u64,
    /// Datagrams that were not for this host or not from a neighbour, or could not be read; by reason.
    pub refused: BTreeMap<String, u64>,
}

/// Enlarges the kernel's buffers as far as it permits.
pub(crate) fn enlarge(socket: &UdpSocket) {
    use rustix::net::sockopt;
    // Other users keep the system's limit.
    let _ = sockopt::set_socket_recv_buffer_size_force(socket, BUFFER_LEN);
    let _ = sockopt::set_socket_send_buffer_size(socket, BUFFER_LEN);
}

/// Serves the socket until told to stop.
pub(crate) fn serve(shared: &Shared, socket: &UdpSocket) {
    // By default the kernel may extend a sleep by up to 50 us to wake up less often.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let neighbours: BTreeMap<NodeId, SocketAddr> =
        shared.settings.links.iter().map(|(node, address, ..)| (*node, *address)).collect();
    let mut seen = Seen::default();
    let mut buffer = vec![0; DATAGRAM_LEN_MAX + 1];
    while !shared.stop.load(Ordering::Relaxed) {
        let (arrived, more) = receive(shared, socket, &neighbours, (&mut buffer, &mut seen));
        let (departures, control, next) = exchange(shared, arrived, &seen);
        for Departure { at, to, frame } in departures {
            let datagram = Datagram::Packet { from: shared.settings.node, to, frame };
            send(shared, socket, &neighbours, (to, &datagram), &mut seen);
            seen.lags.record(shared.settings.epoch.now().saturating_since(at));
        }
        for datagram in control {
            if let Datagram::Control(envelope) = &datagram {
                send(shared, socket, &neighbours, (envelope.to, &datagram), &mut seen);
            }
        }
        if !more {
            sleep(shared, socket, next);
        }
    }
}

/// What has arrived and can be read, and whether there may be more.
fn receive(
    shared: &Shared,
    socket: &UdpSocket,
    neighbours: &BTreeMap<NodeId, SocketAddr>,
    (buffer, seen): (&mut [u8], &mut Seen),
) -> (Vec<(Time, Datagram)>, bool) {
    let mut arrived = Vec::new();
    for _ in 0..BATCH {
        let Ok((len, sender)) = socket.recv_from(buffer) else { return (arrived, false) };
        let epoch = shared.settings.epoch;
        let at = lastmeter_linux::sys::stamp(socket.as_fd())
            .map_or_else(|| epoch.now(), |at| epoch.stamped(at));
        let datagram = Datagram::parse(&buffer[..len], shared.settings.key.as_ref());
        let ends = |datagram: &Datagram| match datagram {
            Datagram::Packet { from, to, .. } => (*from, *to),
            Datagram::Control(envelope) => (envelope.from, envelope.to),
        };
        let word = match datagram {
            Ok(datagram) => {
                let (from, to) = ends(&datagram);
                match neighbours.get(&from) == Some(&sender) && to == shared.settings.node {
                    true => {
                        seen.received += 1;
                        arrived.push((at, datagram));
                        continue;
                    }
                    false => "stranger",
                }
            }
            Err(refused) => Refused::word(refused),
        };
        *seen.refused.entry(word.to_owned()).or_default() += 1;
    }
    (arrived, true)
}

/// Gives the machines what has arrived, each at the instant when the kernel had it: what is due before is done before,
/// so that a host that was asleep decides as one that was not. Takes what is to be sent now, and until when there is
/// nothing to do.
fn exchange(
    shared: &Shared,
    arrived: Vec<(Time, Datagram)>,
    seen: &Seen,
) -> (Vec<Departure<Vec<u8>>>, Vec<Datagram>, Option<Time>) {
    let mut state = shared.state();
    for (at, datagram) in arrived {
        state.station.advance(at);
        match datagram {
            Datagram::Control(envelope) => state.station.node.control(at, envelope),
            Datagram::Packet { from, frame, .. } => state.station.node.arrive_from(at, from, frame),
        }
    }
    let now = shared.settings.epoch.now();
    state.station.advance(now);
    let departures = std::iter::from_fn(|| state.station.departure(now)).collect();
    let control = state.station.node.messages().into_iter().map(Datagram::Control).collect();
    shared.tell(&mut state);
    let next = state.station.next_at(now);
    state.sleeps = next.unwrap_or(Time::MAX);
    state.seen = seen.clone();
    (departures, control, next)
}

fn send(
    shared: &Shared,
    socket: &UdpSocket,
    neighbours: &BTreeMap<NodeId, SocketAddr>,
    (to, datagram): (NodeId, &Datagram),
    seen: &mut Seen,
) {
    let Some(address) = neighbours.get(&to) else { return };
    let bytes = datagram.emit(shared.settings.key.as_ref());
    // What the kernel has no room for is lost like anything else.
    seen.unsent += u64::from(socket.send_to(&bytes, address).is_err());
}

/// Sleeps until something is due, arrives, or is wanted by a program.
fn sleep(shared: &Shared, socket: &UdpSocket, next: Option<Time>) {
    let now = shared.settings.epoch.now();
    let left = next.map_or(SLEEP_MAX, |next| next.saturating_since(now).min(SLEEP_MAX));
    let timeout = Timespec { tv_sec: 0, tv_nsec: (left.as_ps() / 1000) as _ };
    let mut polled = [PollFd::new(socket, PollFlags::IN), PollFd::new(&shared.bell, PollFlags::IN)];
    if poll(&mut polled, Some(&timeout)).is_ok_and(|found| found > 0)
        && !polled[1].revents().is_empty()
    {
        let _ = rustix::io::read(&shared.bell, &mut [0u8; 8]);
    }
}
