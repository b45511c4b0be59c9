//! Lazy receiver processing: a packet goes to its socket's queue at once, and the reading process does its
//! protocol work, at its own priority (E-105).
//!
//! ```text
//! in software: command --> interrupt --> demultiplex --> [socket queue] --> application: protocol + work
//! on adapter:  arrival --> [socket queue] --interrupt only if the application waits--> the same
//! ```
//!
//! On the adapter, [`super::admission::EarlyDrop`] is the adapter's admission: a packet that finds the socket's
//! queue full never reaches the host. In software, each packet still costs an interrupt and the demultiplexing of
//! its header, `demultiplex` of the costs.
//!
//! Source: Druschel and Banga, OSDI 1996, as described by Indiresan 1997, §7.1.

use super::{Place, Policy, View};
use lastmeter_base::Time;

/// Lazy receiver processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lazy {
    /// The interrupt handler demultiplexes.
    Software,
    /// The adapter demultiplexes, and interrupts only if the application waits.
    Adapter,
}

impl Policy for Lazy {
    fn interrupt_at(&mut self, now: Time, view: &View) -> Option<Time> {
        match self {
            Lazy::Software => Some(now),
            Lazy::Adapter => view.application_idle.then_some(now),
        }
    }
    fn proceed(&mut self, _now: Time, _view: &View, handled: u64) -> bool {
        // On the adapter, one packet wakes the application, which fetches the others itself.
        handled == 0
    }
    fn idle(&mut self, _now: Time, view: &View) -> Option<Place> {
        (*self == Lazy::Adapter && view.pending > 0).then_some(Place::Application)
    }
    fn is_lazy(&self) -> bool {
        true
    }
}
