//! Units, packets and random streams: the common vocabulary of all crates of Lastmeter.
//!
//! Nothing here knows of an engine, a clock or a file. Arithmetic on units is checked in release
//! builds too, because an overflow would give a wrong result that looks right.

pub mod bench;
mod bytes;
pub mod kind;
mod packet;
mod prefetch;
mod random;
mod rate;
pub mod text;
mod time;

pub use bytes::Bytes;
pub use packet::{
    Body, Ecn, Far, FlowId, NodeId, Packet, PathId, Pool, StageId, TRANSPORT_WORDS, Visit, Visits,
};
pub use prefetch::{
    address, prefetch, prefetch_address, prefetch_end, prefetch_lines, prefetch_slice,
};
pub use random::{Countable, Draw, Stream, content_tag};
pub use rate::{Cost, PerByte, Rate};
pub use text::{Quantity, QuantityError};
pub use time::{Duration, Time};
