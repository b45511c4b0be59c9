//! A router's twin: what it would forward, how long packets would wait, and what would limit it, from its file and a
//! calibration of the machine, before it runs.
//!
//! ```text
//! router.toml --> what a packet passes --+
//! calibration --> cost of each stage ----+--> experiment: source --> [core] --> line --> sink --> ledger
//! ```
//!
//! The model is an experiment like any other: its ledger, verdict and what-ifs are made by the same code. Its core has
//! the loop of the live port processor ([`core`]); the line has the port's rate, framing and queue. Packets come from
//! one port and leave by another.

pub mod core;
pub mod cost;

use crate::config::{Action, Config};
use cost::{Costs, Features, doublings};
use lastmeter_base::{Bytes, Rate};
use lastmeter_engine::Serial;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::kinds::Registry;
use lastmeter_lab::library::Library;
use lastmeter_lab::run::{self, Failure, Runner, Search, Watch};
use lastmeter_ledger::Ledger;
use std::fmt::Write as _;
use std::path::Path;

/// Bytes of an Ethernet header, which the model's packets do not have.
const ETHERNET: u64 = 14;
/// Packets of a run that looks for the highest rate, and of one that looks at latency.
const PACKETS: u64 = 60_000;
const PACKETS_LATENCY: u64 = 40_000;
/// The longest run, in seconds of its own time, when packets are few.
const LONGEST: f64 = 20.0;
/// How much more than a core can do is offered to find out what it does.
const OVER: f64 = 1.5;
/// Bytes of a probe, and seconds from one to the next: as `ping` sends them.
const PROBE: u64 = 84;
const PROBES: f64 = 0.002;
/// Shares of the highest rate at which latency is looked at (RFC 2544).
pub const LOADS: [f64; 3] = [0.1, 0.5, 0.9];

/// Kinds of experiments, and the core of a port processor.
struct Kinds(Registry);

impl Library for Kinds {
    fn kinds(&self) -> &Registry {
        &self.0
    }
}

/// From which port packets come, and by which they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// By number.
    pub from: usize,
    /// By number.
    pub to: usize,
}

/// What only the files that `router.toml` names say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Prefixes of the routing table.
    pub prefixes: usize,
    /// Filters.
    pub filters: usize,
}

impl Sizes {
    /// Counts the lines of a configuration's files, which are in `folder`.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn of(config: &Config, folder: &Path) -> Result<Sizes, String> {
        let lines = |file: &Option<String>| -> Result<usize, String> {
            let Some(file) = file else { return Ok(0) };
            let text = std::fs::read(folder.join(file));
            let text = text.map_err(|error| format!("{}: {error}", folder.join(file).display()))?;
            let lines = text.split(|byte| *byte == b'\n');
            Ok(lines.filter(|line| !line.trim_ascii().is_empty()).count())
        };
        Ok(Sizes {
            prefixes: lines(&config.table)? + config.routes.len(),
            filters: lines(&config.rules)? + config.filters.len(),
        })
    }
}

/// What packets pass on their way; both ports have to be there.
pub fn features(config: &Config, sizes: Sizes, way: Way) -> Features {
    let (from, to) = (&config.ports[way.from], &config.ports[way.to]);
    let owners = config.owners();
    let fair = to.queue.as_ref().is_some_and(|queue| queue.page.name != "drop-tail");
    let crosses = owners[way.from] != owners[way.to] || config.fabric.is_some();
    Features {
        lookup: doublings(sizes.prefixes),
        classify: doublings(1 + sizes.filters),
        queue: f64::from(fair),
        plugins: (from.plugins.len() + to.departing.len()) as f64,
        cross: f64::from(crosses),
    }
}

/// A router to be predicted.
#[derive(Clone, Debug)]
pub struct Twin {
    features: Features,
    costs: Costs,
    names: [String; 2],
    /// The line where packets leave, as an experiment writes it.
    line: String,
    rate: Option<(Rate, Bytes)>,
    /// What the model leaves out of this configuration.
    pub notes: Vec<String>,
}

/// How packets come.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    /// Bytes of a frame, and frames a second.
    len: u64,
    rate: f64,
    /// At random, with probes; else evenly.
    probed: bool,
    seconds: f64,
}

/// Round trips through the router, at a share of its highest rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrip {
    /// The share.
    pub load: f64,
    /// Seconds, of the median probe.
    pub median: f64,
}

/// What is predicted for frames of one length.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Bytes of a frame.
    pub len: u64,
    /// Frames a second that it forwards at most.
    pub rate: f64,
    /// The account of a run that offers more than that.
    pub ledger: Ledger,
    /// Through it and back, when nothing else passes, and at [`LOADS`].
    pub trips: Vec<RoundTrip>,
}

impl Twin {
    /// Of a router whose file is `text`.
    ///
    /// # Errors
    /// If it has fewer than two ports, or `way` names others.
    pub fn new(
        config: &Config,
        text: &str,
        sizes: Sizes,
        way: Way,
        costs: Costs,
    ) -> Result<Twin, String> {
        let (Some(from), Some(to)) = (config.ports.get(way.from), config.ports.get(way.to)) else {
            return Err("packets need a port to come from and one to leave by".to_owned());
        };
        let features = features(config, sizes, way);
        let mut notes = Vec::new();
        let mut note = |is: bool, words: &str| {
            if is {
                notes.push(words.to_owned());
            }
        };
        note(config.fast, "the fast path is left out: all packets pass the port processor");
        let own = |action: &Action| !matches!(action, Action::Permit);
        let some = config.filters.iter().any(|filter| own(&filter.action));
        note(some, "what filters do with the packets that they match is left out");
        note(!config.flows.is_empty(), "flows and their reservations are left out");
        note(features.plugins > 0.0, "each plugin is taken to cost as much as a counter");
        note(features.cross > 0.0, "both port processors are counted on one core");
        let mut line = String::new();
        if let Some(rate) = to.rate {
            let _ = writeln!(line, "rate = \"{rate}\"\nframing = \"{}\"", to.framing);
            let table: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
            let queue = table.get("ports").and_then(|ports| ports.get(&to.name)?.get("queue"));
            if let Some(queue) = queue {
                let _ = writeln!(line, "queue = {queue}");
            }
        }
        let names = [from.name.clone(), to.name.clone()];
        let rate = to.rate.map(|rate| (rate, to.framing));
        Ok(Twin { features, costs, names, line, rate, notes })
    }

    /// Seconds of a core for a frame of so many bytes.
    pub fn work(&self, len: u64) -> f64 {
        self.costs.packet(&self.features, len as f64)
    }

    /// Frames of so many bytes that the shaped line carries a second; infinite if it is not shaped.
    pub fn line(&self, len: u64) -> f64 {
        self.rate.map_or(f64::INFINITY, |(rate, framing)| {
            let len = len.saturating_sub(ETHERNET) + framing.0;
            rate.as_bits() as f64 / (len as f64 * 8.0)
        })
    }

    /// The experiment.
    fn experiment(&self, load: Load) -> String {
        let Features { lookup, classify, queue, plugins, cross } = self.features;
        let costs = &self.costs;
        let mut core = String::new();
        // Its packets have two lengths: a line through both costs is as good as the curve.
        let curves = [&costs.receive, &costs.forward];
        let curves = curves.map(|curve| curve.line((PROBE + ETHERNET) as f64, load.len as f64));
        let [receive, forward] = curves.map(|[packet, byte]| packet + byte * ETHERNET as f64);
        let times = [
            ("receive", receive),
            ("forward", forward),
            ("classify", costs.classify * classify),
            ("plugins", costs.plugin * plugins),
            ("lookup", costs.lookup * lookup),
            ("queue", costs.queue * queue),
            ("cross", costs.cross * cross),
            ("wake", costs.wake),
        ];
        for (name, seconds) in times {
            let _ = write!(core, "{name} = \"{:.0} ps\", ", seconds * 1e12);
        }
        for (name, seconds) in [("receive-bytes", curves[0][1]), ("forward-bytes", curves[1][1])] {
            let _ = write!(core, "{name} = \"{:.3} ps/B\", ", seconds * 1e12);
        }
        let [from, to] = &self.names;
        let Load { len, rate, probed, seconds } = load;
        let len = len.saturating_sub(ETHERNET).max(1);
        let bits = rate * len as f64 * 8.0;
        let kind = if probed { "poisson" } else { "constant" };
        let mut text = format!(
            "title = \"A router's twin: {from} to {to}, {len} B packets\"\n\
             question = \"What limits it?\"\nduration = \"{seconds:.6} s\"\n[nodes]\n\
             source = {{ host = {{}} }}\nsink = {{ host = {{}} }}\n\
             router = {{ port-processor-core = {{ {} }} }}\n\
             [[links]]\nbetween = [\"source\", \"router\"]\n\
             [[links]]\nbetween = [\"router\", \"sink\"]\n{}",
            core.trim_end_matches(", "),
            self.line,
        );
        if rate > 0.0 {
            let _ = write!(
                text,
                "[[traffic]]\nname = \"load\"\nfrom = \"source\"\nto = \"sink\"\n\
                 {kind} = {{ rate = \"{bits:.0} bit/s\", size = \"{len} B\" }}\n",
            );
        }
        if probed {
            let _ = write!(
                text,
                "[[traffic]]\nname = \"probe\"\nfrom = \"source\"\nto = \"sink\"\n\
                 request = {{ size = \"{PROBE} B\", response = \"{PROBE} B\", \
                 think = \"{PROBES} s\" }}\n",
            );
        }
        text
    }

    /// Runs it; with what-ifs, if wanted.
    fn run(&self, load: Load, explained: bool) -> Result<Ledger, String> {
        let library = Kinds(Registry::builtin().clone().with(&core::KIND));
        let text = self.experiment(load);
        let said = |failure: Failure| format!("the twin: {failure}");
        let experiment = Experiment::parse("router-twin", text.as_bytes(), &[], &library)
            .map_err(|problems| said(Failure::Problems(problems)))?;
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: &library, watch: &watch };
        match explained {
            true => run::explain(&experiment, Search::Rounds, 0, runner)
                .map(|explained| explained.ledger),
            false => run::ledger(&experiment, runner),
        }
        .map_err(said)
    }

    /// Predicts for frames of so many bytes.
    ///
    /// # Errors
    /// If the model fails, or the constants are nothing.
    pub fn predict(&self, len: u64) -> Result<Prediction, String> {
        let work = self.work(len);
        if work <= 0.0 {
            return Err("a packet costs nothing by this calibration: measure it again".to_owned());
        }
        let offered = OVER * self.line(len).min(1.0 / work);
        let seconds = (PACKETS as f64 / offered).min(LONGEST);
        let over = Load { len, rate: offered, probed: false, seconds };
        let mut ledger = self.run(over, true)?;
        ledger.notes.extend(self.notes.iter().cloned());
        let delivered: u64 = ledger.paths.iter().map(|path| path.totals.delivered.packets).sum();
        let rate = delivered as f64 / seconds;
        let mut trips = Vec::new();
        for load in [0.0].into_iter().chain(LOADS) {
            let offered = load * rate;
            let seconds = if load > 0.0 { PACKETS_LATENCY as f64 / offered } else { 1.0 };
            let probed = Load { len, rate: offered, probed: true, seconds: seconds.min(LONGEST) };
            let ledger = self.run(probed, false)?;
            trips.push(RoundTrip { load, median: trip(&ledger) });
        }
        Ok(Prediction { len, rate, ledger, trips })
    }
}

/// The median of probes, to and fro.
fn trip(ledger: &Ledger) -> f64 {
    let probes = ledger.paths.iter().filter(|path| path.class.starts_with("probe"));
    probes.filter_map(|path| path.totals.latency.as_ref()).filter_map(|own| own.p50).sum()
}

#[cfg(test)]
mod tests {
    use super::cost::Curve;
    use super::*;
    use lastmeter_lab::library::Builtin;

    const NS: f64 = 1e-9;

    /// So many ns a packet, and 0.1 ns a byte.
    fn line(packet: f64) -> Curve {
        Curve::through([60.0, 1514.0].map(|len| (len, (packet + 0.1 * len) * NS)).to_vec())
    }
    fn costs() -> Costs {
        Costs {
            receive: line(200.0),
            forward: line(300.0),
            lookup: 5.0 * NS,
            classify: 20.0 * NS,
            queue: 50.0 * NS,
            plugin: 40.0 * NS,
            cross: 100.0 * NS,
            wake: 10_000.0 * NS,
        }
    }
    fn twin(more: &str, east: &str, sizes: Sizes) -> Twin {
        let text = format!(
            "{more}\n[ports.west]\ninterface = 'r0'\n[ports.east]\ninterface = 'r1'\n{east}"
        );
        let config = Config::parse("router.toml", text.as_bytes(), &Builtin).expect("a router");
        // Ports are in the order of their names.
        let way = Way { from: 1, to: 0 };
        Twin::new(&config, &text, sizes, way, costs()).expect("two ports")
    }

    #[test]
    fn the_highest_rate_is_the_reciprocal_of_the_work_and_the_core_limits() {
        let sizes = Sizes { prefixes: 1 << 10, filters: 1023 };
        let twin = twin("", "queue = { qsdrr = {} }", sizes);
        // 500 + 12 (bytes) + 50 (ten doublings) + 200 (ten doublings) + 50 (queue) ns.
        assert!((twin.work(60) - 812.0 * NS).abs() < 0.1 * NS);
        let told = twin.predict(60).expect("it runs");
        assert!((told.rate * 812.0 * NS - 1.0).abs() < 0.03, "{}", told.rate);
        let verdict = told.ledger.verdict.as_ref().expect("a verdict");
        assert_eq!(verdict.resource.as_deref(), Some("router"), "{}", verdict.words);
        assert_eq!(told.ledger.balance.packets_residual, 0);
        let own = told.ledger.resources.iter().find(|one| one.name == "router").expect("a core");
        let share = own.by_stage["router classify"] / own.utilisation();
        assert!((share - 200.0 / 812.0).abs() < 0.01, "{share}");
        // Idle: a packet wakes it up twice, to and fro; loaded, it waits for others, too.
        let at = |load: f64| told.trips.iter().find(|one| one.load == load).expect("a load").median;
        let idle = 2.0 * (10_000.0 + 812.0 + 0.2 * 38.0) * NS;
        assert!((at(0.0) - idle).abs() < 50.0 * NS, "{} {idle}", at(0.0));
        assert!(at(0.9) > 10.0 * 812.0 * NS, "{:?}", told.trips);
    }

    #[test]
    fn a_shaped_line_limits_before_the_core_does() {
        let twin = twin(
            "",
            "rate = '10 Mbit/s'\nqueue = { drop-tail = { packets = 20 } }",
            Sizes::default(),
        );
        let told = twin.predict(1014).expect("it runs");
        // 1000 B and 38 B of framing at 10 Mbit/s.
        assert!((told.rate / (1e7 / (1038.0 * 8.0)) - 1.0).abs() < 0.03, "{}", told.rate);
        let verdict = told.ledger.verdict.as_ref().expect("a verdict");
        assert_eq!(verdict.resource.as_deref(), Some("router->sink"), "{}", verdict.words);
    }

    #[test]
    fn what_is_left_out_is_said() {
        let more =
            "fast = true\n[processors.a]\nports = ['west']\n[processors.b]\nports = ['east']";
        let twin = twin(more, "", Sizes::default());
        assert!(twin.notes.iter().any(|note| note.contains("fast path")), "{:?}", twin.notes);
        assert!((twin.work(60) - 612.0 * NS).abs() < 0.1 * NS, "it crosses");
        let one = "[ports.only]\ninterface = 'r0'";
        let config = Config::parse("router.toml", one.as_bytes(), &Builtin).expect("a router");
        let way = Way { from: 0, to: 1 };
        assert!(Twin::new(&config, one, Sizes::default(), way, costs()).is_err());
    }
}
