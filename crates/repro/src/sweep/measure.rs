//! Quantities of a run that formulas can use.

use super::formula::{Function, Val};
use super::run::Found;
use crate::compute::aurora::busiest;
use lastmeter_engine::{Outcome, TraceKind};

/// Evaluates its argument before the end of the run.
pub(super) const EARLY: &str = "early";

/// All quantities. In names of elements, classes and reasons `*` matches anything.
pub(super) const FUNCTIONS: &[Function] = &[
    ("count", 2, "the sum of this counter over elements of this name"),
    ("counts", 2, "this counter of each element of this name"),
    ("times", 2, "times of an element's 'make' or 'deliver' in ps, with `record = \"trace\"`"),
    ("made", 0, "packets made"),
    ("missed", 1, "per cent of the messages of these classes that were late or lost"),
    ("arriving", 0, "bits per second of the first path, from first packet to last delivery"),
    ("busiest", 0, "the busiest resource"),
    ("used", 0, "the utilisation of each resource"),
    ("works_for", 1, "the stage that uses this resource most"),
    ("dropped", 1, "packets dropped for this reason"),
    ("delivered", 1, "packets of this class delivered"),
    ("finished", 0, "when the path with most bytes delivered its last packet, in seconds"),
    ("ledger", 1, "a place in the ledger: 'resources/a.cpu/busy'"),
    (EARLY, 1, "the same at the time that the run gives as `early`"),
];

/// Whether a name matches a pattern.
fn is(meant: &str, name: &str) -> bool {
    let Some((begin, rest)) = meant.split_once('*') else { return meant == name };
    let Some(name) = name.strip_prefix(begin) else { return false };
    name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| is(rest, &name[at..]))
}

impl Found {
    /// A quantity by name, at the end of the run or early.
    ///
    /// # Errors
    /// The run has no such quantity.
    pub(super) fn measure(&self, name: &str, given: &[Val], early: bool) -> Result<Val, String> {
        let before = || self.early.as_ref().ok_or("the run has no `early`");
        let outcome = if early { before()? } else { &self.outcome };
        let text = |at: usize| given.get(at).map_or(Ok(""), Val::text);
        let first = match given.first() {
            Some(Val::List(_)) => "",
            _ => text(0)?,
        };
        Ok(match name {
            "counts" => counts(outcome, first, text(1)?)?.into(),
            "count" => counts(outcome, first, text(1)?)?.into_iter().sum::<u64>().into(),
            "times" => {
                let kind = if text(1)? == "make" { TraceKind::Make } else { TraceKind::Deliver };
                let times = self.times(first, kind).map_err(|error| error.to_string())?;
                let since = times.iter().map(|time| time.since_start().as_ps());
                since.collect::<Vec<u64>>().into()
            }
            "made" => outcome.books.made.into(),
            "missed" => missed(outcome, given.first().map_or(&[], Val::values))?.into(),
            "arriving" => {
                let book = outcome.books.paths.first().ok_or("there is no path")?;
                let from = book.first_offered.ok_or("nothing was sent")?;
                let seconds = (book.last_delivered - from).as_secs_f64();
                (book.delivered.bytes as f64 * 8.0 / seconds).into()
            }
            "busiest" => {
                let ledger = self.ledger().map_err(|error| error.to_string())?;
                Val::Text(busiest(ledger).to_owned())
            }
            "used" => {
                let ledger = self.ledger().map_err(|error| error.to_string())?;
                let used = ledger.resources.iter().map(lastmeter_ledger::Resource::utilisation);
                used.collect::<Vec<f64>>().into()
            }
            "works_for" => {
                let ledger = self.ledger().map_err(|error| error.to_string())?;
                let found = ledger.resources.iter().find(|one| one.name == first);
                let stages = found.map(|one| one.by_stage.iter());
                let most = stages.and_then(|stages| stages.max_by(|a, b| a.1.total_cmp(b.1)));
                Val::Text(most.map_or(String::new(), |(stage, _)| stage.clone()))
            }
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
            _ => Err(format!("`{place}` of the ledger is not a single value")),
        }
    }
}

/// Percentage of the messages of some classes that were late or lost. Messages in flight at the end are not due yet.
fn missed(outcome: &Outcome, classes: &[Val]) -> Result<f64, String> {
    let (mut made, mut met, mut late, mut lost) = (0, 0, 0, 0);
    for class in classes {
        let class = class.text()?;
        let at = outcome.paths.iter().position(|path| path.class == class);
        let book =
            &outcome.books.paths[at.ok_or_else(|| format!("there is no class `{class}`"))?];
        made += book.deadlines.made;
        met += book.deadlines.met;
        late += book.deadlines.late;
        lost += book.dropped_total().packets;
    }
    Ok(100.0 * (late + lost.min(made - met - late)) as f64 / made.max(1) as f64)
}

/// This counter of each element whose name matches.
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
