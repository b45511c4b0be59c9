//! Memory bandwidth for a gigabit: a host limited by its memory, and how fast that must be.

use super::super::{Computed, Setting, Value, row};
use super::{goodput, limit, receives};
use crate::Error;
use lastmeter_base::{Bytes, Rate};
use lastmeter_ledger::Ledger;

const PACKET: Bytes = Bytes::from_kib(4);
/// The share of a target that must arrive for it to count as reached: packets at the edges of the run are missing.
const REACHED: f64 = 0.998;
/// Resolution of the search, in bits per second.
const STEP: u64 = 10_000_000;
/// Hosts without and with a copy to the application, and a file server.
const TWO: &str = "memory-bound";
const FOUR: &str = "memory-bound-copies";
const SERVER: &str = "memory-bound-server";

fn run(setting: &Setting<'_>, run: &str, host: &str, memory: Rate) -> Result<Ledger, Error> {
    let memory = ("memory", memory.as_bits().into());
    receives(setting, run, (host, "null-device"), PACKET, &[memory])
}

/// The slowest memory with which `target` arrives.
fn least(setting: &Setting<'_>, target: Rate, host: &str) -> Result<Rate, Error> {
    let (mut low, mut high) = (target.as_bits() / STEP, 5 * target.as_bits() / STEP);
    while high - low > 1 {
        let middle = (low + high) / 2;
        let ledger = run(setting, "receives", host, Rate::from_bits(middle * STEP))?;
        match goodput(&ledger) >= REACHED * target.as_bits() as f64 {
            true => high = middle,
            false => low = middle,
        }
    }
    Ok(Rate::from_bits(high * STEP))
}

pub(in super::super) fn multiple(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let target: Rate = setting.constants.get("target")?;
    let plenty = Rate::from_bits(3 * target.as_bits());
    let judged = |host: &str| run(setting, "judged", host, plenty);
    let (two, four, server) = (judged(TWO)?, judged(FOUR)?, judged(SERVER)?);
    let processor = |ledger: &Ledger| {
        let cpu = ledger.resources.iter().find(|resource| resource.name == "receiver.cpu");
        cpu.map_or(0.0, |cpu| cpu.utilisation())
    };
    let multiple = |ledger: &Ledger| {
        Value::Number(ledger.paths[0].totals.memory_multiple.unwrap_or(0.0), "B/B")
    };
    Ok(vec![
        row("A-138/crossings", multiple(&two)),
        row("A-138/crossings-protocols", multiple(&four)),
        row("A-138/memory-1", least(setting, target, TWO)?),
        row("A-138/memory-1-gbit", least(setting, target, FOUR)?),
        row("A-138/memory-limits", limit(&two) == "receiver.memory"),
        row("A-138/copy", limit(&four) == "receiver.memory"),
        row("A-123/crossings", multiple(&server)),
        row("A-123/memory-limits", limit(&server) == "receiver.memory"),
        row("A-123/file-server", processor(&server) < 0.01 && processor(&two) > 0.3),
        row("A-138/copy-less", goodput(&two) > 1.5 * goodput(&four)),
    ])
}
