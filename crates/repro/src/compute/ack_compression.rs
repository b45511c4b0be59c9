//! Acknowledgements that catch up with each other in queues, and three ways to serve them.
//!
//! The networks are files beside the published values, in `experiments/ack-compression`.

use super::runs::{File, Found};
use super::{Computed, Setting, Value};
use crate::Error;
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_engine::TraceKind;

const NAME: &str = "ack-compression";
const BOTH_WAYS: File = File {
    name: NAME,
    text: include_str!("../../../../experiments/ack-compression/network.toml"),
    collecting: false,
    tracing: true,
};
const CHEATER: File = File {
    name: NAME,
    text: include_str!("../../../../experiments/ack-compression/cheater.toml"),
    collecting: false,
    tracing: false,
};
/// An acknowledgement: headers of IPv4 and TCP without options.
const ACK: Bytes = Bytes(40);

/// How the bottleneck serves acknowledgements and other small packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Fifo,
    AcksFirst,
    SmallFirst,
}

impl Policy {
    /// Its queue, and the classes of data and acknowledgements.
    fn sets(self, room: u64, short: Bytes, traffic: &[&str]) -> Vec<String> {
        let queue = match self {
            Policy::Fifo => format!("drop-tail = {{ packets = {room} }}"),
            Policy::AcksFirst => format!("priority = {{ levels = 2, packets = {room} }}"),
            Policy::SmallFirst => {
                let short = short.0;
                format!("priority = {{ levels = 2, packets = {room}, short = \"{short} B\" }}")
            }
        };
        // Who looks at the length does not look into the packet.
        let acks = u64::from(self != Policy::AcksFirst);
        let mut sets = vec![format!("links.0.queue={{ {queue} }}")];
        for name in traffic {
            sets.push(format!("traffic.{name}.tcp.class=1"));
            sets.push(format!("traffic.{name}.tcp.class-acknowledging={acks}"));
        }
        sets
    }
}

/// Times between the acknowledgements that a sender receives, once it is under way.
struct Spacing(Vec<Duration>);

impl Spacing {
    fn of(found: &Found, sender: &str) -> Result<Spacing, Error> {
        let times = found.times(sender, TraceKind::Deliver)?;
        let late = &times[times.len() / 4..];
        Ok(Spacing(late.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect()))
    }
    /// The middle one of those that `chosen` takes, in microseconds.
    fn median(&self, chosen: impl Fn(Duration) -> bool) -> f64 {
        let mut gaps: Vec<Duration> = self.0.iter().copied().filter(|&gap| chosen(gap)).collect();
        gaps.sort();
        gaps.get(gaps.len() / 2).map_or(f64::NAN, |gap| gap.as_secs_f64() * 1e6)
    }
    /// What share is below `limit`.
    fn share_below(&self, limit: Duration) -> f64 {
        let below = self.0.iter().filter(|&&gap| gap < limit).count();
        below as f64 / self.0.len().max(1) as f64
    }
    /// The longest run of acknowledgements with gaps below `limit`.
    fn cluster(&self, limit: Duration) -> u64 {
        let mut longest = 0;
        let mut run = 0;
        for &gap in &self.0 {
            run = if gap < limit { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        longest + 1
    }
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let (rate, packet): (Rate, Bytes) = (constants.get("rate")?, constants.get("packet")?);
    let (room, short): (u64, Bytes) = (constants.get("room")?, constants.get("short")?);
    let (large, some): (Bytes, u64) = (constants.get("large")?, constants.get("some")?);
    let apart = rate.time_for(packet);
    let limit = apart / 2;
    let run = |policy: Policy, more: &[String]| -> Result<Spacing, Error> {
        let mut sets = policy.sets(room, short, &["east", "west"]);
        sets.push(format!("links.0.rate=\"{} bit/s\"", rate.as_bits()));
        sets.extend(more.iter().cloned());
        Spacing::of(&BOTH_WAYS.run(&sets)?, "a sends east")
    };
    // Nothing the other way: a packet a year.
    let idle = ["traffic.west.start=\"1 h\"".to_owned()];
    let alone = run(Policy::Fifo, &idle)?;
    let [fifo, acks, small] =
        [run(Policy::Fifo, &[])?, run(Policy::AcksFirst, &[])?, run(Policy::SmallFirst, &[])?];
    // Large units the other way: one at a time, and several waiting.
    let mss = large.0 - ACK.0;
    let units = |many: u64| {
        [
            format!("traffic.west.tcp.mss=\"{mss} B\""),
            format!("traffic.west.tcp.receive-buffer=\"{} B\"", mss * many),
        ]
    };
    let behind = run(Policy::Fifo, &units(1))?;
    let several = run(Policy::Fifo, &units(4))?;
    let several_first = run(Policy::AcksFirst, &units(4))?;
    let number =
        |item: &str, value: f64, unit| Computed::new("A-172", item, Value::Number(value, unit));
    let holds = |item: &str, is: bool| Computed::new("A-172", item, Value::Holds(is));
    let most = some as f64 / 100.0;
    let mut rows = vec![
        number("between acknowledgements, nothing the other way", alone.median(|_| true), "us"),
        number("between those that are compressed", fifo.median(|gap| gap < limit), "us"),
        holds("data the other way compresses acknowledgements", fifo.share_below(limit) > most),
        holds("acknowledgements first: solved", acks.share_below(limit) < most),
        holds("small packets first: solved", small.share_below(limit) < most),
        number(
            "acknowledgements behind a unit of 64 KB",
            behind.cluster(limit) as f64,
            "acknowledgements",
        ),
        holds(
            "acknowledgements first: fewer behind units that wait",
            several_first.cluster(limit) < several.cluster(limit),
        ),
    ];
    rows.extend(abuse(setting, (rate, room, short))?);
    Ok(rows)
}

/// Who cuts data into small packets, beside somebody who does not.
fn abuse(
    _setting: &Setting<'_>,
    (rate, room, short): (Rate, u64, Bytes),
) -> Result<Vec<Computed>, Error> {
    let goodput = |policy: Policy| -> Result<(u64, u64), Error> {
        let mut sets = policy.sets(room, short, &["honest", "cheater"]);
        sets.push(format!("links.0.rate=\"{} bit/s\"", rate.as_bits()));
        sets.push(format!("traffic.cheater.tcp.mss=\"{} B\"", short.0 - ACK.0));
        let found = CHEATER.run(&sets)?;
        let honest = found.count("b receives honest", "consumed")?;
        Ok((honest, found.count("d receives cheater", "consumed")?))
    };
    let (honest, cheater) = goodput(Policy::SmallFirst)?;
    let (honest_fifo, cheater_fifo) = goodput(Policy::Fifo)?;
    let (honest_acks, cheater_acks) = goodput(Policy::AcksFirst)?;
    let holds = |item: &str, is: bool| Computed::new("A-172", item, Value::Holds(is));
    let total = (honest + cheater, honest_fifo + cheater_fifo);
    Ok(vec![
        holds("small packets first: preferential treatment for small data", cheater > honest),
        holds("first come first served: none", cheater_fifo < honest_fifo),
        holds("acknowledgements first: none", cheater_acks < honest_acks),
        holds("small data waste the link", total.0 < total.1),
    ])
}
