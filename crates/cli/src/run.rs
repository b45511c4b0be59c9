//! `lastmeter run`: an experiment, and its ledger.

use crate::threads::Threads;
use crate::world::Disk;
use crate::{Common, Complaint, Ended, capture, daemon, output, progress, results};
use lastmeter_lab::document::{Document, Override, Problem};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::explain::Shuffle;
use lastmeter_lab::replicate::{RUNS, Replicates, replicate};
use lastmeter_lab::run::{
    Explained, Failure, FirstRun, Runner, Search, Watch, has_plugins, ledger,
};
use lastmeter_lab::sweep::Until;
use lastmeter_ledger::terminal;
use std::path::PathBuf;
use std::sync::Arc;

/// Run an experiment and print its ledger.
///
/// EXPERIMENT is a TOML file, a folder with an experiment.toml, the name of a bundled one, or a capture (.pcap,
/// .pcapng), which is replayed from one host to another over one link. A router's file (router.toml) is predicted: what
/// it would forward on this machine, how long packets would wait, and what would limit it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The file, the folder, the capture, or the name of a bundled experiment
    experiment: String,
    #[command(flatten)]
    path: capture::PathOptions,
    /// Override one value of the file; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Write ledger.json, ledger.html and tables in Parquet into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Capture a link's packets in a pcapng file, for Wireshark; may be given several times
    #[arg(long = "pcap", value_name = "LINK=FILE")]
    pcaps: Vec<String>,
    /// Repeat the run with N random orders of simultaneous events, and report what that changes
    #[arg(long, value_name = "N", default_value_t = 0)]
    shuffle_ties: u64,
    /// Repeat the run with N seeds, and give means with 95 % confidence intervals [default: 5 with --until]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    seeds: Option<u64>,
    /// Add seeds until the interval is this narrow: 'goodput 2 %', 'latency 5 us' (at most 200)
    #[arg(long, value_name = "MEASURE WIDTH")]
    until: Option<String>,
    /// Run once only: no what-ifs; the verdict says what is busiest, and what would decide
    #[arg(long)]
    no_what_ifs: bool,
    /// Repeat the whole run with every change, however long it is, instead of beginnings of it for the price of a few
    #[arg(long, conflicts_with = "no_what_ifs")]
    exhaustive: bool,
    /// Also print the layers of each path: what a stage is for, the jitter it adds, and how many packets wait there
    #[arg(long)]
    layers: bool,
    /// Of a router's file: measure it as well, in network namespaces of its own, and print both (needs root)
    #[arg(long)]
    beside: bool,
}

impl Arguments {
    fn search(&self) -> Search {
        if self.exhaustive { Search::Exhaustive } else { Search::Rounds }
    }
    /// Refuses what is of no use with a router's file.
    fn only_a_router(&self, common: &Common) -> Result<(), Complaint> {
        let Arguments { sets, pcaps, shuffle_ties, seeds, until, no_what_ifs, layers, .. } = self;
        let lists = !sets.is_empty() || !pcaps.is_empty() || *shuffle_ties > 0;
        let searched = *no_what_ifs || self.exhaustive;
        let given = seeds.is_some() || until.is_some() || self.out.is_some() || *layers;
        if lists || searched || given || common.seed.is_some() {
            let right = "give --beside, --json or --quick, or see `lastmeter router twin --help`";
            return Err(Complaint(format!("a router's file is predicted by its twin: {right}")));
        }
        Ok(())
    }
}

/// More runs than this are a sweep's.
const SEEDS_MAX: u64 = 100_000;

const EXAMPLES: &str = "\
Examples:
  lastmeter run first-path --out out
  lastmeter run my.toml --set links.0.rate='10 Gbit/s' --set traffic.bulk.packets=1000
  lastmeter run first-path --pcap 'router->bob=bob.pcapng'
  lastmeter run first-path --layers
  lastmeter run mm1 --seeds 10 --set warm-up='1 ms'
  lastmeter run transfer.pcapng --rate '100 Mbit/s' --delay '5 ms'
  lastmeter run my.toml --json | jq .verdict.words
  lastmeter run router.toml --beside";

pub(crate) fn run(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    let found = capture::experiment(&arguments.experiment, &arguments.path)?;
    if is_router(&found.name, &found.text) {
        arguments.only_a_router(common)?;
        let mut words = vec!["twin".to_owned(), arguments.experiment.clone()];
        words.extend(arguments.beside.then(|| "--beside".to_owned()));
        return daemon::run(common, "router", &daemon::Arguments::of(words));
    }
    if arguments.beside {
        return Err(Complaint("--beside is for a router's file (router.toml)".to_owned()));
    }
    let disk = Disk::new(found.folder).with(common.programs.clone());
    arguments.pcaps.iter().try_for_each(|text| disk.add_tap(text))?;
    results::prepare(arguments.out.as_deref())?;
    let until = arguments.until.as_deref().map(Until::parse).transpose().map_err(Complaint)?;
    let overrides = overrides(common, &arguments.sets)?;
    let mut experiment = Experiment::parse(&found.name, &found.text, &overrides, &disk)
        .map_err(|problems| complaint(common, &problems))?;
    if has_plugins(&experiment) && common.programs.is_none() {
        return daemon::hand_over(common);
    }
    if common.quick {
        experiment.duration = experiment.duration / 10;
    }
    let threads = Threads::new(common.threads)?;
    let watch = Arc::new(Watch::default());
    let runner =
        Runner { parallel: &threads, threads: threads.count(), library: &disk, watch: &watch };
    let mut is_shown = false;
    let explained = match arguments.no_what_ifs || common.quick {
        true => progress::shown(&watch, || ledger(&experiment, runner)).map(Explained::from),
        false => progress::shown(&watch, || FirstRun::new(&experiment, runner)).and_then(|first| {
            if let Some(ledger) = first.before_the_verdict().filter(|_| !common.json) {
                output::print(&terminal::render_run(ledger, output::style()));
                is_shown = true;
            }
            let (search, orders) = (arguments.search(), arguments.shuffle_ties);
            progress::shown(&watch, || first.explain(search, orders, runner))
        }),
    };
    let mut explained = explained.map_err(|failure| failed(common, failure))?;
    if (arguments.seeds.is_some() || until.is_some()) && !explained.ledger.provenance.partial {
        let replicates = Replicates { runs: arguments.seeds.unwrap_or(RUNS), until };
        let estimates = progress::shown(&watch, || {
            replicate(&experiment, &explained.ledger, &replicates, runner)
        });
        explained.ledger.estimates = estimates.map_err(|failure| failed(common, failure))?;
    }
    let wires = explained.ledger.resources.iter().filter(|resource| resource.kind == "wire");
    disk.check_taps(&wires.map(|wire| wire.name.as_str()).collect::<Vec<&str>>())?;
    show(common, &explained, is_shown, arguments.layers);
    results::offer(arguments.out.as_deref(), &explained.ledger)?;
    Ok(match explained.ledger.provenance.partial {
        true => Ended::Short,
        false => Ended::Done,
    })
}

/// Whether a file is a router's: it has ports, which experiments do not have, and none of their lists.
fn is_router(name: &str, text: &[u8]) -> bool {
    let Ok(Document { root, .. }) = Document::parse(name, text) else { return false };
    let has = |key: &str| root.get(key).is_some();
    has("ports") && !["nodes", "links", "traffic"].into_iter().any(has)
}

/// The values that `--set` and `--seed` override.
pub(crate) fn overrides(common: &Common, sets: &[String]) -> Result<Vec<Override>, Complaint> {
    let seed = common.seed.map(|seed| format!("seed={seed}"));
    let texts = sets.iter().cloned().chain(seed);
    texts
        .map(|text| Override::parse(&text).map_err(|problem| complaint(common, &problem)))
        .collect()
}

/// Problems, as text or JSON.
pub(crate) fn complaint(common: &Common, problems: &[Problem]) -> Complaint {
    if common.json {
        let problems =
            serde_json::json!({ "schema": "lastmeter.problems/1", "problems": problems });
        output::print(&problems.to_string());
    }
    rendered(problems)
}

/// A failed run, as text or JSON.
pub(crate) fn failed(common: &Common, failure: Failure) -> Complaint {
    match failure {
        Failure::Problems(problems) => complaint(common, &problems),
        other => Complaint(other.to_string()),
    }
}

/// Problems, each with its line.
pub(crate) fn rendered(problems: &[Problem]) -> Complaint {
    let colours = output::error_colours();
    let rendered: Vec<String> = problems.iter().map(|problem| problem.render(colours)).collect();
    Complaint(rendered.join("\n\n"))
}

fn show(common: &Common, explained: &Explained, is_shown: bool, layers: bool) {
    let ledger = &explained.ledger;
    if common.json {
        let mut value = serde_json::to_value(ledger).unwrap_or_default();
        if let Some(shuffle) = &explained.shuffle {
            value["shuffle_ties"] = serde_json::to_value(shuffle).unwrap_or_default();
        }
        output::print(&format!("{value:#}"));
        return;
    }
    let draw = if is_shown { terminal::render_conclusion } else { terminal::render };
    output::print(&draw(ledger, output::style()));
    if layers {
        output::print(&terminal::render_layers(ledger, output::style()));
    }
    if explained.left_out > 0 {
        output::note(&format!("{} more changes were not tried.", explained.left_out));
    }
    if let Some(shuffle) = &explained.shuffle {
        output::print(&words(shuffle));
    }
}

fn words(shuffle: &Shuffle) -> String {
    let Shuffle { runs, tolerance, moved } = shuffle;
    let percent = tolerance * 100.0;
    match moved.is_empty() {
        true => format!(
            "In {runs} random orders of simultaneous events no total changed by more than \
             {percent} % and the verdict stayed."
        ),
        false => format!(
            "The order of simultaneous events matters ({runs} orders, within {percent} %):\n  {}",
            moved.join("\n  ")
        ),
    }
}
