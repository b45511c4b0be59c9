//! Experiments and what is made of them: profiles, runs, what-ifs, reproductions, reports.

pub mod build;
pub mod document;
pub mod experiment;
pub mod explain;
pub mod kinds;
pub mod ledger;
pub mod library;
mod replay;
pub mod schema;
