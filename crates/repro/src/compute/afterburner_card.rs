//! Afterburner's and Jetstream's cards (J-04, J-45 to J-55, J-62, J-69 to J-75, J-78).

use super::{Computed, Setting, Value, row, together};
use crate::Error;
use crate::machines::card_memory::{BLOCK, CardMemory, Options};
use crate::machines::circuits::Circuits;
use crate::machines::crc_generator::{Direction, Generator};
use lastmeter_base::{Bytes, Duration, Rate, Stream};
use lastmeter_wire::aal::aal5;
use lastmeter_wire::atm::{Circuit, Header, Interface};
use lastmeter_wire::crc::crc32;
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::jetstream::{Frame, RID_MAX, VCI_BITS, emit_aal5, vci_owner};
use std::collections::{BTreeMap, BTreeSet};

/// Ticks of the CRC generator, and frames in each direction.
const TICKS: u64 = 100_000;
const FRAMES: u64 = 20;
/// Circuits that stations of a ring open, and frames that pass them.
const OPENED: u64 = 500;
const PASSING: u64 = 2000;

fn failed(message: String) -> Error {
    Error::Computation { name: "afterburner-card", message }
}

pub(super) fn card(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    together(setting, &[rates, memory, bytes, parts, generator, circuits])
}

/// Data on the card: written like memory, summed once, and located (J-50, J-70, J-73).
fn bytes(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let options = options(setting)?;
    let segment: Bytes = setting.constants.get("segment")?;
    let mut card = CardMemory::new(options).map_err(failed)?;
    let data: Vec<u8> = (0..segment.0).map(|at| (at * 31 + at / 251) as u8).collect();
    let full = |_| failed("the card is full".to_owned());
    let first = card.copy_in(&data).ok_or(()).map_err(full)?;
    let second = card.copy_in(&data[1..]).ok_or(()).map_err(full)?;
    let reads_back = card.data(first) == Some(&data[..]);
    // The segment's checksum continues its header's, whose length is even.
    let split = card.sum(first, 0..data.len()).ok_or(()).map_err(full)?;
    let summed = split == (Sum::of(&data), 0);
    let in_order =
        card.ready() == Some(first) && card.transmit(first) && card.ready() == Some(second);
    let again = card.transmit(first) && card.transmit(second);
    card.acknowledged(second);
    card.acknowledged(first);
    let whole = card.transmit_free() == options.transmit && card.ready().is_none();
    let came = (0..100).filter(|_| card.arrive(segment)).count() as u64;
    let moved = (0..100).filter(|_| card.moved()).count() as u64;
    let counted = card.counters();
    let conserved = counted.arrived == came
        && counted.moved == moved
        && counted.refused == 100 - came
        && (counted.written, counted.transmitted, counted.acknowledged) == (2, 3, 2);
    Ok(vec![
        row("J-50", conserved && came == moved),
        row("J-70/card-memory", reads_back),
        row("J-70/segment-checksum", summed),
        row("J-73", in_order && again && whole),
    ])
}

/// One CRC generator for both directions; each line delivers a word every tick (J-47).
fn generator(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (bits, mhz): (u64, u64) = (constants.get("crc_bits")?, constants.get("crc_mhz")?);
    let rate = |words: u64| Value::Number((words * bits * mhz) as f64 / TICKS as f64, "Mbit/s");
    let run = |brings: &dyn Fn(u64) -> &'static [Direction]| {
        let (mut generator, mut done) = (Generator::default(), [0; 2]);
        for tick in 0..TICKS {
            for &direction in brings(tick) {
                // A word that finds no room waits on its line.
                generator.offer(direction, (tick as u32).to_be_bytes(), false);
            }
            if let Some((direction, _)) = generator.tick() {
                done[direction as usize] += 1;
            }
        }
        (generator.conflicts, done)
    };
    // On a ring, either a frame goes out or another comes in.
    let one: [&[Direction]; 2] = [&[Direction::Out], &[Direction::In]];
    let (conflicts, _) = run(&|tick| one[(tick / 1000 % 2) as usize]);
    let (_, full) = run(&|_| &[Direction::Out, Direction::In]);
    Ok(vec![
        row("J-47/ring", (conflicts as f64, "words")),
        row("J-47/duplex", rate(full[0].min(full[1]))),
        row("J-47/crcs", own_crcs(setting.seed)),
    ])
}

/// Whether interleaved frames of random words in both directions each get their own CRC.
fn own_crcs(seed: u64) -> bool {
    let mut random = Stream::new(seed, "crc generator");
    let (mut generator, mut right) = (Generator::default(), 0);
    for _ in 0..FRAMES {
        let mut frame = || -> Vec<[u8; 4]> {
            (0..1 + random.below(400))
                .map(|_| (random.below(1 << 32) as u32).to_be_bytes())
                .collect()
        };
        let frames = [frame(), frame()];
        let (mut at, mut wholes) = ([0, 0], 0);
        while wholes < 2 {
            for (way, direction) in [Direction::Out, Direction::In].into_iter().enumerate() {
                let last = at[way] + 1 == frames[way].len();
                let word = frames[way].get(at[way]);
                at[way] +=
                    usize::from(word.is_some_and(|&word| generator.offer(direction, word, last)));
            }
            if let Some((direction, Some(crc))) = generator.tick() {
                wholes += 1;
                right += u64::from(crc == crc32(&frames[direction as usize].concat()));
            }
        }
    }
    right == 2 * FRAMES
}

/// The circuit table, opened entry by entry and read back, and the circuits that a host assigns (J-49).
fn circuits(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut table = Circuits::default();
    let all = || (0..=u16::MAX).map(|vci| Circuit { vpi: 0, vci });
    let mut told_apart = 0;
    for circuit in all() {
        let closed = !table.reads(circuit);
        told_apart += usize::from(closed && table.open(circuit) && table.reads(circuit));
    }
    let own = all().filter(|one| table.reads(*one) && vci_owner(one.vci) == 1).count();
    let circuits = |key: &str, count: usize| row(key, Value::Number(count as f64, "circuits"));
    Ok(vec![
        circuits("J-49/table", told_apart),
        circuits("J-49/own", own),
        row("J-49/filter", filter(setting.seed)?),
    ])
}

/// Whether frames that go around a ring are read by the stations that opened their circuit, and by no other (J-49).
fn filter(seed: u64) -> Result<bool, Error> {
    let broken = |error: lastmeter_wire::Error| failed(error.to_string());
    let mut random = Stream::new(seed, "filters by circuit");
    let stations = RID_MAX + 1;
    let mut tables = vec![Circuits::default(); stations.into()];
    // Who opened which circuit, beside the tables.
    let mut opened: BTreeMap<u16, BTreeSet<u8>> = BTreeMap::new();
    for _ in 0..OPENED {
        let vci = random.below(1 << VCI_BITS) as u16;
        for _ in 0..=random.below(3) {
            let station = random.below(stations.into()) as u8;
            tables[usize::from(station)].open(Circuit { vpi: 0, vci });
            opened.entry(vci).or_default().insert(station);
        }
    }
    let used: Vec<u16> = opened.keys().copied().collect();
    for _ in 0..PASSING {
        let vci = match random.chance(0.5) {
            true => used[random.below(used.len() as u64) as usize],
            false => random.below(1 << VCI_BITS) as u16,
        };
        let src = random.below(stations.into()) as u8;
        let pdu = aal5::emit(&vci.to_be_bytes(), 0).map_err(broken)?;
        let bytes = emit_aal5(src, &Header::data(Circuit { vpi: 0, vci }), &pdu).map_err(broken)?;
        let mut readers = BTreeSet::new();
        for station in (1..=stations).map(|hop| (src + hop) % stations) {
            let frame = Frame::parse(&bytes).map_err(broken)?;
            let circuit = Header::parse(frame.bisdn, Interface::Uni).circuit;
            let is_mine = tables[usize::from(station)].reads(circuit);
            let done = frame.header.disposition(Some(station), is_mine);
            if done.strip {
                break;
            }
            readers.extend(done.read.then_some(station));
        }
        let mut asked = opened.get(&vci).cloned().unwrap_or_default();
        asked.remove(&src);
        if readers != asked {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The components of Jetstream's card, and its surroundings (J-45, J-46, J-53, J-55, J-75, J-78).
fn parts(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (nodes, metres): (u64, u64) = (constants.get("nodes")?, constants.get("metres")?);
    let (latency, metre): (Duration, Duration) =
        (constants.get("node_latency")?, constants.get("metre_delay")?);
    let interrupt: Duration = constants.get("interrupt")?;
    let way = |node: Duration| node * nodes + metre * metres;
    let kept: Duration = constants.get("synchronous")?;
    let number = |name: &str| constants.get::<u64>(name).map(|value| value as f64);
    let (segment, unit): (Bytes, Bytes) = (constants.get("segment")?, constants.get("move")?);
    let bits =
        |width: &str, clock: &str| -> Result<f64, Error> { Ok(number(width)? * number(clock)?) };
    let eisa = bits("eisa_bits", "eisa_khz")? / 1e3;
    let delivered: Rate = constants.get("delivered")?;
    let each = number("card_dollars")? * 1e6 / delivered.as_bits() as f64;
    let ethernet = number("ethernet_dollars")? / 10.0;
    Ok(vec![
        row("J-45/ics-prototype", (number("ics")?, "ICs")),
        row("J-45/ics-asic", (number("ics_asic")?, "ICs")),
        row("J-45/delivered", each < ethernet),
        row("J-46/rotation-idle", way(interrupt)),
        row("J-46/firmware-would", way(interrupt) > kept),
        row("J-53/rotation-idle", way(latency)),
        row("J-53/node-latency", latency),
        row("J-53/transmit-receive", latency * 2),
        row("J-55", constants.get::<Rate>("physical")?),
        row("J-75", (segment.0.div_ceil(unit.0) as f64, "moves")),
        row("J-78/eisa-peak", (eisa, "Mbit/s")),
        row("J-78/eisa-could", eisa < bits("port_bits", "port_mhz")?),
    ])
}

fn options(setting: &Setting<'_>) -> Result<Options, Error> {
    let constants = setting.constants;
    let (memory, block): (Bytes, Bytes) = (constants.get("memory")?, constants.get("block")?);
    Ok(Options { memory, block, transmit: memory.0 / block.0 / 2 })
}

/// Word clocks, and frames in a switch.
fn rates(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let rate = |bits: &str, mhz: &str| -> Result<Rate, Error> {
        let (bits, mhz): (u64, u64) = (constants.get(bits)?, constants.get(mhz)?);
        Ok(Rate::from_mbit(bits * mhz))
    };
    let ring = rate("ring_bits", "ring_mhz")?;
    let port = rate("port_bits", "port_mhz")?;
    let (line, cell): (Rate, Bytes) = (constants.get("sonet")?, constants.get("cell")?);
    let interval = line.time_for(cell);
    let latency: Duration = constants.get("interrupt")?;
    let words: u64 = constants.get("fifo_words")?;
    let ring_bits: u64 = constants.get("ring_bits")?;
    let elastic = ring.time_for(Bytes(words * ring_bits / 8));
    let frame: Bytes = constants.get("large_frame")?;
    let (bus, space): (Rate, Rate) = (constants.get("switch_bus")?, constants.get("link")?);
    let (over_bus, over_link) = (bus.time_for(frame), space.time_for(frame));
    Ok(vec![
        row("J-04/interval-cells", interval),
        row("J-04/cells-come", interval < latency),
        row("J-52", elastic),
        row("J-54", ring),
        row("J-62/large-frame", over_bus),
        row("J-62/large-frame-own", over_link),
        row("J-62/channel-bus", (over_link.as_secs_f64() / over_bus.as_secs_f64(), "times")),
        row("J-71", port),
    ])
}

/// Blocks of the card (J-69, J-72 to J-75).
fn memory(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let segment: Bytes = constants.get("segment")?;
    let buffer: Bytes = constants.get("socket_buffer")?;
    let options = options(setting)?;
    let mut card = CardMemory::new(options).map_err(failed)?;
    let sizes = (0..32).map(|power| Bytes(1 << power));
    let allowed = sizes
        .filter(|&block| CardMemory::new(Options { block, transmit: 0, ..options }).is_ok())
        .count();
    let blocks = card.blocks(segment);
    // A sender that never gets an acknowledgement fills its half, and no more.
    let mut written = Vec::new();
    while let Some(packet) = card.write(segment) {
        card.transmit(packet);
        written.push(packet);
    }
    let on_the_card = Bytes(written.len() as u64 * segment.0);
    let waits = card.transmit_free() < blocks && card.ready().is_none();
    written.into_iter().for_each(|packet| card.acknowledged(packet));
    let whole = card.transmit_free() == options.transmit;
    let most = BLOCK.1.0 as f64 / BLOCK.0.0 as f64;
    Ok(vec![
        row("J-69/socket-buffer", on_the_card >= buffer),
        row("J-69/data-stay", waits && whole),
        row("J-72/sizes-blocks", (allowed as f64, "sizes")),
        row("J-72/largest-block", (most, "times")),
        row("J-74", (blocks as f64, "blocks")),
    ])
}
