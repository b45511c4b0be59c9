//! `lastmeter calibrate`: this host's constants, measured and kept.

use crate::why::cache;
use crate::{Common, Complaint, Ended, output, results};
use lastmeter_live::calibrate;
use lastmeter_why::host;
use std::path::PathBuf;

/// Measure this host and write its constants as a profile.
///
/// Memory, system calls, context switches, timers, and the path from socket to socket, each with
/// unit, method and spread. Takes about half a minute. The profile is cached for `lastmeter why`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Also write the profile here [default: only to the cache that `why` reads]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Compare this host with hosts of the 1990s
    #[arg(long)]
    table: bool,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter calibrate --out host.toml
  lastmeter calibrate --table
  lastmeter calibrate --json | jq '.constants.\"context.switch\".value'";

pub(crate) fn calibrate(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    arguments.out.as_deref().map_or(Ok(()), crate::cached::make_folder)?;
    results::prepare_file(arguments.out.as_deref())?;
    let calibration = calibrate::run()?;
    let places = cache::path().into_iter().chain(arguments.out.clone());
    let mut kept = Vec::new();
    for path in places {
        crate::cached::keep(&path, &calibration)?;
        kept.push(path.display().to_string());
    }
    if common.json {
        output::print(&serde_json::to_string_pretty(&calibration)?);
    } else {
        output::print(&host::table(&calibration, output::width()));
    }
    if arguments.table && !common.json {
        output::print("");
        output::print(&host::beside(&calibration).map_err(Complaint)?);
    }
    output::note(&format!("Written to {}", kept.join(" and ")));
    Ok(Ended::Done)
}
