//! A trace of all events in order: for debugging, for following one packet, for comparing runs.

use crate::{ElementId, PortId};
use lastmeter_base::Time;

/// The most events kept; the trace reports how many were left out.
pub const TRACE_MAX: usize = 1 << 22;

/// One event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceEvent {
    /// When.
    pub at: Time,
    /// The order of the event that caused it, then its index among those that event caused.
    pub(crate) cause: (u64, u32),
    /// The element whose handler ran.
    pub element: ElementId,
    /// What happened.
    pub kind: TraceKind,
    /// The packet, if any.
    pub packet: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceKind {
    /// A packet arrived on an input.
    Receive(PortId),
    /// A timer expired.
    Expire(u32),
    /// A packet was made.
    Make,
    /// A packet left through an output.
    Send(PortId),
    /// A packet reached its end.
    Deliver,
    /// A packet was dropped, for this reason.
    Drop(&'static str),
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) events: Vec<TraceEvent>,
    pub(crate) left_out: u64,
    place: u32,
}

impl Trace {
    /// A new event of the engine starts.
    pub(crate) fn begin(&mut self) {
        self.place = 0;
    }
    pub(crate) fn add(
        &mut self,
        at: Time,
        order: u64,
        element: ElementId,
        kind: TraceKind,
        packet: u64,
    ) {
        if self.events.len() >= TRACE_MAX {
            self.left_out += 1;
            return;
        }
        let cause = (order, self.place);
        self.place += 1;
        self.events.push(TraceEvent { at, cause, element, kind, packet });
    }
}
