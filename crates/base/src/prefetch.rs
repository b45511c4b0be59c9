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

/// Asks for the cache lines in which `value` lies, where it has many for the first of them.
///
/// ```
/// let value: Box<dyn std::fmt::Debug> = Box::new([1_u64; 20]);
/// lastmeter_base::prefetch_lines(&*value);
/// ```
#[inline(always)]
pub fn prefetch_lines<T: ?Sized>(value: &T) {
    let (at, len) = (std::ptr::from_ref(value).addr(), size_of_val(value));
    // Anything is so many bytes behind the beginning of nothing.
    let nothing: &[u8] = &[];
    let place = at.wrapping_sub(nothing.as_ptr().addr());
    for line in 0..len.div_ceil(LINE).min(LINES_MAX) {
        prefetch_index(nothing, place.wrapping_add(line * LINE));
    }
}

/// Asks for the place behind the last of `values`.
///
/// ```
/// let values: Vec<u64> = Vec::with_capacity(8);
/// lastmeter_base::prefetch_end(&values);
/// ```
#[inline(always)]
pub fn prefetch_end<T>(values: &[T]) {
    prefetch_index(values, values.len());
}

/// Bytes of a cache line.
const LINE: usize = 64;
/// So many of a value's are asked for.
const LINES_MAX: usize = 8;
