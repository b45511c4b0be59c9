//! An interrupt for each command: the mode in which a host can livelock (E-100).
//!
//! ```text
//! command --> interrupt --> one command --> (another pending: interrupt again)
//! ```
//!
//! Early drop is a separate admission policy: [`super::admission::EarlyDrop`].
//!
//! Source: Indiresan 1997, §7.2.2, "Interrupt-based Reception" (`CTRL_MODE_INTR`).

use super::{Policy, View};
use lastmeter_base::Time;

/// Interrupts with every command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupt;

impl Policy for Interrupt {
    fn interrupt_at(&mut self, now: Time, _view: &View) -> Option<Time> {
        Some(now)
    }
    fn proceed(&mut self, _now: Time, _view: &View, handled: u64) -> bool {
        handled == 0
    }
}
