//! The heap of a program that has just started is in huge pages, and so are large blocks of every thread. The test has
//! its own `main`, because the test harness would run it in a thread, which has another heap.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::path::Path;

#[global_allocator]
static HEAP: lastmeter_linux::heap::HugePages = lastmeter_linux::heap::HugePages;

fn main() {
    if !cfg!(target_env = "gnu") || !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        println!("SKIP: no huge pages: another C library, or a kernel without them");
        return;
    }
    lastmeter_linux::heap::use_huge_pages();
    // Blocks as small as packets and as large as tables; the first may be in memory from before.
    for (len, count) in [(256, 10_000), (1 << 20, 4), (24 << 20, 4)] {
        let blocks: Vec<Vec<u8>> = (0..count).map(|_| Vec::with_capacity(len)).collect();
        let last = blocks.last().unwrap().as_ptr() as usize;
        assert!(has_flag(last, "hg"), "blocks of {len} bytes are not in huge pages");
    }
    // Beyond what the C library takes from a heap, and in another thread.
    let large = || {
        let mut grown: Vec<u8> = Vec::with_capacity(5 << 20);
        grown.reserve_exact(50 << 20);
        for block in [grown, vec![0; 40 << 20], Vec::with_capacity(6 << 20)] {
            let middle = block.as_ptr() as usize + block.capacity() / 2;
            assert!(has_flag(middle, "hg"), "{} bytes are not in huge pages", block.capacity());
        }
    };
    large();
    std::thread::spawn(large).join().unwrap();
}

/// Whether the mapping that contains `address` has this flag (`VmFlags` in proc_pid_smaps(5)).
fn has_flag(address: usize, flag: &str) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    maps.lines().any(|line| {
        let parse = |text| usize::from_str_radix(text, 16).ok();
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some((Some(start), Some(end))) = range.map(|(a, b)| (parse(a), parse(b))) {
            inside = (start..end).contains(&address);
        }
        let flags = line.strip_prefix("VmFlags:").filter(|_| inside);
        flags.is_some_and(|flags| flags.split_whitespace().any(|other| other == flag))
    })
}
