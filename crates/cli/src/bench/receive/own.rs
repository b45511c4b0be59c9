//! A receiver of our own on rings of AF_XDP, under the policies of the model: the same machines, with the wall clock.
//!
//! ```text
//! ring --command--> batch: [protocol] --> [host's buffers] --> work of the application
//!        `interrupt_at`, `timer`, `idle` say when; `proceed` says how many
//! ```
//!
//! A batch comes before all work that waits, as an interrupt does. What stands for the interrupt is a call of
//! `poll(2)`. Protocol is a check of the IPv4 header and of the datagram's checksum; with lazy processing it is the
//! application's.
//!
//! Rows: A-31, E-99, E-100, E-101, E-102, E-103, E-104, E-105, E-106, E-120, E-131, E-132.

use lastmeter_base::{Bytes, Duration, FlowId, Packet, Time};
use lastmeter_host::receive::{Admission, Expired, Handled, Policy, View};
use lastmeter_linux::Result;
use lastmeter_linux::clock::{Epoch, nanoseconds};
use lastmeter_linux::port::{Counts, Port};
use lastmeter_live::flood::Stamp;
use lastmeter_live::receive::{self, LEN, Taken, Tally, Work};
use lastmeter_wire::internet::checksum::Sum;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Buffers of an interface in the host; the thesis has 128 for packets that take longer.
pub(super) const BUFFERS: u64 = 256;
/// Frames thrown away between two measurements.
const STALE_MAX: usize = 1 << 16;
/// The longest sleep: the clock must be looked at.
const SLEEP_MAX: std::time::Duration = std::time::Duration::from_millis(5);
/// Bytes before a datagram's payload: Ethernet, IPv4, UDP.
const IPV4_AT: usize = 14;
const UDP_AT: usize = IPV4_AT + 20;
const PAYLOAD_AT: usize = UDP_AT + 8;

/// An interface: its ring, and how it is received from.
pub(super) struct Interface {
    pub(super) port: Box<dyn Port>,
    pub(super) policy: Box<dyn Policy>,
    /// Before the protocol's work; without it, a packet is dropped after that.
    pub(super) admission: Option<Box<dyn Admission>>,
    used: u64,
    /// Since when frames have been seen in the ring.
    oldest: Option<Time>,
    handled: Handled,
    counts: Counts,
}

/// A frame in a buffer of the host.
struct Held {
    interface: usize,
    bytes: [u8; LEN],
}

impl Interface {
    pub(super) fn new(
        port: Box<dyn Port>,
        policy: Box<dyn Policy>,
        admission: Option<Box<dyn Admission>>,
    ) -> Interface {
        let (handled, counts) = (Handled::default(), Counts::default());
        Interface { port, policy, admission, used: 0, oldest: None, handled, counts }
    }

    fn view(&mut self, now: Time, backlog: usize) -> View {
        let pending = self.port.waiting() as u64;
        self.oldest = (pending > 0).then(|| self.oldest.unwrap_or(now));
        View {
            pending,
            oldest: self.oldest,
            buffers_free: BUFFERS - self.used,
            buffers: BUFFERS,
            backlog: backlog as u64,
            application_idle: backlog == 0,
            ahead: Duration::ZERO,
            handled: self.handled,
        }
    }
}

/// Whether header and datagram are intact; what the stack would check.
fn intact(frame: &[u8; LEN]) -> bool {
    let address = |at: usize| Ipv4Addr::from([0, 1, 2, 3].map(|byte| frame[at + byte]));
    let (src, dst) = (address(IPV4_AT + 12), address(IPV4_AT + 16));
    let datagram = &frame[UDP_AT..];
    let sum = Sum::ipv4(src, dst, 17, datagram.len() as u16).and(Sum::of(datagram));
    Sum::of(&frame[IPV4_AT..UDP_AT]).is_intact() && sum.is_intact()
}

/// The receiver, while it runs.
struct Receiver<'a> {
    interfaces: &'a mut [Interface],
    queue: VecDeque<Held>,
    tally: Tally,
    epoch: Epoch,
    work: Work,
    /// What an admission is asked about.
    asked: Packet,
    /// The interface that is polled first the next time, so that none starves.
    turn: usize,
}

/// Receives for a while; returns what was processed.
pub(super) fn receive(
    interfaces: &mut [Interface],
    work: Work,
    core: usize,
    lasts: std::time::Duration,
) -> Result<Taken> {
    interfaces.iter_mut().for_each(discard);
    let mut receiver = Receiver {
        interfaces,
        queue: VecDeque::new(),
        tally: Tally::begin(core, lasts),
        epoch: Epoch::start(),
        work,
        asked: Packet::new(Bytes(LEN as u64)),
        turn: 0,
    };
    while !receiver.tally.is_over(nanoseconds())? {
        if receiver.interrupts()? {
            continue;
        }
        match receiver.queue.pop_front() {
            Some(held) => receiver.process(&held),
            None => receiver.rest()?,
        }
    }
    receiver.tally.end()
}

/// Throws away what is left of an earlier load.
fn discard(interface: &mut Interface) {
    let mut counts = Counts::default();
    for _ in 0..STALE_MAX {
        if interface.port.waiting() == 0 {
            break;
        }
        if interface.port.receive(1, &mut counts, &mut |_| {}).is_err() {
            break;
        }
    }
}

impl Receiver<'_> {
    /// Takes interrupts that are due, of adapters and of clocks; whether there were any.
    fn interrupts(&mut self) -> Result<bool> {
        let mut any = false;
        for at in 0..self.interfaces.len() {
            let now = self.epoch.now();
            let view = self.interfaces[at].view(now, self.queue.len());
            let policy = &mut self.interfaces[at].policy;
            if policy.timer().is_some_and(|timer| timer <= now) {
                self.tally.woken();
                if let Expired::ClockThen(_) = policy.expired(now, &view) {
                    self.batch(at)?;
                }
                any = true;
            } else if view.pending > 0
                && policy.interrupt_at(now, &view).is_some_and(|due| due <= now)
            {
                policy.interrupted(now, &view);
                self.interfaces[at].handled.interrupts += 1;
                self.tally.woken();
                // What an interrupt costs a program: a call of the kernel.
                receive::wait(
                    [self.interfaces[at].port.fd()].into_iter(),
                    std::time::Duration::ZERO,
                )?;
                self.batch(at)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Handles as many frames as the policy says.
    fn batch(&mut self, at: usize) -> Result<()> {
        // What is left in the ring after it has come since.
        self.interfaces[at].oldest = None;
        loop {
            let mut handled = 0;
            loop {
                let now = self.epoch.now();
                let view = self.interfaces[at].view(now, self.queue.len());
                let proceeds = self.interfaces[at].policy.proceed(now, &view, handled);
                if view.pending == 0 || !proceeds {
                    break;
                }
                self.command(at, now, &view)?;
                handled += 1;
            }
            let now = self.epoch.now();
            let view = self.interfaces[at].view(now, self.queue.len());
            if self.interfaces[at].policy.finished(now, &view, handled).is_none() {
                return Ok(());
            }
        }
    }

    /// Takes one frame from the ring.
    fn command(&mut self, at: usize, now: Time, view: &View) -> Result<()> {
        let interface = &mut self.interfaces[at];
        let mut bytes = [0; LEN];
        let taken = interface.port.receive(1, &mut interface.counts, &mut |arrival| {
            let [frame, ..] = arrival.parts;
            let len = frame.len().min(LEN);
            bytes[..len].copy_from_slice(&frame[..len]);
        });
        if let Err(source) = taken {
            let doing = "receiving from a ring".to_owned();
            return Err(lastmeter_linux::Error::System { doing, source });
        }
        // A frame that is not of the load, such as one of the kernel's own, is nobody's.
        let Some(stamp) = Stamp::parse(&bytes[PAYLOAD_AT..]) else { return Ok(()) };
        if let Some(admission) = &mut interface.admission {
            self.asked.flow = FlowId(stamp.flow.into());
            self.asked.class = u8::from(stamp.flow > 0);
            if !admission.admits(now, &self.asked, view) {
                self.tally.refused();
                return Ok(());
            }
        }
        let good = interface.policy.is_lazy() || intact(&bytes);
        if !good || view.buffers_free == 0 {
            self.tally.refused();
            return Ok(());
        }
        interface.used += 1;
        interface.handled.packets += 1;
        interface.handled.bytes += Bytes(LEN as u64);
        self.queue.push_back(Held { interface: at, bytes });
        Ok(())
    }

    /// The application's turn.
    fn process(&mut self, held: &Held) {
        let interface = &mut self.interfaces[held.interface];
        interface.used -= 1;
        if interface.policy.is_lazy() && !intact(&held.bytes) {
            return self.tally.refused();
        }
        self.work.act();
        if let Some(stamp) = Stamp::parse(&held.bytes[PAYLOAD_AT..]) {
            self.tally.processed(stamp, nanoseconds());
        }
    }

    /// Nothing waits for the application: polls, or sleeps until something is due.
    fn rest(&mut self) -> Result<()> {
        let mut until = SLEEP_MAX;
        let mut asleep = Vec::with_capacity(self.interfaces.len());
        let mut spins = false;
        let all = self.interfaces.len();
        self.turn = (self.turn + 1) % all;
        for at in (0..all).map(|at| (at + self.turn) % all) {
            let now = self.epoch.now();
            let view = self.interfaces[at].view(now, 0);
            let policy = &mut self.interfaces[at].policy;
            if policy.idle(now, &view).is_some() {
                return self.batch(at);
            }
            spins |= policy.spins();
            let due = match view.pending {
                0 => None,
                _ => policy.interrupt_at(now, &view),
            };
            for due in [due, policy.timer()].into_iter().flatten() {
                let wait = due.saturating_since(now).as_ps() / 1000;
                until = until.min(std::time::Duration::from_nanos(wait));
            }
            // A clock wakes it where it polls; else what arrives, if nothing has.
            if view.pending == 0 && policy.timer().is_none() {
                asleep.push(at);
            }
        }
        if spins {
            return Ok(());
        }
        self.tally.woken();
        receive::wait(asleep.iter().map(|&at| self.interfaces[at].port.fd()), until)
    }
}
