//! `lastmeter serve`: a page in the browser that lists experiments, edits and runs them, shows the
//! ledger while they run, and compares.
//!
//! ```text
//! browser --HTTP--> http --> guard --> site --+--> shelf    experiments: bundled, and those of a folder
//!                    |                        '--> runs --> child process (work) --> folder of results
//!                    '-- server-sent events <------ runs
//! ```
//!
//! A run is a process of its own, this program again: if it crashes, the page stays. For each run the
//! server holds what the list shows; ledgers stay in files and are served in parts.

mod events;
mod files;
mod follow;
mod guard;
mod http;
mod route;
mod runs;
mod shelf;
mod site;
mod store;
mod view;
mod work;

use crate::{Common, Complaint, Ended, output};
use guard::Guard;
use site::Site;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

/// Open a page in the browser that edits, runs and compares experiments.
///
/// The page lists the bundled experiments and those of FOLDER. The server listens on the loopback
/// address only; with another address in --listen it prints a link with a token, and serves whoever
/// has that.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The folder whose experiments are listed, and where changed ones are saved
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Listen on this address and port; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8642")]
    listen: SocketAddr,
    /// Require a token on the loopback address too, where other users have accounts
    #[arg(long)]
    token: bool,
    /// Keep the results of runs in this folder, and show those already in it
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Number of experiments run at once; further ones wait
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    at_once: u8,
    /// Execute one run: the server starts itself with this
    #[arg(long, hide = true)]
    worker: bool,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter serve                              then open the link that it prints, and press Run
  lastmeter serve my-experiments --out results
  lastmeter serve --listen 192.0.2.7:8642      for other machines: the link carries a token
  ssh -L 8642:localhost:8642 HOST lastmeter serve
                                               a remote machine's page, without a token";

/// What `--json` prints.
const SCHEMA: &str = "lastmeter.serve/1";

pub(crate) fn serve(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    if arguments.worker {
        return work::work(common);
    }
    let asks = arguments.token || !arguments.listen.ip().is_loopback();
    let token = if asks { Some(lastmeter_live::token::random()?) } else { None };
    let listener = TcpListener::bind(arguments.listen).map_err(|error| {
        let hint = "--listen 127.0.0.1:0 picks any free port";
        Complaint(format!("cannot listen on {}: {error}; {hint}", arguments.listen))
    })?;
    let at = listener.local_addr()?;
    let shelf = shelf::Shelf::new(&arguments.folder)?;
    let folder = shelf.folder().display().to_string();
    let settings = runs::Settings {
        out: arguments.out.clone(),
        at_once: usize::from(arguments.at_once),
        seed: common.seed,
        quick: common.quick,
        threads: common.threads,
    };
    let runs = runs::Runs::new(settings)?;
    let guard = Guard::new(at, token);
    let url = guard.url();
    match common.json {
        true => {
            let said = serde_json::json!({ "schema": SCHEMA, "url": url, "folder": folder });
            output::print(&said.to_string());
        }
        false => {
            output::print(&format!("Open {url}\nExperiments in {folder} are listed there too."));
            output::print("Press Ctrl-C to stop.");
        }
    }
    let site = Arc::new(Site { guard, shelf, runs });
    http::serve(listener, &site)?;
    site.runs.close();
    Ok(Ended::Done)
}
