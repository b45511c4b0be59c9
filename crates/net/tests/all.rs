//! Elements of networks against formulas and real tables.

mod full_table;
mod theory;
