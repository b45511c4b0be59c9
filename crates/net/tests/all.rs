//! Elements of networks against formulas and real tables.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod full_table;
mod theory;
