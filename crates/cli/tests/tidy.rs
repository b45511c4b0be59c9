//! Checks the structure of the project: which crate may depend on which, what is banned where, and how
//! long files and lines may be.

#![allow(clippy::unwrap_used, reason = "a test")]

use lastmeter_lab::kinds::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which crates of the workspace each crate may depend on (ARCHITECTURE.md, "Crates").
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("wire", &["base"]),
    ("engine", &["base"]),
    ("ledger", &["base"]),
    ("net", &["base", "wire", "engine"]),
    ("lan", &["base", "wire", "engine", "net"]),
    ("host", &["base", "wire", "engine", "net"]),
    ("transport", &["base", "wire", "engine"]),
    ("wave", &["base", "wire", "engine", "net"]),
    ("linux", &["base", "wire", "engine"]),
    ("live", &["base", "wire", "engine", "linux"]),
    ("rtc", &["base", "wire", "engine", "transport", "linux", "live"]),
    ("guest", &["base", "wire", "engine", "host", "ledger", "linux"]),
    ("plugin", &["base", "wire", "ledger"]),
    ("lab", &["base", "wire", "engine", "ledger", "net", "lan", "host", "transport", "wave"]),
    (
        "repro",
        &["base", "wire", "engine", "ledger", "net", "lan", "host", "transport", "wave", "lab"],
    ),
    ("judge", &["base", "engine", "lab", "repro"]),
    ("bench", &["base", "wire", "ledger", "engine", "host", "transport", "linux", "live", "lab"]),
    ("why", &["base", "engine", "ledger", "host", "linux", "live", "lab"]),
    (
        "cli",
        &[
            "base",
            "wire",
            "engine",
            "ledger",
            "net",
            "lan",
            "host",
            "transport",
            "linux",
            "live",
            "rtc",
            "guest",
            "bench",
            "lab",
            "repro",
            "judge",
            "why",
        ],
    ),
    ("device", &["base", "wire", "linux", "live", "plugin", "ledger"]),
    ("audio", &["base", "wire", "linux", "plugin", "ledger", "device"]),
    (
        "router",
        &[
            "base", "wire", "engine", "net", "lan", "host", "linux", "live", "plugin", "ledger",
            "lab",
        ],
    ),
    (
        "daemon",
        &[
            "base", "wire", "engine", "ledger", "net", "lan", "host", "linux", "live", "plugin",
            "lab", "device", "audio", "router", "wave",
        ],
    ),
    ("python", &["base", "engine", "ledger", "net", "live", "lab", "repro"]),
];

/// The glue of the Python package: outside `crates/`, and may depend on the program, too.
const PYTHON: &str = "python";

/// Crates that may read clocks, start threads and open files and sockets.
const WORLDLY: &[&str] = &[
    "linux", "live", "rtc", "guest", "bench", "device", "audio", "router", "cli", "daemon",
    "python",
];
/// Crates that may hold `unsafe`.
const UNSAFE: &[&str] = &["linux"];

const BANNED: &[&str] = &[
    "std::time::Instant",
    "std::time::SystemTime",
    "Instant::now",
    "SystemTime::now",
    "std::thread",
    "thread::spawn",
    "thread_local!",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::net::ToSocketAddrs",
    "std::process",
    "std::env",
    "RefCell",
];

/// Maximum lines of a crate, tests included.
const CRATE_LINES_MAX: usize = 25_000;
/// Maximum lines of a file, tests excluded.
const LINES_MAX: usize = 600;
const WIDTH_MAX: usize = 100;
/// Comments may be a little wider, for drawings and tables.
const WIDTH_MAX_COMMENT: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn crates() -> Vec<String> {
    let entries = fs::read_dir(root().join("crates")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.chain([PYTHON.to_owned()]).collect()
}

/// A crate's folder.
fn folder(name: &str) -> PathBuf {
    if name == PYTHON { root().join(name) } else { root().join("crates").join(name) }
}

/// Each source file of a crate, with its text up to the tests.
fn sources(name: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    rust_files(&folder(name).join("src"), &mut files);
    let without_tests = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("\n#[cfg(test)]").next().unwrap().to_owned();
        (path, code)
    };
    files.into_iter().map(without_tests).collect()
}

#[test]
fn each_crate_depends_only_on_those_in_its_row() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for name in crates() {
        let allowed = arrows.get(name.as_str());
        let allowed = allowed.unwrap_or_else(|| panic!("crate `{name}` has no row in ARROWS"));
        let manifest = fs::read_to_string(folder(&name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
        for line in dependencies.lines() {
            let Some(rest) = line.strip_prefix("lastmeter-") else { continue };
            let other = rest.split(['.', ' ', '=']).next().unwrap();
            assert!(allowed.contains(&other), "`{name}` may not depend on `{other}`");
        }
    }
}

#[test]
fn clocks_threads_files_and_sockets_stay_where_they_belong() {
    for name in crates() {
        if WORLDLY.contains(&name.as_str()) {
            continue;
        }
        for (path, code) in sources(&name) {
            for (number, line) in code.lines().enumerate() {
                let is_code = !line.trim_start().starts_with("//");
                let banned = BANNED.iter().find(|word| is_code && line.contains(**word));
                let at = format!("{}:{}", path.display(), number + 1);
                assert!(banned.is_none(), "{at}: `{}` is banned in `{name}`", banned.unwrap());
            }
        }
    }
}

#[test]
fn unsafe_is_confined_to_one_crate_and_justified() {
    for name in crates() {
        for (path, code) in sources(&name) {
            let lines: Vec<&str> = code.lines().collect();
            for (number, line) in lines.iter().enumerate() {
                let code_of_line = line.split("//").next().unwrap();
                if !code_of_line.contains("unsafe {") && !code_of_line.contains("unsafe impl") {
                    continue;
                }
                let at = format!("{}:{}", path.display(), number + 1);
                assert!(UNSAFE.contains(&name.as_str()), "{at}: unsafe in `{name}`");
                let before = &lines[number.saturating_sub(6)..=number];
                let justified = before.iter().any(|line| line.contains("SAFETY:"));
                assert!(justified, "{at}: unsafe without `// SAFETY:`");
            }
        }
    }
}

#[test]
fn files_and_lines_are_short() {
    let mut long = Vec::new();
    for name in crates() {
        for (path, code) in sources(&name) {
            let lines = code.lines().count();
            if lines > LINES_MAX {
                long.push(format!("{}: {lines} lines, at most {LINES_MAX}", path.display()));
            }
            for (number, line) in code.lines().enumerate() {
                let width = line.chars().count();
                let is_comment = line.trim_start().starts_with("//");
                if width > if is_comment { WIDTH_MAX_COMMENT } else { WIDTH_MAX } {
                    long.push(format!("{}:{}: {width} columns", path.display(), number + 1));
                }
            }
        }
    }
    assert!(long.is_empty(), "too long:\n{}", long.join("\n"));
}

#[test]
fn no_crate_is_too_large() {
    for name in crates() {
        let mut files = Vec::new();
        rust_files(&folder(&name), &mut files);
        let count = |path: PathBuf| fs::read_to_string(path).unwrap().lines().count();
        let lines: usize = files.into_iter().map(count).sum();
        assert!(lines <= CRATE_LINES_MAX, "`{name}` has {lines} lines, at most {CRATE_LINES_MAX}");
    }
}

#[test]
fn every_file_starts_with_a_module_comment() {
    for name in crates() {
        for (path, code) in sources(&name) {
            assert!(code.starts_with("//!"), "{}: no `//!` at the top", path.display());
        }
    }
}

/// A drop reason that only occurs in hand-wired graphs.
const BY_HAND: &str = "sent to a source";

#[test]
fn drop_reasons_are_those_that_kinds_declare() {
    let pages: Vec<_> = Registry::builtin().all().collect();
    let declared: BTreeSet<&str> =
        pages.iter().flat_map(|page| page.drops.iter().map(|drop| drop.0)).collect();
    let mut given = BTreeSet::new();
    // Elements in Python are not kinds.
    let names = crates().into_iter().filter(|name| name != PYTHON);
    for (path, mut code) in names.flat_map(|name| sources(&name)) {
        // A declaration is not a use, unless by the name of a constant.
        while let Some((before, rest)) = code.split_once("drops: &[") {
            code = [before, rest.split_once("],\n").unwrap().1].concat();
        }
        given.extend(declared.iter().filter(|reason| code.contains(&format!("\"{reason}\""))));
        for drop in code.split("cx.drop(").skip(1) {
            let Some(reason) = drop.lines().next().unwrap().split('"').nth(1) else { continue };
            let is_known = declared.contains(reason) || reason == BY_HAND;
            assert!(is_known, "{}: no page declares `{reason}`", path.display());
        }
    }
    let missing: Vec<_> = declared.difference(&given).collect();
    assert!(missing.is_empty(), "declared, but never given as a reason: {missing:?}");
}

/// The page of attacks names the test of each, and files and tests get other names.
#[test]
fn every_test_that_the_page_of_attacks_names_is_there() {
    let page = fs::read_to_string(root().join("docs/robustness.md")).unwrap();
    let mut files = Vec::new();
    crates().iter().for_each(|name| rust_files(&folder(name), &mut files));
    let python = fs::read_dir(root().join("python/tests")).unwrap();
    files.extend(python.map(|entry| entry.unwrap().path()));
    let text = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
    let texts: Vec<(PathBuf, String)> =
        files.into_iter().map(|path| (path.clone(), text(&path))).collect();
    let is_file = |name: &str| texts.iter().any(|(path, _)| path.ends_with(name));
    let is_test = |name: &str| {
        // Tests with a `main` of their own are listed by their names.
        let forms = [format!("fn {name}("), format!("def {name}("), format!("(\"{name}\",")];
        texts.iter().any(|(_, text)| forms.iter().any(|form| text.contains(form)))
    };
    let is_crate = |name: &str| folder(name).is_dir();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    let rows = rows.iter().filter(|line| !line.starts_with("| attack "));
    let (mut rows_seen, mut names_seen) = (0, 0);
    for row in rows {
        let cell = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap();
        let names = cell.split('`').skip(1).step_by(2);
        let names: Vec<&str> = names.filter(|name| !name.starts_with("--")).collect();
        assert!(!names.is_empty() || cell.starts_with("the same"), "no test: {row}");
        for name in names {
            let is_path = name.contains(['.', '/']);
            let is_there = match is_path {
                true => is_file(name) || root().join(name).exists(),
                false => is_test(name) || is_crate(name),
            };
            assert!(is_there, "`{name}` of docs/robustness.md is not there: {row}");
            names_seen += usize::from(!is_path);
        }
        rows_seen += 1;
    }
    assert!(rows_seen >= 35 && names_seen >= 35, "{rows_seen} rows, {names_seen} names");
}

/// A crate with `autotests = false` must name each of its test files.
#[test]
fn every_test_file_is_run() {
    for name in crates() {
        let manifest = fs::read_to_string(folder(&name).join("Cargo.toml")).unwrap();
        if !manifest.contains("autotests = false") {
            continue;
        }
        let tests = folder(&name).join("tests");
        let root = fs::read_to_string(tests.join("all.rs")).unwrap();
        for entry in fs::read_dir(&tests).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let is_named = root.contains(&format!("mod {stem};"))
                || manifest.contains(&format!("[[test]]\nname = \"{stem}\""));
            let is_rust = path.extension().is_some_and(|extension| extension == "rs");
            assert!(is_named || !is_rust, "{}: nothing runs it", path.display());
        }
    }
}
