//! Judges that are not papers: references for the simulator where nothing was published.
//!
//! [`theory`] has closed formulas of queueing theory.

pub mod theory;
