//! NAPI: an interrupt only starts polling, and stays disabled until the interface is empty (E-106).
//!
//! ```text
//! command --moderated--> interrupt, then off --> poll `weight` --> poll `weight` --> ... empty: on again
//!            softirq, at most `budget` packets or `budget_time` --> then a thread (ksoftirqd)
//! ```
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `weight` | 64 | packets per poll |
//! | `budget`, `budget_time` | 300, 2 ms | limits of a softirq, after which a thread takes over |
//! | `threaded` | no | all polls run in a separate thread |
//! | `deferral` | none | empty polls before interrupts are enabled again, and the interval between them |
//! | `moderation` | none | coalescing, fixed or by [`Dim`] |
//!
//! Source: Linux, `net/core/dev.c` and `Documentation/networking/napi.rst` (`napi_defer_hard_irqs`,
//! `gro_flush_timeout`). Deviation: the timer of `gro_flush_timeout` acts in place of the adapter, as a clock
//! interrupt with the cost of an interrupt.

use super::dim::{Coalescing, Dim, Mode, Sample, receive_profile};
use super::{Expired, Place, Policy, View};
use lastmeter_base::{Duration, Time};

/// How interrupts are moderated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moderation {
    /// Fixed.
    Fixed(Coalescing),
    /// Adapted by the algorithm.
    Dynamic(Mode, Dim),
}

/// Interrupts that stay disabled for a while after a poll (`napi_defer_hard_irqs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// Consecutive empty polls before interrupts are enabled again.
    pub polls: u32,
    /// Time between these polls (`gro_flush_timeout`).
    pub interval: Duration,
}

/// Parameters of NAPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Packets per poll.
    pub weight: u64,
    /// Packets per softirq.
    pub budget: u64,
    /// Time per softirq.
    pub budget_time: Duration,
    /// Whether a thread polls from the start.
    pub threaded: bool,
    /// Whether interrupts stay disabled for a while after a poll.
    pub deferral: Option<Deferral>,
    /// When the adapter interrupts.
    pub moderation: Moderation,
}

impl Options {
    /// Linux's defaults.
    pub const LINUX: Options = Options {
        weight: 64,
        budget: 300,
        budget_time: Duration::from_ms(2),
        threaded: false,
        deferral: None,
        moderation: Moderation::Fixed(Coalescing::NONE),
    };
}

/// NAPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Napi {
    options: Options,
    polling: bool,
    /// Packets and start time of the current softirq; `None` in a thread.
    softirq: Option<(u64, Time)>,
    empty_polls_left: u32,
    timer: Option<Time>,
}

impl Napi {
    /// With interrupts enabled.
    pub fn new(options: Options) -> Napi {
        Napi { options, polling: false, softirq: None, empty_polls_left: 0, timer: None }
    }

    fn place(&mut self, now: Time) -> Place {
        self.polling = true;
        self.timer = None;
        self.softirq = (!self.options.threaded).then_some((0, now));
        if self.options.threaded { Place::Thread } else { Place::Softirq }
    }

    fn coalescing(&self) -> Coalescing {
        match &self.options.moderation {
            Moderation::Fixed(coalescing) => *coalescing,
            Moderation::Dynamic(mode, dim) => receive_profile(*mode, dim.profile()),
        }
    }

    /// The interface is empty: interrupts are enabled, now or later.
    fn complete(&mut self, now: Time, handled: u64) {
        self.polling = false;
        if let Some(deferral) = self.options.deferral {
            if handled > 0 {
                self.empty_polls_left = deferral.polls;
            }
            if self.empty_polls_left > 0 {
                self.empty_polls_left -= 1;
                self.polling = true;
                self.timer = Some(now + deferral.interval);
            }
        }
    }
}

/// When an adapter interrupts that waits for a time or a number of packets.
pub(super) fn coalesced(coalescing: Coalescing, now: Time, view: &View) -> Time {
    let enough = coalescing.packets > 0 && view.pending >= coalescing.packets;
    match view.oldest {
        Some(oldest) if !enough => (oldest + coalescing.time).max(now),
        _ => now,
    }
}

impl Policy for Napi {
    fn interrupt_at(&mut self, now: Time, view: &View) -> Option<Time> {
        (!self.polling).then(|| coalesced(self.coalescing(), now, view))
    }

    fn interrupted(&mut self, now: Time, view: &View) -> Place {
        if let Moderation::Dynamic(_, dim) = &mut self.options.moderation {
            let super::Handled { packets, bytes, interrupts } = view.handled;
            dim.note(Sample { at: now, events: interrupts, packets, bytes });
        }
        self.place(now)
    }

    fn proceed(&mut self, _now: Time, _view: &View, handled: u64) -> bool {
        handled < self.options.weight
    }

    fn finished(&mut self, now: Time, view: &View, handled: u64) -> Option<Place> {
        if view.pending == 0 || handled < self.options.weight {
            self.complete(now, handled);
            return None;
        }
        let Some((packets, since)) = &mut self.softirq else { return Some(Place::Thread) };
        *packets += handled;
        let spent = *packets >= self.options.budget || now - *since >= self.options.budget_time;
        if spent {
            self.softirq = None;
            return Some(Place::Thread);
        }
        Some(Place::Softirq)
    }

    fn timer(&self) -> Option<Time> {
        self.timer
    }

    fn expired(&mut self, now: Time, _view: &View) -> Expired {
        Expired::ClockThen(self.place(now))
    }
}
