//! The stock driver's registers, in virtual time.

use super::driver::{ring, start};
use super::*;
use crate::device::{Departure, Interrupt};
use crate::driver::{MEMORY, Nic};
use crate::memory::tests::memory;
use lastmeter_base::{Duration, Rate};
use lastmeter_host::adapter::description::Description;
use proptest::prelude::*;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0x4c, 0x4d, 2];

fn us(us: u64) -> Time {
    Time::START + Duration::from_us(us)
}

/// An adapter, its registers, and a driver.
struct Bench {
    device: Device,
    registers: Registers,
    memory: Memory,
    nic: Nic,
}

impl Bench {
    fn new(card: Description) -> Bench {
        let memory = memory(0, 0, MEMORY);
        let nic = Nic::new(&memory).unwrap();
        let (device, registers) = (Device::new(card), Registers::new(MAC));
        Bench { device, registers, memory, nic }
    }

    fn started(card: Description) -> Bench {
        let mut bench = Bench::new(card);
        bench.start(Time::START, FEATURES);
        bench
    }

    fn places(&self) -> [Place; 2] {
        self.nic.rings.each_ref().map(|ring| ring.place)
    }

    fn with(&mut self, now: Time, run: impl FnOnce(driver::Write<'_>)) {
        let Bench { device, registers, memory, .. } = self;
        run(&mut |at, data| {
            device.advance(now, memory);
            registers.write(now, (at, data), true, device, memory);
        });
    }

    fn start(&mut self, now: Time, features: u64) {
        let places = self.places();
        self.with(now, |write| start(features, &places, write));
    }

    fn write(&mut self, now: Time, at: u64, data: &[u8]) {
        self.with(now, |write| write(at, data));
    }

    fn send(&mut self, now: Time, frame: &[u8]) {
        assert!(self.nic.send(&self.memory, frame).unwrap(), "the ring has room");
        self.with(now, |write| ring(TRANSMIT, write));
    }

    fn read(&mut self, at: u64, count: usize) -> u64 {
        let bytes = self.registers.read(at, count, &self.device);
        bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    /// Until nothing is due; returns departures and interrupts.
    fn run(&mut self) -> (Vec<Departure>, Vec<Interrupt>) {
        while let Some(now) = self.device.ready_at() {
            self.device.advance(now, &self.memory);
        }
        (self.device.departures(), self.device.interrupts())
    }
}

fn frame(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 7 + number) as u8).collect()
}

fn slow() -> Description {
    let mut card = Description::plain("10 us a message, 8 Mbit/s");
    card.host.per_message = Duration::from_us(10);
    card.network.rate = Some(Rate::from_bits(8_000_000));
    card
}

#[test]
fn a_03_frames_take_the_descriptions_time_under_virtios_registers() {
    let mut bench = Bench::started(slow());
    bench.send(us(5), &frame(1, 100));
    bench.device.arrive(us(7), frame(2, 200), &bench.memory);
    let (departures, interrupts) = bench.run();
    assert_eq!(departures, [Departure { at: us(115), frame: frame(1, 100) }]);
    let of = |at, ring| Interrupt { at: us(at), ring };
    assert_eq!(interrupts, [of(17, RECEIVE), of(115, TRANSMIT)]);
    assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(frame(2, 200))));
    assert_eq!([0, 1].map(|ring| bench.registers.vector(ring)), [Some(1), Some(2)]);
    assert_eq!(bench.registers.config_vector(), Some(0));
}

#[test]
fn a_driver_finds_rings_an_address_and_a_link() {
    let mut bench = Bench::new(slow());
    assert_eq!((bench.read(RINGS, 2), bench.read(STATUS, 1)), (2, 0));
    assert_eq!(bench.registers.read(CONFIGURATION.0, 8, &bench.device)[..6], MAC);
    assert_eq!(bench.read(CONFIGURATION.0 + 6, 2), 1, "the link is up");
    let halves = [0u32, 1, 2].map(|select| {
        bench.write(us(0), DEVICE_SELECT, &select.to_le_bytes());
        bench.read(DEVICE_FEATURES, 4)
    });
    assert_eq!(halves, [FEATURES & 0xffff_ffff, FEATURES >> 32, 0], "there are 64, and no more");
    for (which, length, notify) in [(0u16, 256, 0), (1, 256, 1), (2, 0, 0)] {
        bench.write(us(0), SELECT, &which.to_le_bytes());
        let found = [LENGTH, NOTIFY_OFFSET, ENABLE].map(|field| bench.read(field, 2));
        assert_eq!(found, [length, notify, 0], "ring {which}");
        assert_eq!(bench.read(VECTOR, 2), u64::from(NO_VECTOR));
    }
}

#[test]
fn nothing_runs_before_the_driver_is_ready() {
    let mut bench = Bench::started(slow());
    // Another start, up to the last step.
    let places = bench.places();
    let mut steps = Vec::new();
    start(FEATURES, &places, &mut |at, data| steps.push((at, data.to_vec())));
    let (last, first) = steps.split_last().unwrap();
    first.iter().for_each(|(at, data)| bench.write(us(1), *at, data));
    bench.send(us(2), &frame(1, 100));
    assert_eq!((bench.run().0, bench.device.account().entered[TRANSMIT]), (vec![], 0));
    bench.write(us(3), last.0, &last.1);
    assert_eq!(bench.run().0, [Departure { at: us(113), frame: frame(1, 100) }]);
}

#[test]
fn features_that_were_not_offered_are_not_agreed_on() {
    for features in [FEATURES | 1 << 22, FEATURES & !VERSION_1, 0] {
        let mut bench = Bench::new(slow());
        bench.start(us(0), features);
        assert_eq!(
            bench.read(STATUS, 1),
            3,
            "{features:#x}: found, and neither features nor ready"
        );
        bench.send(us(1), &frame(1, 100));
        assert_eq!(bench.run().0, []);
    }
    // What was agreed on stays.
    let mut bench = Bench::started(slow());
    bench.write(us(0), DRIVER_SELECT, &[0; 4]);
    bench.write(us(0), DRIVER_FEATURES, &[0; 4]);
    assert_eq!(bench.read(DRIVER_FEATURES, 4), FEATURES & 0xffff_ffff);
    bench.write(us(0), STATUS, &[1]);
    assert_eq!(bench.read(STATUS, 1), 15, "no bit is taken back but by a reset");
}

#[test]
fn a_ring_that_makes_no_sense_needs_a_reset_and_has_it() {
    let mut bench = Bench::started(slow());
    assert!(!bench.registers.has_news(&bench.device));
    let transmit = &mut bench.nic.rings[TRANSMIT];
    transmit.describe(&bench.memory, 0, (u64::MAX, 100), (0, 0)).unwrap();
    transmit.offer(&bench.memory, 0).unwrap();
    bench.with(us(1), |write| ring(TRANSMIT, write));
    assert_eq!(bench.read(STATUS, 1), 15 | u64::from(NEEDS_RESET));
    assert!(bench.registers.has_news(&bench.device) && !bench.registers.has_news(&bench.device));
    assert_eq!((bench.read(ISR.0, 1), bench.read(ISR.0, 1)), (2, 0), "read once");
    // The other ring goes on.
    bench.device.arrive(us(2), frame(2, 200), &bench.memory);
    bench.run();
    assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(frame(2, 200))));
    bench.write(us(3), STATUS, &[0]);
    assert_eq!((bench.read(STATUS, 1), bench.registers.vector(RECEIVE)), (0, None));
    // A ring that is outside the memory, or of an odd length, cannot even start.
    for place in [
        Place { used: MEMORY as u64, ..bench.places()[1] },
        Place { length: 100, ..bench.places()[1] },
    ] {
        let places = [bench.places()[0], place];
        bench.with(us(4), |write| start(FEATURES, &places, write));
        assert_eq!(bench.read(STATUS, 1) & u64::from(NEEDS_RESET), u64::from(NEEDS_RESET));
    }
    bench.nic = Nic::new(&bench.memory).unwrap();
    for place in bench.places() {
        bench.memory.write(place.used, &[0; 4]).unwrap();
    }
    bench.memory.write(bench.places()[TRANSMIT].available, &[0; 4]).unwrap();
    bench.start(us(5), FEATURES);
    bench.send(us(6), &frame(3, 100));
    assert_eq!(bench.run().0, [Departure { at: us(116), frame: frame(3, 100) }]);
}

#[test]
fn what_a_driver_gives_up_is_neither_sent_nor_touched() {
    let mut bench = Bench::started(slow());
    bench.send(us(0), &frame(1, 100));
    bench.device.advance(us(50), &bench.memory);
    bench.write(us(50), STATUS, &[0]);
    let used = bench.places()[TRANSMIT].used;
    assert_eq!((bench.run().0, bench.memory.load(used + 2)), (vec![], Ok(0)));
    let mut bench = Bench::started(slow());
    let Bench { registers, device, .. } = &mut bench;
    registers.halt(device);
    assert_eq!(
        bench.read(STATUS, 1),
        15 | u64::from(NEEDS_RESET),
        "without the right to reach memory"
    );
}

#[test]
fn fields_keep_what_fits_them() {
    let mut bench = Bench::new(slow());
    bench.write(us(0), SELECT, &[1, 0]);
    bench.write(us(0), VECTOR, &[3, 0]);
    assert_eq!(bench.read(VECTOR, 2), u64::from(NO_VECTOR), "there are three");
    bench.write(us(0), LENGTH, &[1, 1]);
    bench.write(us(0), LENGTH, &[64, 0, 0, 0]);
    assert_eq!(bench.read(LENGTH, 2), 256, "longer than the longest, or another width");
    bench.write(us(0), DESCRIPTORS, &[1, 2, 3, 4, 5, 6, 7, 8]);
    bench.write(us(0), DESCRIPTORS + 4, &[9, 9, 9, 9]);
    bench.write(us(0), DESCRIPTORS + 4, &[0; 8]);
    assert_eq!(bench.read(DESCRIPTORS, 8), 0x0909_0909_0403_0201);
    bench.write(us(0), ENABLE, &[1, 0]);
    bench.write(us(0), DESCRIPTORS, &[0; 4]);
    bench.write(us(0), ENABLE, &[0, 0]);
    assert_eq!((bench.read(ENABLE, 2), bench.read(DESCRIPTORS, 4)), (1, 0x0403_0201));
}

proptest! {
    #[test]
    fn any_fields_may_be_written(
        writes in prop::collection::vec(
            (0u64..0x40, prop::collection::vec(any::<u8>(), 0..10), 0u64..500, any::<bool>()),
            1..200,
        ),
        begins: bool,
    ) {
        let mut bench = if begins { Bench::started(slow()) } else { Bench::new(slow()) };
        let mut now = us(0);
        for (at, data, later, doorbell) in writes {
            now += Duration::from_us(later);
            let at = if doorbell { NOTIFY.0 + at % 8 } else { at };
            let Bench { device, registers, memory, .. } = &mut bench;
            device.advance(now, memory);
            registers.write(now, (at, &data), later % 7 != 0, device, memory);
            device.arrive(now, frame(1, 100), memory);
            prop_assert_eq!(registers.read(0, 0x300, device).len(), 0x300);
            registers.has_news(device);
        }
        bench.run();
    }
}
