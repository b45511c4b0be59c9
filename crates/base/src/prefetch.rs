//! Prefetching memory before it is needed.
//!
//! In a large model nothing of the next packet is in a near cache. Reading a little of it early is not enough:
//! a processor continues only a few hundred instructions past a load that misses. It never waits for a
//! prefetch, which changes no value, and does nothing on processors that have none.

use prefetch_index::prefetch_index;

/// Prefetches the cache line in which `value` starts.
///
/// ```
/// let values = [1_u64, 2, 3];
/// lastmeter_base::prefetch(&values[2]);
/// ```
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_index(std::slice::from_ref(value), 0);
}

/// Prefetches the cache line at an address, which may have been chosen among several without a branch: a
/// processor cannot predict the kind of the next event, and a misprediction costs as much as a miss.
///
/// ```
/// use lastmeter_base::{address, prefetch_address};
/// let (one, other) = (1_u64, 2_u64);
/// prefetch_address(if one > other { address(&one) } else { address(&other) });
/// ```
#[inline(always)]
pub fn prefetch_address(at: usize) {
    // The address as an offset from the null pointer.
    let nothing: &[u8] = &[];
    prefetch_index(nothing, at.wrapping_sub(nothing.as_ptr().addr()));
}

/// The address of `value`.
#[inline(always)]
pub fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Prefetches the cache lines of `value`, at most the first `N`.
///
/// ```
/// let value: Box<dyn std::fmt::Debug> = Box::new([1_u64; 20]);
/// lastmeter_base::prefetch_lines::<3, _>(&*value);
/// ```
#[inline(always)]
pub fn prefetch_lines<const N: usize, T: ?Sized>(value: &T) {
    let (at, last) = (address(value), size_of_val(value).saturating_sub(1));
    // Always `N`, repeating the last one where there are fewer: no branch.
    (0..N).for_each(|line| prefetch_address(at + (line * LINE).min(last)));
}

/// Prefetches the memory after the last of `values`.
///
/// ```
/// let values: Vec<u64> = Vec::with_capacity(8);
/// lastmeter_base::prefetch_end(&values);
/// ```
#[inline(always)]
pub fn prefetch_end<T>(values: &[T]) {
    prefetch_index(values, values.len());
}

/// Prefetches all cache lines of `values`: for a few, well before they are read.
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
