//! Packets sent without delay, which are received as soon as the handler returns.

use crate::PortId;
use lastmeter_base::Packet;
use std::collections::VecDeque;

/// A packet, the element that receives it, and its input.
pub(crate) type Sent = (u32, PortId, Packet);

/// Those packets, in the order of sending. Most handlers send one, for which there is a place of its own: a ring takes
/// more instructions.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    first: Option<Sent>,
    /// Those behind it.
    rest: VecDeque<Sent>,
}

impl Ready {
    #[inline(always)]
    pub(crate) fn push(&mut self, sent: Sent) {
        if self.first.is_none() && self.rest.is_empty() {
            self.first = Some(sent);
        } else {
            self.rest.push_back(sent);
        }
    }
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Sent> {
        self.first.take().or_else(|| self.rest.pop_front())
    }
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }
}
