//! ATOMIC-2 and Netstation: hosts on three networks, message passing, and the gain of each fix (N-05 to N-08,
//! N-42, N-43, N-53 to N-55, N-67 to N-69, N-83).

use super::{Computed, Setting, Value, row, together};
use crate::Error;
use crate::machines::forward::{Forwarder, Step};
use crate::sweep::formula::Val;
use lastmeter_base::{Bytes, Cost, Duration, PerByte};
use lastmeter_host::profile::StageProfile;
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::Builtin;
use lastmeter_ledger::{Ledger, Resource};

pub(super) const TCP: &str = "sparc20-71";
pub(super) const UDP: &str = "sparc20-71-udp";
pub(super) const ATOMIC: &str = "myrinet";
pub(super) const PIPELINED: &str = "myrinet-pipelined";
pub(super) const ATM: &str = "oc3c";
pub(super) const FAST: &str = "fast-ethernet";
const BEFORE: &str = "ethernet";
/// The longest packet of Myrinet and of Fig 7.
pub(super) const LARGEST: Bytes = Bytes::from_kib(8);
pub(super) const SMALL: [Bytes; 2] = [Bytes(256), Bytes(512)];
/// Rates that differ by less count as equal.
pub(super) const SAME: f64 = 0.01;

/// Values of a run's variables.
pub(super) type Given<'a> = &'a [(&'a str, Val)];

/// The ledger of `run` of `repro.toml`: a bulk transfer between two such hosts, in packets of this length or
/// of the longest that the adapter takes.
pub(super) fn transfer(
    setting: &Setting<'_>,
    run: &str,
    (host, adapter): (&str, &str),
    packet: Bytes,
    more: Given<'_>,
) -> Result<Ledger, Error> {
    let pair = Pair::read(host, adapter, &Builtin).map_err(Error::Problems)?;
    let packet = packet.min(pair.adapter.packet_max).0;
    let own = [
        ("host", host.into()),
        ("adapter", adapter.into()),
        ("message", packet.into()),
        ("packet", packet.into()),
    ];
    setting.ledger(run, &[&own, more].concat())
}

/// Goodput of such a transfer, in bits per second.
pub(super) fn rate(
    setting: &Setting<'_>,
    run: &str,
    pair: (&str, &str),
    packet: Bytes,
    more: Given<'_>,
) -> Result<f64, Error> {
    Ok(transfer(setting, run, pair, packet, more)?.paths[0].totals.goodput)
}

/// The cost of a stage per packet and per byte, as a profile writes it.
pub(super) fn cost(per_packet: Duration, per_byte: PerByte) -> [Val; 2] {
    let per_byte = format!("{} ps/B", per_byte.as_fs() / 1_000);
    [Val::Text(format!("{} ps", per_packet.as_ps())), Val::Text(per_byte)]
}

/// The busiest resource: a processor, a link, or something else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Processor,
    Link,
    Other,
}

/// The name of the busiest resource.
pub(super) fn limit_name(ledger: &Ledger) -> &str {
    busiest(ledger).map_or("", |resource| resource.name.as_str())
}

fn busiest(ledger: &Ledger) -> Option<&Resource> {
    ledger.resources.iter().max_by(|a, b| a.utilisation().total_cmp(&b.utilisation()))
}

pub(super) fn limit(ledger: &Ledger) -> Limit {
    match busiest(ledger).map(|resource| resource.kind.as_str()) {
        Some("cpu") => Limit::Processor,
        Some("wire") => Limit::Link,
        _ => Limit::Other,
    }
}

pub(super) fn mbit(rate: f64) -> Value {
    Value::Number(rate / 1e6, "Mbit/s")
}

pub(super) fn percent(share: f64) -> Value {
    Value::Number(100.0 * share, "%")
}

/// One curve of Fig 7.
pub(super) type Curve = Vec<(Bytes, f64)>;

pub(super) fn curve(
    setting: &Setting<'_>,
    pair: (&str, &str),
    sizes: &[Bytes],
) -> Result<Curve, Error> {
    sizes.iter().map(|&size| Ok((size, rate(setting, "transfer", pair, size, &[])?))).collect()
}

pub(super) fn at(curve: &Curve, size: Bytes) -> f64 {
    curve.iter().find(|&&(known, _)| known == size).map_or(0.0, |&(_, rate)| rate)
}

/// Where `a` overtakes `b`, interpolated between two sizes.
fn passes(a: &Curve, b: &Curve) -> Bytes {
    let apart = |at: usize| a[at].1 - b[at].1;
    let above = (1..a.len()).find(|&at| apart(at - 1) <= 0.0 && apart(at) > 0.0);
    above.map_or(Bytes::ZERO, |at| {
        let (from, to) = (a[at - 1].0.0 as f64, a[at].0.0 as f64);
        Bytes((from - (to - from) * apart(at - 1) / (apart(at) - apart(at - 1))).round() as u64)
    })
}

/// Figs 2, 3, 7 and 9, and Netstation's round trips.
pub(super) fn hosts(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    together(setting, &[round_trips, figure_7, figure_9, fixes])
}

fn round_trips(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let packet: Duration = setting.constants.get("dtp_packet")?;
    let ledger = setting.ledger("transactions", &[])?;
    let latency: f64 = ledger.paths.iter().map(|path| path.totals.latency_mean()).sum();
    let transactions = ledger.paths[0].totals.delivered.packets as f64 / 0.2;
    let wanted = Value::Number(1000.0, "/s");
    Ok(vec![
        row("N-05", (transactions, "/s")),
        row("N-06", (1.0 / packet.as_secs_f64(), "/s")),
        row("N-07", Duration::from_secs_f64(latency)),
        row("N-08/transactions", wanted),
        row("N-08/share-round", percent(1000.0 / transactions)),
    ])
}

fn figure_7(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let sizes: Vec<Bytes> = constants.get::<Vec<u64>>("sizes")?.into_iter().map(Bytes).collect();
    let prices: Vec<u64> = ["price_atomic", "price_atm", "price_ethernet"]
        .into_iter()
        .map(|name| constants.get(name))
        .collect::<Result<_, _>>()?;
    let mut computed = Vec::new();
    for (host, protocol) in [(UDP, "udp"), (TCP, "tcp")] {
        let of = |adapter| curve(setting, (host, adapter), &sizes);
        let (atomic, atm, fast) = (of(ATOMIC)?, of(ATM)?, of(FAST)?);
        let best = |size: Bytes| at(&fast, size) > at(&atomic, size).max(at(&atm, size));
        let exceeds = at(&atomic, LARGEST) > at(&atm, LARGEST).max(at(&fast, LARGEST));
        let limits = |adapter: &str, by: Limit| -> Result<Value, Error> {
            let ledger = transfer(setting, "transfer", (host, adapter), LARGEST, &[])?;
            Ok(Value::Holds(limit(&ledger) == by))
        };
        let atm_by = if host == UDP { Limit::Link } else { Limit::Processor };
        let row = |key: &str, value: Value| row(format!("N-54/{protocol}-{key}"), value);
        computed.extend([
            row("best", SMALL.into_iter().all(best).into()),
            row("passes", passes(&atomic, &fast).into()),
            row("exceeds", exceeds.into()),
            row("atm", limits(ATM, atm_by)?),
            row("fast", limits(FAST, Limit::Link)?),
        ]);
        if host == UDP {
            let dollars = |curve: &Curve, price: u64, size| price as f64 / at(curve, size);
            let cheapest = sizes.iter().all(|&size| {
                let others = dollars(&atomic, prices[0], size).min(dollars(&atm, prices[1], size));
                dollars(&fast, prices[2], size) < others
            });
            computed.extend([super::row("N-53", cheapest), super::row("N-55", best(SMALL[1]))]);
        }
    }
    let pair = Pair::read(UDP, ATOMIC, &Builtin).map_err(Error::Problems)?;
    let whole = pair.host.with(&pair.adapter);
    let costs = || whole.send.iter().map(|stage| stage.cost);
    let packets: Duration = costs().map(|cost| cost.per_packet).sum();
    let bytes: Duration = costs().map(|cost| cost.per_byte.time_for(SMALL[1])).sum();
    // The acknowledgement is a packet too.
    let rules = Value::Holds(packets * 2 > bytes);
    computed.push(row("N-54/per-packet", rules));
    Ok(computed)
}

/// An ATP message, sent in packets through two processors, two cards and a link, and acknowledged before the
/// next one. While a card moves one packet its processor copies the next (N-68).
pub(super) fn atp_message(message: Bytes) -> Result<f64, Error> {
    let pair = Pair::read(TCP, PIPELINED, &Builtin).map_err(Error::Problems)?;
    let whole = pair.host.with(&pair.adapter);
    let rate = pair.adapter.rate;
    let framing = pair.adapter.framing;
    let acknowledged = whole.send.iter().find(|stage| stage.name == "protocol out");
    let acknowledged = acknowledged.map_or(Duration::ZERO, |stage| stage.cost.per_packet);
    let resources = ["sender", "sender's card", "link", "receiver's card", "receiver"]
        .map(|name| (name.to_owned(), 1));
    let step = |stage: &StageProfile, side: [usize; 2]| {
        let checksum = stage.name.starts_with("checksum");
        let cost =
            if checksum { Cost { per_byte: PerByte::ZERO, ..stage.cost } } else { stage.cost };
        let on = if stage.resource == "card" { side[1] } else { side[0] };
        Step::sized("stage", on, move |len| cost.time_for(len))
    };
    let mut route: Vec<Step> = whole.send.iter().map(|stage| step(stage, [0, 1])).collect();
    route.push(Step::sized("link", 2, move |len| rate.time_for(Bytes(len.0 + framing.0))));
    route.extend(whole.receive.iter().map(|stage| step(stage, [4, 3])));
    route.push(Step::fixed("acknowledgement out", 4, acknowledged));
    route.push(Step::fixed("acknowledgement in", 0, acknowledged));
    let packets = message.0.div_ceil(LARGEST.0);
    let lengths = (0..packets).map(|at| Bytes(LARGEST.0.min(message.0 - at * LARGEST.0)));
    let forwarder = Forwarder { resources: resources.into(), routes: vec![route], window: packets };
    Ok(forwarder.run(lengths, packets).rate)
}

/// PVM over TCP, which packs its data, in bits per second.
pub(super) fn pvm(setting: &Setting<'_>) -> Result<f64, Error> {
    let pair = Pair::read(TCP, ATOMIC, &Builtin).map_err(Error::Problems)?;
    let copy = pair.host.send.iter().find(|stage| stage.name == "copy out");
    let per_byte = copy.map_or(PerByte::ZERO, |stage| stage.cost.per_byte);
    let [per_packet, per_byte] = cost(Duration::ZERO, per_byte);
    let pack = [("stage", "pack".into()), ("per_packet", per_packet), ("per_byte", per_byte)];
    rate(setting, "staged", (TCP, ATOMIC), LARGEST, &pack)
}

/// PVM through its daemons, in bits per second: each fragment is packed, goes by TCP to the local daemon and
/// by UDP to the remote one, and likewise at the other end (N-67).
fn by_daemons(setting: &Setting<'_>) -> Result<f64, Error> {
    let pair = Pair::read(TCP, ATOMIC, &Builtin).map_err(Error::Problems)?;
    let costs = || pair.host.send.iter().map(|stage| stage.cost);
    let packets: Duration = costs().map(|cost| cost.per_packet).sum();
    let bytes: u64 = costs().map(|cost| cost.per_byte.as_fs()).sum();
    let copy: PerByte = setting.constants.get("copy")?;
    let [_, pack] = cost(Duration::ZERO, copy);
    // Out of one process and into another; an acknowledgement costs the same again.
    let [packet, byte] = cost(packets * 2, PerByte::from_fs(bytes * 2));
    let given = [("per_byte", pack), ("daemon_packet", packet), ("daemon_byte", byte)];
    rate(setting, "daemon", (UDP, ATOMIC), setting.constants.get("fragment")?, &given)
}

/// PVM packs its data; ATP omits the checksum and overlaps its copies.
fn figure_9(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let (daemon, pvm) = (by_daemons(setting)?, pvm(setting)?);
    let rate = |run: &str, adapter: &str| rate(setting, run, (TCP, adapter), LARGEST, &[]);
    let (tcp, alone) = (rate("transfer", ATOMIC)?, rate("unchecked", ATOMIC)?);
    let atp = rate("unchecked", PIPELINED)?;
    let (short, long) = (atp_message(LARGEST)?, atp_message(Bytes::from_kib(64))?);
    let messages = (1..=64).map(Bytes::from_kib);
    let waited: Curve = messages
        .map(|message| Ok((message, atp_message(message)?)))
        .collect::<Result<_, Error>>()?;
    let stream: Curve = waited.iter().map(|&(message, _)| (message, tcp)).collect();
    Ok(vec![
        row("N-68/atp-below", short < tcp && long > tcp),
        row("N-68/overlapped", alone < atp * (1.0 - SAME)),
        row("N-68/crossing", passes(&waited, &stream)),
        row("N-67/slower", pvm < tcp * (1.0 - SAME)),
        row("N-67/daemon", mbit(daemon)),
        row("N-67/direct", (pvm / daemon, "times")),
        row("N-69/atp-daemon", (atp / daemon, "times")),
        row("N-69/atp-over", percent(atp / pvm - 1.0)),
        row("N-69/atp-over-tcp", percent(atp / tcp - 1.0)),
        row("N-69/atp-highest", mbit(atp)),
        row("N-69/pvm-over", mbit(pvm)),
        row("N-83", mbit(tcp)),
    ])
}

/// The fixes that affect a single transfer: network, authentication, copies.
pub(super) const FIXES: [&str; 3] = ["Myrinet", "alternate hash", "no checksum, copies overlapped"];

/// The matrix of Fig 3 for a single transfer: bits per second for each set of fixes, indexed by its bits (N-43).
pub(super) fn matrix(setting: &Setting<'_>) -> Result<Vec<f64>, Error> {
    let constants = setting.constants;
    let (header, touch): (Duration, PerByte) = (constants.get("header")?, constants.get("touch")?);
    let mut rates = Vec::new();
    for fixed in 0..8_u8 {
        let [network, authentication, copies] = [1, 2, 4].map(|bit| fixed & bit != 0);
        let hash: PerByte = constants.get(if authentication { "aha" } else { "md5" })?;
        let hash = PerByte::from_fs(hash.as_fs() + touch.as_fs());
        let [per_packet, per_byte] = cost(header, hash);
        let given =
            [("stage", "authenticate".into()), ("per_packet", per_packet), ("per_byte", per_byte)];
        let run = if copies { "staged_unchecked" } else { "staged" };
        let adapter = match (network, copies) {
            (false, _) => BEFORE,
            (true, false) => ATOMIC,
            (true, true) => PIPELINED,
        };
        rates.push(rate(setting, run, (TCP, adapter), LARGEST, &given)?);
    }
    Ok(rates)
}

fn fixes(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let rates = matrix(setting)?;
    let (none, all) = (rates[0], rates[7]);
    let alone = [rates[1], rates[2], rates[4]];
    let idle = [rates[2], rates[4], rates[6]];
    let run = |run: &str, adapter: &str| transfer(setting, run, (TCP, adapter), LARGEST, &[]);
    let before = limit(&run("transfer", BEFORE)?) == Limit::Link;
    let now = run("transfer", ATOMIC)?;
    let after = limit(&now) == Limit::Processor;
    // Myrinet's card on a link of 100 Gbit/s.
    let most = run("faster", ATOMIC)?;
    let no_more = most.goodput() / now.goodput() - 1.0 < 0.05 && limit(&most) == Limit::Processor;
    Ok(vec![
        row("N-42/network-limits", before),
        row("N-42/host-limits", after),
        row("N-42/link-100", no_more),
        row(
            "N-43/network-fixed",
            rates[3].min(rates[5]) > rates[1] * (1.0 + SAME)
                && rates[7] > rates[3].max(rates[5]) * (1.0 + SAME),
        ),
        row("N-43/fix-alone", alone.iter().all(|&rate| rate < all * (1.0 - SAME))),
        row("N-43/network-fix", idle.iter().all(|&rate| (rate / none - 1.0).abs() < SAME)),
    ])
}
