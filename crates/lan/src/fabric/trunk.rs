//! The trunk through the middle stage: everything that the inputs of one switch send, in order of arrival, to the
//! switches of the last stage.
//!
//! ```text
//! in 0 --> [ newest | ... | oldest ] --n S L--> out k: the switch of ports k n to k n + n - 1
//! ```

use super::port::Directory;
use lastmeter_base::{Duration, Packet, Rate, StageId};
use lastmeter_engine::{Context, Element, Foreseen, Foresight, Look, PortId, Report, ResourceId};
use lastmeter_net::fifo::{Fifo, Pace};

/// A trunk.
pub struct Trunk {
    fifo: Fifo,
    pace: Pace,
    directory: Directory,
    /// Ports per switch.
    module: usize,
    stage: StageId,
    resource: ResourceId,
}

impl Trunk {
    /// A trunk at this rate, to switches of `module` ports.
    pub fn new(
        (rate, module): (Rate, usize),
        directory: Directory,
        stage: StageId,
        resource: ResourceId,
    ) -> Trunk {
        Trunk { fifo: Fifo::default(), pace: Pace::new(rate), directory, module, stage, resource }
    }
}

impl Element for Trunk {
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        let port = self.directory.port(packet.destination);
        let port = port.expect("an input forwards only packets with a route");
        let (now, len) = (cx.now(), packet.len);
        let (begins, service) = self.fifo.accept(now, len, |_| self.pace.time_for(len));
        packet.entered = now;
        if cx.collecting() {
            packet.visit(self.stage, begins - now, service, Duration::ZERO);
        }
        cx.send_at(PortId((port / self.module) as u16), packet, self.fifo.free_at());
    }
    fn timers(&self) -> u32 {
        0
    }
    fn runs_ahead(&self) -> bool {
        true
    }
    fn foresees(&self) -> Foresight {
        Foresight::Early
    }
    #[inline]
    fn foresee(&self, next: Foreseen<'_>, _look: Look) -> Option<PortId> {
        let Foreseen::Packet(_, packet) = next else { return None };
        let port = self.directory.port(packet.destination)?;
        Some(PortId((port / self.module) as u16))
    }
    fn report(&self, out: &mut Report) {
        let served = self.fifo.enter(out, self.stage, self.resource);
        out.count("served", served);
        out.count("packets_most", self.fifo.waiting_most());
    }
}
