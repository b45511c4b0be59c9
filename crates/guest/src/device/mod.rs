//! A network adapter for a guest: a description's stages between its rings and a network.
//!
//! ```text
//! doorbell --> [ transmit ring ] --> interface --> DMA --> network --> departure
//! interrupt <-- [ receive ring ] <-- DMA <-- initialization <-- [ buffers ] <-- arrival
//!     '-- after so many packets, or so long ([`Moderation`])
//! ```
//!
//! A machine: it is told the time, and the guest's memory, by whoever has them. A doorbell is seen when it is rung;
//! what was offered by then enters the adapter as its depth allows. Each event happens at its own instant, however
//! late the machine is told, so lateness does not add up. A frame is copied from the guest when its DMA ends, and into
//! it when its last buffer is full; a used descriptor is written when the frame has left, or is there.
//!
//! A ring that the guest has broken is used no more; the other goes on. What is under way for a ring that its driver
//! gives up ends there: memory that may be another's by then is not touched.
//!
//! Where only headers are copied, the rest of a frame takes its time and is not moved: what is sent has zeros there,
//! and what is received is whatever the guest's buffer has (E-51, E-54). The guest is told that the checksum is right.
//!
//! Deviations from hardware: one pair of rings, whatever the description has; all frames are best effort; what is
//! received does not wait for what is sent.

mod account;
mod queue;

pub use account::{Account, StageTimes};
pub use queue::Queue;

use crate::memory::Memory;
use crate::registers;
use crate::ring::{Broken, Chain};
use lastmeter_base::{Bytes, Time};
use lastmeter_host::adapter::description::{Description, Synchronisation};
use lastmeter_host::adapter::moderation::Moderation;
use lastmeter_host::adapter::receiver::Receiver;
use lastmeter_host::adapter::transmitter::{Event, Order, Refusal, Transmitter, What};
use std::collections::{BTreeMap, VecDeque};

/// The ring into which frames are received.
pub const RECEIVE: usize = 0;
/// The ring from which frames are sent.
pub const TRANSMIT: usize = 1;
/// The shortest frame: an Ethernet header.
pub const FRAME_MIN: u64 = 14;
/// The longest frame: a jumbo frame with two tags.
pub const FRAME_MAX: u64 = 9_000 + 14 + 8;
/// Most bytes of frames on the adapter on their way in, however much memory the description has.
const HELD_MAX: u64 = 64 << 20;
/// Most buffers of the host that one frame is spread over.
const BUFFERS_MAX: usize = 64;
/// Most doorbells remembered while the adapter is full; the last one stands for any beyond.
const DOORBELLS_MAX: usize = 1 << 16;

/// Of what precedes a frame: its checksum has been found right.
const CHECKED: u8 = 2;
/// Length of what precedes a frame in a chain: with merged buffers or virtio 1, and before.
pub const HEADER: u64 = 12;
/// The same before virtio 1 without merged buffers.
pub const HEADER_SHORT: u64 = 10;

/// What precedes a frame in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFormat {
    /// Nothing.
    None,
    /// The header before virtio 1 without merged buffers.
    Short,
    /// The header of virtio 1.
    Long,
    /// The same, and a frame may be spread over several chains.
    Merged,
}

impl HeaderFormat {
    fn len(self) -> u64 {
        match self {
            HeaderFormat::None => 0,
            HeaderFormat::Short => HEADER_SHORT,
            HeaderFormat::Long | HeaderFormat::Merged => HEADER,
        }
    }
}

/// A frame that has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When its last bit left.
    pub at: Time,
    /// The frame.
    pub frame: Vec<u8>,
}

/// An interrupt that the guest wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// When.
    pub at: Time,
    /// Of which ring.
    pub ring: usize,
}

/// A chain in flight towards the network.
#[derive(Debug)]
struct Outgoing {
    chain: Chain,
    frame: Vec<u8>,
    /// When its doorbell was seen, and when the adapter took it.
    rung: Time,
    taken: Time,
    /// Which use of the ring it is of.
    use_of: u64,
}

/// A frame on its way into the guest.
#[derive(Debug)]
struct Incoming {
    frame: Vec<u8>,
    chains: Vec<Chain>,
    /// When it had its buffers.
    placed: Time,
    use_of: u64,
}

/// The adapter.
pub struct Device {
    card: Description,
    headers: HeaderFormat,
    /// Bytes of each frame that are copied.
    copied: u64,
    transmitter: Transmitter,
    receiver: Receiver,
    rings: [Option<Queue>; 2],
    /// How often a driver has given up each ring with all that was under way.
    uses: [u64; 2],
    broken: [Option<Broken>; 2],
    moderation: [Moderation; 2],
    /// When frames were done that no interrupt has reported.
    unreported: [Vec<Time>; 2],
    /// Doorbells of the transmit ring: up to which index chains are offered, and when it was rung.
    doorbells: VecDeque<(u16, Time)>,
    /// A chain that the adapter could not take yet.
    next: Option<(Chain, Time)>,
    outgoing: BTreeMap<u64, Outgoing>,
    numbers: u64,
    /// Frames that have no buffers of the guest yet.
    arrived: VecDeque<Vec<u8>>,
    held: u64,
    /// Buffers for the first of them, not enough yet.
    gathered: Vec<Chain>,
    incoming: VecDeque<Incoming>,
    departures: Vec<Departure>,
    interrupts: Vec<Interrupt>,
    account: Account,
}

impl Device {
    /// An idle adapter without rings.
    pub fn new(card: Description) -> Device {
        Device {
            transmitter: Transmitter::new(card.clone()),
            receiver: Receiver::new(card.clone()),
            moderation: [Moderation::new(&card), Moderation::new(&card)],
            headers: HeaderFormat::Long,
            copied: u64::MAX,
            rings: [None, None],
            uses: [0, 0],
            broken: [None, None],
            unreported: [Vec::new(), Vec::new()],
            doorbells: VecDeque::new(),
            next: None,
            outgoing: BTreeMap::new(),
            numbers: 0,
            arrived: VecDeque::new(),
            held: 0,
            gathered: Vec::new(),
            incoming: VecDeque::new(),
            departures: Vec::new(),
            interrupts: Vec::new(),
            account: Account::default(),
            card,
        }
    }

    /// What the guest's driver has chosen.
    pub fn set_header_format(&mut self, headers: HeaderFormat) {
        self.headers = headers;
    }

    /// Copies only so many bytes of each frame between this process and the guest, from its begin on.
    pub fn copy_headers(&mut self, most: Bytes) {
        self.copied = most.0;
    }

    /// Begins to use a ring, as if its doorbell were rung.
    pub fn start(&mut self, now: Time, which: usize, ring: impl Into<Queue>, memory: &Memory) {
        self.rings[which] = Some(ring.into());
        self.broken[which] = None;
        self.doorbell(now, which, memory);
    }

    /// Stops using a ring; returns where it stood. Frames in the adapter stay, but their chains are not given back.
    pub fn stop(&mut self, which: usize) -> Option<u16> {
        let ring = self.rings[which].take()?;
        if which == TRANSMIT {
            self.doorbells.clear();
            if self.next.take().is_some() {
                self.account.lose(TRANSMIT, "the ring was stopped");
            }
        } else {
            self.gathered.clear();
        }
        Some(ring.base())
    }

    /// Stops using a ring, whose buffers are touched no more: frames under way from it are not sent.
    pub fn forget(&mut self, which: usize) {
        self.stop(which);
        self.broken[which] = None;
        self.uses[which] += 1;
    }

    /// A ring whose indexes are registers.
    pub fn registers_ring(&self, which: usize) -> Option<&registers::ring::Ring> {
        match &self.rings[which] {
            Some(Queue::Registers(ring)) => Some(ring),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn registers_ring_mut(&mut self, which: usize) -> Option<&mut registers::ring::Ring> {
        match &mut self.rings[which] {
            Some(Queue::Registers(ring)) => Some(ring),
            _ => None,
        }
    }

    /// Changes which interrupts come; `change` returns whether one that was due before comes at once.
    pub fn interrupts_of(
        &mut self,
        now: Time,
        which: usize,
        change: impl FnOnce(&mut registers::ring::Ring) -> bool,
    ) {
        if self.registers_ring_mut(which).is_some_and(change) {
            self.account.raised[which] += 1;
            self.interrupts.push(Interrupt { at: now, ring: which });
        }
    }

    /// Bytes of frames on the adapter that are not in the guest's memory yet.
    pub fn buffered(&self) -> Bytes {
        Bytes(self.held)
    }

    /// Why a ring is used no more.
    pub fn broken(&self, which: usize) -> Option<Broken> {
        self.broken[which]
    }

    /// What it did so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Its description.
    pub fn card(&self) -> &Description {
        &self.card
    }

    /// The machine of its receptions.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The guest has written a doorbell.
    pub fn doorbell(&mut self, now: Time, which: usize, memory: &Memory) {
        self.advance(now, memory);
        let Some(ring) = &self.rings[which] else { return };
        self.account.doorbells[which] += 1;
        let offered = match ring.offered(memory) {
            Ok(offered) => offered,
            Err(why) => return self.fail(which, why),
        };
        if which == RECEIVE {
            return self.place(now, memory);
        }
        let last = self.doorbells.back().map_or(ring.base(), |&(limit, _)| limit);
        let full = self.doorbells.len() >= DOORBELLS_MAX;
        match self.doorbells.back_mut() {
            Some(back) if full => back.0 = offered,
            _ if last != offered => self.doorbells.push_back((offered, now)),
            _ => {}
        }
        self.fetch(now, memory);
    }

    /// Frames in the adapter, or taken from the ring and waiting for it.
    pub fn held(&self, which: usize) -> u64 {
        match which {
            RECEIVE => self.receiver.held(),
            _ => self.transmitter.outstanding() + u64::from(self.next.is_some()),
        }
    }

    /// A frame has arrived from the network.
    pub fn arrive(&mut self, now: Time, frame: Vec<u8>, memory: &Memory) {
        self.advance(now, memory);
        self.account.entered[RECEIVE] += 1;
        let len = frame.len() as u64;
        let wrong = !(FRAME_MIN..=FRAME_MAX).contains(&len);
        if wrong || self.held + len > HELD_MAX || !self.receiver.arrive(now, Bytes(len)) {
            let why = if wrong { "wrong length" } else { "no buffer" };
            return self.account.lose(RECEIVE, why);
        }
        self.held += len;
        self.arrived.push_back(frame);
        self.place(now, memory);
    }

    /// When something is due.
    pub fn ready_at(&self) -> Option<Time> {
        let machines = [self.transmitter.ready_at(), self.receiver.ready_at()];
        let moderation = self.moderation.each_ref().map(Moderation::ready_at);
        machines.into_iter().chain(moderation).flatten().min()
    }

    /// Handles everything due by `now`, each event at its own instant.
    pub fn advance(&mut self, now: Time, memory: &Memory) {
        while let Some(due) = self.ready_at().filter(|&due| due <= now) {
            self.transmitter.advance(due);
            self.follow(memory);
            self.fetch(due, memory);
            self.receiver.advance(due);
            self.place(due, memory);
            self.deliver(memory);
            for which in [RECEIVE, TRANSMIT] {
                self.interrupt(due, which, memory);
            }
        }
    }

    /// Takes the frames that have left.
    pub fn departures(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.departures)
    }

    /// Takes the interrupts that the guest wants.
    pub fn interrupts(&mut self) -> Vec<Interrupt> {
        std::mem::take(&mut self.interrupts)
    }

    fn fail(&mut self, which: usize, why: Broken) {
        self.stop(which);
        self.broken[which] = Some(why);
    }

    /// Gives the adapter what the guest has rung for, as far as it has room.
    fn fetch(&mut self, now: Time, memory: &Memory) {
        loop {
            let (chain, rung) = match self.next.take() {
                Some(next) => next,
                None => match self.take_next(memory) {
                    Ok(Some(next)) => next,
                    Ok(None) => return,
                    Err(why) => return self.fail(TRANSMIT, why),
                },
            };
            let len = chain.room(false).saturating_sub(self.headers.len());
            if !(FRAME_MIN..=FRAME_MAX).contains(&len) {
                self.account.lose(TRANSMIT, "wrong length");
                self.give(now, TRANSMIT, &[(chain.head, 0)], memory);
                continue;
            }
            match self.transmitter.submit(now, Order::new(self.numbers, Bytes(len))) {
                Ok(()) => {
                    let frame = vec![0; len as usize];
                    let use_of = self.uses[TRANSMIT];
                    let outgoing = Outgoing { chain, frame, rung, taken: now, use_of };
                    self.outgoing.insert(self.numbers, outgoing);
                    self.numbers += 1;
                    self.follow(memory);
                }
                Err(Refusal::TooLong) => {
                    self.account.lose(TRANSMIT, "longer than the buffers");
                    self.give(now, TRANSMIT, &[(chain.head, 0)], memory);
                }
                Err(Refusal::Depth | Refusal::Buffers) => {
                    self.next = Some((chain, rung));
                    return;
                }
            }
        }
    }

    /// The next chain that has been rung for, and when.
    fn take_next(&mut self, memory: &Memory) -> Result<Option<(Chain, Time)>, Broken> {
        let Some(ring) = &mut self.rings[TRANSMIT] else { return Ok(None) };
        while self.doorbells.front().is_some_and(|&(limit, _)| limit == ring.base()) {
            self.doorbells.pop_front();
        }
        let Some(&(limit, rung)) = self.doorbells.front() else { return Ok(None) };
        let chain = ring.take(memory, limit)?;
        self.account.entered[TRANSMIT] += u64::from(chain.is_some());
        Ok(chain.map(|chain| (chain, rung)))
    }

    /// Acts on what the transmitter has reported.
    fn follow(&mut self, memory: &Memory) {
        for Event { at, order, what, phases } in self.transmitter.events() {
            match what {
                What::WriteAck => {}
                What::AddressAck => {
                    let header = self.headers.len();
                    let Some(out) = self.outgoing.get_mut(&order.id) else { continue };
                    let is_given_up = out.use_of != self.uses[TRANSMIT];
                    let copied = order.len.0.min(self.copied) as usize;
                    let into = &mut out.frame[..copied];
                    if is_given_up || out.chain.read(memory, header, into).is_err() {
                        out.frame.fill(0);
                    }
                    self.account.copied[TRANSMIT] += copied as u64;
                }
                What::TransmitAck | What::Dropped | What::GivenUp => {
                    let Some(out) = self.outgoing.remove(&order.id) else { continue };
                    if out.use_of != self.uses[TRANSMIT] {
                        self.account.lose(TRANSMIT, "given up by the driver");
                        continue;
                    }
                    match what {
                        What::TransmitAck => {
                            self.account.sent(out.rung, out.taken, &phases, order.len);
                            self.departures.push(Departure { at, frame: out.frame });
                        }
                        What::Dropped => self.account.lose(TRANSMIT, "no buffer"),
                        _ => self.account.lose(TRANSMIT, "too many collisions"),
                    }
                    self.give(at, TRANSMIT, &[(out.chain.head, 0)], memory);
                }
            }
        }
    }

    /// Finds buffers of the guest for frames that wait for them.
    fn place(&mut self, now: Time, memory: &Memory) {
        while let Some(len) = self.receiver.announced() {
            let wanted = self.headers.len() + len.0;
            let room = |chains: &[Chain]| chains.iter().map(|chain| chain.room(true)).sum::<u64>();
            while room(&self.gathered) < wanted {
                let merges = self.headers == HeaderFormat::Merged;
                if self.gathered.len() >= if merges { BUFFERS_MAX } else { 1 } {
                    return self.refuse(now, memory);
                }
                let Some(ring) = &mut self.rings[RECEIVE] else { return };
                let taken = ring.offered(memory).and_then(|limit| ring.take(memory, limit));
                match taken {
                    Ok(Some(chain)) => self.gathered.push(chain),
                    Ok(None) => return,
                    Err(why) => return self.fail(RECEIVE, why),
                }
            }
            let chains = std::mem::take(&mut self.gathered);
            let (mut left, mut header) = (len.0, self.headers.len());
            let mut parts = Vec::with_capacity(chains.len());
            for chain in &chains {
                let room = chain.room(true);
                let of_header = header.min(room);
                header -= of_header;
                let part = left.min(room - of_header);
                left -= part;
                parts.push(Bytes(part));
            }
            let frame = self.arrived.pop_front().unwrap_or_default();
            let use_of = self.uses[RECEIVE];
            self.incoming.push_back(Incoming { frame, chains, placed: now, use_of });
            self.receiver.place(now, &parts);
        }
    }

    /// The guest's buffers are too small for the first frame: both are given up.
    fn refuse(&mut self, now: Time, memory: &Memory) {
        self.receiver.refuse();
        self.held -= self.arrived.pop_front().map_or(0, |frame| frame.len() as u64);
        self.account.lose(RECEIVE, "longer than the guest's buffers");
        let given: Vec<_> = self.gathered.drain(..).map(|chain| (chain.head, 0)).collect();
        self.give(now, RECEIVE, &given, memory);
        self.place(now, memory);
    }

    /// Hands frames whose DMA has ended to the guest.
    fn deliver(&mut self, memory: &Memory) {
        for received in self.receiver.received() {
            let Some(one) = self.incoming.pop_front() else { continue };
            self.held -= one.frame.len() as u64;
            if one.use_of != self.uses[RECEIVE] {
                self.account.lose(RECEIVE, "given up by the driver");
                continue;
            }
            let mut header = [0; HEADER as usize];
            header[10..].copy_from_slice(&(one.chains.len() as u16).to_le_bytes());
            let copied = (one.frame.len() as u64).min(self.copied) as usize;
            if copied < one.frame.len() {
                header[0] = CHECKED;
            }
            let header = &header[..self.headers.len() as usize];
            let bytes = [header, &one.frame].concat();
            let (end, mut at) = (header.len() + copied, 0);
            let mut given = Vec::with_capacity(one.chains.len());
            for chain in &one.chains {
                let len = chain.room(true).min((bytes.len() - at) as u64) as usize;
                let part = &bytes[at.min(end)..(at + len).min(end)];
                // Memory that has gone meanwhile takes nothing.
                let written = chain.write(memory, 0, part).map_or(0, |_| len);
                given.push((chain.head, written as u32));
                at += written;
            }
            self.account.copied[RECEIVE] += copied as u64;
            self.account.received(&received, one.placed);
            self.give(received.transfer.to, RECEIVE, &given, memory);
        }
    }

    /// Gives chains back and reports them, sooner or later.
    fn give(&mut self, at: Time, which: usize, given: &[(u16, u32)], memory: &Memory) {
        let Some(ring) = &mut self.rings[which] else { return };
        if let Err(why) = ring.give(memory, given) {
            return self.fail(which, why);
        }
        if self.card.host.synchronisation == Synchronisation::Poll {
            return self.account.polled(which);
        }
        self.unreported[which].push(at);
        let more = self.has_more(which);
        self.moderation[which].done(at, more);
    }

    /// Whether more frames will be done without anything from the guest.
    fn has_more(&self, which: usize) -> bool {
        match which {
            RECEIVE => self.receiver.is_busy(),
            _ => self.transmitter.outstanding() > 0,
        }
    }

    /// Raises the interrupt that is due.
    fn interrupt(&mut self, now: Time, which: usize, memory: &Memory) {
        let more = self.has_more(which);
        self.moderation[which].settle(now, more);
        let Some((at, _)) = self.moderation[which].raise(now) else { return };
        let reported = std::mem::take(&mut self.unreported[which]);
        let Some(ring) = &mut self.rings[which] else { return };
        match ring.wants_interrupt(memory) {
            Ok(wanted) => {
                self.account.interrupt(which, at, &reported, wanted);
                if wanted {
                    self.interrupts.push(Interrupt { at, ring: which });
                }
            }
            Err(why) => self.fail(which, why),
        }
    }
}

#[cfg(test)]
mod tests;
