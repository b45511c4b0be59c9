//! Afterburner's and Jetstream's cards, and the stacks that use them (J-04, J-47 to J-54, J-62, J-66 to
//! J-76, J-88).

use super::atomic::Profiles;
use super::{Computed, Setting, Value};
use crate::ledger::Ledger;
use crate::library::{Builtin, Library};
use crate::repro::Error;
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use lastmeter_host::adapter::card_memory::{BLOCK, CardMemory, Options};

const HOST: &str = "hp9000-730";
const CARD: &str = "afterburner";
/// What a host of a later time has to reach.
const GIGABIT: f64 = 1e9;

fn failed(message: String) -> Error {
    Error::Computation { name: "afterburner-card", message }
}

pub(super) fn card(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut computed = rates(setting)?;
    computed.extend(memory(setting)?);
    computed.extend(stacks(setting)?);
    Ok(computed)
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
        Computed::new("J-04", "interval of cells at STS-12c", interval),
        Computed::new(
            "J-04",
            "cells come faster than the host can be interrupted",
            Value::Holds(interval < latency),
        ),
        Computed::new("J-47", "CRC generator", crc),
        Computed::new("J-49", "virtual circuits", Value::Number(circuits as f64, "circuits")),
        Computed::new("J-52", "delay of the elastic FIFO", elastic),
        Computed::new("J-54", "datapath of the ring", ring),
        Computed::new("J-62", "a large frame on the switch's bus", over_bus),
        Computed::new("J-62", "a large frame on its own channel", over_link),
        Computed::new(
            "J-62",
            "channel beside bus",
            Value::Number(over_link.as_secs_f64() / over_bus.as_secs_f64(), "times"),
        ),
        Computed::new("J-71", "a serial port", port),
    ])
}

/// Blocks of the card (J-69, J-72 to J-75).
fn memory(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (memory, block): (Bytes, Bytes) = (constants.get("memory")?, constants.get("block")?);
    let segment: Bytes = constants.get("segment")?;
    let buffer: Bytes = constants.get("socket_buffer")?;
    let options = Options { memory, block, transmit: memory.0 / block.0 / 2 };
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
        Computed::new(
            "J-69",
            "the socket's buffer fits on the card",
            Value::Holds(on_the_card >= buffer),
        ),
        Computed::new(
            "J-69",
            "data stay on the card until they are acknowledged",
            Value::Holds(waits && whole),
        ),
        Computed::new("J-72", "sizes of blocks", Value::Number(allowed as f64, "sizes")),
        Computed::new("J-72", "largest block beside the smallest", Value::Number(most, "times")),
        Computed::new("J-74", "blocks of a packet", Value::Number(blocks as f64, "blocks")),
    ])
}

/// A stack whose kernel copies and sums as well.
fn conventional(setting: &Setting<'_>) -> Result<String, Error> {
    let copy: PerByte = setting.constants.get("kernel_copy")?;
    let sum: PerByte = setting.constants.get("kernel_sum")?;
    let mut text = Builtin.profile("hosts", HOST).map_err(failed)?;
    for (way, suffix) in [("send", "out"), ("receive", "in")] {
        for (name, cost, copies, touches) in
            [("kernel copy", copy, 1, 2), ("checksum pass", sum, 0, 1)]
        {
            text += &format!(
                "\n[[{way}]]\nname = \"{name} {suffix}\"\non = \"cpu\"\nper-byte = \"{} ps/B\"\n\
                 copies = {copies}\ntouches = {touches}\n",
                cost.as_fs() / 1000
            );
        }
    }
    Ok(text)
}

fn stacks(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let segment: Bytes = setting.constants.get("segment")?;
    let mut profiles = Profiles::default();
    let single = profiles.ledger(HOST, CARD, segment)?;
    let name = "hp9000-730-conventional";
    profiles.changed.insert(("hosts".to_owned(), name.to_owned()), conventional(setting)?);
    let usual = profiles.ledger(name, CARD, segment)?;
    let rate = |ledger: &Ledger| ledger.paths[0].totals.goodput;
    let sum = |ledger: &Ledger, host: &str, of: fn(&crate::ledger::Stage) -> u32| {
        let stages = ledger.paths[0].stages.iter();
        let stages = stages.filter(|stage| stage.name.starts_with(host));
        stages.map(|stage| u64::from(of(stage))).sum::<u64>()
    };
    let copies = |ledger: &Ledger, host| sum(ledger, host, |stage| stage.copies);
    let passes = Value::Number((copies(&usual, "sender ") + 1) as f64, "passes");
    let unsummed = sum(&single, "receiver ", |stage| stage.touches) == 0;
    let of_sparc = profiles.ledger("sparc20-71", "myrinet", Bytes::from_kib(8))?;
    Ok(vec![
        Computed::new("J-66", "passes over data in a conventional stack, each way", passes),
        Computed::new(
            "J-67",
            "a single copy is faster",
            Value::Holds(rate(&single) > 1.2 * rate(&usual)),
        ),
        Computed::new(
            "J-76",
            "the receiver's processor does not touch data",
            Value::Holds(unsummed && sum(&single, "sender ", |stage| stage.touches) == 1),
        ),
        Computed::new(
            "J-88",
            "no workstation of its time carries 1 Gbit/s",
            Value::Holds(rate(&single).max(rate(&of_sparc)) < GIGABIT),
        ),
    ])
}
