//! The same in virtual time: what the run's own file says, and set-up along rows of switches.

use crate::Complaint;
use crate::world::Disk;
use lastmeter_engine::{Control, Outcome, Serial};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::run::{Runner, Watch, outcome};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

fn simulate(
    experiment: &Experiment,
    disk: &Disk,
    control: &Arc<Control>,
) -> Result<Outcome, Complaint> {
    let mut watch = Watch::default();
    watch.control = Arc::clone(control);
    let runner = Runner { parallel: &Serial, threads: 1, library: disk, watch: &watch };
    let outcome = outcome(experiment, runner).map_err(|failure| Complaint(failure.to_string()))?;
    match control.stopped() {
        true => Err(Complaint("interrupted; nothing is left behind".into())),
        false => Ok(outcome),
    }
}

/// What each viewer of an experiment counts, by the name of its traffic.
pub(super) fn viewers(
    experiment: &Experiment,
    disk: &Disk,
    control: &Arc<Control>,
) -> Result<BTreeMap<String, BTreeMap<String, u64>>, Complaint> {
    let outcome = simulate(experiment, disk, control)?;
    let of = |name: &str| {
        let part = format!(" sees {name} of ");
        let found = outcome.elements.iter().find(|element| element.name.contains(&part))?;
        Some(found.counters.iter().map(|&(name, count)| (name.to_owned(), count)).collect())
    };
    let all = experiment.traffic.iter();
    Ok(all.filter_map(|traffic| Some((traffic.name.clone(), of(&traffic.name)?))).collect())
}

/// Seconds until an application has the answer of a peer behind this many links, in the model: links of 500 Mbit/s
/// and 500 ns, as in the deployment.
pub(super) fn set_up(links: usize, disk: &Disk, control: &Arc<Control>) -> Result<f64, Complaint> {
    let mut text = String::from("title = \"A row\"\nduration = \"5 ms\"\n[nodes]\n");
    text += "camera = { host = {} }\nalpha = { host = {} }\ns0 = { vunet-switch = {} }\n";
    let mut row = vec!["\"camera\"".to_owned(), "\"s0\"".to_owned()];
    for link in 1..=links {
        let _ = write!(
            text,
            "l{link} = {{ vunet-link = {{}} }}\ns{link} = {{ vunet-switch = {{}} }}\n"
        );
        row.extend([format!("\"l{link}\""), format!("\"s{link}\"")]);
    }
    row.push("\"alpha\"".to_owned());
    let _ = write!(
        text,
        "[[links]]\nbetween = [{}]\nrate = \"500 Mbit/s\"\ndelay = \"500 ns\"\n\
         queue = {{ drop-tail = {{ packets = 256 }} }}\n\
         [[traffic]]\nname = \"video\"\nfrom = \"camera\"\nto = \"alpha\"\nvidboard = {{}}\n",
        row.join(", ")
    );
    let experiment = Experiment::parse("row.toml", &text, &[], disk);
    let experiment = experiment.map_err(|problems| {
        let shown: Vec<String> = problems.iter().map(|problem| problem.render(false)).collect();
        Complaint(shown.join("\n"))
    })?;
    let outcome = simulate(&experiment, disk, control)?;
    let counters = outcome.elements.iter().flat_map(|element| &element.counters);
    let found = counters.clone().find(|(name, count)| *name == "set_up_ps" && *count > 0);
    let (_, ps) = found.ok_or("the model's viewer had no answer")?;
    Ok(*ps as f64 / 1e12)
}
