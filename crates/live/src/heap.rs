//! This program's own memory.

/// Lets the heap of a program that has just begun lie in huge pages, where the system leaves that to
/// programs (`/sys/kernel/mm/transparent_hugepage/enabled` says `madvise`, as on most distributions).
///
/// What a large model touches next lies anywhere in tens of megabytes; with pages of 4 KiB the processor
/// then looks for the page nearly as often as for the data. A refusal changes nothing but speed.
pub fn use_huge_pages() {
    #[cfg(target_env = "gnu")]
    let _ = crate::sys::heap_in_huge_pages();
}
