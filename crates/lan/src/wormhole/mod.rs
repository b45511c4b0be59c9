//! A local network without queues: packets are worms that hold every link from their head to their tail, switches
//! read a source route byte by byte, and blocked worms block others.
//!
//! * [`topology`]: switches, cables and hosts, from text.
//! * [`routes`]: source routes, by levels (up, then down) or by the fewest hops; faults.
//! * [`dependency`]: whether routes can deadlock: a cycle of channels that wait for each other.
//! * [`lan`]: the network in virtual time: blocking, slack, stop and go, timeouts.
//! * [`multicast`]: copies by software, in the minimum number of steps.
//! * [`element`]: the network as an element with a port for each host.
//!
//! Source: Touch et al., Netstation and ATOMIC-2 final report, §2, §4.a (N-41, N-46, N-47, N-49,
//! N-52, N-63 to N-66, N-76, N-77); Boden et al., Myrinet, IEEE Micro 15(1), 1995.

pub mod dependency;
pub mod element;
pub mod lan;
pub mod multicast;
pub mod routes;
pub mod topology;
