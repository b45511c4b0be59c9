//! What passed between a guest and the other end, as a ledger.
//!
//! ```text
//! guest to NAME:  doorbell, interface, bus, set-up, wire        exact: the adapter did it
//! NAME to guest:  initialization, bus, interrupt                exact
//! notes:          what the agent in the guest counted           sampled
//! ```
//!
//! A frame's path begins when its doorbell is seen and ends when its last bit is on the wire; or it begins when its
//! last bit has come, and ends when the interrupt is raised that reports it. What application, stack and driver of the
//! guest do before and after is not the adapter's to see. The account covers the time from the first frame to the
//! last.

use crate::device::{Account, RECEIVE, StageTimes, TRANSMIT};
use crate::hub::{End, Hub};
use crate::kit::Report;
use lastmeter_base::Duration;
use lastmeter_engine::Distribution;
use lastmeter_ledger::{
    Balance, Confidence, Count, Latency, Ledger, Path, Provenance, Resource, Stage, Times, Totals,
    Verdict,
};

/// The stages of a frame that is sent: their names, and their resources.
const SENDING: [(&str, Option<&str>); 5] = [
    ("doorbell", None),
    ("interface", Some("adapter.interface")),
    ("bus", Some("adapter.bus")),
    ("set-up", Some("adapter.network")),
    ("wire", Some("wire")),
];
/// The same of one that is received.
const RECEIVING: [(&str, Option<&str>); 3] = [
    ("initialization", Some("adapter.interface in")),
    ("bus", Some("adapter.bus in")),
    ("interrupt", None),
];
/// A resource that is busy for this share of the time limits.
const LIMITS: f64 = 0.85;

/// The ledger of a guest's adapter, whose other end has this name.
pub fn ledger(hub: &Hub, at: usize, other: &str, provenance: Provenance) -> Option<Ledger> {
    let End::Guest(guest) = &hub.ends[at] else { return None };
    let account = guest.device.account();
    let seconds = account.lasted().as_secs_f64();
    let held = [RECEIVE, TRANSMIT].map(|ring| guest.device.held(ring));
    let out = path(
        (&format!("guest to {other}"), TRANSMIT, held[TRANSMIT]),
        account,
        &account.sent,
        account.sending.iter().zip(SENDING),
    );
    let into = path(
        (&format!("{other} to guest"), RECEIVE, held[RECEIVE]),
        account,
        &account.received,
        account.receiving.iter().zip(RECEIVING),
    );
    let mut resources = Vec::new();
    let stages = account.sending.iter().zip(SENDING).map(|pair| (pair, "guest"));
    let stages = stages.chain(account.receiving.iter().zip(RECEIVING).map(|pair| (pair, other)));
    for ((times, (name, resource)), from) in stages {
        let Some(resource) = resource else { continue };
        resources.push(busy(resource, name, from, &times.service, seconds));
    }
    resources.push(busy("wire in", "wire", other, &hub.cables[1 - at].service, seconds));
    let title = format!("A guest on an adapter that does not exist: {}", guest.device.card().what);
    let verdict = verdict(&resources, seconds);
    let residual = |path: &Path| {
        let stages: f64 = path.stages.iter().map(Stage::mean).sum();
        (path.totals.latency_mean() - stages).abs()
    };
    let latency_residual = residual(&out).max(residual(&into));
    let mut ledger = Ledger::new(title, seconds, vec![out, into], resources, provenance);
    let packets = [RECEIVE, TRANSMIT].map(|ring| {
        let lost = account.lost[ring].values().sum::<u64>();
        account.entered[ring] as i64 - (account.frames[ring] + lost + held[ring]) as i64
    });
    let packets_residual = packets.into_iter().sum();
    ledger.balance = Balance { latency_residual, packets_residual };
    ledger.verdict = Some(verdict);
    ledger.notes = notes(account, &hub.cables[1 - at].wait, other);
    ledger.notes.extend(crate::predict::words(guest.device.card()));
    Some(ledger)
}

fn times(distribution: &Distribution) -> Option<Times> {
    let at = |share| Some(distribution.percentile(share).as_secs_f64());
    let mean = distribution.mean();
    (distribution.count() > 0).then(|| Times { mean, p50: at(0.5), p99: at(0.99) })
}

fn path<'a>(
    (name, ring, held): (&str, usize, u64),
    account: &Account,
    latency: &Distribution,
    stages: impl Iterator<Item = (&'a StageTimes, (&'static str, Option<&'static str>))>,
) -> Path {
    let delivered = Count { packets: account.frames[ring], bytes: account.bytes[ring] };
    let stages = stages.map(|(found, (name, resource))| Stage {
        wait: times(&found.wait),
        service: times(&found.service),
        ..Stage::new(name, resource, delivered)
    });
    let mut stages: Vec<Stage> = stages.collect();
    let lost = &account.lost[ring];
    if let Some(first) = stages.get_mut(usize::from(ring == TRANSMIT)) {
        first.drops = lost.iter().map(|(&why, &count)| (why.to_owned(), count)).collect();
    }
    let dropped: u64 = lost.values().sum();
    let seconds = account.lasted().as_secs_f64().max(f64::MIN_POSITIVE);
    let at = |share| Some(latency.percentile(share).as_secs_f64());
    let mut totals = Totals::new(delivered, delivered.bytes as f64 * 8.0 / seconds);
    totals.dropped = Some(Count { packets: dropped, bytes: 0 });
    totals.held = Some(held);
    totals.latency = (latency.count() > 0).then(|| Latency {
        mean: latency.mean(),
        p50: at(0.5),
        p99: at(0.99),
        max: Some(latency.max().as_secs_f64()),
    });
    let class = "frames".to_owned();
    Path { name: name.to_owned(), class, stages, totals, latencies: Vec::new() }
}

fn busy(resource: &str, stage: &str, from: &str, service: &Distribution, seconds: f64) -> Resource {
    let kind = match resource {
        "wire" | "wire in" => "wire",
        "adapter.bus" | "adapter.bus in" => "bus",
        _ => "engine",
    };
    let share = service.sum() as f64 * 1e-12 / seconds.max(f64::MIN_POSITIVE);
    let share = share.min(1.0);
    let mut resource = Resource::new(resource, kind, share, None);
    resource.by_stage.insert(format!("{stage} (from {from})"), share);
    resource
}

/// What of the adapter limits, if anything does; of the guest's own limits nothing is known here.
fn verdict(resources: &[Resource], seconds: f64) -> Verdict {
    let mut sorted: Vec<&Resource> = resources.iter().collect();
    sorted.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    let second = sorted.get(1).map(|resource| resource.name.clone());
    match sorted.first() {
        Some(first) if first.busy >= LIMITS => Verdict {
            resource: Some(first.name.clone()),
            utilisation: Some(first.busy),
            confidence: Confidence::High,
            runner_up: second,
            words: format!(
                "{} limits: it was busy for {:.0} % of the {seconds:.1} s between the first frame \
                 and the last.",
                first.name,
                first.busy * 100.0
            ),
        },
        Some(first) => Verdict {
            resource: None,
            utilisation: Some(first.busy),
            confidence: Confidence::Undecided,
            runner_up: second,
            words: format!(
                "Nothing on the adapter limits: {} was the busiest, for {:.0} % of the time. What \
                 the guest's processor, stack and programs did cannot be seen from here.",
                first.name,
                first.busy * 100.0
            ),
        },
        None => Verdict {
            resource: None,
            utilisation: None,
            confidence: Confidence::Undecided,
            runner_up: None,
            words: "There were no frames.".to_owned(),
        },
    }
}

fn notes(account: &Account, wait: &Distribution, other: &str) -> Vec<String> {
    let [received, sent] = [RECEIVE, TRANSMIT].map(|ring| {
        let (raised, unwanted) = (account.raised[ring], account.unwanted[ring]);
        format!("{raised} interrupts and {unwanted} that the guest did not want")
    });
    vec![
        format!(
            "Exact, seen from the adapter: {} frames sent after {} doorbells, {sent}; {} received, \
             {received}.",
            account.frames[TRANSMIT], account.doorbells[TRANSMIT], account.frames[RECEIVE],
        ),
        format!(
            "Of {} bytes of frames, {} were copied between the guest and this process.",
            account.bytes.iter().sum::<u64>(),
            account.copied.iter().sum::<u64>(),
        ),
        format!(
            "Frames from {other} waited {} for the wire in, at most {}.",
            Duration::from_secs_f64(wait.mean()),
            wait.max(),
        ),
    ]
}

/// What the agent in the guest counted between its first sample and its last, in words.
pub fn sampled(report: &Report) -> Option<String> {
    let (first, last) = (report.samples.first()?, report.samples.last()?);
    let between = |file: &str, name: &str, at: usize| {
        last.number(file, name, at)?.checked_sub(first.number(file, name, at)?)
    };
    // Of the line "cpu": user, nice, system, idle, iowait, irq, softirq, in hundredths of a second.
    let cpu = |at| between("stat", "cpu ", at);
    let (user, system, idle) = (cpu(0)?, cpu(2)?, cpu(3)? + cpu(4)?);
    let (hard, soft) = (cpu(5)?, cpu(6)?);
    let all = (user + system + idle + hard + soft).max(1) as f64;
    let share = |ticks: u64| format!("{:.0} %", ticks as f64 / all * 100.0);
    let frames = between("net/dev", "eth0:", 9).zip(between("net/dev", "eth0:", 1));
    let frames = frames.map_or(String::new(), |(out, into)| {
        format!("; its stack counted {out} frames out and {into} in")
    });
    Some(format!(
        "Sampled by the agent in the guest over {:.1} s: its processor was {} in programs, {} in \
         the kernel, {} in interrupts, {} in soft interrupts, {} idle{frames}.",
        last.uptime - first.uptime,
        share(user),
        share(system),
        share(hard),
        share(soft),
        share(idle),
    ))
}
