//! Rings that guests write well, and badly.

use super::*;
use crate::driver::Driver;
use crate::memory::tests::memory;
use proptest::prelude::*;

const LENGTH: u32 = 8;

/// A ring of eight at 0x1000 in 64 KiB.
fn ring() -> (Memory, Driver, Ring) {
    let memory = memory(0x1000, 0, 65_536);
    let driver = Driver::new(0x1000, LENGTH);
    let ring = Ring::new(driver.place, 0, &memory).unwrap();
    (memory, driver, ring)
}

fn take(memory: &Memory, ring: &mut Ring) -> Result<Option<Chain>, Broken> {
    let limit = ring.offered(memory)?;
    ring.take(memory, limit)
}

#[test]
fn a_chain_is_taken_read_and_given_back() {
    let (memory, mut driver, mut ring) = ring();
    assert_eq!(take(&memory, &mut ring), Ok(None));
    memory.write(0x4000, b"header").unwrap();
    memory.write(0x5000, b"packet").unwrap();
    driver.describe(&memory, 3, (0x4000, 6), (NEXT, 5)).unwrap();
    driver.describe(&memory, 5, (0x5000, 6), (0, 0)).unwrap();
    driver.offer(&memory, 3).unwrap();
    let chain = take(&memory, &mut ring).unwrap().unwrap();
    assert_eq!((chain.head, chain.room(false), chain.room(true)), (3, 12, 0));
    let mut bytes = [0; 20];
    assert_eq!(chain.read(&memory, 4, &mut bytes), Ok(8));
    assert_eq!(&bytes[..8], b"erpacket");
    assert_eq!(chain.write(&memory, 0, b"no"), Ok(0), "nothing is writable");
    assert_eq!(driver.take(&memory), Ok(None));
    ring.give(&memory, chain.head, 0).unwrap();
    assert_eq!(driver.take(&memory), Ok(None), "not published");
    ring.publish(&memory).unwrap();
    assert_eq!(driver.take(&memory), Ok(Some((3, 0))));
    assert_eq!((ring.base(), take(&memory, &mut ring)), (1, Ok(None)));
}

#[test]
fn an_indirect_chain_is_read_from_its_table() {
    let (memory, mut driver, mut ring) = ring();
    let table = Driver::new(0x6000, 4);
    table.describe(&memory, 0, (0x4000, 100), (NEXT | WRITE, 2)).unwrap();
    table.describe(&memory, 2, (0x5000, 28), (WRITE, 0)).unwrap();
    driver.describe(&memory, 0, (0x6000, 64), (INDIRECT, 0)).unwrap();
    driver.offer(&memory, 0).unwrap();
    let chain = take(&memory, &mut ring).unwrap().unwrap();
    assert_eq!((chain.pieces.len(), chain.room(true)), (2, 128));
    assert_eq!(chain.write(&memory, 90, &[7; 40]), Ok(38));
    let mut bytes = [0; 28];
    memory.read(0x5000, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 28]);
}

#[test]
fn what_is_wrong_breaks_the_ring() {
    type Change = fn(&Memory, &mut Driver);
    let cases: [(Broken, Change); 8] = [
        (Broken::Loop, |memory, driver| {
            driver.describe(memory, 0, (0x4000, 1), (NEXT, 0)).unwrap();
        }),
        (Broken::Descriptor(8), |memory, driver| {
            driver.describe(memory, 0, (0x4000, 1), (NEXT, 8)).unwrap();
        }),
        (Broken::Outside(Outside { address: u64::MAX, len: 2 }), |memory, driver| {
            driver.describe(memory, 0, (u64::MAX, 2), (0, 0)).unwrap();
        }),
        (Broken::Bytes(u64::from(u32::MAX)), |memory, driver| {
            driver.describe(memory, 0, (0x4000, u32::MAX), (0, 0)).unwrap();
        }),
        (Broken::Table, |memory, driver| {
            driver.describe(memory, 0, (0x4000, 17), (INDIRECT, 0)).unwrap();
        }),
        (Broken::Table, |memory, driver| {
            driver.describe(memory, 0, (0x4000, 16), (INDIRECT, 0)).unwrap();
            let table = Driver::new(0x4000, 1);
            table.describe(memory, 0, (0x4000, 16), (INDIRECT, 0)).unwrap();
        }),
        (Broken::Outside(Outside { address: 0x1_0ff8, len: 16 }), |memory, driver| {
            driver.describe(memory, 0, (0x1_0ff8, 16), (INDIRECT, 0)).unwrap();
        }),
        (Broken::Index(9), |memory, driver| {
            memory.store(driver.place.available + 2, 8).unwrap();
        }),
    ];
    for (found, change) in cases {
        let (memory, mut driver, mut ring) = ring();
        change(&memory, &mut driver);
        driver.offer(&memory, 0).unwrap();
        if found == Broken::Index(9) {
            memory.store(driver.place.available + 2, 9).unwrap();
        }
        assert_eq!(take(&memory, &mut ring), Err(found));
    }
}

#[test]
fn a_ring_must_be_in_memory_and_a_power_of_two_long() {
    let memory = memory(0x1000, 0, 65_536);
    let place = |base, length| Driver::new(base, length).place;
    for (place, right) in [
        (place(0x1000, 256), true),
        (place(0x1000, 0), false),
        (place(0x1000, 3), false),
        (place(0x1000, 65_536), false),
        (place(0x1_0f00, 64), false),
        (Place { descriptors: u64::MAX - 5, ..place(0x1000, 8) }, false),
        (Place { used: 1, ..place(0x1000, 8) }, false),
        (Place { available: 0x1001, ..place(0x1000, 8) }, false),
    ] {
        assert_eq!(Ring::new(place, 0, &memory).is_ok(), right, "{place:?}");
    }
}

#[test]
fn indices_wrap_around() {
    let (memory, mut driver, _) = ring();
    let base = u16::MAX - 2;
    memory.store(driver.place.available + 2, base).unwrap();
    memory.store(driver.place.used + 2, base).unwrap();
    (driver.offered, driver.seen) = (base, base);
    let mut ring = Ring::new(driver.place, base, &memory).unwrap();
    for number in 0..6 {
        driver.describe(&memory, number, (0x4000, 10), (WRITE, 0)).unwrap();
        driver.offer(&memory, number).unwrap();
        let chain = take(&memory, &mut ring).unwrap().unwrap();
        ring.give(&memory, chain.head, 4).unwrap();
        ring.publish(&memory).unwrap();
        assert_eq!(driver.take(&memory), Ok(Some((u32::from(number), 4))));
    }
    assert!(ring.wants_interrupt(&memory).unwrap());
    driver.interrupts(&memory, false).unwrap();
    assert!(!ring.wants_interrupt(&memory).unwrap());
}

proptest! {
    #[test]
    fn any_bytes_in_a_ring_are_chains_within_memory_or_break_it(
        bytes in prop::collection::vec(any::<u8>(), 4096),
        small in any::<bool>(),
        offered in 0u16..=8,
    ) {
        let (memory, driver, mut ring) = ring();
        // Small numbers make chains that hold together for a while.
        let mask = if small { 7 } else { 255 };
        let bytes: Vec<u8> = bytes.iter().map(|byte| byte & mask).collect();
        memory.write(0x1000, &bytes).unwrap();
        memory.store(driver.place.available + 2, offered).unwrap();
        while let Ok(Some(chain)) = take(&memory, &mut ring) {
            prop_assert!(chain.pieces.len() as u32 <= LENGTH + 1);
            let inside = |piece: &Piece| memory.check(piece.address, piece.len as usize).is_ok();
            prop_assert!(chain.pieces.iter().all(inside));
            ring.give(&memory, chain.head, 0).unwrap();
            ring.publish(&memory).unwrap();
        }
        prop_assert!(ring.base() <= offered);
    }
}
