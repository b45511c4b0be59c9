//! `lastmeter plugin ...` and the commands of devices become `lastmeterd ...`, beside this program or in PATH, as git
//! finds its own. So this one has no compiler for WebAssembly; `run` and `sweep` hand experiments with plugins over.

use crate::{Common, Complaint, Ended};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The program that runs what belongs on devices.
const DAEMON: &str = "lastmeterd";

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// What the command of `lastmeterd` takes; `lastmeter plugin --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    rest: Vec<OsString>,
}

impl Arguments {
    /// These words.
    pub(crate) fn of(words: Vec<String>) -> Arguments {
        Arguments { rest: words.into_iter().map(OsString::from).collect() }
    }
}

/// Its commands that can be measured: `lastmeter bench router` starts `lastmeterd router bench`.
pub(crate) const MEASURED: [&str; 5] = ["camera", "disk", "display", "plugin", "router"];

/// Runs the benchmarks of one of its commands; `name` is the command, or one of its benchmarks.
pub(crate) fn bench(common: &Common, name: &str) -> Result<Ended, Complaint> {
    let command = name.split('/').next().unwrap_or(name);
    let mut rest = vec![OsString::from("bench")];
    // `plugin bench` takes a module there: it measures all three ways.
    if command != name && command != "plugin" {
        rest.push(name.into());
    }
    run(common, command, &Arguments { rest })
}

/// Becomes one of its commands; returns only if that is impossible.
pub(crate) fn run(
    common: &Common,
    command: &str,
    arguments: &Arguments,
) -> Result<Ended, Complaint> {
    let mut child = daemon();
    child.arg(command).args(&arguments.rest);
    for (is_set, option) in [(common.json, "--json"), (common.quick, "--quick")] {
        if is_set {
            child.arg(option);
        }
    }
    Err(become_it(child))
}

/// Has an experiment with plugins run by `lastmeterd`, which has a sandbox for them, with the same arguments.
pub(crate) fn hand_over(common: &Common) -> Result<Ended, Complaint> {
    let mut child = daemon();
    child.args(["model", "--"]).args(common.given.iter().skip(1));
    Err(become_it(child))
}

/// Whether the program is there.
pub(crate) fn is_there() -> bool {
    let quiet = std::process::Stdio::null;
    let version = daemon().arg("--version").stdout(quiet()).stderr(quiet()).status();
    version.is_ok_and(|status| status.success())
}

/// The program, beside this one or in PATH.
fn daemon() -> Command {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(DAEMON));
    Command::new(beside.filter(|path| path.exists()).unwrap_or_else(|| DAEMON.into()))
}

/// Becomes the other program, so that signals, the terminal and the exit status are its own.
fn become_it(mut program: Command) -> Complaint {
    let error = program.exec();
    match error.kind() {
        ErrorKind::NotFound => {
            Complaint(format!("the program {DAEMON} is missing: `make devices` builds it"))
        }
        _ => Complaint(format!("{DAEMON}: {error}")),
    }
}
