//! Sweeps: one experiment, run many times with different values and seeds.
//!
//! ```text
//! factors --design--> points --+                      +--> row --+
//!                              +--> Plan --Schedule---+--> row --+--> table, JSON, Parquet
//! experiment, seeds, until ----+     (pure data)      +--> row --+
//!                                        ^                  |
//!                                        +-- runs so far ---+
//! ```
//!
//! A [`Plan`] is complete, as data: any machine computes the same rows from it. A [`Schedule`] gives the next run,
//! considering those already done. So a sweep can be resumed, also on other threads or machines, and no run is lost
//! or counted twice.
//!
//! * **Points.** What varies is a [`Factor`]; a design makes points from factors: a [`design::grid`] of all
//!   combinations, a [`design::list`] of values taken together, points drawn at [`design::random`], or a Latin
//!   hypercube ([`design::latin`]; McKay, Beckman and Conover, Technometrics 21(2), 1979).
//! * **Replicates.** Each point is run with several seeds, the same at every point: chance affects all points alike,
//!   and their differences are clearer (common random numbers).
//! * **Until.** With [`Until`], a point gets more replicates until the 95 % confidence interval of a measure is narrow
//!   enough. The interval is checked after fixed numbers of replicates, so that the result does not depend on which
//!   run ends first. Checking repeatedly makes the interval's coverage a little less than 95 % (Law, Simulation
//!   Modeling and Analysis, §9.4.1); a larger initial number of replicates helps.

pub mod design;
mod factor;
mod plan;
mod report;
mod row;
mod schedule;
mod statistics;
mod table;

pub use factor::Factor;
pub use plan::{POINTS_MAX, Plan, REPLICATES_MAX, Request, Run, SCHEMA, Until, Width};
pub use report::{Point, Report};
pub use row::{MEASURES, Measure, Measures, Row};
pub use schedule::{Schedule, work};
pub use statistics::{Interval, student};
pub use table::{paths, runs, runs_back};
