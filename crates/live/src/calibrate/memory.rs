//! Memory: copying and reading at the size of each cache, the Internet checksum, a page fault.

use super::constant::Constant;
use crate::statistics::Spread;
use lastmeter_base::bench::{internet_checksum, sum_words};
use lastmeter_linux::sys::touch_fresh_pages;
use lastmeter_linux::{Doing, Result};
use std::hint::black_box;
use std::time::Instant;

/// Working sets: within L1, L2, L3, and beyond them all.
const SIZES: [(&str, usize); 4] =
    [("l1", 16 << 10), ("l2", 256 << 10), ("l3", 4 << 20), ("dram", 96 << 20)];
/// Bytes moved per batch: about a millisecond, short enough to fit between disturbances.
const BATCH: usize = 16 << 20;
/// Batches of each measurement.
const BATCHES: usize = 15;
const PAGE: usize = 4096;

fn rates(bytes: usize, mut work: impl FnMut()) -> Spread {
    work();
    let one = || {
        let from = Instant::now();
        work();
        bytes as f64 / from.elapsed().as_secs_f64()
    };
    Spread::of(std::iter::repeat_with(one).take(BATCHES).collect())
}

/// All constants of memory, by name.
pub(crate) fn measure(into: &mut Vec<(String, Constant)>) -> Result<()> {
    let largest = SIZES[SIZES.len() - 1].1;
    let source = vec![1u8; largest];
    let mut target = vec![0u8; largest];
    for (name, size) in SIZES {
        // Half the working set for source and destination each, so that both fit into the cache in question.
        let half = size / 2;
        let rounds = (BATCH / half).max(1);
        let copied = rates(rounds * half, || {
            for _ in 0..rounds {
                target[..half].copy_from_slice(black_box(&source[..half]));
                black_box(&mut target);
            }
        });
        let method = format!("repeated memcpy of {half} bytes; bytes copied per second");
        into.push((format!("memory.copy.{name}"), Constant::rate(copied, &method)));
        let rounds = (BATCH / size).max(1);
        let read = rates(rounds * size, || {
            for _ in 0..rounds {
                black_box(sum_words(black_box(&source[..size])));
            }
        });
        let method = format!("repeatedly summing the 64-bit words of {size} bytes");
        into.push((format!("memory.read.{name}"), Constant::rate(read, &method)));
    }
    let summed = rates(BATCH, || {
        for _ in 0..BATCH / PAGE {
            black_box(internet_checksum(black_box(&source[..PAGE])));
        }
    });
    let method = "Internet checksum (RFC 1071) of 4096 cached bytes, 32 bits at a time";
    into.push(("checksum.internet".to_owned(), Constant::rate(summed, method)));
    into.push(("page.fault".to_owned(), page_fault()?));
    Ok(())
}

/// First touch of fresh pages, huge pages forbidden so that each page faults.
fn page_fault() -> Result<Constant> {
    const PAGES: usize = 2048;
    let one = || {
        let took = touch_fresh_pages(PAGES, PAGE).doing("mapping fresh pages")?;
        Ok(took.as_secs_f64() / PAGES as f64)
    };
    let times = std::iter::repeat_with(one).take(BATCHES).collect::<Result<Vec<f64>>>()?;
    let method = "first write to each of 2048 fresh 4 KiB pages, time per page";
    Ok(Constant::time(Spread::of(times), method))
}
