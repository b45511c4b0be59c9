//! A transfer of our own: measured, broken down into stages, predicted, changed and measured again.

use super::steps::Steps;
use super::{Arguments, cache};
use crate::{Common, Complaint, Ended, output, results};
use lastmeter_base::Bytes;
use lastmeter_ledger as report;
use lastmeter_ledger::{Ledger, Source};
use lastmeter_linux::load;
use lastmeter_live::calibrate::Calibration;
use lastmeter_live::namespace::Hosts;
use lastmeter_live::observe;
use lastmeter_live::predict::{Prediction, predict};
use lastmeter_live::sample;
use lastmeter_live::stages::{self, Stages};
use lastmeter_live::transfer::{Measurement, Setting};
use lastmeter_why::change::{self, Change};
use lastmeter_why::trial::{self, Trials};
use lastmeter_why::what_if::{self, Candidate};
use lastmeter_why::{beside, explain, model, own};
use std::time::{Duration, Instant};

/// How long the machine is looked at before anything runs.
const LOOK: Duration = Duration::from_millis(200);
/// How long a transfer is retried while other programs disturb it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Said where nothing is predicted because nothing is known of the host yet.
const UNCALIBRATED: &str = "This host is not calibrated, so nothing is predicted: `lastmeter \
                            calibrate` (half a minute) adds what faster processors and memory \
                            would buy, and predictions beside what is measured here.";

/// A first look is this long: its verdict comes before three seconds have passed.
const FIRST: lastmeter_base::Duration = lastmeter_base::Duration::from_ms(500);

/// All findings.
struct Found {
    measured: Measurement,
    stages: Stages,
    host: String,
    /// Why there are no samples, or remarks on them.
    notes: Vec<String>,
    /// What changes buy, best first.
    candidates: Vec<Candidate>,
    /// The one that was requested, or the best.
    chosen: Option<usize>,
    /// Where this host is calibrated.
    model: Option<Model>,
}

/// What the model of this host says.
struct Model {
    prediction: Prediction,
    profile: Source,
    /// Why it predicts no changes.
    refuted: Option<String>,
}

/// What the user asks about changes.
#[derive(Clone, Copy)]
struct Asked {
    change: Option<Change>,
    apply: bool,
}

impl Asked {
    /// Whether the constants of a calibration say something about what is wanted.
    fn predicts(self, setting: &Setting) -> bool {
        setting.relay.is_none() && self.change.is_none_or(|change| change.is_predicted())
    }

    /// The changes that are applied: the one requested, or all.
    fn to_apply(self, all: &[Change]) -> Vec<Change> {
        match self.change {
            Some(change) if self.apply => vec![change],
            Some(_) => Vec::new(),
            None => all.to_vec(),
        }
    }
}

pub(super) fn explain(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    let setting = arguments.transfer.setting(common.quick)?;
    let asked = arguments.what_if.as_ref();
    let change = asked.map(|text| self::asked(text, arguments.apply, &setting)).transpose()?;
    let asked = Asked { change, apply: arguments.apply };
    let steps = Steps::new(6);
    let mut hosts = Hosts::open(setting.relay.is_some())?;
    steps.next("looking at the machine");
    let busy = load::words(load::others(LOOK)?);
    if let Some(words) = &busy {
        steps.aside(|| output::note(words));
    }
    let mut found = first(common, &steps, &mut hosts, arguments, &setting, busy)?;
    // A calibration is never a reason to wait for what can be had without: only a prediction that was asked for
    // needs one.
    let cold = cache::is_cold();
    if cold && asked.change.is_some() && asked.predicts(&setting) {
        let ledger = ledger(&found);
        steps.aside(|| match common.json {
            true => output::print(&report::json::to_line(&ledger)),
            false => output::print(&report::terminal::render(&ledger, output::style())),
        });
    }
    changes(&steps, &mut hosts, &mut found, asked, cold)?;
    drop(steps);
    let ledger = ledger(&found);
    if common.json {
        output::print(&report::json::to_line(&ledger));
    } else {
        if cold && found.model.is_some() {
            output::print("\nWith the constants of this host:");
        }
        show(&found, &ledger);
        if arguments.layers {
            output::print(&report::terminal::render_layers(&ledger, output::style()));
        }
    }
    if let (Some(folder), Some(model)) = (&arguments.out, &found.model) {
        let predicted = model::ledger(&setting, &model.prediction, model.profile.clone());
        let json = report::json::to_json(&predicted);
        results::save(folder, "model.json", json.as_bytes())?;
    }
    results::offer(arguments.out.as_deref(), &ledger)?;
    Ok(Ended::Done)
}

/// A short transfer, whose verdict is printed at once, then the whole one with its stages.
fn first(
    common: &Common,
    steps: &Steps,
    hosts: &mut Hosts,
    arguments: &Arguments,
    setting: &Setting,
    busy: Option<String>,
) -> Result<Found, Complaint> {
    let begun = Instant::now();
    let sampling = arguments.sampling(|| hosts.sample());
    let host = observe::host()?;
    steps.next("a first look");
    let short = Setting { duration: setting.duration.min(FIRST), ..setting.clone() };
    let look = hosts.run(&short)?;
    let early = own::first_look(&look, host.clone(), begun.elapsed().as_secs_f64());
    steps.aside(|| match common.json {
        true => output::print(&report::json::to_line(&early)),
        false => output::print(&own::first_words(&early, &look)),
    });
    let (measured, stages) = measure(steps, hosts, arguments, setting)?;
    let mut notes: Vec<String> = busy.into_iter().collect();
    if let Err(why) = sampling {
        notes.push(format!("L0: the stages were found by leaving them out, because {why}."));
    }
    Ok(Found { measured, stages, host, notes, candidates: Vec::new(), chosen: None, model: None })
}

/// The transfer and its stages: sampled where that is allowed, else by leaving them out.
fn measure(
    steps: &Steps,
    hosts: &mut Hosts,
    arguments: &Arguments,
    setting: &Setting,
) -> Result<(Measurement, Stages), Complaint> {
    steps.next("measuring the transfer");
    let until = Instant::now() + PATIENCE;
    if hosts.samples() {
        let measured = hosts.run_sampled(&arguments.transfer.sampled(setting), until)?;
        if let Some(stages) = sample::stages::stages(&measured) {
            return Ok((measured, stages));
        }
    }
    let measured = hosts.run_quiet(setting, until)?;
    steps.next("measuring stage by stage");
    let stages = stages::measure(hosts, setting)?;
    Ok((measured, stages))
}

/// The ledger of a transfer on this machine, of messages of this size.
pub(super) fn measured(
    common: &Common,
    arguments: &Arguments,
    message: Bytes,
) -> Result<Ledger, Complaint> {
    let setting = Setting { message, ..arguments.transfer.setting(common.quick)? };
    let steps = Steps::new(2);
    let mut hosts = Hosts::open(setting.relay.is_some())?;
    let sampling = arguments.sampling(|| hosts.sample());
    let (measured, stages) = measure(&steps, &mut hosts, arguments, &setting)?;
    let notes = sampling.err().into_iter().collect();
    let host = observe::host()?;
    Ok(ledger(&Found {
        measured,
        stages,
        host,
        notes,
        candidates: Vec::new(),
        chosen: None,
        model: None,
    }))
}

/// How a figure is measured; the cost of a stage is measured first.
pub(super) fn explain_figure(
    common: &Common,
    arguments: &Arguments,
    name: &str,
) -> Result<Ended, Complaint> {
    let setting = arguments.transfer.setting(common.quick)?;
    let stage = match sample::stages::names().into_iter().find(|stage| stage == name.trim()) {
        Some(sampled) => Ok(sampled),
        None => match explain::find(name).map_err(Complaint)? {
            explain::Explained::Figure(words) => Err(format!("{name}: {words}.")),
            explain::Explained::Stage(stage) => Ok(stage.to_owned()),
        },
    };
    let words = match stage {
        Err(words) => words,
        Ok(stage) => {
            let steps = Steps::new(2);
            let mut hosts = Hosts::open(setting.relay.is_some())?;
            // A stage that only leaving out finds needs no samples.
            if sample::stages::names().contains(&stage) {
                let _ = arguments.sampling(|| hosts.sample());
            }
            explain::stage(&stage, &measure(&steps, &mut hosts, arguments, &setting)?.1)
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
    let known = change.is_predicted() && setting.relay.is_none();
    if !apply && !known {
        let words = "no constant of a calibration says what it brings: add --apply";
        return Err(Complaint(format!("`{text}` can only be measured, {words}")));
    }
    if change.is_soft() && changed == *setting {
        return Err(Complaint(format!("`{text}` changes nothing: the transfer has it already")));
    }
    Ok(change)
}

/// What changes buy: applied in turn with the transfer, and predicted where this host is calibrated or a prediction
/// was asked for.
fn changes(
    steps: &Steps,
    hosts: &mut Hosts,
    found: &mut Found,
    asked: Asked,
    cold: bool,
) -> Result<(), Complaint> {
    hosts.stop_sampling();
    let setting = &found.measured.setting;
    let mut all = change::candidates(setting);
    all.extend(asked.change.filter(|change| !all.contains(change)));
    let to_apply = asked.to_apply(&all);
    let mut trials = None;
    if !to_apply.is_empty() {
        steps.next("applying changes");
        trials = trial::in_turn(hosts, setting, &to_apply)?;
    }
    let mut predicted = None;
    if cold && asked.change.is_none() {
        found.notes.push(UNCALIBRATED.to_owned());
    } else if asked.predicts(setting) {
        steps.next(if cold { "calibrating this host" } else { "reading calibration" });
        let held = cache::refreshed(cache::calibration()?, hosts)?;
        steps.aside(|| cache::say(&held));
        let calibration = &held.calibration;
        let prediction = predict(calibration, setting)?;
        let mut refuted = what_if::refuted(&found.measured, &prediction);
        let to_measure = asked.change.is_some_and(|change| change.is_soft()) && !asked.apply;
        if let Some(words) = refuted.as_mut().filter(|_| to_measure) {
            words.push_str(" Add --apply to measure the one you asked for.");
        }
        if refuted.is_none() {
            predicted = Some(what_if::predicted(calibration, setting, &all)?);
        }
        found.model = Some(Model { prediction, profile: profile(calibration)?, refuted });
    }
    found.notes.extend(trials.as_ref().map(Trials::words));
    found.candidates =
        what_if::candidates(&found.measured, &all, predicted.as_ref(), trials.as_ref());
    found.chosen = match asked.change {
        Some(change) => found.candidates.iter().position(|one| one.change == change),
        None => what_if::best(&found.candidates),
    };
    Ok(())
}

/// The calibration as a source of figures.
fn profile(calibration: &Calibration) -> Result<Source, Complaint> {
    let hash = lastmeter_lab::digest(calibration.to_toml()?);
    Ok(Source { name: "this host".to_owned(), hash })
}

fn ledger(found: &Found) -> Ledger {
    let mut ledger = own::ledger(own::Account {
        measured: &found.measured,
        stages: &found.stages,
        what_ifs: found.candidates.iter().map(|one| one.row.clone()).collect(),
        host: found.host.clone(),
        profile: found.model.as_ref().map(|model| model.profile.clone()),
    });
    ledger.notes.splice(0..0, found.notes.iter().cloned());
    ledger.notes.extend(found.model.as_ref().and_then(|model| model.refuted.clone()));
    ledger
}

fn show(found: &Found, ledger: &Ledger) {
    output::print(&report::terminal::render(ledger, output::style()));
    if let Some(model) = &found.model {
        output::print("");
        output::print(&beside::table(&found.measured, &found.stages, &model.prediction));
        if let Some(words) = &model.refuted {
            output::print(&format!("  {words}"));
        }
    }
    if let Some(candidate) = found.chosen.map(|place| &found.candidates[place]) {
        output::print("");
        output::print(&beside::applied(candidate));
    }
}
