//! Frame sizes like those of MPEG films: given minimum, maximum, mean and deviation (E-90, E-91).
//!
//! ```text
//! ln size = p (type + scene + noise) + c      type: I B B P B B P B B P B B
//! ```
//!
//! Types differ by a constant ratio, scenes by a process that keeps [`KEPT`] of its value from one group
//! of pictures to the next, frames by noise. The power p and the constant c are then set to give
//! the required mean and deviation, with all sizes between minimum and maximum,
//! both of which occur.
//!
//! Autocorrelation of the result, for the six films of Table 6.4 (a test bounds it): 0.84 to 0.88 one
//! group apart and 0.59 to 0.66 ten groups apart, most of which is due to the repeating pattern
//! alone; 0.43 to 0.62 three frames apart and 0 one frame apart. Long-range
//! dependence, as in the films themselves (Rose, TR 101, Würzburg, 1995), is **not** modelled.
//!
//! Source: the four moments, Indiresan 1997, Table 6.4; the pattern and 33 ms, §6.4.3. The ratio of
//! types, the scenes' share and [`KEPT`] are ours: Table 6.4 does not state them.

use lastmeter_base::Stream;

/// A film's frame sizes, in bits, as Table 6.4 gives them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// The smallest frame.
    pub least: u64,
    /// The largest frame.
    pub most: u64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

/// Frames of a group of pictures.
pub const GROUP: usize = 12;
/// Ratio of the sizes of I, P and B frames, as logarithms: 5 to 2.2 to 1, before the power.
const TYPES: [f64; 3] = [1.609, 0.788, 0.0];
/// Which type each frame of a group has: IBBPBBPBBPBB.
const PATTERN: [usize; GROUP] = [0, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2];
/// The share of a scene's deviation that carries over from one group to the next.
pub const KEPT: f64 = 0.9;
/// Deviation of scenes, and of noise, as logarithms before the power.
const SCENES: f64 = 0.45;
const NOISE: f64 = 0.2;
/// Cells of the histogram by which p and c are found.
const CELLS: usize = 2048;

/// The sizes of `count` frames, in bits; `None` if no sizes between minimum and maximum have this
/// mean and deviation, or there are fewer than two groups.
///
/// ```
/// use lastmeter_net::mpeg::{Moments, frames};
/// let dino = Moments { least: 880, most: 119_632, mean: 13_078.0, deviation: 14_749.0 };
/// let sizes = frames(&dino, 2400, 1).expect("it is possible");
/// let mean = sizes.iter().sum::<u64>() as f64 / 2400.0;
/// assert!((mean / dino.mean - 1.0).abs() < 0.01);
/// ```
pub fn frames(moments: &Moments, count: usize, seed: u64) -> Option<Vec<u64>> {
    let possible = moments.least as f64 <= moments.mean
        && moments.mean <= moments.most as f64
        && moments.deviation >= 0.0
        && count >= 2 * GROUP;
    if !possible {
        return None;
    }
    let shape = shape(count, seed);
    let (power, constant) = fit(moments, &shape)?;
    let mut sizes: Vec<u64> =
        shape.iter().map(|y| clip(moments, (power * y + constant).exp()).round() as u64).collect();
    let at = |best: fn((usize, u64), (usize, u64)) -> bool| {
        let all = sizes.iter().copied().enumerate();
        all.reduce(|a, b| if best(b, a) { b } else { a }).map_or(0, |(at, _)| at)
    };
    let (smallest, largest) = (at(|b, a| b.1 < a.1), at(|b, a| b.1 > a.1));
    sizes[smallest] = moments.least;
    sizes[largest] = moments.most;
    Some(sizes)
}

fn clip(moments: &Moments, size: f64) -> f64 {
    size.clamp(moments.least as f64, moments.most as f64)
}

/// Type, scene and noise of every frame, as logarithms.
fn shape(count: usize, seed: u64) -> Vec<f64> {
    let mut stream = Stream::new(seed, "mpeg");
    let step = SCENES * (1.0 - KEPT * KEPT).sqrt();
    let mut scene = SCENES * normal(&mut stream);
    (0..count)
        .map(|frame| {
            if frame % GROUP == 0 {
                scene = KEPT * scene + step * normal(&mut stream);
            }
            TYPES[PATTERN[frame % GROUP]] + scene + NOISE * normal(&mut stream)
        })
        .collect()
}

/// A sum of twelve draws: normal but for the tails beyond six deviations.
fn normal(stream: &mut Stream) -> f64 {
    (0..12).map(|_| stream.unit()).sum::<f64>() - 6.0
}

/// The power and the constant that give the mean and the deviation.
fn fit(moments: &Moments, shape: &[f64]) -> Option<(f64, f64)> {
    let low = shape.iter().copied().fold(f64::INFINITY, f64::min);
    let high = shape.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let width = ((high - low) / CELLS as f64).max(f64::MIN_POSITIVE);
    let mut cells = vec![(0.0, 0.0); CELLS];
    for &y in shape {
        let cell = &mut cells[(((y - low) / width) as usize).min(CELLS - 1)];
        *cell = (cell.0 + y, cell.1 + 1.0);
    }
    let cells: Vec<(f64, f64)> =
        cells.into_iter().filter(|cell| cell.1 > 0.0).map(|(sum, n)| (sum / n, n)).collect();
    let total = shape.len() as f64;
    let moments_with = |power: f64, constant: f64| {
        let (mut first, mut second) = (0.0, 0.0);
        for &(y, n) in &cells {
            let size = clip(moments, (power * y + constant).exp());
            first += n * size;
            second += n * size * size;
        }
        let mean = first / total;
        (mean, (second / total - mean * mean).max(0.0).sqrt())
    };
    // The mean rises with the constant, and at a given mean the deviation with the power.
    let constant_for =
        |power: f64| bisect(-60.0, 60.0, |constant| moments_with(power, constant).0 < moments.mean);
    let power = bisect(0.0, 8.0, |p| moments_with(p, constant_for(p)).1 < moments.deviation);
    let constant = constant_for(power);
    let (mean, deviation) = moments_with(power, constant);
    let near = |ours: f64, wanted: f64| (ours - wanted).abs() <= 0.01 * wanted.max(1.0);
    (near(mean, moments.mean) && near(deviation, moments.deviation)).then_some((power, constant))
}

/// Where `below` changes from true to false.
fn bisect(mut low: f64, mut high: f64, below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        match below(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 6.4.
    const FILMS: [(&str, Moments); 6] = [
        ("dino", film(880, 119_632, 13_078.0, 14_749.0)),
        ("lambs", film(288, 134_224, 7_311.0, 11_195.0)),
        ("atp", film(280, 190_856, 21_889.0, 20_408.0)),
        ("race", film(4_192, 202_416, 30_749.0, 21_167.0)),
        ("news", film(16, 194_416, 20_664.0, 25_992.0)),
        ("talk", film(2_080, 106_768, 14_536.0, 16_519.0)),
    ];
    const fn film(least: u64, most: u64, mean: f64, deviation: f64) -> Moments {
        Moments { least, most, mean, deviation }
    }

    fn correlation(sizes: &[u64], lag: usize) -> f64 {
        let n = (sizes.len() - lag) as f64;
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
        let of = |a: u64, b: u64| (a as f64 - mean) * (b as f64 - mean);
        let variance = sizes.iter().map(|&a| of(a, a)).sum::<f64>() / sizes.len() as f64;
        sizes.iter().zip(&sizes[lag..]).map(|(&a, &b)| of(a, b)).sum::<f64>() / n / variance
    }

    #[test]
    fn e_90_all_four_moments_are_those_of_table_6_4() {
        for (name, moments) in FILMS {
            let sizes = frames(&moments, 21_600, 7).unwrap();
            let n = sizes.len() as f64;
            let mean = sizes.iter().sum::<u64>() as f64 / n;
            let square = sizes.iter().map(|&s| (s as f64 - mean).powi(2)).sum::<f64>() / n;
            assert_eq!(sizes.iter().min(), Some(&moments.least), "{name}");
            assert_eq!(sizes.iter().max(), Some(&moments.most), "{name}");
            assert!((mean / moments.mean - 1.0).abs() < 0.01, "{name}: mean {mean}");
            let deviation = square.sqrt();
            assert!((deviation / moments.deviation - 1.0).abs() < 0.01, "{name}: {deviation}");
        }
    }

    #[test]
    fn e_91_the_pattern_repeats_and_scenes_last() {
        for (name, moments) in FILMS {
            let sizes = frames(&moments, 21_600, 7).unwrap();
            let at = |lag| correlation(&sizes, lag);
            assert!((0.8..0.9).contains(&at(12)), "{name}: {}", at(12));
            assert!((0.5..0.7).contains(&at(120)), "{name}: {}", at(120));
            assert!(at(1) < at(3) && at(3) < at(12), "{name}: I and P frames stand out");
        }
    }

    #[test]
    fn impossible_moments_are_refused() {
        assert_eq!(frames(&film(10, 20, 30.0, 1.0), 240, 1), None);
        assert_eq!(frames(&film(10, 20, 15.0, 10.0), 240, 1), None);
        assert_eq!(frames(&film(10, 20, 15.0, 2.0), 12, 1), None);
    }
}
