//! The heap of this program.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// Puts the heap of a program that has just started in huge pages, where the system leaves that to
/// programs (`/sys/kernel/mm/transparent_hugepage/enabled` is `madvise`, as on most distributions).
///
/// A large model touches tens of megabytes at random; with pages of 4 KiB there are nearly as many TLB
/// misses as cache misses. A refusal changes nothing but speed. Large blocks are not in that heap: see [`HugePages`].
pub fn use_huge_pages() {
    #[cfg(target_env = "gnu")]
    let _ = crate::sys::heap_in_huge_pages();
}

/// The system's heap, which requests huge pages for large blocks, of every thread.
///
/// The C library takes a block beyond 32 MiB, and in other threads than the first a smaller one too, from the system
/// directly: a routing table of 34 MB was in pages of 4 KiB, and gave 0.8 of the lookups.
///
/// ```
/// #[global_allocator]
/// static HEAP: lastmeter_linux::heap::HugePages = lastmeter_linux::heap::HugePages;
///
/// fn main() {}
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HugePages;

/// The shortest block for which huge pages are requested: it contains one wherever it begins.
const LARGE: usize = 4 << 20;

fn prefer_huge(block: *mut u8, len: usize) {
    if len >= LARGE && !block.is_null() {
        // A refusal changes nothing but speed.
        let _ = crate::sys::request_huge_pages(block, len);
    }
}

// SAFETY: the system's allocator does everything; the request changes no contents.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        let block = unsafe { System.alloc(layout) };
        prefer_huge(block, layout.size());
        block
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above. Fresh memory of the system is zero without being written.
        let block = unsafe { System.alloc_zeroed(layout) };
        prefer_huge(block, layout.size());
        block
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe { System.realloc(block, layout, len) };
        prefer_huge(block, len);
        block
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) };
    }
}
