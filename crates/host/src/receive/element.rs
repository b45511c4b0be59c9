//! A receiving host as an element.
//!
//! ```text
//! in i --> interface i of the host        processed by the application --> out i
//!          drops: `adapter full`, `refused`, `refused by the adapter`, `no buffer`
//! ```

use super::Host;
use crate::machine::Output;
use lastmeter_base::Packet;
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};

/// Gives a receiving host ports and a timer.
pub struct Receiver {
    host: Host,
}

const DUE: TimerId = TimerId(0);

impl Receiver {
    /// An element around `host`.
    pub fn new(host: Host) -> Receiver {
        Receiver { host }
    }

    fn act(&mut self, cx: &mut Context<'_>) {
        self.host.advance(cx.now());
        for output in self.host.outputs() {
            match output {
                Output::Send(port, packet) => cx.send(port, packet),
                Output::Drop(packet, stage, reason) => cx.drop(packet, Some(stage), reason),
            }
        }
        match self.host.next() {
            Some(at) => cx.arm(DUE, at),
            None => cx.disarm(DUE),
        }
    }
}

impl Element for Receiver {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.act(cx);
    }
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, packet: Packet) {
        self.host.advance(cx.now());
        self.host.arrive(cx.now(), usize::from(port.0), packet);
        self.act(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.act(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.host.held());
        self.host.meters().for_each(|meter| out.meter(meter));
    }
}
