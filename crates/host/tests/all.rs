//! Hosts against what was published and what follows from theory.

mod cim;
mod end_stages;
mod theory;
