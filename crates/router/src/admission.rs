//! Admission: what flows may reserve at both of their ports (D-44), and how long their packets wait then.

use lastmeter_base::{Bytes, Duration, Rate};

pub use lastmeter_lan::labels::admission::{Account, Admission, Refusal, Side};

/// How far ahead of its rate a shaper sends, which delays a packet that arrives then.
pub use crate::port_processor::output::BURST;

/// How long a packet of a flow that keeps within its burst and rate waits at most for its own line: its burst at its
/// rate, a packet that is on its way already, and what the shaper is ahead. What the system's scheduler adds is not in
/// it.
///
/// Source: Parekh and Gallager, IEEE/ACM ToN 1(3), 1993, for one node; Liebeherr et al., 1996, for earliest due dates.
pub fn delay_bound(rate: Rate, burst: Bytes, line: Rate, longest: Bytes) -> Duration {
    rate.time_for(burst) + line.time_for(longest) + BURST
}
