//! Measured and predicted as text, side by side.

use super::own::run_per_message;
use super::what_if::Candidate;
use lastmeter_ledger::Ledger;
use lastmeter_ledger::figures;
use lastmeter_live::predict::{self, Part, Prediction};
use lastmeter_live::sample::Class;
use lastmeter_live::stages::{self, Stages};
use lastmeter_live::transfer::{Measurement, Placement, Workload};

/// The same rows of several ledgers side by side: throughput, what limits, what copies and costs.
pub fn ledgers(named: &[(&str, &Ledger)]) -> String {
    let copies = |ledger: &Ledger| {
        let stages = ledger.paths.first().map_or(&[][..], |path| &path.stages);
        stages.iter().filter_map(|stage| stage.copies).sum::<u32>()
    };
    let limit = |ledger: &Ledger| {
        let verdict = ledger.verdict.as_ref();
        verdict.and_then(|v| v.resource.clone()).unwrap_or_else(|| "inconclusive".to_owned())
    };
    let in_use = |ledger: &Ledger| {
        let verdict = ledger.verdict.as_ref();
        let used = verdict.and_then(|verdict| verdict.utilisation);
        used.map_or_else(String::new, |used| format!("{:.0} %", used * 100.0))
    };
    let best = |ledger: &Ledger| {
        let first = ledger.what_ifs.first();
        first.map_or_else(String::new, |w| format!("{} ({:+.0} %)", w.change, w.gain * 100.0))
    };
    type Cell<'a> = (&'a str, &'a dyn Fn(&Ledger) -> String);
    let rows: [Cell<'_>; 7] = [
        ("goodput", &|ledger| rate(ledger.goodput())),
        ("throughput", &|ledger| format!("{:.1} MB/s", ledger.goodput() / 8e6)),
        ("limited by", &limit),
        ("  in use", &in_use),
        ("copies", &|ledger| copies(ledger).to_string()),
        ("level", &|ledger| ledger.provenance.level.clone()),
        ("best what-if", &best),
    ];
    let mut lines: Vec<String> = rows.iter().map(|(what, _)| format!("{what:<16}")).collect();
    lines.insert(0, format!("{:<16}", ""));
    for (name, ledger) in named {
        let cells = rows.iter().map(|(_, cell)| cell(ledger));
        let column: Vec<String> = std::iter::once((*name).to_owned()).chain(cells).collect();
        let width = column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0) + 3;
        for (line, cell) in lines.iter_mut().zip(column) {
            *line += &format!("{cell:<width$}");
        }
    }
    let text: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    text.join("\n")
}

/// One line of the table: what, measured, predicted, and whether they can be compared.
type Row = (String, Option<f64>, Option<f64>, fn(f64) -> String);

/// The transfer as it was measured and as the host's constants have it.
pub fn table(m: &Measurement, found: &Stages, prediction: &Prediction) -> String {
    let work = predict::work_of(&m.setting);
    let modelled = |part: Part| -> f64 {
        let those = prediction.stages.iter().filter(|stage| stage.part == part);
        those.map(|stage| stage.per_message(&work)).sum()
    };
    let measured = |name: &str| -> Option<f64> {
        found.stages.iter().find(|stage| stage.name == name).map(|stage| stage.per_message)
    };
    let core = |name: &str| -> f64 {
        let here = prediction.stages.iter().filter(|s| s.resource == name);
        here.map(|s| s.per_message(&work)).sum()
    };
    let mut rows: Vec<Row> =
        vec![("goodput".into(), Some(m.goodput.windows.median), Some(prediction.goodput), rate)];
    if let Some(latency) = m.latency.filter(|_| m.setting.workload == Workload::RequestResponse) {
        let trip = f64::from(m.setting.streams) / prediction.message_rate;
        rows.push(("round trip, median".into(), Some(latency.p50), Some(trip), figures::time));
        // In the model the round trip is a single constant.
        return render(&rows, prediction);
    }
    let (s, r) = (run_per_message(m, &m.sender), run_per_message(m, &m.receiver));
    if m.setting.placement == Placement::SameCore {
        rows.push(("CPU per message".into(), Some(s + r), Some(core("core")), figures::time));
    } else {
        let ends = [("sender", s, core("sender core")), ("receiver", r, core("receiver core"))];
        for (name, run, model) in ends {
            rows.push((format!("{name}'s CPU per message"), Some(run), Some(model), figures::time));
        }
    }
    let [calls, rest] = calls_and_rest(found);
    let groups: [(&str, Option<f64>, Part); 4] = [
        ("  calls", calls, Part::Calls),
        ("  copy in", measured(stages::COPY_IN), Part::CopyIn),
        ("  protocol, hop, wake-up", rest, Part::Delivery),
        ("  copy out", measured(stages::COPY_OUT), Part::CopyOut),
    ];
    for (name, value, part) in groups {
        rows.push((name.to_owned(), value, Some(modelled(part)), figures::time));
    }
    render(&rows, prediction)
}

/// Seconds per message in calls, and in everything else but copies; `None` where there is no such stage.
fn calls_and_rest(found: &Stages) -> [Option<f64>; 2] {
    let sum = |is: &dyn Fn(&stages::Stage) -> bool| -> Option<f64> {
        let those: Vec<f64> =
            found.stages.iter().filter(|stage| is(stage)).map(|stage| stage.per_message).collect();
        (!those.is_empty()).then(|| those.iter().sum())
    };
    // The programs' own work is part of what a call costs in the model.
    let calls = |stage: &stages::Stage| matches!(stage.class, Some(Class::Calls | Class::Program));
    let copies =
        |stage: &stages::Stage| [stages::COPY_IN, stages::COPY_OUT].contains(&&*stage.name);
    [sum(&calls), sum(&|stage| !calls(stage) && !copies(stage))]
}

fn rate(value: f64) -> String {
    figures::rate(value)
}

fn render(rows: &[Row], prediction: &Prediction) -> String {
    let mut out =
        String::from("MEASURED AND MODELLED  the model knows only this host's constants\n");
    out.push_str(&format!("  {:<26} {:>14} {:>14} {:>8}\n", "", "measured", "modelled", "error"));
    for (name, measured, modelled, show) in rows {
        let text = |value: &Option<f64>| value.map_or("not separate".to_owned(), show);
        let error = match (measured, modelled) {
            (Some(measured), Some(modelled)) if *measured > 0.0 => {
                figures::gain(modelled / measured - 1.0)
            }
            _ => String::new(),
        };
        out.push_str(&format!(
            "  {name:<26} {:>14} {:>14} {error:>8}\n",
            text(measured),
            text(modelled)
        ));
    }
    let limit = prediction.uses.first().map_or("nothing", |u| u.resource.as_str());
    out.push_str(&format!(
        "  The model's limit is the {limit}; its expected error is {:.0} %.\n",
        prediction.uncertainty * 100.0
    ));
    out
}

/// What the best change, or the one asked for, buys: predicted, measured, or both and the error.
pub fn applied(candidate: &Candidate) -> String {
    let row = &candidate.row;
    let show = |value| figures::metric(&row.metric, value);
    let gain = |value: f64| {
        figures::gain(match row.metric.as_str() {
            "latency" => row.baseline / value - 1.0,
            _ => value / row.baseline - 1.0,
        })
    };
    let heading =
        |word: &str| format!("{word}  {} (--what-if {})", row.change, candidate.change.key());
    let said = |how: &str, value: f64| format!("{how} {} ({})", show(value), gain(value));
    match (row.predicted, row.measured) {
        (Some(predicted), Some(measured)) => {
            let both = format!("{}, {}", said("predicted", predicted), said("measured", measured));
            let error = predicted / measured - 1.0;
            let band = candidate.uncertainty.unwrap_or(0.0);
            let within = if error.abs() <= band { "within" } else { "outside" };
            let of = figures::gain(error);
            let judged =
                format!("error {of}: {within} the {:.0} % that the model expects", band * 100.0);
            format!("{}\n  {both}\n  {judged}\n", heading("APPLIED"))
        }
        (None, Some(measured)) => {
            let now = show(row.baseline);
            format!(
                "{}\n  {}, in turn with the transfer as it is ({now})\n",
                heading("APPLIED"),
                said("measured", measured)
            )
        }
        (predicted, None) => {
            let predicted = said("predicted", predicted.unwrap_or(row.baseline));
            format!(
                "{}\n  {predicted}, against {} now; not applied\n",
                heading("WHAT IF"),
                show(row.baseline)
            )
        }
    }
}
