//! A host as data: its resources, and the stages that packets pass on the way out and in.
//!
//! A profile names each constant's source; the file that it is read from is the place for that.

use crate::machine::Full;
use crate::resource::{Discipline, Priority};
use lastmeter_base::kind::Nested;
use lastmeter_base::{Cost, Duration, PerByte};
use lastmeter_engine::ResourceKind;

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What it is: "HP 9000/730, 66 MHz, HP-UX 8.07".
    pub what: String,
    /// Where its constants come from.
    pub source: String,
    /// What its stages compete for.
    pub resources: Vec<ResourceProfile>,
    /// From the application to the network; at least one.
    pub send: Vec<StageProfile>,
    /// From the network to the application; at least one.
    pub receive: Vec<StageProfile>,
}

/// A resource of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceProfile {
    /// Unique in the host.
    pub name: String,
    /// What sort of thing it is.
    pub kind: ResourceKind,
    /// Whether it is memory, whose crossings the ledger counts.
    pub memory: bool,
    /// How many packets it can serve at once.
    pub units: u32,
    /// How jobs get at it.
    pub discipline: Discipline,
    /// Time to go from one thread to another.
    pub context_switch: Duration,
    /// Time to enter and leave an interrupt handler.
    pub interrupt: Duration,
    /// What a byte costs where stages use it as a bus.
    pub per_byte: PerByte,
}

/// A stage of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct StageProfile {
    /// Unique in the host.
    pub name: String,
    /// The primary resource.
    pub resource: String,
    /// Who goes first.
    pub priority: Priority,
    /// Whether it may interrupt lower stages.
    pub preemptive: bool,
    /// What a packet costs the primary resource.
    pub cost: Cost,
    /// Buses that its bytes cross, and how often each byte does.
    pub buses: Vec<(String, u32)>,
    /// How often it copies each byte.
    pub copies: u32,
    /// How often a processor reads or writes each byte.
    pub touches: u32,
    /// Where packets wait for it; `None` for a queue without limit.
    pub queue: Option<Nested>,
    /// What becomes of a packet that finds the queue full.
    pub full: Full,
}
