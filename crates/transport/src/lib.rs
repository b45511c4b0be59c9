//! Transport protocols as machines: `now` is an argument, segments are values, and the machine itself
//! sends and receives nothing. So the same connection runs in a model and on a real interface.

pub mod bench;
pub mod channel;
pub mod tcp;

/// Every kind of traffic of this crate.
pub static TRAFFIC: &[lastmeter_base::kind::Kind] = &[tcp::kind::KIND, channel::kind::KIND];
