//! A port processor as an element.
//!
//! ```text
//! line   --> in 0 --> port processor --> out 0        drops: `no buffer`, `overrun`, `line full`
//! fabric --> in 1 -->
//! ```
//!
//! With an FPX in front, it does the lookups, and only packets of a class other than 0 pass the processor.

use super::fpx::{Classified, Fpx};
use super::{Machine, Side};
use crate::machine::Output;
use lastmeter_base::Packet;
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};

/// Gives a port processor ports and a timer.
pub struct Port {
    machine: Machine,
    fpx: Option<Fpx>,
}

const DUE: TimerId = TimerId(0);
/// Input from the lines, for the input side.
pub const FROM_LINES: PortId = PortId(0);
/// Input from the fabric, for the output side.
pub const FROM_FABRIC: PortId = PortId(1);

impl Port {
    /// An element around `machine`.
    pub fn new(machine: Machine) -> Port {
        Port { machine, fpx: None }
    }

    /// The same with an FPX between lines and processor (D-14).
    pub fn with_fpx(self, fpx: Option<Fpx>) -> Port {
        Port { fpx, ..self }
    }

    fn act(&mut self, cx: &mut Context<'_>) {
        if let Some(fpx) = &mut self.fpx {
            fpx.advance(cx.now());
            let stage = fpx.stage();
            for one in fpx.outputs() {
                match one {
                    Classified::Plain(packet) => cx.send(PortId(0), packet),
                    Classified::Active(packet) => {
                        self.machine.arrive(cx.now(), Side::Classified, packet);
                    }
                    Classified::Refused(packet) => cx.drop(packet, Some(stage), "lookup full"),
                }
            }
        }
        self.machine.advance(cx.now());
        for output in self.machine.outputs() {
            match output {
                Output::Send(port, packet) => cx.send(port, packet),
                Output::Drop(packet, stage, reason) => cx.drop(packet, Some(stage), reason),
            }
        }
        let lookup = self.fpx.as_ref().and_then(Fpx::ready_at);
        match self.machine.ready_at().into_iter().chain(lookup).min() {
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
        match (&mut self.fpx, port == FROM_FABRIC) {
            // The input side has already looked it up.
            (Some(_), true) if packet.class == 0 => cx.send(PortId(0), packet),
            (Some(fpx), false) => fpx.arrive(cx.now(), packet),
            (_, true) => self.machine.arrive(cx.now(), Side::Output, packet),
            (None, false) => self.machine.arrive(cx.now(), Side::Input, packet),
        }
        self.act(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.act(cx);
    }
    fn report(&self, out: &mut Report) {
        let (plain, active) = self.fpx.as_ref().map_or((0, 0), Fpx::counts);
        out.held(self.machine.held() + self.fpx.as_ref().map_or(0, Fpx::held));
        out.count("plain", plain);
        out.count("active", active);
        out.count("overruns", self.machine.overruns());
        self.machine.meters().for_each(|meter| out.meter(meter));
    }
}
