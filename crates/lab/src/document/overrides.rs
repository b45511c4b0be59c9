//! Overrides: `--set key=value`, applied to a document before it is decoded.

use super::problem::{Fault, Problem, Reporter, nearest, whole_file};
use super::shorten;
use super::tree::{Content, Document, Entry, Item, Mark, Source, value_or_text};

/// A value that replaces one of the file, or is added to it.
#[derive(Clone, Debug)]
pub struct Override {
    text: String,
    /// The parts of the key, each with its position in the text.
    keys: Vec<(String, usize)>,
    /// Where the value begins.
    value_at: usize,
}

/// The file name of overrides in messages.
const NAME: &str = "--set";
/// The name of an item that a list does not have yet.
const APPENDED: &str = "+";
/// More parts than the key of any experiment has.
const KEYS_MAX: usize = 16;

impl Override {
    /// Reads `key=value`, like `links.0.rate=10 Gbit/s` or `traffic.bulk.constant.rate=1 Mbit/s`.
    ///
    /// # Errors
    /// If it has no `=` or the key has empty parts.
    pub fn parse(text: &str) -> Result<Override, Vec<Problem>> {
        let fail = |found: String| {
            let right = "write key=value, like links.0.rate=\"10 Gbit/s\" or seed=2";
            Err(vec![whole_file(NAME, Fault::new(found, right))])
        };
        let Some((key, _)) = text.split_once('=') else {
            return fail(format!("`{}` has no `=`", shorten(text)));
        };
        let mut keys = Vec::new();
        let mut at = 0;
        for part in key.split('.') {
            let name = part.trim();
            if name.is_empty() || keys.len() == KEYS_MAX {
                return fail(format!("`{}` is not a key", shorten(key)));
            }
            keys.push((name.to_owned(), at + (part.len() - part.trim_start().len())));
            at += part.len() + 1;
        }
        Ok(Override { text: text.to_owned(), keys, value_at: key.len() + 1 })
    }

    /// If the first part of its key is `first`: the second part, and an override with the parts after these.
    pub(crate) fn within(&self, first: &str) -> Option<(String, Override)> {
        let [(begin, _), (second, _), rest @ ..] = self.keys.as_slice() else { return None };
        let keys = rest.to_vec();
        (begin == first && !keys.is_empty()).then(|| {
            (second.clone(), Override { text: self.text.clone(), keys, value_at: self.value_at })
        })
    }

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Applies it, or reports why that cannot be done.
    pub(crate) fn apply(&self, document: &mut Document) {
        let source = document.reporter.sources.len();
        let (name, text) = (NAME.to_owned(), self.text.clone());
        document.reporter.sources.push(Source { name, text });
        let value = match value_or_text(source, self.value_at, &self.text[self.value_at..]) {
            Ok(value) => value,
            Err(fault) => {
                let mark = Mark { source, span: self.value_at..self.text.len() };
                return document.reporter.report(&mark, &self.key(self.keys.len()), fault);
            }
        };
        let Document { root, reporter } = document;
        self.set(source, root, value, reporter);
    }

    fn key(&self, parts: usize) -> String {
        let names: Vec<&str> = self.keys[..parts].iter().map(|(name, _)| name.as_str()).collect();
        names.join(".")
    }

    fn set(&self, source: usize, root: &mut Item, value: Item, reporter: &mut Reporter) {
        let mut place = root;
        for (depth, (name, at)) in self.keys.iter().enumerate() {
            let mark = Mark { source, span: *at..*at + name.len() };
            place = match step(place, name, &mark) {
                Ok(place) => place,
                Err(fault) => return reporter.report(&mark, &self.key(depth + 1), fault),
            };
        }
        *place = value;
    }
}

/// The place that `name` means in `item`; a table gains a key that it does not have, so that
/// decoding can say whether it may, and a list gains an item under the name `+`.
fn step<'a>(item: &'a mut Item, name: &str, mark: &Mark) -> Result<&'a mut Item, Fault> {
    let shown = item.content.name();
    match &mut item.content {
        Content::Table(entries) => {
            let known = entries.iter().position(|entry| entry.key == name);
            let index = known.unwrap_or_else(|| {
                let content = Content::Table(Vec::new());
                let item = Item { mark: mark.clone(), content };
                entries.push(Entry { key: name.to_owned(), mark: mark.clone(), item });
                entries.len() - 1
            });
            Ok(&mut entries[index].item)
        }
        Content::List(items) => {
            let index = if name == APPENDED { items.len() } else { index_of(items, name)? };
            if index == items.len() {
                items.push(Item { mark: mark.clone(), content: Content::Table(Vec::new()) });
            }
            Ok(&mut items[index])
        }
        _ => Err(Fault::new(
            format!("`{}` is a part of {shown}, which has none", shorten(name)),
            "name a key that the file has",
        )),
    }
}

/// The index of an item in a list, given its number or its name.
fn index_of(items: &[Item], name: &str) -> Result<usize, Fault> {
    let named = items.iter().position(|item| item.text("name") == Some(name));
    let numbered = || name.parse().ok().filter(|&index: &usize| index < items.len());
    named.or_else(numbered).ok_or_else(|| {
        let names: Vec<&str> = items.iter().filter_map(|item| item.text("name")).collect();
        let right = match (items.len(), names.is_empty()) {
            (0, _) => "the list is empty".to_owned(),
            (len, true) => format!("write a number from 0 to {}", len - 1),
            (_, false) => format!("write one of {}", names.join(", ")),
        };
        let suggestion = nearest(name, names).map(str::to_owned);
        let found = format!("`{}` is not in this list", shorten(name));
        Fault { suggestion, ..Fault::new(found, right) }
    })
}
