//! A demultiplexer: hands each packet that reached its host to whoever waits for its path there.
//!
//! ```text
//!           +--> out 0
//! any in ---+--> out 1        drops: `no receiver`
//!           +--> ...
//! ```

use lastmeter_base::{Packet, PathId};
use lastmeter_engine::{Context, Element, PortId};

/// Hands on by path.
pub struct Demultiplexer {
    /// The output for each path, by [`PathId`].
    receivers: Vec<Option<PortId>>,
}

impl Demultiplexer {
    /// A demultiplexer that hands packets of each given path to its output.
    pub fn new(receivers: impl IntoIterator<Item = (PathId, PortId)>) -> Demultiplexer {
        let mut table = Vec::new();
        for (path, port) in receivers {
            let slot = path.0 as usize;
            table.resize(table.len().max(slot + 1), None);
            table[slot] = Some(port);
        }
        Demultiplexer { receivers: table }
    }
}

impl Element for Demultiplexer {
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        match self.receivers.get(packet.path.0 as usize).copied().flatten() {
            Some(port) => cx.send(port, packet),
            None => cx.drop(packet, None, "no receiver"),
        }
    }
    fn timers(&self) -> u32 {
        0
    }
}
