//! `lastmeter why`: a transfer on this machine, or somebody's program, explained.

pub(crate) mod cache;
mod follow;
mod historic;
mod options;
mod own;
mod program;
mod remote;
mod steps;
mod truth;
mod validate;

use crate::{Common, Complaint, Ended, output, results};
use lastmeter_base::{Bytes, Rate};
use lastmeter_why::change;
use lastmeter_why::truth::SEVERITIES;
use std::ffi::OsString;
use std::path::PathBuf;

/// Explain a transfer on this machine: which side and resource limit it, and what would help.
///
/// Runs a transfer between two processes in network namespaces of their own, says at once what limits it,
/// measures each of its stages (by sampling the kernel where that is allowed, else by leaving them out), and
/// applies changes in turn with the transfer to measure what each buys. Where this host is calibrated
/// (`lastmeter calibrate`), predictions stand beside. Needs no privileges where user namespaces are allowed.
///
/// With `--to HOST`, where `lastmeter why --agent` runs, both ends of the transfer or of the command's connections
/// are observed, each on its own host, and joined into one ledger.
///
/// With `-- COMMAND`, follows the TCP connections of that command and its children instead, and
/// reports what limited them when it ends. The exit status is then the command's own, or 128 plus the
/// signal that ended it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    transfer: options::Transfer,
    /// Predict this change instead of the best one, e.g. `mtu=4000`; `list` prints them all
    #[arg(long, value_name = "CHANGE")]
    what_if: Option<String>,
    /// Apply the change of --what-if and measure it
    #[arg(long, requires = "what_if")]
    apply: bool,
    /// Also print the layers of the path: what a stage is for, the jitter it adds, and how many packets wait there
    #[arg(long)]
    layers: bool,
    /// Explain how a stage or a figure is measured
    #[arg(long, value_name = "STAGE", conflicts_with_all = ["what_if", "validate"])]
    explain: Option<String>,
    /// Predict and measure ten settings, and report how accurate the predictions are
    #[arg(long, conflicts_with = "what_if")]
    validate: bool,
    /// Make bottlenecks on purpose, explain each from both sides, and score the verdicts
    #[arg(
        long,
        conflicts_with_all = ["what_if", "apply", "explain", "validate", "host", "adapter"]
    )]
    truth: bool,
    /// Only this bottleneck, or with --prove this what-if
    #[arg(long, value_name = "NAME", requires = "truth")]
    case: Option<String>,
    /// Only this severity, 1 to 3
    #[arg(long, value_name = "N", requires = "truth",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SEVERITIES)))]
    severity: Option<u32>,
    /// While other programs keep every core busy
    #[arg(long, requires = "truth")]
    load: bool,
    /// Score what-ifs: make each change, and print what it brought beside what was predicted
    #[arg(long, requires = "truth", conflicts_with = "load")]
    prove: bool,
    /// Model a historic host instead: a profile in profiles/hosts
    #[arg(long, value_name = "PROFILE", requires = "adapter", conflicts_with_all = MODELLED)]
    host: Option<String>,
    /// Its adapter: a profile in profiles/adapters, or two: afterburner+jetstream has the link of the second
    #[arg(long, value_name = "PROFILE")]
    adapter: Option<String>,
    /// Find which hosts carry this rate over --adapter, and how much faster the others would have to be
    #[arg(long, value_name = "RATE", requires = "adapter", conflicts_with = "host",
          value_parser = options::rate)]
    reach: Option<Rate>,
    /// Data per packet of the modelled transfer [default: 14 KiB, or the adapter's limit]
    #[arg(long, value_name = "SIZE", requires = "host", value_parser = options::size)]
    packet: Option<Bytes>,
    /// Measure the same on this machine, and print both side by side
    #[arg(long, value_name = "WHAT", requires = "host", value_parser = ["this"])]
    beside: Option<String>,
    #[command(flatten)]
    remote: remote::Remote,
    /// Write ledger.json, ledger.html, tables in Parquet and model.json into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Do not sample, as if this user might not: privilege level L0
    #[arg(long)]
    no_sampling: bool,
    /// Show what limits the command while it runs, drawn anew each second
    #[arg(long, requires = "command")]
    watch: bool,
    /// Explain this program instead: what limited its TCP connections
    #[arg(last = true, value_name = "COMMAND", num_args = 1.., conflicts_with_all = ALONE)]
    command: Vec<OsString>,
}

impl Arguments {
    /// Starts sampling unless the user wants none; or why there is none, in words.
    fn sampling<T>(&self, start: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        match self.no_sampling {
            true => Err("--no-sampling was given".to_owned()),
            false => start(),
        }
    }
}

/// Options that conflict with a command.
const ALONE: [&str; 6] = ["what_if", "apply", "explain", "validate", "host", "truth"];
/// Options that conflict with a modelled host.
const MODELLED: [&str; 4] = ["what_if", "apply", "explain", "validate"];

const EXAMPLES: &str = "\
Examples:
  lastmeter why                                   the plain stream on this machine
  lastmeter why --message 4KiB --no-offload       another transfer
  lastmeter why --what-if mtu=9000 --apply        predict one change, apply it, measure
  lastmeter why --explain 'copy out'              how that figure came about
  lastmeter why --validate                        how far the predictions hold
  lastmeter why --truth                           how often the verdicts are right
  lastmeter why --truth --prove                   how often the predicted gains are
  lastmeter why --host hp9000-730 --adapter afterburner --beside this
  lastmeter why --reach '1 Gbit/s' --adapter afterburner+jetstream
                                                  the first host that carries this rate
  lastmeter why -- iperf3 -c HOST                 what limited somebody's program
  lastmeter why --agent --listen 10.0.0.2:7401    on one host: prints a token
  lastmeter why --to 10.0.0.2 --token-file token  on another: a transfer, seen from both ends
  lastmeter why --to 10.0.0.2 --token-file token -- curl -O http://10.0.0.2/file
                                                  somebody's program, seen from both ends";

pub(crate) fn why(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    if arguments.what_if.as_deref() == Some("list") {
        output::print(&list());
        return Ok(Ended::Done);
    }
    results::prepare(arguments.out.as_deref())?;
    match (&arguments.host, &arguments.adapter, arguments.reach) {
        (Some(host), Some(adapter), _) => {
            return historic::explain(common, arguments, host, adapter);
        }
        (None, Some(adapter), Some(target)) => return historic::reach(common, adapter, target),
        (None, Some(_), None) => {
            return Err(Complaint("--adapter requires --host or --reach".to_owned()));
        }
        _ => {}
    }
    if let Some(name) = &arguments.explain {
        return own::explain_figure(common, arguments, name);
    }
    if arguments.remote.agent {
        return remote::agent(common, &arguments.remote);
    }
    if !arguments.command.is_empty() && !arguments.transfer.is_default() {
        let right = "leave out the options before `--`, or the command after it";
        let wrong = "a command makes its own transfer, which these options cannot set";
        return Err(Complaint(format!("{wrong}: {right}")));
    }
    match arguments.command.as_slice() {
        [] if arguments.truth => {
            let Arguments { severity, load, prove, .. } = *arguments;
            match (arguments.case.as_deref(), prove) {
                (case, true) => truth::score(common, case, severity),
                (case, false) => truth::truth(common, case, severity, load),
            }
        }
        [] if arguments.validate => validate::validate(common),
        [] if arguments.remote.to.is_some() => remote::transfer(common, arguments),
        [] => own::explain(common, arguments),
        command => program::observe(common, arguments, command),
    }
}

/// The list of all changes.
fn list() -> String {
    let mut text = String::from("Changes for --what-if; those marked * can only be predicted:\n");
    for (_, example, words) in change::NAMES {
        let soft = change::Change::parse(example).is_ok_and(|change| change.is_soft());
        let mark = if soft { ' ' } else { '*' };
        text.push_str(&format!("  {example:<24}{mark} {words}\n"));
    }
    text
}
