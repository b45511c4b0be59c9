//! Impairments: what a wide-area network does to packets besides queueing them.
//!
//! ```text
//!            +--> concerned --> [ loss | jitter | ... ] --> out 0
//! any in --->+
//!            +--> not concerned ---------------------------> out 1
//! ```
//!
//! Each is a node of an experiment that packets pass on their way, so that a path through several
//! of them reads in order, and each has its own row in the ledger. Packets go both ways through a
//! node; with `toward` it concerns only those for the named destinations, and two nodes make a path
//! that differs by direction. Draws come from the element's own random stream, and time comes from
//! the engine, so that the same element serves a model and a wall clock.
//!
//! To add one: write its file, with its [`Page`] and its `build`, and its line in [`KINDS`].

mod corruption;
mod duplication;
mod every_nth;
mod filter;
mod gilbert_elliott;
mod jitter;
mod loss;
mod loss_list;
mod mahimahi;
pub mod opportunities;
mod partition;
pub mod rate_table;
mod reordering;
mod scope;
mod trace_error;
mod varying_rate;

pub use corruption::Corruption;
pub use duplication::Duplication;
pub use every_nth::EveryNth;
pub use filter::{Filter, Judge, Verdict};
pub use gilbert_elliott::GilbertElliott;
pub use jitter::Jitter;
pub use loss::Loss;
pub use loss_list::LossList;
pub use mahimahi::OpportunityServer;
pub use opportunities::Opportunities;
pub use partition::Partition;
pub use rate_table::RateTable;
pub use reordering::{Reordering, ReorderingOptions};
pub use scope::Scoped;
pub use trace_error::TraceError;

use crate::queue::Site;
use lastmeter_base::kind::{Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, NodeId, StageId};
use lastmeter_engine::{Element, ResourceId};

/// Every impairment that experiments can name.
pub const KINDS: &[Kind] = &[
    Kind { page: loss::PAGE, serves: false, build: loss::build },
    Kind { page: gilbert_elliott::PAGE, serves: false, build: gilbert_elliott::build },
    Kind { page: every_nth::PAGE, serves: false, build: every_nth::build },
    Kind { page: loss_list::PAGE, serves: false, build: loss_list::build },
    Kind { page: duplication::PAGE, serves: false, build: duplication::build },
    Kind { page: reordering::PAGE, serves: false, build: reordering::build },
    Kind { page: corruption::PAGE, serves: false, build: corruption::build },
    Kind { page: jitter::PAGE, serves: false, build: jitter::build },
    Kind { page: partition::PAGE, serves: false, build: partition::build },
    Kind { page: mahimahi::PAGE, serves: true, build: mahimahi::build },
    Kind { page: varying_rate::PAGE, serves: true, build: varying_rate::build },
];

/// An element, or why it cannot be built.
pub type Built = Result<Box<dyn Element>, String>;
/// The nodes of these names; the name that is none, otherwise.
pub type Nodes<'a> = &'a dyn Fn(&[String]) -> Result<Vec<NodeId>, String>;

/// A line of [`KINDS`].
pub struct Kind {
    /// What it is.
    pub page: &'static Page,
    /// Whether it has a wire, whose time the ledger accounts for.
    pub serves: bool,
    build: fn(&Values, &mut Setting<'_>) -> Built,
}

/// What an impairment is built in, besides its own parameters.
pub struct Setting<'a> {
    /// Where its queue stands, if it has one.
    pub site: Site<'a>,
    /// Its row in the ledger.
    pub stage: StageId,
    /// Its wire, if [`Kind::serves`].
    pub resource: Option<ResourceId>,
    /// How many times as fast its wire is, as numerator and denominator.
    pub speed: (u64, u64),
    /// Whether it takes no time, to see what that would buy.
    pub free: bool,
    /// The nodes of these names; the name that is none, otherwise.
    pub nodes: Nodes<'a>,
    /// Reads a file, whose length is limited.
    pub read: &'a dyn Fn(&str) -> Result<Vec<u8>, String>,
}

/// Destinations that a kind concerns: a parameter that all of them have.
const TOWARD: Param = Param::optional(
    "toward",
    ParamKind::Nodes(1),
    "all, both ways",
    "destinations whose packets it concerns; the others pass at once",
);

/// The longest file of a trace.
pub const TRACE_LEN_MAX: Bytes = Bytes::from_mib(64);

const PROBABILITY: ParamKind = ParamKind::Number { min: 0.0, max: 1.0 };

/// The kind that a page describes, where it describes one.
pub fn find(page: &Page) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.page.name == page.name)
}

/// The element that an experiment describes. What it is concerned with leaves from output 0, and
/// the rest, where there is any, from output 1.
///
/// # Errors
/// If a file cannot be read or makes no sense, or parameters contradict each other: says which.
pub fn build(kind: &Kind, nested: &Nested, setting: &mut Setting<'_>) -> Built {
    let element = (kind.build)(&nested.values, setting)?;
    Ok(match nested.values.given::<Vec<String>>(TOWARD.name) {
        None => element,
        Some(names) => Box::new(Scoped::new((setting.nodes)(&names)?, element)),
    })
}

impl Setting<'_> {
    /// The wire's resource. Panics where the kind has none.
    fn wire(&self) -> ResourceId {
        self.resource.expect("a kind that serves is given a resource")
    }
}

#[cfg(test)]
mod check;
