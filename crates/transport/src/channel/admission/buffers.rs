//! Buffer space that a channel needs at each node, so that no conforming message is ever lost.
//!
//! A message can reach node k before its logical arrival there by at most d_(k-1) + h_(k-1), the most that
//! the previous link can save, and must leave by l_k + d_k. At the source a whole burst may wait.
//!
//! Source: Kandlur, Shin & Ferrari 1994; Indiresan 1997, §3.2.2. The source's form follows from
//! l(m) - t <= (B_max - 1) I_min for each conforming message.

use super::super::contract::Contract;
use lastmeter_base::Duration;

/// Messages that may wait at the source node at once.
///
/// ```
/// use lastmeter_base::{Bytes, Duration};
/// use lastmeter_transport::channel::{admission::buffers, contract::Contract};
/// let contract = Contract {
///     message_max: Bytes(8192), interval_min: Duration::from_ms(50), burst_max: 4,
///     packet_max: Bytes(2048), deadline: Duration::from_ms(50),
/// };
/// assert_eq!(buffers::at_source(&contract, Duration::from_ms(30)), 5);
/// ```
pub fn at_source(contract: &Contract, bound: Duration) -> u64 {
    contract.burst_max.saturating_add(intervals(contract, bound))
}

/// Messages that may wait at a later node, from the bound and horizon of the previous link and its own
/// bound.
pub fn at_relay(contract: &Contract, before: Duration, horizon: Duration, bound: Duration) -> u64 {
    intervals(contract, horizon + before + bound)
}

/// Packets of this many messages; more than any node has if the product overflows.
pub fn slots(contract: &Contract, messages: u64) -> u64 {
    contract.packets().saturating_mul(messages)
}

fn intervals(contract: &Contract, span: Duration) -> u64 {
    span.as_ps().div_ceil(contract.interval_min.as_ps().max(1))
}
