//! How much memory a gigabit takes: a host whose memory limits, and how fast it must be.

use super::super::{Computed, Setting, Value, row};
use super::{Change, Changed, Runs, goodput, limit};
use crate::Error;
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_ledger::Ledger;

const NAME: &str = "aurora-memory-multiple";
const HOST: &str = "hosts/memory-bound";
const PACKET: Bytes = Bytes::from_kib(4);
const LENGTH: Duration = Duration::from_ms(200);
/// A target is reached if so much of it is: packets at the edges of the run are missing.
const REACHED: f64 = 0.998;
/// The search ends when it is this near.
const STEP: u64 = 10_000_000;

/// A host of nothing but memory: what comes is written, perhaps copied, and picked up.
fn host(memory: Rate, copies: bool) -> String {
    let stage = |name: &str, on: &str, crosses: u32| {
        format!(
            "[[receive]]\nname = \"{name}\"\non = \"{on}\"\ncrosses = {{ memory = {crosses} }}\n"
        )
    };
    let copy = if copies { stage("copy to user buffer", "cpu", 2) } else { String::new() };
    format!(
        "what = \"a host whose memory limits\"\nsource = \"Section 2, §4.2\"\n\
         socket-buffer = \"256 KiB\"\n\
         [resources]\ncpu = {{ cpu = {{}} }}\ndma = {{ engine = {{}} }}\n\
         memory = {{ bus = {{ rate = \"{} bit/s\", memory = true }} }}\n\
         [[send]]\nname = \"send\"\non = \"cpu\"\n{}{copy}{}",
        memory.as_bits(),
        stage("network to memory", "dma", 1),
        stage("application picks it up", "cpu", 1),
    )
}

/// The same host as a file server: a disk's DMA picks up what came, not the processor.
fn server(memory: Rate) -> String {
    let text = host(memory, false).replace("dma = {", "disk = { engine = {} }\ndma = {");
    let picks_up = "name = \"application picks it up\"\non = \"cpu\"";
    text.replace(picks_up, "name = \"memory to disk\"\non = \"disk\"")
}

fn run(memory: Rate, copies: bool, explained: bool) -> Result<Ledger, Error> {
    run_text(&host(memory, copies), explained)
}

fn run_text(text: &str, explained: bool) -> Result<Ledger, Error> {
    let library = Changed { profile: HOST, change: Change::Whole(text) };
    let runs = Runs { name: NAME, library: &library, length: LENGTH };
    let experiment = runs.receives("memory-bound", "null-device", PACKET)?;
    if explained { runs.explained(&experiment) } else { runs.ledger(&experiment) }
}

/// The slowest memory with which `target` arrives.
fn least(target: Rate, copies: bool) -> Result<Rate, Error> {
    let (mut low, mut high) = (target.as_bits() / STEP, 5 * target.as_bits() / STEP);
    while high - low > 1 {
        let middle = (low + high) / 2;
        let ledger = run(Rate::from_bits(middle * STEP), copies, false)?;
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
    let (two, four) = (run(plenty, false, true)?, run(plenty, true, true)?);
    let server = run_text(&server(plenty), true)?;
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
        row("A-138/memory-1", least(target, false)?),
        row("A-138/memory-1-gbit", least(target, true)?),
        row("A-138/memory-limits", limit(&two) == "receiver.memory"),
        row("A-138/copy", limit(&four) == "receiver.memory"),
        row("A-123/crossings", multiple(&server)),
        row("A-123/memory-limits", limit(&server) == "receiver.memory"),
        row("A-123/file-server", processor(&server) < 0.01 && processor(&two) > 0.3),
        row("A-138/copy-less", goodput(&two) > 1.5 * goodput(&four)),
    ])
}
