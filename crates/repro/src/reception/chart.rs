//! The curves on one chart: an HTML file that works offline, and a table for the terminal.
//!
//! ```text
//! [throughput] [latency p50, p99] [CPU left]      each by offered load, with one colour family per era
//! ```

use super::Era;
use super::sweep::{Curve, LOADS, Machine, Point};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 34.0;
/// Smallest and largest latency drawn, in seconds.
const LATENCY: (f64, f64) = (1e-6, 1.0);

/// A panel: title, value of a point, and position of a value between 0 and 1.
struct Panel {
    title: &'static str,
    value: fn(&Point) -> f64,
    place: fn(f64) -> f64,
    ticks: &'static [(f64, &'static str)],
}

fn log_place(value: f64) -> f64 {
    let (low, high) = LATENCY;
    ((value.clamp(low, high) / low).ln() / (high / low).ln()).clamp(0.0, 1.0)
}

const SHARES: &[(f64, &str)] = &[(0.0, "0"), (0.5, "0.5"), (1.0, "1")];
const TIMES: &[(f64, &str)] = &[
    (1e-6, "1 us"),
    (1e-5, "10 us"),
    (1e-4, "100 us"),
    (1e-3, "1 ms"),
    (1e-2, "10 ms"),
    (0.1, "100 ms"),
];

const PANELS: [Panel; 4] = [
    Panel {
        title: "processed, of capacity",
        value: |p| p.throughput,
        place: |v| v / 1.15,
        ticks: SHARES,
    },
    Panel {
        title: "latency, half of the packets",
        value: |p| p.p50,
        place: log_place,
        ticks: TIMES,
    },
    Panel { title: "latency, 99 of 100", value: |p| p.p99, place: log_place, ticks: TIMES },
    Panel { title: "CPU left for others", value: |p| p.idle, place: |v| v / 1.15, ticks: SHARES },
];

/// Colours of an era, assigned to its policies in turn.
fn palette(era: Era) -> &'static [&'static str] {
    match era {
        Era::Then => &[
            "#b2182b", "#d6604d", "#8c510a", "#bf812d", "#c51b7d", "#762a83", "#e08214", "#7f7f7f",
            "#4d4d4d",
        ],
        Era::Now => &["#2166ac", "#4393c3", "#053061", "#1b9e77", "#01665e", "#5aae61"],
        Era::Ours => &["#000000"],
    }
}

/// A measured load may be less than the first that was asked for: the axis begins at half of it.
fn x(load: f64) -> f64 {
    let (low, high): (f64, f64) = (LOADS[0] / 2.0, LOADS[LOADS.len() - 1]);
    LEFT + (load / low).ln() / (high / low).ln() * WIDTH
}

fn y(place: f64) -> f64 {
    TOP + HEIGHT * (1.0 - place.clamp(0.0, 1.0))
}

/// The chart as one HTML file.
pub fn html(machines: &[(&Machine, &[Curve])]) -> String {
    let mut body = String::new();
    for (machine, curves) in machines {
        let capacity = machine.capacity();
        body += &format!(
            "<h2>{}</h2>\n<p>Capacity {capacity:.0} packets/s: {} of work each. Load in multiples \
             of it, logarithmic.</p>\n<div class=\"panels\">\n",
            escape(&machine.what),
            lastmeter_base::Duration::from_secs_f64(1.0 / capacity),
        );
        PANELS.iter().for_each(|panel| body += &drawing(panel, curves));
        body += "</div>\n";
        body += &legend(curves);
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Receive \
         livelock, then and now</title>\n<style>body{{font:15px/1.5 system-ui,sans-serif;\
         margin:2em;\
         max-width:1100px}}\
         .panels{{display:flex;flex-wrap:wrap;gap:12px}}svg{{width:520px}}\
         text{{font-size:12px}}\
         .key{{display:inline-block;margin-right:1.4em}}.key i{{display:inline-block;width:1.6em;\
         border-top:3px solid;vertical-align:middle;margin-right:.4em}}</style></head>\n<body>\n\
         <h1>Receive livelock, then and now</h1>\n<p>Red and brown: 1997. Blue and green: Linux. \
         Black: ours.</p>\n{body}</body></html>\n"
    )
}

fn coloured(curves: &[Curve]) -> Vec<(&Curve, &'static str)> {
    let mut used = [0usize; 3];
    let colour = |curve: &Curve, used: &mut [usize; 3]| {
        let palette = palette(curve.era);
        let at = &mut used[curve.era as usize];
        *at += 1;
        palette[(*at - 1) % palette.len()]
    };
    curves.iter().map(|curve| (curve, colour(curve, &mut used))).collect()
}

fn drawing(panel: &Panel, curves: &[Curve]) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n<text x=\"{LEFT}\" y=\"18\" \
         font-weight=\"600\">{}</text>\n",
        LEFT + WIDTH + 24.0,
        TOP + HEIGHT + 40.0,
        panel.title,
        panel.title
    );
    for &(value, name) in panel.ticks {
        let at = y((panel.place)(value));
        svg += &format!(
            "<path d=\"M{LEFT} {at:.1}h{WIDTH}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{name}</text>\n",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for load in [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0] {
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{load}</text>\n",
            x(load),
            TOP + HEIGHT + 18.0
        );
    }
    for (curve, colour) in coloured(curves) {
        // Without deliveries there is no latency.
        let drawn = |point: &&Point| panel.ticks.len() == SHARES.len() || point.throughput > 0.001;
        let points: Vec<String> = curve
            .points
            .iter()
            .filter(drawn)
            .map(|point| {
                format!("{:.1},{:.1}", x(point.load), y((panel.place)((panel.value)(point))))
            })
            .collect();
        svg += &format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\">\
             <title>{}</title></polyline>\n",
            points.join(" "),
            escape(curve.name)
        );
    }
    svg + "</svg>\n"
}

fn legend(curves: &[Curve]) -> String {
    let key = |(curve, colour): (&Curve, &str)| {
        format!("<span class=\"key\"><i style=\"color:{colour}\"></i>{}</span>", escape(curve.name))
    };
    format!("<p>{}</p>\n", coloured(curves).into_iter().map(key).collect::<Vec<_>>().join("\n"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The loads in the table.
const SHOWN: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 10.0];

/// The curves as a table: throughput by load, latency below and above capacity, CPU left.
pub fn table(machine: &Machine, curves: &[Curve]) -> String {
    let mut text = format!(
        "{}: capacity {:.0} packets/s\n{:28}{}  p99 at 0.5  p99 at 2  CPU left at 0.5\n",
        machine.what,
        machine.capacity(),
        "processed, of capacity, at",
        SHOWN.iter().map(|load| format!("{load:>6}")).collect::<String>(),
    );
    for curve in curves {
        let at = |load: f64| curve.points.iter().find(|point| point.load == load);
        let throughput =
            |load: &f64| at(*load).map_or(String::new(), |p| format!("{:>6.2}", p.throughput));
        let latency = |load: f64| match at(load) {
            Some(point) if point.throughput > 0.001 => time(point.p99),
            _ => "-".to_owned(),
        };
        text += &format!(
            "{:28}{}  {:>10}  {:>8}  {:>14.0} %\n",
            curve.name,
            SHOWN.iter().map(throughput).collect::<String>(),
            latency(0.5),
            latency(2.0),
            at(0.5).map_or(0.0, |point| 100.0 * point.idle),
        );
    }
    text
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reception::{of_1997, sweep};

    #[test]
    fn a_chart_has_every_curve_in_every_panel_and_closes_what_it_opens() {
        let machine = Machine::of_1997();
        let curves: Vec<Curve> =
            of_1997().iter().take(3).map(|way| sweep::curve(&machine, way, 1)).collect();
        let page = html(&[(&machine, &curves)]);
        assert_eq!(page.matches("<polyline").count(), 3 * PANELS.len());
        for tag in ["svg", "p", "div", "body"] {
            let opened = page.matches(&format!("<{tag}")).count()
                - page.matches("<polyline").count() * usize::from(tag == "p")
                - page.matches("<path").count() * usize::from(tag == "p");
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        assert!(!page.contains("NaN") && table(&machine, &curves).lines().count() == 5);
    }
}
