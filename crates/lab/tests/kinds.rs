//! Every page is complete, its example runs, and the schema matches the pages.

use crate::golden;
use lastmeter_base::kind::{Fallback, Family, Page};
use lastmeter_engine::{Outcome, VirtualClock};
use lastmeter_host::profile::Profile;
use lastmeter_lab::build::{Changes, build};
use lastmeter_lab::document::{Override, Problem};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::kinds::{self, Registry};
use lastmeter_lab::library::{self, Builtin};
use lastmeter_lab::profile::{self, Described, File, ProfileKind};
use lastmeter_lab::run::has_plugins;
use lastmeter_lab::schema;
use std::sync::Arc;

#[test]
fn every_example_parses_builds_and_runs() {
    for kind in Registry::builtin().kinds() {
        let page = kind.page;
        let shown = |problems: Vec<lastmeter_lab::document::Problem>| {
            let lines: Vec<String> = problems.iter().map(|problem| problem.render(false)).collect();
            format!("the example of {}:\n{}", page.name, lines.join("\n"))
        };
        if let Some(profile) = kind.maker.downcast_ref::<ProfileKind>() {
            let host = Registry::builtin().find("host-profile").unwrap().example;
            let host =
                profile::host("host.toml", host.as_bytes(), &Builtin).map_err(shown).unwrap();
            let host: Described = Arc::new(host);
            let within = profile.within.map(|_| &host);
            let (name, text) = ("example.toml", page.example);
            let read = (profile.read)(&File { name, text, within, library: &Builtin });
            let read = read.map_err(shown).unwrap();
            if let (Some(_), Some(both)) = (within, read.downcast_ref::<Profile>()) {
                assert_eq!(both.send.len(), 4);
            }
            continue;
        }
        // A part of an adapter's profile, whose example has one.
        if page.name == "connection" {
            let adapter = Registry::builtin().find("adapter-profile").unwrap();
            assert!(page.example == adapter.example && page.example.contains("[[connection]]"));
            continue;
        }
        // Parts of a host's profile.
        if matches!(page.family, Family::Profile | Family::Resource) {
            let text = page.example.as_bytes();
            profile::host("example.toml", text, &Builtin).map_err(shown).unwrap();
            continue;
        }
        let experiment = Experiment::parse("example.toml", page.example, &[], &Builtin);
        let experiment = experiment.map_err(shown).unwrap();
        // The built-in library has no captures to replay.
        if page.name == "replay" {
            continue;
        }
        // Nor a sandbox for plugins: the tests of `daemon` run it.
        if has_plugins(&experiment) {
            continue;
        }
        let outcome = run(&experiment, page.example).map_err(shown).unwrap();
        assert!(outcome.books.delivered > 0, "{}", page.name);
    }
}

#[test]
fn bundled_experiments_drop_packets_only_for_reasons_that_their_kinds_explain() {
    let short = [Override::parse("duration=100 ms").unwrap()];
    for text in library::experiments().iter().filter_map(|name| library::experiment(name)) {
        let experiment = Experiment::parse("experiment.toml", text, &short, &Builtin).unwrap();
        // There is no sandbox here; the daemon's tests run it.
        if !has_plugins(&experiment) {
            run(&experiment, text).unwrap();
        }
    }
}

/// Runs an experiment whose every drop has a reason that a kind named in `text` explains.
fn run(experiment: &Experiment, text: &str) -> Result<Outcome, Vec<Problem>> {
    let built = build(experiment, &Changes::NONE, &Builtin)?;
    let mut engine = built.graph.build(1).unwrap();
    engine.run_until(built.end, &mut VirtualClock::default()).unwrap();
    let outcome = engine.finish().unwrap();
    let named: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
    let used = |page: &&Page| page.name == "drop-tail" || named.contains(&page.name);
    let pages: Vec<&Page> = Registry::builtin().all().filter(used).collect();
    let drops = outcome.books.paths.iter().flat_map(|path| path.dropped.keys());
    for key in drops {
        let explained = pages.iter().any(|page| page.drops.iter().any(|drop| drop.0 == key.reason));
        assert!(explained, "{}: no kind explains `{}`", experiment.title, key.reason);
    }
    Ok(outcome)
}

#[test]
fn every_name_is_used_once_and_every_sentence_ends() {
    let mut names: Vec<&str> = Registry::builtin().all().map(|page: &Page| page.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for page in Registry::builtin().all() {
        assert!(page.what.ends_with('.'), "{}", page.name);
        let whole =
            ["experiment", "stages"].contains(&page.name) || page.name.ends_with("-profile");
        assert!(whole || page.example.contains(page.name), "{}", page.name);
        for param in page.params {
            let default = match param.default {
                Fallback::Required => "required",
                Fallback::Written(text) | Fallback::Absent(text) => text,
            };
            assert!(!param.what.is_empty() && !default.ends_with('.'), "{}", param.name);
        }
    }
}

#[test]
fn a_misspelt_name_finds_the_nearest_one() {
    assert_eq!(Registry::builtin().find("drop-tail").unwrap().name, "drop-tail");
    assert_eq!(Registry::builtin().find("Token-Bucket").unwrap().name, "token-bucket");
    assert_eq!(Registry::builtin().find("droptail").unwrap_err().unwrap().name, "drop-tail");
    assert_eq!(Registry::builtin().find("zebra").unwrap().name, "zebra");
    assert!(Registry::builtin().find("xylophone").unwrap_err().is_none());
}

#[test]
fn the_page_of_a_kind_is_complete() {
    golden::check("tests/goldens/token-bucket.txt", &page("token-bucket"));
    golden::check("tests/goldens/request.txt", &page("request"));
}

/// Without the line number, which changes with every edit of the file.
fn page(name: &str) -> String {
    let text = kinds::page_text(Registry::builtin().find(name).unwrap());
    let (text, place) = text.trim_end().rsplit_once('\n').unwrap();
    let file = place.split_once(" at line ").unwrap().0;
    format!("{text}\n{file}\n")
}

#[test]
fn the_committed_schema_is_up_to_date() {
    golden::check("../../experiments/schema.json", &schema::text());
}
