//! Drawings that are not curves, for the page of a reproduction.

use super::html::escape;
use std::fmt::Write;

/// A drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// Which figure of the document, and what it shows.
    pub title: String,
    /// What a reader should see in it.
    pub caption: String,
    /// What is drawn, as SVG or as a table, already escaped.
    pub svg: String,
}

/// Each as a figure with its caption.
pub fn figures(drawings: &[Drawing]) -> String {
    let mut out = String::new();
    for Drawing { title, caption, svg } in drawings {
        let _ = write!(
            out,
            "<figure>\n<h2>{}</h2>\n{svg}<figcaption>{}</figcaption>\n</figure>\n",
            escape(title),
            escape(caption)
        );
    }
    out
}
