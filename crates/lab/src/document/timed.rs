//! Lists of timed values: rates over time, and time windows.

use super::decode::{shown, time};
use super::problem::Fault;
use super::shorten;
use super::tree::{Content, Item};
use lastmeter_base::{Duration, Rate};
use lastmeter_net::impair::rate_table::{RATES_MAX, rate_or_none};

/// An example of a list of rates.
pub(super) const RATES: &str = "[[\"0 s\", \"10 Mbit/s\"], [\"2 s\", \"1 Mbit/s\"]]";
/// An example of a list of windows.
pub(super) const WINDOWS: &str = "[[\"1 s\", \"2 s\"]]";
/// Most windows in a list.
const WINDOWS_MAX: usize = 100_000;

/// The members of a list, each a pair.
fn pairs<'a>(
    items: &'a [Item],
    max: usize,
    example: &str,
) -> Result<Vec<(&'a Item, &'a Item)>, Fault> {
    let right = || format!("write it like {example}");
    if items.is_empty() || items.len() > max {
        return Err(Fault::new(format!("the list has {} pairs", items.len()), right()));
    }
    let pair = |item: &'a Item| match &item.content {
        Content::List(pair) if pair.len() == 2 => Ok((&pair[0], &pair[1])),
        _ => Err(Fault::new(format!("{} is not a pair", shown(item)), right()).at(&item.mark)),
    };
    items.iter().map(pair).collect()
}

/// The start time of each rate. The caller checks that times increase.
pub(super) fn rates(items: &[Item]) -> Result<Vec<(Duration, Option<Rate>)>, Fault> {
    let rate = |item: &Item| {
        let Content::Text(text) = &item.content else {
            let right = "write a number with its unit, like \"10 Mbit/s\"";
            return Err(Fault::new(format!("{} is not a rate", shown(item)), right).at(&item.mark));
        };
        let right = "a rate is like \"10 Mbit/s\", or \"0 bit/s\" for an outage";
        rate_or_none(&shorten(text)).map_err(|found| Fault::new(found, right).at(&item.mark))
    };
    let pairs = pairs(items, RATES_MAX, RATES)?.into_iter();
    pairs
        .map(|(begins, holds)| {
            let begins = time(begins).map_err(|fault| fault.at(&begins.mark))?;
            Ok((begins, rate(holds)?))
        })
        .collect()
}

/// The start and end of each window.
pub(super) fn windows(items: &[Item]) -> Result<Vec<(Duration, Duration)>, Fault> {
    let pairs = pairs(items, WINDOWS_MAX, WINDOWS)?.into_iter();
    pairs
        .map(|(from, to)| {
            let at = &to.mark;
            let from = time(from).map_err(|fault| fault.at(&from.mark))?;
            let to = time(to).map_err(|fault| fault.at(at))?;
            let found = || format!("it ends at {to}, not after {from}");
            let right = "write the earlier time first";
            if from < to { Ok((from, to)) } else { Err(Fault::new(found(), right).at(at)) }
        })
        .collect()
}
