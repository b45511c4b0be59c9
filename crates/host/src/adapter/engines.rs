//! An adapter's engines: interface, transfer and network, each busy, blocked or idle.
//!
//! | engine | busy | blocked |
//! |---|---|---|
//! | interface | the host's part of a message | it waits for a processor that does something else |
//! | transfer | bytes cross the bus | the network has the memory |
//! | network | set-up and frames | the transfer has the memory, and is not pre-empted |
//!
//! So that a ledger names the engine that limits, and not the memory that two of them share.

use super::transmitter::Phase;
use lastmeter_base::{StageId, Time};
use lastmeter_engine::{Meter, ResourceId};

/// Where an adapter stands in the books.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Of interface, transfer and network.
    pub engines: [ResourceId; 3],
    /// By [`Phase`].
    pub stages: [StageId; 4],
    /// How many times as fast each phase is, as numerator and denominator.
    pub speeds: [(u64, u64); 4],
}

/// What the engines did.
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

    /// From `now` on: which engines have something to do, and which phases are being served.
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
