//! Real-time channels (E-15 to E-37, E-79 to E-95): the measurements of chapters 3 and 6.

pub(super) mod link;
pub(super) mod modern;
pub(super) mod point_to_point;
mod spread;
mod system;
pub(super) mod token;
pub(super) mod tsn;
mod unsaid;

pub(super) use unsaid::plots;

/// Messages after which a source's phase is drawn again: sources are not synchronised, so their phases drift
/// against each other.
const DRIFT: u64 = 100;
