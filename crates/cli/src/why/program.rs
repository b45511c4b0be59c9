//! The user's program: run, observed from outside, and explained when it ends.

use crate::{Common, Complaint, Ended, output, results};
use lastmeter_ledger as report;
use lastmeter_live::observe;
use lastmeter_why::observed;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) fn observe(
    common: &Common,
    command: &[OsString],
    out: Option<&Path>,
) -> Result<Ended, Complaint> {
    let [program, arguments @ ..] = command else {
        return Err(Complaint("no command was given: write `-- COMMAND ARGUMENTS`".to_owned()));
    };
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let words = words.join(" ");
    let mut child = Command::new(program);
    child.args(arguments);
    if common.json {
        // Standard output is for the ledger.
        child.stdout(Stdio::from(io::stderr()));
    }
    let child = child.spawn().map_err(|error| {
        let program = program.to_string_lossy();
        Complaint(format!("cannot start `{program}`: {error}"))
    })?;
    pass_on_interrupts(child.id());
    let seen = observe::follow(child)?;
    let ledger = observed::ledger(&words, &seen, observe::host()?);
    match common.json {
        true => output::print(&report::json::to_json(&ledger)),
        false => {
            output::print("");
            output::print(&report::terminal::render(&ledger, output::style()));
        }
    }
    results::offer(out, &ledger)?;
    Ok(match seen.status {
        Some(0) => Ended::Done,
        // Exit statuses are one byte; a signal is reported as shells do.
        Some(status) => Ended::Status(u8::try_from(status).unwrap_or(1)),
        None => Ended::Status(seen.signal.and_then(|s| u8::try_from(128 + s).ok()).unwrap_or(1)),
    })
}

/// The first interrupt goes to the command, which ends and is explained; the second ends this program.
fn pass_on_interrupts(pid: u32) {
    let asked = AtomicBool::new(false);
    // There is only one handler, and this command sets it once.
    let _ = ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        observe::interrupt(pid);
    });
}
