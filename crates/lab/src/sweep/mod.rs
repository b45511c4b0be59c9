//! Sweeps: one experiment, run many times with different values and seeds.
//!
//! ```text
//! factors --design--> points --+                      +--> row --+
//!                              +--> Plan --Schedule---+--> row --+--> table, JSON, Parquet
//! experiment, seeds, until ----+     (pure data)      +--> row --+
//!                                        ^                  |
//!                                        +--- what is done -+
//! ```
//!
//! A [`Plan`] is complete, as data: any machine computes the same rows from it.
//! A [`Schedule`] says which run comes next, given those that are done. So a sweep resumes where it
//! was left, on other threads or machines, and no run is lost or entered twice.
//!
//! * **Points.** What varies is a [`Factor`]; a design makes points of factors: a [`design::grid`]
//!   of all combinations, a [`design::list`] of values taken together, points drawn at
//!   [`design::random`], or a Latin hypercube ([`design::latin`]; McKay, Beckman and Conover,
//!   Technometrics 21(2), 1979).
//! * **Replicates.** Each point is run with several seeds, the same ones at every point: what
//!   chance does to one point it does to the next, and their difference is clearer (common random
//!   numbers).
//! * **Until.** With [`Until`], a point gets more replicates until the 95 % confidence interval of
//!   a measure is narrow enough. The interval is looked at after fixed numbers of replicates, so
//!   that the result does not depend on which run ends first. Looking repeatedly makes the
//!   interval cover a little less than its 95 % (Law, Simulation Modeling and Analysis, §9.4.1);
//!   a larger first number of replicates helps.

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
