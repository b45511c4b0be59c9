//! How ledgers look, compared with reviewed goldens.
//!
//! `GOLDENS=accept cargo test -p lastmeter-ledger --test report` rewrites the goldens; read the
//! difference before committing it.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod json;
mod page;
mod parquet;
mod sample;

use lastmeter_ledger::Ledger;
use lastmeter_ledger::terminal::{self, Style};
use unicode_width::UnicodeWidthStr;

/// Compares with a file of this crate, or writes it.
fn golden(file: &str, text: &str) {
    let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var("GOLDENS").is_ok_and(|value| value == "accept") {
        std::fs::write(&place, text).unwrap();
    }
    let expected = std::fs::read_to_string(&place).unwrap_or_default();
    assert!(
        expected == text,
        "{file} differs from what is drawn; to accept the new one, run with GOLDENS=accept.\n{text}"
    );
}

fn plain(width: usize) -> Style {
    Style { width, color: false, unicode: true }
}

#[test]
fn a_table_of_80_columns_is_as_reviewed() {
    golden("tests/goldens/two_hosts_80.txt", &terminal::render(&sample::ledger(), plain(80)));
}

#[test]
fn a_table_of_120_columns_is_as_reviewed() {
    golden("tests/goldens/two_hosts_120.txt", &terminal::render(&sample::ledger(), plain(120)));
}

/// Every shape of ledger that has to look right.
fn all() -> [Ledger; 4] {
    [sample::ledger(), sample::single(), sample::silent(), sample::huge()]
}

/// Where what-ifs take long, the ledger comes first; then verdict and what-ifs, and nothing is lost or said twice.
#[test]
fn a_ledger_drawn_before_its_verdict_has_the_same_lines() {
    let mut ledger = sample::ledger();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (run, conclusion) = (
        terminal::render_run(&ledger, plain(100)),
        terminal::render_conclusion(&ledger, plain(100)),
    );
    let whole = terminal::render(&ledger, plain(100));
    assert_eq!(sorted(&format!("{run}{conclusion}")), sorted(&whole));
    assert!(run.contains("RESOURCES") && !run.contains("WHAT IF"), "{run}");
    assert!(conclusion.contains("WHAT IF") && conclusion.contains("BALANCE"), "{conclusion}");
    // Ctrl-C after the run: the search is what is incomplete.
    ledger.provenance.partial = true;
    let stopped = terminal::render_conclusion(&ledger, plain(100));
    assert!(stopped.contains("PARTIAL: stopped early; not all changes were tried."), "{stopped}");
}

#[test]
fn no_line_exceeds_the_width() {
    for ledger in all() {
        for width in [40, 60, 72, 80, 100, 120, 200] {
            for unicode in [true, false] {
                let style = Style { width, color: false, unicode };
                for line in terminal::render(&ledger, style).lines() {
                    assert!(line.width() <= width, "{} > {width}: {line}", line.width());
                    assert!(unicode || line.is_ascii(), "{line}");
                }
            }
        }
    }
}

#[test]
fn colour_adds_nothing_but_colour() {
    let colored = terminal::render(&sample::ledger(), Style { color: true, ..plain(100) });
    let mut text = String::new();
    let mut rest = colored.as_str();
    while let Some(start) = rest.find('\x1b') {
        text.push_str(&rest[..start]);
        let length = rest[start..].find('m').unwrap();
        rest = &rest[start + length + 1..];
    }
    text.push_str(rest);
    assert_eq!(text, terminal::render(&sample::ledger(), plain(100)));
}

#[test]
fn many_paths_are_folded_and_counted() {
    let text = terminal::render(&sample::huge(), plain(120));
    assert!(text.contains("38 more paths"), "{text}");
    assert!(text.lines().count() < 250, "{}", text.lines().count());
    assert!(!text.contains('\x1b'));
}
