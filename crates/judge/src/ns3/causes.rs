//! Why cells lie beyond: read from `experiments/ns3/causes.toml`.

use lastmeter_lab::document::{Content, Document, Item};
use lastmeter_repro::Error;

pub(super) const FILE: &str = "experiments/ns3/causes.toml";

/// Why some cells lie beyond.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cause {
    /// Each a scenario, a colon and a metric.
    pub(super) cells: Vec<String>,
    pub(super) whose: String,
    pub(super) why: String,
}

const WHOSE: [&str; 3] = ["ours", "theirs", "unknown"];

/// Reads the file.
pub(super) fn read(text: &str, file: &str) -> Result<Vec<Cause>, Error> {
    let document = Document::parse(file, text.as_bytes()).map_err(Error::Problems)?;
    let causes = document.root.get("cause").map_or(&[][..], Item::items);
    let read = |(at, item): (usize, &Item)| {
        let wrong =
            |what: &str| Error::file(file, 1, format!("[[cause]] number {}: {what}", at + 1));
        let text = |key: &str| {
            item.text(key).map(str::to_owned).ok_or_else(|| wrong(&format!("no text `{key}`")))
        };
        let cells = item.get("cells").map_or(&[][..], Item::items);
        let cells: Option<Vec<String>> = cells.iter().map(text_of).collect();
        let cells = cells.filter(|cells| !cells.is_empty());
        let cause = Cause {
            cells: cells.ok_or_else(|| wrong("no list of texts `cells`"))?,
            whose: text("whose")?,
            why: text("why")?,
        };
        match WHOSE.contains(&cause.whose.as_str()) {
            true => Ok(cause),
            false => Err(wrong(&format!("`whose` is none of {}", WHOSE.join(", ")))),
        }
    };
    causes.iter().enumerate().map(read).collect()
}

fn text_of(item: &Item) -> Option<String> {
    match &item.content {
        Content::Text(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;

    #[test]
    fn a_cause_has_cells_and_says_whose_it_is() {
        let text = "[[cause]]\ncells = [\"a: loss\"]\nwhose = \"theirs\"\nwhy = \"x\"\n";
        assert_eq!(read(text, "here").unwrap()[0].cells, ["a: loss"]);
        let wrong = read(&text.replace("theirs", "nobody's"), "here").unwrap_err().to_string();
        assert!(wrong.contains("none of ours, theirs, unknown"), "{wrong}");
        let wrong = read(&text.replace("\"a: loss\"", ""), "here").unwrap_err().to_string();
        assert!(wrong.contains("`cells`"), "{wrong}");
    }
}
