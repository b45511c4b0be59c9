//! Adapters of `profiles/devices` under a driver, in virtual time: as in the model, to the picosecond.

use super::*;
use crate::driver::{MEMORY, Nic};
use crate::memory::tests::memory;
use crate::ring::Ring;
use lastmeter_base::Duration;
use lastmeter_host::adapter::description::Side;
use lastmeter_lab::library::Builtin;
use lastmeter_lab::profile::device::read;
use proptest::prelude::*;

const ADAPTERS: [&str; 3] = ["simple-nic", "cim", "pcie4"];

fn us(us: u64) -> Time {
    Time::START + Duration::from_us(us)
}

/// An adapter, its guest's memory and driver.
struct Bench {
    device: Device,
    memory: Memory,
    nic: Nic,
}

impl Bench {
    fn new(card: Description) -> Bench {
        let memory = memory(0, 0x7000_0000, MEMORY);
        let nic = Nic::new(&memory).unwrap();
        let mut device = Device::new(card);
        for which in [RECEIVE, TRANSMIT] {
            let ring = Ring::new(nic.rings[which].place, 0, &memory).unwrap();
            device.start(Time::START, which, ring, &memory);
        }
        Bench { device, memory, nic }
    }

    fn send(&mut self, now: Time, frame: &[u8]) {
        assert!(self.nic.send(&self.memory, frame).unwrap(), "the ring has room");
        self.device.doorbell(now, TRANSMIT, &self.memory);
    }

    /// Until nothing is due; returns departures and interrupts.
    fn run(&mut self) -> (Vec<Departure>, Vec<Interrupt>) {
        while let Some(now) = self.device.ready_at() {
            self.device.advance(now, &self.memory);
        }
        (self.device.departures(), self.device.interrupts())
    }
}

fn card(name: &str) -> Description {
    read(name, &Builtin).unwrap_or_else(|why| panic!("{why}"))
}

fn frame(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 7 + number) as u8).collect()
}

/// When the model's transmitter has sent what is offered at these instants; the driver waits while it is full.
fn model(card: &Description, offers: &[(Time, usize)]) -> Vec<Time> {
    let mut model = Transmitter::new(card.clone());
    let mut waiting: VecDeque<Order> = VecDeque::new();
    let mut offers = offers.iter().enumerate().peekable();
    let mut sent = Vec::new();
    loop {
        let next = offers.peek().map(|(_, offer)| offer.0);
        let Some(now) = model.ready_at().into_iter().chain(next).min() else { return sent };
        model.advance(now);
        let acks = model.events().filter(|event| event.what == What::TransmitAck);
        sent.extend(acks.map(|event| event.at));
        while let Some((id, &(_, len))) = offers.next_if(|(_, offer)| offer.0 == now) {
            waiting.push_back(Order::new(id as u64, Bytes(len as u64)));
        }
        while let Some(&order) = waiting.front() {
            if model.submit(now, order).is_err() {
                break;
            }
            waiting.pop_front();
        }
    }
}

#[test]
fn e_44_frames_leave_when_the_models_transmitter_says_for_each_adapter() {
    for name in ADAPTERS {
        let card = card(name);
        let offers: Vec<(Time, usize)> = (0..60)
            .map(|n| (us(n * n % 17 + 40 * (n / 7)), 60 + (n as usize * 977) % 1455))
            .collect::<std::collections::BTreeMap<_, _>>()
            .into_iter()
            .collect();
        let mut bench = Bench::new(card.clone());
        for (number, &(at, len)) in offers.iter().enumerate() {
            bench.send(at, &frame(number as u64, len));
        }
        let (departures, interrupts) = bench.run();
        let at: Vec<Time> = departures.iter().map(|one| one.at).collect();
        assert_eq!(at, model(&card, &offers), "{name}");
        for (number, (departure, &(_, len))) in departures.iter().zip(&offers).enumerate() {
            assert_eq!(departure.frame, frame(number as u64, len), "{name}: {number}");
        }
        // The driver does not poll, so each interrupt is wanted; one for each frame at coalescing 1.
        if card.host.coalescing == 1 {
            let raised: Vec<Time> = interrupts.iter().map(|interrupt| interrupt.at).collect();
            assert_eq!(raised, at, "{name}: each when its frame has left");
        }
        let account = bench.device.account();
        assert_eq!(
            (account.frames, account.sent.count()),
            ([0, offers.len() as u64], offers.len() as u64)
        );
    }
}

#[test]
fn e_60_e_97_a_reception_says_the_descriptions_commands_and_takes_their_time() {
    for name in ADAPTERS {
        let card = card(name);
        let mut bench = Bench::new(card.clone());
        bench.device.arrive(us(5), frame(1, 1514), &bench.memory);
        let (_, interrupts) = bench.run();
        let bus = lastmeter_host::adapter::pcie::reception_time(&card, Bytes(1514));
        // PCIe's transactions of a reception stand in place of those of a transmission.
        let moved = bus.unwrap_or_else(|| card.transfer_time(Bytes(1514)));
        let due = us(5) + card.host.per_message + moved;
        assert_eq!(interrupts, [Interrupt { at: due, ring: RECEIVE }], "{name}");
        assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(frame(1, 1514))), "{name}");
        let said: Vec<(Side, &str)> = bench
            .device
            .receiver()
            .commands()
            .iter()
            .map(|&(_, _, side, word)| (side, word))
            .collect();
        let described = card.reception(1);
        // The interrupt of a ring is not the receiver's, but comes after the write-back.
        let wanted: Vec<_> = described.into_iter().filter(|said| said.1 != "interrupt").collect();
        assert_eq!(said, wanted, "{name}");
    }
}

#[test]
fn interrupts_are_moderated_as_described() {
    for (packets, time, wanted) in
        [(1, 0, vec![10, 20, 30, 40]), (64, 50, vec![60]), (3, 50, vec![30, 90])]
    {
        let mut card = Description::plain("no time at all");
        card.host.coalescing = packets;
        card.host.coalescing_time = Duration::from_us(time);
        let mut bench = Bench::new(card);
        for number in 1..=4 {
            bench.device.arrive(us(10 * number), frame(number, 100), &bench.memory);
        }
        let (_, interrupts) = bench.run();
        let at: Vec<Time> = interrupts.iter().map(|interrupt| interrupt.at).collect();
        assert_eq!(
            at,
            wanted.into_iter().map(us).collect::<Vec<_>>(),
            "{packets} packets, {time} us"
        );
        for number in 1..=4 {
            assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(frame(number, 100))));
        }
    }
}

#[test]
fn a_driver_that_polls_is_not_interrupted() {
    let mut bench = Bench::new(Description::plain("no time at all"));
    bench.nic.rings[RECEIVE].interrupts(&bench.memory, false).unwrap();
    bench.device.arrive(us(1), frame(1, 100), &bench.memory);
    assert_eq!(bench.run().1, []);
    assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(frame(1, 100))));
    assert_eq!((bench.device.account().raised, bench.device.account().unwanted), ([0, 0], [1, 0]));
}

#[test]
fn frames_without_buffers_wait_on_the_adapter_and_are_dropped_when_it_is_full() {
    let mut card = Description::plain("no time at all");
    card.buffers.memory = Bytes(300 * 100);
    let mut bench = Bench::new(card);
    for number in 0..600 {
        bench.device.arrive(us(number), frame(number, 100), &bench.memory);
    }
    bench.run();
    let account = bench.device.account();
    // 256 buffers of the guest, room for 300 frames on the adapter.
    assert_eq!((account.frames[RECEIVE], account.lost[RECEIVE].get("no buffer")), (256, Some(&44)));
    assert_eq!((account.entered[RECEIVE], bench.device.held(RECEIVE)), (600, 300));
    for number in 0..556 {
        assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(frame(number, 100))));
        bench.device.doorbell(us(700 + number), RECEIVE, &bench.memory);
        bench.run();
    }
    assert_eq!(bench.nic.receive(&bench.memory), Ok(None));
}

#[test]
fn a_frame_is_spread_over_merged_buffers_only_if_the_driver_wants_that() {
    for merges in [true, false] {
        let mut bench = Bench::new(Description::plain("no time at all"));
        bench.device.set_header_format(if merges {
            HeaderFormat::Merged
        } else {
            HeaderFormat::Long
        });
        bench.device.arrive(us(1), frame(1, 5000), &bench.memory);
        bench.device.arrive(us(2), frame(2, 100), &bench.memory);
        bench.run();
        let mut all = Vec::new();
        while let Some(piece) = bench.nic.receive(&bench.memory).unwrap() {
            all.push(piece.len());
        }
        // The driver takes the first 12 bytes of each buffer for a header, which only the first has.
        let wanted = if merges { vec![2036, 2036, 904, 100] } else { vec![0, 100] };
        assert_eq!(all, wanted);
        let lost = bench.device.account().lost[RECEIVE].get("longer than the guest's buffers");
        assert_eq!(lost.is_none(), merges);
    }
}

#[test]
fn e_51_e_54_headers_alone_are_copied_and_the_whole_message_takes_its_time() {
    // A network of 100 Gbit/s behind a bus of 40: what is not copied is a delay, not work.
    for name in ADAPTERS {
        let mut card = card(name);
        card.network.rate = Some(lastmeter_base::Rate::from_gbit(100));
        let offers: Vec<(Time, usize)> =
            (0..20).map(|n| (us(70 * n), 100 + 70 * n as usize)).collect();
        let [whole, headers] = [u64::MAX, 64].map(|most| {
            let mut bench = Bench::new(card.clone());
            bench.device.copy_headers(Bytes(most));
            for &(at, len) in &offers {
                bench.send(at, &frame(9, len));
            }
            bench.device.arrive(us(2000), frame(7, 1514), &bench.memory);
            bench.device.arrive(us(2000), frame(8, 60), &bench.memory);
            let (departures, interrupts) = bench.run();
            (bench, departures, interrupts)
        });
        let at = |departures: &[Departure]| departures.iter().map(|one| one.at).collect::<Vec<_>>();
        assert_eq!(at(&headers.1), model(&card, &offers), "{name}");
        assert_eq!((at(&headers.1), &headers.2), (at(&whole.1), &whole.2), "{name}");
        for (sent, &(_, len)) in headers.1.iter().zip(&offers) {
            let wanted = [&frame(9, len)[..64], &vec![0; len - 64]].concat();
            assert_eq!(sent.frame, wanted, "{name}");
        }
        let mut bench = headers.0;
        // The buffer had zeros, and has them still.
        let wanted = [&frame(7, 1514)[..64], &[0; 1450]].concat();
        assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(wanted)), "{name}");
        assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(frame(8, 60))), "{name}");
        let (few, all) = (bench.device.account(), whole.0.device.account());
        assert_eq!((few.bytes, all.copied), (all.bytes, all.bytes), "{name}");
        assert_eq!(few.copied, [64 + 60, 64 * 20], "{name}");
    }
}

#[test]
fn what_is_rung_for_is_sent_and_nothing_else() {
    let mut bench = Bench::new(Description::plain("no time at all"));
    assert!(bench.nic.send(&bench.memory, &frame(1, 100)).unwrap());
    assert_eq!(bench.run().0, [], "no doorbell");
    bench.send(us(9), &frame(2, 100));
    let (departures, _) = bench.run();
    assert_eq!(departures.iter().map(|one| one.at).collect::<Vec<_>>(), [us(9), us(9)]);
}

#[test]
fn a_broken_ring_stops_and_the_other_goes_on() {
    let mut bench = Bench::new(Description::plain("no time at all"));
    let place = bench.nic.rings[TRANSMIT].place;
    bench.nic.rings[TRANSMIT].describe(&bench.memory, 7, (u64::MAX, 100), (0, 0)).unwrap();
    bench.nic.rings[TRANSMIT].offer(&bench.memory, 7).unwrap();
    bench.device.doorbell(us(1), TRANSMIT, &bench.memory);
    assert!(matches!(bench.device.broken(TRANSMIT), Some(Broken::Outside(_))));
    bench.device.doorbell(us(2), TRANSMIT, &bench.memory);
    bench.device.arrive(us(3), frame(3, 100), &bench.memory);
    bench.run();
    assert_eq!(bench.nic.receive(&bench.memory), Ok(Some(frame(3, 100))));
    // A new driver may begin anew.
    let ring = Ring::new(place, 1, &bench.memory).unwrap();
    bench.device.start(us(4), TRANSMIT, ring, &bench.memory);
    assert_eq!((bench.device.broken(TRANSMIT), bench.device.stop(TRANSMIT)), (None, Some(1)));
}

proptest! {
    #[test]
    fn every_frame_ends_once_however_late_the_machine_is_told(
        offers in prop::collection::vec((0u64..300, 1usize..1600, 0u64..2000), 1..80),
        depth in 1u64..20,
        memory in 2000u64..20_000,
        stages in 1u64..4,
    ) {
        let mut card = card("cim");
        (card.queueing.depth, card.queueing.stages) = (depth, stages);
        card.buffers.memory = Bytes(memory);
        let mut bench = Bench::new(card.clone());
        let (mut now, mut rung) = (Time::START, Vec::new());
        for &(gap, len, late) in &offers {
            now += Duration::from_us(gap);
            bench.send(now, &frame(0, len));
            if len as u64 >= FRAME_MIN {
                rung.push((now, len));
            }
            now += Duration::from_us(late);
            bench.device.advance(now, &bench.memory);
        }
        let (departures, _) = bench.run();
        let at: Vec<Time> = departures.iter().map(|one| one.at).collect();
        prop_assert_eq!(at, model(&card, &rung));
        let account = bench.device.account();
        let lost: u64 = account.lost[TRANSMIT].values().sum();
        prop_assert_eq!(account.frames[TRANSMIT] + lost, offers.len() as u64);
        prop_assert_eq!(account.entered[TRANSMIT], offers.len() as u64);
        prop_assert_eq!(bench.device.held(TRANSMIT), 0);
    }
}
