//! Continuous polling: the host polls the interface whenever the application has nothing to do (E-101).
//!
//! ```text
//! look --> up to `quota` commands --> the application, until its queue is empty --> look
//! ```
//!
//! Source: Indiresan 1997, §7.2.2, "Continuous Polling" (`CTRL_MODE_POLL`). The quota counts commands, as in
//! §7.3.3 and Eq 7.4; §7.2.2 calls them messages. Switching to the poller costs `C_sw` only if the application ran
//! before; polling again costs no switch.

use super::{Place, Policy, View};
use lastmeter_base::Time;

/// Polls continuously.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polling {
    /// Most commands before the application gets its turn, at least 1.
    pub quota: u64,
}

impl Policy for Polling {
    fn interrupt_at(&mut self, _now: Time, _view: &View) -> Option<Time> {
        None
    }
    fn proceed(&mut self, _now: Time, _view: &View, handled: u64) -> bool {
        handled < self.quota
    }
    fn idle(&mut self, _now: Time, view: &View) -> Option<Place> {
        (view.pending > 0).then_some(Place::Thread)
    }
    fn spins(&self) -> bool {
        true
    }
}
