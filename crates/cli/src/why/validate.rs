//! How accurate predictions are on this host: ten settings, and three changes of each.

use super::cache;
use super::steps::Steps;
use crate::{Common, Complaint, Ended, output};
use lastmeter_live::calibrate::{self, Calibration};
use lastmeter_live::namespace::Hosts;
use lastmeter_live::transfer::Setting;
use lastmeter_live::validate;
use lastmeter_why::ranking::{self, Row, Tried};

pub(super) fn validate(common: &Common) -> Result<Ended, Complaint> {
    let settings = validate::settings();
    let steps = Steps::new(settings.len() as u64 + 1);
    steps.next(if cache::is_cold() { "calibrating this host" } else { "reading calibration" });
    let mut held = cache::calibration()?;
    let width = output::width();
    steps.aside(|| {
        cache::say(&held);
        if !common.json {
            output::print(&ranking::heading(width));
        }
    });
    let mut hosts = Hosts::open(false)?;
    let mut rows = Vec::new();
    for (name, setting) in settings {
        steps.next("predicting and measuring");
        // A machine's speed drifts; no setting of the table is a reference.
        calibrate::refresh(&mut hosts, &mut held.calibration)?;
        let row = row(&mut hosts, &held.calibration, name, &setting)?;
        // Each row as it comes, so that an interrupt loses none.
        steps.aside(|| match common.json {
            true => output::print(&serde_json::to_string(&row).unwrap_or_default()),
            false => output::print(&ranking::line(&row, width)),
        });
        rows.push(row);
    }
    drop(steps);
    if !common.json {
        output::print(&ranking::summary(&rows));
    }
    Ok(if ranking::passes(&rows) { Ended::Done } else { Ended::Short })
}

fn row(
    hosts: &mut Hosts,
    calibration: &Calibration,
    name: &str,
    setting: &Setting,
) -> Result<Row, Complaint> {
    let changes = ranking::changes(setting);
    let mut settings = vec![setting.clone()];
    settings.extend(changes.iter().map(|change| change.setting(setting)));
    let all = validate::together(hosts, calibration, &settings)?;
    let tried = changes.iter().zip(&all[1..]).map(|(change, one)| Tried {
        change: change.key(),
        predicted: one.predicted,
        measured: one.measured,
    });
    Ok(ranking::row(name, &all[0], tried.collect()))
}
