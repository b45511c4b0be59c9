//! Transport protocols as machines: `now` is an argument, segments are values, nothing is sent or
//! received by the machine itself. So the same connection runs in a model and before a real
//! interface.

pub mod bench;
pub mod channel;
pub mod tcp;
