//! The ledger as one HTML file that loads nothing from the network, now or in ten years.
//!
//! The verdict comes first, as a sentence; then the path as a drawing, then why: stages, resources, what-ifs.
//! Every picture has a table behind it, every figure says on hover what it is and its exact value, nothing relies
//! on colour alone, and all works without scripts. The ledger itself is embedded as JSON, so that the file is also
//! data. A part of the page is one line in `SECTIONS`.

pub mod compare;
mod connection;
mod counts;
mod distribution;
mod drawing;
mod extract;
mod facts;
mod paths;
mod resources;
mod series;
mod stages;
mod text;
mod waits;
mod what_ifs;

use crate::Ledger;
pub use text::{escape, shorten};

/// The parts of the page, in order; each writes one section, or nothing if it has no content.
const SECTIONS: [fn(&Ledger, &mut String); 11] = [
    facts::warnings,
    facts::verdict,
    paths::overview,
    paths::detailed,
    resources::section,
    waits::section,
    counts::section,
    series::section,
    what_ifs::section,
    connection::section,
    facts::provenance,
];

/// Content security policy: the page makes no request, whatever a name in the ledger contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Draws a ledger as a complete HTML document. Of a very large one it draws the most important
/// paths and resources, and says how many more the files beside it have.
///
/// ```
/// use lastmeter_ledger::html::render;
/// use lastmeter_ledger::{Ledger, Provenance};
/// let (paths, resources) = (Vec::new(), Vec::new());
/// let ledger = Ledger::new("fish & chips", 1.0, paths, resources, Provenance::default());
/// assert!(render(&ledger).contains("<h1>fish &amp; chips</h1>"));
/// ```
pub fn render(ledger: &Ledger) -> String {
    let mut out = begin(&ledger.title);
    out.push_str(&format!("<header>\n<h1>{}</h1>\n", escape(&ledger.title)));
    facts::run(ledger, &mut out);
    out.push_str("</header>\n<main>\n");
    let extract = extract::of(ledger);
    if let Some(extract) = &extract {
        extract::say(extract, ledger, &mut out);
    }
    let ledger = extract.as_ref().unwrap_or(ledger);
    SECTIONS.iter().for_each(|section| section(ledger, &mut out));
    out.push_str("</main>\n");
    let json = serde_json::to_string(ledger);
    let json = json.expect("maps with text keys and plain numbers always have a JSON");
    end(&mut out, "ledger", &json);
    out
}

/// Curves as a complete HTML document.
///
/// ```
/// use lastmeter_ledger::html::curves;
/// assert!(curves("Lookups", &[]).contains("<h1>Lookups</h1>"));
/// ```
pub fn curves(title: &str, plots: &[crate::plots::Plot]) -> String {
    let mut out = begin(title);
    out.push_str(&format!("<header>\n<h1>{}</h1>\n</header>\n<main>\n", escape(title)));
    out.push_str("<section aria-label=\"Figures\">\n");
    out.push_str(&crate::plots::figures(plots));
    out.push_str("</section>\n</main>\n");
    end(&mut out, "title", "null");
    out
}

/// A page up to its body.
pub fn begin(title: &str) -> String {
    let title = escape(title);
    let mut out = String::new();
    out.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n");
    out.push_str(&format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n"));
    out.push_str(&format!("<title>{title} - Lastmeter</title>\n"));
    out.push_str(&format!("<style>\n{}</style>\n</head>\n<body>\n", include_str!("page.css")));
    out.push_str(PATTERNS);
    out
}

/// The end of a page, with its data inside.
pub fn end(out: &mut String, id: &str, json: &str) {
    out.push_str("<footer><div id=\"tools\"></div></footer>\n");
    out.push_str(&format!("<script type=\"application/json\" id=\"{id}\">\n"));
    out.push_str(&embedded(json));
    out.push_str("\n</script>\n");
    out.push_str(&format!("<script>\n{}</script>\n</body>\n</html>\n", include_str!("page.js")));
}

/// Waiting and blocked differ from service by their patterns, not only by colour.
const PATTERNS: &str = "<svg width=\"0\" height=\"0\" style=\"position:absolute\" \
aria-hidden=\"true\">\
<defs>\
<pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
patternTransform=\"rotate(45)\">\
<rect width=\"3\" height=\"6\" style=\"fill:var(--blocked)\"/></pattern>\
<pattern id=\"dots\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<rect width=\"6\" height=\"6\" style=\"fill:var(--wait);opacity:.45\"/>\
<circle cx=\"3\" cy=\"3\" r=\"1.6\" style=\"fill:var(--wait)\"/></pattern>\
</defs></svg>\n";

/// JSON escaped so that it cannot close the element around it.
pub fn embedded(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// A table that scrolls by itself on a narrow screen. Titles, rows and caption are HTML; the rows
/// that limit are marked.
pub fn table(caption: &str, titles: &[&str], rows: &[(bool, Vec<String>)]) -> String {
    table_marking("limits", caption, titles, rows)
}

/// The same with another class for the rows that are marked.
pub fn table_marking(
    class: &str,
    caption: &str,
    titles: &[&str],
    rows: &[(bool, Vec<String>)],
) -> String {
    let mut out = String::from("<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"");
    out.push_str(&format!("{}\"><table>\n<caption>{caption}</caption>\n<thead><tr>", caption));
    titles.iter().for_each(|title| out.push_str(&format!("<th scope=\"col\">{title}</th>")));
    out.push_str("</tr></thead>\n<tbody>\n");
    for (marked, row) in rows {
        out.push_str(&if *marked { format!("<tr class=\"{class}\">") } else { "<tr>".to_owned() });
        for (place, cell) in row.iter().enumerate() {
            match place {
                0 => out.push_str(&format!("<th scope=\"row\">{cell}</th>")),
                _ => out.push_str(&format!("<td>{cell}</td>")),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}
