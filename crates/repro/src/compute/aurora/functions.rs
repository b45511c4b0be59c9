//! The division of labour: segmentation on the board, in the processor
//! or cell by cell; movement, processing and delivery; both ways to an application; parts measured alone.

use super::super::{Computed, Setting, row};
use super::{bus, goodput, mbit, receives};
use crate::Error;
use crate::machines::turbochannel::Way;
use crate::sweep::formula::Val;
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::Builtin;
use lastmeter_ledger::{Ledger, Stage};

const HOST: &str = "dec3000-800";
/// Bursts per second: rarely two at a time, and often several.
const FEW: u64 = 200;
const MANY: u64 = 2000;
/// Payload of a page: 128 cells of 48 bytes.
const PAGE: Bytes = Bytes(128 * 48);

/// The three functions of an interface (§3.2.5).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Function {
    Movement,
    Processing,
    Delivery,
}

impl Function {
    /// By the resource of the stage: a device moves; a processor delivers in the last stage and processes in
    /// earlier ones.
    fn of(stage: &Stage, last: bool) -> Function {
        match stage.resource.as_deref() {
            Some("receiver.cpu") if last => Function::Delivery,
            Some("receiver.cpu") => Function::Processing,
            _ => Function::Movement,
        }
    }
}

fn receiving(ledger: &Ledger) -> Vec<&Stage> {
    let stages = ledger.paths[0].stages.iter();
    stages.filter(|stage| stage.place.host.as_deref() == Some("receiver")).collect()
}

/// Processor time in seconds for each byte that arrives.
fn processor(ledger: &Ledger) -> f64 {
    let cpu = ledger.resources.iter().find(|resource| resource.name == "receiver.cpu");
    cpu.map_or(0.0, |cpu| cpu.utilisation()) / goodput(ledger) * 8.0
}

fn near(a: f64, b: f64, share: f64) -> bool {
    (a / b - 1.0).abs() < share
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    Ok([segmentation(setting)?, delivery(setting)?, latency(setting)?, vec![from_parts(setting)?]]
        .concat())
}

/// Segmentation in software, in hardware, and scattered cell by cell.
fn segmentation(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let run = |run: &str, adapter: &str, more: &[(&str, Val)]| {
        receives(setting, run, (HOST, adapter), PAGE, more)
    };
    let software = run("receives", "vudboard", &[])?;
    let scattered = run("receives", "osiris", &[])?;
    // A board that reassembles moves whole packets, in the longest bursts that the bus allows.
    let bus = bus(constants)?;
    let packets: Rate = bus.rate(PAGE, Way::ToMemory);
    let hardware = run("reassembled", "osiris", &[("moved", packets.as_bits().into())])?;
    let stages = receiving(&software);
    let time = |function: Function| -> f64 {
        let last = stages.len() - 1;
        let of = |&(at, stage): &(usize, &&Stage)| Function::of(stage, at == last) == function;
        let took = |stage: &Stage| stage.service_mean() + stage.blocked_mean();
        stages.iter().enumerate().filter(of).map(|(_, stage)| took(stage)).sum()
    };
    let [movement, processing, delivery] =
        [Function::Movement, Function::Processing, Function::Delivery].map(time);
    let reassembles = |ledger: &Ledger| {
        receiving(ledger).iter().any(|stage| {
            stage.name == "receiver reassemble" && stage.resource.as_deref() == Some("receiver.cpu")
        })
    };
    let dma = |ledger: &Ledger| {
        let dma = ledger.resources.iter().find(|known| known.name == "receiver.receive-dma");
        dma.map_or(0.0, |dma| dma.utilisation()) / goodput(ledger)
    };
    let alike = near(processor(&scattered), processor(&hardware), 0.01);
    Ok(vec![
        row("A-30", goodput(&software) < goodput(&scattered).min(goodput(&hardware))),
        row("A-41/scattered", alike),
        row("A-41/bus-longer", dma(&scattered) > 1.2 * dma(&hardware)),
        row("A-42/movement-processing", movement.min(processing).min(delivery) > 0.0),
        row("A-42/host-processing", processing > movement.max(delivery)),
        row("A-43/processor", reassembles(&software) && !reassembles(&scattered)),
        row("A-43/byte", processor(&software) > 1.2 * processor(&scattered)),
    ])
}

/// Socket or IP handler, polled or interrupted.
fn delivery(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let handler: Duration = setting.constants.get("ip_handler")?;
    let run = |run: &str, packet: Bytes| receives(setting, run, (HOST, "vudboard"), packet, &[]);
    let seconds = |ledger: &Ledger, len: Bytes| len.0 as f64 * 8.0 / goodput(ledger);
    let (socket, handled) = (run("receives", PAGE)?, run("handled", PAGE)?);
    let more = seconds(&handled, PAGE) - seconds(&socket, PAGE);
    let burst: Bytes = setting.constants.get("burst")?;
    let (polled, interrupted) = (run("receives", burst)?, run("interrupted", burst)?);
    let overhead = seconds(&interrupted, burst) - seconds(&polled, burst);
    let pair = Pair::read(HOST, "vudboard", &Builtin).map_err(Error::Problems)?;
    let interrupt = pair.host.resources.iter().map(|known| known.interrupt).max();
    let interrupt = interrupt.map_or(0.0, Duration::as_secs_f64);
    Ok(vec![
        row("A-67", near(more, handler.as_secs_f64(), 0.05)),
        row("A-38/both-configurations", near(overhead, interrupt, 0.05)),
    ])
}

/// The other measure of both configurations: the latency of single packets.
fn latency(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let pair = Pair::read(HOST, "vudboard", &Builtin).map_err(Error::Problems)?;
    let interrupt = pair.host.resources.iter().map(|known| known.interrupt).max();
    let interrupt = interrupt.unwrap_or(Duration::ZERO);
    let burst: Bytes = setting.constants.get("burst")?;
    let copy: PerByte = setting.constants.get("copy_3000_800")?;
    let copy = copy.time_for(burst);
    let run = |way: &str, bursts: u64| {
        let given = [
            ("way", way.into()),
            ("interrupt", interrupt.as_secs_f64().into()),
            ("copy", copy.as_secs_f64().into()),
            ("line", pair.adapter.rate.as_bits().into()),
            ("bursts", bursts.into()),
        ];
        setting.ledger("bursts", &given)
    };
    let interrupts = |bursts| run("interrupts", bursts);
    let polled = |bursts| run("polled", bursts);
    let mean = |ledger: &Ledger| ledger.paths[0].totals.latency_mean();
    let busy = |ledger: &Ledger| {
        let cpu = ledger.resources.iter().find(|known| known.name == "receiver.cpu");
        cpu.map_or(0.0, |cpu| cpu.busy)
    };
    let later = mean(&polled(FEW)?) - mean(&interrupts(FEW)?);
    let (many, many_polled) = (interrupts(MANY)?, polled(MANY)?);
    Ok(vec![
        row("A-38/polling-delivers", (1e6 * later, "us")),
        row("A-38/interrupts", busy(&many) > 1.3 * busy(&many_polled)),
    ])
}

/// The throughput of the whole, predicted from a workstation's parts measured alone.
fn from_parts(setting: &Setting<'_>) -> Result<Computed, Error> {
    let host = ("dec3000-400", "null-device");
    let one_copy = goodput(&receives(setting, "receives", host, PAGE, &[])?);
    // The driver copies once more than a device without one; nothing else is as slow.
    Ok(row("A-137", mbit(one_copy / 2.0)))
}
