//! What a live VuNet has to say: tables with three columns (published, model, here), the ledger, its certificate.

use super::line::{Lateness, Passed, STEPS};
use super::net::Id;
use super::plan::{Plan, ViewPlan};
use super::programs::Program;
use super::shows::Shown;
use super::{Alone, Distance, EVERY, Measured, REFRESH, Restart};
use crate::{emulate, output};
use lastmeter_lab::experiment::Experiment;
use lastmeter_ledger::figures::{rate, significant, time};
use lastmeter_ledger::{
    Certificate, Confidence, Count, Counter, Lag, Latency, Ledger, Path, Provenance, Resource,
    Stage, Times, Totals, Verdict, terminal,
};
use lastmeter_wire::atm::vunet::VUNET_CELL_LEN;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The share of bursts that must leave in time, and what in time is, in ns.
const REQUIRED: f64 = 0.99;
const TOLERANCE: u64 = 1_000_000;
/// How long after the first verification a repaired link may take to carry cells again, in ns: a round trip, and the
/// scheduler of a busy machine.
const GRACE: u64 = 200_000_000;
/// What a switch carries in all by the document, in bit/s, by its ports.
const PUBLISHED: [(usize, f64); 2] = [(4, 2.8e9), (6, 4.2e9)];

pub(super) struct Report<'a> {
    plan: &'a Plan,
    measured: &'a Measured,
    pub(super) ledger: Ledger,
    /// Whether everything is as it should be.
    pub(super) good: bool,
}

/// Totals of the cells that crossed wires.
struct Cells {
    passed: Passed,
    dropped: BTreeMap<String, u64>,
}

impl<'a> Report<'a> {
    pub(super) fn new(experiment: &Experiment, plan: &'a Plan, measured: &'a Measured) -> Self {
        let mut report =
            Report { plan, measured, ledger: ledger(experiment, plan, measured), good: true };
        let certificate = certificate(measured);
        let seen = measured.seen.iter().all(|seen| {
            let of = |name: &str| seen.counts.get(name).copied().unwrap_or(0);
            of("peer") == 1 && of("frames") > 0
        });
        let repaired = measured.restart.as_ref().is_none_or(Restart::is_repaired);
        let made = measured.distances.iter().all(|one| !one.application.is_empty());
        let looked = measured.programs.is_empty() || !measured.seen.is_empty();
        report.good = measured.wrong.is_empty()
            && (seen && looked)
            && (repaired && made)
            && certificate.kept_up;
        report.ledger.certificate = Some(certificate);
        report
    }

    pub(super) fn words(&self) -> String {
        let mut text = terminal::render(&self.ledger, output::style());
        let Measured { discovered, wrong, restart, .. } = self.measured;
        let found = match &wrong[..] {
            [] => "Every host found exactly what the file says.".to_owned(),
            wrong => {
                format!("Something else than the file says was found by {}.", wrong.join(", "))
            }
        };
        let links = self.plan.links.len();
        let _ = writeln!(
            text,
            "\nDiscovery (A-72): {} switches, {links} links and {} clients in the file; a daemon \
             took {} and {} cells.\n{found}\n",
            self.plan.switches.len(),
            self.plan.clients.len(),
            time(discovered.lasted as f64 / 1e9),
            discovered.cells,
        );
        if !self.measured.distances.is_empty() {
            self.set_up(&mut text);
        }
        self.video(&mut text);
        self.programs(&mut text);
        if let Some(restart) = restart {
            text += &restart.words();
        }
        if !self.measured.alone.is_empty() {
            self.switch(&mut text);
        }
        let Cells { passed, dropped } = cells(self.measured);
        let _ = writeln!(
            text,
            "\nCells over all wires: {} sent in datagrams of {:.1}, {} lost by the kernel, {} to a \
             process that was gone, {} in full FIFOs; dropped by switches and links: {}",
            passed.sent,
            (passed.sent + passed.received) as f64 / passed.datagrams.max(1) as f64,
            passed.lost,
            passed.nobody,
            passed.full,
            reasons(&dropped),
        );
        text
    }

    fn set_up(&self, text: &mut String) {
        text.push_str(
            "Set-up of a connection (A-69), medians; the document gives no times.\n\
             links  by the application            hop by hop                    model, by the\n\
            \x20      answered      first data      answered      first data      application   \
             cells\n",
        );
        for one in &self.measured.distances {
            let [answered, there, hop_answered, hop_there] = one.medians();
            let cell = |value: Option<f64>| value.map_or("-".to_owned(), time);
            let _ = writeln!(
                text,
                "{:5}{} {:>12}  {:>13}  {:>12}  {:>13}  {:>15}  {:>6}",
                one.links,
                if one.wide { "w" } else { " " },
                cell(answered),
                cell(there),
                cell(hop_answered),
                cell(hop_there),
                cell(one.model),
                one.cells,
            );
        }
        let failed: u32 = self.measured.distances.iter().map(|one| one.failed).sum();
        let _ = writeln!(text, "w: across the wide area. Without an answer: {failed}.\n");
    }

    fn video(&self, text: &mut String) {
        text.push_str(
            "Video (A-01, A-89)     links  frames/s: here  model  incomplete  slowest: here  \
             model\n",
        );
        for (view, line) in self.plan.views.iter().zip(self.views()) {
            let _ = writeln!(
                text,
                "{:21} {:6}  {:>14}  {:>5}  {:>10}  {:>13}  {:>9}",
                self.name(view),
                line.links,
                format!("{:.1}", line.frames),
                line.modelled.map_or("-".to_owned(), |frames| format!("{frames:.1}")),
                line.incomplete,
                time(line.slowest),
                line.slowest_modelled.map_or("-".to_owned(), time),
            );
        }
        text.push('\n');
    }

    /// What programs were shown, and which switches it passed.
    fn programs(&self, text: &mut String) {
        let Measured { programs, shown, crossed, .. } = self.measured;
        for Program { host, words, status, .. } in programs {
            let ended = match status {
                Some(status) => format!("ended with status {status}"),
                None => "ran until the end".to_owned(),
            };
            let _ = writeln!(text, "At {host}: {words}\n  {ended}");
        }
        for (view, one) in self.plan.views.iter().zip(shown) {
            let (name, Shown { given, cells, .. }) = (self.name(view), one);
            let _ = writeln!(text, "{name}: the program took {given} pictures of {cells} cells");
        }
        if !programs.is_empty() {
            let passed: Vec<String> =
                crossed.iter().map(|(name, cells)| format!("{name} {cells}")).collect();
            let _ = writeln!(text, "Cells that each switch took: {}", passed.join(", "));
        }
    }

    fn switch(&self, text: &mut String) {
        text.push_str(
            "\nA switch alone (A-24), its hosts on the same cores\n\
             ports  cells a datagram    cells/s          rate       published      lost  \
             cells a CPU second\n",
        );
        for one in &self.measured.alone {
            let _ = writeln!(
                text,
                "{:5}  {:>16}  {:>9}  {:>12}  {:>14}  {:>8}  {:>18}",
                one.ports,
                one.cells,
                significant(one.rate()),
                rate(one.bits()),
                one.published().map_or("-".to_owned(), rate),
                format!("{:.1} %", one.lost() * 100.0),
                significant(one.received as f64 / one.cpu.max(1e-9)),
            );
        }
    }

    fn name(&self, view: &ViewPlan) -> String {
        let of = |number| self.plan.client(number).map_or("?", |client| client.name.as_str());
        format!("{} -> {}", of(view.camera), of(view.host))
    }

    fn views(&self) -> Vec<Line> {
        let duration = self.ledger.duration;
        let lines = self.plan.views.iter().zip(&self.measured.seen).map(|(view, seen)| {
            let model = self.measured.modelled.get(&view.name);
            let here = |name: &str| seen.counts.get(name).copied().unwrap_or(0) as f64;
            let there = |name: &str| Some(*model?.get(name)? as f64);
            Line {
                links: seen.links,
                frames: here("frames") / duration,
                modelled: there("frames").map(|frames| frames / duration),
                incomplete: here("incomplete") as u64,
                slowest: here("frame_latency_max_ps") / 1e12,
                slowest_modelled: there("frame_latency_max_ps").map(|ps| ps / 1e12),
                set_up: here("set_up_ps") / 1e12,
                set_up_modelled: there("set_up_ps").map(|ps| ps / 1e12),
            }
        });
        lines.collect()
    }

    pub(super) fn json(&self) -> Value {
        let mut value = serde_json::to_value(&self.ledger).unwrap_or_default();
        let distances = self.measured.distances.iter().map(|one| {
            let [answered, there, hop_answered, hop_there] = one.medians();
            json!({
                "links": one.links, "wide": one.wide, "cells": one.cells, "failed": one.failed,
                "application": { "answered": answered, "data": there, "model": one.model },
                "hop_by_hop": { "answered": hop_answered, "data": hop_there },
            })
        });
        let views = self.plan.views.iter().zip(self.views()).map(|(view, line)| {
            json!({
                "name": view.name, "between": self.name(view), "links": line.links,
                "frames": { "here": line.frames, "model": line.modelled },
                "incomplete": line.incomplete,
                "slowest": { "here": line.slowest, "model": line.slowest_modelled },
                "set_up": { "here": line.set_up, "model": line.set_up_modelled },
            })
        });
        let alone = self.measured.alone.iter().map(|one| {
            json!({
                "ports": one.ports, "cells": one.cells, "rate": one.rate(), "bits": one.bits(),
                "published": one.published(), "lost": one.lost(),
                "per_cpu_second": one.received as f64 / one.cpu.max(1e-9),
            })
        });
        let shown = self.plan.views.iter().zip(&self.measured.shown).map(|(view, one)| {
            let of = |number| self.plan.client(number).map(|client| client.name.as_str());
            let frames = one.seen.counts.get("frames");
            json!({
                "host": of(view.host), "camera": of(view.camera), "links": one.seen.links,
                "given": one.given, "cells": one.cells, "frames": frames,
                "bytes": view.frame_len(),
            })
        });
        let programs = self
            .measured
            .programs
            .iter()
            .map(|one| json!({ "host": one.host, "words": one.words, "status": one.status }));
        let crossed = self.measured.crossed.iter();
        let crossed = crossed.map(|(name, cells)| json!({ "name": name, "cells": cells }));
        let Cells { passed, dropped } = cells(self.measured);
        let discovered = &self.measured.discovered;
        value["vunet"] = json!({
            "schema": "lastmeter.vunet/1",
            "good": self.good,
            "discovery": {
                "right": self.measured.wrong.is_empty(), "wrong": self.measured.wrong,
                "lasted": discovered.lasted as f64 / 1e9,
                "cells": discovered.cells, "switches": discovered.switches.len(),
            },
            "set_up": distances.collect::<Vec<_>>(),
            "video": views.collect::<Vec<_>>(),
            "restart": self.measured.restart.as_ref().map(Restart::json),
            "switch": alone.collect::<Vec<_>>(),
            "programs": programs.collect::<Vec<_>>(),
            "shown": shown.collect::<Vec<_>>(),
            "crossed": crossed.collect::<Vec<_>>(),
            "cells": { "sent": passed.sent, "received": passed.received, "lost": passed.lost,
                       "nobody": passed.nobody, "full": passed.full, "damaged": passed.damaged,
                       "datagrams": passed.datagrams, "dropped": dropped },
        });
        value
    }
}

/// A viewer, in frames a second and seconds.
struct Line {
    links: usize,
    frames: f64,
    modelled: Option<f64>,
    incomplete: u64,
    slowest: f64,
    slowest_modelled: Option<f64>,
    set_up: f64,
    set_up_modelled: Option<f64>,
}

impl Distance {
    /// Seconds: by the application until answered and until the first data is there, and the same hop by hop.
    fn medians(&self) -> [Option<f64>; 4] {
        let of = |times: &[super::Once], which: fn(&super::Once) -> u64| {
            let mut all: Vec<u64> = times.iter().map(which).collect();
            all.sort_unstable();
            all.get(all.len() / 2).map(|&ns| ns as f64 / 1e9)
        };
        [
            of(&self.application, |once| once.answered),
            of(&self.application, |once| once.there),
            of(&self.hop_by_hop, |once| once.answered),
            of(&self.hop_by_hop, |once| once.there),
        ]
    }
}

impl Restart {
    /// From the start of the new process until the first cell behind it, in ns.
    fn repaired_after(&self) -> u64 {
        self.counted.after.saturating_sub(self.restarted)
    }

    fn is_repaired(&self) -> bool {
        self.counted.missing > 0 && self.repaired_after() <= REFRESH + GRACE
    }

    fn words(&self) -> String {
        let out = self.counted.after.saturating_sub(self.counted.before);
        format!(
            "Restart (A-71): half of {}, on a connection over {} links, was killed and was gone \
             for {}. A refresher\nthat verifies every {} wrote links again {} times; cells passed \
             {} \
             after the restart. One cell every {}:\n{} sent, {} in a row lost in {}, {} lost \
             elsewhere.\n",
            self.link,
            self.links,
            time(self.restarted.saturating_sub(self.killed) as f64 / 1e9),
            time(REFRESH as f64 / 1e9),
            self.streamed.refreshed.len(),
            time(self.repaired_after() as f64 / 1e9),
            time(EVERY as f64 / 1e9),
            self.streamed.sent,
            self.counted.missing,
            time(out as f64 / 1e9),
            self.elsewhere(),
        )
    }

    fn elsewhere(&self) -> u64 {
        self.streamed.sent.saturating_sub(self.counted.arrived + self.counted.missing)
    }

    fn json(&self) -> Value {
        json!({
            "link": self.link, "links": self.links,
            "gone": self.restarted.saturating_sub(self.killed) as f64 / 1e9,
            "refresh": REFRESH as f64 / 1e9,
            "repaired_after": self.repaired_after() as f64 / 1e9,
            "repaired": self.is_repaired(),
            "written": self.streamed.refreshed.len(),
            "sent": self.streamed.sent, "arrived": self.counted.arrived,
            "lost": self.counted.missing, "lost_elsewhere": self.elsewhere(),
        })
    }
}

impl Alone {
    fn rate(&self) -> f64 {
        self.received as f64 / self.lasted.max(1e-9)
    }
    fn bits(&self) -> f64 {
        self.rate() * VUNET_CELL_LEN as f64 * 8.0
    }
    fn lost(&self) -> f64 {
        self.sent.saturating_sub(self.received) as f64 / self.sent.max(1) as f64
    }
    fn published(&self) -> Option<f64> {
        PUBLISHED.into_iter().find(|(ports, _)| *ports == self.ports).map(|(_, rate)| rate)
    }
}

fn cells(measured: &Measured) -> Cells {
    let mut cells = Cells { passed: Passed::default(), dropped: BTreeMap::new() };
    for report in measured.reports.values() {
        cells.passed += report.passed;
        for (reason, count) in &report.dropped {
            *cells.dropped.entry(reason.clone()).or_insert(0) += count;
        }
    }
    cells
}

fn reasons(dropped: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> =
        dropped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// Whether the boards' bursts and the wide area kept their times.
fn certificate(measured: &Measured) -> Certificate {
    let late: &Lateness = &measured.late;
    let within = |us: u64| late.within(us * 1000);
    let on_time = late.within(TOLERANCE);
    let kept_up = late.count() > 0 && on_time >= REQUIRED;
    let lags = STEPS.iter().zip(late.steps).filter(|(_, departures)| *departures > 0);
    let lags = lags.map(|(&step, departures)| {
        let at_most = if step == u64::MAX { f64::MAX } else { step as f64 / 1e9 };
        Lag { at_most, departures }
    });
    let verb = if kept_up { "Kept up" } else { "Did NOT keep up" };
    let words = format!(
        "{verb}: {:.2} % of {} departures (bursts of cameras, datagrams of the wide area) within 1 \
         ms of their time, the latest {}; {:.0} % required.",
        on_time * 100.0,
        late.count(),
        time(late.worst as f64 / 1e9),
        REQUIRED * 100.0,
    );
    Certificate {
        kept_up,
        within_10us: within(10),
        within_20us: within(20),
        within_100us: within(100),
        within_1ms: within(1000),
        worst_lag: late.worst as f64 / 1e9,
        overruns: cells(measured).passed.full,
        departures: late.count(),
        required: REQUIRED,
        tolerance: TOLERANCE as f64 / 1e9,
        shortfall: 0.0,
        cpu: measured.cpu.values().sum::<f64>() / measured.lasted.max(1e-9),
        stages: BTreeMap::new(),
        lags: lags.collect(),
        words,
    }
}

fn ledger(experiment: &Experiment, plan: &Plan, measured: &Measured) -> Ledger {
    let duration = measured.duration;
    let name = |number| plan.client(number).map_or("?", |client| client.name.as_str());
    let paths = plan.views.iter().zip(&measured.seen).map(|(view, seen)| {
        let frames = seen.counts.get("frames").copied().unwrap_or(0);
        let bytes = frames * view.frame_len();
        let passed = Count { packets: frames, bytes };
        let ps = |name: &str| seen.counts.get(name).copied().unwrap_or(0) as f64 / 1e12;
        let mean = ps("frame_latency_sum_ps") / frames.max(1) as f64;
        let max = Some(ps("frame_latency_max_ps"));
        let totals = Totals {
            latency: (frames > 0).then_some(Latency { mean, p50: None, p99: None, max }),
            ..Totals::new(passed, bytes as f64 * 8.0 / duration)
        };
        // From the capture until the frame is complete; a cell carries no record of its stages.
        let name_of = format!("{}: bursts, switches and {} links", view.name, seen.links);
        let service = (frames > 0).then(|| Times::mean(mean));
        let stage = Stage { service, ..Stage::new(name_of, None, passed) };
        let between = format!("{}->{}", name(view.camera), name(view.host));
        Path::new(between, view.name.clone(), vec![stage], totals)
    });
    let cores = lastmeter_linux::cores::allowed().map_or(1, |cores| cores.len().max(1)) as f64;
    let resources = measured.cpu.iter().map(|(kind, seconds)| {
        let busy = (seconds / (measured.lasted.max(1e-9) * cores)).min(1.0);
        Resource::new(format!("cpu of {kind}"), "cpu", busy, None)
    });
    let mut provenance = Provenance::new(env!("CARGO_PKG_VERSION"), "L0");
    provenance.host = Some(emulate::machine());
    let (paths, resources) = (paths.collect(), resources.collect());
    let mut ledger = Ledger::new(experiment.title.clone(), duration, paths, resources, provenance);
    let used: f64 = ledger.resources.iter().map(|resource| resource.busy).sum();
    ledger.verdict = Some(Verdict {
        resource: None,
        utilisation: None,
        confidence: Confidence::Undecided,
        runner_up: None,
        words: format!(
            "The processes of the network used {:.0} % of {cores} cores. What else limits the \
             frames (the cameras' own bursts, this machine's scheduler) was not separated.",
            used * 100.0
        ),
    });
    ledger.notes = vec![
        "A packet is a frame of video. Shares of resources are of all cores of this machine."
            .to_owned(),
    ];
    for (id, report) in &measured.reports {
        if let Id::Half(link, end) = id {
            let names = ["mapped", "unknown", "controls", "written", "refused"];
            let element = format!("{} {}", plan.links[*link].name, ["A", "B"][*end]);
            let counter = |(name, value): (&str, u64)| Counter {
                element: element.clone(),
                name: name.to_owned(),
                value,
            };
            ledger.counters.extend(names.into_iter().zip(report.totals).map(counter));
        }
    }
    ledger
}
