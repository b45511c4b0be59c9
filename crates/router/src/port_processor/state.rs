//! What can be seen of a running router: the state of each port processor at the same moment, and all of them together.

use super::PortProcessor;
use super::count::{Counters, Stages};
use super::crossing::{Crossing, Passed};
use lastmeter_linux::dataplane::Shared;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A port processor waits at most so long for the others.
const PATIENCE: Duration = Duration::from_millis(100);
/// It looks so often.
const LOOKS: Duration = Duration::from_micros(20);

/// All port processors stand still for a moment, so that each packet is counted in one place.
#[derive(Debug)]
pub struct Pause {
    of: usize,
    begun: AtomicUsize,
    ended: AtomicUsize,
    until: Instant,
    /// One did not wait for the others any longer.
    broken: AtomicBool,
}

impl Pause {
    /// Of so many.
    pub(super) fn new(of: usize) -> Pause {
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let broken = AtomicBool::new(false);
        Pause { of, begun, ended, until: Instant::now() + PATIENCE, broken }
    }
    /// Returns when all stand still.
    pub(super) fn begin(&self) {
        self.wait(&self.begun);
    }
    /// Returns when all have been looked at.
    pub(super) fn end(&self) {
        self.wait(&self.ended);
    }
    fn wait(&self, count: &AtomicUsize) {
        count.fetch_add(1, Ordering::AcqRel);
        while count.load(Ordering::Acquire) < self.of {
            if Instant::now() >= self.until {
                return self.broken.store(true, Ordering::Release);
            }
            std::thread::sleep(LOOKS);
        }
    }
    /// Whether all did.
    pub(super) fn was_whole(&self) -> bool {
        !self.broken.load(Ordering::Acquire)
    }
}

/// CPU time, in seconds.
pub(super) fn cpu_of(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn counted(counts: &Counters) -> Map<String, Value> {
    counts.each().into_iter().map(|(name, count)| (name, json!(count))).collect()
}

/// A port processor as its process knows it.
pub(super) struct Seen<'a> {
    pub(super) name: &'a str,
    pub(super) ports: &'a [u16],
    pub(super) core: Option<usize>,
    /// Its state, unless it has ended.
    pub(super) state: Option<Value>,
    /// Why it has ended.
    pub(super) ended: Option<String>,
    pub(super) counts: &'a [Counters],
    pub(super) stages: &'a Stages,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// All port processors as one router. `names` are those of its ports.
pub(super) fn together(names: &[String], all: &[Seen<'_>], passed: &[Vec<Passed>]) -> Value {
    // Those that run have gone on since they were looked at: what they counted then is of the same moment as the rest.
    let sent_by = |from: usize, to: usize| match &all[from].state {
        Some(state) => number(&state["sent"][to]),
        None => passed[from][to].sent.load(Relaxed),
    };
    let taken_by = |from: usize, to: usize| match &all[to].state {
        Some(state) => number(&state["taken"][from]),
        None => passed[from][to].taken.load(Relaxed),
    };
    let flying = |from: usize, to: usize| sent_by(from, to).saturating_sub(taken_by(from, to));
    let mut inside = 0;
    let mut processors = Vec::new();
    let mut lost = vec![0; names.len()];
    for (at, seen) in all.iter().enumerate() {
        let others = 0..all.len();
        let sent: u64 = others.clone().map(|to| sent_by(at, to)).sum();
        let taken: u64 = others.clone().map(|from| taken_by(from, at)).sum();
        let to_it: u64 = others.map(|from| flying(from, at)).sum();
        let mut shown = json!({
            "name": seen.name,
            "ports": seen.ports.iter().map(|port| &names[usize::from(*port)]).collect::<Vec<_>>(),
            "core": seen.core,
            "handed-over": sent,
            "taken-over": taken,
        });
        match &seen.state {
            Some(state) => {
                inside += number(&state["waiting-inside"]) + to_it;
                for key in [
                    "real-time",
                    "cpu",
                    "elapsed",
                    "waiting-inside",
                    "backlog",
                    "free-frames",
                    "fabric",
                ] {
                    shown[key] = state[key].clone();
                }
            }
            None => {
                // What it had is lost: all that it took and has neither passed on nor dropped.
                let sum = |of: fn(&Counters) -> u64| seen.counts.iter().map(of).sum::<u64>();
                let came = sum(|count| count.received.load(Relaxed) + count.made.load(Relaxed));
                let went = sum(|count| count.sent.load(Relaxed) + count.dropped_sum());
                let own = (came + taken).saturating_sub(went + sent) + to_it;
                lost[usize::from(seen.ports[0])] += own;
                shown["ended"] = json!(seen.ended);
            }
        }
        processors.push(shown);
    }
    let states = || all.iter().filter_map(|seen| seen.state.as_ref());
    let ports = names.iter().enumerate().map(|(port, name)| {
        let mut counts: Map<String, Value> = Map::new();
        for seen in all {
            let own = match &seen.state {
                Some(state) => state["ports"][port]["counts"].as_object().cloned(),
                None => Some(counted(&seen.counts[port])),
            };
            for (name, count) in own.unwrap_or_default() {
                // Nothing is held by one that has ended.
                if name == "held" && seen.state.is_none() {
                    continue;
                }
                let sum = counts.get(&name).map_or(0, number) + number(&count);
                counts.insert(name, json!(sum));
            }
        }
        if lost[port] > 0 {
            counts.insert("dropped/ended".to_owned(), json!(lost[port]));
        }
        let owner = all.iter().find(|seen| seen.ports.contains(&(port as u16)));
        let own = owner.and_then(|seen| seen.state.as_ref()).map(|state| &state["ports"][port]);
        json!({
            "name": name,
            "processor": owner.map(|seen| seen.name),
            "up": own.is_some_and(|own| own["up"] == json!(true)),
            "mtu": own.map_or(0, |own| number(&own["mtu"])),
            "waiting": own.map_or(0, |own| number(&own["waiting"])),
            "waiting-bytes": own.map_or(0, |own| number(&own["waiting-bytes"])),
            "counts": counts,
        })
    });
    let ports: Vec<Value> = ports.collect();
    let sum = |key: &str| states().map(|state| number(&state[key])).sum::<u64>();
    let elapsed = states().filter_map(|state| state["elapsed"].as_f64()).fold(0.0, f64::max);
    let spent = |stage: usize| -> u64 {
        all.iter().map(|seen| seen.stages.spent[stage].load(Relaxed)).sum()
    };
    let timed: u64 = all.iter().map(|seen| seen.stages.packets.load(Relaxed)).sum();
    let queued: u64 = all.iter().map(|seen| seen.stages.queued.load(Relaxed)).sum();
    json!({
        "flows": flows(states()),
        "ports": ports,
        "plugins": plugins(all),
        "processors": processors,
        "held-for-neighbours": sum("held-for-neighbours"),
        "held-inside": inside,
        "free-frames": sum("free-frames"),
        "elapsed": elapsed,
        "stages": {
            "names": super::count::STAGES,
            "spent": (0..super::count::STAGES.len()).map(spent).collect::<Vec<_>>(),
            "packets": timed,
            "queued": queued,
        },
    })
}

/// Adds what the programs at the ports handle without a port processor, which was counted a little later.
pub(super) fn add_handled(shown: &mut Value, shared: &Shared) {
    for (port, shown) in shown["ports"].as_array_mut().into_iter().flatten().enumerate() {
        let handled = shared.handled(port as u32);
        for (name, count) in [
            ("fast", handled.forwarded.packets),
            ("fast-bytes", handled.forwarded.bytes),
            ("to-kernel", handled.to_kernel),
        ] {
            if count > 0 {
                shown["counts"][name] = json!(count);
            }
        }
    }
}

/// Flows: packets are counted where they arrive, reservations where they leave.
fn flows<'a>(states: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for state in states {
        for (at, flow) in state["flows"].as_array().into_iter().flatten().enumerate() {
            match all.get_mut(at) {
                None => all.push(flow.clone()),
                Some(own) => {
                    own["packets"] = json!(number(&own["packets"]) + number(&flow["packets"]));
                    if own["reserved"].is_null() {
                        own["reserved"] = flow["reserved"].clone();
                    }
                }
            }
        }
    }
    all
}

/// Plugins: each port processor has its own instance, with a state of its own.
fn plugins(all: &[Seen<'_>]) -> Vec<Value> {
    let mut plugins: Vec<Value> = Vec::new();
    for seen in all {
        let Some(state) = &seen.state else { continue };
        for (at, plugin) in state["plugins"].as_array().into_iter().flatten().enumerate() {
            let mut plugin = plugin.clone();
            let report = plugin["report"].as_str().unwrap_or_default().to_owned();
            if all.len() > 1 && !report.is_empty() {
                plugin["report"] = json!(format!("{}:\n{report}", seen.name));
            }
            let Some(own) = plugins.get_mut(at) else {
                plugins.push(plugin);
                continue;
            };
            for key in ["seen", "denied", "changed", "failures"] {
                own[key] = json!(number(&own[key]) + number(&plugin[key]));
            }
            if own["last-failure"].is_null() {
                own["last-failure"] = plugin["last-failure"].clone();
            }
            let reports = [&own["report"], &plugin["report"]].map(|r| r.as_str().unwrap_or(""));
            own["report"] = json!(reports.join("\n").trim().to_owned());
        }
    }
    plugins
}

impl PortProcessor {
    /// What can be seen of it.
    pub(super) fn state(&mut self) -> Value {
        let now = self.now();
        for (port, counts) in self.ports.iter().zip(self.counts.iter()) {
            counts.held.store(port.output.waiting(), Relaxed);
        }
        let ports = self.ports.iter().zip(self.counts.iter()).map(|(port, counts)| {
            let counts = counted(counts);
            json!({
                "name": port.name,
                "up": port.output.up,
                "mtu": port.mtu,
                "waiting": port.output.waiting(),
                "waiting-bytes": port.output.waiting_bytes(),
                "counts": counts,
            })
        });
        let ports: Vec<Value> = ports.collect();
        let plugins: Vec<Value> = self
            .plugins
            .iter_mut()
            .map(|plugin| {
                let (failures, last) = plugin.failures();
                json!({
                    "name": plugin.name,
                    "seen": plugin.seen,
                    "denied": plugin.denied,
                    "changed": plugin.changed,
                    "failures": failures,
                    "last-failure": last,
                    "report": plugin.report(now),
                })
            })
            .collect();
        let flows = self.treatments.iter().map(|flow| {
            let place = flow.reserved.and_then(|(port, number)| {
                let own = &self.ports[usize::from(port)];
                own.output.reserved.counts().nth(number as usize)
            });
            let reserved = place.map(|(promise, waiting, counts)| {
                json!({
                    "rate": promise.rate.as_bits(),
                    "waiting": waiting,
                    "within": counts.within,
                    "beyond": counts.beyond,
                    "bytes": counts.bytes,
                    "dropped": counts.dropped,
                    "waited-most": counts.waited_most as f64 / 1e12,
                })
            });
            json!({ "name": flow.name, "packets": flow.seen, "reserved": reserved })
        });
        let flows: Vec<Value> = flows.collect();
        let [sent, taken] = self.crossing.as_ref().map(Crossing::passed).unwrap_or_default();
        json!({
            "sent": sent,
            "taken": taken,
            "flows": flows,
            "ports": ports,
            "plugins": plugins,
            "held-for-neighbours": self.held.len(),
            "free-frames": self.frames.free_count(),
            "real-time": self.real_time,
            "elapsed": self.began.elapsed().as_secs_f64(),
            "cpu": cpu_of(ClockId::ThreadCPUTime),
            "waiting-inside": self.crossing.as_ref().map_or(0, Crossing::waiting),
            "backlog": self.crossing.as_ref().map(|crossing| crossing.backlog().to_vec()),
            "fabric": self.crossing.as_ref().and_then(Crossing::shown),
        })
    }
}
