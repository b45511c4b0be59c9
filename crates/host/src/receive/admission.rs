//! Admission: early drop, tags, budgets of flows. It runs on the host, or on the adapter, where dropping costs the
//! host nothing.
//!
//! | admission | admits | id |
//! |---|---|---|
//! | [`EarlyDrop`] | while a buffer is free | E-100; on the adapter: drop-in-adapter, E-105 |
//! | [`Tags`] | by class: the lower the class, the more buffers must be free | E-131 |
//! | [`Budgets`] | a quota per flow and period; more only while buffers are plentiful | E-132 |

use super::{Admission, View};
use lastmeter_base::{Duration, Packet, Time};
use std::collections::BTreeMap;

/// Refuses a packet for which no buffer is free.
///
/// Source: Indiresan 1997, §7.2.2 (`ERR_NOBUFS`). On the adapter it is DEFTA (§7.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyDrop;

impl Admission for EarlyDrop {
    fn admits(&mut self, _now: Time, _packet: &Packet, view: &View) -> bool {
        view.buffers_free > 0
    }
}

/// Selective discard: under overload, the least important packets are dropped first.
///
/// Source: Indiresan 1997, §8.2, where it is left open; the thresholds are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Number of buffers that must be free for each class; classes beyond the last are treated as the last.
    pub free_min: Vec<u64>,
}

impl Admission for Tags {
    fn admits(&mut self, _now: Time, packet: &Packet, view: &View) -> bool {
        let class = usize::from(packet.class).min(self.free_min.len().saturating_sub(1));
        view.buffers_free > self.free_min.get(class).copied().unwrap_or(0)
    }
}

/// Most flows remembered at once; one more starts a new period.
pub const FLOWS_MAX: usize = 4096;

/// A budget of packets per period for each flow; what is left over is open to any flow.
///
/// Source: Indiresan 1997, §8.2, where it is left open. A flow beyond its budget is admitted only while more than
/// half of the buffers are free, so that it cannot use up the budget of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budgets {
    period: Duration,
    budget: u64,
    ends: Time,
    used: BTreeMap<u32, u64>,
}

impl Budgets {
    /// `budget` packets for each flow in every `period`.
    pub fn new(period: Duration, budget: u64) -> Budgets {
        assert!(!period.is_zero(), "a period of zero never ends");
        Budgets { period, budget, ends: Time::START + period, used: BTreeMap::new() }
    }
}

impl Admission for Budgets {
    fn admits(&mut self, now: Time, packet: &Packet, view: &View) -> bool {
        if now >= self.ends || self.used.len() >= FLOWS_MAX {
            let periods = now.saturating_since(self.ends).as_ps() / self.period.as_ps() + 1;
            self.ends += self.period * periods;
            self.used.clear();
        }
        let used = self.used.entry(packet.flow.0).or_default();
        let admitted = match *used < self.budget {
            true => view.buffers_free > 0,
            false => view.buffers_free * 2 > view.buffers,
        };
        *used += u64::from(admitted);
        admitted
    }
}
