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

/// Asks for the cache line at an address, which may have been chosen among several without a branch:
/// what kind of event comes next no processor can foretell, and a wrong guess costs as much as a miss.
///
/// ```
/// use lastmeter_base::{address, prefetch_address};
/// let (one, other) = (1_u64, 2_u64);
/// prefetch_address(if one > other { address(&one) } else { address(&other) });
/// ```
#[inline(always)]
pub fn prefetch_address(at: usize) {
    // Anything is so many bytes behind the beginning of nothing.
    let nothing: &[u8] = &[];
    prefetch_index(nothing, at.wrapping_sub(nothing.as_ptr().addr()));
}

/// Where `value` begins.
#[inline(always)]
pub fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Asks for the cache lines in which `value` lies, where it has more than `N` for the first of them.
///
/// ```
/// let value: Box<dyn std::fmt::Debug> = Box::new([1_u64; 20]);
/// lastmeter_base::prefetch_lines::<3, _>(&*value);
/// ```
#[inline(always)]
pub fn prefetch_lines<const N: usize, T: ?Sized>(value: &T) {
    let (at, last) = (address(value), size_of_val(value).saturating_sub(1));
    // Always so many, the last one again where there are fewer: no branch.
    (0..N).for_each(|line| prefetch_address(at + (line * LINE).min(last)));
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

/// Asks for all cache lines in which `values` lie: for a few, well before they are read.
///
/// ```
/// lastmeter_base::prefetch_slice(&[1_u64; 20]);
/// ```
#[inline]
pub fn prefetch_slice<T>(values: &[T]) {
    let at = address(values);
    (at..at + size_of_val(values)).step_by(LINE).for_each(prefetch_address);
}

/// Bytes of a cache line.
const LINE: usize = 64;
