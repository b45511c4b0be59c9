//! A host as an element: a machine with ports and one timer.
//!
//! ```text
//! in p --> entry p of the machine        exit q of the machine --> out q        drops: `full`, and those of reception
//! ```

use crate::machine::{Machine, Output};
use lastmeter_base::Packet;
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};

/// Gives a host's machine ports and a timer.
pub struct Host {
    machine: Machine,
}

const DUE: TimerId = TimerId(0);

impl Host {
    /// An element around `machine`.
    pub fn new(machine: Machine) -> Host {
        Host { machine }
    }

    fn act(&mut self, cx: &mut Context<'_>) {
        self.machine.advance(cx.now());
        for output in self.machine.outputs() {
            match output {
                Output::Send(port, packet) => cx.send(port, packet),
                Output::Drop(packet, stage, reason) => cx.drop(packet, Some(stage), reason),
            }
        }
        match self.machine.ready_at() {
            Some(at) => cx.arm(DUE, at),
            None => cx.disarm(DUE),
        }
    }
}

impl Element for Host {
    fn start(&mut self, cx: &mut Context<'_>) {
        // Clocks and polling threads run from the start.
        self.act(cx);
    }
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, packet: Packet) {
        // Events due before the arrival are handled first.
        self.machine.advance(cx.now());
        self.machine.arrive(cx.now(), port, packet);
        self.act(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.act(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.machine.held());
        self.machine.meters().for_each(|meter| out.meter(meter));
    }
}
