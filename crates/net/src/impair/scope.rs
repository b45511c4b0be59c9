//! A scope: leads packets for some destinations through an element, and the others around it.

use lastmeter_base::{NodeId, Packet};
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};

/// Around the element: a port other than its own, because what is sent through one port departs in
/// the order of sending, and the element may hold packets back.
pub(super) const AROUND: PortId = PortId(1);

/// An element that concerns packets for some destinations.
pub struct Scoped {
    /// Whether it concerns packets for each node, by [`NodeId`].
    concerns: Vec<bool>,
    element: Box<dyn Element>,
    around: u64,
}

impl Scoped {
    /// Leads packets for `destinations` through `element`, and all others to output 1.
    pub fn new(destinations: Vec<NodeId>, element: Box<dyn Element>) -> Scoped {
        let len = destinations.iter().map(|node| node.0 as usize + 1).max().unwrap_or(0);
        let mut concerns = vec![false; len];
        destinations.iter().for_each(|node| concerns[node.0 as usize] = true);
        Scoped { concerns, element, around: 0 }
    }
}

impl Element for Scoped {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.element.start(cx);
    }
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, packet: Packet) {
        match self.concerns.get(packet.destination.0 as usize) {
            Some(true) => self.element.receive(cx, port, packet),
            _ => {
                self.around += 1;
                cx.send(AROUND, packet);
            }
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        self.element.expire(cx, timer);
    }
    fn timers(&self) -> u32 {
        self.element.timers()
    }
    fn report(&self, out: &mut Report) {
        self.element.report(out);
        out.count("around", self.around);
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{Trial, packets_to};
    use super::super::{Filter, LossList};
    use super::*;

    #[test]
    fn what_it_does_not_concern_goes_around() {
        for (destination, lost) in [(1, 2), (0, 0), (7, 0)] {
            let trial = Trial { packets: 10, ..Trial::USUAL };
            let outcome = trial.run_to(NodeId(destination), |stage, _| {
                let filter = Filter::new(LossList::new(&[2, 3]), stage);
                Box::new(Scoped::new(vec![NodeId(1)], Box::new(filter)))
            });
            assert_eq!(packets_to(&outcome), 10 - lost);
        }
    }
}
