//! `lastmeter blast`: traffic between hosts, under remote control (D-123, N-90).

pub mod plan;
mod stored;
mod table;

use crate::world::{self, Disk};
use crate::{Common, Complaint, Ended, output, progress, results, run};
use indicatif::ProgressBar;
use lastmeter_engine::Control;
use lastmeter_lab::run::Watch;
use lastmeter_live::blast as live;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Send and count traffic between hosts, following a plan
///
/// An agent runs on each host; the driver tells the agents what to send to each other, starts them
/// together, and prints one table: received, lost, duplicated, reordered, damaged, rate, delay, jitter.
/// Exits with 1 when a source did not keep up, or an end did not report.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter blast serve                              on each host: an agent
  lastmeter blast serve --listen 10.0.0.1:7400 --token-file token
                                                     an agent for drivers on other hosts
  lastmeter blast check plan.toml                    check a plan without running it
  lastmeter blast run plan.toml --out results        the driver

A plan:
  [[host]]
  name = \"a\"
  at = \"here\"                  # this process, or an agent: \"10.0.0.1:7400\"

  [[flow]]
  name = \"frames\"
  from = \"a\"
  to = \"a\"
  size = \"1500 B\"              # or several: [\"64 B\", \"1500 B\"]
  rate = \"1 Gbit/s\"            # or packets = \"900 kpps\", or fastest = true
  duration = \"2 s\"             # or count = 100000
  format = \"aal5\"              # or \"udp\"
  pattern = \"periodic\"         # or \"poisson\", or \"on-off\" with on and off

  In place of size and rate, packets of a kind of traffic of the models, or of a capture:
  traffic = { tcplib = { every = \"50 ms\", rate = \"1 Mbit/s\" } }
  traffic = { replay = { capture = \"transfer.pcapng\", bytes = true } }";

#[derive(clap::Subcommand)]
enum Verb {
    /// Run the agent of this host, until Ctrl-C
    ///
    /// Listens on the loopback address only, unless a token is given: then anyone who has the token can make
    /// this host send to other agents. The token crosses the network in clear text.
    Serve(Serve),
    /// Run a plan on its agents, and print the results; Ctrl-C keeps those so far
    Run(Run),
    /// Check a plan and print what it does
    Check {
        /// The plan
        #[arg(value_name = "PLAN.toml")]
        plan: PathBuf,
    },
}

#[derive(clap::Args)]
struct Serve {
    /// Listen on this address and port; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// Serve drivers that have this token; other users can see it in the process list
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Read the token from this file
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Run {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// Write blast.json and blast.txt into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// What `serve --json` prints.
const AGENT: &str = "lastmeter.blast-agent/1";
/// What `check --json` prints.
const PLAN: &str = "lastmeter.blast-plan/1";
/// Longer files are not plans.
const PLAN_LEN_MAX: u64 = 4 << 20;

pub(crate) fn blast(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    match &arguments.verb {
        Verb::Serve(serve) => agent(common, serve),
        Verb::Run(run) => drive(common, run),
        Verb::Check { plan } => check(common, plan),
    }
}

fn agent(common: &Common, serve: &Serve) -> Result<Ended, Complaint> {
    let token = match &serve.token_file {
        None => serve.token.clone(),
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text
                .map_err(|error| Complaint(format!("cannot read `{}`: {error}", path.display())))?;
            Some(text.trim_end().to_owned())
        }
    };
    let agent = live::Agent::bind(serve.listen, token)?;
    let at = agent.address()?;
    let control = Arc::new(Control::default());
    let stopping = Arc::clone(&control);
    ctrlc::set_handler(move || stopping.stop())?;
    output::print(&match common.json {
        true => serde_json::json!({ "schema": AGENT, "address": at.to_string() }).to_string(),
        false => format!("Listening on {at}. Press Ctrl-C to stop."),
    });
    output::check()?;
    live::serve(&agent, &control, &|words| output::note(words))?;
    Ok(Ended::Done)
}

/// Reads and checks a plan.
fn read(common: &Common, path: &Path) -> Result<live::Plan, Complaint> {
    let text = world::read(path, PLAN_LEN_MAX, "a plan")?;
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    let plan = plan::plan(&path.display().to_string(), &text, &Disk::new(Some(folder)));
    let mut plan = plan.map_err(|problems| run::complaint(common, &problems))?;
    plan.seed = common.seed.unwrap_or(plan.seed);
    Ok(if common.quick { plan.quick() } else { plan })
}

fn check(common: &Common, path: &Path) -> Result<Ended, Complaint> {
    let plan = read(common, path)?;
    output::print(&match common.json {
        true => table::plan_json(PLAN, &plan).to_string(),
        false => table::plan(&plan),
    });
    Ok(Ended::Done)
}

fn drive(common: &Common, arguments: &Run) -> Result<Ended, Complaint> {
    let plan = read(common, &arguments.plan)?;
    results::prepare(arguments.out.as_deref())?;
    /// How often the bar is drawn.
    const STEPS: u64 = 1000;
    let (watch, done) = (Arc::new(Watch::default()), AtomicU64::new(0));
    let look = |bar: &ProgressBar| {
        bar.set_message("sending");
        bar.set_position(done.load(Ordering::Relaxed));
    };
    let tell = |share: f64| done.store((share * STEPS as f64) as u64, Ordering::Relaxed);
    let work = || live::run(&plan, &watch.control, &tell);
    let outcome = progress::drawn(&watch, progress::bar(STEPS), look, work)?;
    let json = serde_json::to_string_pretty(&outcome)?;
    let text = table::outcome(&outcome);
    output::print(if common.json { &json } else { &text });
    if let Some(folder) = &arguments.out {
        results::save(folder, "blast.json", json.as_bytes())?;
        results::save(folder, "blast.txt", text.as_bytes())?;
        output::note(&format!("Written to {}", folder.display()));
    }
    Ok(if outcome.kept_up && outcome.complete { Ended::Done } else { Ended::Short })
}
