//! Judges that are not papers: references for the simulator where nothing was published.
//!
//! [`theory`] has closed formulas of queueing theory, [`ns3`] another simulator, [`linux`] a real TCP.

mod interval;
mod kept;
pub mod linux;
pub mod ns3;
pub mod theory;
