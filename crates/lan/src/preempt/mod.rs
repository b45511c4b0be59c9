//! Links that send whole application data units and interrupt them for more urgent ones,
//! compared with links that send cells or packets.
//!
//! * [`link`]: one link in virtual time, with four ways to share it; counts its scheduling decisions.
//! * [`element`]: the link as an element.
//!
//! Source: The Aurora final report, MIT part, §2.4, §2.5, §3.6, §3.7; Lefelhocz, Investigation of
//! a Preemptive Network Architecture, MIT/LCS/TR-621, 1994, which we know only from the report: the mechanism is
//! theirs, the details are ours.

pub mod element;
pub mod link;
