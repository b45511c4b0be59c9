//! AAL5 and AAL3/4 reassembly under loss, duplication, reordering and corruption.

use lastmeter_base::{Bytes, Duration, Stream, Time};
use lastmeter_wire::aal::aal5::{self, Segmenter};
use lastmeter_wire::aal::reassembly::{
    CircuitOptions, Counts, Event, Lost, Options, Reason, Reassembler,
};
use lastmeter_wire::aal::{aal34, vidboard};
use lastmeter_wire::atm::{Cell, Circuit, Header, Interface};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn circuit(vci: u16) -> Circuit {
    Circuit { vpi: 0, vci }
}
fn cells_of(vci: u16, payload: &[u8]) -> Vec<Cell> {
    let mut cells = Vec::new();
    let segmenter = Segmenter::new(&Header::data(circuit(vci)), Interface::Uni).unwrap();
    segmenter.segment(payload, 0, &mut cells).unwrap();
    cells
}
fn reassembler(circuits: u16, options: Options) -> Reassembler {
    let mut reassembler = Reassembler::new(options);
    (0..circuits).for_each(|at| reassembler.open(circuit(32 + at), CircuitOptions::AAL5).unwrap());
    reassembler
}
fn default() -> Options {
    Options::default_at(Interface::Uni)
}

/// Damages a stream of cells: each cell may be lost, duplicated, moved or have a bit flipped.
fn damage(random: &mut Stream, rates: [f64; 4], cells: Vec<Cell>) -> Vec<Cell> {
    let [lose, repeat, reorder, corrupt] = rates;
    let mut out: Vec<Cell> = Vec::new();
    for mut cell in cells {
        if random.chance(lose) {
            continue;
        }
        if random.chance(corrupt) {
            let bit = random.below(53 * 8) as usize;
            cell.0[bit / 8] ^= 1 << (bit % 8);
        }
        if random.chance(repeat) {
            out.push(cell);
        }
        out.push(cell);
        if random.chance(reorder) && out.len() > 1 {
            let back = 1 + random.below(out.len().min(8) as u64 - 1) as usize;
            let len = out.len();
            out.swap(len - 1, len - 1 - back);
        }
    }
    out
}

#[test]
fn never_delivers_a_wrong_pdu_and_counts_every_cell_over_10_000_runs() {
    let mut total = Counts::default();
    for run in 0..10_000u64 {
        let mut random = Stream::new(run, "damage");
        // All sixteen combinations of the four kinds of damage occur.
        let rates = [0, 1, 2, 3].map(|kind| if run >> kind & 1 == 1 { 0.03 } else { 0.0 });
        let mut sent = BTreeSet::new();
        let mut queues: Vec<Vec<Cell>> = Vec::new();
        for vci in 0..4u16 {
            let mut cells = Vec::new();
            for number in 0..4u8 {
                let len = 1 + random.below(400) as usize;
                let fill = random.bits() as u8;
                let payload: Vec<u8> = (0..len).map(|at| fill.wrapping_add(at as u8)).collect();
                let payload = [&[vci as u8, number][..], &payload].concat();
                cells.extend(cells_of(32 + vci, &payload));
                sent.insert((32 + vci, payload));
            }
            cells.reverse();
            queues.push(cells);
        }
        let mut line = Vec::new();
        while queues.iter().any(|queue| !queue.is_empty()) {
            let at = random.below(4) as usize;
            line.extend(queues[at].pop());
        }
        let count = line.len() as u64;
        let line = damage(&mut random, rates, line);
        let clean = rates == [0.0; 4];

        let mut burst = reassembler(4, default());
        let mut in_burst = Vec::new();
        burst.receive_burst(Time::START, &line, |pdu| in_burst.push(pdu.payload.to_vec()));
        in_burst.reverse();
        let mut reassembler = reassembler(4, default());
        for cell in &line {
            if let Event::Pdu(pdu) = reassembler.receive(Time::START, cell) {
                let found = sent.contains(&(pdu.circuit.vci, pdu.payload.to_vec()));
                assert!(found, "run {run} delivered a packet that was not sent");
                assert_eq!(in_burst.pop().as_deref(), Some(pdu.payload));
            }
            assert!(reassembler.counts().balances());
        }
        assert!(in_burst.is_empty());
        assert_eq!(burst.counts(), reassembler.counts());
        reassembler.expire(Time::START + Duration::from_secs(1));
        let counts = *reassembler.counts();
        assert_eq!(counts.held, 0);
        assert!(counts.balances());
        assert_eq!(counts.received, line.len() as u64);
        if clean {
            assert_eq!((counts.pdus, counts.delivered), (16, count));
        }
        for (sum, lost) in total.lost.iter_mut().zip(counts.lost) {
            *sum = Lost { pdus: sum.pdus + lost.pdus, cells: sum.cells + lost.cells };
        }
    }
    for reason in [Reason::Check, Reason::Length, Reason::Timeout, Reason::Header] {
        assert!(total.lost(reason).cells > 1000, "{reason:?} was too rare");
    }
}

#[test]
fn detects_every_lost_duplicated_or_merged_cell() {
    let first: Vec<u8> = (0..200).collect();
    let second: Vec<u8> = (0..150).rev().collect();
    let cells = [cells_of(32, &first), cells_of(32, &second)].concat();
    let end = cells_of(32, &first).len();
    for at in 0..cells.len() {
        let without: Vec<Cell> = [&cells[..at], &cells[at + 1..]].concat();
        let twice: Vec<Cell> = [&cells[..=at], &cells[at..]].concat();
        for line in [without, twice] {
            let mut reassembler = reassembler(1, default());
            let mut intact = 0;
            for cell in &line {
                if let Event::Pdu(pdu) = reassembler.receive(Time::START, cell) {
                    assert!(pdu.payload == first || pdu.payload == second);
                    intact += 1;
                }
            }
            // A lost last cell merges two PDUs and loses both.
            let merged = line.len() < cells.len() && at == end - 1;
            let open = line.len() < cells.len() && at == cells.len() - 1;
            // A duplicated last cell is a PDU of its own, and an invalid one.
            let ends = at == end - 1 || at == cells.len() - 1;
            let alone = line.len() > cells.len() && ends;
            let wanted = 1 + u64::from(alone) - u64::from(merged);
            assert_eq!(intact, wanted, "cell {at}");
            let counts = reassembler.counts();
            let lost: u64 = counts.lost.iter().map(|lost| lost.pdus).sum();
            assert_eq!(lost, u64::from(!open));
            assert!(counts.balances());
        }
    }
}

#[test]
fn times_out_a_pdu_whose_end_does_not_arrive() {
    let mut reassembler = reassembler(3, default());
    let second = Time::START + Duration::from_secs(1);
    for (at, vci) in [(0, 33), (10, 32), (20, 34)] {
        let now = Time::START + Duration::from_ms(at);
        let _ = reassembler.receive(now, &cells_of(vci, &[0; 100])[0]);
    }
    assert_eq!(reassembler.deadline(), Some(second));
    assert_eq!(reassembler.expire(second), 1);
    assert_eq!(reassembler.deadline(), Some(second + Duration::from_ms(10)));
    // Completing the middle one removes it from the list.
    cells_of(32, &[0; 100])[1..].iter().for_each(|cell| {
        reassembler.receive(second, cell);
    });
    assert_eq!(reassembler.deadline(), Some(second + Duration::from_ms(20)));
    assert_eq!(reassembler.expire(Time::MAX), 1);
    assert_eq!(reassembler.deadline(), None);
    assert_eq!(reassembler.counts().lost(Reason::Timeout), Lost { pdus: 2, cells: 2 });
    assert_eq!(reassembler.counts().pdus, 1);
}

#[test]
fn discards_a_pdu_that_is_too_long_up_to_its_end() {
    let mut reassembler = Reassembler::new(default());
    let options = CircuitOptions { payload_max: 100, ..CircuitOptions::AAL5 };
    reassembler.open(circuit(32), options).unwrap();
    for len in [500, 101, 100, 137] {
        for cell in cells_of(32, &vec![1; len]) {
            if let Event::Pdu(pdu) = reassembler.receive(Time::START, &cell) {
                assert_eq!(pdu.payload.len(), 100);
            }
        }
    }
    let counts = reassembler.counts();
    assert_eq!(counts.pdus, 1);
    assert_eq!(counts.lost(Reason::TooLong), Lost { pdus: 2, cells: 11 + 4 });
    assert_eq!(counts.lost(Reason::Length), Lost { pdus: 1, cells: 3 }, "101 bytes fit the cells");
    assert!(counts.balances());
}

#[test]
fn counts_cells_that_belong_to_no_pdu() {
    let mut reassembler = reassembler(1, default());
    let unknown = cells_of(99, &[1])[0];
    assert_eq!(reassembler.receive(Time::START, &unknown), Event::Lost(Reason::UnknownCircuit));
    let mut oam = Cell::with_header([0, 0, 2, 8], &[0; 48]);
    assert_eq!(reassembler.receive(Time::START, &oam), Event::Lost(Reason::NotUserData));
    oam.0[4] ^= 1;
    assert_eq!(reassembler.receive(Time::START, &oam), Event::Lost(Reason::Header));
    let _ = reassembler.receive(Time::START, &cells_of(32, &[1; 100])[0]);
    assert!(reassembler.close(circuit(32)));
    assert!(!reassembler.close(circuit(32)));
    assert_eq!(reassembler.counts().lost(Reason::Closed), Lost { pdus: 1, cells: 1 });
    let late = cells_of(32, &[1; 100])[0];
    assert_eq!(reassembler.receive(Time::START, &late), Event::Lost(Reason::UnknownCircuit));
    assert!(reassembler.counts().balances());
}

#[test]
fn refuses_to_open_a_circuit_twice_or_too_many() {
    let mut reassembler = Reassembler::new(Options { circuits_max: 2, ..default() });
    reassembler.open(circuit(1), CircuitOptions::AAL5).unwrap();
    assert!(reassembler.open(circuit(1), CircuitOptions::AAL5).is_err());
    reassembler.open(circuit(2), CircuitOptions::AAL5).unwrap();
    assert!(reassembler.open(circuit(3), CircuitOptions::AAL5).is_err());
    assert!(reassembler.close(circuit(1)));
    reassembler.open(circuit(3), CircuitOptions::AAL5).unwrap();
    assert_eq!(reassembler.circuits(), 2);
}

#[test]
fn delivers_damaged_pdus_on_request() {
    let mut reassembler = Reassembler::new(default());
    let options = CircuitOptions { deliver_faulty: true, ..CircuitOptions::AAL5 };
    reassembler.open(circuit(32), options).unwrap();
    let mut cell = cells_of(32, &[7; 40])[0];
    cell.0[10] ^= 1;
    let Event::Pdu(pdu) = reassembler.receive(Time::START, &cell) else { panic!("faulty") };
    assert_eq!((pdu.fault, pdu.payload.len()), (Some(aal5::Fault::Check), 40));
    assert_eq!(reassembler.counts().lost(Reason::Check).pdus, 1);
    assert_eq!(reassembler.counts().pdus, 0);
}

#[test]
fn holds_65_536_open_circuits_within_its_bound() {
    let stated = Reassembler::new(default()).memory_bound();
    assert!(stated < Bytes::from_mib(96), "64 MiB of buffers and 65,536 circuits: {stated}");
    let memory = Bytes::from_mib(8);
    let mut reassembler =
        Reassembler::new(Options { memory, interface: Interface::Nni, ..default() });
    let segment = |vci| {
        let mut cells = Vec::new();
        let header = Header::data(circuit(vci));
        let segmenter = Segmenter::new(&header, Interface::Nni).unwrap();
        segmenter.segment(&[3; 9180], 0, &mut cells).unwrap();
        cells
    };
    for vci in 0..=u16::MAX {
        reassembler.open(circuit(vci), CircuitOptions::AAL5).unwrap();
    }
    let bound = reassembler.memory_bound();
    assert!(bound < Bytes::from_mib(48), "{bound}");
    for vci in 0..=u16::MAX {
        for cell in segment(vci).iter().take(1 + usize::from(vci % 200)) {
            let _ = reassembler.receive(Time::START, cell);
        }
        assert!(reassembler.memory() <= bound);
    }
    let counts = reassembler.counts();
    assert!(counts.lost(Reason::Memory).pdus > 0, "8 MiB is not enough for all of them");
    assert!(counts.balances());
    // Memory is released: a PDU passes once others have timed out.
    reassembler.expire(Time::MAX);
    let vacant = (0..=u16::MAX).rev().find(|vci| vci % 200 == 0).unwrap();
    let delivered = segment(vacant)
        .iter()
        .skip(1)
        .chain(&segment(vacant))
        .filter(|cell| matches!(reassembler.receive(Time::MAX, cell), Event::Pdu(_)))
        .count();
    assert_eq!(delivered, 1);
    assert!(reassembler.memory() <= bound);
}

#[test]
fn reassembles_the_vidboards_layer_by_its_checksum() {
    let mut reassembler = Reassembler::new(default());
    reassembler.open(circuit(32), CircuitOptions::VIDBOARD).unwrap();
    let segmenter = Segmenter::new(&Header::data(circuit(32)), Interface::Uni).unwrap();
    let header =
        vidboard::FrameHeader { frame: 1, line: 16, lines: 1, width: 640, depth: 8, timestamp: 33 };
    let payload = [&header.emit()[..], &[5; 640]].concat();
    let mut cells = Vec::new();
    segmenter.segment_pdu(&vidboard::emit(&payload, 0).unwrap(), &mut cells);
    for damaged in [false, true] {
        if damaged {
            cells[3].0[20] ^= 4;
        }
        let last = cells.iter().map(|cell| match reassembler.receive(Time::START, cell) {
            Event::Pdu(pdu) => vidboard::FrameHeader::parse(pdu.payload).ok().map(|(head, _)| head),
            _ => None,
        });
        assert_eq!(last.last().unwrap(), (!damaged).then_some(header));
    }
    assert_eq!(reassembler.counts().lost(Reason::Check).pdus, 1);
}

proptest! {
    #[test]
    fn aal34_never_delivers_a_wrong_packet(
        seed: u64, lens in proptest::collection::vec(0usize..300, 1..12), damaged: bool,
    ) {
        let mut random = Stream::new(seed, "aal34");
        let mut sent = BTreeSet::new();
        let mut sequences = BTreeMap::<u16, u8>::new();
        let mut queues = vec![Vec::new(); 3];
        for (tag, len) in lens.iter().enumerate() {
            let mid = random.below(3) as u16;
            let payload: Vec<u8> = (0..*len).map(|at| (tag * 31 + at) as u8).collect();
            let sequence = sequences.entry(mid).or_default();
            let cells = aal34::segment(&payload, mid, tag as u8, *sequence).unwrap();
            *sequence = sequence.wrapping_add(cells.len() as u8) & 0xf;
            queues[usize::from(mid)].extend(cells);
            sent.insert(payload);
        }
        let mut reassembler = aal34::Reassembler::new(aal34::Options::DEFAULT);
        let mut delivered = 0;
        let mut queues: Vec<_> = queues.into_iter().map(Vec::into_iter).collect();
        while queues.iter().any(|queue| queue.len() > 0) {
            let Some(mut cell) = queues[random.below(3) as usize].next() else { continue };
            if damaged && random.chance(0.1) {
                continue;
            }
            if damaged && random.chance(0.1) {
                cell[random.below(48) as usize] ^= 1 << random.below(8);
            }
            match reassembler.receive(Time::START, circuit(1), &cell) {
                aal34::Event::Packet(packet) => {
                    prop_assert!(sent.contains(&packet));
                    delivered += 1;
                }
                aal34::Event::Held | aal34::Event::Lost(_) => {}
            }
            let lost: u64 = reassembler.lost.values().sum();
            prop_assert_eq!(
                reassembler.received, reassembler.delivered + reassembler.held() + lost
            );
            prop_assert!(reassembler.memory() <= reassembler.memory_bound());
        }
        reassembler.expire(Time::MAX);
        prop_assert_eq!(reassembler.held(), 0);
        if !damaged {
            prop_assert_eq!(delivered, lens.len());
        }
    }
}
