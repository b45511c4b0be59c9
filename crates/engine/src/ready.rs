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

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Bytes;

    #[test]
    fn packets_are_received_in_the_order_of_sending() {
        let mut ready = Ready::default();
        let push = |ready: &mut Ready, to| ready.push((to, PortId(0), Packet::new(Bytes(1))));
        let pop = |ready: &mut Ready| ready.pop().map(|(to, ..)| to);
        (0..3).for_each(|to| push(&mut ready, to));
        assert_eq!(pop(&mut ready), Some(0));
        // Sent while others wait: not before them.
        push(&mut ready, 3);
        assert_eq!(ready.len(), 3);
        assert_eq!([(); 4].map(|()| pop(&mut ready)), [Some(1), Some(2), Some(3), None]);
    }
}
