//! E-65, E-75: the CIM as a machine with three stages, compared with its equations.

use super::cim::table_5_1;
use crate::machine::{Full, Machine, Next, Output, ResourceOptions, Stage};
use crate::resource::{Discipline, Options, Priority};
use lastmeter_base::{Bytes, Cost, Duration, Packet, PerByte, StageId, Time};
use lastmeter_engine::{PortId, ResourceId};
use lastmeter_net::queue::DropTail;

/// The transmit path, each phase on its own resource: two memory banks, if phases overlap.
fn transmit_path(len: Bytes) -> Machine {
    let options = Options {
        units: 1,
        discipline: Discipline::Priority,
        context_switch: Duration::ZERO,
        interrupt: Duration::ZERO,
    };
    let resource = |id| ResourceOptions { id: ResourceId(id), options, per_byte: PerByte::ZERO };
    let table = table_5_1();
    let phases = [table.message_overhead, table.dma_time(len), table.transmit_time(len)];
    let stage = |(index, per_packet): (usize, Duration)| Stage {
        id: StageId(index as u32),
        queue: Box::new(DropTail::new(u64::MAX, Bytes(u64::MAX))),
        full: Full::Drop,
        resource: index,
        priority: Priority::Thread(0),
        preemptive: false,
        cost: Cost { per_packet, per_byte: PerByte::ZERO },
        per_pdu: Duration::ZERO,
        random: None,
        batch: false,
        buses: Vec::new(),
        places: 1,
        next: if index < 2 { Next::Stage(index + 1) } else { Next::Exit(PortId(0)) },
    };
    let resources: Vec<_> = (0..3).map(resource).collect();
    Machine::new(&resources, phases.into_iter().enumerate().map(stage).collect(), vec![0])
}

/// Keeps `depth` messages in flight until `messages` are done; returns when each was done.
fn pipeline(len: Bytes, depth: usize, messages: usize) -> Vec<Time> {
    let mut machine = transmit_path(len);
    (0..depth).for_each(|_| machine.arrive(Time::START, PortId(0), Packet::new(len)));
    let mut done = Vec::new();
    while done.len() < messages {
        let now = machine.ready_at().unwrap();
        machine.advance(now);
        let sent: Vec<Output> = machine.outputs().collect();
        for output in sent {
            assert!(matches!(output, Output::Send(..)), "nothing is dropped here");
            done.push(now);
            machine.arrive(now, PortId(0), Packet::new(len));
        }
    }
    done
}

const SIZES: [u64; 7] = [44, 1024, 2048, 4096, 8192, 16_384, 65_536];

#[test]
fn e_65_one_message_at_a_time_takes_exactly_the_time_of_eq_5_2() {
    for len in SIZES.map(Bytes) {
        let each = table_5_1().time_alone(len);
        let by_equation: Vec<Time> = (1..=20).map(|n| Time::START + each * n).collect();
        assert_eq!(pipeline(len, 1, 20), by_equation, "{len}");
    }
}

#[test]
fn e_75_two_messages_follow_eq_5_6_only_if_two_keep_a_phase_busy() {
    // Inconsistency 15: at 4 KB Eq 5.6 says 1748.48 us, but two messages in flight take 2268.99 us each.
    assert_eq!(table_5_1().time_two_banks(Bytes(4096)), Duration::from_ns(1_748_480));
    let steady = |len, depth| {
        let done = pipeline(len, depth, 402);
        (done[401] - done[201]) / 200
    };
    assert_eq!(steady(Bytes(4096), 2), Duration::from_ns(2_268_990));
    for len in SIZES.map(Bytes) {
        let by_equation = table_5_1().time_two_banks(len).max(table_5_1().time_least_of_two(len));
        assert_eq!(steady(len, 2), by_equation, "{len} at depth 2");
        // With one message per phase, the slowest phase is never idle.
        let slowest = table_5_1().time_two_banks(len).max(table_5_1().message_overhead);
        assert_eq!(steady(len, 3), slowest, "{len} at depth 3");
    }
}
