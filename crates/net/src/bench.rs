//! What `lastmeter bench queue` runs: what a packet costs a discipline.
//!
//! Each active flow keeps two packets waiting. A step takes the next packet out and puts it back in,
//! with another length, so that the number of active flows never changes.

use crate::queue::{
    Blue, BlueOptions, Codel, CodelOptions, Discard, DropTail, Drr, DrrOptions, FqCodel,
    FqCodelOptions, Priority, Qsdrr, Queue, Red, RedOptions, Room, Scfq, ShareOptions, Tdrr,
    VirtualClock, Wf2q, Wfq,
};
use lastmeter_base::bench::{Case, Work};
use lastmeter_base::{Bytes, Duration, FlowId, Packet, Rate, Stream, Time};

/// Packets that each flow keeps waiting.
const DEPTH: u32 = 2;
/// More than wait, so that nothing is dropped.
const PACKETS_MAX: u64 = 1 << 20;
/// Steps of a round.
const STEPS: u64 = 200_000;
const STEPS_QUICK: u64 = 2_000;

const UNIT: &str = "packets";
const WHAT_MANY: &str = "enqueues and dequeues a packet while 10,000 flows are active";
const WHAT_FEW: &str = "enqueues and dequeues a packet while 100 flows are active";

/// The benchmarks of this crate.
pub const CASES: &[Case] = &[
    Case {
        name: "queue/drop-tail@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| drop_tail(10_000, quick),
    },
    Case {
        name: "queue/priority@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| priority(10_000, quick),
    },
    Case {
        name: "queue/drr@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| drr(10_000, quick),
    },
    Case {
        name: "queue/tdrr@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| tdrr(10_000, quick),
    },
    Case {
        name: "queue/qsdrr@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| qsdrr(10_000, quick),
    },
    Case {
        name: "queue/red@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| red(10_000, quick),
    },
    Case {
        name: "queue/blue@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| blue(10_000, quick),
    },
    Case {
        name: "queue/codel@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| codel(10_000, quick),
    },
    Case {
        name: "queue/fq-codel@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| fq_codel(10_000, quick),
    },
    Case {
        name: "queue/scfq@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| scfq(10_000, quick),
    },
    Case {
        name: "queue/virtual-clock@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| virtual_clock(10_000, quick),
    },
    Case {
        name: "queue/wfq@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| wfq(10_000, quick),
    },
    Case {
        name: "queue/wf2q@10000",
        unit: UNIT,
        what: WHAT_MANY,
        prepare: |quick| wf2q(10_000, quick),
    },
    Case { name: "queue/drr@100", unit: UNIT, what: WHAT_FEW, prepare: |quick| drr(100, quick) },
    Case {
        name: "queue/qsdrr@100",
        unit: UNIT,
        what: WHAT_FEW,
        prepare: |quick| qsdrr(100, quick),
    },
    Case {
        name: "queue/fq-codel@100",
        unit: UNIT,
        what: WHAT_FEW,
        prepare: |quick| fq_codel(100, quick),
    },
    Case { name: "queue/wfq@100", unit: UNIT, what: WHAT_FEW, prepare: |quick| wfq(100, quick) },
    Case { name: "queue/wf2q@100", unit: UNIT, what: WHAT_FEW, prepare: |quick| wf2q(100, quick) },
];

type Rounds = Box<dyn FnMut() -> Work>;

fn drop_tail(flows: u32, quick: bool) -> Rounds {
    rounds(DropTail::new(u64::MAX, Bytes(u64::MAX)), flows, quick)
}
fn priority(flows: u32, quick: bool) -> Rounds {
    rounds(Priority::new(8, Room::UNLIMITED, false), flows, quick)
}
fn drr(flows: u32, quick: bool) -> Rounds {
    rounds(Drr::new(DrrOptions::each(PACKETS_MAX)), flows, quick)
}
fn tdrr(flows: u32, quick: bool) -> Rounds {
    rounds(Tdrr::new(DrrOptions::each(PACKETS_MAX), Duration::from_ms(100)), flows, quick)
}
fn qsdrr(flows: u32, quick: bool) -> Rounds {
    rounds(Qsdrr::new(DrrOptions::each(PACKETS_MAX), Discard::Stored, None), flows, quick)
}
fn red(flows: u32, quick: bool) -> Rounds {
    rounds(
        Red::new(RedOptions { min: 1e9, max: 2e9, ..RedOptions::usual() }, Stream::new(1, "red")),
        flows,
        quick,
    )
}
fn blue(flows: u32, quick: bool) -> Rounds {
    rounds(Blue::new(BlueOptions::usual(Room::UNLIMITED), Stream::new(1, "blue")), flows, quick)
}
fn codel(flows: u32, quick: bool) -> Rounds {
    rounds(Codel::new(CodelOptions::RFC_8289, Room::UNLIMITED), flows, quick)
}
fn fq_codel(flows: u32, quick: bool) -> Rounds {
    rounds(
        FqCodel::new(FqCodelOptions {
            queues: None,
            room: Room::packets(PACKETS_MAX),
            ..FqCodelOptions::rfc_8290()
        }),
        flows,
        quick,
    )
}
fn scfq(flows: u32, quick: bool) -> Rounds {
    rounds(Scfq::new(ShareOptions::weighted(&[])), flows, quick)
}
fn virtual_clock(flows: u32, quick: bool) -> Rounds {
    rounds(
        VirtualClock::new(
            ShareOptions::weighted(&[]),
            Rate::from_mbit(1),
            Duration::from_secs(1),
            false,
        ),
        flows,
        quick,
    )
}
fn wfq(flows: u32, quick: bool) -> Rounds {
    rounds(Wfq::new(ShareOptions::weighted(&[]), Rate::from_gbit(10)), flows, quick)
}
fn wf2q(flows: u32, quick: bool) -> Rounds {
    rounds(Wf2q::new(ShareOptions::weighted(&[])), flows, quick)
}

fn rounds(mut queue: impl Queue + 'static, flows: u32, quick: bool) -> Rounds {
    let mut random = Stream::new(1, "bench");
    let mut now = Time::START;
    let mut hash = 0;
    // Lengths are drawn beforehand; drawing is not what is measured.
    let lens: Vec<Bytes> = (0..1 << 12).map(|_| Bytes(64 + random.below(1437))).collect();
    for _ in 0..DEPTH {
        for flow in 0..flows {
            let mut packet = Packet::new(lens[flow as usize % lens.len()]);
            packet.flow = FlowId(flow);
            packet.class = flow as u8;
            queue.enqueue(now, packet).expect("there is room for every packet");
        }
    }
    let steps = if quick { STEPS_QUICK } else { STEPS };
    let (mut round, mut first) = (0usize, None);
    Box::new(move || {
        for _ in 0..steps {
            // A packet each nanosecond: a queue under delay control stays below its target.
            now += Duration::from_ns(1);
            let mut packet = queue.dequeue(now).expect("every flow keeps packets waiting");
            round += 1;
            hash = (hash ^ u64::from(packet.flow.0)).wrapping_mul(0x0100_0000_01b3);
            packet.len = lens[round % lens.len()];
            queue.enqueue(now, packet).expect("there is room for every packet");
        }
        // Later rounds go on where the first ended, so its hash stands for all.
        Work { units: steps, hash: *first.get_or_insert(hash) }
    })
}
