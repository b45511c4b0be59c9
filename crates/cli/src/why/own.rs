//! A transfer of our own: measured, broken down into stages, predicted, changed and measured again.

use super::steps::Steps;
use super::{Arguments, cache};
use crate::{Common, Complaint, Ended, output, results};
use lastmeter_base::Bytes;
use lastmeter_ledger as report;
use lastmeter_ledger::{Ledger, Source};
use lastmeter_live::calibrate::Calibration;
use lastmeter_live::namespace::Hosts;
use lastmeter_live::predict::{Prediction, predict};
use lastmeter_live::stages::{self, Stages};
use lastmeter_live::transfer::{Measurement, Setting};
use lastmeter_why::change::{self, Change};
use lastmeter_why::what_if::{self, Candidate};
use lastmeter_why::{beside, explain, model, own};
use std::time::{Duration, Instant};

/// How long a transfer is retried while other programs disturb it.
const PATIENCE: Duration = Duration::from_secs(5);

/// All findings.
struct Found {
    measured: Measurement,
    stages: Stages,
    prediction: Prediction,
    candidates: Vec<Candidate>,
    /// The one that was chosen or requested.
    chosen: Option<usize>,
    profile: Source,
    host: String,
}

pub(super) fn explain(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    let setting = arguments.transfer.setting(common.quick)?;
    let asked = arguments.what_if.as_ref();
    let asked = asked.map(|text| self::asked(text, arguments.apply, &setting)).transpose()?;
    let found = find(&setting, asked, arguments.apply || asked.is_none())?;
    let ledger = ledger(&found);
    let predicted = model::ledger(&setting, &found.prediction, found.profile.clone());
    if common.json {
        output::print(&report::json::to_json(&ledger));
    } else {
        show(&found, &ledger);
    }
    if let Some(folder) = &arguments.out {
        let json = report::json::to_json(&predicted);
        results::save(folder, "model.json", json.as_bytes())?;
    }
    results::offer(arguments.out.as_deref(), &ledger)?;
    Ok(Ended::Done)
}

/// The ledger of a transfer on this machine, of messages of this size.
pub(super) fn measured(
    common: &Common,
    arguments: &Arguments,
    message: Bytes,
) -> Result<Ledger, Complaint> {
    let setting = Setting { message, ..arguments.transfer.setting(common.quick)? };
    Ok(ledger(&find(&setting, None, false)?))
}

/// How a figure is measured; the cost of a stage is measured first.
pub(super) fn explain_figure(
    common: &Common,
    arguments: &Arguments,
    name: &str,
) -> Result<Ended, Complaint> {
    let setting = arguments.transfer.setting(common.quick)?;
    let words = match explain::find(name).map_err(Complaint)? {
        explain::Explained::Figure(words) => format!("{name}: {words}."),
        explain::Explained::Stage(stage) => {
            let steps = Steps::new(1);
            steps.next("measuring the stages");
            let mut hosts = Hosts::open(false)?;
            explain::stage(stage, &stages::measure(&mut hosts, &setting)?)
        }
    };
    match common.json {
        true => output::print(&serde_json::json!({ "name": name, "words": words }).to_string()),
        false => output::print(&words),
    }
    Ok(Ended::Done)
}

/// The change that the user requests, rejected before any measurement if it is impossible.
fn asked(text: &str, apply: bool, setting: &Setting) -> Result<Change, Complaint> {
    let change = Change::parse(text).map_err(Complaint)?;
    let changed = change.setting(setting);
    changed.check()?;
    if apply && !change.is_soft() {
        let words = "it can only be predicted: leave out --apply";
        return Err(Complaint(format!("`{text}` cannot be applied to this machine, {words}")));
    }
    if change.is_soft() && changed == *setting {
        return Err(Complaint(format!("`{text}` changes nothing: the transfer has it already")));
    }
    Ok(change)
}

fn find(setting: &Setting, asked: Option<Change>, apply: bool) -> Result<Found, Complaint> {
    let steps = Steps::new(5);
    steps.next(if cache::is_cold() { "calibrating this host" } else { "reading calibration" });
    let mut hosts = Hosts::open(false)?;
    let held = cache::refreshed(cache::calibration()?, &mut hosts)?;
    steps.aside(|| cache::say(&held));
    let calibration = &held.calibration;
    let prediction = predict(calibration, setting)?;
    steps.next("measuring the transfer");
    let measured = hosts.run_quiet(setting, Instant::now() + PATIENCE)?;
    steps.next("measuring stage by stage");
    let stages = stages::measure(&mut hosts, setting)?;
    let mut changes = change::candidates(setting);
    if let Some(change) = asked.filter(|change| !changes.contains(change)) {
        changes.push(change);
    }
    steps.next("predicting changes");
    let mut candidates = what_if::predicted(calibration, &measured, &changes)?;
    let chosen = match asked {
        Some(change) => candidates.iter().position(|one| one.change == change),
        None => what_if::best(&candidates),
    };
    if let Some(candidate) = chosen.filter(|_| apply).map(|place| &mut candidates[place]) {
        steps.next("applying a change");
        let changed = candidate.change.setting(setting);
        let after = hosts.run_quiet(&changed, Instant::now() + PATIENCE)?;
        what_if::applied(candidate, &after);
    }
    let profile = profile(calibration)?;
    let host = cache::words(calibration);
    Ok(Found { measured, stages, prediction, candidates, chosen, profile, host })
}

/// The calibration as a source of figures.
fn profile(calibration: &Calibration) -> Result<Source, Complaint> {
    let hash = lastmeter_lab::digest(calibration.to_toml()?);
    Ok(Source { name: "this host".to_owned(), hash })
}

fn ledger(found: &Found) -> Ledger {
    own::ledger(own::Account {
        measured: &found.measured,
        stages: &found.stages,
        what_ifs: found.candidates.iter().map(|one| one.row.clone()).collect(),
        host: found.host.clone(),
        profile: found.profile.clone(),
    })
}

fn show(found: &Found, ledger: &Ledger) {
    output::print(&report::terminal::render(ledger, output::style()));
    output::print("");
    output::print(&beside::table(&found.measured, &found.stages, &found.prediction));
    if let Some(candidate) = found.chosen.map(|place| &found.candidates[place]) {
        output::print("");
        output::print(&beside::applied(candidate));
    }
}
