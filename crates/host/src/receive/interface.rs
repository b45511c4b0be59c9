//! The adapter's side of an interface: buffers, commands to the host, transfers into host memory.
//!
//! ```text
//! Two:  arrival --> read --host accepts--> transfer --> read end       (Fig 7.2; E-97, E-98)
//! One:  arrival --> transfer into a ring of the host --> read end
//! ```

use super::{Admission, Policy};
use lastmeter_base::{Duration, Packet, Time};
use std::collections::VecDeque;

/// Number of commands per packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    /// `read` and `read end`: the host gives each packet its buffer.
    Two,
    /// One: the host has provided buffers in advance, in a ring of descriptors.
    One,
}

/// Parameters of an interface.
pub struct InterfaceOptions {
    /// When it interrupts and how it is served.
    pub policy: Box<dyn Policy>,
    /// Which packets the host accepts; `None` for all, which may then find no buffer at the end.
    pub accepts: Option<Box<dyn Admission>>,
    /// Which packets the adapter accepts at all; dropping the others costs the host nothing.
    pub takes: Option<Box<dyn Admission>>,
    /// Number of commands per packet.
    pub commands: Commands,
    /// Capacity of the adapter, or of its ring, in packets.
    pub adapter_buffers: u64,
    /// Most packets announced, or accepted and not yet transferred, at once.
    pub announced_max: u64,
    /// Receive buffers of the host.
    pub host_buffers: u64,
    /// From the acceptance of a packet until it is in host memory.
    pub transfer: Duration,
    /// Time between packets at its reserved rate.
    pub reservation: Option<Duration>,
}

/// Counts of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived from the network.
    pub arrived: u64,
    /// Packets that the application has processed.
    pub processed: u64,
    /// Packets dropped before any work by the host.
    pub dropped_by_adapter: u64,
    /// Packets dropped after some work by the host.
    pub dropped_by_host: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

/// A command for the host.
pub(super) enum Command {
    /// A packet has arrived and wants a buffer.
    Read(Packet),
    /// A packet is in host memory.
    ReadEnd(Packet),
}

pub(super) struct Interface {
    pub(super) options: InterfaceOptions,
    pub(super) commands: VecDeque<(Time, Command)>,
    /// Packets that have not been announced.
    pub(super) waiting: VecDeque<Packet>,
    pub(super) announced: u64,
    /// Transfers into host memory, with their completion times.
    pub(super) transfers: VecDeque<(Time, Packet)>,
    /// Packets on the adapter or in the ring.
    pub(super) on_adapter: u64,
    /// Receive buffers of the host in use.
    pub(super) on_host: u64,
    /// When the adapter will interrupt.
    pub(super) interrupt: Option<Time>,
    /// Whether it has interrupted or is being served, so that it is not polled again.
    pub(super) engaged: bool,
    pub(super) counts: Counts,
    pub(super) handled: super::Handled,
    /// Virtual service: service received in units of the reservation, within the fair share.
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

    /// Announces packets while this is allowed.
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

    /// Packets held only by the interface.
    pub(super) fn held(&self) -> u64 {
        (self.waiting.len() + self.commands.len() + self.transfers.len()) as u64
    }
}
