//! ATOMIC-2 and Netstation: hosts on three networks, message passing, and what each fix brings (N-05 to N-08,
//! N-42, N-43, N-53 to N-55, N-67 to N-69, N-83).

use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::machines::forward::{Forwarder, Step};
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use lastmeter_engine::Serial;
use lastmeter_host::profile::StageProfile;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::run::{self, Failure, Runner, Watch};
use lastmeter_ledger::{Ledger, Resource};
use std::collections::BTreeMap;

const NAME: &str = "atomic2";
pub(super) const TCP: &str = "sparc20-71";
pub(super) const UDP: &str = "sparc20-71-udp";
pub(super) const ATOMIC: &str = "myrinet";
pub(super) const PIPELINED: &str = "myrinet-pipelined";
pub(super) const ATM: &str = "oc3c";
pub(super) const FAST: &str = "fast-ethernet";
const BEFORE: &str = "ethernet";
/// Myrinet's packets, and the largest of Fig 7.
pub(super) const LARGEST: Bytes = Bytes::from_kib(8);
pub(super) const SMALL: [Bytes; 2] = [Bytes(256), Bytes(512)];
/// Thousands of packets.
const LENGTH: Duration = Duration::from_secs(1);
/// Throughput that differs by less is the same.
pub(super) const SAME: f64 = 0.01;

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
    fn names(&self, folder: &str) -> Vec<String> {
        let changed = self.changed.keys().filter(|(of, _)| of == folder);
        Builtin.names(folder).into_iter().chain(changed.map(|(_, name)| name.clone())).collect()
    }
}

/// Stages that are added to a host: a name, and what a packet and a byte cost.
#[derive(Clone, Copy)]
pub(super) struct Added {
    pub(super) name: &'static str,
    pub(super) per_packet: Duration,
    pub(super) per_byte: PerByte,
    /// Whether the receiver does it too.
    pub(super) both: bool,
}

impl Profiles {
    /// The host `base` with these stages, and without checksums where they are left out.
    pub(super) fn host(
        &mut self,
        base: &str,
        added: &[Added],
        checksum: bool,
    ) -> Result<String, Error> {
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

    pub(super) fn run(&self, text: String) -> Result<Ledger, Error> {
        let experiment = Experiment::parse(NAME, text, &[], self).map_err(Error::Problems)?;
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: self, watch: &watch };
        run::ledger(&experiment, runner).map_err(|failure| match failure {
            Failure::Problems(problems) => Error::Problems(problems),
            failure => failed(&failure.to_string()),
        })
    }

    /// Bits a second of data.
    pub(super) fn rate(&self, host: &str, adapter: &str, packet: Bytes) -> Result<f64, Error> {
        Ok(self.ledger(host, adapter, packet)?.paths[0].totals.goodput)
    }
}

pub(super) fn failed(message: &str) -> Error {
    Error::Computation { name: NAME, message: message.to_owned() }
}

/// What is in use most: a processor, a link, or something else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Processor,
    Link,
    Other,
}

/// The name of the most utilised resource.
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
    profiles: &Profiles,
    host: &str,
    adapter: &str,
    sizes: &[Bytes],
) -> Result<Curve, Error> {
    sizes.iter().map(|&size| Ok((size, profiles.rate(host, adapter, size)?))).collect()
}

pub(super) fn at(curve: &Curve, size: Bytes) -> f64 {
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
    computed.extend(figure_9(setting)?);
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
    let latency: f64 = ledger.paths.iter().map(|path| path.totals.latency_mean()).sum();
    let transactions = ledger.paths[0].totals.delivered.packets as f64 / 0.2;
    let wanted = Value::Number(1000.0, "/s");
    Ok(vec![
        row("N-05", Value::Number(transactions, "/s")),
        row("N-06", Value::Number(1.0 / packet.as_secs_f64(), "/s")),
        row("N-07", Duration::from_secs_f64(latency)),
        row("N-08/transactions", wanted),
        row("N-08/share-round", percent(1000.0 / transactions)),
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
                SMALL.into_iter().all(best),
            ),
            Computed::new(
                "N-54",
                format!("{protocol}: where ATOMIC passes fast Ethernet"),
                passes(&atomic, &fast),
            ),
            Computed::new(
                "N-54",
                format!("{protocol}: ATOMIC exceeds both at its largest"),
                exceeds,
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
            computed.push(Computed::new("N-53", item, cheapest));
            let item = "fast Ethernet is best for the packets of wide-area traffic";
            computed.push(Computed::new("N-55", item, best(SMALL[1])));
        }
    }
    let pair = Pair::read(UDP, ATOMIC, profiles).map_err(Error::Problems)?;
    let whole = pair.host.with(&pair.adapter);
    let costs = || whole.send.iter().map(|stage| stage.cost);
    let packets: Duration = costs().map(|cost| cost.per_packet).sum();
    let bytes: Duration = costs().map(|cost| cost.per_byte.time_for(SMALL[1])).sum();
    // What comes back is a packet too.
    let rules = Value::Holds(packets * 2 > bytes);
    computed.push(row("N-54/per-packet", rules));
    Ok(computed)
}

/// A message of ATP, which is sent in packets through two processors, two cards and a link and waited for:
/// while a card moves one packet its processor copies the next (N-68).
pub(super) fn atp_message(message: Bytes) -> Result<f64, Error> {
    let mut profiles = Profiles::default();
    let host = profiles.host(TCP, &[], false)?;
    let pair = Pair::read(&host, PIPELINED, &profiles).map_err(Error::Problems)?;
    let whole = pair.host.with(&pair.adapter);
    let rate = pair.adapter.rate;
    let framing = pair.adapter.framing;
    let acknowledged = whole.send.iter().find(|stage| stage.name == "protocol out");
    let acknowledged = acknowledged.map_or(Duration::ZERO, |stage| stage.cost.per_packet);
    let resources = ["sender", "sender's card", "link", "receiver's card", "receiver"]
        .map(|name| (name.to_owned(), 1));
    let step = |stage: &StageProfile, side: [usize; 2]| {
        let cost = stage.cost;
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

/// The TCP host with PVM, which packs its data.
pub(super) fn pvm_host(profiles: &mut Profiles) -> Result<String, Error> {
    let pair = Pair::read(TCP, ATOMIC, &Builtin).map_err(Error::Problems)?;
    let copy = pair.host.send.iter().find(|stage| stage.name == "copy out");
    let per_byte = copy.map_or(PerByte::ZERO, |stage| stage.cost.per_byte);
    let pack = Added { name: "pack", per_packet: Duration::ZERO, per_byte, both: true };
    profiles.host(TCP, &[pack], true)
}

/// Bits a second of PVM through its daemons: each fragment is packed, goes to the host's own daemon by TCP
/// and from there to the other one by UDP; so, too, at the other end (N-67).
fn by_daemons(setting: &Setting<'_>) -> Result<f64, Error> {
    let pair = Pair::read(TCP, ATOMIC, &Builtin).map_err(Error::Problems)?;
    let costs = || pair.host.send.iter().map(|stage| stage.cost);
    let packets: Duration = costs().map(|cost| cost.per_packet).sum();
    let bytes: u64 = costs().map(|cost| cost.per_byte.as_fs()).sum();
    let copy: PerByte = setting.constants.get("copy")?;
    let mut profiles = Profiles::default();
    let (none, both) = (Duration::ZERO, true);
    let stages = [
        Added { name: "pack", per_packet: none, per_byte: copy, both },
        // Out of one process and into another; an acknowledgement costs as much again.
        Added {
            name: "daemon",
            per_packet: packets * 2,
            per_byte: PerByte::from_fs(bytes * 2),
            both,
        },
    ];
    let host = profiles.host(UDP, &stages, true)?;
    profiles.rate(&host, ATOMIC, setting.constants.get("fragment")?)
}

/// PVM packs its data; ATP leaves out the checksum and overlaps its copies.
fn figure_9(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut profiles = Profiles::default();
    let daemon = by_daemons(setting)?;
    let pvm = pvm_host(&mut profiles)?;
    let atp = profiles.host(TCP, &[], false)?;
    let alone = profiles.rate(&atp, ATOMIC, LARGEST)?;
    let tcp = profiles.rate(TCP, ATOMIC, LARGEST)?;
    let pvm = profiles.rate(&pvm, ATOMIC, LARGEST)?;
    let atp = profiles.rate(&atp, PIPELINED, LARGEST)?;
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
        row("N-67/direct", Value::Number(pvm / daemon, "times")),
        row("N-69/atp-daemon", Value::Number(atp / daemon, "times")),
        row("N-69/atp-over", percent(atp / pvm - 1.0)),
        row("N-69/atp-over-tcp", percent(atp / tcp - 1.0)),
        row("N-69/atp-highest", mbit(atp)),
        row("N-69/pvm-over", mbit(pvm)),
        row("N-83", mbit(tcp)),
    ])
}

/// The fixes that one transfer meets: network, authentication, copies.
pub(super) const FIXES: [&str; 3] = ["Myrinet", "alternate hash", "no checksum, copies overlapped"];

/// The matrix of Fig 3 for what one transfer meets: bits per second with each set of fixes, by its bits (N-43).
pub(super) fn matrix(setting: &Setting<'_>) -> Result<Vec<f64>, Error> {
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
    Ok(rates)
}

fn fixes(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let profiles = Profiles::default();
    let rates = matrix(setting)?;
    let (none, all) = (rates[0], rates[7]);
    let alone = [rates[1], rates[2], rates[4]];
    let idle = [rates[2], rates[4], rates[6]];
    let before = limit(&profiles.ledger(TCP, BEFORE, LARGEST)?) == Limit::Link;
    let now = profiles.ledger(TCP, ATOMIC, LARGEST)?;
    let after = limit(&now) == Limit::Processor;
    // A card as Myrinet's on a link of 100 Gbit/s.
    let mut faster = Profiles::default();
    let text = Builtin.profile("adapters", ATOMIC).map_err(|message| failed(&message))?;
    let text = text.replace("rate = \"640 Mbit/s\"", "rate = \"100 Gbit/s\"");
    faster.changed.insert(("adapters".to_owned(), "faster".to_owned()), text);
    let most = faster.ledger(TCP, "faster", LARGEST)?;
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
