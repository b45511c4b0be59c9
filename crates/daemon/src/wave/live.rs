//! `lastmeter live wave-video` (D-95 to D-105): an experiment with plugins as namespaces with the live router, beside
//! its own model.
//!
//! ```text
//! experiment --> model, with the plugins and without ------------------------------+
//!         '----> namespaces: plain queueing, then with the plugins: fetched at the  +--> side by side
//!                first packet from a code server at a neighbour --------------------+
//! ```

use super::draw;
use super::net::{self, Owned};
use super::part::{self, Flow, Log, Plan, Seen, Sent, Video, What};
use super::report::{plots, report};
use crate::measured::Folder;
use crate::model::Sandbox;
use crate::{Complaint, Report};
use lastmeter::world::{self, Disk};
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_engine::Serial;
use lastmeter_lab::document::{Override, Problem};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Library;
use lastmeter_lab::run::{Runner, Watch, outcome};
use lastmeter_ledger::html::curves;
use lastmeter_wave::kind;
use lastmeter_wave::measure::{self, Burst, Shot};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// From when all hosts are ready to the beginning of the run, in ns.
const PREPARES: u64 = 300_000_000;
/// How long hosts may take to be ready, in ns: they make their films.
const PATIENCE: u64 = 100_000_000_000;
/// How often a router is asked whether anything has come.
const LOOKS: std::time::Duration = std::time::Duration::from_millis(2);
/// The port of the code server.
const SERVER: u16 = 7070;

#[derive(clap::Args)]
pub(crate) struct Live {
    /// The file, the folder, or the name of a bundled experiment with `wave-video` traffic
    #[arg(default_value = "wave-video")]
    experiment: String,
    /// Override one value of the file; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Write PSNR over time, live and modelled, and the sub-bands that arrived live into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// A pass: the logs of all hosts, and how the plugins got there.
pub(super) struct Pass {
    pub(super) logs: BTreeMap<String, Log>,
    pub(super) deployed: Option<Deployed>,
    /// What routers dropped, by reason.
    pub(super) dropped: BTreeMap<String, u64>,
}

/// The way of a plugin from the code server, in ns from the beginning of the run.
pub(super) struct Deployed {
    /// The router saw a packet of the stream.
    pub(super) noticed: u64,
    /// The module was there, verified.
    pub(super) fetched: u64,
    /// The router had it.
    pub(super) loaded: u64,
    /// A packet had passed it.
    pub(super) passed: u64,
    /// Stages of the fetch with their seconds.
    pub(super) stages: Vec<(String, f64)>,
}

/// An experiment, ready to be run both ways.
struct Subject {
    disk: Disk,
    experiment: Experiment,
    /// With routers in place of the plugins.
    plain: Experiment,
    plan: net::Plan,
    flows: Vec<Flow>,
}

/// What a receiver is compared by.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) host: String,
    pub(super) cross: usize,
    /// PSNR in bursts: plain, scaled; each live, model.
    pub(super) psnr: [[f64; 2]; 2],
    pub(super) broken: [usize; 2],
    /// Frames of which something came, scaled.
    pub(super) something: usize,
    pub(super) settled: Vec<Duration>,
    pub(super) first_drop: Option<Duration>,
    pub(super) rate: [f64; 2],
    pub(super) over_time: [[Vec<Shot>; 2]; 2],
}

pub(crate) fn live(arguments: &Live) -> Result<Report, Complaint> {
    let stop = crate::signals()?;
    let subject = Subject::new(arguments)?;
    let folder = Folder::new(&std::env::temp_dir(), "wave")?;
    let video = subject.video()?;
    let modelled = [&subject.plain, &subject.experiment].map(|one| subject.model(one));
    let [plain_model, scaled_model] = modelled;
    let (plain_model, scaled_model) = (plain_model?, scaled_model?);
    let plain = subject.pass(folder.path(), false, &stop)?;
    let scaled = subject.pass(folder.path(), true, &stop)?;
    let receivers = subject.flows.iter().filter(|flow| matches!(flow.what, What::Video(_)));
    let rows = receivers.map(|flow| {
        let models = [&plain_model, &scaled_model];
        subject.row(flow, &video, [&plain, &scaled], models)
    });
    let rows: Vec<Row> = rows.collect();
    let late = [&plain, &scaled].map(|pass| pass.logs.values().map(|log| log.late).max());
    let late = late.into_iter().flatten().max().unwrap_or(0);
    if let Some(out) = &arguments.out {
        std::fs::create_dir_all(out)?;
        let page = curves("Wave Video: live beside its model", &plots(&video, &rows));
        std::fs::write(out.join("wave-video.html"), page)?;
        for row in &rows {
            let (bursts, _) = subject.bursts(&row.host);
            let in_burst = |frame| measure::in_burst(&video, &bursts, frame);
            let [[plain, _], [scaled, _]] = &row.over_time;
            let path = out.join(format!("{}-bands.png", row.host));
            draw::histograms(&path, &in_burst, plain, scaled)?;
        }
    }
    Ok(report(&rows, &plain, &scaled, late))
}

impl Subject {
    fn new(arguments: &Live) -> Result<Subject, Complaint> {
        let found = world::experiment(&arguments.experiment).map_err(|wrong| Complaint(wrong.0))?;
        let disk = Disk::new(found.folder.clone()).with(Some(Arc::new(Sandbox::default())));
        let parse = |more: &[String]| -> Result<Experiment, Complaint> {
            let texts = arguments.sets.iter().chain(more);
            let sets = texts.map(|text| Override::parse(text)).collect::<Result<Vec<_>, _>>();
            let sets = sets.map_err(|problem| said(&problem))?;
            Experiment::parse(&found.name, &found.text, &sets, &disk).map_err(|all| said(&all))
        };
        let experiment = parse(&[])?;
        let plan = net::Plan::of(&experiment)?;
        let routers =
            plan.plugins.iter().map(|own| format!("nodes.{}={{ router = {{}} }}", own.name));
        let plain = parse(&routers.collect::<Vec<_>>())?;
        let flows = flows(&experiment, &plan)?;
        Ok(Subject { disk, experiment, plain, plan, flows })
    }

    /// How the streams are coded: all alike.
    fn video(&self) -> Result<lastmeter_wave::stream::Options, Complaint> {
        let videos = self.experiment.traffic.iter().filter(|traffic| is_video(&traffic.kind));
        let options: Vec<_> = videos.map(|traffic| kind::options(&traffic.kind.values)).collect();
        match options.first() {
            Some(first) if options.iter().all(|one| one == first) => Ok(*first),
            Some(_) => {
                Err(Complaint("its videos differ: a live run has one for all receivers".into()))
            }
            None => {
                Err(Complaint("it has no `wave-video` traffic, which a live run is about".into()))
            }
        }
    }

    /// What each receiver shows in the model, by the name of its stream.
    fn model(&self, experiment: &Experiment) -> Result<BTreeMap<String, Vec<Shot>>, Complaint> {
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: &self.disk, watch: &watch };
        let outcome = outcome(experiment, runner);
        let outcome = outcome.map_err(|failure| Complaint(failure.to_string()))?;
        let video = self.video()?;
        let videos = self.flows.iter().filter(|flow| matches!(flow.what, What::Video(_)));
        let shots = videos.map(|flow| {
            let name = format!("{} shows {}", flow.to, flow.name);
            let report = outcome.elements.iter().find(|report| report.name == name);
            let shots = report.and_then(|report| measure::shots(&video, report));
            let shots = shots.ok_or_else(|| {
                let (name, right) = (&flow.name, "make `duration` shorter");
                Complaint(format!("frames of `{name}` cannot be told apart in the model: {right}"))
            })?;
            Ok((flow.name.clone(), shots))
        });
        shots.collect()
    }

    /// Bursts of cross traffic to a host, and how many streams there are in them.
    fn bursts(&self, host: &str) -> (Vec<Burst>, usize) {
        let cross = self.flows.iter().filter(|flow| flow.to == host && !flow.is_video());
        let length = self.experiment.duration.as_ps() / 1000;
        let spans = cross.map(|flow| (flow.start, flow.stop.min(length)));
        let mut spans: Vec<(u64, u64)> = spans.filter(|(from, to)| from < to).collect();
        spans.sort_unstable();
        let most = spans.iter().map(|&(from, _)| {
            let here = |&&(start, stop): &&(u64, u64)| start <= from && from < stop;
            spans.iter().filter(here).count()
        });
        let most = most.max().unwrap_or(0);
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (from, to) in spans {
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        let time = |ns: u64| Duration::from_ps(ns * 1000);
        (joined.into_iter().map(|(from, to)| (time(from), time(to))).collect(), most)
    }

    /// Runs the experiment in namespaces.
    fn pass(&self, folder: &Path, scaled: bool, stop: &AtomicBool) -> Result<Pass, Complaint> {
        let mut live = net::Live::new(&self.plan, folder)?;
        for router in &self.plan.routers {
            std::fs::write(live.file(router), self.plan.router_file(router, false))?;
            live.router(router)?;
        }
        let source = scaled.then(|| self.code_server(&mut live, folder)).transpose()?;
        let length = self.experiment.duration.as_ps() / 1000;
        let plan = Plan { length, flows: self.flows.clone() };
        let file = folder.join("plan.json");
        std::fs::write(&file, serde_json::to_vec(&plan)?)?;
        let file = file.to_string_lossy().into_owned();
        let mut hosts: Vec<&String> =
            self.flows.iter().flat_map(|flow| [&flow.from, &flow.to]).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let _ = std::fs::remove_file(part::start_of(folder));
        let mut parts = Vec::new();
        for host in &hosts {
            let _ = std::fs::remove_file(part::ready_of(folder, host));
            parts.push(live.start(host, &["wave", "part", &file, host])?);
        }
        let start = begin(&live, folder, &hosts, stop)?;
        let (end, source) = (start + length, source.as_deref());
        let deployed = source.map(|source| self.deploy(&live, folder, (start, end), source, stop));
        let deployed = deployed.transpose()?;
        while part::now() < end {
            interrupted(stop)?;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let mut logs = BTreeMap::new();
        for (host, part) in hosts.into_iter().zip(parts) {
            if !live.wait(part)? {
                let log = std::fs::read_to_string(folder.join(format!("{host}.part.log")));
                return Err(Complaint(format!("{host}: {}", log.unwrap_or_default().trim())));
            }
            let text = std::fs::read(part::log_of(folder, host))?;
            logs.insert(host.clone(), serde_json::from_slice(&text)?);
        }
        let dropped = self.dropped(&live)?;
        Ok(Pass { logs, deployed, dropped })
    }

    /// What routers dropped, by reason.
    fn dropped(&self, live: &net::Live) -> Result<BTreeMap<String, u64>, Complaint> {
        let mut all = BTreeMap::new();
        for router in &self.plan.routers {
            let shown = live.ask(router, &json!({ "show": "ports" }))?;
            for port in shown["ports"].as_array().into_iter().flatten() {
                for (name, count) in port["counts"].as_object().into_iter().flatten() {
                    if let Some(reason) = name.strip_prefix("dropped/") {
                        *all.entry(reason.to_owned()).or_default() += count.as_u64().unwrap_or(0);
                    }
                }
            }
        }
        all.retain(|_, count| *count > 0);
        Ok(all)
    }

    /// Signs the module, and serves it at a host that receives no stream; where.
    fn code_server(&self, live: &mut net::Live, folder: &Path) -> Result<String, Complaint> {
        let Some(own) = self.plan.plugins.first() else {
            return Err(Complaint("it has no plugin, which a live run is about".to_owned()));
        };
        let mut module = Vec::new();
        self.disk.open(&own.module)?.read_to_end(&mut module)?;
        std::fs::write(folder.join("module.wasm"), module)?;
        let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let cross = self.flows.iter().find(|flow| !flow.is_video());
        let host = cross.or(self.flows.first()).map_or("", |flow| &flow.from).to_owned();
        let (keys, shop) = (at("keys"), at("shop"));
        live.output(&host, &["plugin", "key", "owner", "--keys", &keys, "--secret", &at("")])?;
        let (module, key) = (at("module.wasm"), at("owner.key"));
        let name = ["--name", "wave-scaler", "--version", "1.0.0", "--into", &shop];
        live.output(&host, &[&["plugin", "sign", &module, "--key", &key], &name[..]].concat())?;
        let address = self.plan.address(&host).ok_or("the code server has no address")?;
        let listen = format!("{address}:{SERVER}");
        live.start(&host, &["plugin", "serve", &shop, "--listen", &listen])?;
        Ok(format!("http://{listen}"))
    }

    /// When the first packet of a stream comes to a router with a plugin: fetches that, and has the router load it.
    fn deploy(
        &self,
        live: &net::Live,
        folder: &Path,
        (start, end): (u64, u64),
        server: &str,
        stop: &AtomicBool,
    ) -> Result<Deployed, Complaint> {
        let router = &self.plan.plugins.first().ok_or("no plugin")?.router;
        let since = || part::now().saturating_sub(start);
        let until = |what: &str, holds: &dyn Fn(&Value) -> bool| -> Result<u64, Complaint> {
            while part::now() < end {
                interrupted(stop)?;
                if holds(&live.ask(router, &json!({ "show": what }))?) {
                    return Ok(since());
                }
                std::thread::sleep(LOOKS);
            }
            Err(Complaint("no packet of the stream came to the router".to_owned()))
        };
        let before = received(&live.ask(router, &json!({ "show": "ports" }))?);
        while part::now() + 20_000_000 < start {
            interrupted(stop)?;
            std::thread::sleep(LOOKS);
        }
        let before = before.max(received(&live.ask(router, &json!({ "show": "ports" }))?));
        let noticed = until("ports", &|shown| received(shown) > before)?;
        let (keys, module) = (folder.join("keys"), folder.join("fetched.wasm"));
        let [keys, out] = [keys, module.clone()].map(|path| path.to_string_lossy().into_owned());
        let fetch = ["--json", "plugin", "fetch", server, "wave-scaler", "--kind", "packet"];
        let told =
            live.output(router, &[&fetch[..], &["--keys", &keys, "--out", &out]].concat())?;
        let fetched = since();
        let ledger: Value = serde_json::from_slice(&told)?;
        let mine = |own: &&Owned| own.router == *router;
        for own in self.plan.plugins.iter().filter(mine) {
            std::fs::copy(&module, folder.join(format!("{}.wasm", own.name)))?;
        }
        std::fs::write(live.file(router), self.plan.router_file(router, true))?;
        live.ask(router, &json!({ "reload": true }))?;
        let loaded = since();
        let passed = until("plugins", &|shown| {
            let plugins = shown["plugins"].as_array();
            plugins.into_iter().flatten().any(|plugin| plugin["seen"].as_u64() > Some(0))
        })?;
        let stages = ledger["paths"][0]["stages"].as_array().into_iter().flatten();
        let stages = stages.filter_map(|stage| {
            Some((stage["name"].as_str()?.to_owned(), stage["service"]["mean"].as_f64()?))
        });
        Ok(Deployed { noticed, fetched, loaded, passed, stages: stages.collect() })
    }

    fn row(
        &self,
        flow: &Flow,
        video: &lastmeter_wave::stream::Options,
        passes: [&Pass; 2],
        models: [&BTreeMap<String, Vec<Shot>>; 2],
    ) -> Row {
        let (bursts, cross) = self.bursts(&flow.to);
        let seen = |pass: &Pass| pass.logs.get(&flow.to).map_or(&[][..], |log| &log.shown).to_vec();
        let shots = |seen: &[Seen]| -> Vec<Shot> {
            seen.iter()
                .map(|&Seen { frame, psnr, bands, .. }| Shot { frame, psnr, bands })
                .collect()
        };
        let live = passes.map(seen);
        let over_time = [0, 1].map(|way| {
            let model = models[way].get(&flow.name).cloned().unwrap_or_default();
            [shots(&live[way]), model]
        });
        // Without bursts, all frames count.
        let whole = [(Duration::ZERO, self.experiment.duration)];
        let spans = if bursts.is_empty() { &whole[..] } else { &bursts };
        let psnr = over_time
            .each_ref()
            .map(|both| both.each_ref().map(|shots| measure::psnr_in_bursts(video, spans, shots)));
        let (passed, first_drop) = passed(flow, passes[1], bursts.first().map(|burst| burst.0));
        let line = self.plan.rate(&flow.to).unwrap_or(Rate::from_mbit(1));
        let granted = Rate::from_bits(line.as_bits() / (1 + cross as u64));
        let settled = bursts.iter().map(|&burst| measure::settled(&passed, burst, granted));
        let rate = passes.map(|pass| {
            let log = pass.logs.get(&flow.to);
            let arrived: Vec<(Time, Bytes)> =
                log.map(|log| log.arrived.iter().map(Sent::arrival).collect()).unwrap_or_default();
            let (from, to) = spans[spans.len() - 1];
            measure::arrival_rate(&arrived, from + Duration::from_secs(1), to)
        });
        Row {
            name: flow.name.clone(),
            host: flow.to.clone(),
            cross,
            psnr,
            broken: live.each_ref().map(|seen| seen.iter().filter(|seen| seen.broken).count()),
            something: live[1].iter().filter(|seen| seen.bands > 0 || seen.broken).count(),
            settled: settled.collect(),
            first_drop,
            rate,
            over_time,
        }
    }
}

fn interrupted(stop: &AtomicBool) -> Result<(), Complaint> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Complaint("interrupted".to_owned())),
        false => Ok(()),
    }
}

/// Waits until all hosts are ready, and says when the run begins.
fn begin(
    live: &net::Live,
    folder: &Path,
    hosts: &[&String],
    stop: &AtomicBool,
) -> Result<u64, Complaint> {
    let until = part::now() + PATIENCE;
    while !hosts.iter().all(|host| part::ready_of(folder, host).exists()) {
        interrupted(stop)?;
        if part::now() > until {
            return Err(Complaint("the hosts were not ready in time".to_owned()));
        }
        std::thread::sleep(LOOKS);
    }
    live.hurry();
    let start = part::now() + PREPARES;
    let (file, part) = (part::start_of(folder), folder.join("start.part"));
    std::fs::write(&part, start.to_string())?;
    std::fs::rename(part, file)?;
    Ok(start)
}

/// The packets that arrived, by when they were sent, and the first one after `from` that did not arrive.
fn passed(
    flow: &Flow,
    pass: &Pass,
    from: Option<Duration>,
) -> (Vec<(Time, Bytes)>, Option<Duration>) {
    let key = |sent: &Sent| (sent.frame, sent.tag);
    let arrived = pass.logs.get(&flow.to).map_or(&[][..], |log| &log.arrived);
    let arrived: std::collections::BTreeSet<_> = arrived.iter().map(key).collect();
    let sent = pass.logs.get(&flow.from).and_then(|log| log.sent.get(&flow.name));
    let (mut passed, mut first) = (Vec::new(), None);
    for one in sent.into_iter().flatten() {
        let (at, len) = one.arrival();
        if arrived.contains(&key(one)) {
            passed.push((at, len));
        } else if let Some(from) = from.filter(|&from| at.since_start() >= from) {
            first.get_or_insert(at.since_start() - from);
        }
    }
    (passed, first)
}

impl Sent {
    fn arrival(&self) -> (Time, Bytes) {
        (Time::from_ps(self.at * 1000), Bytes(self.len))
    }
}

fn received(shown: &Value) -> u64 {
    let ports = shown["ports"].as_array().into_iter().flatten();
    ports.filter_map(|port| port["counts"]["received"].as_u64()).sum()
}

fn is_video(kind: &Nested) -> bool {
    kind.page.name == kind::PAGE.name
}

/// The flows of an experiment: films, and constant cross traffic.
fn flows(experiment: &Experiment, plan: &net::Plan) -> Result<Vec<Flow>, Complaint> {
    const FIRST: u16 = 20_000;
    let length = experiment.duration.as_ps() / 1000;
    let flow = |(number, traffic): (usize, &lastmeter_lab::experiment::Traffic)| {
        let values = &traffic.kind.values;
        let what = match traffic.kind.page.name {
            _ if is_video(&traffic.kind) => What::Video(Video::new(&kind::options(values))),
            "constant" => {
                let sizes: Vec<(Bytes, u64)> = values.get("size");
                let [(len, _)] = sizes[..] else {
                    let name = &traffic.name;
                    return Err(Complaint(format!(
                        "`{name}`: one length of packets in a live run"
                    )));
                };
                let gap = values.get::<Rate>("rate").time_for(len);
                What::Cross { len: len.0, gap: gap.as_ps() / 1000 }
            }
            other => {
                let name = &traffic.name;
                return Err(Complaint(format!(
                    "`{name}` is `{other}` traffic: a live run has wave-video and constant"
                )));
            }
        };
        let stop = traffic.values.given::<Duration>("stop");
        Ok(Flow {
            name: traffic.name.clone(),
            from: traffic.from.name.clone(),
            to: traffic.to.name.clone(),
            address: plan
                .address(&traffic.to.name)
                .ok_or_else(|| Complaint(format!("`{}` has no link", traffic.to.name)))?,
            port: FIRST + number as u16,
            start: traffic.values.get::<Duration>("start").as_ps() / 1000,
            stop: stop.map_or(length, |stop| stop.as_ps() / 1000),
            what,
        })
    };
    let flows: Vec<Flow> =
        experiment.traffic.iter().enumerate().map(flow).collect::<Result<_, _>>()?;
    for screen in flows.iter().filter(|flow| flow.is_video()) {
        let other = |flow: &&Flow| {
            flow.from == screen.to
                || flow.is_video() && flow.to == screen.to && flow.name != screen.name
        };
        if let Some(other) = flows.iter().find(other) {
            return Err(Complaint(format!(
                "`{}` shows `{}`: in a live run it cannot also have `{}`",
                screen.to, screen.name, other.name
            )));
        }
    }
    Ok(flows)
}

fn said(problems: &[Problem]) -> Complaint {
    let lines: Vec<String> = problems.iter().map(|problem| problem.render(false)).collect();
    Complaint(lines.join("\n"))
}
