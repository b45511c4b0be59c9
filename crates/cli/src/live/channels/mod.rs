//! `lastmeter live EXPERIMENT` where the experiment has real-time channels and no live hosts (E-15 to E-26, E-34 to
//! E-36): its nodes as processes in network namespaces, its links as UDP between them, beside the model.
//!
//! ```text
//! experiment --> plan --> simulation, in virtual time -------+
//!                  '----> a process for each node, in real --+--> a row for each flow, and the certificate
//! ```

mod plan;
mod report;

use super::Arguments;
use crate::{Common, Complaint, Ended, output, results};
use lastmeter_base::Duration;
use lastmeter_engine::Control;
use lastmeter_lab::experiment::Experiment;
use lastmeter_ledger::html::curves;
use lastmeter_rtc::{session, simulation};
use lastmeter_transport::channel::kind;
use std::sync::Arc;

/// The model is not run for longer than this: its figures do not change any more.
const MODEL_MAX: Duration = Duration::from_secs(20);
/// The longest run: instants are counted in picoseconds, and tables kept for all of it.
const SECONDS_MAX: u64 = 7 * 86_400;

/// Whether an experiment is run so.
pub(super) fn has(experiment: &Experiment) -> bool {
    experiment.live_hosts().is_empty()
        && experiment.traffic.iter().any(|traffic| kind::is(&traffic.kind))
}

pub(super) fn run(
    common: &Common,
    arguments: &Arguments,
    experiment: &Experiment,
    control: &Arc<Control>,
) -> Result<Ended, Complaint> {
    refuse_others(arguments)?;
    let mut plan = plan::of(experiment)?;
    if let Some(seconds) = arguments.seconds {
        if seconds == 0 || seconds > SECONDS_MAX {
            let right = format!("write 1 to {SECONDS_MAX}");
            return Err(Complaint(format!("--seconds {seconds}: {right}")));
        }
        plan.length = Duration::from_secs(seconds).as_ps();
        // What lasts until the end of the experiment lasts until that of the run.
        plan.flows.iter_mut().for_each(|flow| flow.stop = flow.stop.max(plan.length));
    }
    plan.check().map_err(|error| Complaint(error.to_string()))?;
    let seconds = Duration::from_ps(plan.length).as_secs_f64();
    output::note(&format!("{} hosts in network namespaces, {seconds} s", plan.nodes.len()));
    let short = plan.length.min(MODEL_MAX.as_ps());
    let modelled = simulation::run(&lastmeter_rtc::plan::Plan { length: short, ..plan.clone() });
    let measured = session::run(&plan, &|| control.stopped());
    let measured = measured.map_err(|error| Complaint(error.to_string()))?;
    let report = report::Report::new(&plan, &measured, &modelled);
    match common.json {
        true => output::print(&format!("{:#}", report.json())),
        false => output::print(&report.text()),
    }
    if let Some(out) = &arguments.out {
        results::save(out, "channels.json", format!("{:#}\n", report.json()).as_bytes())?;
        let page = curves("Real-time channels: live beside the model", &report.plots());
        results::save(out, "channels.html", page.as_bytes())?;
    }
    Ok(if report.good() { Ended::Done } else { Ended::Short })
}

/// What only other live runs have.
fn refuse_others(arguments: &Arguments) -> Result<(), Complaint> {
    let Arguments { host, attach, port, busy, spin, pin, tolerance, .. } = arguments;
    let Arguments { strict, twin, search, pcaps, command, .. } = arguments;
    let lists = [host, attach, pcaps, command].iter().any(|list| !list.is_empty());
    let texts = [port, spin, tolerance].iter().any(|text| text.is_some());
    if lists || texts || pin.is_some() || *busy || *strict || *twin || *search {
        let right = "its channels run with programs of their own; give only --set, --seconds and \
                     --out, or make hosts of it `live`";
        return Err(Complaint(format!("`{}` has channels: {right}", arguments.experiment)));
    }
    Ok(())
}
