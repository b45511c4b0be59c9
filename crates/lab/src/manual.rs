//! The reference manual as one page: everything that experiments can name, generated from the code.

use crate::kinds::{self, Registry};
use crate::library::{Builtin, Library};
use crate::profile::device;
use lastmeter_base::kind::Page;
use lastmeter_ledger::html::{begin, end, escape, table};

/// Draws all kinds and the bundled adapters as a complete HTML document, which loads nothing from the network.
///
/// # Errors
/// If a bundled adapter cannot be read; the message says where and why.
///
/// ```
/// let manual = lastmeter_lab::manual::render()?;
/// assert!(manual.contains("<section id=\"queue-qsdrr\""));
/// # Ok::<(), String>(())
/// ```
pub fn render() -> Result<String, String> {
    let mut pages: Vec<&Page> = Registry::builtin().all().collect();
    pages.sort_by_key(|page| (page.family, page.name));
    let mut out = begin("Reference of experiments");
    out.push_str("<header>\n<h1>Reference of experiments</h1>\n</header>\n<main>\n");
    out.push_str("<section aria-label=\"Contents\">\n<h2>Contents</h2>\n");
    let families = || pages.chunk_by(|a, b| a.family == b.family);
    for family in families() {
        out.push_str(&format!("<h3>{}</h3>\n<p>", escape(family[0].family.name())));
        let link = |page: &&Page| {
            let (what, name) = (escape(page.what), escape(page.name));
            format!("<a href=\"#{}\" title=\"{what}\">{name}</a>", anchor(page))
        };
        out.push_str(&family.iter().map(link).collect::<Vec<_>>().join(" · "));
        out.push_str("</p>\n");
    }
    let adapters = Builtin.names(device::FOLDER);
    out.push_str("<h3>adapters in five sections</h3>\n<p>");
    let link = |name: &String| format!("<a href=\"#adapter-{0}\">{0}</a>", escape(name));
    out.push_str(&adapters.iter().map(link).collect::<Vec<_>>().join(" · "));
    out.push_str("</p>\n</section>\n");
    pages.iter().for_each(|page| kind(page, &mut out));
    for name in &adapters {
        let card = device::read(name, &Builtin)?;
        let title = escape(name);
        out.push_str(&format!(
            "<section id=\"adapter-{title}\" aria-label=\"{title}\">\n\
             <h2>{title} <span class=\"soft\">adapter</span></h2>\n\
             <div class=\"table\">{}</div>\n</section>\n",
            device::svg(&card)
        ));
    }
    out.push_str("</main>\n");
    end(&mut out, "kinds", &Registry::builtin().list_json().to_string());
    Ok(out)
}

/// Kinds of different families may share a name.
fn anchor(page: &Page) -> String {
    escape(&format!("{}-{}", page.family.name().replace(' ', "-"), page.name))
}

fn kind(page: &Page, out: &mut String) {
    let (name, family) = (escape(page.name), escape(page.family.name()));
    out.push_str(&format!(
        "<section id=\"{}\" aria-label=\"{name}\">\n\
         <h2>{name} <span class=\"soft\">{family}</span></h2>\n\
         <p>{}</p>\n",
        anchor(page),
        escape(page.what)
    ));
    if !page.ports.is_empty() {
        out.push_str(&listing(page.ports));
    }
    if !page.params.is_empty() {
        let row = |param| {
            let cells = kinds::said(param);
            (false, cells.iter().map(|cell| wrapped(cell)).collect())
        };
        let rows: Vec<(bool, Vec<String>)> = page.params.iter().map(row).collect();
        let titles = ["parameter", "may be", "otherwise", "meaning"].map(left);
        out.push_str(&table("Parameters", &titles.each_ref().map(String::as_str), &rows));
    }
    for (title, name, explained) in
        [("Counters", "counter", page.counters), ("Drops", "reason", page.drops)]
    {
        if !explained.is_empty() {
            let row = |&(name, what): &(&str, &str)| (false, vec![escape(name), wrapped(what)]);
            let rows: Vec<(bool, Vec<String>)> = explained.iter().map(row).collect();
            let titles = [name, "meaning"].map(left);
            out.push_str(&table(title, &titles.each_ref().map(String::as_str), &rows));
        }
    }
    if !page.source.is_empty() {
        out.push_str(&format!("<p class=\"soft\">Source: {}</p>\n", escape(page.source)));
    }
    for deviation in page.deviations {
        out.push_str(&format!("<p class=\"soft\">Differs: {}</p>\n", escape(deviation)));
    }
    out.push_str(&format!(
        "<details><summary>An example that runs</summary>{}</details>\n\
         <p class=\"soft\">Written in {} at line {}.</p>\n</section>\n",
        listing(page.example.trim()),
        escape(page.place.file),
        page.place.line
    ));
}

/// Preformatted lines, in a frame that scrolls by itself.
fn listing(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(escape).collect();
    format!("<pre class=\"table\" tabindex=\"0\">{}</pre>\n", lines.join("\n"))
}
fn left(title: &str) -> String {
    format!("<span class=\"words\">{title}</span>")
}
fn wrapped(text: &str) -> String {
    format!("<span class=\"words\">{}</span>", escape(text))
}

#[cfg(test)]
mod tests {
    use super::{Builtin, Library, Registry, device, render};

    #[test]
    fn the_manual_has_every_kind_once_and_makes_no_network_request() {
        let manual = render().expect("bundled adapters can be read");
        let adapters = Builtin.names(device::FOLDER).len();
        assert_eq!(
            manual.matches("<h2>").count() - 1,
            Registry::builtin().all().count() + adapters
        );
        for page in Registry::builtin().all() {
            let id = format!("id=\"{}\"", super::anchor(page));
            assert_eq!(manual.matches(&id).count(), 1, "{id}");
        }
        let elsewhere = ["src=", "href=\"http", "url(http", "@import"];
        assert!(elsewhere.iter().all(|word| !manual.contains(word)));
    }
}
