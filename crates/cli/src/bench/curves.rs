//! Benchmarks whose names end in `@N` as curves over N, with their peers.

use super::Measurement;
use crate::{Complaint, results};
use lastmeter_ledger::html;
use lastmeter_ledger::plots::{Plot, Series};
use std::collections::BTreeMap;
use std::path::Path;

/// A unit's curves.
#[derive(Default)]
struct Unit {
    ours: BTreeMap<String, Vec<(f64, f64)>>,
    peers: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Draws them: in each unit, and, where there are peers, relative to each curve's first point, so that
/// the shapes for machines of different eras can be compared.
pub(super) fn plots(results: &[Measurement]) -> Vec<Plot> {
    let mut units: BTreeMap<&str, Unit> = BTreeMap::new();
    for result in results {
        let Some((name, number)) = result.bench.rsplit_once('@') else { continue };
        let Ok(number) = number.parse::<f64>() else { continue };
        let unit = units.entry(&result.unit).or_default();
        unit.ours.entry(name.to_owned()).or_default().push((number, result.value));
        if let (Some(peer), Some(value)) = (&result.peer, result.peer_value) {
            let name = format!("{name}, {peer}");
            unit.peers.entry(name).or_default().push((number, value));
        }
    }
    let mut plots = Vec::new();
    for (unit, Unit { ours, peers }) in units {
        // A curve of one point says nothing.
        let curves = |of: &BTreeMap<String, Vec<(f64, f64)>>| -> Vec<Series> {
            let curves = of.iter().filter(|(_, points)| points.len() > 1);
            let curve = |(name, points): (&String, &Vec<(f64, f64)>)| Series {
                name: name.clone(),
                points: points.clone(),
            };
            curves.map(curve).collect()
        };
        let (ours, peers) = (curves(&ours), curves(&peers));
        if ours.is_empty() {
            continue;
        }
        let scale = ours.iter().flat_map(|series| &series.points).map(|point| point.1);
        let (scale, prefix) = match scale.fold(0.0, f64::max) {
            most if most >= 1e7 => (1e-6, "million "),
            most if most >= 1e4 => (1e-3, "thousand "),
            _ => (1.0, ""),
        };
        plots.push(plot(
            "On this machine".to_owned(),
            "The best of many rounds; with updates, the mean.",
            format!("{prefix}{unit}"),
            ours.iter().map(|series| scaled(series, scale)).collect(),
        ));
        if peers.is_empty() {
            continue;
        }
        let both = ours.iter().chain(&peers).filter(|series| series.points[0].1 > 0.0);
        plots.push(plot(
            "Relative to the first point, with the peer's".to_owned(),
            "How it scales, independent of absolute speed.",
            format!("{unit}, times the first"),
            both.map(|series| scaled(series, 1.0 / series.points[0].1)).collect(),
        ));
    }
    plots
}

fn plot(title: String, caption: &str, y: String, series: Vec<Series>) -> Plot {
    Plot::new(title, caption, ("N", &y), series)
}

fn scaled(series: &Series, by: f64) -> Series {
    let points = series.points.iter().map(|&(x, y)| (x, y * by)).collect();
    Series { name: series.name.clone(), points }
}

/// Writes the page.
pub(super) fn save(path: &Path, results: &[Measurement]) -> Result<(), Complaint> {
    let plots = plots(results);
    if plots.is_empty() {
        let right = "choose benchmarks whose names end in `@N`, such as `lookup/engines`";
        return Err(Complaint(format!("no curve to draw: {right}")));
    }
    results::file(path, html::curves("Benchmarks", &plots).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(bench: &str, value: f64, peer: Option<f64>) -> Measurement {
        let mut result = Measurement::new(bench, value, "lookups/s", String::new(), "");
        peer.into_iter().for_each(|peer| result.beside("model", peer));
        result
    }

    #[test]
    fn only_curves_of_two_points_or_more_are_drawn() {
        let mut results = vec![result("a@1", 2e7, Some(1e6)), result("b@1", 1.0, None)];
        results.push(result("plain", 3.0, None));
        assert!(plots(&results).is_empty());
        results.push(result("a@8", 6e7, Some(5e6)));
        let [absolute, relative] = &plots(&results)[..] else { panic!("two plots") };
        assert_eq!(absolute.series.len(), 1);
        assert_eq!(absolute.series[0].points, [(1.0, 20.0), (8.0, 60.0)]);
        assert_eq!(relative.series[1].points, [(1.0, 1.0), (8.0, 5.0)]);
    }
}
