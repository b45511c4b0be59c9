//! How packets get from one port processor to another: queues at the input, a channel of batches for each pair, frames
//! that go home.
//!
//! ```text
//! input side --> [ waiting for processor k ] --> batches of 64, at most 64 of them --> output side of k --> line
//!     ^      or  [ virtual output queues ] at their rates: `distributed`                        |
//!     +------------------------------- frames, when they have departed <------------------------+
//! ```
//!
//! Packets keep their buffers: all port processors have the same memory, and a frame is lent. Nobody waits for
//! anybody: a batch that does not fit stays where it is, and what an input may keep for an output is limited; beyond
//! it packets are dropped (`input-full`), those for a port processor that has ended at once (`link-down`). Packets of
//! a flow stay in order, since all queues between two ports are first in, first out.
//!
//! Rows: D-25, D-50, D-65.

use super::count::{Counters, Reason};
use super::distributed::{Board, Distributed};
use super::hop::{Hops, Neighbour};
use super::parse::ETHERNET;
use super::{Going, PortProcessor};
use crate::config::{Config, Fabric, ROOM};
use lastmeter_base::Time;
use lastmeter_linux::dataplane::{Frames, Lent, Returned};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Instant;

/// Packets of a batch.
const BATCH: usize = 64;
/// Batches between two port processors.
const BATCHES_MAX: usize = 64;
/// Batches that are taken from another before own ports have their turn.
const TURN: usize = 4;
/// Frames that go home together, while there is other work.
const HOME: usize = 64;
/// Emptied lists that are kept.
const SPARE_MAX: usize = 8;
/// A neighbour whose number here is not known.
const UNKNOWN: u32 = u32::MAX;

/// A packet that waits at its input.
#[derive(Clone, Copy)]
pub(super) struct Inside {
    pub(super) going: Going,
    /// Where it goes: numbers of neighbours are not the same everywhere.
    to: (u16, IpAddr),
    /// Setups at that time: reservations have other numbers after the next one.
    setup: u64,
}

/// A packet between two port processors.
pub(super) struct Crossed {
    inside: Inside,
    lent: Lent,
}

type Batch = Vec<Crossed>;

/// Packets that went from one port processor to another.
#[derive(Debug, Default)]
pub struct Passed {
    /// Handed over.
    pub sent: AtomicU64,
    /// Taken.
    pub taken: AtomicU64,
}

/// For each port processor, and each that takes from it.
pub type AllPassed = Arc<Vec<Vec<Passed>>>;

/// Wakes a port processor up that sleeps.
#[derive(Debug)]
pub struct Sleeper {
    asleep: AtomicBool,
    wake: OwnedFd,
}

impl Sleeper {
    /// Of the port processor that looks at `wake` while it sleeps.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn new(wake: &OwnedFd) -> std::io::Result<Sleeper> {
        Ok(Sleeper { asleep: AtomicBool::new(false), wake: wake.as_fd().try_clone_to_owned()? })
    }
    /// It will sleep: whoever has something for it after this wakes it up.
    fn lies_down(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
    fn gets_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
    /// There is something for it.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// What a port processor shares with one other.
struct Peer {
    to: SyncSender<Batch>,
    from: Receiver<Batch>,
    /// Frames of the other go home.
    home: SyncSender<Returned>,
    /// Own frames come home.
    returned: Receiver<Returned>,
    sleeper: Arc<Sleeper>,
    /// Packets for it.
    waiting: VecDeque<Inside>,
    /// A batch that did not fit.
    stuck: Option<Batch>,
    /// Its neighbours by number there: their numbers here.
    numbers: Vec<u32>,
    /// It has ended.
    gone: bool,
}

/// The ways between a port processor and all others.
pub struct Crossing {
    me: usize,
    /// The port processor of each port.
    owners: Vec<usize>,
    peers: Vec<Option<Peer>>,
    sleeper: Arc<Sleeper>,
    /// For each output, bytes that wait here.
    backlog: Vec<u64>,
    room: u64,
    pub(super) distributed: Option<Distributed>,
    passed: AllPassed,
    spare: Vec<Batch>,
    batches: u64,
}

impl Crossing {
    /// The ways between the port processors of a configuration; none is needed by one without distributed queueing.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn between(
        config: &Config,
        wakes: &[OwnedFd],
    ) -> std::io::Result<(Vec<Option<Crossing>>, AllPassed)> {
        let count = config.processors.len();
        let row = |_| (0..count).map(|_| Passed::default()).collect::<Vec<_>>();
        let passed: AllPassed = Arc::new((0..count).map(row).collect());
        if count == 1 && config.fabric.is_none() {
            return Ok((vec![None], passed));
        }
        let sleepers: Vec<Arc<Sleeper>> =
            wakes.iter().map(|wake| Sleeper::new(wake).map(Arc::new)).collect::<Result<_, _>>()?;
        let board = Arc::new(Board::new(config.ports.len()));
        let room = config.fabric.map_or(ROOM, |fabric: Fabric| fabric.room).0;
        let mut all: Vec<Crossing> = (0..count)
            .map(|me| Crossing {
                me,
                owners: config.owners(),
                peers: (0..count).map(|_| None).collect(),
                sleeper: sleepers[me].clone(),
                backlog: vec![0; config.ports.len()],
                room,
                distributed: Distributed::new(config, me, &board),
                passed: passed.clone(),
                spare: Vec::new(),
                batches: 0,
            })
            .collect();
        for one in 0..count {
            for other in one + 1..count {
                let (there, from_one) = sync_channel(BATCHES_MAX);
                let (back, from_other) = sync_channel(BATCHES_MAX);
                let (home_other, returned_other) = sync_channel(BATCHES_MAX);
                let (home_one, returned_one) = sync_channel(BATCHES_MAX);
                let peer = |sleeper: usize, to, from, home, returned| Peer {
                    to,
                    from,
                    home,
                    returned,
                    sleeper: sleepers[sleeper].clone(),
                    waiting: VecDeque::new(),
                    stuck: None,
                    numbers: Vec::new(),
                    gone: false,
                };
                all[one].peers[other] =
                    Some(peer(other, there, from_other, home_other, returned_one));
                all[other].peers[one] = Some(peer(one, back, from_one, home_one, returned_other));
            }
        }
        Ok((all.into_iter().map(Some).collect(), passed))
    }

    /// Whether a packet for this port has to wait here, or to go elsewhere.
    #[inline]
    pub(super) fn takes(&self, port: u16, crossed: bool) -> bool {
        self.owners[usize::from(port)] != self.me || (self.distributed.is_some() && !crossed)
    }
    /// Packets that wait here.
    pub(super) fn waiting(&self) -> u64 {
        let peers = self.peers.iter().flatten();
        let packets = |peer: &Peer| peer.waiting.len() + peer.stuck.as_ref().map_or(0, Vec::len);
        let queued = self.distributed.as_ref().map_or(0, Distributed::packets);
        peers.map(packets).sum::<usize>() as u64 + queued
    }
    /// Packets handed over to each other one so far, and taken from each.
    pub(super) fn passed(&self) -> [Vec<u64>; 2] {
        let sent = self.passed[self.me].iter().map(|way| way.sent.load(Ordering::Relaxed));
        let taken = self.passed.iter().map(|ways| ways[self.me].taken.load(Ordering::Relaxed));
        [sent.collect(), taken.collect()]
    }
    /// When it has something to do next, if it has.
    pub(super) fn ready_at(&self, now: Time) -> Option<Time> {
        let is_stuck = self.peers.iter().flatten().any(|peer| peer.stuck.is_some());
        // Whoever takes a batch does not tell: look again soon.
        let again = is_stuck.then(|| now + super::SOON);
        let due = self.distributed.as_ref().and_then(Distributed::ready_at);
        again.into_iter().chain(due).min()
    }
    /// For each output, bytes that wait here.
    pub(super) fn backlog(&self) -> &[u64] {
        &self.backlog
    }
    /// What can be seen of distributed queueing.
    pub(super) fn shown(&self) -> Option<serde_json::Value> {
        self.distributed.as_ref().map(Distributed::shown)
    }
    pub(super) fn lies_down(&self) {
        self.sleeper.lies_down();
    }
    pub(super) fn gets_up(&self) {
        self.sleeper.gets_up();
    }
    /// Packets that are to leave by a port of one that has ended.
    fn ended(&mut self, other: usize, frames: &mut Frames, counts: &[Counters]) {
        let Some(peer) = &mut self.peers[other] else { return };
        for inside in peer.waiting.drain(..) {
            self.backlog[usize::from(inside.to.0)] -= len(&inside.going);
            frames.free(inside.going.passing.frame);
            counts[usize::from(inside.going.port)].drop(Reason::LinkDown);
        }
    }
    /// Hands packets to the port processors of their outputs, as many as fit; how many.
    fn hand_over(&mut self, frames: &mut Frames, counts: &[Counters]) -> usize {
        let mut all = 0;
        for other in 0..self.peers.len() {
            let Some(peer) = &mut self.peers[other] else { continue };
            let before = all;
            while peer.stuck.is_some() || !peer.waiting.is_empty() {
                let batch = peer.stuck.take().unwrap_or_else(|| {
                    let mut batch = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BATCH));
                    let count = peer.waiting.len().min(BATCH);
                    batch.extend(peer.waiting.drain(..count).map(|inside| {
                        self.backlog[usize::from(inside.to.0)] -= len(&inside.going);
                        let lent = frames.lend(inside.going.passing.frame);
                        Crossed { inside, lent }
                    }));
                    batch
                });
                let count = batch.len();
                match peer.to.try_send(batch) {
                    Ok(()) => {
                        Counters::add(&self.passed[self.me][other].sent, count as u64);
                        all += count;
                    }
                    Err(TrySendError::Full(batch)) => {
                        peer.stuck = Some(batch);
                        break;
                    }
                    Err(TrySendError::Disconnected(batch)) => {
                        peer.gone = true;
                        for Crossed { inside, lent } in batch {
                            let frame = frames.accept(lent);
                            frames.free(frame);
                            counts[usize::from(inside.going.port)].drop(Reason::LinkDown);
                        }
                        break;
                    }
                }
            }
            if all > before {
                peer.sleeper.wake();
            }
            if peer.gone {
                self.ended(other, frames, counts);
            }
        }
        all
    }
    /// Sends frames of others home: all, or of those of whom there are many.
    fn send_home(&mut self, frames: &mut Frames, all: bool) {
        for (other, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            let count = frames.foreign_count(other);
            if count == 0 || (count < HOME && !all) {
                continue;
            }
            match peer.home.try_send(frames.take_foreign(other)) {
                Ok(()) => peer.sleeper.wake(),
                Err(TrySendError::Full(returned)) => frames.keep_foreign(other, returned),
                // Nobody is there to use them.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }
    /// Takes what others have handed over, and own frames that have come home.
    fn take(&mut self, frames: &mut Frames, into: &mut Vec<(usize, Batch)>) {
        for (other, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            while let Ok(returned) = peer.returned.try_recv() {
                frames.come_home(returned);
            }
            for _ in 0..TURN {
                match peer.from.try_recv() {
                    Ok(batch) => into.push((other, batch)),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
        }
    }
    /// The number of a neighbour here, which has another at its sender's.
    fn number(&mut self, from: usize, inside: &Inside, hops: &mut Hops) -> Option<u32> {
        let numbers = &mut self.peers[from].as_mut()?.numbers;
        let place = inside.going.neighbour as usize;
        let is_it = |own: &Neighbour| (own.port, own.address) == inside.to;
        match numbers.get(place) {
            Some(number) if *number != UNKNOWN && is_it(hops.neighbour(*number)) => Some(*number),
            _ => {
                let number = hops.number(inside.to.0, inside.to.1)?;
                if numbers.len() <= place {
                    numbers.resize(place + 1, UNKNOWN);
                }
                numbers[place] = number;
                Some(number)
            }
        }
    }
}

/// Bytes of a packet with its Ethernet header.
fn len(going: &Going) -> u64 {
    u64::from(going.passing.seen.len) + ETHERNET as u64
}

impl PortProcessor {
    /// A packet for another processor's port, or for the queues in front of distributed queueing.
    #[inline(never)]
    pub(super) fn cross(&mut self, going: Going, to: Neighbour, now: Time) {
        let Some(crossing) = &mut self.crossing else { return };
        let port = usize::from(to.port);
        let len = len(&going);
        let inside = Inside { going, to: (to.port, to.address), setup: self.setups };
        let owner = crossing.owners[port];
        let reason = if crossing.peers[owner].as_ref().is_some_and(|peer| peer.gone) {
            Some(Reason::LinkDown)
        } else if crossing.backlog[port] + len > crossing.room {
            Some(Reason::InputFull)
        } else {
            match (&mut crossing.distributed, &mut crossing.peers[owner]) {
                (Some(distributed), _) => {
                    distributed.enqueue(now, going.port, port, going.passing.seen.len, inside);
                }
                (None, Some(peer)) => peer.waiting.push_back(inside),
                (None, None) => unreachable!("a port of one's own is reached without a queue"),
            }
            None
        };
        match reason {
            None => crossing.backlog[port] += len,
            Some(reason) => {
                self.frames.free(going.passing.frame);
                self.counts[usize::from(going.port)].drop(reason);
            }
        }
    }

    /// Packets from others go on, and own ones to others; how many.
    pub(super) fn pass_on(&mut self, now: Time) -> usize {
        let Some(crossing) = &mut self.crossing else { return 0 };
        let timed = crossing.batches.is_multiple_of(super::SAMPLE).then(Instant::now);
        let mut batches = std::mem::take(&mut self.incoming);
        crossing.take(&mut self.frames, &mut batches);
        let mut all = 0;
        for (from, mut batch) in batches.drain(..) {
            all += batch.len();
            let count = batch.len() as u64;
            for crossed in batch.drain(..) {
                self.arrive(from, crossed, now);
            }
            self.depart(now);
            let Some(crossing) = &mut self.crossing else { break };
            Counters::add(&crossing.passed[from][crossing.me].taken, count);
            crossing.batches += 1;
            if crossing.spare.len() < SPARE_MAX {
                crossing.spare.push(batch);
            }
        }
        self.incoming = batches;
        all += self.let_out(now);
        if let Some(crossing) = &mut self.crossing {
            all += crossing.hand_over(&mut self.frames, &self.counts);
            crossing.send_home(&mut self.frames, all == 0);
        }
        if let Some(timed) = timed.filter(|_| all > 0) {
            let spent = u64::try_from(timed.elapsed().as_nanos()).unwrap_or(0);
            Counters::add(&self.stages.spent[7], spent);
        }
        all
    }

    /// A packet has come from another port processor.
    fn arrive(&mut self, from: usize, Crossed { inside, lent }: Crossed, now: Time) {
        let frame = self.frames.accept(lent);
        let mut going = Going { crossed: true, ..inside.going };
        going.passing.frame = frame;
        if inside.setup != self.setups {
            going.reserved = None;
        }
        let number = self
            .crossing
            .as_mut()
            .and_then(|crossing| crossing.number(from, &inside, &mut self.hops));
        match number {
            Some(neighbour) => self.deliver(Going { neighbour, ..going }, now),
            None => {
                self.frames.free(frame);
                self.counts[usize::from(going.port)].drop(Reason::NoNeighbour);
            }
        }
    }

    /// Packets leave the virtual output queues as their rates allow.
    fn let_out(&mut self, now: Time) -> usize {
        let distributed = |crossing: &mut Option<Crossing>| -> Option<(usize, Inside)> {
            crossing.as_mut()?.distributed.as_mut()?.dequeue(now)
        };
        let Some(Crossing { distributed: Some(own), .. }) = &mut self.crossing else { return 0 };
        own.advance(now, |port| {
            let output = &self.ports[port].output;
            (output.waiting_bytes(), output.waiting())
        });
        let mut all = 0;
        while let Some((port, inside)) = distributed(&mut self.crossing) {
            all += 1;
            let Some(crossing) = &mut self.crossing else { break };
            if let Some(peer) = &mut crossing.peers[crossing.owners[port]] {
                peer.waiting.push_back(inside);
                continue;
            }
            crossing.backlog[port] -= len(&inside.going);
            let mut going = Going { crossed: true, ..inside.going };
            if inside.setup != self.setups {
                going.reserved = None;
            }
            self.deliver(going, now);
        }
        if all > 0 {
            self.depart(now);
        }
        all
    }
}

/// Frames of others go home when a port processor ends, also when it fails; and others stop sending to it.
impl Drop for PortProcessor {
    fn drop(&mut self) {
        // The kernel uses no frame any more.
        self.lines.clear();
        let Some(mut crossing) = self.crossing.take() else { return };
        let mut batches = Vec::new();
        loop {
            crossing.take(&mut self.frames, &mut batches);
            if batches.is_empty() {
                break;
            }
            for crossed in batches.drain(..).flat_map(|(_, batch)| batch) {
                let _ = self.frames.accept(crossed.lent);
            }
        }
        self.frames.surrender();
        crossing.send_home(&mut self.frames, true);
    }
}
