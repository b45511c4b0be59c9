//! Traffic between hosts under remote control: sources and sinks on agents, and a driver that instructs
//! them and prints the results (D-123, N-90).
//!
//! ```text
//!                 driver (plan)
//!        TCP, JSON lines |  \
//!                        v   v
//!                    agent   agent        on each host, `lastmeter blast serve`
//!                  sources --UDP--> sinks
//! ```
//!
//! | module    | holds                                                                          |
//! |-----------|--------------------------------------------------------------------------------|
//! | `plan`    | hosts and flows                                                                |
//! | `traffic` | sizes, pace, pattern and format of a flow, and its schedule of departures      |
//! | `header`  | each packet's header: flow, sequence number, send time; AAL5 around it         |
//! | `tally`   | what a sink counts: lost, duplicated, reordered, damaged, delay, jitter        |
//! | `message` | the protocol between driver and agents                                         |
//! | `session` | of an agent with one driver, with a thread for each flow                       |
//! | `driver`  | runs a plan                                                                    |
//! | `report`  | reports of source, sink and driver                                             |
//!
//! After the traffic generator of Choi and others (2002) §8.3, which had the same three parts: a server
//! that takes control packets (start, stop, rate, destination, length), a library that sends, and a
//! driver of the adapter that paces; here the kernel's UDP is the third.
//!
//! **Access.** An agent listens on the loopback address only, or requires a token, which crosses the network
//! in clear text: use it on a trusted network, or through ssh. A source sends to a sink only after the sink
//! has returned the random number of a probe, so that no agent can be made to flood a host that does not
//! run one, not even by a driver that forges answers. A sink listens only where its agent was reached, or
//! where the plan says. Connections that have not shown the token hold no place of a run.

mod clock;
mod driver;
pub mod header;
pub mod message;
mod plan;
pub mod report;
mod session;
mod sink;
mod source;
pub mod tally;
#[cfg(test)]
mod tests;
pub mod traffic;

pub use crate::agent::{Agent, SESSIONS_MAX, TOKEN_LEN_MAX, WAITING_MAX, check_token};
pub use driver::{SCHEMA, run};
pub use plan::{At, Flow, Host, Plan};
pub use report::Outcome;
pub use session::serve;
pub use traffic::RUN_MAX;

use lastmeter_base::Duration;

/// The most hosts of a plan.
pub const HOSTS_MAX: usize = 64;
/// The most flows of a plan, and of an agent's session in each direction.
pub const FLOWS_MAX: usize = 64;
/// The longest that sinks wait for packets in flight.
pub const DRAIN_MAX: Duration = Duration::from_secs(2);
