//! From a code server to an instance: each stage timed, as a ledger.
//!
//! ```text
//! index -> signature -> module -> verify -> compile -> instantiate and configure -> bind
//! ```
//!
//! Nothing is written or loaded before all of it was verified: what is cut short, swapped, unsigned, too long or too
//! slow leaves a line in the audit log and nothing else.
//!
//! Rows: D-48, D-96, D-102.

use super::keys::Keys;
use super::{Complaint, Report, Ticking, kind, write};
use lastmeter_ledger::json::to_json;
use lastmeter_ledger::terminal::{Style, render};
use lastmeter_ledger::{Count, Latency, Ledger, Path, Provenance, Resource, Stage, Times, Totals};
use lastmeter_plugin::Kind;
use lastmeter_plugin::host::{Hash, Limits, MODULE_LEN_MAX};
use lastmeter_plugin::index::{self, INDEX_LEN_MAX, Index, Version, is_name};
use lastmeter_plugin::instance::{Fail, Instance};
use lastmeter_plugin::request::{Answers, Body, Policy, Rect, Request};
use lastmeter_plugin::trust::{Admitted, Line, TEXT_LEN_MAX, claimed};
use lastmeter_router::control::functions::Module;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Fetch {
    /// The code server: http://HOST:PORT or https://HOST/FOLDER
    server: String,
    /// The plugin's name
    name: String,
    /// Its version [default: the newest in the index]
    #[arg(long)]
    version: Option<String>,
    /// The folder of keys that are trusted
    #[arg(long)]
    keys: PathBuf,
    /// What it has to decide about
    #[arg(long, value_parser = kind)]
    kind: Option<Kind>,
    /// Its configuration
    #[arg(long, default_value = "")]
    config: String,
    /// What becomes of requests when it fails: open, closed or reload
    #[arg(long, default_value = "reload")]
    fail: String,
    /// Allow a version older than one that ran before
    #[arg(long)]
    rollback: bool,
    /// Give up after so many seconds for each file
    #[arg(long, default_value_t = 10)]
    patience: u64,
    /// Where the module goes once it is verified
    #[arg(long, short)]
    out: Option<PathBuf>,
}

/// Stages so far: name, what served it, seconds.
struct Clock {
    stages: Vec<(&'static str, &'static str, f64)>,
    last: Instant,
}

impl Clock {
    fn lap(&mut self, stage: &'static str, resource: &'static str) {
        let now = Instant::now();
        self.stages.push((stage, resource, (now - self.last).as_secs_f64()));
        self.last = now;
    }
}

/// Gets a file of at most so many bytes.
fn get(url: &str, most: usize, patience: Duration) -> Result<Vec<u8>, String> {
    let config = ureq::Agent::config_builder().timeout_global(Some(patience)).build();
    let agent: ureq::Agent = config.into();
    let place = |error: ureq::Error| format!("{url}: {error}");
    let mut answer = agent.get(url).call().map_err(place)?;
    // `limit` refuses a body that is as long as the limit allows and goes on.
    answer.body_mut().with_config().limit(most as u64 + 1).read_to_vec().map_err(place).and_then(
        |bytes| {
            let fits = bytes.len() <= most;
            fits.then_some(bytes).ok_or(format!("{url}: more than {most} bytes"))
        },
    )
}

fn get_text(url: &str, most: usize, patience: Duration) -> Result<String, String> {
    let bytes = get(url, most, patience)?;
    String::from_utf8(bytes).map_err(|_| format!("{url}: not text"))
}

pub(crate) fn fetch(arguments: &Fetch) -> Result<Report, Complaint> {
    let mut keys = Keys::read(&arguments.keys)?;
    let mut line = loads(&arguments.name, arguments.version.as_deref());
    match admitted(arguments, &mut keys, &mut line) {
        Ok(report) => {
            // The instance lived as long as this command: a line for each step of its life.
            let next = |event: &str, why: &str| Line {
                event: event.to_owned(),
                why: why.to_owned(),
                ..line.clone()
            };
            let configured =
                (!arguments.config.is_empty()).then(|| next("configure", &arguments.config));
            let unloaded = next("unload", "fetched");
            for line in std::iter::once(line).chain(configured).chain([unloaded]) {
                keys.audit(line)?;
            }
            keys.save()?;
            Ok(report)
        }
        Err(why) => {
            line.event = "refuse".to_owned();
            line.why.clone_from(&why);
            keys.audit(line)?;
            Ok(Report {
                text: format!("refused: {why}\n"),
                json: vec![serde_json::json!({ "good": false, "why": why })],
                good: false,
            })
        }
    }
}

/// A module on a code server.
pub(crate) struct Wanted<'a> {
    pub(crate) server: &'a str,
    pub(crate) name: &'a str,
    /// The newest in the index, if absent.
    pub(crate) version: Option<&'a str>,
    /// Whether it may be older than one that ran before.
    pub(crate) rollback: bool,
    pub(crate) patience: Duration,
}

/// Fetches a module and verifies it; what it finds out on the way is added to `line` and `clock`.
///
/// # Errors
/// Why it is refused.
fn verified(
    wanted: &Wanted<'_>,
    keys: &mut Keys,
    line: &mut Line,
    clock: &mut Clock,
) -> Result<(Vec<u8>, String, Admitted), String> {
    let Wanted { name, patience, .. } = *wanted;
    if !is_name(name) {
        return Err(format!("{name:?} is no name: lower-case letters, digits and `-`"));
    }
    let server = wanted.server.trim_end_matches('/');
    let version = match wanted.version {
        Some(text) => Version::parse(text).ok_or(format!("{text:?} is no version, as 1.2.0"))?,
        None => {
            let text = get_text(&format!("{server}/index.toml"), INDEX_LEN_MAX, patience)?;
            let index = Index::parse(&text).map_err(|error| format!("index.toml: {error}"))?;
            let newest = index.newest(name).ok_or(format!("the server has no {name}"))?;
            clock.lap("index", "network");
            newest.0
        }
    };
    line.version = version.to_string();
    let url = format!("{server}/{}", index::path(name, version));
    let signature = get_text(&format!("{url}.minisig"), TEXT_LEN_MAX, patience)?;
    clock.lap("signature", "network");
    let module = get(&url, MODULE_LEN_MAX, patience)?;
    clock.lap("module", "network");
    line.hash = Some(Hash::of(&module).to_string());
    let admitted = keys.trust.admit(name, version, &module, &signature, wanted.rollback)?;
    line.key = Some(admitted.key.to_string());
    clock.lap("verify", "cpu");
    Ok((module, signature, admitted))
}

/// A line of the audit log about a module that is to be loaded.
fn loads(name: &str, version: Option<&str>) -> Line {
    Line {
        at: 0,
        event: "load".to_owned(),
        name: name.to_owned(),
        version: version.unwrap_or_default().to_owned(),
        hash: None,
        key: None,
        why: String::new(),
    }
}

/// Fetches a module for a daemon that runs it itself: its code, and stages with their nanoseconds. The folder of keys
/// gets a line in its audit log either way.
///
/// # Errors
/// Why it is refused.
pub(crate) fn fetch_for(wanted: &Wanted<'_>, folder: &std::path::Path) -> Result<Module, String> {
    let mut keys = Keys::read(folder).map_err(|Complaint(words)| words)?;
    let mut line = loads(wanted.name, wanted.version);
    let mut clock = Clock { stages: Vec::new(), last: Instant::now() };
    let verified = verified(wanted, &mut keys, &mut line, &mut clock);
    loaded(keys, line, &clock, verified)
}

/// As [`fetch_for`] for a module that was fetched before.
///
/// # Errors
/// Why it is refused.
pub(crate) fn verify_for(
    wanted: &Wanted<'_>,
    folder: &std::path::Path,
    code: Vec<u8>,
    signature: String,
) -> Result<Module, String> {
    let mut keys = Keys::read(folder).map_err(|Complaint(words)| words)?;
    let mut line = loads(wanted.name, wanted.version);
    let mut clock = Clock { stages: Vec::new(), last: Instant::now() };
    let claimed = claimed(&signature).map(|(_, version)| version);
    let version = wanted.version.and_then(Version::parse).or(claimed);
    let admitted = version.ok_or("the signature names no version".to_owned()).and_then(|version| {
        line.version = version.to_string();
        line.hash = Some(Hash::of(&code).to_string());
        keys.trust.admit(wanted.name, version, &code, &signature, wanted.rollback)
    });
    clock.lap("verify", "cpu");
    loaded(keys, line, &clock, admitted.map(|admitted| (code, signature, admitted)))
}

/// Writes into the audit log what became of a module.
fn loaded(
    keys: Keys,
    line: Line,
    clock: &Clock,
    verified: Result<(Vec<u8>, String, Admitted), String>,
) -> Result<Module, String> {
    let said = |Complaint(words): Complaint| words;
    match verified {
        Ok((code, signature, Admitted { owner, key, .. })) => {
            let version = line.version.clone();
            keys.audit(Line { key: Some(key.to_string()), ..line }).map_err(said)?;
            keys.save().map_err(said)?;
            let stages = clock.stages.iter().map(|(stage, _, s)| (*stage, (s * 1e9) as u64));
            Ok(Module { code, signature, version, owner, stages: stages.collect() })
        }
        Err(why) => {
            let event = "refuse".to_owned();
            keys.audit(Line { event, why: why.clone(), ..line }).map_err(said)?;
            Err(why)
        }
    }
}

fn admitted(arguments: &Fetch, keys: &mut Keys, line: &mut Line) -> Result<Report, String> {
    let Fetch { server, name, kind, config, .. } = arguments;
    let fail = Fail::named(&arguments.fail)
        .ok_or(format!("{:?} is none of open, closed and reload", arguments.fail))?;
    let mut clock = Clock { stages: Vec::new(), last: Instant::now() };
    let wanted = Wanted {
        server,
        name,
        version: arguments.version.as_deref(),
        rollback: arguments.rollback,
        patience: Duration::from_secs(arguments.patience),
    };
    let (module, _, admitted) = verified(&wanted, keys, line, &mut clock)?;
    // The pool of instances is there before a device fetches anything.
    let sandbox = Ticking::new(Limits { instances: 4, ..Limits::default() })
        .map_err(|Complaint(words)| words)?;
    clock.last = Instant::now();
    let class = sandbox.host.load(name, &module, *kind).map_err(|refusal| refusal.to_string())?;
    clock.lap("compile", "cpu");
    let now = sandbox.now();
    let instance = Instance::new(class.clone(), name, config.as_bytes(), fail, 1, now);
    let mut instance = instance.map_err(|refusal| refusal.to_string())?;
    clock.lap("configure", "cpu");
    bind(&mut instance, *kind);
    clock.lap("bind", "cpu");
    if let Some(failure) = instance.last_failure() {
        return Err(format!("it failed at its first request: {failure}"));
    }
    if let Some(out) = &arguments.out {
        write(out, &module).map_err(|Complaint(words)| words)?;
    }
    let title = format!("{name} {}, signed by {}", line.version, admitted.owner);
    let ledger = ledger(&title, module.len() as u64, &clock.stages);
    let style = Style { width: 100, color: false, unicode: true };
    let json = serde_json::from_str(&to_json(&ledger)).map_err(|error| error.to_string())?;
    Ok(Report { text: render(&ledger, style), json: vec![json], good: true })
}

/// The first request, empty, of the first kind that it handles: after this its code and memory are in place.
fn bind(instance: &mut Instance, kind: Option<Kind>) {
    let kinds = instance.class().description.kinds;
    let first = kind.or(Kind::ALL.into_iter().find(|kind| kinds.has(*kind)));
    let rect = Rect { x: 0, y: 0, w: 1, h: 1 };
    let body = match first {
        Some(Kind::Block) => Body::Block { operation: 1, lba: 0, blocks: 1, initiator: 0 },
        Some(Kind::Framebuffer) => Body::Framebuffer { operation: 1, rect, from: (0, 0), value: 0 },
        Some(Kind::Frame) => {
            Body::Frame { format: 0, width: 1, height: 1, region: rect, number: 0, quality: 1 }
        }
        Some(Kind::Packet) | None => Body::Packet { interface: 0 },
    };
    let now = lastmeter_base::Time::from_ps(0);
    let request = Request { body, flow: 0, arrival: now, mark: 0, length: 0, data: &[] };
    instance.process(now, &[request], &mut Answers::default());
}

/// The account of one load.
fn ledger(title: &str, bytes: u64, stages: &[(&'static str, &'static str, f64)]) -> Ledger {
    let passed = Count { packets: 1, bytes };
    let total: f64 = stages.iter().map(|(.., seconds)| seconds).sum();
    let rows = stages.iter().map(|(name, resource, seconds)| Stage {
        service: Some(Times::mean(*seconds)),
        ..Stage::new(*name, Some(*resource), passed)
    });
    let latency = Some(Latency { mean: total, p50: None, p99: None, max: None });
    let totals = Totals { latency, ..Totals::new(passed, bytes as f64 * 8.0 / total) };
    let path = Path::new("code server->instance", "plugin", rows.collect(), totals);
    let resource = |name: &str| {
        let of = stages.iter().filter(|(_, resource, _)| *resource == name);
        let by_stage: std::collections::BTreeMap<String, f64> =
            of.map(|(stage, _, seconds)| ((*stage).to_owned(), seconds / total)).collect();
        let busy = by_stage.values().sum();
        let kind = if name == "cpu" { "cpu" } else { "wire" };
        Resource { by_stage, ..Resource::new(name, kind, busy, None) }
    };
    let resources = vec![resource("network"), resource("cpu")];
    let provenance = Provenance::new(env!("CARGO_PKG_VERSION"), "L0");
    Ledger::new(title, total, vec![path], resources, provenance)
}
