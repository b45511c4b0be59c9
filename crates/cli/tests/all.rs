//! The program as a user meets it.

mod broken_plans;
mod docs;
mod fuzz;
#[path = "../../lab/tests/golden/mod.rs"]
mod golden;
mod ns3_dumbbell;
mod serve;
mod sweep;
