//! The distribution of latency: for each latency, the share of packets that took no longer.

use super::table;
use super::text::{escape, share, share_figure, time, time_figure};
use crate::{Path, Quantile};

const WIDTH: f64 = 1180.0;
const HEIGHT: f64 = 190.0;
/// Margins for the labels at the left and below.
const LEFT: f64 = 60.0;
const BELOW: f64 = 22.0;
const ABOVE: f64 = 10.0;
const RIGHT: f64 = 40.0;
/// Latencies that differ by more than this factor are drawn on a logarithmic axis.
const LINEAR_MAX: f64 = 20.0;

/// The picture, and behind it the table; nothing where the ledger knows no distribution.
pub(super) fn picture(path: &Path, out: &mut String) {
    let (Some(first), Some(last)) = (path.latencies.first(), path.latencies.last()) else { return };
    let (least, most) = (first.latency, last.latency);
    if least <= 0.0 || least >= most {
        return;
    }
    let logarithmic = most > LINEAR_MAX * least;
    let begin = if logarithmic { least } else { 0.0 };
    let place = |latency: f64| match logarithmic {
        true => (latency / begin).ln() / (most / begin).ln(),
        false => latency / most,
    };
    let x = |latency: f64| LEFT + (WIDTH - LEFT - RIGHT) * place(latency);
    let y = |share: f64| ABOVE + (HEIGHT - ABOVE - BELOW) * (1.0 - share);
    let words = format!(
        "Distribution of latency: from {} to {}, half within {}",
        time(least),
        time(most),
        time(path.totals.latency.and_then(|latency| latency.p50).unwrap_or(most))
    );
    out.push_str(
        "<h3>How latency is distributed</h3>\n<p class=\"soft\">The share of packets that took \
                  no longer",
    );
    out.push_str(if logarithmic { "; the axis is logarithmic.</p>\n" } else { ".</p>\n" });
    out.push_str(&format!(
        "<svg class=\"series\" role=\"img\" aria-label=\"{}\" \
         viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\">\n",
        escape(&words)
    ));
    for part in [0.0, 0.5, 1.0] {
        out.push_str(&format!(
            "<path class=\"axis\" d=\"M{LEFT:.0} {at:.1}H{:.0}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y(part) + 4.0,
            share(part),
            at = y(part),
        ));
    }
    for latency in ticks(begin, most, logarithmic) {
        out.push_str(&format!(
            "<path class=\"axis\" d=\"M{at:.1} {ABOVE:.0}V{:.1}\"/>\
             <text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>\n",
            HEIGHT - BELOW,
            HEIGHT - 5.0,
            time(latency),
            at = x(latency),
        ));
    }
    let mut line = format!("M{:.1} {:.1}", x(least), y(0.0));
    for one in &path.latencies {
        line.push_str(&format!("L{:.1} {:.1}", x(one.latency), y(one.share)));
    }
    out.push_str(&format!("<path class=\"most\" d=\"{line}\"/>\n"));
    for one in &path.latencies {
        out.push_str(&format!(
            "<circle class=\"most\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\">\
             <title>{} within {}</title></circle>\n",
            x(one.latency),
            y(one.share),
            share(one.share),
            time(one.latency)
        ));
    }
    out.push_str("</svg>\n<details><summary>Table of latencies</summary>\n");
    let row = |one: &Quantile| {
        let share = share_figure(one.share, "share of packets that took no longer");
        (false, vec![share, time_figure(one.latency, "latency from source to sink")])
    };
    let rows: Vec<_> = path.latencies.iter().map(row).collect();
    out.push_str(&table(
        "Latency that a share of packets did not exceed",
        &["share", "latency"],
        &rows,
    ));
    out.push_str("</details>\n");
}

/// Axis ticks: the ends, and round latencies between them: powers of ten, or quarters.
fn ticks(begin: f64, most: f64, logarithmic: bool) -> Vec<f64> {
    if !logarithmic {
        return (0..=4).map(|step| f64::from(step) / 4.0 * most).collect();
    }
    let (from, to) = (begin.log10().ceil() as i32, most.log10().floor() as i32);
    let powers = (from..=to).map(|power| 10_f64.powi(power));
    let apart = |latency: &f64| *latency > 1.5 * begin && *latency < most / 1.5;
    [begin].into_iter().chain(powers.filter(apart)).chain([most]).collect()
}
