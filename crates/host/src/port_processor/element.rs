//! A port processor as an element.
//!
//! ```text
//! line   --> in 0 --> port processor --> out 0        drops: `no buffer`, `overrun`, `line full`
//! fabric --> in 1 -->
//! ```

use super::{Machine, Side};
use crate::machine::Output;
use lastmeter_base::Packet;
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};

/// Gives a port processor ports and a timer.
pub struct Port {
    machine: Machine,
}

const DUE: TimerId = TimerId(0);
/// Where packets come in from lines, for the input side.
pub const FROM_LINES: PortId = PortId(0);
/// Where packets come in from a fabric, for the output side.
pub const FROM_FABRIC: PortId = PortId(1);

impl Port {
    /// An element around `machine`.
    pub fn new(machine: Machine) -> Port {
        Port { machine }
    }

    fn act(&mut self, cx: &mut Context<'_>) {
        self.machine.advance(cx.now());
        for output in self.machine.outputs() {
            match output {
                Output::Send(port, packet) => cx.send(port, packet),
                Output::Drop(packet, stage, reason) => cx.drop(packet, Some(stage), reason),
            }
        }
        match self.machine.next() {
            Some(at) => cx.arm(DUE, at),
            None => cx.disarm(DUE),
        }
    }
}

impl Element for Port {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.act(cx);
    }
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, packet: Packet) {
        let side = if port == FROM_FABRIC { Side::Output } else { Side::Input };
        self.machine.arrive(cx.now(), side, packet);
        self.act(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.act(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.machine.held());
        out.count("overruns", self.machine.overruns());
        self.machine.meters().for_each(|meter| out.meter(meter));
    }
}
