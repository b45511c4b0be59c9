//! Three stacks on Afterburner: conventional, single-copy and in user space; what each part of the card buys; and what
//! the document predicts without measuring it (J-02 to J-06, J-51, J-57, J-66 to J-68, J-75 to J-78, J-86 to J-88).

use super::atomic::{Given, Limit, cost, limit, limit_name, transfer};
use super::{Computed, Setting, Value, row, together};
use crate::Error;
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use lastmeter_engine::Serial;
use lastmeter_host::copies::{self, Stack};
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::Builtin;
use lastmeter_lab::reach;
use lastmeter_lab::run::{Runner, Watch};
use lastmeter_ledger::Ledger;
use lastmeter_ledger::drawing::Drawing;
use lastmeter_ledger::plots::{Plot, Series};

const HOST: &str = "hp9000-730";
const CARD: &str = "afterburner";
/// The three stacks: name, host profile, adapter profile.
const STACKS: [(&str, &str, &str); 3] = [
    ("conventional", "hp9000-730-conventional", "afterburner-conventional"),
    ("single copy", HOST, CARD),
    ("user space", "hp9000-730-user", CARD),
];
/// Link halves that the card can take.
const LINKS: [&str; 3] = ["jetstream", "oc3c", "hippi"];
/// Payload of a cell.
const CELL: Bytes = Bytes(48);
const GIGABIT: Rate = Rate::from_gbit(1);
/// Rates that differ by less count as equal.
const SAME: f64 = 0.01;
/// Our threshold for "only a minor reduction".
const MINOR: f64 = 0.03;
const MESSAGES: [u64; 10] = [64, 128, 256, 512, 1024, 2048, 3072, 4096, 8192, 16_384];

fn failed(message: String) -> Error {
    Error::Computation { name: "afterburner-stacks", message }
}

fn pair(host: &str, adapter: &str) -> Result<Pair, Error> {
    Pair::read(host, adapter, &Builtin).map_err(Error::Problems)
}

/// A bulk transfer whose messages are as long as its packets.
fn plain(setting: &Setting<'_>, host: &str, adapter: &str, packet: Bytes) -> Result<Ledger, Error> {
    transfer(setting, "transfer", (host, adapter), packet, &[])
}

/// The same for 400 ms, with messages of their own length.
fn calls(
    setting: &Setting<'_>,
    run: &str,
    pair: (&str, &str),
    message: Bytes,
    more: Given<'_>,
) -> Result<Ledger, Error> {
    let segment: Bytes = setting.constants.get("segment")?;
    let own = [
        ("host", pair.0.into()),
        ("adapter", pair.1.into()),
        ("message", message.0.into()),
        ("packet", segment.0.into()),
        ("length", 0.4.into()),
    ];
    setting.ledger(run, &[&own, more].concat())
}

/// Bits a second of data.
fn rate(ledger: &Ledger) -> f64 {
    ledger.paths[0].totals.goodput
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    together(setting, &[attachment, three, without, links, expected])
}

/// The parts of a connection (J-02, J-05, J-06).
fn attachment(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let hosts: f64 = setting.constants.get::<u64>("ring_hosts")? as f64;
    // A set is a transmitter and a receiver. A cable to a switch has a set at each end; a ring has one at each
    // host and one at the port.
    let (dedicated, ring) = (2.0, (hosts + 1.0) / hosts);
    // Card, the host's and the switch's transceivers with the cable, a port's card, and a share of the rest.
    let parts = ["card", "host transceiver", "cable", "switch transceiver", "port card", "switch"];
    Ok(vec![
        row("J-02", (parts.len() as f64, "parts")),
        row("J-05/transceivers", (dedicated, "sets")),
        row("J-05/transceivers-host", (ring, "sets")),
        row("J-06", (hosts, "hosts")),
    ])
}

/// The stacks drawn and run (J-57, J-66, J-67).
fn three(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let segment: Bytes = setting.constants.get("segment")?;
    let mut drawn = Vec::new();
    let mut ledgers = Vec::new();
    for (_, host, adapter) in STACKS {
        let pair = pair(host, adapter)?;
        drawn.push(Stack::of(&pair.host, &pair.adapter));
        ledgers.push(plain(setting, host, adapter, segment)?);
    }
    let [usual, single, user] = [0, 1, 2].map(|at| rate(&ledgers[at]));
    let passes = |stack: &Stack| stack.send.passes().max(stack.receive.passes());
    let copies = |stack: &Stack| stack.send.copies().max(stack.receive.copies());
    let count = |number: u32, unit| Value::Number(number.into(), unit);
    let touches = |host: &str| {
        let stages = ledgers[1].paths[0].stages.iter();
        stages
            .filter(|stage| stage.place.host.as_deref() == Some(host))
            .filter_map(|stage| stage.touches)
            .sum::<u32>()
    };
    Ok(vec![
        row("J-66/passes-over", count(passes(&drawn[0]), "passes")),
        row("J-66/copies-conventional", count(copies(&drawn[0]), "copies")),
        row("J-57/copies-user", count(copies(&drawn[2]), "copies")),
        row("J-67/copies-single", count(copies(&drawn[1]), "copies")),
        row("J-67/single-copy", single > 1.2 * usual),
        row("J-57/stack-user", user > single * (1.0 - SAME)),
        row("J-76", touches("receiver") == 0 && touches("sender") == 1),
    ])
}

/// What each part of card and stack is worth: the run without it (J-03, J-51, J-68, J-75).
fn without(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let segment: Bytes = constants.get("segment")?;
    let (sum, read): (PerByte, PerByte) = (constants.get("sum")?, constants.get("read")?);
    let pass = |way: &str, stage: &str, per_byte: PerByte| {
        let [_, per_byte] = cost(Duration::ZERO, per_byte);
        [("way", way.into()), ("stage", stage.into()), ("per_byte", per_byte)]
    };
    let pair = (HOST, CARD);
    let passing = |given: Given<'_>| transfer(setting, "passing", pair, segment, given);
    let whole = plain(setting, HOST, CARD, segment)?;
    let summing = passing(&pass("receive", "checksum in", sum))?;
    // An application that reads what arrived finds it in memory, not in the cache.
    let past = passing(&pass("receive", "read from memory", read))?;
    // Calls of 4 KB, where Fig 9 is flat.
    let call = Bytes::from_kib(4);
    let fused = calls(setting, "transfer", pair, call, &[])?;
    let apart = calls(setting, "passing", pair, call, &pass("send", "checksum out", sum))?;
    let cells = plain(setting, HOST, CARD, CELL)?;
    // The socket buffer holds more packets of 4 KB than the card has receive blocks.
    let sizes = [1, 2, 6, 8, 14].map(Bytes::from_kib);
    let curve = sizes.into_iter().map(|size| plain(setting, HOST, CARD, size));
    let curve: Vec<f64> = curve.map(|one| Ok(rate(&one?))).collect::<Result<_, Error>>()?;
    let at = limit_name(&apart);
    Ok(vec![
        row("J-03/longer-pdus", curve.windows(2).all(|two| two[0] < two[1])),
        row("J-03/pdu-cell", rate(&cells) < rate(&whole) / 20.0),
        row("J-51", rate(&summing) < rate(&whole) * (1.0 - SAME)),
        row("J-68", at == "sender.cpu" && rate(&apart) < rate(&fused) * (1.0 - SAME)),
        row("J-75", rate(&past) < rate(&whole) * (1.0 - SAME)),
    ])
}

/// One card with several link halves (J-77).
fn links(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let segment = Bytes::from_kib(14);
    let mut found = Vec::new();
    for link in LINKS {
        let ledger = plain(setting, HOST, &format!("{CARD}+{link}"), segment)?;
        found.push((rate(&ledger), limit(&ledger)));
    }
    let alone = rate(&plain(setting, HOST, CARD, segment)?);
    let same = |at: usize| (found[at].0 / alone - 1.0).abs() < SAME;
    Ok(vec![
        row("J-77/host-limits", same(0) && same(2)),
        row("J-77/link-limits", found[1].1 == Limit::Link && !same(1)),
    ])
}

/// What the document predicts without measuring it (J-86 to J-88).
fn expected(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let segment: Bytes = setting.constants.get("segment")?;
    let ring = setting.ledger("ring", &[])?;
    let cable = calls(setting, "transfer", (HOST, CARD), Bytes::from_kib(4), &[])?;
    let user = rate(&plain(setting, STACKS[2].1, &format!("{CARD}+jetstream"), segment)?);
    let request = setting.ledger("request", &[])?;
    let busy = |ledger: &Ledger, of: &dyn Fn(&str) -> bool| -> f64 {
        let stages = ledger.paths.iter().flat_map(|path| &path.stages);
        stages.filter(|stage| of(&stage.name)).map(|stage| stage.mean()).sum()
    };
    let whole: f64 = request.paths.iter().map(|path| path.totals.latency_mean()).sum();
    let work = busy(&request, &|name| name.contains("protocol") || name.contains("call"));
    let watch = Watch::default();
    let hosts = |adapter: &str, rate: Rate| {
        let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
        reach::hosts(adapter, rate, runner).map_err(|failure| failed(failure.to_string()))
    };
    let (hosts, ideal) =
        (hosts("afterburner+jetstream", GIGABIT)?, hosts(CARD, Rate::from_gbit(2))?);
    let then = hosts.iter().filter(|one| one.host.starts_with(HOST));
    let none = then.clone().all(|one| one.times != Some(1.0));
    let most = then.clone().map(|one| one.reached).fold(0.0, f64::max);
    // A host ten times as fast, over the measured cable.
    let over_cable = ideal.iter().find(|one| one.host == HOST).map_or(0.0, |one| one.reached);
    Ok(vec![
        row("J-86", (rate(&ring) / rate(&cable) - 1.0).abs() < MINOR),
        row("J-57/user", (user / 1e6, "Mbit/s")),
        row("J-87", work > 0.9 * whole),
        row("J-88/workstation", none),
        row("J-88/throughput", (over_cable / 1e9, "Gbit/s")),
        row("J-88/throughput-host", (most / 1e6, "Mbit/s")),
    ])
}

/// The copies that the three stacks make.
pub(super) fn drawings(_: &Setting<'_>) -> Result<Vec<Drawing>, Error> {
    let one = |(name, host, adapter): (&str, &str, &str)| {
        let pair = pair(host, adapter)?;
        Ok(Drawing {
            title: format!("Fig 7: copies of the {name} stack"),
            caption:
                "From the profiles. Orange: a copy by the processor; green: the card's own way; \
                      blue: read where it stands."
                    .to_owned(),
            svg: copies::svg(&Stack::of(&pair.host, &pair.adapter)),
        })
    };
    STACKS.into_iter().map(one).collect()
}

/// Predictions that are not in the document: throughput of the stacks by message size.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let mut series = Vec::new();
    for (name, host, adapter) in STACKS {
        let mut points = Vec::new();
        for message in MESSAGES.into_iter().map(Bytes) {
            let ledger = calls(setting, "transfer", (host, adapter), message, &[])?;
            points.push((message.0 as f64 / 1024.0, rate(&ledger) / 8e6));
        }
        series.push(Series { name: name.to_owned(), points });
    }
    Ok(vec![
        Plot::new(
            "Prediction, not in the document: three stacks on one card",
            "J-87. 14 KB packets; kernel copies, checksum passes and a library's call are assumed.",
            ("message, KB", "throughput, MB/s"),
            series,
        )
        .marked(vec![(4.0, "4 KB".to_owned())]),
    ])
}
