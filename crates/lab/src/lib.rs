//! Experiments and what is made of them: profiles, runs, what-ifs, reproductions, reports.

pub mod explain;
pub mod ledger;
