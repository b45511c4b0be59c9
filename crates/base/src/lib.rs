//! Units, packets and random streams: the common vocabulary of all crates of Lastmeter.
//!
//! Nothing here depends on an engine, a clock or a file. Sums and products of units that are out of range are the
//! greatest value, which no run reaches: what is due after 213 days never comes. A negative difference is a panic.

/// Arithmetic of a count with a value of its own type and with a number; the words are for panics.
macro_rules! arithmetic {
    ($unit:ident, $under:literal) => {
        /// The greatest value where the sum is beyond it.
        impl std::ops::Add for $unit {
            type Output = $unit;
            #[inline]
            fn add(self, by: $unit) -> $unit {
                $unit(self.0.saturating_add(by.0))
            }
        }
        impl std::ops::Sub for $unit {
            type Output = $unit;
            #[inline]
            fn sub(self, by: $unit) -> $unit {
                $unit(self.0.checked_sub(by.0).expect($under))
            }
        }
        impl std::ops::Mul<u64> for $unit {
            type Output = $unit;
            #[inline]
            fn mul(self, by: u64) -> $unit {
                $unit(self.0.saturating_mul(by))
            }
        }
        impl std::ops::AddAssign for $unit {
            #[inline]
            fn add_assign(&mut self, by: $unit) {
                *self = *self + by;
            }
        }
        impl std::iter::Sum for $unit {
            fn sum<I: Iterator<Item = $unit>>(counts: I) -> $unit {
                counts.fold($unit(0), std::ops::Add::add)
            }
        }
    };
}

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
    Body, Ecn, Far, FlowId, Inner, NodeId, Packet, PathId, Pool, StageId, TRANSPORT_WORDS, Visit,
    Visits,
};
pub use prefetch::{
    address, prefetch, prefetch_address, prefetch_end, prefetch_lines, prefetch_slice,
};
pub use random::{Countable, Draw, Stream, content_tag};
pub use rate::{Cost, PerByte, Rate};
pub use text::{Quantity, QuantityError};
pub use time::{Duration, Time};
