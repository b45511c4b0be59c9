//! A switch of frames of any length: what a long frame costs a short one, and what may be done about it.
//!
//! * [`mod@line`]: what transfers one frame at a time: a bus for all, or a channel for each output; a frame of
//!   priority waits, suspends, or cuts the other in fragments (J-62, J-63).
//! * [`cells`]: a switch of cells with tables, copies, recycling and counters (D-106), and plans of permanent
//!   circuits for such switches (N-56).
//!
//! Source: Watson et al., HPL-93-37, 1993, §3.5; IEEE 802.1Qbu and 802.3br (frame pre-emption).

pub mod cells;
pub mod line;
