//! The benchmarks of `lastmeter bench queue`: the cost per packet of each discipline.
//!
//! Each active flow keeps two packets waiting. A step takes the next packet out and puts it back in,
//! with another length, so that the number of active flows never changes. Disciplines by class have at
//! most 256 of them, whatever the number of flows.

use crate::queue::{
    Blue, BlueOptions, By, Cake, CakeOptions, Cbs, CellDiscard, CellPolicy, Codel, CodelOptions,
    Control, Discard, DropTail, Drr, DrrOptions, DualPi2, DualPi2Options, Edd, FifoPlus,
    FlatOptions, FlatWfq, FqCodel, FqCodelOptions, FqPie, FqPieOptions, Frames, HPfq, HopLaxity,
    Hrr, Late, Pie, PieOptions, Pifo, Priority, Qsdrr, Queue, Rank, Rcsp, RcspOptions, Red,
    RedOptions, Room, Scfq, ShareOptions, StopAndGo, Tdrr, TimeAware, TokenBucket, Tree,
    VirtualClock, Wf2q, Wfq,
};
use lastmeter_base::bench::{Case, Work};
use lastmeter_base::{Bytes, Duration, FlowId, Packet, Rate, Stream, Time};

/// Packets that each flow keeps waiting.
const DEPTH: u32 = 2;
/// More than ever wait, so that nothing is dropped.
const PACKETS_MAX: u64 = 1 << 20;
/// Steps of a round.
const STEPS: u64 = 200_000;
const STEPS_QUICK: u64 = 2_000;

/// A discipline that is measured with 10, 1000 and 10,000 active flows.
macro_rules! cases {
    ($($name:literal: $make:expr,)+) => {
        &[$(
            cases!($name, "10", 10, $make),
            cases!($name, "1000", 1_000, $make),
            cases!($name, "10000", 10_000, $make),
        )+]
    };
    ($name:literal, $count:literal, $flows:literal, $make:expr) => {
        Case {
            name: concat!("queue/", $name, "@", $count),
            unit: "packets",
            what: concat!("enqueues and dequeues a packet while ", $count, " flows are active"),
            prepare: |quick| rounds($make($flows), $flows, quick),
        }
    };
}

/// A hierarchy of 64 classes at a depth of 1, 2, 3 and 6: what a packet costs grows with the depth, not with the
/// number of classes.
pub const DEPTHS: &[Case] = &[
    depth("queue/h-pfq-depth@1", |quick| rounds(deep(1), DEEP, quick)),
    depth("queue/h-pfq-depth@2", |quick| rounds(deep(2), DEEP, quick)),
    depth("queue/h-pfq-depth@3", |quick| rounds(deep(3), DEEP, quick)),
    depth("queue/h-pfq-depth@6", |quick| rounds(deep(6), DEEP, quick)),
];

/// The classes of [`DEPTHS`].
const DEEP: u32 = 64;

const fn depth(name: &'static str, prepare: fn(bool) -> Box<dyn FnMut() -> Work>) -> Case {
    let what = "enqueues and dequeues a packet of 64 classes below this many levels";
    Case { name, unit: "packets", what, prepare }
}

/// [`DEEP`] classes below this many levels, with as many branches at each.
fn deep(levels: u32) -> HPfq {
    let branches = 1u64 << (DEEP.ilog2() / levels);
    let (mut parents, mut level) = (Vec::new(), vec![0u64]);
    for _ in 0..levels {
        let from = parents.len() as u64 + 1;
        parents.extend(level.iter().flat_map(|&parent| (0..branches).map(move |_| parent)));
        level = (from..=parents.len() as u64).collect();
    }
    let tree = Tree::new(&parents, &[]).expect("each level comes before the next");
    HPfq::new(tree, Room::UNLIMITED, u64::MAX)
}

/// The benchmarks of this crate: every discipline.
pub const CASES: &[Case] = cases! {
    "drop-tail": |_| drop_tail(),
    "token-bucket": |_| TokenBucket::new(drop_tail(), LINE, Bytes::from_mib(1)),
    "priority": |_| Priority::new(8, Room::UNLIMITED, false),
    "drr": |_| Drr::new(DrrOptions::each(PACKETS_MAX)),
    "tdrr": |_| Tdrr::new(DrrOptions::each(PACKETS_MAX), Duration::from_ms(100)),
    "qsdrr": |_| Qsdrr::new(DrrOptions::each(PACKETS_MAX), Discard::Stored, None),
    "red": |_| Red::new(RedOptions { min: 1e9, max: 2e9, ..RedOptions::usual() }, stream()),
    "blue": |_| Blue::new(BlueOptions::usual(Room::UNLIMITED), stream()),
    "codel": |_| Codel::new(CodelOptions::RFC_8289, Room::UNLIMITED),
    "fq-codel": |_| FqCodel::new(FqCodelOptions {
        queues: None,
        room: Room::packets(PACKETS_MAX),
        ..FqCodelOptions::rfc_8290()
    }),
    "pie": |_| Pie::new(PieOptions::RFC_8033, stream()),
    "fq-pie": |_| {
        let pie = PieOptions { room: Room::packets(PACKETS_MAX), ..PieOptions::RFC_8033 };
        FqPie::new(FqPieOptions { queues: None, pie, ..FqPieOptions::usual() }, stream())
    },
    "cake": |_| {
        let room = Room::packets(PACKETS_MAX);
        Cake::new(CakeOptions { queues: None, room, ..CakeOptions::usual() }, stream())
    },
    "dual-pi2": |_| DualPi2::new(DualPi2Options::usual(Room::UNLIMITED)),
    "scfq": |_| Scfq::new(ShareOptions::weighted(&[])),
    "virtual-clock": |_| {
        let second = Duration::from_secs(1);
        VirtualClock::new(ShareOptions::weighted(&[]), Rate::from_mbit(1), second, false)
    },
    "wfq": |_| Wfq::new(ShareOptions::weighted(&[]), Rate::from_gbit(10)),
    "wf2q": |_| Wf2q::new(ShareOptions::weighted(&[])),
    "h-pfq": |flows| HPfq::new(tree(flows), Room::UNLIMITED, u64::MAX),
    "flat-wfq": |flows| FlatWfq::new(FlatOptions {
        tree: tree(flows),
        period: Duration::from_us(1),
        every: None,
        pipelined: true,
        room: Room::UNLIMITED,
        each: u64::MAX,
    }),
    "pifo": |_| Pifo::new(Rank::Fair, (4, 8), Room::UNLIMITED),
    "edd": |_| Edd::new(Duration::from_secs(1), Duration::ZERO, Room::UNLIMITED),
    "fifo-plus": |_| FifoPlus::new(0.001, Room::UNLIMITED),
    "hop-laxity": |_| HopLaxity::new(Late::Send, Room::UNLIMITED),
    "stop-and-go": |_| StopAndGo::new(Duration::from_ns(10), Room::UNLIMITED),
    "hrr": |flows| Hrr::new(frames(flows), Bytes(1500), LINE, Room::UNLIMITED, u64::MAX),
    "rcsp": |_| Rcsp::new(RcspOptions {
        by: By::Flow,
        queues: None,
        control: Control::Rate { gap: Duration::from_ns(1), burst: None },
        bound: Duration::from_ms(1),
        levels: 8,
        room: Room::UNLIMITED,
    }),
    "cbs": |_| {
        let slope = Some(Rate::from_gbit(3_000));
        Cbs::new([slope; 2], Some((LINE, Bytes::ZERO)), Room::UNLIMITED)
    },
    "time-aware": |_| {
        let gate = (0, vec![(Duration::ZERO, Duration::from_ns(250))]);
        let port = Some((LINE, Bytes::ZERO));
        TimeAware::new(Duration::from_us(1), Duration::ZERO, &[gate], port, Room::UNLIMITED)
    },
    "cell-discard": |_| CellDiscard::new(PACKETS_MAX, CellPolicy::Early, PACKETS_MAX),
};

/// 1500 bytes in a nanosecond, which is a step.
const LINE: Rate = Rate::from_gbit(12_000);

fn stream() -> Stream {
    Stream::new(1, "queue")
}
fn drop_tail() -> DropTail {
    DropTail::new(u64::MAX, Bytes(u64::MAX))
}
/// Up to 256 classes, 16 in each of up to 16 groups.
fn tree(flows: u32) -> Tree {
    let classes = u64::from(flows).min(256);
    let groups = classes.div_ceil(16);
    let parents = (0..groups).map(|_| 0).chain((0..classes).map(|class| 1 + class / 16));
    Tree::new(&parents.collect::<Vec<_>>(), &[]).expect("groups stand before their classes")
}
/// A slot for each class, half of them at a second level.
fn frames(flows: u32) -> Frames {
    let classes = flows.min(255) as usize;
    let levels: Vec<u64> = (0..classes).map(|class| u64::from(class >= classes / 2)).collect();
    Frames::new(&vec![1; classes], &levels, &[2]).expect("level 0 has classes and so has level 1")
}

fn rounds(mut queue: impl Queue + 'static, flows: u32, quick: bool) -> Box<dyn FnMut() -> Work> {
    let mut random = Stream::new(1, "bench");
    let mut now = Time::START;
    let mut hash = 0;
    // Lengths are drawn beforehand, outside the measurement.
    let lens: Vec<Bytes> = (0..1 << 12).map(|_| Bytes(64 + random.below(1437))).collect();
    for _ in 0..DEPTH {
        for flow in 0..flows {
            let mut packet = Packet::new(lens[flow as usize % lens.len()]);
            packet.flow = FlowId(flow);
            packet.class = flow as u8;
            packet.deadline = now + Duration::from_ns(packet.len.0);
            packet.ends = true;
            queue.enqueue(now, packet).expect("there is room for every packet");
        }
    }
    let steps = if quick { STEPS_QUICK } else { STEPS };
    let (mut round, mut first) = (0usize, None);
    Box::new(move || {
        for _ in 0..steps {
            // A packet each nanosecond: a queue under delay control stays below its target.
            now += Duration::from_ns(1);
            let mut packet = loop {
                match queue.dequeue(now) {
                    Some(packet) => break packet,
                    // Only disciplines that hold packets back get here.
                    None => now = queue.ready_at(now).expect("every flow keeps packets waiting"),
                }
            };
            round += 1;
            hash = (hash ^ u64::from(packet.flow.0)).wrapping_mul(0x0100_0000_01b3);
            packet.len = lens[round % lens.len()];
            packet.deadline = now + Duration::from_ns(packet.len.0);
            queue.enqueue(now, packet).expect("there is room for every packet");
        }
        // Later rounds continue where the first ended, so its hash represents all.
        Work { units: steps, hash: *first.get_or_insert(hash) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue;

    /// Benchmarks run as tests on small input, twice with one result; none is missing.
    #[test]
    fn every_discipline_has_a_benchmark_with_a_repeatable_result() {
        let all = CASES.iter().filter(|case| !case.name.ends_with("@10000"));
        for case in all.chain(DEPTHS) {
            let run = || (case.prepare)(true)().hash;
            assert_eq!(run(), run(), "{}", case.name);
        }
        for kind in queue::KINDS {
            let name = format!("queue/{}@1000", kind.page.name);
            assert!(CASES.iter().any(|case| case.name == name), "{name} is missing");
        }
    }
}
