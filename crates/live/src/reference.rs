//! The measured cost of the calibration's reference transfers and the fit through them: near a
//! reference a prediction follows the measurement.
//!
//! A path has breaks that five constants cannot follow (a receiver that starts to sleep between messages,
//! a message that outgrows a cache). So a fitted cost is multiplied by the ratio of measured to fitted
//! cost at nearby references, weighted by inverse distance (Shepard, A two-dimensional interpolation
//! function for irregularly-spaced data, ACM 1968, §2). The expected error is the weighted
//! leave-one-out error of those references.

use crate::calibrate::Value;
use crate::fit;
use crate::predict::{HEADERS, work_of};
use crate::transfer::Setting;
use serde::{Deserialize, Serialize};

/// Distance between settings with and without batches, in octaves of message size.
const OFFLOAD_APART: f64 = 4.0;
/// Octaves within which references are averaged, because each was measured only once.
const BLUR: f64 = 0.2;
/// The smallest part of a cost left to fit after subtracting copies.
const REST_MIN: f64 = 0.1;
/// The column of the fit that counts bytes.
const BYTES: usize = 1;

/// One reference transfer, on one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Bytes of each send.
    pub message: Value,
    /// Size of IP packets, bytes.
    pub mtu: u32,
    /// Segments travel in batches.
    pub offload: bool,
    /// CPU time per message.
    pub cost: Value,
    /// That divided by the fitted cost.
    pub ratio: f64,
    /// Relative error of its prediction from the other references alone.
    pub left_out: f64,
}

/// The correction from the references near a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Nearby {
    /// Measured over fitted cost.
    pub(crate) ratio: f64,
    /// Mean absolute leave-one-out error of those references.
    pub(crate) error: f64,
}

/// A reference setting and its measured cost, seconds per message.
pub(crate) struct Point {
    pub(crate) setting: Setting,
    pub(crate) cost: f64,
}

/// A fit with its points.
#[derive(Debug)]
pub(crate) struct Fitted {
    /// Calls, bytes, handovers, batches, segments.
    pub(crate) factors: Vec<f64>,
    /// Mean relative error at the points.
    pub(crate) error: f64,
    /// The points, each with its ratio to the fit and its leave-one-out error.
    pub(crate) references: Vec<Reference>,
}

fn row(setting: &Setting) -> Vec<f64> {
    let work = work_of(setting);
    vec![1.0, work.bytes, work.handovers, work.batches, work.segments]
}

/// Fits through `points`. `copy` is the known cost per byte of copying: a free fit would attribute it to
/// whole batches, because most bytes travel in them.
pub(crate) fn fit(points: &[Point], copy: f64) -> Fitted {
    let all: Vec<&Point> = points.iter().collect();
    let (factors, error) = factors(&all, copy);
    let mut references: Vec<Reference> =
        points.iter().map(|point| reference(point, &factors)).collect();
    for i in 0..points.len() {
        let others: Vec<&Point> =
            points.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, point)| point).collect();
        let (factors, _) = self::factors(&others, copy);
        let known: Vec<Reference> = others.iter().map(|point| reference(point, &factors)).collect();
        let said =
            dot(&row(&points[i].setting), &factors) * nearby(&known, &points[i].setting).ratio;
        references[i].left_out = digits(said / points[i].cost - 1.0);
    }
    Fitted { factors, error, references }
}

fn reference(point: &Point, factors: &[f64]) -> Reference {
    Reference {
        message: Value::Size(point.setting.message.0),
        mtu: point.setting.mtu,
        offload: point.setting.offload,
        cost: Value::Time(point.cost),
        ratio: digits(point.cost / dot(&row(&point.setting), factors)),
        left_out: 0.0,
    }
}

fn factors(points: &[&Point], copy: f64) -> (Vec<f64>, f64) {
    let rows: Vec<Vec<f64>> = points.iter().map(|point| row(&point.setting)).collect();
    let rest = |(row, point): (&Vec<f64>, &&Point)| {
        (point.cost - copy * row[BYTES]).max(point.cost * REST_MIN)
    };
    let rests: Vec<f64> = rows.iter().zip(points).map(rest).collect();
    let mut fit = fit::relative(&rows, &rests);
    fit.factors[BYTES] += copy;
    (fit.factors, fit.error)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Four decimals: more would be false precision.
fn digits(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

/// A transfer's coordinates, for distances.
#[derive(Clone, Copy)]
struct Place {
    message: f64,
    packet: f64,
    offload: bool,
}

impl Place {
    fn of(setting: &Setting) -> Place {
        let packet = f64::from(setting.mtu) - HEADERS;
        Place { message: setting.message.0 as f64, packet, offload: setting.offload }
    }

    /// The weight of one at `other`.
    fn weight(&self, other: Place) -> f64 {
        let octaves = |a: f64, b: f64| (a / b).log2();
        let message = octaves(self.message, other.message);
        let packet = octaves(self.packet, other.packet);
        let apart = if self.offload == other.offload { 0.0 } else { OFFLOAD_APART };
        (message * message + packet * packet + apart * apart + BLUR * BLUR).powf(-1.5)
    }
}

impl Reference {
    fn place(&self) -> Place {
        let packet = f64::from(self.mtu) - HEADERS;
        Place { message: self.message.si(), packet, offload: self.offload }
    }
}

/// The weighted mean at `here` of values at some places; `None` without any.
fn mean(known: impl Iterator<Item = (Place, f64)>, here: Place) -> Option<f64> {
    let (mut weights, mut sum) = (0.0, 0.0);
    for (place, value) in known {
        let weight = here.weight(place);
        weights += weight;
        sum += weight * value;
    }
    (weights > 0.0).then(|| sum / weights)
}

/// The correction from `references` near `setting`; none without references.
pub(crate) fn nearby(references: &[Reference], setting: &Setting) -> Nearby {
    let here = Place::of(setting);
    let of = |what: fn(&Reference) -> f64| {
        mean(references.iter().map(|one| (one.place(), what(one))), here)
    };
    Nearby {
        ratio: of(|one| one.ratio).unwrap_or(1.0),
        error: of(|one| one.left_out.abs()).unwrap_or(0.0),
    }
}

/// Updates some of the `references` to their present costs and scales the others accordingly; returns the
/// largest relative change.
pub(crate) fn refresh(references: &mut [Reference], again: &[Point]) -> f64 {
    let changes: Vec<(Place, f64)> = again
        .iter()
        .filter_map(|point| {
            let of = |one: &&Reference| {
                one.message.si() == point.setting.message.0 as f64
                    && one.mtu == point.setting.mtu
                    && one.offload == point.setting.offload
            };
            let before = references.iter().find(of)?;
            Some((Place::of(&point.setting), point.cost / before.cost.si()))
        })
        .collect();
    for one in references {
        let change = mean(changes.iter().copied(), one.place()).unwrap_or(1.0);
        one.ratio = digits(one.ratio * change);
        one.cost = Value::Time(one.cost.si() * change);
    }
    changes.iter().map(|(_, change)| (change - 1.0).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Bytes;

    fn points(cost: impl Fn(f64) -> f64) -> Vec<Point> {
        let sizes = [384_u64, 1536, 6 << 10, 24 << 10, 96 << 10, 384 << 10];
        let point = |message: u64| Point {
            setting: Setting { message: Bytes(message), ..Setting::PLAIN },
            cost: cost(message as f64),
        };
        sizes.into_iter().map(point).collect()
    }

    #[test]
    fn a_break_that_the_fit_misses_is_corrected_nearby() {
        // From 24 KiB on, a message costs a third less: the receiver no longer sleeps.
        let cost = |m: f64| (5e-6 + 1e-10 * m) * if m >= 24_576.0 { 0.67 } else { 1.0 };
        let fitted = fit(&points(cost), 0.0);
        for point in points(cost) {
            let said = dot(&row(&point.setting), &fitted.factors)
                * nearby(&fitted.references, &point.setting).ratio;
            assert!((said / point.cost - 1.0).abs() < 0.02, "{:?}", point.setting.message);
        }
        // A straight line needs no correction.
        let straight = fit(&points(|m| 5e-6 + 1e-10 * m), 0.0);
        assert!(straight.references.iter().all(|one| one.left_out.abs() < 0.05), "{straight:?}");
        let widest = |f: &Fitted| f.references.iter().map(|r| r.left_out.abs()).fold(0.0, f64::max);
        assert!(widest(&fitted) > widest(&straight));
    }

    #[test]
    fn two_repeated_references_rescale_the_others() {
        let mut references = fit(&points(|m| 5e-6 + 1e-10 * m), 0.0).references;
        let before = references.clone();
        let slower: Vec<Point> =
            points(|m| 1.3 * (5e-6 + 1e-10 * m)).into_iter().step_by(3).collect();
        let largest = refresh(&mut references, &slower);
        assert!((largest - 0.3).abs() < 1e-9);
        for (one, was) in references.iter().zip(before) {
            assert!((one.ratio / was.ratio - 1.3).abs() < 1e-3, "{one:?}");
        }
    }
}
