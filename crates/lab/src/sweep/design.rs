//! Designs of experiments: the points of a sweep, made from its factors.
//!
//! A point is a value for each factor, as text.

use super::Factor;
use super::plan::POINTS_MAX;
use lastmeter_base::Stream;

/// A value for each factor, in their order.
pub type Points = Vec<Vec<String>>;

/// Every combination; the last factor varies fastest.
///
/// ```
/// use lastmeter_lab::sweep::{Factor, design};
/// let factors = [Factor::parse("a=1,2")?, Factor::parse("b=x,y")?];
/// assert_eq!(design::grid(&factors)?, [["1", "x"], ["1", "y"], ["2", "x"], ["2", "y"]]);
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// If a factor is a range without a number of steps, or there are too many points.
pub fn grid(factors: &[Factor]) -> Result<Points, String> {
    let levels = factors.iter().map(counted).collect::<Result<Vec<_>, _>>()?;
    let count = levels.iter().try_fold(1_u64, |n, levels| n.checked_mul(levels.len() as u64));
    check(count.unwrap_or(u64::MAX))?;
    let mut points: Points = vec![Vec::new()];
    for levels in levels {
        let longer = |point: &Vec<String>| {
            let with = |level: &String| point.iter().cloned().chain([level.clone()]).collect();
            levels.iter().map(with).collect::<Points>()
        };
        points = points.iter().flat_map(longer).collect();
    }
    Ok(points)
}

/// The first values of all factors together, then the second ones, and so on.
///
/// # Errors
/// If the factors have different numbers of values.
pub fn list(factors: &[Factor]) -> Result<Points, String> {
    let levels = factors.iter().map(counted).collect::<Result<Vec<_>, _>>()?;
    let len = levels.first().map_or(0, Vec::len);
    if let Some(odd) = levels.iter().position(|levels| levels.len() != len) {
        let (first, other, found) = (&factors[0].key, &factors[odd].key, levels[odd].len());
        return Err(format!(
            "`{first}` has {len} values and `{other}` {found}: to combine them, give equally many"
        ));
    }
    check(len as u64)?;
    Ok((0..len).map(|at| levels.iter().map(|levels| levels[at].clone()).collect()).collect())
}

/// `count` points, each value drawn independently.
///
/// # Errors
/// If there are too many.
pub fn random(factors: &[Factor], count: u64, seed: u64) -> Result<Points, String> {
    check(count)?;
    let mut points: Points = vec![Vec::new(); count as usize];
    for factor in factors {
        let mut stream = Stream::new(seed, &format!("sweep/{}", factor.key));
        points.iter_mut().for_each(|point| point.push(factor.at(stream.unit())));
    }
    Ok(points)
}

/// `count` points of a Latin hypercube: each factor's range is cut into `count` equal parts, and
/// each part has exactly one point.
///
/// # Errors
/// If there are too many.
pub fn latin(factors: &[Factor], count: u64, seed: u64) -> Result<Points, String> {
    check(count)?;
    let mut points: Points = vec![Vec::new(); count as usize];
    for factor in factors {
        let mut stream = Stream::new(seed, &format!("sweep/{}", factor.key));
        let mut parts: Vec<u64> = (0..count).collect();
        // Fisher and Yates: every order is equally likely.
        for last in (1..parts.len()).rev() {
            parts.swap(last, stream.below(last as u64 + 1) as usize);
        }
        for (point, part) in points.iter_mut().zip(parts) {
            point.push(factor.at((part as f64 + stream.unit()) / count as f64));
        }
    }
    Ok(points)
}

fn counted(factor: &Factor) -> Result<Vec<String>, String> {
    let key = &factor.key;
    factor.levels().ok_or_else(|| {
        format!(
            "`{key}` is a range: give a number of values, `LOW..HIGH / 5`, or draw with --lhs 20"
        )
    })
}

fn check(points: u64) -> Result<(), String> {
    match points {
        0 => Err("the sweep has no points".to_owned()),
        1..=POINTS_MAX => Ok(()),
        many => Err(format!("the sweep has {many} points; the limit is {POINTS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn factors(texts: &[&str]) -> Vec<Factor> {
        texts.iter().map(|text| Factor::parse(text).unwrap()).collect()
    }

    #[test]
    fn factors_of_a_list_need_equally_many_values() {
        assert_eq!(list(&factors(&["a=1,2", "b=x,y"])).unwrap(), [["1", "x"], ["2", "y"]]);
        let wrong = list(&factors(&["a=1,2", "b=x"])).unwrap_err();
        assert!(wrong.contains("`a` has 2 values and `b` 1"), "{wrong}");
    }

    #[test]
    fn a_range_in_a_grid_needs_a_number_of_steps() {
        let wrong = grid(&factors(&["a=1..2"])).unwrap_err();
        assert!(wrong.contains("give a number of values"), "{wrong}");
    }

    #[test]
    fn too_many_points_are_refused_before_they_are_made() {
        let thousand = "1..1000 / 1000";
        let texts: Vec<String> = ["a", "b", "c"].map(|key| format!("{key}={thousand}")).into();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert!(grid(&factors(&texts)).unwrap_err().contains("the limit is"));
    }

    proptest! {
        #[test]
        fn each_part_of_each_factor_has_one_point(count in 1u64..60, seed in any::<u64>()) {
            let points = latin(&factors(&["a=0.0..1.0", "b=5.0..6.0"]), count, seed).unwrap();
            for (place, low) in [(0, 0.0), (1, 5.0)] {
                let value = |point: &Vec<String>| point[place].parse::<f64>().unwrap() - low;
                let mut values: Vec<f64> = points.iter().map(value).collect();
                values.sort_by(f64::total_cmp);
                for (part, value) in values.into_iter().enumerate() {
                    // Drawn values are written with six digits.
                    let (from, to) = (part as f64 - 1e-3, part as f64 + 1.0 + 1e-3);
                    prop_assert!((from..=to).contains(&(value * count as f64)));
                }
            }
        }

        #[test]
        fn the_same_seed_draws_the_same_points(seed in any::<u64>()) {
            let factors = factors(&["a=0..1.5", "b=x,y,z"]);
            prop_assert_eq!(random(&factors, 20, seed), random(&factors, 20, seed));
            prop_assert_eq!(latin(&factors, 20, seed), latin(&factors, 20, seed));
        }

        #[test]
        fn a_list_in_a_hypercube_is_balanced(seed in any::<u64>()) {
            let points = latin(&factors(&["b=x,y,z"]), 30, seed).unwrap();
            for level in ["x", "y", "z"] {
                prop_assert_eq!(points.iter().filter(|point| point[0] == level).count(), 10);
            }
        }
    }
}
