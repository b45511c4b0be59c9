//! Judges that are not papers: what the simulator is put beside where nothing was published.
//!
//! [`theory`] has closed formulas of queueing theory.

pub mod theory;
