//! Judges that are not papers: references for the simulator where nothing was published.
//!
//! [`theory`] has closed formulas of queueing theory, [`ns3`] another simulator.

mod interval;
pub mod ns3;
pub mod theory;
