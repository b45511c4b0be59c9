//! The pages under `docs/`, followed as a newcomer would: their files are written, their commands are run, and
//! the output that a page shows must appear in the real one.

use crate::follow::follow;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages followed elsewhere: those whose commands need `lastmeterd`, by that program's tests, the list of
/// commands, by `scripts/smoke`, programs for pictures, by the tests of the Python package, channels, which take
/// minutes in real time, by `crates/rtc/tests/channels`, and the live VuNet, by `tests/live.rs`.
const ELSEWHERE: [&str; 13] = [
    "audio",
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
fn the_readme_begins_with_a_screen_of_two_sentences_an_install_line_three_commands_and_a_picture() {
    let page = include_str!("../../../README.md");
    let screen = page.split("\n## ").next().unwrap();
    let sentences = screen.split("```").next().unwrap().matches(".\n").count()
        + screen.split("```").next().unwrap().matches(". ").count();
    let mut blocks = screen.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let (install, commands) = (blocks.next().unwrap(), blocks.next().unwrap());
    let commands: Vec<&str> = commands.lines().collect();
    assert_eq!((sentences, install.lines().count(), blocks.count()), (2, 1, 0));
    assert_eq!(commands.len(), 3, "{commands:?}");
    for (command, words) in commands.iter().zip(["why -- ", "live ", "lm.sweep("]) {
        assert!(command.contains(words), "{command}");
    }
    assert_eq!(screen.matches("\n![").count(), 1, "one picture");
    assert!(screen.lines().count() <= 30, "more than a screen");
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
