//! The tree of a document: every key and value with its mark.

use super::problem::{Fault, Problem, Reporter, text_of};
use super::shorten;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A position in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The text.
    pub source: usize,
    /// The range of bytes in that text.
    pub span: Range<usize>,
}

/// A text that marks point into.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(super) name: String,
    pub(super) text: String,
}

/// A value.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its position.
    pub mark: Mark,
    /// Its content.
    pub content: Content,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub enum Content {
    /// A text.
    Text(String),
    /// A whole number: its value, if it fits, and its text.
    Integer(Option<i64>, String),
    /// Any other number: its value and its text.
    Number(f64, String),
    /// `true` or `false`.
    Flag(bool),
    /// A date or a time of day, which no parameter takes.
    Datetime(String),
    /// A list.
    List(Vec<Item>),
    /// A table.
    Table(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key is.
    pub mark: Mark,
    /// The value.
    pub item: Item,
}

impl Content {
    /// Its type, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Content::Text(_) => "a text",
            Content::Integer(..) | Content::Number(..) => "a number",
            Content::Flag(_) => "true or false",
            Content::Datetime(_) => "a date or time of day",
            Content::List(_) => "a list",
            Content::Table(_) => "a table",
        }
    }
}

impl Item {
    /// The entries, if this is a table.
    pub fn entries(&self) -> Option<&[Entry]> {
        match &self.content {
            Content::Table(entries) => Some(entries),
            _ => None,
        }
    }
    /// Whether this is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.content, Content::List(_))
    }
    /// The items, if this is a list.
    pub fn items(&self) -> &[Item] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }
    /// The value of `key`, if this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.item)
    }
    /// The text of `key`, if this is a table that has one.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A parsed text.
#[derive(Debug)]
pub struct Document {
    /// The whole text as a table.
    pub root: Item,
    /// Receives its errors.
    pub reporter: Reporter,
}

impl Document {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Everything that is not valid TOML.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Document, Vec<Problem>> {
        let text = text_of(name, bytes)?;
        let mut reporter = Reporter::default();
        reporter.sources.push(Source { name: name.to_owned(), text: text.to_owned() });
        let (table, mut errors) = DeTable::parse_recoverable(text);
        errors.sort_by_key(|error| error.span().map_or(0, |span| span.start));
        // After a syntax error the parser guesses, and its next errors are about its guesses; a duplicate key misleads
        // no one.
        let twice = |error: &&toml::de::Error| error.message() == DUPLICATE;
        let duplicates = errors.iter().take_while(twice).count();
        for error in errors.iter().take(duplicates.max(1)) {
            let span = error.span().unwrap_or(0..0);
            let meant = text.get(span.clone()).unwrap_or("");
            reporter.report(&Mark { source: 0, span }, "", syntax_fault(error.message(), meant));
        }
        if !reporter.is_empty() {
            return Err(reporter.into_problems());
        }
        let mark = Mark { source: 0, span: table.span() };
        Ok(Document { root: Item { mark, content: table_content(0, table.get_ref()) }, reporter })
    }
}

const DUPLICATE: &str = "duplicate key";

/// The parser's message about `meant`, reworded for a newcomer.
fn syntax_fault(message: &str, meant: &str) -> Fault {
    let meant = shorten(meant.trim());
    match message {
        DUPLICATE => Fault::new(
            format!("`{meant}` is written twice"),
            "a name may appear only once in its table: rename one or leave it out",
        ),
        message if message.starts_with("string values must be quoted") => {
            let right = format!("write it in quotes: \"{meant}\"");
            Fault::new(format!("`{meant}` has no quotes"), right)
        }
        message if message.starts_with("invalid basic string") => {
            Fault::new("this text does not end on its line", "close it with a quote: \"...\"")
        }
        message => Fault::new(
            format!("this is not TOML: {message}"),
            "a line is `key = \"value\"`, a `[table]` or a `# comment`; see https://toml.io",
        ),
    }
}

/// Reads a value as written after `key =`; anything that is not a TOML value is text, so that quantities need no
/// quotes on a command line.
pub(crate) fn value_or_text(source: usize, offset: usize, text: &str) -> Result<Item, Fault> {
    let trimmed = text.trim();
    let start = offset + (text.len() - text.trim_start().len());
    let whole = Mark { source, span: start..start + trimmed.len() };
    match DeValue::parse(trimmed) {
        Ok(value) => {
            let mut item = item(source, &value);
            shift(&mut item, start);
            Ok(item)
        }
        Err(error) if trimmed.starts_with(['{', '[', '"', '\'']) => {
            Err(syntax_fault(error.message(), trimmed))
        }
        Err(_) => Ok(Item { mark: whole, content: Content::Text(trimmed.to_owned()) }),
    }
}

fn shift(item: &mut Item, by: usize) {
    let moved = |mark: &mut Mark| mark.span = mark.span.start + by..mark.span.end + by;
    moved(&mut item.mark);
    match &mut item.content {
        Content::List(items) => items.iter_mut().for_each(|item| shift(item, by)),
        Content::Table(entries) => entries.iter_mut().for_each(|entry| {
            moved(&mut entry.mark);
            shift(&mut entry.item, by);
        }),
        _ => {}
    }
}

fn item(source: usize, value: &Spanned<DeValue<'_>>) -> Item {
    let content = match value.get_ref() {
        DeValue::String(text) => Content::Text(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            Content::Integer(i64::from_str_radix(digits, number.radix()).ok(), digits.to_owned())
        }
        DeValue::Float(number) => {
            let digits = number.as_str();
            Content::Number(digits.parse().unwrap_or(f64::NAN), digits.to_owned())
        }
        DeValue::Boolean(flag) => Content::Flag(*flag),
        DeValue::Datetime(datetime) => Content::Datetime(datetime.to_string()),
        DeValue::Array(values) => {
            Content::List(values.iter().map(|value| item(source, value)).collect())
        }
        DeValue::Table(table) => table_content(source, table),
    };
    Item { mark: Mark { source, span: value.span() }, content }
}

fn table_content(source: usize, table: &DeTable<'_>) -> Content {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            mark: Mark { source, span: key.span() },
            item: item(source, value),
        })
        .collect();
    // The order of the file is the order of the network: it breaks ties between routes.
    entries.sort_by_key(|entry| entry.mark.span.start);
    Content::Table(entries)
}

/// A default as JSON.
pub fn value_or_text_json(text: &str) -> serde_json::Value {
    fn json(item: &Item) -> serde_json::Value {
        match &item.content {
            Content::Text(text) | Content::Datetime(text) => text.as_str().into(),
            Content::Integer(number, _) => (*number).into(),
            Content::Number(number, _) => (*number).into(),
            Content::Flag(flag) => (*flag).into(),
            Content::List(items) => items.iter().map(json).collect(),
            Content::Table(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), json(&entry.item)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
    value_or_text(0, 0, text).map_or_else(|_| text.into(), |item| json(&item))
}
