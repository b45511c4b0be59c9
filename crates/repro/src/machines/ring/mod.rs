//! Rings that hosts share: what the budgets of a timed token are, and slots for cells.

pub mod budget;
pub mod slotted;
