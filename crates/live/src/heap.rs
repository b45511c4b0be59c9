//! The heap of this program.

/// Puts the heap of a program that has just started in huge pages, where the system leaves that to
/// programs (`/sys/kernel/mm/transparent_hugepage/enabled` is `madvise`, as on most distributions).
///
/// A large model touches tens of megabytes at random; with pages of 4 KiB there are nearly as many TLB
/// misses as cache misses. A refusal changes nothing but speed.
pub fn use_huge_pages() {
    #[cfg(target_env = "gnu")]
    let _ = crate::sys::heap_in_huge_pages();
}
