//! Shared rings: budgets of a timed token, and slotted rings for cells.

pub mod budget;
pub mod slotted;
