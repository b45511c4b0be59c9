//! A demultiplexer: passes each packet that reached its host to the receiver of its flow.
//!
//! ```text
//!           +--> out 0
//! any in ---+--> out 1        drops: `no receiver`
//!           +--> ...
//! ```

use lastmeter_base::{FlowId, Packet, PathId};
use lastmeter_engine::{Context, Element, PortId};

/// Distributes packets by path and flow.
pub struct Demultiplexer {
    /// The receivers of each path, by [`PathId`].
    receivers: Vec<Receiver>,
}

#[derive(Clone, Debug, Default)]
struct Receiver {
    /// The default receiver of the path's other flows.
    all: Option<PortId>,
    /// The receiver of each flow, by [`FlowId`].
    by_flow: Vec<Option<PortId>>,
}

impl Demultiplexer {
    /// A demultiplexer that sends packets of each given path, or of one of its flows, to an output.
    pub fn new(takes: impl IntoIterator<Item = (PathId, Option<FlowId>, PortId)>) -> Demultiplexer {
        let mut receivers: Vec<Receiver> = Vec::new();
        for (path, flow, port) in takes {
            let slot = path.0 as usize;
            receivers.resize(receivers.len().max(slot + 1), Receiver::default());
            let receiver = &mut receivers[slot];
            match flow {
                None => receiver.all = Some(port),
                Some(FlowId(flow)) => {
                    let len = receiver.by_flow.len().max(flow as usize + 1);
                    receiver.by_flow.resize(len, None);
                    receiver.by_flow[flow as usize] = Some(port);
                }
            }
        }
        Demultiplexer { receivers }
    }

    fn output(&self, packet: &Packet) -> Option<PortId> {
        let receiver = self.receivers.get(packet.path.0 as usize)?;
        let own = receiver.by_flow.get(packet.flow.0 as usize).copied().flatten();
        own.or(receiver.all)
    }
}

impl Element for Demultiplexer {
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        match self.output(&packet) {
            Some(port) => cx.send(port, packet),
            None => cx.drop(packet, None, "no receiver"),
        }
    }
    fn timers(&self) -> u32 {
        0
    }
}
