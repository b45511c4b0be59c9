//! Experiments as trees of TOML that can be rewritten and turned back into text.

use lastmeter_lab::document::{Content, Document, Entry, Item, Mark};

const NOWHERE: Mark = Mark { source: 0, span: 0..0 };

pub(crate) fn tree(text: &str) -> Item {
    Document::parse("experiment.toml", text.as_bytes()).unwrap().root
}

/// A value as written after `key =`.
pub(crate) fn value(text: &str) -> Item {
    tree(&format!("key = {text}")).get("key").unwrap().clone()
}

/// The entries of a table of the document, by its key; those of the document for an empty key.
pub(crate) fn table<'a>(root: &'a mut Item, key: &str) -> &'a mut Vec<Entry> {
    let Content::Table(entries) = &mut root.content else { panic!("no table") };
    if key.is_empty() {
        return entries;
    }
    let entry = entries.iter_mut().find(|entry| entry.key == key).unwrap();
    table(&mut entry.item, "")
}

/// The items of a list of the document.
pub(crate) fn list<'a>(root: &'a mut Item, key: &str) -> &'a mut Vec<Item> {
    let entries = table(root, "");
    if !entries.iter().any(|entry| entry.key == key) {
        entries.push(entry(key, Item { mark: NOWHERE, content: Content::List(Vec::new()) }));
    }
    let found = entries.iter_mut().find(|entry| entry.key == key).unwrap();
    let Content::List(items) = &mut found.item.content else { panic!("no list") };
    items
}

pub(crate) fn entry(key: &str, item: Item) -> Entry {
    Entry { key: key.to_owned(), mark: NOWHERE, item }
}

/// The document as text, a line for each key.
pub(crate) fn written(root: &Item) -> String {
    let line = |entry: &Entry| format!("{} = {}\n", quoted(&entry.key), inline(&entry.item));
    root.entries().unwrap().iter().map(line).collect()
}

fn inline(item: &Item) -> String {
    match &item.content {
        Content::Text(text) => quoted(text),
        Content::Integer(_, as_written) | Content::Number(_, as_written) => as_written.clone(),
        Content::Flag(flag) => flag.to_string(),
        Content::Datetime(text) => text.clone(),
        Content::List(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Content::Table(entries) => {
            let pair = |entry: &Entry| format!("{} = {}", quoted(&entry.key), inline(&entry.item));
            format!("{{ {} }}", entries.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
    }
}

fn quoted(text: &str) -> String {
    // JSON's escapes are TOML's.
    serde_json::to_string(text).unwrap()
}
