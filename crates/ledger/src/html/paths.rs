//! The paths: all of them in one table where there are several, each with its drawing and stages.

use super::text::{count_figure, escape, figure, known, share_figure, time_figure};
use super::{distribution, drawing, facts, stages, table};
use crate::{Count, Deadlines, Latency, Ledger, Path};
use crate::{figures, shape};

/// Paths that are open at first; the others unfold.
const PATHS_OPEN: usize = 2;
/// Rows of the table of paths that are not folded.
const ROWS_OPEN: usize = 10;

/// A line for every path, if there is more than one.
pub(super) fn overview(ledger: &Ledger, out: &mut String) {
    if ledger.paths.len() < 2 {
        return;
    }
    let number = ledger.paths.len();
    out.push_str("<section aria-label=\"Paths\">\n");
    out.push_str(&format!("<h2>{number} paths</h2>\n"));
    let order = shape::paths_by_weight(ledger);
    let row = |&place: &usize| (false, row(&ledger.paths[place]));
    let titles = [
        "path",
        "class",
        "offered",
        "delivered",
        "goodput",
        "loss",
        "latency",
        "p50",
        "p99",
        "max",
        "jitter",
    ];
    let caption = "Through the limiting resource first, then by what they carry";
    let rows: Vec<_> = order.iter().map(row).collect();
    let open = rows.len().min(ROWS_OPEN);
    out.push_str(&table(caption, &titles, &rows[..open]));
    if rows.len() > open {
        let more = rows.len() - open;
        out.push_str(&format!("<details><summary>{more} more paths</summary>\n"));
        out.push_str(&table("The other paths", &titles, &rows[open..]));
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}

fn row(path: &Path) -> Vec<String> {
    let totals = &path.totals;
    let goodput = figures::rate(totals.goodput);
    let of = |part: fn(Latency) -> Option<f64>| totals.latency.and_then(part);
    vec![
        escape(&path.name),
        escape(&path.class),
        known(totals.offered, |offered| {
            count_figure(offered.packets, "packets", "what sources sent")
        }),
        count_figure(totals.delivered.packets, "packets", "what sinks received"),
        figure(&goodput, totals.goodput, "bit/s", "bits per second that reached applications"),
        known(totals.loss, |loss| share_figure(loss, LOSS)),
        known(of(|latency| Some(latency.mean)), |mean| time_figure(mean, "mean latency")),
        known(of(|latency| latency.p50), |p50| time_figure(p50, "median latency")),
        known(of(|latency| latency.p99), |p99| time_figure(p99, "99th percentile of latency")),
        known(of(|latency| latency.max), |max| time_figure(max, "longest latency")),
        known(totals.jitter, |jitter| time_figure(jitter, JITTER)),
    ]
}

const LOSS: &str = "dropped packets per offered packet";
const JITTER: &str = "mean difference of latency between consecutive packets of a flow (RFC 3393)";

/// Each path: drawing, waterfall, totals, drops.
pub(super) fn detailed(ledger: &Ledger, out: &mut String) {
    for (rank, place) in shape::paths_by_weight(ledger).into_iter().enumerate() {
        let path = &ledger.paths[place];
        let class = match path.class.is_empty() {
            true => String::new(),
            false => format!(" <span class=\"soft\">{}</span>", escape(&path.class)),
        };
        let title = format!("{}{class}", escape(&path.name));
        let label = escape(&path.name);
        match rank < PATHS_OPEN {
            true => out.push_str(&format!(
                "<section aria-label=\"Path {label}\">\n<h2>Path {title}</h2>\n"
            )),
            false => out.push_str(&format!(
                "<details class=\"path\"><summary>Path {title}</summary>\n<section>\n"
            )),
        }
        drawing::draw(ledger, path, out);
        stages::waterfall(ledger, path, out);
        distribution::picture(path, out);
        totals(path, out);
        drops(path, out);
        out.push_str(if rank < PATHS_OPEN { "</section>\n" } else { "</section></details>\n" });
    }
}

fn totals(path: &Path, out: &mut String) {
    let totals = &path.totals;
    let amount = |count: Count, what: &str| {
        let bytes = figure(&figures::size(count.bytes), count.bytes, "B", what);
        let packets = count_figure(count.packets, "packets", what);
        format!("{packets}<small>packets, {bytes}</small>")
    };
    let packets = |number, what: &str| {
        format!("{}<small>packets</small>", count_figure(number, "packets", what))
    };
    let goodput = figures::rate(totals.goodput);
    let mut facts = Vec::new();
    facts.extend(totals.offered.map(|all| ("Offered", amount(all, "what sources sent"))));
    facts.push(("Delivered", amount(totals.delivered, "what sinks received")));
    facts.extend(totals.dropped.map(|all| ("Dropped", amount(all, "what was dropped"))));
    let held = |held| ("Held at the end", packets(held, "still in flight at the end"));
    facts.extend(totals.held.map(held));
    let what = "bits per second that reached applications";
    facts.push(("Goodput", figure(&goodput, totals.goodput, "bit/s", what)));
    facts.extend(totals.loss.map(|loss| ("Loss", share_figure(loss, LOSS))));
    if totals.delivered.packets > 0 {
        let of = |part: fn(Latency) -> Option<f64>| totals.latency.and_then(part);
        for (name, time, what) in [
            ("Latency, mean", of(|latency| Some(latency.mean)), "mean latency from source to sink"),
            ("Latency, p50", of(|latency| latency.p50), "median latency"),
            ("Latency, p99", of(|latency| latency.p99), "99th percentile of latency"),
            ("Latency, max", of(|latency| latency.max), "longest latency"),
            ("Jitter", totals.jitter, JITTER),
        ] {
            facts.extend(time.map(|time| (name, time_figure(time, what))));
        }
    }
    if let Some(times) = totals.memory_multiple.filter(|&times| times > 0.0) {
        let multiple = figures::significant(times);
        let what = "bytes that cross memory per byte delivered";
        facts.push(("Memory multiple", figure(&multiple, times, "B/B", what) + " B/B"));
    }
    if let Some(Deadlines { made, met, late }) = totals.deadlines {
        let lost = made.saturating_sub(met + late);
        for (name, number, what) in [
            ("Deadlines met", met, "complete before their deadline"),
            ("Deadlines missed", late, "complete after their deadline"),
            ("Messages lost", lost, "dropped, in part or whole, or still in flight"),
        ] {
            facts.push((name, count_figure(number, "messages", what)));
        }
    }
    for (name, number, what) in [
        ("Reordered", totals.reordered, "arrived after a later packet of their flow"),
        ("Corrupted", totals.corrupted, "whose content differs from what was sent"),
    ] {
        let some = number.filter(|&number| number > 0);
        facts.extend(some.map(|number| (name, packets(number, what))));
    }
    out.push_str("<h3>Totals</h3>\n");
    facts::list(&facts, out);
}

/// Packets dropped, by stage and reason, most first.
fn drops(path: &Path, out: &mut String) {
    let all = path.stages.iter().flat_map(|stage| {
        stage.drops.iter().map(move |(reason, &number)| (stage.name.as_str(), reason, number))
    });
    let mut all: Vec<(&str, &String, u64)> = all.filter(|(_, _, number)| *number > 0).collect();
    if all.is_empty() {
        return;
    }
    all.sort_by_key(|(_, _, number)| std::cmp::Reverse(*number));
    let offered = path.totals.offered_packets().max(1) as f64;
    let row = |(stage, reason, number): &(&str, &String, u64)| {
        let share = *number as f64 / offered;
        let cells = vec![
            escape(stage),
            escape(reason),
            count_figure(*number, "packets", "dropped here for this reason"),
            share_figure(share, "of the packets offered to this path"),
        ];
        (false, cells)
    };
    out.push_str("<h3>Drops by reason</h3>\n");
    let rows: Vec<_> = all.iter().map(row).collect();
    let titles = ["stage", "reason", "packets", "of offered"];
    out.push_str(&table("Most first", &titles, &rows));
}
