//! Impairments: what a wide-area network does to packets besides queueing them.
//!
//! ```text
//!            +--> concerned --> [ loss | jitter | ... ] --> out 0
//! any in --->+
//!            +--> not concerned ---------------------------> out 1
//! ```
//!
//! Each is a node of an experiment that packets pass on their way, so that the impairments of a path
//! are listed in order, and each has its own row in the ledger. Packets pass a node in both directions;
//! with `toward` it affects only those for the named destinations, so two nodes make a path
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
pub(crate) use filter::copy;
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

use lastmeter_base::Bytes;
use lastmeter_base::kind::{Kind, Page, Param, ParamKind, Values};
use lastmeter_engine::site::{Outputs, Ports, Site};
use lastmeter_engine::{Element, Error, PortId};

/// Every impairment that experiments can name.
pub static KINDS: &[Kind] = &[
    loss::KIND,
    gilbert_elliott::KIND,
    every_nth::KIND,
    loss_list::KIND,
    duplication::KIND,
    reordering::KIND,
    corruption::KIND,
    jitter::KIND,
    partition::KIND,
    mahimahi::KIND,
    varying_rate::KIND,
];

/// The destinations affected: a parameter of all impairments.
const TOWARD: Param = Param::optional("toward", ParamKind::Nodes(1), "all, both ways")
    .is("destinations whose packets it affects; the others pass at once");

/// The longest trace file.
pub const TRACE_LEN_MAX: Bytes = Bytes::from_mib(64);

const PROBABILITY: ParamKind = ParamKind::Number { min: 0.0, max: 1.0 };

/// Adds an impairment at its site. Packets that it affects leave from output 0, and the others, if there are
/// any, from output 1.
fn stand(values: &Values, site: &mut Site<'_>, element: Box<dyn Element>) -> Result<Ports, Error> {
    let Some(names) = values.given::<Vec<String>>(TOWARD.name) else {
        return site.add_boxed(element).map(Ports::through);
    };
    let scoped = Scoped::new(site.nodes(&names)?, element);
    let id = site.add(scoped)?;
    let ports = Ports::through(id);
    Ok(Ports { outputs: Outputs::Any(vec![(id, PortId(0)), (id, scope::AROUND)]), ..ports })
}

/// Adds one that decides about each packet by itself.
fn filter(
    page: &Page,
    values: &Values,
    site: &mut Site<'_>,
    judge: impl Judge + 'static,
) -> Result<Ports, Error> {
    let stage = site.stage(page.name, None);
    stand(values, site, Box::new(Filter::new(judge, stage.id)))
}

#[cfg(test)]
mod check;
