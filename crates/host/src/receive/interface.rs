//! The adapter's side of an interface: buffers, commands to the host, transfers into its memory.
//!
//! ```text
//! Two:  arrival --> read --host accepts--> transfer --> read end       (Fig 7.2; E-97, E-98)
//! One:  arrival --> transfer into a ring of the host --> read end
//! ```

use super::{Admission, Policy};
use lastmeter_base::{Duration, Packet, Time};
use std::collections::VecDeque;

/// How many commands a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    /// `read` and `read end`: the host gives each packet its buffer.
    Two,
    /// One: the host has given buffers in advance, in a ring of descriptors.
    One,
}

/// An interface, as a host is given it.
pub struct InterfaceOptions {
    /// When it interrupts and how it is served.
    pub policy: Box<dyn Policy>,
    /// Which packets the host accepts; `None` for all, which may then find no buffer at the end.
    pub accepts: Option<Box<dyn Admission>>,
    /// Which packets the adapter takes at all; dropping the others costs the host nothing.
    pub takes: Option<Box<dyn Admission>>,
    /// How many commands a packet takes.
    pub commands: Commands,
    /// Packets that the adapter, or its ring, has room for.
    pub adapter_buffers: u64,
    /// Packets that it announces to the host at once: announced, or accepted and not yet moved.
    pub announced_max: u64,
    /// Receive buffers on the host.
    pub host_buffers: u64,
    /// From the acceptance of a packet until it is in the host's memory.
    pub transfer: Duration,
    /// The time from packet to packet at the rate that it has a right to.
    pub reservation: Option<Duration>,
}

/// What an interface has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came from the network.
    pub arrived: u64,
    /// Packets that the application has processed.
    pub processed: u64,
    /// Packets dropped without any work of the host.
    pub dropped_by_adapter: u64,
    /// Packets dropped after some work of the host.
    pub dropped_by_host: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

/// A command for the host.
pub(super) enum Command {
    /// A packet has arrived and wants a buffer.
    Read(Packet),
    /// A packet is in the host's memory.
    ReadEnd(Packet),
}

pub(super) struct Interface {
    pub(super) options: InterfaceOptions,
    pub(super) commands: VecDeque<(Time, Command)>,
    /// Packets that are not announced yet.
    pub(super) waiting: VecDeque<Packet>,
    pub(super) announced: u64,
    /// Transfers into the host's memory: when each will be done.
    pub(super) transfers: VecDeque<(Time, Packet)>,
    /// Packets on the adapter or in the ring.
    pub(super) on_adapter: u64,
    /// Buffers of the host in use.
    pub(super) on_host: u64,
    /// When the adapter will interrupt.
    pub(super) interrupt: Option<Time>,
    /// Whether it has interrupted or is being served, so that it is not polled again.
    pub(super) engaged: bool,
    pub(super) counts: Counts,
    pub(super) handled: super::Handled,
    /// Service in units of the reservation, as far as the fair share goes.
    pub(super) virtual_service: Duration,
}

impl Interface {
    pub(super) fn new(options: InterfaceOptions) -> Interface {
        Interface {
            options,
            commands: VecDeque::new(),
            waiting: VecDeque::new(),
            announced: 0,
            transfers: VecDeque::new(),
            on_adapter: 0,
            on_host: 0,
            interrupt: None,
            engaged: false,
            counts: Counts::default(),
            handled: super::Handled::default(),
            virtual_service: Duration::ZERO,
        }
    }

    /// When its next transfer is done, it interrupts, or its policy's timer expires.
    pub(super) fn ready_at(&self) -> Option<Time> {
        let transfer = self.transfers.front().map(|&(at, _)| at);
        [transfer, self.interrupt, self.options.policy.timer()].into_iter().flatten().min()
    }

    pub(super) fn post(&mut self, now: Time, command: Command) {
        self.commands.push_back((now, command));
    }

    /// Announces packets while it may.
    pub(super) fn announce(&mut self, now: Time) {
        while self.announced < self.options.announced_max {
            let Some(packet) = self.waiting.pop_front() else { return };
            self.announced += 1;
            self.post(now, Command::Read(packet));
        }
    }

    pub(super) fn wants_service(&self) -> bool {
        !self.commands.is_empty() || !self.transfers.is_empty() || self.on_host > 0
    }

    /// Packets that are nowhere else.
    pub(super) fn held(&self) -> u64 {
        (self.waiting.len() + self.commands.len() + self.transfers.len()) as u64
    }
}
