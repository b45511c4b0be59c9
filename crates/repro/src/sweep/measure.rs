//! The quantities of a run that formulas can ask for.

use super::formula::{Function, Val};
use super::run::Found;
use lastmeter_engine::Outcome;

/// Asks the rest of its formula before the run's end.
pub(super) const EARLY: &str = "early";

/// All of them. In names of elements, classes and reasons `*` stands for anything.
pub(super) const FUNCTIONS: &[Function] = &[
    ("count", 2, "what elements of this name counted under that one, together"),
    ("counts", 2, "the same, of each element"),
    ("dropped", 1, "packets that were dropped for this reason"),
    ("delivered", 1, "packets of this class that were delivered"),
    ("finished", 0, "when the last packet of the path with most bytes came"),
    ("ledger", 1, "a place in the ledger: 'resources/a.cpu/busy'"),
    (EARLY, 1, "the same before the run's end, where the run says `early`"),
];

/// Whether a name is the one that is meant.
fn is(meant: &str, name: &str) -> bool {
    let Some((begin, rest)) = meant.split_once('*') else { return meant == name };
    let Some(name) = name.strip_prefix(begin) else { return false };
    name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| is(rest, &name[at..]))
}

impl Found {
    /// A quantity by its name, at the end or before it.
    ///
    /// # Errors
    /// The run has no such quantity.
    pub(super) fn measure(&self, name: &str, given: &[Val], early: bool) -> Result<Val, String> {
        let before = || self.early.as_ref().ok_or("the run does not say `early`");
        let outcome = if early { before()? } else { &self.outcome };
        let text = |at: usize| given.get(at).map_or(Ok(""), Val::text);
        let first = text(0)?;
        Ok(match name {
            "counts" => counts(outcome, first, text(1)?)?.into(),
            "count" => counts(outcome, first, text(1)?)?.into_iter().sum::<u64>().into(),
            "dropped" => {
                let paths = outcome.books.paths.iter().flat_map(|path| &path.dropped);
                let meant = paths.filter(|(key, _)| is(first, key.reason));
                meant.map(|(_, count)| count.packets).sum::<u64>().into()
            }
            "delivered" => {
                let paths = outcome.books.paths.iter().zip(&outcome.paths);
                let meant = paths.filter(|(_, path)| is(first, &path.class));
                meant.map(|(book, _)| book.delivered.packets).sum::<u64>().into()
            }
            "finished" => {
                let most = outcome.books.paths.iter().max_by_key(|path| path.delivered.bytes);
                most.map_or(0.0, |path| path.last_delivered.since_start().as_secs_f64()).into()
            }
            _ => self.in_ledger(first)?,
        })
    }

    fn in_ledger(&self, place: &str) -> Result<Val, String> {
        let ledger = self.ledger().map_err(|error| error.to_string())?;
        let whole = serde_json::to_value(ledger).map_err(|error| error.to_string())?;
        let mut at = &whole;
        for part in place.split('/') {
            let named = |item: &&serde_json::Value| {
                ["name", "class"].iter().any(|key| item.get(key).is_some_and(|name| name == part))
            };
            let next = match at {
                serde_json::Value::Array(items) => items
                    .iter()
                    .find(named)
                    .or_else(|| part.parse::<usize>().ok().and_then(|number| items.get(number))),
                table => table.get(part),
            };
            at = next.ok_or_else(|| format!("the ledger has no `{part}` of `{place}`"))?;
        }
        match at {
            serde_json::Value::Number(number) => Ok(number.as_f64().unwrap_or(f64::NAN).into()),
            serde_json::Value::String(text) => Ok(text.as_str().into()),
            serde_json::Value::Bool(truth) => Ok(Val::Truth(*truth)),
            serde_json::Value::Null => Ok(f64::NAN.into()),
            _ => Err(format!("`{place}` of the ledger is no value, but has some")),
        }
    }
}

/// What each element of this name counted.
fn counts(outcome: &Outcome, meant: &str, counter: &str) -> Result<Vec<u64>, String> {
    let elements = outcome.elements.iter().filter(|report| is(meant, &report.name));
    let counters = elements.flat_map(|report| &report.counters);
    let meant_ones = counters.filter(|(name, _)| *name == counter);
    let found: Vec<u64> = meant_ones.map(|&(_, count)| count).collect();
    match found.is_empty() {
        true => Err(format!("no `{meant}` counts `{counter}`")),
        false => Ok(found),
    }
}
