//! A switch of variable-length frames: how a long frame delays a short one, and remedies.
//!
//! * [`mod@line`]: a resource that transfers one frame at a time: a bus for all, or a channel for each output; a
//!   priority frame waits, suspends the other frame, or cuts it into fragments (J-62, J-63).
//! * [`cells`]: a cell switch with tables, copies, recycling and counters (D-106), and plans of permanent circuits
//!   for such switches (N-56).
//!
//! Source: Watson et al., HPL-93-37, 1993, §3.5; IEEE 802.1Qbu and 802.3br (frame pre-emption).

pub mod cells;
pub mod line;
