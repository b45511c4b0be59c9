//! An adapter's engines: interface, transfer and network, each busy, blocked or idle.
//!
//! | engine | busy | blocked |
//! |---|---|---|
//! | interface | processing of a message on the host's side | the processor it needs is busy with something else |
//! | transfer | bytes cross the bus | the network is using the memory |
//! | network | set-up and frames | the transfer is using the memory, and is not pre-empted |
//!
//! With this, a ledger names the engine that limits, not the memory that two of them share.

use super::transmitter::Phase;
use lastmeter_base::{StageId, Time};
use lastmeter_engine::{Meter, ResourceId};

/// An adapter's stages and resources in the books.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Resources of interface, transfer and network.
    pub engines: [ResourceId; 3],
    /// Stages, by [`Phase`].
    pub stages: [StageId; 4],
    /// Speed-up of each phase, as numerator and denominator.
    pub speeds: [(u64, u64); 4],
}

/// What the engines have done.
pub(super) struct Engines {
    stages: [StageId; 4],
    meters: [Meter; 3],
}

/// The engine of a phase.
fn engine(phase: Phase) -> usize {
    match phase {
        Phase::Host => 0,
        Phase::Transfer => 1,
        Phase::Setup | Phase::Network => 2,
    }
}

impl Engines {
    pub(super) fn new(place: Place) -> Engines {
        Engines { stages: place.stages, meters: place.engines.map(Meter::new) }
    }

    /// From `now` on: which engines have work, and which phases are in service.
    pub(super) fn observe(
        &mut self,
        now: Time,
        wanted: [bool; 3],
        serving: impl Iterator<Item = Phase>,
    ) {
        let mut served = [None; 3];
        serving.for_each(|phase| served[engine(phase)] = Some(self.stages[phase as usize]));
        for ((meter, stage), wanted) in self.meters.iter_mut().zip(served).zip(wanted) {
            match stage {
                Some(stage) => meter.serve(now, stage),
                None if wanted => meter.block(now),
                None => meter.rest(now),
            }
        }
    }

    pub(super) fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.meters.iter()
    }
}
