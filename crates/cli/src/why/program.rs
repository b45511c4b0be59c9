//! The user's program: run, observed from outside, and explained while it runs and when it ends.

use super::Arguments;
use super::follow::Follow;
use super::remote::Far;
use crate::{Common, Complaint, Ended, output, results};
use lastmeter_ledger as report;
use lastmeter_ledger::Ledger;
use lastmeter_linux::load;
use lastmeter_live::observe::{self, Observation, Reports, Watch};
use lastmeter_live::remote::Seen;
use lastmeter_live::sample::{Prepared, Sampled, Sampler};
use lastmeter_why::{account, observed};
use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the machine is looked at before the command starts.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn observe(
    common: &Common,
    arguments: &Arguments,
    command: &[OsString],
) -> Result<Ended, Complaint> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let words = words.join(" ");
    let busy = load::words(load::others(LOOK)?);
    if let Some(words) = &busy {
        output::note(words);
    }
    // What takes time comes before the command, which would run unseen meanwhile.
    let prepared = arguments.sampling(Prepared::new);
    let host = observe::host()?;
    let mut far = arguments.remote.far()?;
    let (reports, begun) = (Reports::open(), Instant::now());
    let child = start(common, command)?;
    let sampling = prepared.and_then(|prepared| sample(prepared, child.id()));
    let told = Told { words: &words, host, busy, sampling: &sampling };
    pass_on_interrupts(child.id());
    let mut follow = Follow::new(common, arguments.watch);
    let seen = {
        let mut each = |seen: Observation| {
            far.iter_mut().for_each(Far::keep);
            let sampled = sampling.as_ref().ok().map(Sampler::so_far);
            follow.show(&told.ledger(&seen, sampled.as_ref()));
            Ok(())
        };
        let sampler = sampling.as_ref().ok();
        let every = Follow::EVERY;
        observe::follow(child, Watch { sampler, begun, reports, every, each: &mut each })?
    };
    let sampled = sampling.as_ref().ok().and_then(|sampler| sampler.end().ok());
    let mut ledger = told.ledger(&seen, sampled.as_ref());
    if let Some(far) = far {
        let unsampled = sampling.as_ref().err().cloned();
        let busy = told.busy.clone();
        let ours = Seen { observation: seen.clone(), sampled, unsampled, busy };
        ledger = far.join(ledger, &told, &ours);
    }
    match common.json {
        true => output::print(&report::json::to_line(&ledger)),
        false => {
            output::print("");
            output::print(&report::terminal::render(&ledger, output::style()));
        }
    }
    results::offer(arguments.out.as_deref(), &ledger)?;
    Ok(match seen.status {
        Some(0) => Ended::Done,
        // Exit statuses are one byte; a signal is reported as shells do.
        Some(status) => Ended::Status(u8::try_from(status).unwrap_or(1)),
        None => Ended::Status(seen.signal.and_then(|s| u8::try_from(128 + s).ok()).unwrap_or(1)),
    })
}

fn start(common: &Common, command: &[OsString]) -> Result<Child, Complaint> {
    let [program, arguments @ ..] = command else {
        return Err(Complaint("no command was given: write `-- COMMAND ARGUMENTS`".to_owned()));
    };
    let mut child = Command::new(program);
    child.args(arguments);
    if common.json {
        // Standard output is for the ledger.
        child.stdout(Stdio::from(io::stderr()));
    }
    child.spawn().map_err(|error| {
        let program = program.to_string_lossy();
        Complaint(format!("cannot start `{program}`: {error}"))
    })
}

/// Starts to sample the command.
fn sample(prepared: Prepared, pid: u32) -> Result<Sampler, String> {
    let sampler = Sampler::open(prepared, &[pid])?.with_waits();
    sampler.begin().map_err(|error| error.to_string())?;
    Ok(sampler)
}

/// What every ledger of this command says besides what was observed.
pub(super) struct Told<'a> {
    pub(super) words: &'a str,
    pub(super) host: String,
    busy: Option<String>,
    sampling: &'a Result<Sampler, String>,
}

impl Told<'_> {
    fn ledger(&self, seen: &Observation, sampled: Option<&Sampled>) -> Ledger {
        let mut ledger = observed::ledger(self.words, seen, self.host.clone());
        account::add(&mut ledger, seen, sampled);
        ledger.notes.splice(0..0, self.busy.clone());
        if let Err(why) = self.sampling {
            ledger.notes.push(format!("L0: CPU time is not divided, because {why}."));
        }
        ledger
    }
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
