//! Afterburner's and Jetstream's cards (J-04, J-45 to J-55, J-62, J-69 to J-75, J-78).

use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::machines::card_memory::{BLOCK, CardMemory, Options};
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_wire::internet::checksum::Sum;

fn failed(message: String) -> Error {
    Error::Computation { name: "afterburner-card", message }
}

pub(super) fn card(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut computed = rates(setting)?;
    computed.extend(memory(setting)?);
    computed.extend(bytes(setting)?);
    computed.extend(parts(setting)?);
    Ok(computed)
}

/// Data on the card: written like memory, summed once, and where they are (J-50, J-70, J-73).
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

/// What Jetstream's card is made of, and what stands around it (J-45, J-46, J-53, J-55, J-75, J-78).
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
    let ring =
        Rate::from_mbit(constants.get::<u64>("ring_bits")? * constants.get::<u64>("ring_mhz")?);
    let delivered: Rate = constants.get("delivered")?;
    let each = number("card_dollars")? * 1e6 / delivered.as_bits() as f64;
    let ethernet = number("ethernet_dollars")? / 10.0;
    Ok(vec![
        row("J-45/ics-prototype", Value::Number(number("ics")?, "ICs")),
        row("J-45/ics-asic", Value::Number(number("ics_asic")?, "ICs")),
        row("J-45/delivered", each < ethernet),
        row("J-46/rotation-idle", way(interrupt)),
        row("J-46/firmware-would", way(interrupt) > kept),
        row("J-53/rotation-idle", way(latency)),
        row("J-53/node-latency", latency),
        row("J-53/transmit-receive", latency * 2),
        row("J-55", ring),
        row("J-75", Value::Number(segment.0.div_ceil(unit.0) as f64, "moves")),
        row("J-78/eisa-peak", Value::Number(eisa, "Mbit/s")),
        row("J-78/eisa-could", eisa < bits("port_bits", "port_mhz")?),
    ])
}

fn options(setting: &Setting<'_>) -> Result<Options, Error> {
    let constants = setting.constants;
    let (memory, block): (Bytes, Bytes) = (constants.get("memory")?, constants.get("block")?);
    Ok(Options { memory, block, transmit: memory.0 / block.0 / 2 })
}

/// Words at clocks, and frames in a switch.
fn rates(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let rate = |bits: &str, mhz: &str| -> Result<Rate, Error> {
        let (bits, mhz): (u64, u64) = (constants.get(bits)?, constants.get(mhz)?);
        Ok(Rate::from_mbit(bits * mhz))
    };
    let crc = rate("crc_bits", "crc_mhz")?;
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
    let circuits = 1_u64 << constants.get::<u64>("circuit_bits")?;
    Ok(vec![
        row("J-04/interval-cells", interval),
        row("J-04/cells-come", interval < latency),
        row("J-47", crc),
        row("J-49", Value::Number(circuits as f64, "circuits")),
        row("J-52", elastic),
        row("J-54", ring),
        row("J-62/large-frame", over_bus),
        row("J-62/large-frame-own", over_link),
        row(
            "J-62/channel-bus",
            Value::Number(over_link.as_secs_f64() / over_bus.as_secs_f64(), "times"),
        ),
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
    // A sender that is never acknowledged fills its half, and no more.
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
        row("J-72/sizes-blocks", Value::Number(allowed as f64, "sizes")),
        row("J-72/largest-block", Value::Number(most, "times")),
        row("J-74", Value::Number(blocks as f64, "blocks")),
    ])
}
