//! The figures of a document, drawn from our runs for the page of a reproduction.
//!
//! A plot over time can be stepped through and played: what comes later is hidden, and the key shows the value
//! of each curve at that instant. Without scripts the whole plot is shown. The page works offline, and contains
//! its data as JSON.

use super::html::{embedded, escape};
use serde::Serialize;
use std::fmt::Write;

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// Which figure of the document, and what it shows.
    pub title: String,
    /// What a reader should see in it.
    pub caption: String,
    /// What the horizontal axis is, with its unit.
    pub x: String,
    /// What the vertical axis is, with its unit.
    pub y: String,
    /// Whether the horizontal axis is time, which can be stepped through.
    pub over_time: bool,
    /// The curves.
    pub series: Vec<Series>,
    /// Places on the horizontal axis that the document names.
    pub marks: Vec<(f64, String)>,
}

impl Plot {
    /// Curves over something that is not time, without marks: title, caption, both axes with their units.
    pub fn new(
        title: impl Into<String>,
        caption: impl Into<String>,
        (x, y): (&str, &str),
        series: Vec<Series>,
    ) -> Plot {
        Plot {
            title: title.into(),
            caption: caption.into(),
            x: x.to_owned(),
            y: y.to_owned(),
            over_time: false,
            series,
            marks: Vec::new(),
        }
    }

    /// The same over time, which can be stepped through.
    pub fn over_time(self) -> Plot {
        Plot { over_time: true, ..self }
    }

    /// The same with places on the horizontal axis that the document names.
    pub fn marked(self, marks: Vec<(f64, String)>) -> Plot {
        Plot { marks, ..self }
    }
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 28.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 52.0;
/// Grid lines across a plot, about.
const TICKS: f64 = 6.0;
/// Colour and dash of each curve. Okabe and Ito's colours, which colour-blind people can distinguish.
const STYLES: [(&str, &str); 8] = [
    ("#0072b2", ""),
    ("#d55e00", ""),
    ("#009e73", "4 4"),
    ("#cc79a7", ""),
    ("#0072b2", "6 3"),
    ("#d55e00", "6 3"),
    ("#009e73", "1 3"),
    ("#cc79a7", "6 3"),
];
/// Width of a mark's name.
const MARK_WIDTH: f64 = 44.0;
/// Most points of a drawn curve.
const POINTS_MAX: usize = 1200;

/// From values to positions in the picture.
struct Scale {
    x: (f64, f64),
    y: (f64, f64),
}

impl Scale {
    fn of(plot: &Plot) -> Scale {
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values
                .filter(|value| value.is_finite())
                .fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)))
        };
        let (low, high) = ends(&mut points().map(|point| point.0));
        let x = if low < high { (low, high) } else { (0.0, 1.0) };
        let (low, high) = ends(&mut points().map(|point| point.1));
        let y = if high > low.min(0.0) { (low.min(0.0), high * 1.05) } else { (0.0, 1.0) };
        Scale { x, y }
    }
    fn place_x(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }
    fn place_y(&self, value: f64) -> f64 {
        let share = (value - self.y.0) / (self.y.1 - self.y.0);
        TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Round values between two ends: steps of 1, 2 or 5 times a power of ten.
fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    let raw = (high - low) / TICKS;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|by| by * power);
    let step = step.into_iter().find(|&step| step >= raw).unwrap_or(raw);
    let first = (low / step).ceil() as i64;
    // 0.3 / 0.05 is a little less than 6.
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|tick| tick as f64 * step).collect()
}

/// A number without needless digits.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// One figure as SVG.
pub fn svg(plot: &Plot, id: usize) -> String {
    let scale = Scale::of(plot);
    let mut out = format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\" \
         data-x0=\"{}\" data-x1=\"{}\">\n<clipPath id=\"seen{id}\"><rect class=\"seen\" \
         x=\"{LEFT}\" y=\"0\" width=\"{}\" height=\"{HEIGHT}\"/></clipPath>\n",
        escape(&plot.title),
        scale.x.0,
        scale.x.1,
        WIDTH - LEFT - RIGHT,
    );
    for value in ticks(scale.y) {
        let at = scale.place_y(value);
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            number(value)
        );
    }
    for value in ticks(scale.x) {
        let at = scale.place_x(value);
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{at:.1} {:.1}v5\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 20.0,
            number(value)
        );
    }
    // Names that would overlap are stacked.
    let mut last = (f64::MIN, false);
    for (value, name) in &plot.marks {
        let at = scale.place_x(*value);
        last = (at, at - last.0 < MARK_WIDTH && !last.1);
        let _ = writeln!(
            out,
            "<path class=\"mark\" d=\"M{at:.1} {TOP}V{:.1}\"/><text class=\"soft\" x=\"{at:.1}\" \
             y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            if last.1 { TOP - 18.0 } else { TOP - 5.0 },
            escape(name)
        );
    }
    let _ = writeln!(out, "<g clip-path=\"url(#seen{id})\">");
    for (place, series) in plot.series.iter().enumerate() {
        let (colour, dash) = STYLES[place % STYLES.len()];
        let every = series.points.len().div_ceil(POINTS_MAX).max(1);
        let points = series.points.iter().step_by(every).filter(|point| point.1.is_finite());
        let points: Vec<String> = points
            .map(|&(x, y)| format!("{:.1},{:.1}", scale.place_x(x), scale.place_y(y)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" stroke=\"{colour}\" stroke-dasharray=\"{dash}\"><title>{}\
             </title></polyline>",
            points.join(" "),
            escape(&series.name)
        );
    }
    let _ = writeln!(
        out,
        "</g>\n<path class=\"cursor\" d=\"M{LEFT} {TOP}V{:.1}\" visibility=\"hidden\"/>\n<text \
         x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n<text x=\"{LEFT}\" y=\"14\" \
         text-anchor=\"start\">{}</text>\n</svg>",
        HEIGHT - BOTTOM,
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0,
        escape(&plot.x),
        escape(&plot.y)
    );
    out
}

fn key(plot: &Plot) -> String {
    let mut out = String::from("<p class=\"key\">");
    for (place, series) in plot.series.iter().enumerate() {
        let (colour, dash) = STYLES[place % STYLES.len()];
        let _ = writeln!(
            out,
            "<span><svg width=\"34\" height=\"8\" aria-hidden=\"true\"><path d=\"M0 4H34\" \
             stroke=\"{colour}\" stroke-width=\"2.5\" stroke-dasharray=\"{dash}\"/></svg> {} \
             <output></output></span>",
            escape(&series.name)
        );
    }
    out + "</p>\n"
}

const STEPS: &str = "<div class=\"steps\" hidden><button data-by=\"-1\" aria-label=\"step back\">\
&#9664;</button><button class=\"play\">play</button><button data-by=\"1\" aria-label=\"step on\">\
&#9654;</button><input type=\"range\" min=\"0\" max=\"400\" value=\"400\" aria-label=\"instant\">\
<output></output></div>\n";

/// The figures, for a page that has the colours of [`super::html`]: drawn, with what steps through them.
pub fn figures(plots: &[Plot]) -> String {
    let mut out = format!("<style>\n{}</style>\n", include_str!("plots.css"));
    for (id, plot) in plots.iter().enumerate() {
        let _ = write!(
            out,
            "<figure{}>\n<h2>{}</h2>\n{}{}{}<figcaption>{}</figcaption>\n</figure>\n",
            if plot.over_time { " class=\"time\"" } else { "" },
            escape(&plot.title),
            svg(plot, id),
            key(plot),
            if plot.over_time { STEPS } else { "" },
            escape(&plot.caption)
        );
    }
    let data = serde_json::to_string(plots).unwrap_or_default();
    let _ = write!(
        out,
        "<script type=\"application/json\" id=\"plots\">\n{}\n</script>\n<script>\n{}</script>\n",
        embedded(&data),
        include_str!("plots.js")
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let curve = |name: &str, by: f64| Series {
            name: name.to_owned(),
            points: (0..100).map(|x| (f64::from(x), by * f64::from(x))).collect(),
        };
        Plot {
            title: "Fig <1>".to_owned(),
            caption: "rises".to_owned(),
            x: "periods".to_owned(),
            y: "MB".to_owned(),
            over_time: true,
            series: vec![curve("a & b", 1.0), curve("c", 0.5)],
            marks: vec![(40.0, "T1".to_owned())],
        }
    }

    #[test]
    fn a_plot_has_its_curves_and_escapes_its_text() {
        let page = figures(&[plot()]);
        assert_eq!(page.matches("<polyline").count(), 2);
        assert!(
            page.contains("a &amp; b") && page.contains("Fig &lt;1&gt;") && !page.contains("NaN")
        );
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks((0.0, 1000.0)), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        assert_eq!(ticks((0.0, 0.3)).len(), 7);
        let empty = Plot { series: Vec::new(), ..plot() };
        assert!(!svg(&empty, 0).contains("NaN"));
    }
}
