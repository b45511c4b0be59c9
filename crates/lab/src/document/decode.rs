//! Decoding: from a tree to typed values, as described by parameters.

use super::draw::draw;
use super::problem::{Fault, Reporter, nearest};
use super::shorten;
use super::timed;
use super::tree::{Content, Entry, Item, Mark, value_or_text};
use crate::kinds::Registry;
use crate::library::Library;
use lastmeter_base::kind::{
    Fallback, Family, Kind, Misfit, Nested, Param, ParamKind, RATE_MIN, TIME_MAX, Value, Values,
};
use lastmeter_base::{Bytes, Duration, PerByte, Quantity, QuantityError, Rate};

/// Decodes against parameters and reports every error.
pub struct Decoder<'a> {
    /// Receives the errors.
    pub reporter: Reporter,
    /// Where the profiles named by the document come from.
    pub library: &'a dyn Library,
}

/// The keys that a table may have.
pub struct Shape<'a> {
    /// What the table describes: "a link".
    pub what: &'a str,
    /// The keys with values.
    pub params: &'static [Param],
    /// If set, one more key names a kind of this family.
    pub kind: Option<Family>,
    /// Keys that are decoded elsewhere.
    pub besides: &'a [&'a str],
}

type Decoded = Result<Value, Fault>;

impl Decoder<'_> {
    /// Reports a fault.
    pub fn report(&mut self, mark: &Mark, key: &str, fault: Fault) {
        self.reporter.report(mark, key, fault);
    }

    /// Decodes a table. Errors are reported and their values left out.
    pub fn table(&mut self, shape: &Shape<'_>, item: &Item, key: &str) -> (Option<Nested>, Values) {
        let mut values = Values::default();
        let Some(entries) = item.entries() else {
            let found = format!("found {} where {} is expected", shown(item), shape.what);
            self.report(&item.mark, key, Fault::new(found, table_example(shape)));
            return (None, values);
        };
        let mut kinds: Vec<&Entry> = Vec::new();
        for entry in entries {
            let name = entry.key.as_str();
            if let Some(param) = shape.params.iter().find(|param| param.name == name) {
                if let Some(value) = self.value(param.kind, &entry.item, &join(key, name)) {
                    values.insert(param.name, value);
                }
            } else if shape
                .kind
                .is_some_and(|family| self.library.kinds().in_family(family, name).is_some())
            {
                kinds.push(entry);
            } else if !shape.besides.contains(&name) {
                // What is not kept need not be described.
                if !self.reporter.is_full() {
                    let fault = unknown_key(self.library.kinds(), shape, name);
                    self.report(&entry.mark, &join(key, name), fault);
                }
                // A misspelt kind is not also reported as missing.
                if shape.kind.is_some() && entry.item.entries().is_some() {
                    kinds.push(entry);
                }
            }
        }
        self.fill(shape, item, key, &mut values);
        let kind = shape.kind.and_then(|family| self.one_kind(family, shape, item, &kinds, key));
        (kind, values)
    }

    /// Fills in defaults for missing or invalid values, and reports missing required ones.
    fn fill(&mut self, shape: &Shape<'_>, item: &Item, key: &str, values: &mut Values) {
        let missing: Vec<&Param> =
            shape.params.iter().filter(|param| !values.has(param.name)).collect();
        for param in missing {
            match param.default {
                Fallback::Absent(_) => {}
                // Invalid values have been reported.
                Fallback::Required if item.get(param.name).is_some() => {}
                Fallback::Required => {
                    let found = format!("{} lacks `{}`", shape.what, param.name);
                    let right = format!("add {}: {}", example(param), param.what);
                    self.report(&item.mark, key, Fault::new(found, right));
                }
                Fallback::Written(text) => {
                    let source = item.mark.source;
                    let written = value_or_text(source, 0, text).ok();
                    let value = written.and_then(|item| self.value(param.kind, &item, key));
                    values.insert(param.name, value.expect("a page's default fits its parameter"));
                }
            }
        }
    }

    fn one_kind(
        &mut self,
        family: Family,
        shape: &Shape<'_>,
        item: &Item,
        found: &[&Entry],
        key: &str,
    ) -> Option<Nested> {
        match found {
            [entry] => {
                let named = self.library.kinds().in_family(family, &entry.key)?;
                let page = named.page;
                let what = format!("`{}`", page.name);
                let inner = Shape { what: &what, params: page.params, kind: None, besides: &[] };
                let key = join(key, &entry.key);
                let faults = self.reporter.len();
                let (_, values) = self.table(&inner, &entry.item, &key);
                let kind = Nested::new(named, values);
                // Missing or invalid values cannot be compared.
                let given = |param: &Param| {
                    matches!(param.default, Fallback::Absent(_)) || kind.values.has(param.name)
                };
                if self.reporter.len() == faults && page.params.iter().all(given) {
                    self.fit(named, &kind.values, &entry.item, &key);
                }
                Some(kind)
            }
            [] => {
                let found = format!("{} does not say which kind it is", shape.what);
                let right =
                    format!("add one of {}, like {}", self.names(family), kind_example(family));
                self.report(&item.mark, key, Fault::new(found, right));
                None
            }
            [first, second, ..] => {
                let (first, second) = (&first.key, shorten(&second.key));
                let found = format!("{} is both `{first}` and `{second}`", shape.what);
                let right = format!("leave one out: it is one of {}", self.names(family));
                self.report(&found_mark(second.as_str(), item), key, Fault::new(found, right));
                None
            }
        }
    }

    /// Reports values of a kind that do not fit each other.
    fn fit(&mut self, kind: &Kind, values: &Values, item: &Item, key: &str) {
        let Err(Misfit { param, index, found, right }) = (kind.fit)(values) else { return };
        let place = item.get(param).unwrap_or(item);
        let part = match (&place.content, index) {
            (Content::List(items), Some(index)) => items.get(index),
            _ => None,
        };
        let mark = part.unwrap_or(place).mark.clone();
        self.report(&mark, &join(key, param), Fault::new(found, right));
    }

    /// Decodes one value; an error is reported.
    pub fn value(&mut self, kind: ParamKind, item: &Item, key: &str) -> Option<Value> {
        if let ParamKind::Nested(family) = kind {
            let what = format!("a {}", family.name());
            let shape = Shape { what: &what, params: &[], kind: Some(family), besides: &[] };
            return self.table(&shape, item, key).0.map(|nested| Value::Nested(Box::new(nested)));
        }
        match self.plain(kind, item) {
            Ok(value) => Some(value),
            Err(fault) => {
                self.report(&item.mark, key, fault);
                None
            }
        }
    }

    fn plain(&self, kind: ParamKind, item: &Item) -> Decoded {
        match (kind, &item.content) {
            (ParamKind::Time, _) => time(item).map(Value::Time),
            (ParamKind::Size { min, max }, _) => size(item, min, max).map(Value::Size),
            (ParamKind::Rate, _) => rate(item).map(Value::Rate),
            (ParamKind::PerByte, _) => per_byte(item).map(Value::PerByte),
            (ParamKind::Integer { min, max }, Content::Integer(number, digits)) => {
                integer(*number, digits, min, max).map(Value::Integer)
            }
            (ParamKind::Number { min, max }, content) => {
                number(content, min, max).unwrap_or_else(|| Err(wrong_type(kind, item)))
            }
            (ParamKind::Text, Content::Text(text)) => Ok(Value::Text(text.clone())),
            (ParamKind::Choice(words), Content::Text(text)) => choice(words, text),
            (ParamKind::Flag, Content::Flag(flag)) => Ok(Value::Flag(*flag)),
            (ParamKind::Draw, _) => draw(item, DRAWS, time).map(Value::Draw),
            (ParamKind::DrawBytes, _) => {
                let one = |item: &Item| size(item, 1, AMOUNT_MAX);
                draw(item, DRAWS_OF_BYTES, one).map(Value::DrawBytes)
            }
            (ParamKind::Sizes, _) => sizes(item).map(Value::Sizes),
            (ParamKind::Profile(folder), Content::Text(name)) => self.profile(folder, name),
            (ParamKind::Node, Content::Text(text)) => Ok(Value::Text(text.clone())),
            (ParamKind::Nodes(min), Content::List(items)) => node_names(items, min),
            // A link with several chains has been split already.
            (ParamKind::Chains, Content::List(items)) => node_names(items, 2),
            (ParamKind::Integers { min, max }, Content::List(items)) => integers(items, min, max),
            (ParamKind::Rates, Content::List(items)) => timed::rates(items).map(Value::Rates),
            (ParamKind::Windows, Content::List(items)) => timed::windows(items).map(Value::Windows),
            _ => Err(wrong_type(kind, item)),
        }
    }

    /// The names of all kinds of a family.
    fn names(&self, family: Family) -> String {
        let kinds = self.library.kinds().family(family);
        kinds.map(|kind| kind.page.name).collect::<Vec<_>>().join(", ")
    }

    fn profile(&self, folder: &str, name: &str) -> Decoded {
        let known = self.library.names(folder);
        if known.iter().any(|known| known == name) {
            return Ok(Value::Text(name.to_owned()));
        }
        let right = match known.is_empty() {
            true => format!("there are no profiles in {folder}"),
            false => format!("the profiles in {folder} are {}", known.join(", ")),
        };
        let found = format!("there is no profile `{}` in {folder}", shorten(name));
        Err(Fault::unknown(found, right, name, known.iter().map(String::as_str)))
    }
}

/// The key of a member of `key`.
pub fn join(key: &str, part: &str) -> String {
    if key.is_empty() { part.to_owned() } else { format!("{key}.{part}") }
}

/// The value as shown in a message.
pub(crate) fn shown(item: &Item) -> String {
    match &item.content {
        Content::Text(text) => format!("`\"{}\"`", shorten(text)),
        Content::Integer(_, digits) | Content::Number(_, digits) => {
            format!("`{}`", shorten(digits))
        }
        Content::Flag(flag) => format!("`{flag}`"),
        Content::Datetime(text) => format!("the date `{text}`"),
        content => content.name().to_owned(),
    }
}

fn found_mark(key: &str, item: &Item) -> Mark {
    let entry = item.entries().into_iter().flatten().find(|entry| entry.key == key);
    entry.map_or_else(|| item.mark.clone(), |entry| entry.mark.clone())
}

fn unknown_key(registry: &Registry, shape: &Shape<'_>, name: &str) -> Fault {
    let params = shape.params.iter().map(|param| param.name);
    let kinds = shape.kind.into_iter().flat_map(|family| registry.family(family));
    let kinds = kinds.map(|kind| kind.page.name);
    let known: Vec<&str> = params.chain(shape.besides.iter().copied()).chain(kinds).collect();
    let listed = known.join(", ");
    let (found, right) = match shape.kind {
        Some(family) if shape.params.is_empty() => (
            format!("there is no {} `{}`", family.name(), shorten(name)),
            format!("it is one of {listed}"),
        ),
        _ => (
            format!("{} has no `{}`", shape.what, shorten(name)),
            match known.is_empty() {
                true => format!("{} has no parameters", shape.what),
                false => format!("it can have {listed}"),
            },
        ),
    };
    let suggestion = nearest(name, known).map(str::to_owned);
    Fault { suggestion, ..Fault::new(found, right) }
}

/// An example of a kind of the family.
fn kind_example(family: Family) -> &'static str {
    match family {
        Family::Node => "host = {}",
        Family::Queue => "drop-tail = { packets = 100 }",
        Family::Traffic => "constant = { rate = \"1 Mbit/s\", size = \"1500 B\" }",
        Family::Experiment => "duration = \"1 s\"",
        Family::Resource => "cpu = {}",
        Family::Reception => "backoff = {}",
        Family::Profile => "name = \"copy\"",
    }
}

fn table_example(shape: &Shape<'_>) -> String {
    let inner = match (shape.kind, shape.params.first()) {
        (Some(family), _) => kind_example(family).to_owned(),
        (None, Some(param)) => example(param),
        (None, None) => String::new(),
    };
    format!("write a table, like {{ {inner} }}")
}

/// An example of a parameter.
pub(crate) fn example(param: &Param) -> String {
    format!("{} = {}", param.name, value_example(param.kind))
}

/// An example of a value.
pub(crate) fn value_example(kind: ParamKind) -> String {
    match kind {
        ParamKind::Time => "\"10 ms\"".to_owned(),
        ParamKind::Draw => "\"10 us\"".to_owned(),
        ParamKind::DrawBytes => "\"1 MB\"".to_owned(),
        ParamKind::Size { .. } | ParamKind::Sizes => "\"1500 B\"".to_owned(),
        ParamKind::Rate => "\"10 Mbit/s\"".to_owned(),
        ParamKind::PerByte => "\"0.5 ns/B\"".to_owned(),
        ParamKind::Integer { min, max } => 10.clamp(min, max).to_string(),
        ParamKind::Number { min, max } => 0.5f64.clamp(min, max).to_string(),
        ParamKind::Text | ParamKind::Profile(_) => "\"...\"".to_owned(),
        ParamKind::Choice(words) => format!("\"{}\"", words.first().unwrap_or(&"")),
        ParamKind::Flag => "true".to_owned(),
        ParamKind::Nested(family) => format!("{{ {} }}", kind_example(family)),
        ParamKind::Node => "\"alice\"".to_owned(),
        ParamKind::Nodes(_) | ParamKind::Chains => "[\"alice\", \"bob\"]".to_owned(),
        ParamKind::Integers { min, max } => format!("[{}]", 10.clamp(min, max)),
        ParamKind::Rates => timed::RATES.to_owned(),
        ParamKind::Windows => timed::WINDOWS.to_owned(),
    }
}

fn wrong_type(kind: ParamKind, item: &Item) -> Fault {
    let (what, example) = (expected(kind), value_example(kind));
    let right = match kind {
        ParamKind::Integer { min, max } => range(min, max),
        // Any name would be an arbitrary example.
        ParamKind::Text | ParamKind::Profile(_) => "write it in quotes".to_owned(),
        _ => format!("write it like {example}"),
    };
    let article = if matches!(kind, ParamKind::Flag | ParamKind::Text) { "" } else { "a " };
    Fault::new(format!("{} is not {article}{what}", shown(item)), right)
}

/// The type of a value, in words.
pub fn expected(kind: ParamKind) -> &'static str {
    match kind {
        ParamKind::Time => "time",
        ParamKind::Size { .. } => "size",
        ParamKind::Rate => "rate",
        ParamKind::PerByte => "time per byte",
        ParamKind::Integer { .. } => "whole number",
        ParamKind::Number { .. } => "number",
        ParamKind::Text => "text",
        ParamKind::Choice(_) => "word",
        ParamKind::Flag => "true or false",
        ParamKind::Draw => "time or distribution of times",
        ParamKind::DrawBytes => "size or distribution of sizes",
        ParamKind::Sizes => "packet size or list of sizes with weights",
        ParamKind::Nested(family) => family.name(),
        ParamKind::Profile(_) => "name of a profile",
        ParamKind::Node => "name of a node",
        ParamKind::Nodes(_) | ParamKind::Chains => "list of names of nodes",
        ParamKind::Integers { .. } => "list of whole numbers",
        ParamKind::Rates => "list of times and rates",
        ParamKind::Windows => "list of pairs of times",
    }
}

/// Parses a quantity.
pub fn quantity<Q: Quantity>(item: &Item) -> Result<Q, Fault> {
    let text = match &item.content {
        Content::Text(text) => text,
        // The usual mistake; the error for text without a unit says what to write.
        Content::Integer(_, digits) | Content::Number(_, digits) => digits,
        _ => {
            let right = format!("write a number with its unit, like \"10 {}\"", Q::PROPOSED[0]);
            let found = format!("{} is not a {}", shown(item), Q::NAME);
            return Err(Fault::new(found, right).at(&item.mark));
        }
    };
    Q::parse(&shorten(text))
        .map_err(|QuantityError { found, right }| Fault::new(found, right).at(&item.mark))
}

pub(crate) fn time(item: &Item) -> Result<Duration, Fault> {
    let time = quantity::<Duration>(item)?;
    match time > TIME_MAX {
        true => Err(Fault::new(format!("{time} is too long"), format!("write at most {TIME_MAX}"))),
        false => Ok(time),
    }
}

fn rate(item: &Item) -> Result<Rate, Fault> {
    let rate = quantity::<Rate>(item)?;
    match rate < RATE_MIN {
        true => {
            Err(Fault::new(format!("{rate} is too slow"), format!("write at least {RATE_MIN}")))
        }
        false => Ok(rate),
    }
}

fn per_byte(item: &Item) -> Result<PerByte, Fault> {
    let slowest = PerByte::from_rate(RATE_MIN);
    let cost = quantity::<PerByte>(item)?;
    match cost > slowest {
        true => Err(Fault::new(format!("{cost} is too slow"), format!("write at most {slowest}"))),
        false => Ok(cost),
    }
}

fn size(item: &Item, min: u64, max: u64) -> Result<Bytes, Fault> {
    let size = quantity::<Bytes>(item)?;
    match (min..=max).contains(&size.0) {
        true => Ok(size),
        false => {
            let right = format!("write {} to {}", Bytes(min), Bytes(max));
            Err(Fault::new(format!("{size} is out of range"), right))
        }
    }
}

fn integer(number: Option<i64>, digits: &str, min: u64, max: u64) -> Result<u64, Fault> {
    let number = number.and_then(|number| u64::try_from(number).ok());
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| Fault::new(format!("{} is out of range", shorten(digits)), range(min, max)))
}

fn range(min: u64, max: u64) -> String {
    match max == i64::MAX as u64 {
        true => format!("write a whole number from {min} on"),
        false => format!("write a whole number from {min} to {max}"),
    }
}

pub(super) fn number(content: &Content, min: f64, max: f64) -> Option<Decoded> {
    let (number, digits) = match content {
        Content::Number(number, digits) => (*number, digits),
        Content::Integer(number, digits) => (number.map_or(f64::NAN, |n| n as f64), digits),
        _ => return None,
    };
    let right = || format!("write a number from {min} to {max}");
    Some(match number >= min && number <= max {
        true => Ok(Value::Number(number)),
        false => Err(Fault::new(format!("{} is out of range", shorten(digits)), right())),
    })
}

fn choice(words: &'static [&'static str], text: &str) -> Decoded {
    match words.contains(&text) {
        true => Ok(Value::Text(text.to_owned())),
        false => {
            let found = format!("`{}` is not one of the allowed words", shorten(text));
            let right = format!("write one of {}", words.join(", "));
            Err(Fault::unknown(found, right, text, words.iter().copied()))
        }
    }
}

const DRAWS: &str = "write \"5 us\", { exponential = \"5 us\" }, \
                     { uniform = [\"1 us\", \"9 us\"] }, \
                     { either = [\"1 us\", \"31 us\"], first = 0.9 }, or a hyper-exponential, \
                     geometric, pareto, log-normal or mix (`lastmeter kinds renewal`)";
const DRAWS_OF_BYTES: &str = "write \"1 MB\", { exponential = \"1 MB\" }, \
     { pareto = \"1 MB\", shape = 1.2 }, \
     { log-normal = \"1 MB\", sigma = 1.0 } or { mix = [[\"10 kB\", 9], [\"1 MB\", 1]] }";

const SIZES: &str = "write \"1500 B\", or sizes with weights: [[\"64 B\", 7], [\"1500 B\", 1]]";

fn sizes(item: &Item) -> Result<Vec<(Bytes, u64)>, Fault> {
    let packet = |item: &Item| match ParamKind::PACKET {
        ParamKind::Size { min, max } => size(item, min, max),
        _ => unreachable!("a packet's length is a size"),
    };
    match item.content {
        Content::List(_) => weighted(item, SIZES, packet),
        _ => packet(item).map(|size| vec![(size, 1)]),
    }
}

/// The most bytes that a distribution may be given.
const AMOUNT_MAX: u64 = 1 << 40;

/// A list of values with their weights.
pub(super) fn weighted<T>(
    item: &Item,
    right: &str,
    one: impl Fn(&Item) -> Result<T, Fault>,
) -> Result<Vec<(T, u64)>, Fault> {
    /// So that weighted sums stay far within 64 bits.
    const WEIGHT_MAX: u64 = 1_000_000;
    const VALUES_MAX: usize = 1_000;
    let Content::List(items) = &item.content else {
        return Err(Fault::new(format!("{} is not a list", shown(item)), right).at(&item.mark));
    };
    if items.is_empty() || items.len() > VALUES_MAX {
        return Err(Fault::new(format!("the list has {} values", items.len()), right));
    }
    let entry = |item: &Item| match &item.content {
        Content::List(pair) => match pair.as_slice() {
            [value, Item { content: Content::Integer(number, digits), mark }] => {
                let weight = integer(*number, digits, 1, WEIGHT_MAX);
                Ok((one(value)?, weight.map_err(|fault| fault.at(mark))?))
            }
            _ => Err(Fault::new("this is not a value with a weight", right)),
        },
        _ => Err(Fault::new(format!("{} is not a value with a weight", shown(item)), right)),
    };
    items.iter().map(|item| entry(item).map_err(|fault| fault.at(&item.mark))).collect()
}

fn integers(items: &[Item], min: u64, max: u64) -> Decoded {
    let number = |item: &Item| match &item.content {
        Content::Integer(number, digits) => {
            integer(*number, digits, min, max).map_err(|fault| fault.at(&item.mark))
        }
        _ => Err(wrong_type(ParamKind::Integer { min, max }, item).at(&item.mark)),
    };
    items.iter().map(number).collect::<Result<_, _>>().map(Value::Integers)
}

fn node_names(items: &[Item], min: usize) -> Decoded {
    let name = |item: &Item| match &item.content {
        Content::Text(name) => Ok(name.clone()),
        _ => Err(wrong_type(ParamKind::Node, item).at(&item.mark)),
    };
    let names: Vec<String> = items.iter().map(name).collect::<Result<_, _>>()?;
    match names.len() < min {
        true => {
            let found = format!("the list has {} names", names.len());
            Err(Fault::new(found, format!("name at least {min} nodes")))
        }
        false => Ok(Value::Texts(names)),
    }
}
