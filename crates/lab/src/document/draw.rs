//! Distributions of times and of bytes, as experiment files write them.
//!
//! | written | distribution |
//! |---|---|
//! | `"5 us"` | always this |
//! | `{ exponential = "5 us" }` | memoryless, with this mean |
//! | `{ uniform = ["1 us", "9 us"] }` | between the two |
//! | `{ either = ["1 us", "31 us"], first = 0.9 }` | the first with this probability, else the second |
//! | `{ hyper-exponential = ["1 us", "31 us"], first = 0.9 }` | exponential with one of two means |
//! | `{ geometric = "5 us", slot = "1 us" }` | a whole number of slots |
//! | `{ pareto = "5 us", shape = 1.5 }` | heavy-tailed, with this mean |
//! | `{ log-normal = "5 us", sigma = 1.0 }` | with this mean; the standard deviation of the logarithm |
//! | `{ mix = [["1 us", 7], ["9 us", 1]] }` | one of these, by weight |

use super::decode::{number, shown, weighted};
use super::{Content, Fault, Item, shorten};
use lastmeter_base::kind::Value;
use lastmeter_base::{Countable, Draw};
use std::fmt::Display;

/// The names of distributions, each with what it needs besides.
const KNOWN: [(&str, &str); 8] = [
    ("exponential", ""),
    ("uniform", ""),
    ("either", "first"),
    ("hyper-exponential", "first"),
    ("geometric", "slot"),
    ("pareto", "shape"),
    ("log-normal", "sigma"),
    ("mix", ""),
];
/// A Pareto distribution of shape 1 or less has no mean.
const SHAPES: (f64, f64) = (1.01, 100.0);
/// With a greater one nearly all draws are 0.
const SIGMAS: (f64, f64) = (0.0, 8.0);

/// Reads a distribution whose values `one` reads; `right` says how values are written.
pub(super) fn draw<T: Countable + PartialOrd + Display>(
    item: &Item,
    right: &'static str,
    one: impl Fn(&Item) -> Result<T, Fault>,
) -> Result<Draw<T>, Fault> {
    let Some(entries) = item.entries() else {
        return match item.content {
            Content::Text(_) | Content::Integer(..) | Content::Number(..) => {
                one(item).map(Draw::Constant)
            }
            _ => Err(Fault::new(format!("{} is not a distribution", shown(item)), right)),
        };
    };
    let get = |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| &entry.item);
    let known = KNOWN.into_iter().find_map(|(name, more)| Some((name, more, get(name)?)));
    let odd = entries.iter().find(|entry| match known {
        Some((name, more, _)) => entry.key != name && entry.key != more,
        None => true,
    });
    if let Some(odd) = odd {
        let words = KNOWN.iter().flat_map(|&(name, more)| [name, more]);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        return Err(match words.contains(&odd.key.as_str()) {
            true => Fault::new("this does not give exactly one distribution", right),
            false => {
                let found = format!("there is no distribution `{}`", shorten(&odd.key));
                Fault::unknown(found, right, &odd.key, words).at(&odd.mark)
            }
        });
    }
    let Some((name, more, value)) = known else {
        return Err(Fault::new("this gives no distribution", right));
    };
    let more = match (more, get(more)) {
        ("", _) => value,
        (_, Some(more)) => more,
        (more, None) => {
            return Err(Fault::new(format!("`{name}` needs `{more}` beside it"), right));
        }
    };
    let pair = || match &value.content {
        Content::List(items) if items.len() == 2 => Ok((one(&items[0])?, one(&items[1])?)),
        _ => Err(Fault::new(format!("{} is not a pair", shown(value)), right).at(&value.mark)),
    };
    let within = |(least, most): (f64, f64)| match number(&more.content, least, most) {
        Some(Ok(Value::Number(number))) => Ok(number),
        Some(Err(fault)) => Err(fault.at(&more.mark)),
        _ => Err(Fault::new(format!("{} is not a number", shown(more)), right).at(&more.mark)),
    };
    Ok(match name {
        "exponential" => Draw::Exponential(one(value)?),
        "uniform" => match pair()? {
            (low, high) if low <= high => Draw::Uniform(low, high),
            (low, high) => {
                let found = format!("{low} is more than {high}");
                return Err(Fault::new(found, "write the lesser one first").at(&value.mark));
            }
        },
        "either" | "hyper-exponential" => {
            let ((first, second), share) = (pair()?, within((0.0, 1.0))?);
            match name {
                "either" => Draw::Either(share, first, second),
                _ => Draw::HyperExponential(share, first, second),
            }
        }
        "geometric" => match (one(value)?, one(more)?) {
            (mean, slot) if slot <= mean && slot.units() > 0 => Draw::Geometric { mean, slot },
            (mean, slot) => {
                let found = format!("a slot of {slot} does not fit a mean of {mean}");
                return Err(Fault::new(found, "write a slot up to the mean").at(&more.mark));
            }
        },
        "pareto" => Draw::Pareto { mean: one(value)?, shape: within(SHAPES)? },
        "log-normal" => Draw::LogNormal { mean: one(value)?, sigma: within(SIGMAS)? },
        _ => Draw::Mix(weighted(value, right, one)?),
    })
}
