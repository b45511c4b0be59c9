//! ATOMIC-2 and Netstation: hosts on three networks, authentication, gateway and file server (N-05 to
//! N-08, N-16, N-17, N-42, N-43, N-53 to N-62, N-67 to N-69, N-79 to N-86).

use super::{Computed, Setting, Value};
use crate::experiment::Experiment;
use crate::ledger::Ledger;
use crate::library::{Builtin, Library};
use crate::repro::Error;
use crate::run::{self, Crew, Failure, Watch};
use crate::why::historic::Pair;
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use lastmeter_engine::Serial;
use std::collections::BTreeMap;
use std::io::Read;

const NAME: &str = "atomic2";
const TCP: &str = "sparc20-71";
const UDP: &str = "sparc20-71-udp";
const ATOMIC: &str = "myrinet";
const PIPELINED: &str = "myrinet-pipelined";
const ATM: &str = "oc3c";
const FAST: &str = "fast-ethernet";
const BEFORE: &str = "ethernet";
/// Myrinet's packets, and the largest of Fig 7.
const LARGEST: Bytes = Bytes::from_kib(8);
const SMALL: [Bytes; 2] = [Bytes(256), Bytes(512)];
/// Thousands of packets.
const LENGTH: Duration = Duration::from_secs(1);
/// Throughput that differs by less is the same.
const SAME: f64 = 0.01;

/// The bundled profiles, and some with a stage more or less.
#[derive(Default)]
pub(super) struct Profiles {
    /// Texts by folder and name.
    pub(super) changed: BTreeMap<(String, String), String>,
}

impl Library for Profiles {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        match self.changed.get(&(folder.to_owned(), name.to_owned())) {
            Some(text) => Ok(text.clone()),
            None => Builtin.profile(folder, name),
        }
    }
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String> {
        Builtin.open(path)
    }
    fn names(&self, folder: &str) -> Vec<String> {
        let changed = self.changed.keys().filter(|(of, _)| of == folder);
        Builtin.names(folder).into_iter().chain(changed.map(|(_, name)| name.clone())).collect()
    }
}

/// Stages that are added to a host: a name, and what a packet and a byte cost.
#[derive(Clone, Copy)]
struct Added {
    name: &'static str,
    per_packet: Duration,
    per_byte: PerByte,
    /// Whether the receiver does it too.
    both: bool,
}

impl Profiles {
    /// The host `base` with these stages, and without checksums where they are left out.
    fn host(&mut self, base: &str, added: &[Added], checksum: bool) -> Result<String, Error> {
        let mut text = Builtin.profile("hosts", base).map_err(|message| failed(&message))?;
        if !checksum {
            text = text.replace("per-byte = \"12.95 ns/B\"", "per-byte = \"0 ns/B\"");
        }
        for Added { name, per_packet, per_byte, both } in added {
            for (way, suffix) in [("send", "out"), ("receive", "in")] {
                if way == "send" || *both {
                    text += &format!(
                        "\n[[{way}]]\nname = \"{name} {suffix}\"\non = \"cpu\"\n\
                         per-packet = \"{} ps\"\nper-byte = \"{} ps/B\"\n",
                        per_packet.as_ps(),
                        per_byte.as_fs() / 1_000
                    );
                }
            }
        }
        let name = format!("{base}-{}", self.changed.len());
        self.changed.insert(("hosts".to_owned(), name.clone()), text);
        Ok(name)
    }

    /// A bulk transfer between two such hosts.
    pub(super) fn ledger(&self, host: &str, adapter: &str, packet: Bytes) -> Result<Ledger, Error> {
        let pair = Pair::read(host, adapter, self).map_err(Error::Problems)?;
        let packet = packet.min(pair.adapter.packet_max);
        let text = pair.experiment(packet, packet, LENGTH).map_err(Error::Problems)?;
        self.run(text)
    }

    fn run(&self, text: String) -> Result<Ledger, Error> {
        let experiment = Experiment::parse(NAME, text, &[], self).map_err(Error::Problems)?;
        let watch = Watch::default();
        let crew = Crew { parallel: &Serial, threads: 1, library: self, watch: &watch };
        run::ledger(&experiment, crew).map_err(|failure| match failure {
            Failure::Problems(problems) => Error::Problems(problems),
            failure => failed(&failure.to_string()),
        })
    }

    /// Bits a second of data.
    fn rate(&self, host: &str, adapter: &str, packet: Bytes) -> Result<f64, Error> {
        Ok(self.ledger(host, adapter, packet)?.paths[0].totals.goodput)
    }
}

fn failed(message: &str) -> Error {
    Error::Computation { name: NAME, message: message.to_owned() }
}

/// What is in use most: a processor, a link, or something else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    Processor,
    Link,
    Other,
}

fn limit(ledger: &Ledger) -> Limit {
    let used = |resource: &&crate::ledger::Resource| resource.busy + resource.blocked;
    let most = ledger.resources.iter().max_by(|a, b| used(a).total_cmp(&used(b)));
    match most.map_or("", |resource| resource.name.as_str()) {
        name if name.ends_with(".cpu") => Limit::Processor,
        name if name.contains("->") => Limit::Link,
        _ => Limit::Other,
    }
}

fn mbit(rate: f64) -> Value {
    Value::Number(rate / 1e6, "Mbit/s")
}

fn percent(share: f64) -> Value {
    Value::Number(100.0 * share, "%")
}

/// One curve of Fig 7.
type Curve = Vec<(Bytes, f64)>;

fn curve(profiles: &Profiles, host: &str, adapter: &str, sizes: &[Bytes]) -> Result<Curve, Error> {
    sizes.iter().map(|&size| Ok((size, profiles.rate(host, adapter, size)?))).collect()
}

fn at(curve: &Curve, size: Bytes) -> f64 {
    curve.iter().find(|&&(known, _)| known == size).map_or(0.0, |&(_, rate)| rate)
}

/// Where `a` passes `b`, in a straight line between two sizes.
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
    let profiles = Profiles::default();
    agrees(setting)?;
    let mut computed = round_trips(setting, &profiles)?;
    computed.extend(figure_7(setting, &profiles)?);
    computed.extend(figure_9()?);
    computed.extend(fixes(setting)?);
    Ok(computed)
}

/// The profiles have the constants whose origin the experiment states, so that fitted ones are counted.
fn agrees(setting: &Setting<'_>) -> Result<(), Error> {
    let host = Pair::read(TCP, ATM, &Builtin).map_err(Error::Problems)?;
    let whole = host.host.with(&host.adapter);
    let stage = |name: &str| whole.send.iter().find(|stage| stage.name == name);
    let per_byte = |name: &str| stage(name).map(|stage| stage.cost.per_byte);
    let wanted = |name: &str| setting.constants.get::<PerByte>(name).map(Some);
    let protocol = Some(setting.constants.get::<Duration>("protocol")?);
    let same = per_byte("copy out") == wanted("copy")?
        && per_byte("to card") == wanted("atm_card")?
        && stage("protocol out").map(|stage| stage.cost.per_packet) == protocol;
    if same { Ok(()) } else { Err(failed("the profiles do not have the experiment's constants")) }
}

fn round_trips(setting: &Setting<'_>, profiles: &Profiles) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let packet: Duration = constants.get("dtp_packet")?;
    let (command, rate): (Bytes, Rate) = (constants.get("dtp_command")?, constants.get("myrinet")?);
    let half = packet.as_ps() / 2;
    let stage = |way: &str| {
        format!("[[{way}]]\nname = \"{way}\"\non = \"cpu\"\nper-packet = \"{half} ps\"\n")
    };
    let host = format!(
        "what = \"DTP\"\nsource = \"section 3.a\"\n[resources]\ncpu = {{ cpu = {{}} }}\n{}{}",
        stage("send"),
        stage("receive")
    );
    let mut own = Profiles { changed: profiles.changed.clone() };
    own.changed.insert(("hosts".to_owned(), "dtp".to_owned()), host);
    let ledger = own.run(format!(
        "duration = \"200 ms\"\n[nodes]\nhost = {{ host = {{ profile = \"dtp\" }} }}\n\
         device = {{ host = {{ profile = \"dtp\" }} }}\n[[links]]\n\
         between = [\"host\", \"device\"]\nrate = \"{} bit/s\"\n[[traffic]]\n\
         name = \"transactions\"\nfrom = \"host\"\nto = \"device\"\n\
         request = {{ size = \"{} B\", response = \"{} B\", window = 1 }}\n",
        rate.as_bits(),
        command.0,
        command.0
    ))?;
    let latency: f64 = ledger.paths.iter().map(|path| path.totals.latency.mean).sum();
    let transactions = ledger.paths[0].totals.delivered.packets as f64 / 0.2;
    let wanted = Value::Number(1000.0, "/s");
    Ok(vec![
        Computed::new("N-05", "transactions of DTP", Value::Number(transactions, "/s")),
        Computed::new(
            "N-06",
            "packets of IP over Myrinet",
            Value::Number(1.0 / packet.as_secs_f64(), "/s"),
        ),
        Computed::new("N-07", "round trip of DTP", Duration::from_secs_f64(latency)),
        Computed::new("N-08", "transactions that an X server needs", wanted),
        Computed::new(
            "N-08",
            "share of a round trip's time that they take",
            percent(1000.0 / transactions),
        ),
    ])
}

fn figure_7(setting: &Setting<'_>, profiles: &Profiles) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let sizes: Vec<Bytes> = constants.get::<Vec<u64>>("sizes")?.into_iter().map(Bytes).collect();
    let prices: Vec<u64> = ["price_atomic", "price_atm", "price_ethernet"]
        .into_iter()
        .map(|name| constants.get(name))
        .collect::<Result<_, _>>()?;
    let mut computed = Vec::new();
    for (host, protocol) in [(UDP, "UDP"), (TCP, "TCP")] {
        let of = |adapter| curve(profiles, host, adapter, &sizes);
        let (atomic, atm, fast) = (of(ATOMIC)?, of(ATM)?, of(FAST)?);
        let best = |size: Bytes| at(&fast, size) > at(&atomic, size).max(at(&atm, size));
        let exceeds = at(&atomic, LARGEST) > at(&atm, LARGEST).max(at(&fast, LARGEST));
        let limits = |adapter: &str, by: Limit| -> Result<Value, Error> {
            Ok(Value::Holds(limit(&profiles.ledger(host, adapter, LARGEST)?) == by))
        };
        let atm_by = if protocol == "UDP" { Limit::Link } else { Limit::Processor };
        let by = if protocol == "UDP" { "link" } else { "processor" };
        computed.extend([
            Computed::new(
                "N-54",
                format!("{protocol}: fast Ethernet is best below 1 KB"),
                Value::Holds(SMALL.into_iter().all(best)),
            ),
            Computed::new(
                "N-54",
                format!("{protocol}: where ATOMIC passes fast Ethernet"),
                passes(&atomic, &fast),
            ),
            Computed::new(
                "N-54",
                format!("{protocol}: ATOMIC exceeds both at its largest"),
                Value::Holds(exceeds),
            ),
            Computed::new("N-54", format!("{protocol}: the {by} limits ATM"), limits(ATM, atm_by)?),
            Computed::new(
                "N-54",
                format!("{protocol}: fast Ethernet limits its hosts"),
                limits(FAST, Limit::Link)?,
            ),
        ]);
        if protocol == "UDP" {
            let dollars = |curve: &Curve, price: u64, size| price as f64 / at(curve, size);
            let cheapest = sizes.iter().all(|&size| {
                let others = dollars(&atomic, prices[0], size).min(dollars(&atm, prices[1], size));
                dollars(&fast, prices[2], size) < others
            });
            let item = "cost of fast Ethernet for a delivered Mbit/s is least";
            computed.push(Computed::new("N-53", item, Value::Holds(cheapest)));
            let item = "fast Ethernet is best for the packets of wide-area traffic";
            computed.push(Computed::new("N-55", item, Value::Holds(best(SMALL[1]))));
        }
    }
    let pair = Pair::read(UDP, ATOMIC, profiles).map_err(Error::Problems)?;
    let whole = pair.host.with(&pair.adapter);
    let costs = || whole.send.iter().map(|stage| stage.cost);
    let packets: Duration = costs().map(|cost| cost.per_packet).sum();
    let bytes: Duration = costs().map(|cost| cost.per_byte.time_for(SMALL[1])).sum();
    // What comes back is a packet too.
    let rules = Value::Holds(packets * 2 > bytes);
    computed.push(Computed::new("N-54", "per-packet cost rules below 1 KB", rules));
    Ok(computed)
}

/// PVM packs its data; ATP leaves out the checksum and overlaps its copies.
fn figure_9() -> Result<Vec<Computed>, Error> {
    let mut profiles = Profiles::default();
    let pair = Pair::read(TCP, ATOMIC, &Builtin).map_err(Error::Problems)?;
    let copy = pair.host.send.iter().find(|stage| stage.name == "copy out");
    let per_byte = copy.map_or(PerByte::ZERO, |stage| stage.cost.per_byte);
    let pack = Added { name: "pack", per_packet: Duration::ZERO, per_byte, both: true };
    let pvm = profiles.host(TCP, &[pack], true)?;
    let atp = profiles.host(TCP, &[], false)?;
    let tcp = profiles.rate(TCP, ATOMIC, LARGEST)?;
    let pvm = profiles.rate(&pvm, ATOMIC, LARGEST)?;
    let atp = profiles.rate(&atp, PIPELINED, LARGEST)?;
    Ok(vec![
        Computed::new("N-67", "PVM is slower than TCP", Value::Holds(pvm < tcp * (1.0 - SAME))),
        Computed::new("N-69", "ATP over PVM", percent(atp / pvm - 1.0)),
        Computed::new("N-69", "ATP over TCP", percent(atp / tcp - 1.0)),
        Computed::new("N-69", "ATP at its highest", mbit(atp)),
        Computed::new("N-69", "PVM over TCP directly", mbit(pvm)),
        Computed::new("N-83", "TCP without authentication", mbit(tcp)),
    ])
}

/// The matrix of Fig 3, for what one transfer meets: network, authentication, copies (N-43).
fn fixes(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut profiles = Profiles::default();
    let per_packet: Duration = setting.constants.get("header")?;
    let hash = |name: &str| -> Result<Added, Error> {
        let per_byte = setting.constants.get(name)?;
        Ok(Added { name: "authenticate", per_packet, per_byte, both: true })
    };
    let (md5, aha) = (hash("md5")?, hash("aha")?);
    let mut rates = Vec::new();
    for fixed in 0..8_u8 {
        let [network, authentication, copies] = [1, 2, 4].map(|bit| fixed & bit != 0);
        let stage = if authentication { aha } else { md5 };
        let host = profiles.host(TCP, &[stage], !copies)?;
        let adapter = match (network, copies) {
            (false, _) => BEFORE,
            (true, false) => ATOMIC,
            (true, true) => PIPELINED,
        };
        rates.push(profiles.rate(&host, adapter, LARGEST)?);
    }
    let (none, all) = (rates[0], rates[7]);
    let alone = [rates[1], rates[2], rates[4]];
    let idle = [rates[2], rates[4], rates[6]];
    let before = limit(&profiles.ledger(TCP, BEFORE, LARGEST)?) == Limit::Link;
    let after = limit(&profiles.ledger(TCP, ATOMIC, LARGEST)?) == Limit::Processor;
    Ok(vec![
        Computed::new("N-42", "before: the network limits", Value::Holds(before)),
        Computed::new("N-42", "after: the host limits", Value::Holds(after)),
        Computed::new(
            "N-43",
            "each fix alone brings less than all together",
            Value::Holds(alone.iter().all(|&rate| rate < all * (1.0 - SAME))),
        ),
        Computed::new(
            "N-43",
            "without the network no other fix brings anything",
            Value::Holds(idle.iter().all(|&rate| (rate / none - 1.0).abs() < SAME)),
        ),
    ])
}

/// Fig 12.
pub(super) fn authentication(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let cost = |name: &str| constants.get::<PerByte>(name);
    let (touch, md5, swap) = (cost("touch")?, cost("md5")?, cost("swap")?);
    let header: Duration = constants.get("header")?;
    let packet: Bytes = constants.get("packet")?;
    let optimised = md5.scale_ceil(constants.get("md5_optimised")?, 100);
    let without_swap = PerByte::from_fs(optimised.as_fs().saturating_sub(swap.as_fs()));
    let mut profiles = Profiles::default();
    let mut with = |hash: Option<PerByte>, both: bool| -> Result<(f64, Ledger), Error> {
        let ah = Added { name: "header", per_packet: header, per_byte: PerByte::ZERO, both: true };
        let hash = hash.map(|hash| Added {
            name: "hash",
            per_packet: Duration::ZERO,
            per_byte: PerByte::from_fs(touch.as_fs() + hash.as_fs()),
            both,
        });
        let added: Vec<Added> = std::iter::once(ah).chain(hash).collect();
        let host = profiles.host(TCP, &added, true)?;
        let ledger = profiles.ledger(&host, ATOMIC, packet)?;
        Ok((ledger.paths[0].totals.goodput, ledger))
    };
    let (null, _) = with(None, true)?;
    let (checksum, _) = with(Some(PerByte::ZERO), true)?;
    let (sender, _) = with(Some(PerByte::ZERO), false)?;
    let (aha, _) = with(Some(cost("aha")?), true)?;
    let (rogaway, _) = with(Some(cost("rogaway")?), true)?;
    let (in_order, _) = with(Some(without_swap), true)?;
    let (faster, _) = with(Some(optimised), true)?;
    let (slowest, ledger) = with(Some(md5), true)?;
    let plain = Profiles::default();
    let none = plain.ledger(TCP, ATOMIC, packet)?;
    let rate = none.paths[0].totals.goodput;
    let unchecked = profiles.host(TCP, &[], false)?;
    let unchecked = profiles.rate(&unchecked, ATOMIC, packet)?;
    let ladder = [rate, null, checksum, aha, rogaway, in_order, faster, slowest];
    let share = |ledger: &Ledger, of: &dyn Fn(&str) -> bool| {
        let cpu = ledger.resources.iter().find(|resource| resource.name == "sender.cpu");
        let stages = cpu.into_iter().flat_map(|cpu| &cpu.by_stage);
        stages.filter(|(stage, _)| of(stage)).map(|(_, share)| share).sum::<f64>()
    };
    let hashing = share(&ledger, &|stage| stage.ends_with("hash out"));
    let touching = share(&none, &|stage| !stage.contains("protocol"));
    Ok(vec![
        Computed::new("N-83", "without authentication", mbit(rate)),
        Computed::new("N-83", "with MD5", mbit(slowest)),
        Computed::new(
            "N-84",
            "algorithms of the ladder",
            Value::Number(ladder.len() as f64 + 1.0, "algorithms"),
        ),
        Computed::new(
            "N-84",
            "each step is slower than the one before",
            Value::Holds(ladder.windows(2).all(|pair| pair[1] < pair[0])),
        ),
        Computed::new(
            "N-84",
            "hashing at the sender alone is no slower than at both",
            Value::Holds(sender >= checksum * (1.0 - SAME)),
        ),
        Computed::new(
            "N-85",
            "data touching is a significant part",
            Value::Holds(checksum < null * 0.95),
        ),
        Computed::new("N-85", "the hash limits", Value::Holds(hashing > 0.5)),
        Computed::new("N-86", "with the alternate hash", mbit(aha)),
        Computed::new("N-86", "alternate hash beside MD5", Value::Number(aha / slowest, "times")),
        Computed::new(
            "N-16",
            "a checksum that costs no pass brings throughput",
            Value::Holds(unchecked > rate * 1.05),
        ),
        Computed::new("N-17", "copying and touching data limits", Value::Holds(touching > 0.5)),
    ])
}

/// Figs 8 and 11.
pub(super) fn services(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut computed = gateway(setting)?;
    computed.extend(file_server(setting)?);
    Ok(computed)
}

/// A gateway whose processor waits for the bus, and forwards one packet after the other.
struct Gateway {
    bus: PerByte,
    forward: Duration,
}

impl Gateway {
    /// Time of a packet of which `crossing` bytes go over the bus.
    fn time(&self, crossing: u64) -> f64 {
        (self.bus.time_for(Bytes(crossing)) + self.forward).as_secs_f64()
    }
}

fn gateway(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let packet: Bytes = constants.get("packet")?;
    let header: Bytes = constants.get("header")?;
    let pc = Gateway { bus: constants.get("pci")?, forward: constants.get("forward")? };
    let sun = Gateway { bus: constants.get("sbus")?, forward: constants.get("sbus_forward")? };
    let bits = |len: Bytes, time: f64| len.0 as f64 * 8.0 / time;
    let gain = |len: Bytes| pc.time(2 * len.0) / pc.time(len.0 + header.0) - 1.0;
    let first = sun.time(packet.0);
    let share = sun.forward.as_secs_f64() / first;
    let crossings = (packet.0 + header.0) as f64 / packet.0 as f64;
    Ok(vec![
        Computed::new("N-58", "first gateway", mbit(bits(packet, first))),
        Computed::new(
            "N-58",
            "no single one of bus and processor limits it",
            Value::Holds((0.25..0.75).contains(&share)),
        ),
        Computed::new(
            "N-61",
            "crossings of the bus with peer DMA",
            Value::Number(crossings, "crossings"),
        ),
        Computed::new("N-62", "gain of peer DMA", percent(gain(packet))),
        Computed::new("N-62", "gain of peer DMA in the text", percent(gain(packet))),
        Computed::new(
            "N-62",
            "second gateway without peer DMA",
            mbit(bits(packet, pc.time(2 * packet.0))),
        ),
        Computed::new(
            "N-62",
            "second gateway with peer DMA",
            mbit(bits(packet, pc.time(packet.0 + header.0))),
        ),
        Computed::new(
            "N-62",
            "peer DMA gains less with small packets",
            Value::Holds(gain(SMALL[1]) < gain(packet)),
        ),
    ])
}

/// A client that keeps so many requests outstanding, and its server, run in the engine.
fn writes(client: Duration, server: Duration, wait: Duration, window: u64) -> Result<f64, Error> {
    let mut profiles = Profiles::default();
    let mut host = |name: &str, cost: Duration, way: &str, other: &str| {
        let text = format!(
            "what = \"{name}\"\nsource = \"section 4.a\"\n[resources]\ncpu = {{ cpu = {{}} }}\n\
             [[{way}]]\nname = \"{way}\"\non = \"cpu\"\nper-packet = \"{} ps\"\n\
             [[{other}]]\nname = \"{other}\"\non = \"cpu\"\n",
            cost.as_ps()
        );
        profiles.changed.insert(("hosts".to_owned(), name.to_owned()), text);
    };
    host("client", client, "send", "receive");
    host("server", server, "receive", "send");
    let ledger = profiles.run(format!(
        "duration = \"4 s\"\n[nodes]\nclient = {{ host = {{ profile = \"client\" }} }}\n\
         server = {{ host = {{ profile = \"server\" }} }}\n[[links]]\n\
         between = [\"client\", \"server\"]\nrate = \"640 Mbit/s\"\ndelay = \"{} ps\"\n\
         [[traffic]]\nname = \"writes\"\nfrom = \"client\"\nto = \"server\"\n\
         bulk = {{ size = \"8192 B\", window = {window}, response = \"100 B\" }}\n",
        wait.as_ps() / 2
    ))?;
    Ok(ledger.paths[0].totals.goodput)
}

fn file_server(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let time = |name: &str| setting.constants.get::<Duration>(name);
    let (rpc, wait, switch) = (time("rpc")?, time("wait")?, time("switch")?);
    let (disk, start) = (time("disk")?, time("start")?);
    let biods = |count: u64, server: Duration| writes(rpc + switch, server, wait, count);
    let pipelined = |server: Duration| writes(rpc, server, wait, 16);
    let (one, four, many) =
        (biods(1, Duration::ZERO)?, biods(4, Duration::ZERO)?, biods(16, Duration::ZERO)?);
    let protocol = pipelined(Duration::ZERO)? / four - 1.0;
    let (old, new) = (biods(4, disk)?, pipelined(disk)?);
    let file = |rate: f64| start.as_secs_f64() + 100.0 * 1024.0 * 8.0 / rate;
    let (whole, small) = (new / old - 1.0, file(old) / file(new) - 1.0);
    Ok(vec![
        Computed::new("N-79", "one request at a time is slowest", Value::Holds(one < four * 0.9)),
        Computed::new("N-80", "gain of pipelined RPC", percent(protocol)),
        Computed::new("N-80", "gain of pipelined RPC with the disk", percent(whole)),
        Computed::new("N-81", "gain with files of 100 KB", Value::Holds(small > whole / 3.0)),
        Computed::new(
            "N-82",
            "more biods bring nothing",
            Value::Holds((many / four - 1.0).abs() < SAME),
        ),
    ])
}
