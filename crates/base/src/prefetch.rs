//! Asking for memory before it is needed.
//!
//! In a large model nothing of the next packet is in a near cache. To read a little of it early does not
//! help enough: a processor goes on behind a load that misses for a few hundred instructions only. A
//! prefetch it does not wait for at all. It changes no value, and where the processor has none it does
//! nothing.

use prefetch_index::prefetch_index;

/// Asks for the cache line in which `value` begins.
///
/// ```
/// let values = [1_u64, 2, 3];
/// lastmeter_base::prefetch(&values[2]);
/// ```
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_index(std::slice::from_ref(value), 0);
}
