//! The path of a packet through reception: handled, moved into memory, queued, processed, dropped.

use super::{Command, LONGER_THAN_ANY_RUN, Reception, Who};
use crate::machine::Output;
use crate::receive::Commands;
use lastmeter_base::{Bytes, Duration, Packet, Time};
use lastmeter_engine::PortId;

impl Reception {
    pub(super) fn handled(&mut self, now: Time, interface: usize, command: Command, refused: bool) {
        let stages = self.options.stages;
        let card = &mut self.interfaces[interface];
        let reserves = card.options.accepts.is_some();
        match command {
            Command::Read(packet) | Command::ReadEnd(packet) if refused => {
                card.on_adapter -= 1;
                card.counts.dropped_by_host += 1;
                card.announced = card.announced.saturating_sub(1);
                card.announce(now);
                self.outputs.push(Output::Drop(packet, stages.accept, "refused"));
            }
            Command::Read(packet) => {
                card.on_host += u64::from(reserves);
                self.transfer(now, interface, packet);
            }
            Command::ReadEnd(packet) => {
                let ring = card.options.commands == Commands::One;
                card.on_adapter -= u64::from(ring);
                if !reserves || ring {
                    if card.on_host >= card.options.host_buffers {
                        card.counts.dropped_by_host += 1;
                        self.outputs.push(Output::Drop(packet, stages.application, "no buffer"));
                        return;
                    }
                    card.on_host += 1;
                }
                self.deliver(interface, packet);
            }
        }
    }

    /// Puts a packet into the application's queue.
    fn deliver(&mut self, interface: usize, packet: Packet) {
        let least = self.least_served();
        let card = &mut self.interfaces[interface];
        card.handled.packets += 1;
        card.handled.bytes = Bytes(card.handled.bytes.0 + packet.len.0);
        if let Some(gap) = card.options.reservation {
            let behind = if least == LONGER_THAN_ANY_RUN { Duration::ZERO } else { least };
            card.virtual_service = card.virtual_service.max(behind) + gap;
        }
        if self.queue.is_empty() && self.running != Some(Who::Application) {
            self.application_first = self.pollers.is_empty();
        }
        self.queue.push_back((interface, packet));
    }

    pub(super) fn transfer(&mut self, now: Time, interface: usize, mut packet: Packet) {
        let card = &mut self.interfaces[interface];
        let start = card.transfers.back().map_or(now, |&(last, _)| last.max(now));
        let service = card.options.transfer;
        if !service.is_zero() {
            packet.visit(self.options.stages.transfer, start - now, service, Duration::ZERO);
        }
        packet.entered = start + service;
        card.transfers.push_back((start + service, packet));
    }

    pub(super) fn transferred(&mut self, now: Time, interface: usize) {
        let card = &mut self.interfaces[interface];
        let Some((_, packet)) = card.transfers.pop_front() else { return };
        if card.options.commands == Commands::Two {
            card.on_adapter -= 1;
            card.announced -= 1;
            card.announce(now);
        }
        card.post(now, Command::ReadEnd(packet));
        self.changed(now, interface);
    }

    pub(super) fn processed(&mut self, now: Time, interface: usize, packet: Packet) {
        let card = &mut self.interfaces[interface];
        card.on_host -= 1;
        card.counts.processed += 1;
        self.outputs.push(Output::Send(PortId(interface as u16), packet));
        self.consult(now, interface);
    }
}
