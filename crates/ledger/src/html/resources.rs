//! What every resource did with its time: busy by stage, blocked, idle; always 100 %.

use super::table;
use super::text::{escape, figure, known, percent, share, share_figure, sourced};
use crate::{Ledger, Resource};
use crate::{figures, shape};

/// Resources that are shown before the others unfold.
const RESOURCES_OPEN: usize = 14;
/// Stages with a segment of their resource's bar; the others share one.
const PARTS_MAX: usize = 12;

/// The picture and, behind it, the table.
pub(super) fn section(ledger: &Ledger, out: &mut String) {
    if ledger.resources.is_empty() {
        return;
    }
    out.push_str("<section aria-label=\"Resources\">\n<h2>Resources</h2>\n");
    out.push_str(
        "<p class=\"key\">Most used first. Filled: busy, by stage; hatched: blocked; empty: idle. \
         Each bar is 100 % of the time.</p>\n",
    );
    let by_use = shape::by_use(ledger);
    let open = by_use.len().min(RESOURCES_OPEN);
    bars(ledger, &by_use[..open], out);
    if by_use.len() > open {
        let more = by_use.len() - open;
        out.push_str(&format!("<details><summary>{more} more resources</summary>\n"));
        bars(ledger, &by_use[open..], out);
        out.push_str("</details>\n");
    }
    out.push_str("<details><summary>Table of resources</summary>\n");
    out.push_str(&resources_table(ledger, &by_use));
    out.push_str("</details>\n</section>\n");
}

fn bars(ledger: &Ledger, resources: &[&Resource], out: &mut String) {
    let words = |resource: &&Resource| {
        format!("{} {}", resource.name, figures::share(resource.utilisation()))
    };
    let label = resources.iter().map(words).collect::<Vec<String>>().join(", ");
    let label = escape(&label);
    out.push_str(&format!("<div role=\"img\" aria-label=\"Use of time: {label}\">\n"));
    resources.iter().for_each(|resource| bar(ledger, resource, out));
    out.push_str("</div>\n");
}

fn bar(ledger: &Ledger, resource: &Resource, out: &mut String) {
    let limits = shape::limiting(ledger) == Some(resource.name.as_str());
    let name = escape(&resource.name);
    let mut parts = String::new();
    let mut part = |class: &str, width: f64, title: &str, label: &str| {
        if width > 0.0 {
            parts.push_str(&format!(
                "<span class=\"{class}\" style=\"width:{}\" title=\"{title}\">{}</span>",
                percent(width),
                if label.is_empty() { String::new() } else { format!("<i>{label}</i>") }
            ));
        }
    };
    let stages = shape::busy_stages(resource);
    for (place, (stage, busy)) in stages.iter().take(PARTS_MAX).enumerate() {
        let title = format!("{name} busy with {}: {}", escape(stage), share(*busy));
        part(&format!("s{}", place % 3), *busy, &title, &short(resource, stage, *busy));
    }
    let others: f64 = stages.iter().skip(PARTS_MAX).map(|(_, busy)| busy).sum();
    let title = format!("{name} busy with other stages: {}", share(others));
    part("s0", others, &title, "others");
    let blocked = resource.blocked.unwrap_or(0.0);
    let title = format!("{name} blocked: occupied and unable to proceed, {}", share(blocked));
    part("held", blocked, &title, "");
    let title = format!("{name} idle: {}", share(resource.idle));
    part("idle", resource.idle, &title, "");
    let kind = match resource.units {
        1 => escape(&resource.kind),
        units => format!("{} × {units}", escape(&resource.kind)),
    };
    let (class, tag) = match limits {
        true => ("row limits", " <span class=\"tag\">◀ limits</span>"),
        false => ("row", ""),
    };
    let used = share_figure(resource.utilisation(), "busy and blocked share of the time");
    let held = match blocked > 0.0 {
        true => format!("<small>{} blocked</small>", share(blocked)),
        false => String::new(),
    };
    out.push_str(&format!(
        "<div class=\"{class}\"><div class=\"label\">{}{tag}<small>{kind}</small></div>\
         <div class=\"split\" aria-hidden=\"true\">{parts}</div>\
         <div class=\"value\">{used}{held}</div></div>\n",
        sourced(&resource.name, &resource.place)
    ));
}

/// A stage's name within its resource's bar, without the host that both share.
fn short(resource: &Resource, stage: &str, busy: f64) -> String {
    format!("{} {}", escape(shape::within(resource.place.host.as_deref(), stage)), share(busy))
}

fn resources_table(ledger: &Ledger, resources: &[&Resource]) -> String {
    let titles = [
        "resource",
        "kind",
        "units",
        "busy",
        "blocked",
        "idle",
        "B moved/B delivered",
        "busy with",
    ];
    let row = |resource: &&Resource| {
        let limits = shape::limiting(ledger) == Some(resource.name.as_str());
        let stages: Vec<String> = shape::busy_stages(resource)
            .iter()
            .map(|(name, busy)| format!("{} {}", escape(name), share_figure(*busy, "of the time")))
            .collect();
        let cells = vec![
            sourced(&resource.name, &resource.place),
            escape(&resource.kind),
            resource.units.to_string(),
            share_figure(resource.busy, "share of the time for which it served"),
            known(resource.blocked, |blocked| {
                share_figure(blocked, "share of the time for which it was blocked")
            }),
            share_figure(resource.idle, "share of the time for which it had nothing to do"),
            known(resource.bytes_per_delivered_byte, |moved| {
                let what = "bytes moved per byte delivered on any path";
                figure(&figures::significant(moved), moved, "B/B", what)
            }),
            stages.join("<br>"),
        ];
        (limits, cells)
    };
    let rows: Vec<_> = resources.iter().map(row).collect();
    table("Busy + blocked + idle = 100 %", &titles, &rows)
}
