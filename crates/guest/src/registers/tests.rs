//! `simple-nic` by its registers, in virtual time.

use super::driver::{DESCRIPTORS, MEMORY, Nic, RINGS_AT};
use super::*;
use crate::device::{Departure, Interrupt};
use crate::memory::tests::memory;
use crate::ring::Broken;
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_host::adapter::description::Description;
use proptest::prelude::*;

const ADDRESS: [u8; 6] = [0x52, 0x54, 0, 0x4c, 0x4d, 2];

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
        let (memory, registers) = (memory(0, 0, MEMORY), Registers::new(ADDRESS));
        let device = Device::new(card);
        let mut bench = Bench { device, registers, memory, nic: Nic::default() };
        bench.with(Time::START, |nic, memory, write| nic.start(memory, write).unwrap());
        bench
    }

    fn with<R>(
        &mut self,
        now: Time,
        run: impl FnOnce(&mut Nic, &Memory, driver::Write<'_>) -> R,
    ) -> R {
        let Bench { device, registers, memory, nic } = self;
        let mut write = |offset, value| {
            device.advance(now, memory);
            registers.write(now, (offset, value), true, device, memory);
        };
        run(nic, memory, &mut write)
    }

    fn send(&mut self, now: Time, frame: &[u8]) {
        self.with(now, |nic, memory, write| {
            assert!(nic.send(memory, frame).unwrap(), "the ring has room");
            nic.ring(TRANSMIT, write);
        });
    }

    fn write(&mut self, now: Time, offset: u64, value: u32) {
        self.with(now, |_, _, write| write(offset, value));
    }

    fn read(&self, offset: u64) -> u32 {
        self.registers.read(offset, &self.device)
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
fn frames_take_the_descriptions_time_whatever_the_bus() {
    let mut bench = Bench::new(slow());
    bench.send(us(5), &frame(1, 100));
    bench.device.arrive(us(7), frame(2, 200), &bench.memory);
    let (departures, interrupts) = bench.run();
    assert_eq!(departures, [Departure { at: us(115), frame: frame(1, 100) }]);
    let of = |at, ring| Interrupt { at: us(at), ring };
    assert_eq!(interrupts, [of(17, RECEIVE), of(115, TRANSMIT)]);
    assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(frame(2, 200))));
}

#[test]
fn each_ring_has_interrupts_of_its_own() {
    let mut card = Description::plain("an interrupt 50 us later");
    (card.host.coalescing, card.host.coalescing_time) = (64, Duration::from_us(50));
    let mut bench = Bench::new(card);
    bench.send(us(10), &frame(1, 100));
    bench.device.arrive(us(30), frame(2, 100), &bench.memory);
    let (_, interrupts) = bench.run();
    // The frame that was sent says nothing of the one that has come.
    assert_eq!(
        interrupts,
        [Interrupt { at: us(60), ring: TRANSMIT }, Interrupt { at: us(80), ring: RECEIVE }]
    );
}

#[test]
fn an_interrupt_comes_once_until_the_driver_arms_its_ring_again() {
    let mut bench = Bench::new(Description::plain("no time at all"));
    for at in [1, 2, 3] {
        bench.device.arrive(us(at), frame(at, 100), &bench.memory);
    }
    assert_eq!(bench.run().1, [Interrupt { at: us(1), ring: RECEIVE }]);
    assert_eq!((bench.read(CAUSE), bench.read(MASK)), (1, 1));
    // It has taken two of three.
    bench.nic.receive(&bench.memory).unwrap();
    bench.nic.receive(&bench.memory).unwrap();
    bench.with(us(9), |nic, _, write| nic.arm(RECEIVE, write));
    assert_eq!(bench.run().1, [Interrupt { at: us(9), ring: RECEIVE }]);
    bench.nic.receive(&bench.memory).unwrap();
    bench.with(us(10), |nic, _, write| nic.arm(RECEIVE, write));
    assert_eq!((bench.run().1, bench.read(CAUSE), bench.read(MASK)), (vec![], 0, 0));
    assert_eq!((bench.device.account().raised, bench.device.account().unwanted), ([2, 0], [2, 0]));
    // By mask and cause, as a driver that polls would.
    bench.write(us(11), MASK, 3);
    bench.device.arrive(us(12), frame(4, 100), &bench.memory);
    bench.run();
    assert_eq!((bench.read(CAUSE), bench.read(MASK)), (1, 3));
    bench.write(us(13), CAUSE, 1);
    bench.write(us(14), MASK, 0);
    assert_eq!((bench.run().1, bench.read(CAUSE)), (vec![], 0));
}

#[test]
fn a_34_the_state_of_the_fifos_is_in_registers_of_their_own() {
    let mut card = slow();
    card.buffers.memory = Bytes(500);
    let mut bench = Bench::new(card);
    assert_eq!(bench.read(ID).to_le_bytes(), *b"LMN1");
    assert_eq!((bench.read(MAC), bench.read(0x10)), (0x4c00_5452, 0x024d));
    (0..2).for_each(|number| bench.send(us(0), &frame(number, 100)));
    (0..3).for_each(|number| bench.device.arrive(us(0), frame(number, 200), &bench.memory));
    // Two frames of 200 bytes fit into 500; the rings say what is done and what is offered.
    assert_eq!([BUFFERED, IN_FLIGHT, LOST, 0x28].map(|at| bench.read(at)), [400, 2, 1, 0]);
    let indexes = |bench: &Bench, which: usize| {
        [HEAD, TAIL, ENABLE].map(|register| bench.read(RINGS[which] + register))
    };
    let all = u32::from(DESCRIPTORS);
    assert_eq!((indexes(&bench, RECEIVE), indexes(&bench, TRANSMIT)), ([0, all, 1], [0, 2, 1]));
    bench.run();
    assert_eq!([BUFFERED, IN_FLIGHT].map(|at| bench.read(at)), [0, 0]);
    assert_eq!((indexes(&bench, RECEIVE), indexes(&bench, TRANSMIT)), ([2, all, 1], [2, 2, 1]));
    assert_eq!(bench.read(STATUS), 1, "a link, and no ring is broken");
}

#[test]
fn what_a_driver_gives_up_is_neither_sent_nor_touched() {
    let mut bench = Bench::new(slow());
    bench.send(us(0), &frame(1, 100));
    bench.device.arrive(us(0), frame(2, 200), &bench.memory);
    bench.device.advance(us(9), &bench.memory);
    bench.write(us(9), CONTROL, 1);
    assert_eq!((bench.read(RINGS[0] + ENABLE), bench.read(RINGS[1] + LENGTH)), (0, 0));
    // The next driver begins anew, at the same place.
    bench.with(us(9), |nic, memory, write| nic.start(memory, write).unwrap());
    let (departures, interrupts) = bench.run();
    assert_eq!((departures, bench.nic.receive(&bench.memory)), (vec![], Ok(Some(frame(2, 200)))));
    assert_eq!(interrupts.iter().map(|one| one.ring).collect::<Vec<_>>(), [RECEIVE]);
    bench.send(us(500), &frame(3, 100));
    assert_eq!(bench.run().0, [Departure { at: us(610), frame: frame(3, 100) }]);
    assert_eq!(bench.read(0x28), 1, "the one that was given up");
    // While a frame is on its way into the driver's buffer.
    let mut card = slow();
    card.transfer.per_byte = lastmeter_base::PerByte::from_fs(1_000_000_000);
    let mut bench = Bench::new(card);
    bench.device.arrive(us(0), frame(2, 200), &bench.memory);
    bench.device.advance(us(50), &bench.memory);
    bench.write(us(50), RINGS[0] + ENABLE, 0);
    bench.run();
    assert_eq!(bench.memory.load(RINGS_AT[0] + 12), Ok(0), "its descriptor is as it was");
    assert_eq!(bench.read(LOST), 1);
}

#[test]
fn a_wrong_ring_is_broken_until_it_is_disabled() {
    let mut bench = Bench::new(Description::plain("no time at all"));
    bench.write(us(1), RINGS[1] + TAIL, 999);
    assert_eq!(bench.device.broken(TRANSMIT), Some(Broken::Index(999)));
    assert_eq!((bench.read(STATUS), bench.read(RINGS[1] + ENABLE)), (0x201, 0));
    bench.write(us(2), RINGS[1] + ENABLE, 0);
    bench.write(us(2), RINGS[1] + BASE, MEMORY as u32);
    bench.write(us(2), RINGS[1] + ENABLE, 1);
    assert_eq!((bench.read(STATUS), bench.read(RINGS[1] + ENABLE)), (0x201, 0), "outside");
    bench.with(us(3), |nic, memory, write| {
        write(RINGS[0] + ENABLE, 0);
        write(RINGS[1] + ENABLE, 0);
        nic.start(memory, write).unwrap();
    });
    bench.send(us(4), &frame(1, 100));
    assert_eq!((bench.run().0.len(), bench.read(STATUS)), (1, 1));
}

proptest! {
    #[test]
    fn any_registers_may_be_written(
        writes in prop::collection::vec(
            (0u64..0x180, any::<u32>(), 0u64..500, any::<bool>()),
            1..200,
        ),
    ) {
        let mut bench = Bench::new(slow());
        let mut now = us(0);
        for (offset, value, later, small) in writes {
            now += Duration::from_us(later);
            let value = if small { value % 400 } else { value };
            let Bench { device, registers, memory, .. } = &mut bench;
            device.advance(now, memory);
            registers.write(now, (offset & !3, value), value % 7 != 0, device, memory);
            device.arrive(now, frame(1, 100), memory);
            for at in (0..0x180).step_by(4) {
                let value = registers.read(at, device);
                prop_assert!(at != ID || value == MAGIC);
            }
        }
        bench.run();
    }
}
