//! The ledger's page: as reviewed, safe, self-contained.
//!
//! `LOOK=/some/folder` writes the pages there too, to look at them in a browser.

use crate::{all, golden, sample};
use lastmeter_ledger::Ledger;
use lastmeter_ledger::html;

#[test]
fn a_page_is_as_reviewed() {
    golden("tests/goldens/two_hosts.html", &html::render(&sample::ledger()));
    let Some(folder) = std::env::var_os("LOOK") else { return };
    for (name, ledger) in ["two_hosts", "single", "silent", "huge"].iter().zip(all()) {
        let place = std::path::Path::new(&folder).join(format!("{name}.html"));
        std::fs::write(place, html::render(&ledger)).unwrap();
    }
}

#[test]
fn a_page_loads_nothing_from_the_network() {
    for ledger in all() {
        let page = html::render(&ledger);
        for word in ["http://", "https://", "src=", "href=", "@import", "<link", "<iframe"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}

#[test]
fn hostile_names_stay_text() {
    let page = html::render(&sample::huge());
    assert!(!page.contains("<script>alert"));
    assert_eq!(page.matches("<script").count(), 2, "the data and the hints");
    assert_eq!(page.matches("</script").count(), 2);
    assert!(!page.contains('\x1b'));
}

#[test]
fn elements_close_in_the_order_in_which_they_opened() {
    const VOID: [&str; 3] = ["meta", "br", "!doctype"];
    for ledger in all() {
        let page = html::render(&ledger);
        let body = page.split("<script").next().unwrap();
        let body = body.split_once("</style>").unwrap().1;
        let mut open = vec!["html", "head"];
        for tag in body.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap();
            let name = tag.split_whitespace().next().unwrap();
            match name.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "in {tag}"),
                None if tag.ends_with('/') || VOID.contains(&name) => {}
                None => open.push(name),
            }
        }
        assert_eq!(open, ["html", "body"]);
    }
}

#[test]
fn the_ledger_inside_the_page_is_the_ledger() {
    for ledger in all() {
        let page = html::render(&ledger);
        let data = page.split_once("id=\"ledger\">").unwrap().1;
        let data = data.split_once("</script>").unwrap().0;
        let back: Ledger = serde_json::from_str(data).unwrap();
        assert!(back == ledger, "{}", ledger.title);
    }
}

#[test]
fn each_picture_has_a_label_and_a_table() {
    let page = html::render(&sample::ledger());
    for table in ["Table of stages", "Table of resources", "Table of what-ifs"] {
        assert!(page.contains(table), "{table}");
    }
    for picture in page.split("role=\"img\"").skip(1) {
        let tag = picture.split_once('>').unwrap().0;
        assert!(tag.contains("aria-label=\"") && !tag.contains("aria-label=\"\""), "{tag}");
    }
}

#[test]
fn a_quantity_over_time_is_drawn_in_pieces_and_has_a_table() {
    use lastmeter_ledger::{Series, Step};
    let step = |at: f64, least: f64, most: f64| Step { at, least, most };
    let series = |unit: &str, steps: Vec<Step>| Series {
        name: "lan: <rotation>".to_owned(),
        unit: unit.to_owned(),
        step: 0.001,
        steps,
    };
    let mut ledger = sample::ledger();
    assert!(!html::render(&ledger).contains("Over time"));
    // The third step does not touch the second.
    let times = vec![step(0.0, 1e-6, 2e-6), step(0.001, 1e-6, 4e-6), step(0.005, 0.0, 1e-6)];
    ledger.series = vec![series("s", times), series("station", vec![step(0.0, 3.0, 7.0)])];
    let page = html::render(&ledger);
    // The third is the distribution of latency.
    assert_eq!(page.matches("<svg class=\"series\"").count(), 3);
    assert_eq!(page.matches("<path class=\"band\"").count(), 2);
    assert!(page.contains("lan: &lt;rotation&gt;") && page.contains(">station 7</text>"));
    assert!(!page.contains("NaN"));
    // An empty series is not drawn.
    ledger.series = vec![series("s", Vec::new())];
    assert!(!html::render(&ledger).contains("Over time"));
}

#[test]
fn a_very_large_ledger_has_a_page_that_browsers_can_show() {
    let mut ledger = sample::ledger();
    let path = ledger.paths[0].clone();
    ledger.paths.extend((0..20_000).map(|_| path.clone()));
    let page = html::render(&ledger);
    assert!(page.len() < 30_000_000, "{}", page.len());
    let all = format!("of {} paths", ledger.paths.len());
    assert!(page.contains(&all));
    assert!(!html::render(&sample::ledger()).contains("This page has"));
}
