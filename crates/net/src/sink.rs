//! A sink: receives packets, and checks their order and content.
//!
//! ```text
//! any in --> checked, entered in the books
//! ```

use lastmeter_base::{Packet, content_tag};
use lastmeter_engine::{Context, Element, PortId, Report};
use std::collections::BTreeMap;

/// Takes packets, and checks that each flow arrives in order and unchanged.
#[derive(Debug, Default)]
pub struct Sink {
    check: Check,
    received: u64,
}

impl Element for Sink {
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        self.received += 1;
        self.check.packet(cx, &packet);
        cx.deliver(packet);
    }
    fn timers(&self) -> u32 {
        0
    }
    fn is_end(&self) -> bool {
        true
    }
    fn report(&self, out: &mut Report) {
        out.count("received", self.received);
    }
}

/// The check itself, for every element that receives packets for good.
#[derive(Debug, Default)]
pub(crate) struct Check {
    /// The next sequence number expected, by path and flow.
    next: BTreeMap<(u32, u32), u64>,
    /// The flow of the last packet, which is usually also that of the next one.
    last: Option<((u32, u32), u64)>,
}

impl Check {
    #[inline]
    pub(crate) fn packet(&mut self, cx: &mut Context<'_>, packet: &Packet) {
        let flow = (packet.path.0, packet.flow.0);
        if packet.tag != content_tag(flow.0, flow.1, packet.seq) {
            cx.note_corrupted(packet.path);
        }
        let next = match self.last {
            Some((last, next)) if last == flow => next,
            _ => {
                if let Some((last, next)) = self.last {
                    self.next.insert(last, next);
                }
                self.next.get(&flow).copied().unwrap_or(0)
            }
        };
        // One with the latest number is a duplicate, and not reordered.
        if packet.seq + 1 < next {
            cx.note_reordered(packet.path);
        }
        self.last = Some((flow, next.max(packet.seq + 1)));
    }
}
