//! Traffic between hosts, remotely controlled: sources and sinks on agents, a driver that tells them
//! what to do and prints what became of it (D-123, N-90).
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
//! | `traffic` | sizes, pace, pattern and format of a flow, and the departures that follow      |
//! | `header`  | what each packet carries: flow, sequence number, send time; AAL5 around it     |
//! | `tally`   | what a sink counts: lost, duplicated, reordered, damaged, delay, jitter        |
//! | `message` | what driver and agents say to each other                                       |
//! | `agent`   | listens for drivers; `session` serves one, with a thread for each flow         |
//! | `driver`  | carries out a plan                                                             |
//! | `report`  | what source, sink and driver report                                            |
//!
//! After the traffic generator of Choi and others (2002) §8.3, which had the same three parts: a server
//! that takes control packets (start, stop, rate, destination, length), a library that sends, and a
//! driver of the adapter that paces; here the kernel's UDP is the third.
//!
//! **Who may ask.** An agent listens on its machine alone, or asks for a token, which crosses the network
//! as it is: use it where you trust the network, or through ssh. A source sends to a sink only after that
//! has answered a probe with the run's own number, so that no agent can be made to flood somebody who
//! does not run one.

mod agent;
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

pub use agent::{Agent, SESSIONS_MAX, TOKEN_LEN_MAX, check_token};
pub use driver::{SCHEMA, run};
pub use plan::{At, Flow, Host, Plan};
pub use report::Outcome;
pub use traffic::RUN_MAX;

use lastmeter_base::Duration;

/// The most hosts of a plan.
pub const HOSTS_MAX: usize = 64;
/// The most flows of a plan, and of an agent's session in each direction.
pub const FLOWS_MAX: usize = 64;
/// The longest that sinks wait for packets that are under way.
pub const DRAIN_MAX: Duration = Duration::from_secs(2);
