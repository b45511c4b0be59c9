//! TCP over the cells of a switch with small buffers.

use super::vunet::{counters, holds, parse, run};
use super::{Computed, Setting, Value};
use crate::Error;
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_wire::aal::aal5;

/// What becomes of the packets of lost cells at the switch's output, or whether there are cells at all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Tail,
    Partial,
    Early,
    /// Whole packets, and as many bytes of buffer.
    Packets,
}

/// What came of a run.
struct Seen {
    /// Bytes of data that arrived in order.
    goodput: u64,
    /// Of the connection that got least.
    least: u64,
    /// Cells that arrived and were of no use.
    wasted: u64,
    /// Cells that the output lost.
    lost: u64,
    /// Cells that arrived.
    arrived: u64,
}

struct Network {
    link: Rate,
    delay: Duration,
    connections: u64,
    window: Bytes,
    clock: Clock,
    length: Duration,
    seed: u64,
}

/// The clock of TCP's retransmission timer.
#[derive(Clone, Copy)]
struct Clock {
    /// The shortest timer.
    least: Duration,
    tick: Duration,
}

impl Network {
    fn text(&self, output: Output, packet: Bytes, cells: u64) -> String {
        let Network { link, delay, connections, window, clock, length, seed } = *self;
        let (least, tick) = (clock.least.as_ps(), clock.tick.as_ps());
        let (rate, delay) = (link.as_bits(), delay.as_ps());
        let mss = packet.0 - 40;
        let mut text = format!(
            "duration = \"{} ps\"\nseed = {seed}\n[nodes]\n\
             sender = {{ host = {{}}, count = {connections} }}\n\
             switch = {{ router = {{}} }}\nreceiver = {{ host = {{}} }}\n",
            length.as_ps()
        );
        let (out, back, deep) = ("out", "in", "queue = { drop-tail = { packets = 100000 } }");
        let per_packet = aal5::cells(packet.0 as usize + 8) as u64;
        let queue = match output {
            // Packets need as much of the buffer as their cells do.
            Output::Packets => {
                format!("{{ drop-tail = {{ packets = {} }} }}", (cells / per_packet).max(1))
            }
            Output::Tail => {
                format!("{{ cell-discard = {{ cells = {cells}, policy = \"tail\" }} }}")
            }
            Output::Partial => {
                format!("{{ cell-discard = {{ cells = {cells}, policy = \"partial\" }} }}")
            }
            Output::Early => format!("{{ cell-discard = {{ cells = {cells} }} }}"),
        };
        // Without cells the wire takes what their headers and trailers take.
        let framing = match output {
            Output::Packets => per_packet * 53 - packet.0,
            _ => 0,
        };
        if output == Output::Packets {
            text += &format!(
                "[[links]]\nbetween = [\"sender\", \"switch\"]\nrate = \"{rate} bit/s\"\n\
                 framing = \"{framing} B\"\n{deep}\n\
                 [[links]]\nbetween = [\"switch\", \"receiver\"]\nrate = \"{rate} bit/s\"\n\
                 framing = \"{framing} B\"\ndelay = \"{delay} ps\"\nqueue = {queue}\n"
            );
        } else {
            text += &format!(
                "{back} = {{ aal5 = {{ cells = \"switch\" }}, count = {connections} }}\n\
                 {out} = {{ aal5 = {{ cells = \"switch\" }} }}\n\
                 [[links]]\nbetween = [\"sender\", \"{back}\"]\n\
                 [[links]]\nbetween = [\"{back}\", \"switch\"]\nrate = \"{rate} bit/s\"\n{deep}\n\
                 [[links]]\nbetween = [\"switch\", \"{out}\"]\nrate = \"{rate} bit/s\"\n\
                 delay = \"{delay} ps\"\nqueue = {queue}\n\
                 [[links]]\nbetween = [\"{out}\", \"receiver\"]\n"
            );
        }
        text + &format!(
            "[[traffic]]\nname = \"transfers\"\nfrom = \"sender\"\nto = \"receiver\"\n\
             tcp = {{ mss = \"{mss} B\", receive-buffer = \"{} B\", send-buffer = \"{} B\", \
             sack = false, recovery = \"reno\", timestamps = false, initial-window = 1, \
             spread = \"20 ms\", timeout-min = \"{least} ps\", granularity = \"{tick} ps\" }}\n",
            window.0, window.0
        )
    }

    fn run(&self, output: Output, packet: Bytes, cells: u64) -> Result<Seen, Error> {
        let outcome = run(&parse(&self.text(output, packet, cells), &[])?, false)?;
        let sum = |part: &str, counter: &str| counters(&outcome, part, counter).iter().sum::<u64>();
        let dropped = |reason: &str| -> u64 {
            let books = outcome.books.paths.iter().flat_map(|path| &path.dropped);
            books.filter(|(key, _)| key.reason == reason).map(|(_, count)| count.packets).sum()
        };
        let arrived = outcome.books.paths.iter().zip(&outcome.paths);
        let cells = arrived.filter(|(_, info)| info.class == "cells");
        let wasted = sum("out", "wasted");
        Ok(Seen {
            goodput: sum("receives", "consumed"),
            least: sum("receives", "least"),
            wasted,
            lost: ["full", "partial discard", "early discard"].map(dropped).iter().sum(),
            arrived: wasted + cells.map(|(book, _)| book.delivered.packets).sum::<u64>(),
        })
    }
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let coarse =
        Clock { least: constants.get("timer_coarse")?, tick: constants.get("tick_coarse")? };
    let fine = Clock { least: constants.get("timer_fine")?, tick: constants.get("tick_fine")? };
    let network = Network {
        link: constants.get("link")?,
        delay: constants.get("delay")?,
        connections: constants.get("connections")?,
        window: constants.get("window")?,
        clock: fine,
        length: constants.get("length")?,
        seed: setting.seed,
    };
    let (packet, short): (Bytes, Bytes) =
        (constants.get("packet")?, constants.get("packet_small")?);
    let buffer = |name: &str| constants.get::<u64>(name);
    let (small, medium, ample) =
        (buffer("buffer")?, buffer("buffer_medium")?, buffer("buffer_ample")?);
    // As the report's hosts: they notice most losses by a clock of half a second.
    let report = Network { clock: coarse, ..network };
    let poor = report.run(Output::Tail, packet, small)?;
    let better = report.run(Output::Tail, packet, medium)?;
    let good = report.run(Output::Tail, packet, ample)?;
    // As Romanow & Floyd's: what is wasted is the link, and not time.
    let long = network.run(Output::Tail, packet, small)?;
    let shorter = network.run(Output::Tail, short, small)?;
    let tail = network.run(Output::Tail, packet, medium)?;
    let partial = network.run(Output::Partial, packet, medium)?;
    let early = network.run(Output::Early, packet, medium)?;
    let packets = network.run(Output::Packets, packet, medium)?;
    let alone = Network { connections: 1, ..network }.run(Output::Tail, short, small)?;
    Ok(vec![
        holds(
            "A-162",
            "small buffers: goodput of TCP is poor",
            10 * poor.goodput < 7 * good.goodput,
        ),
        holds(
            "A-162",
            "small buffers: a connection gets less than a tenth of its share",
            10 * poor.least * network.connections < good.goodput,
        ),
        holds("A-162", "larger buffers help", better.goodput > poor.goodput),
        holds("A-162", "a fine clock helps", long.goodput > poor.goodput),
        holds(
            "A-162",
            "shorter packets lose less",
            shorter.wasted * long.arrived < long.wasted * shorter.arrived,
        ),
        holds(
            "A-162",
            "partial packet discard wastes less of the link",
            partial.wasted * tail.arrived < tail.wasted * partial.arrived,
        ),
        holds(
            "A-162",
            "early packet discard wastes still less",
            early.wasted * partial.arrived < partial.wasted * early.arrived,
        ),
        holds("A-162", "partial packet discard: more goodput", partial.goodput > tail.goodput),
        holds("A-162", "early packet discard: still more goodput", early.goodput > partial.goodput),
        holds("A-162", "plain cells: less goodput than packets", tail.goodput < packets.goodput),
        Computed::new(
            "A-162",
            "goodput of early packet discard beside packets",
            Value::Number(100.0 * early.goodput as f64 / packets.goodput as f64, "%"),
        ),
        holds(
            "A-174",
            "the switch's ports lose nothing while no output is overloaded",
            alone.lost == 0 && alone.goodput > 0,
        ),
    ])
}
