//! The discrete-event engine: elements with ports and timers, a graph that connects them, a clock, and the
//! books that account for every packet and every picosecond.
//!
//! ```text
//!     Graph --build--> Engine --run_until--> Outcome
//!                        |  elements (receive, expire)
//!                        |  events   (time, tie-break of origins, the origin's own count)
//!                        '  books    (paths x stages, resources, conservation)
//! ```
//!
//! A handler runs to completion at one instant and calls no other element: what it sends is delivered after it
//! returns. When two elements cause events at the same instant, a hash of that instant picks the order; events of
//! one element run in the order in which it caused them. This does not depend on the number of threads.

mod arrivals;
mod books;
mod clock;
mod context;
mod distribution;
mod edges;
mod element;
mod ends;
mod error;
mod events;
mod graph;
mod heap;
mod in_order;
mod level;
mod meter;
mod pairs;
mod parallel;
mod ready;
mod rounds;
mod run;
mod series;
pub mod site;
mod trace;
mod world;

pub use books::{
    Books, Count, Deadlines, DropKey, PathBook, PathInfo, Place, ResourceInfo, ResourceKind, Row,
};
pub use books::{ResourceId, ResourceUse, StageInfo};
pub use clock::{Clock, Control, VirtualClock, Wake};
pub use context::Context;
pub use distribution::Distribution;
pub use element::{
    Element, ElementId, Foreseen, Foresight, Look, PortId, Report, TimerId, Transfer,
};
pub use error::Error;
pub use graph::{EDGES_MAX, ELEMENTS_MAX, Graph};
pub use in_order::in_order;
pub use level::Level;
pub use meter::Meter;
pub use parallel::{Parallel, Serial};
pub use run::{ElementReport, Engine, Levels, Outcome, PROGRESS_LIMIT};
pub use series::{STEPS_MAX, Series};
pub use trace::{TRACE_MAX, TraceEvent, TraceKind};
