//! `lastmeter serve`: a page in the browser that lists experiments, edits and runs them, shows the
//! ledger while they run, and compares.
//!
//! ```text
//! browser --HTTP--> http --> guard --> site --+--> shelf    experiments: bundled, and those of a folder
//!                    |                        |--> checks --> child process
//!                    |                        '--> runs --> child process (work) --> folder of results
//!                    '-- server-sent events <------ runs
//! ```
//!
//! A run is a process of its own, this program again: if it crashes, the page stays. For each run the
//! server holds what the list shows; ledgers stay in files and are served in parts.

mod accounts;
mod checks;
mod events;
mod files;
mod follow;
mod guard;
mod http;
mod places;
mod route;
mod runs;
mod shelf;
mod site;
mod store;
mod view;
mod work;

use crate::{Common, Complaint, Ended, output};
use guard::Guard;
use lastmeter_base::{Bytes, Quantity};
use site::Site;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

/// Open a page in the browser that edits, runs and compares experiments.
///
/// The page lists the bundled experiments and those of FOLDER. The server listens on the loopback
/// address only. With another address in --listen, or where others have accounts on this machine, it
/// prints a link with a token, and serves whoever has that.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The folder whose experiments are listed, and where changed ones are saved
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Listen on this address and port; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8642")]
    listen: SocketAddr,
    /// Require a token on the loopback address, too [default where others have accounts in /etc/passwd]
    #[arg(long, conflicts_with = "no_token")]
    token: bool,
    /// Require no token on the loopback address: whoever can log in to this machine can use the page
    #[arg(long)]
    no_token: bool,
    /// Keep the results of runs in this folder, and show those already in it
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Number of experiments run at once; further ones wait
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    at_once: u8,
    /// Memory that the runs may take together, each an equal share [default: half of this machine's]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Execute one run: the server starts itself with this
    #[arg(long, hide = true)]
    worker: bool,
    /// Check one text: the server starts itself with this
    #[arg(long, hide = true)]
    checker: bool,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter serve                              then open the link that it prints, and press Run
  lastmeter serve my-experiments --out results
  lastmeter serve --listen 192.0.2.7:8642      for other machines: the link carries a token
  lastmeter serve --memory '4 GiB' --at-once 1
  ssh -L 8642:localhost:8642 HOST lastmeter serve
                                               a remote machine's page";

/// What `--json` prints.
const SCHEMA: &str = "lastmeter.serve/1";

pub(crate) fn serve(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    if arguments.worker {
        return work::work(common);
    }
    if arguments.checker {
        return checks::work();
    }
    let near = arguments.listen.ip().is_loopback();
    if arguments.no_token && !near {
        let words = "--no-token: whoever reaches an address that is not loopback needs a token";
        return Err(Complaint(words.to_owned()));
    }
    let other = if near { accounts::other(lastmeter_linux::files::user()) } else { None };
    let asks = !near || arguments.token || (other.is_some() && !arguments.no_token);
    let at_once = usize::from(arguments.at_once);
    let memory = memory(arguments.memory.as_deref(), at_once)?;
    let token = if asks { Some(lastmeter_linux::token::random()?) } else { None };
    let listener = TcpListener::bind(arguments.listen).map_err(|error| {
        let hint = "--listen 127.0.0.1:0 picks any free port";
        Complaint(format!("cannot listen on {}: {error}; {hint}", arguments.listen))
    })?;
    let at = listener.local_addr()?;
    let shelf = shelf::Shelf::new(&arguments.folder)?;
    let folder = shelf.folder().display().to_string();
    let settings = runs::Settings {
        out: arguments.out.clone(),
        at_once,
        seed: common.seed,
        quick: common.quick,
        threads: common.threads,
        memory: memory.0,
    };
    let runs = runs::Runs::new(settings)?;
    let guard = Guard::new(at, token);
    let url = guard.url();
    match common.json {
        true => {
            let said = serde_json::json!({
                "schema": SCHEMA, "url": url, "folder": folder, "memory": memory.0,
            });
            output::print(&said.to_string());
        }
        false => {
            output::print(&format!("Open {url}\nExperiments in {folder} are listed there too."));
            output::print(&format!("Each run may take {memory} of memory (--memory)."));
            if let Some(other) = other.filter(|_| !arguments.token && !arguments.no_token) {
                output::print(&format!(
                    "The link has a token, as `{other}` has an account here (--no-token)."
                ));
            }
            output::print("Press Ctrl-C to stop.");
        }
    }
    output::check()?;
    let site = Arc::new(Site { guard, shelf, runs });
    http::serve(listener, &site)?;
    site.runs.close();
    Ok(Ended::Done)
}

/// The memory that one run may take.
fn memory(asked: Option<&str>, at_once: usize) -> Result<Bytes, Complaint> {
    /// The heap begins with 1 GiB of address space; less than this leaves too little for threads.
    const LEAST: u64 = 1536 << 20;
    let all = match asked {
        Some(text) => {
            Bytes::parse(text).map_err(|error| Complaint(format!("--memory: {error}")))?.0
        }
        None => lastmeter_linux::memory::total()? / 2,
    };
    match all / at_once as u64 {
        share if share < LEAST && asked.is_some() => Err(Complaint(format!(
            "--memory: {} for each of {at_once} runs is too little: write at least {} for each, or \
             fewer runs with --at-once",
            Bytes(share),
            Bytes(LEAST)
        ))),
        share => Ok(Bytes(share.max(LEAST))),
    }
}
