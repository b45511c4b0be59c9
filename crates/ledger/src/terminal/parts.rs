//! What comes before and after the paths: header, verdict, resources, what-ifs, provenance.

use super::paint::{Ink, wrap};
use super::table::{Cell, Column, Table};
use super::{Style, heading, path_name};
use crate::figures;
use crate::shape;
use crate::{Confidence, Ledger, Resource, Source, WhatIf};
use unicode_width::UnicodeWidthStr;

/// Rows of the table of paths.
const PATHS_MAX: usize = 12;
/// Rows of the table of resources.
const RESOURCES_MAX: usize = 16;
/// Rows of the table of what-ifs.
const WHAT_IFS_MAX: usize = 8;

/// What was run, for how long, and how far its figures can be trusted.
pub(super) fn header(style: &Style, ledger: &Ledger, out: &mut String) {
    for line in wrap(&style.clean(&ledger.title), style.width) {
        out.push_str(&style.ink(Ink::Bold, &line));
        out.push('\n');
    }
    let provenance = &ledger.provenance;
    let mut facts =
        vec![("", figures::time(ledger.duration)), ("", level(&style.clean(&provenance.level)))];
    if let Some(warm_up) = ledger.warm_up {
        facts.insert(1, ("after a warm-up of", figures::time(warm_up)));
    }
    // A live run draws no random numbers.
    if let Some(seed) = provenance.seed.filter(|_| !shape::is_live(ledger)) {
        facts.push(("seed", seed.to_string()));
    }
    if let Some(host) = &provenance.host {
        facts.push(("on", style.clean(host)));
    }
    joined(style, "", &facts, Ink::Dim, out);
    if provenance.partial {
        let words = "PARTIAL: stopped early; all figures are up to that point.";
        loud(style, words, out);
    }
    if let Some(certificate) = &ledger.certificate {
        match certificate.kept_up {
            true => joined(style, "", &[("kept up:", certificate.words.clone())], Ink::Plain, out),
            false => loud(style, &format!("NOT ON TIME: {}", certificate.words), out),
        }
        let facts = [
            ("within 10 us", figures::share(certificate.within_10us)),
            ("20 us", figures::share(certificate.within_20us)),
            ("100 us", figures::share(certificate.within_100us)),
            ("1 ms", figures::share(certificate.within_1ms)),
            ("worst lag", figures::time(certificate.worst_lag)),
            ("overruns", figures::plural(certificate.overruns, "packet")),
            ("CPU", figures::share(certificate.cpu)),
        ];
        joined(style, "  ", &facts, Ink::Plain, out);
    }
}

fn level(level: &str) -> String {
    match level {
        "L0" => "live, L0 (no rights)".to_owned(),
        "L1" => "live, L1 (sampled)".to_owned(),
        "L2" => "live, L2 (performance counters)".to_owned(),
        "" => "level not stated".to_owned(),
        other => other.to_owned(),
    }
}

pub(super) fn loud(style: &Style, words: &str, out: &mut String) {
    for line in wrap(&style.clean(words), style.width - 2) {
        out.push_str(&style.ink(Ink::Loud, &format!("! {line}")));
        out.push('\n');
    }
}

/// The verdict, in one sentence.
pub(super) fn verdict(style: &Style, ledger: &Ledger, out: &mut String) {
    let mark = style.pick("▌ ", "| ");
    out.push('\n');
    for line in wrap(&style.clean(&shape::sentence(ledger)), style.width - 2) {
        out.push_str(&style.ink(Ink::Loud, mark));
        out.push_str(&style.ink(Ink::Bold, &line));
        out.push('\n');
    }
    let Some(verdict) = &ledger.verdict else { return };
    let mut facts = Vec::new();
    if let Some(resource) = &verdict.resource {
        facts.push(("limit", style.clean(resource)));
        facts.extend(verdict.utilisation.map(|used| ("in use", figures::share(used))));
    }
    facts.push(("confidence", confidence(verdict.confidence).to_owned()));
    if let Some(next) = &verdict.runner_up {
        facts.push(("next", style.clean(next)));
    }
    joined(style, mark, &facts, Ink::Plain, out);
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::High => "high",
        Confidence::Medium => "medium",
        Confidence::Low => "low",
        Confidence::Undecided => "undecided",
    }
}

/// Facts separated by dots, on as few lines as possible.
pub(super) fn joined(
    style: &Style,
    mark: &str,
    facts: &[(&str, String)],
    ink: Ink,
    out: &mut String,
) {
    let dot = style.pick(" · ", " - ");
    let room = style.width - mark.width();
    let mut lines: Vec<String> = vec![String::new()];
    for (name, value) in facts {
        let fact = if name.is_empty() { value.clone() } else { format!("{name} {value}") };
        let fact = style.elide(&style.clean(&fact), room);
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(&fact),
            Some(line) if line.width() + dot.width() + fact.width() <= room => {
                line.push_str(dot);
                line.push_str(&fact);
            }
            _ => lines.push(fact),
        }
    }
    for line in lines {
        out.push_str(&style.ink(Ink::Loud, mark));
        out.push_str(&style.ink(ink, &line));
        out.push('\n');
    }
}

/// One line for each path, if there are too many to show stage by stage.
pub(super) fn paths(style: &Style, ledger: &Ledger, order: &[usize], out: &mut String) {
    heading(style, "PATHS", &format!("{} in all, these first", ledger.paths.len()), out);
    let columns = vec![
        Column::name("path", 16, 0),
        Column::number("delivered", "delivered", 3),
        Column::number("goodput", "goodput", 0),
        Column::number("loss", "loss", 0),
        Column::number("mean", "mean latency", 0),
        Column::number("p99", "p99 of latency", 1),
        Column::number("jitter", "jitter", 2),
    ];
    let known = |value: Option<f64>, words: fn(f64) -> String| {
        Cell::new(value.map_or("-".to_owned(), words))
    };
    let row = |&place: &usize| {
        let path = &ledger.paths[place];
        let totals = &path.totals;
        vec![
            Cell::new(style.clean(&path_name(path).replace('·', style.pick("·", "-")))),
            Cell::new(figures::count_cell(totals.delivered.packets)),
            Cell::new(figures::rate(totals.goodput)),
            known(totals.loss, figures::share),
            known(totals.latency.map(|latency| latency.mean), figures::time_cell),
            known(totals.latency.and_then(|latency| latency.p99), figures::time_cell),
            known(totals.jitter, figures::time_cell),
        ]
    };
    let rows = order.iter().take(PATHS_MAX).map(row).collect();
    Table { columns, rows }.draw(style, out);
    let more: Vec<usize> = order.iter().copied().skip(PATHS_MAX).collect();
    if !more.is_empty() {
        let goodput: f64 = more.iter().map(|&place| ledger.paths[place].totals.goodput).sum();
        let words = format!("{} more paths, {} together", more.len(), figures::rate(goodput));
        fold_line(style, &words, out);
    }
}

pub(super) fn fold_line(style: &Style, words: &str, out: &mut String) {
    let text = format!("{} {words}", style.pick("…", "..."));
    out.push_str("  ");
    out.push_str(&style.ink(Ink::Dim, &style.elide(&text, style.width - 2)));
    out.push('\n');
}

/// What stages compete for, most used first.
pub(super) fn resources(style: &Style, ledger: &Ledger, out: &mut String) {
    if ledger.resources.is_empty() {
        return;
    }
    let legend = style.pick("█ busy  ▒ blocked  · idle", "# busy  x blocked  . idle");
    out.push('\n');
    out.push_str(&style.ink(Ink::Bold, "RESOURCES"));
    out.push_str("  ");
    out.push_str(&style.ink(Ink::Dim, legend));
    out.push('\n');
    let columns = vec![
        Column::name("resource", 14, 0),
        Column::name("kind", 6, 2),
        Column::bar("use of time", 0),
        Column::number("in use", "in use", 0),
        Column::name("", 8, 0),
        Column::number("blocked", "blocked", 3),
        Column::number("B/B", "bytes moved per byte delivered", 4),
        Column::name("busy with", 20, 1),
    ];
    let limiting = shape::limiting(ledger);
    let width = match style.width {
        0..60 => 8,
        60..100 => 14,
        _ => 22,
    };
    let by_use = shape::by_use(ledger);
    let dim = |value: Option<f64>, words: fn(f64) -> String| {
        Cell::in_ink(value.map_or("-".to_owned(), words), Ink::Dim)
    };
    let row = |resource: &&Resource| {
        let limits = Some(resource.name.as_str()) == limiting;
        let ink = if limits { Ink::Loud } else { Ink::Plain };
        let kind = match resource.units {
            1 => resource.kind.clone(),
            units => format!("{} x{units}", resource.kind),
        };
        let mark = if limits { style.pick("◀ limits", "< limits") } else { "" };
        vec![
            Cell::in_ink(style.clean(&resource.name), ink),
            Cell::in_ink(style.clean(&kind), Ink::Dim),
            Cell::in_ink(
                style.split_bar(resource.busy, resource.blocked.unwrap_or(0.0), width),
                ink,
            ),
            Cell::in_ink(figures::share(resource.utilisation()), ink),
            Cell::in_ink(mark, Ink::Loud),
            dim(resource.blocked, figures::share),
            dim(resource.bytes_per_delivered_byte, figures::significant),
            Cell::new(busy_with(style, resource, if style.width < 100 { 26 } else { 44 })),
        ]
    };
    let rows = by_use.iter().take(RESOURCES_MAX).map(row).collect();
    let mut table = Table { columns, rows };
    let moves = |one: &&Resource| one.bytes_per_delivered_byte.is_some_and(|bytes| bytes > 0.0);
    if by_use.iter().all(|one| !moves(one) && one.by_stage.is_empty()) {
        table.columns.truncate(6);
    }
    table.draw(style, out);
    if let Some(next) = by_use.get(RESOURCES_MAX) {
        let most = figures::share(next.utilisation());
        let number = by_use.len() - RESOURCES_MAX;
        fold_line(style, &format!("{number} more resources, none in use above {most}"), out);
    }
}

/// As many of a resource's stages as fit, most time first. Their names omit the host, which all share.
fn busy_with(style: &Style, resource: &Resource, room: usize) -> String {
    let host = resource.place.host.as_deref();
    let stages = shape::busy_stages(resource);
    let mut text = String::new();
    for (place, (name, busy)) in stages.iter().enumerate() {
        let name = style.clean(shape::within(host, name));
        let figure = format!(" {:.0} %", busy * 100.0);
        let more = if place + 1 < stages.len() { 6 } else { 0 };
        if place == 0 {
            text = name + &figure;
        } else if text.width() + 2 + name.width() + figure.width() + more <= room {
            text = format!("{text}, {name}{figure}");
        } else {
            return format!("{text}, +{}", stages.len() - place);
        }
    }
    text
}

/// What each change would buy.
pub(super) fn what_ifs(style: &Style, ledger: &Ledger, out: &mut String) {
    let ranked = shape::ranked(ledger);
    if ranked.is_empty() {
        return;
    }
    let from = ranked[0].share.map(|share| format!(", by {:.0} % of the run", share * 100.0));
    let told = format!("best first{}; now {}", from.unwrap_or_default(), baselines(&ranked));
    heading(style, "WHAT IF", &told, out);
    let most = ranked.iter().map(|one| one.gain).fold(f64::MIN_POSITIVE, f64::max);
    let columns = vec![
        Column::number("gain", "gain", 0),
        Column::bar("", 4),
        Column::name("change", 20, 0),
        Column::bar("predicted", 0),
        Column::number("measured", "measured", 2),
        Column::number("error", "error", 3),
    ];
    let width = if style.width < 100 { 6 } else { 16 };
    let row =
        |one: &&WhatIf| {
            let ink = if one.gain >= 0.0005 { Ink::Good } else { Ink::Dim };
            let measured = one.measured.map(|value| figures::metric(&one.metric, value));
            let predicted = one.predicted.map(|value| figures::metric(&one.metric, value));
            vec![
                Cell::in_ink(figures::gain(one.gain), ink),
                Cell::in_ink(style.bar(one.gain / most, width), ink),
                Cell::new(style.clean(&one.change)),
                Cell::new(predicted.map_or_else(String::new, |value| {
                    format!("{} {value}", style.clean(&one.metric))
                })),
                Cell::new(measured.unwrap_or_default()),
                Cell::new(one.error.map(figures::gain).unwrap_or_default()),
            ]
        };
    let shown = &ranked[..ranked.len().min(WHAT_IFS_MAX)];
    let mut table = Table { columns, rows: shown.iter().map(row).collect() };
    if shown.iter().all(|one| one.measured.is_none()) {
        table.columns.truncate(4);
    } else if shown.iter().all(|one| one.predicted.is_none()) {
        // Nothing predicted: neither a prediction nor its error.
        table.keep_columns(&[0, 1, 2, 4]);
    }
    table.draw(style, out);
    let others = &ranked[shown.len()..];
    if !others.is_empty() {
        let most = others.iter().map(|one| one.gain).fold(f64::NEG_INFINITY, f64::max);
        let (number, most) = (others.len(), figures::gain(most));
        fold_line(style, &format!("{number} more changes, none above {most}"), out);
    }
}

/// The baseline: each metric of this run.
fn baselines(ranked: &[&WhatIf]) -> String {
    let mut baselines: Vec<String> = Vec::new();
    for one in ranked {
        let text = format!("{} {}", one.metric, figures::metric(&one.metric, one.baseline));
        if !baselines.contains(&text) {
            baselines.push(text);
        }
    }
    baselines.join(", ")
}

/// The balance, and where the figures come from.
pub(super) fn footer(style: &Style, ledger: &Ledger, out: &mut String) {
    out.push('\n');
    let balance = &ledger.balance;
    let (latency, packets) = (balance.latency_residual, balance.packets_residual);
    let equation = ledger.equation();
    let words = format!(
        "Stages sum to the mean latency: residual {}. Packets, {equation}: residual {packets}.",
        if latency == 0.0 { "0".to_owned() } else { figures::time(latency) },
    );
    let balanced = packets == 0 && latency == 0.0;
    // A measurement never balances exactly; it states its residual.
    let fine = balanced || (shape::is_live(ledger) && packets == 0);
    titled(style, "BALANCE", &words, if fine { Ink::Plain } else { Ink::Loud }, out);
    for (place, note) in ledger.notes.iter().enumerate() {
        let title = if place == 0 { "NOTES" } else { "" };
        titled(style, title, &style.clean(note), Ink::Plain, out);
    }
    let provenance = &ledger.provenance;
    let source = |kind: &str, source: &Source| format!("{kind} {} {}", source.name, source.hash);
    let mut facts = vec![format!("lastmeter {}", provenance.version)];
    if !provenance.experiment.name.is_empty() {
        facts.push(source("experiment", &provenance.experiment));
    }
    facts.extend(provenance.profiles.iter().map(|one| source("profile", one)));
    titled(style, "FROM", &style.clean(&facts.join(", ")), Ink::Dim, out);
}

fn titled(style: &Style, title: &str, words: &str, ink: Ink, out: &mut String) {
    for (place, line) in wrap(words, style.width - 9).iter().enumerate() {
        let title = if place == 0 { title } else { "" };
        out.push_str(&style.ink(Ink::Bold, &format!("{title:<9}")));
        out.push_str(&style.ink(ink, line));
        out.push('\n');
    }
}
