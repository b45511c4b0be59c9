//! Each option of Table 4.1 (E-41 to E-43, E-46).

use super::*;
use crate::adapter::description::Queueing;
use lastmeter_base::{PerByte, Rate};
use proptest::prelude::*;

fn us(us: u64) -> Time {
    Time::START + Duration::from_us(us)
}

/// 1 us per byte to the adapter, 1 us per byte to the network; depth 10.
fn card() -> Description {
    let mut card = Description::plain("a byte per microsecond");
    card.host.qos = true;
    card.transfer.per_byte = PerByte::from_fs(1_000_000_000);
    card.network.rate = Some(Rate::from_bits(8_000_000));
    card.queueing.depth = 10;
    card
}

fn order(id: u64, len: u64, class: u8, due_us: u64) -> Order {
    Order { class, due: us(due_us), ..Order::new(id, Bytes(len)) }
}

/// What was sent or dropped, and when, in microseconds.
fn ends(card: Description, orders: &[(u64, Order)]) -> Vec<(u64, What, u64)> {
    let mut adapter = Transmitter::new(card);
    let mut ends = Vec::new();
    let mut drain = |adapter: &mut Transmitter| {
        let ended = |event: &Event| !matches!(event.what, What::WriteAck | What::AddressAck);
        let row = |event: Event| (event.order.id, event.what, event.at.as_ps() / 1_000_000);
        ends.extend(adapter.events().filter(ended).map(row));
    };
    for &(at, order) in orders {
        adapter.advance(us(at));
        adapter.submit(us(at), order).unwrap();
        drain(&mut adapter);
    }
    while let Some(now) = adapter.ready_at() {
        adapter.advance(now);
        drain(&mut adapter);
    }
    assert_eq!(adapter.outstanding(), 0);
    ends
}

fn sent(card: Description, orders: &[(u64, Order)]) -> Vec<(u64, u64)> {
    ends(card, orders).into_iter().map(|(id, _, at)| (id, at)).collect()
}

#[test]
fn e_41_queues_decide_which_order_is_sent_next() {
    // The first is served at once; the others wait for the transfer.
    let orders = [
        (0, order(0, 100, 0, 9999)),
        (1, order(1, 100, 0, 9999)),
        (2, order(2, 100, 1, 900)),
        (3, order(3, 100, 1, 800)),
    ];
    let with = |queues, discipline| {
        let mut card = card();
        card.queueing = Queueing { queues, discipline, ..card.queueing };
        sent(card, &orders)
    };
    use description::Discipline::{Edd, Fifo, Priority};
    assert_eq!(with(1, Fifo), [(0, 200), (1, 300), (2, 400), (3, 500)]);
    assert_eq!(with(2, Priority), [(0, 200), (2, 300), (3, 400), (1, 500)]);
    assert_eq!(with(2, Edd), [(0, 200), (3, 300), (2, 400), (1, 500)]);
    assert_eq!(with(1, Edd), [(0, 200), (3, 300), (2, 400), (1, 500)]);
    let mut unknowing = card();
    unknowing.host.qos = false;
    unknowing.queueing.queues = 2;
    unknowing.queueing.discipline = Edd;
    assert_eq!(sent(unknowing, &orders), with(1, Fifo), "without QoS, commands carry no class");
}

#[test]
fn e_41_no_more_than_depth_are_in_flight() {
    let mut card = card();
    card.queueing.depth = 2;
    let mut adapter = Transmitter::new(card);
    adapter.submit(us(0), order(0, 100, 0, 0)).unwrap();
    adapter.submit(us(0), order(1, 100, 0, 0)).unwrap();
    assert_eq!(adapter.submit(us(0), order(2, 100, 0, 0)), Err(Refusal::Depth));
    adapter.advance(us(200));
    assert_eq!(adapter.outstanding(), 1);
    assert_eq!(adapter.submit(us(200), order(2, 100, 0, 0)), Ok(()));
}

#[test]
fn e_42_without_a_buffer_a_packet_is_dropped_or_waits_or_displaces_another() {
    let orders = [
        (0, order(0, 100, 0, 9999)),
        (0, order(1, 100, 0, 9999)),
        (0, order(2, 100, 0, 9999)),
        (1, order(3, 100, 1, 500)),
    ];
    let with = |overload| {
        let mut card = card();
        card.buffers.memory = Bytes(300);
        card.buffers.overload = overload;
        card.queueing.queues = 2;
        card.queueing.discipline = description::Discipline::Priority;
        card
    };
    use What::{Dropped, TransmitAck};
    let dropped = ends(with(Overload::Drop), &orders);
    assert_eq!(
        dropped,
        [(3, Dropped, 1), (0, TransmitAck, 200), (1, TransmitAck, 300), (2, TransmitAck, 400)]
    );
    let displaced = ends(with(Overload::Priority), &orders);
    assert_eq!(
        displaced,
        [(2, Dropped, 1), (0, TransmitAck, 200), (3, TransmitAck, 300), (1, TransmitAck, 400)]
    );
    let mut adapter = Transmitter::new(with(Overload::Block));
    orders[..3].iter().for_each(|&(at, order)| adapter.submit(us(at), order).unwrap());
    assert_eq!(adapter.submit(us(1), orders[3].1), Err(Refusal::Buffers));
    adapter.advance(us(200));
    assert_eq!(adapter.submit(us(200), orders[3].1), Ok(()));
    assert_eq!(adapter.submit(us(200), order(9, 301, 0, 0)), Err(Refusal::TooLong));
}

#[test]
fn e_42_a_connection_with_its_own_buffers_is_not_affected_by_another() {
    let mut card = card();
    card.buffers.memory = Bytes(200);
    card.buffers.overload = Overload::Drop;
    card.buffers.threshold = 60;
    let of = |id, connection| (0, Order { connection, ..order(id, 100, 0, 9999) });
    let orders = [of(0, 1), of(1, 1), of(2, 1), of(3, 2)];
    let dropped = |card| -> Vec<u64> {
        let lost = ends(card, &orders).into_iter().filter(|end| end.1 == What::Dropped);
        lost.map(|end| end.0).collect()
    };
    assert_eq!(dropped(card.clone()), [2, 3]);
    card.buffers.place = BufferPlace::PerConnection;
    assert_eq!(dropped(card.clone()), [2]);
    let mut adapter = Transmitter::new(card);
    assert!(!adapter.is_overloaded());
    adapter.submit(us(0), orders[0].1).unwrap();
    assert!(adapter.is_overloaded(), "half is free; the threshold is 60 %");
}

#[test]
fn e_46_an_urgent_transfer_interrupts_another_if_the_adapter_can() {
    let orders = [(0, order(0, 100, 0, 9999)), (40, order(1, 20, 1, 90))];
    let mut card = card();
    card.queueing.queues = 2;
    card.queueing.discipline = description::Discipline::Priority;
    assert_eq!(sent(card.clone(), &orders), [(0, 200), (1, 220)]);
    card.transfer.urgent_first = true;
    // From 40 to 60 us; the other then resumes with its remaining 60 us.
    assert_eq!(sent(card, &orders), [(1, 80), (0, 220)]);
}

#[test]
fn e_40_a_processor_that_moves_data_takes_no_commands() {
    let orders = [(0, order(0, 100, 0, 0)), (10, order(1, 100, 0, 0))];
    let mut card = card();
    card.host.per_message = Duration::from_us(50);
    assert_eq!(sent(card.clone(), &orders), [(0, 250), (1, 350)]);
    card.transfer.mode = TransferMode::Pio;
    card.transfer.pio_per_byte = PerByte::from_fs(1_000_000_000);
    // The second command is taken before the first data, and then both are moved.
    assert_eq!(sent(card.clone(), &orders), [(0, 300), (1, 400)]);
    card.transfer.mode = TransferMode::Hybrid;
    card.transfer.pio_max = Bytes(99);
    assert_eq!(sent(card, &orders), [(0, 250), (1, 350)]);
}

#[test]
fn e_46_an_adapter_that_waits_for_the_network_does_nothing_else() {
    let orders = [(0, order(0, 100, 0, 0)), (0, order(1, 100, 0, 0))];
    let mut card = card();
    assert_eq!(sent(card.clone(), &orders), [(0, 200), (1, 300)]);
    card.network.synchronisation = Synchronisation::Poll;
    let polled = sent(card.clone(), &orders);
    card.network.synchronisation = Synchronisation::Interrupt;
    card.queueing.stages = 1;
    assert_eq!(sent(card, &orders), polled);
    assert_eq!(polled[1].1, 400);
}

/// Packets of `len` sent in `seconds` by an adapter with a permanent backlog.
fn saturated(card: &Description, len: u64, seconds: u64) -> (u64, Duration) {
    let mut adapter = Transmitter::new(card.clone());
    let end = Time::START + Duration::from_secs(seconds);
    let (mut id, mut now, mut sent) = (0, Time::START, 0);
    while now < end {
        while adapter.submit(now, Order::new(id, Bytes(len))).is_ok() {
            id += 1;
        }
        let Some(next) = adapter.ready_at() else { break };
        now = next;
        adapter.advance(now);
        sent += adapter.events().filter(|event| event.what == What::TransmitAck).count() as u64;
    }
    (sent, adapter.served(Phase::Network) + adapter.served(Phase::Setup))
}

#[test]
fn e_87_a_backlogged_adapter_gets_its_share_of_the_link() {
    for (rotation, holding, len) in [(10_000, 1000, 4096), (1000, 100, 9000), (100, 10, 12_000)] {
        let mut card = card();
        card.transfer.per_byte = PerByte::ZERO;
        card.network.rate = Some(Rate::from_gbit(1));
        card.queueing.depth = 64;
        card.network.model = NetworkModel::Intermittent {
            rotation: Duration::from_us(rotation),
            holding: Duration::from_us(holding),
        };
        let (_, busy) = saturated(&card, len, 1);
        let share = busy.as_secs_f64() * rotation as f64 / holding as f64;
        assert!((0.98..=1.001).contains(&share), "{rotation} {holding} {len}: {share}");
    }
}

#[test]
fn e_55_faster_processors_leave_eq_4_2_of_the_link() {
    let mut card = card();
    card.transfer.per_byte = PerByte::ZERO;
    card.network.processing = Duration::from_us(48);
    card.network.rate = Some(Rate::from_gbit(1));
    for (factor, eq_4_2) in [(1, 32.0 / 80.0), (12, 384.0 / 432.0)] {
        // 4000 bytes take 32 us.
        let (sent, _) = saturated(&card.with_faster_processors(factor), 4000, 1);
        let utilisation = sent as f64 * 32e-6;
        assert!((utilisation / eq_4_2 - 1.0).abs() < 1e-4, "{factor}: {utilisation}");
    }
}

fn any_card() -> impl Strategy<Value = Description> {
    let numbers = (1u64..=3, 1u64..=3, 1u64..12, 1u64..=2, 100u64..2000);
    (numbers, 0usize..3, 0usize..3, any::<[bool; 6]>()).prop_map(
        |((stages, queues, depth, banks, memory), discipline, overload, flags)| {
            use description::Discipline::{Edd, Fifo, Priority};
            let mut card = card();
            let discipline = [Fifo, Priority, Edd][discipline];
            card.queueing = Queueing { stages, queues, discipline, at_network: Some(Edd), depth };
            card.buffers.overload = [Overload::Drop, Overload::Block, Overload::Priority][overload];
            card.buffers.memory = Bytes(memory);
            card.buffers.banks = banks;
            card.transfer.preemptible = flags[0];
            card.transfer.urgent_first = flags[1];
            card.host.queues = queues;
            card.host.qos = flags[2];
            card.host.per_message = Duration::from_us(u64::from(flags[3]) * 7);
            card.network.processing = Duration::from_us(u64::from(flags[4]) * 5);
            if flags[5] {
                let (rotation, holding) = (Duration::from_us(300), Duration::from_us(50));
                card.network.model = NetworkModel::Intermittent { rotation, holding };
            }
            card
        },
    )
}

proptest! {
    /// Whatever the adapter, each order ends exactly once, no earlier than its unloaded time, and nothing is left.
    #[test]
    fn e_46_every_order_ends_once_and_never_early(
        card in any_card(),
        orders in prop::collection::vec((0u64..200, 1u64..400, 0u8..4, 0u64..5000), 1..40),
    ) {
        let mut adapter = Transmitter::new(card.clone());
        let (mut now, mut given, mut ended) = (Time::START, BTreeMap::new(), BTreeMap::new());
        let mut take = |adapter: &mut Transmitter, given: &BTreeMap<u64, (Time, Order)>| {
            for event in adapter.events() {
                let (from, order) = given[&event.order.id];
                prop_assert_eq!(order, event.order);
                if matches!(event.what, What::TransmitAck | What::Dropped) {
                    prop_assert!(ended.insert(order.id, event.at).is_none());
                }
                let (free, rest) = card.network_time(order.len);
                let least = card.host.per_message + card.transfer_time(order.len) + free + rest;
                prop_assert!(event.what != What::TransmitAck || event.at >= from + least);
            }
            Ok(())
        };
        for (id, &(gap, len, class, due)) in orders.iter().enumerate() {
            now += Duration::from_us(gap);
            adapter.advance(now);
            take(&mut adapter, &given)?;
            let order = Order { connection: 0, ..order(id as u64, len, class, due) };
            given.insert(order.id, (now, order));
            match adapter.submit(now, order) {
                Ok(()) => {}
                Err(Refusal::TooLong) => {
                    prop_assert!(order.len > card.buffers.memory);
                    given.remove(&order.id);
                }
                Err(_) => {
                    given.remove(&order.id);
                    prop_assert!(adapter.outstanding() > 0);
                }
            }
            take(&mut adapter, &given)?;
        }
        while let Some(next) = adapter.ready_at() {
            prop_assert!(next >= now);
            now = next;
            adapter.advance(now);
            take(&mut adapter, &given)?;
        }
        prop_assert_eq!(adapter.outstanding(), 0);
        prop_assert_eq!(ended.len(), given.len());
    }
}

#[test]
fn e_128_a_shared_cable_uses_truncated_exponential_backoff() {
    let mut card = Description::plain("a cable");
    let slot = Duration::from_ns(51_200);
    card.network.model = NetworkModel::Statistical { slot, collisions: 25 };
    card.network.rate = Some(Rate::from_mbit(10));
    let len = Bytes(1250); // 1 ms.
    let orders = 20_000;
    let run = crate::adapter::pipeline::run(&card, len, (1, orders), Variation::None, 7);
    // The k-th collision, of probability 4^-k, takes 1 + (2^min(k, 10) - 1) / 2 slots.
    let mean: f64 = (1..=15)
        .map(|k| 0.25f64.powi(k) * (1.0 + (f64::from(1u32 << k.min(10)) - 1.0) / 2.0))
        .sum();
    // For this sample size, the standard deviation is 2.2 %.
    let wait = run.mean.as_secs_f64() - 1e-3;
    assert!((wait / (mean * 51.2e-6) - 1.0).abs() < 0.07, "{wait} {mean}");
    card.network.model = NetworkModel::Statistical { slot, collisions: 0 };
    let alone = crate::adapter::pipeline::run(&card, len, (1, 10), Variation::None, 7);
    assert_eq!(alone.mean, Duration::from_ms(1));
    // If all attempts collide, all messages are given up, and none waits indefinitely.
    card.network.model = NetworkModel::Statistical { slot, collisions: 100 };
    card.queueing.depth = 4;
    assert_eq!(
        ends(card, &[(0, order(0, 100, 0, 9999)), (5, order(1, 100, 0, 9999))])
            .iter()
            .map(|end| end.1)
            .collect::<Vec<_>>(),
        [What::GivenUp, What::GivenUp]
    );
}
