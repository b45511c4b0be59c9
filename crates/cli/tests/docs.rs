//! The pages under `docs/`, followed as a newcomer would: their files are written, their commands are run, and
//! the output that a page shows must appear in the real one.

use crate::follow::follow;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages followed elsewhere: those whose commands need `lastmeterd`, by that program's tests, the list of
/// commands, by `scripts/smoke`, programs for pictures, by the tests of the Python package, channels, which take
/// minutes in real time, by `crates/rtc/tests/channels`, and the live VuNet, by `tests/live.rs`.
const ELSEWHERE: [&str; 12] = [
    "write-a-plugin",
    "plugins-in-models",
    "commands",
    "router",
    "disk",
    "disk-costs",
    "transfer",
    "display",
    "camera",
    "channels",
    "media",
    "vunet",
];

fn pages() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let files = fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

#[test]
fn every_command_of_every_page_does_what_the_page_says() {
    let mut commands = 0;
    for path in pages() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if ELSEWHERE.contains(&name) {
            continue;
        }
        let folder = format!("lastmeter-docs-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let page = fs::read_to_string(&path).unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_lastmeter")).parent().unwrap();
        commands += follow(&page, programs, &folder);
        fs::remove_dir_all(folder).unwrap();
    }
    assert!(commands > 20, "{commands}");
}

#[test]
fn every_link_of_every_page_has_a_target() {
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            assert!(path.parent().unwrap().join(file).exists(), "{}: {link}", path.display());
        }
    }
}
