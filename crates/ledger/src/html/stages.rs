//! The waterfall: where the mean latency goes; each stage begins where the last ended.

use super::table;
use super::text::{
    count_figure, escape, known, percent, share, share_figure, sourced, time, time_figure,
};
use crate::shape::{self, Line};
use crate::{Ledger, Path, Stage, Times};

/// Stages of a path that have a bar of their own; the table has them all.
const STAGES_MAX: usize = 30;
/// How far the axis goes for a whisker, in mean latencies; a longer one is cut and says so.
const AXIS_MAX: f64 = 2.5;

/// The picture and, behind it, the table.
pub(super) fn waterfall(ledger: &Ledger, path: &Path, out: &mut String) {
    if path.totals.delivered.packets == 0 {
        out.push_str("<p>Nothing was delivered, so there is no latency to explain.</p>\n");
        return;
    }
    out.push_str("<h3>Where the mean latency goes</h3>\n");
    out.push_str(KEY);
    let total = path.totals.latency_mean();
    let starts = starts(path);
    let axis = axis(path, &starts);
    let label = format!("Waterfall of the mean latency, {}: {}", time(total), summary(path));
    let step = step(axis);
    out.push_str(&format!(
        "<div class=\"fall\" style=\"--step:{}\" role=\"img\" aria-label=\"{}\">\n",
        percent(step / axis),
        escape(&label)
    ));
    let weights: Vec<f64> = path.stages.iter().map(Stage::mean).collect();
    for line in shape::fold(&weights, STAGES_MAX) {
        match line {
            Line::Shown(place) => {
                out.push_str(&row(ledger, path, place, starts[place], axis));
            }
            Line::Folded(range) => {
                let mean: f64 = weights[range.clone()].iter().sum();
                out.push_str(&format!(
                    "<div class=\"row\"><div class=\"label soft\">{} more stages</div>\
                     <svg class=\"bar\" aria-hidden=\"true\"><rect class=\"frame\" x=\"{}\" \
                     y=\"7\" width=\"{}\" height=\"12\"/></svg>\
                     <div class=\"value\">{}</div></div>\n",
                    range.len(),
                    percent(starts[range.start] / axis),
                    percent(mean / axis),
                    time(mean),
                ));
            }
        }
    }
    ticks(axis, step, out);
    out.push_str("</div>\n<details><summary>Table of stages</summary>\n");
    out.push_str(&stages_table(ledger, path));
    out.push_str("</details>\n");
}

const KEY: &str = "<p class=\"key\">\
<span><svg class=\"bar\"><rect class=\"wait\" width=\"18\" height=\"11\"/></svg>wait</span>\
<span><svg class=\"bar\"><rect class=\"service\" width=\"18\" height=\"11\"/></svg>service</span>\
<span><svg class=\"bar\"><rect class=\"blocked\" width=\"18\" height=\"11\"/></svg>blocked</span>\
<span><svg class=\"bar\"><path class=\"whisker\" d=\"M0 5.5h17M17 1v9\"/></svg>p99 of what varies \
most</span></p>\n";

fn starts(path: &Path) -> Vec<f64> {
    let mut start = 0.0;
    let mut starts = Vec::with_capacity(path.stages.len());
    for stage in &path.stages {
        starts.push(start);
        start += stage.mean();
    }
    starts
}

fn axis(path: &Path, starts: &[f64]) -> f64 {
    // In a live run, stages need not sum to the latency exactly; nothing may leave the picture.
    let sum = path.stages.iter().map(Stage::mean).sum();
    let total = path.totals.latency_mean().max(1e-12).max(sum);
    let end = |(stage, start): (&Stage, &f64)| {
        let (_, offset, p99) = shape::widest(stage);
        start + offset + p99.unwrap_or(0.0)
    };
    let farthest = path.stages.iter().zip(starts).map(end).fold(total, f64::max);
    farthest.min(total * AXIS_MAX) * 1.02
}

fn summary(path: &Path) -> String {
    let mut stages: Vec<&Stage> = path.stages.iter().collect();
    stages.sort_by(|a, b| b.mean().total_cmp(&a.mean()));
    let words = |stage: &&Stage| format!("{} {}", stage.name, time(stage.mean()));
    stages.iter().take(3).map(words).collect::<Vec<String>>().join(", ") + ", then the others"
}

fn row(ledger: &Ledger, path: &Path, place: usize, start: f64, axis: f64) -> String {
    let stage = &path.stages[place];
    let mean = stage.mean();
    let limits = stage.resource.is_some() && stage.resource.as_deref() == shape::limiting(ledger);
    let class = if limits { "row limits" } else { "row" };
    let served = stage.resource.as_deref().map_or("pure delay".to_owned(), |name| {
        if limits { format!("{} ◀ limits", escape(name)) } else { escape(name) }
    });
    let mut bars = String::new();
    let mut at = start;
    for (part, times) in
        [("wait", stage.wait), ("service", stage.service), ("blocked", stage.blocked)]
    {
        let Some(times) = times else { continue };
        if times.mean > 0.0 {
            let spread = times.p99.map_or_else(String::new, |p99| format!(", p99 {}", time(p99)));
            bars.push_str(&format!(
                "<rect class=\"{part}\" x=\"{}\" y=\"5\" width=\"{}\" height=\"16\"><title>{}: \
                 {part} {}{spread}</title></rect>",
                percent(at / axis),
                percent(times.mean / axis),
                escape(&stage.name),
                time(times.mean),
            ));
        }
        at += times.mean;
    }
    bars.push_str(&whisker(stage, start, axis));
    let share_of = share(mean / path.totals.latency_mean().max(1e-12));
    format!(
        "<div class=\"{class}\"><div class=\"label\">{}<small>{served}</small></div>\
         <svg class=\"bar\" aria-hidden=\"true\">{bars}</svg>\
         <div class=\"value\">{}<small>{share_of}</small></div></div>\n",
        sourced(&stage.name, &stage.place),
        time_figure(mean, "mean time of a delivered packet in this stage"),
    )
}

/// From where the part that varies most begins to its 99th percentile.
fn whisker(stage: &Stage, start: f64, axis: f64) -> String {
    let (name, offset, Some(p99)) = shape::widest(stage) else { return String::new() };
    let from = start + stage.mean();
    let to = start + offset + p99;
    if to <= from {
        return String::new();
    }
    let cut = to > axis;
    let more = if cut { ", beyond the axis" } else { "" };
    let (x1, x2) = (percent(from / axis), percent(to / axis));
    let end = match cut {
        true => format!(
            "<text x=\"100%\" y=\"9\" text-anchor=\"end\" font-size=\"11\" \
             style=\"fill:var(--text)\">p99 {} ▸</text>",
            time(p99)
        ),
        false => format!("<line class=\"whisker\" x1=\"{x2}\" x2=\"{x2}\" y1=\"8\" y2=\"18\"/>"),
    };
    format!(
        "<g><title>{}: p99 of {name} {}{more}</title><line class=\"whisker\" x1=\"{x1}\" \
         x2=\"{x2}\" y1=\"13\" y2=\"13\"/>{end}</g>",
        escape(&stage.name),
        time(p99),
    )
}

/// Between two ticks: one, two or five of some unit.
fn step(axis: f64) -> f64 {
    let magnitude = 10f64.powf((axis / 4.0).log10().floor());
    let fits = |step: &f64| axis / (step * magnitude) <= 4.5;
    [1.0, 2.0, 5.0, 10.0].into_iter().find(fits).unwrap_or(10.0) * magnitude
}

/// The figures under the picture.
fn ticks(axis: f64, step: f64, out: &mut String) {
    out.push_str("<div class=\"row\"><div class=\"label\"></div><div class=\"axis\">");
    let mut tick = 0;
    while f64::from(tick) * step < axis * 0.97 && tick < 10 {
        let value = f64::from(tick) * step;
        out.push_str(&format!(
            "<span style=\"left:{}\">{}</span>",
            percent(value / axis),
            // Multiplied, not summed, to avoid accumulating rounding errors.
            if tick == 0 { "0".to_owned() } else { time((value * 1e13).round() / 1e13) }
        ));
        tick += 1;
    }
    out.push_str("</div><div class=\"value\"></div></div>\n");
}

fn stages_table(ledger: &Ledger, path: &Path) -> String {
    let titles = [
        "stage",
        "served by",
        "packets",
        "mean",
        "share",
        "wait",
        "p50",
        "p99",
        "service",
        "p50",
        "p99",
        "blocked",
        "p50",
        "p99",
        "copies",
        "touches",
        "drops",
    ];
    let total = path.totals.latency_mean().max(1e-12);
    let row = |stage: &Stage| {
        let limits =
            stage.resource.is_some() && stage.resource.as_deref() == shape::limiting(ledger);
        let mean = stage.mean();
        let mut cells = vec![
            sourced(&stage.name, &stage.place),
            stage.resource.as_deref().map_or("pure delay".to_owned(), escape),
            count_figure(stage.packets, "packets", "visits of delivered packets"),
            time_figure(mean, "mean time of a delivered packet here"),
            share_figure(mean / total, "of the mean latency"),
        ];
        for (times, what) in [
            (stage.wait, "from arrival until service began"),
            (stage.service, "in service"),
            (stage.blocked, "blocked during or after service"),
        ] {
            cells.extend(times_cells(times, what));
        }
        for (times, what) in [
            (stage.copies, "how often it copies each byte"),
            (stage.touches, "how often a CPU touches each byte"),
        ] {
            cells.push(known(times, |times| count_figure(u64::from(times), "", what)));
        }
        cells.push(count_figure(shape::dropped(stage), "packets", "dropped here"));
        (limits, cells)
    };
    let rows: Vec<_> = path.stages.iter().map(row).collect();
    table("In path order; means over delivered packets, percentiles over visits", &titles, &rows)
}

fn times_cells(times: Option<Times>, what: &str) -> [String; 3] {
    let of = |part: fn(Times) -> Option<f64>| times.and_then(part);
    [("mean", of(|t| Some(t.mean))), ("p50", of(|t| t.p50)), ("p99", of(|t| t.p99))]
        .map(|(name, value)| known(value, |value| time_figure(value, &format!("{name}, {what}"))))
}
