//! Routing: a request's method, path and query as a typed value.

use hyper::Method;

/// Longer paths and queries match nothing.
const TARGET_MAX: usize = 4096;
/// The longest file name, as in Linux.
const NAME_MAX: usize = 255;

/// What can be requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The page or one of its assets.
    Asset(&'static Asset),
    /// Every experiment.
    Experiments,
    /// One experiment's text.
    Experiment(Named),
    /// Save a text as an experiment in the folder.
    Save(Vec<String>),
    /// Check a text.
    Check,
    /// What experiments can contain: schema, kinds, profiles.
    Words,
    /// Every run, newest first.
    Runs,
    /// Start a run.
    Begin,
    /// One run.
    Run(u64),
    /// Changes of the runs as they happen, and one run's progress.
    Events(Option<u64>),
    /// Stop a run; its results so far are kept.
    Stop(u64),
    /// Delete a run and its results.
    Forget(u64),
    /// A part of a run's ledger: from this path and this resource on.
    View { run: u64, paths: usize, resources: usize },
    /// A run's figures over simulated time.
    Points(u64),
    /// A file of a run's results.
    Result(u64, &'static ResultFile),
    /// Two ledgers side by side.
    Compare(u64, u64),
}

/// An experiment's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A bundled one.
    Bundled(String),
    /// A file in the folder; the parts of its path.
    File(Vec<String>),
}

/// A static asset of the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asset {
    pub(super) path: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

macro_rules! web {
    ($file:literal) => {
        include_str!(concat!("../../../../web/", $file))
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// All assets of the page.
pub(super) static ASSETS: [Asset; 6] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", text: web!("index.html") },
    Asset { path: "/page.js", kind: SCRIPT, text: web!("page.js") },
    Asset { path: "/page.css", kind: STYLE, text: web!("page.css") },
    Asset { path: "/icon.svg", kind: "image/svg+xml", text: web!("icon.svg") },
    Asset { path: "/uplot.js", kind: SCRIPT, text: web!("vendor/uplot/uPlot.iife.min.js") },
    Asset { path: "/uplot.css", kind: STYLE, text: web!("vendor/uplot/uPlot.min.css") },
];

/// A result file that can be downloaded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResultFile {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
}

const PARQUET: &str = "application/vnd.apache.parquet";

static RESULT_FILES: [ResultFile; 6] = [
    ResultFile { name: "ledger.html", kind: "text/html; charset=utf-8" },
    ResultFile { name: "ledger.json", kind: "application/json" },
    ResultFile { name: "experiment.toml", kind: "text/plain; charset=utf-8" },
    ResultFile { name: "stages.parquet", kind: PARQUET },
    ResultFile { name: "resources.parquet", kind: PARQUET },
    ResultFile { name: "paths.parquet", kind: PARQUET },
];

/// Routes a request; `None` where nothing matches.
pub(super) fn route(method: &Method, path: &str, query: &str) -> Option<Route> {
    if path.len() + query.len() > TARGET_MAX {
        return None;
    }
    let parts: Vec<String> =
        path.strip_prefix('/')?.split('/').map(decode).collect::<Option<_>>()?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let id = |text: &str| text.parse::<u64>().ok();
    let number = |key: &str| parameter(query, key).and_then(|text| text.parse::<u64>().ok());
    let from = |key: &str| number(key).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let reads = *method == Method::GET || *method == Method::HEAD;
    match parts.as_slice() {
        ["api", "experiments"] if reads => Some(Route::Experiments),
        ["api", "experiments", "bundled", name] if reads => {
            is_name(name).then(|| Route::Experiment(Named::Bundled((*name).to_owned())))
        }
        ["api", "experiments", "file", rest @ ..] => {
            let names = names(rest)?;
            match method {
                _ if reads => Some(Route::Experiment(Named::File(names))),
                &Method::PUT => Some(Route::Save(names)),
                _ => None,
            }
        }
        ["api", "check"] if *method == Method::POST => Some(Route::Check),
        ["api", "words"] if reads => Some(Route::Words),
        ["api", "events"] if reads => Some(Route::Events(number("run"))),
        ["api", "runs"] if reads => Some(Route::Runs),
        ["api", "runs"] if *method == Method::POST => Some(Route::Begin),
        ["api", "runs", run] if reads => Some(Route::Run(id(run)?)),
        ["api", "runs", run] if *method == Method::DELETE => Some(Route::Forget(id(run)?)),
        ["api", "runs", run, "stop"] if *method == Method::POST => Some(Route::Stop(id(run)?)),
        ["api", "runs", run, "ledger"] if reads => {
            let (paths, resources) = (from("paths"), from("resources"));
            Some(Route::View { run: id(run)?, paths, resources })
        }
        ["api", "runs", run, "points"] if reads => Some(Route::Points(id(run)?)),
        ["api", "compare"] if reads => Some(Route::Compare(number("first")?, number("second")?)),
        ["runs", run, name] if reads => {
            let file = RESULT_FILES.iter().find(|file| file.name == *name)?;
            Some(Route::Result(id(run)?, file))
        }
        _ if reads => ASSETS.iter().find(|asset| asset.path == path).map(Route::Asset),
        _ => None,
    }
}

/// A parameter of a query.
pub(super) fn parameter(query: &str, key: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == key).and_then(|(_, value)| decode(value))
}

/// The parts of a path within the folder, none of which leads out of it or is hidden.
fn names(parts: &[&str]) -> Option<Vec<String>> {
    const DEPTH_MAX: usize = 8;
    let safe = !parts.is_empty() && parts.len() <= DEPTH_MAX && parts.iter().all(|p| is_name(p));
    safe.then(|| parts.iter().map(|&part| part.to_owned()).collect())
}

/// Whether this is one file name, and not hidden.
fn is_name(name: &str) -> bool {
    let odd = |c: char| c.is_control() || matches!(c, '/' | '\\');
    !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('.') && !name.contains(odd)
}

/// Percent-decodes; `None` where the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                bytes.push((digit(rest.next())? * 16 + digit(rest.next())?) as u8);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, PathBuf};

    fn get(path: &str) -> Option<Route> {
        route(&Method::GET, path, "")
    }

    #[test]
    fn each_path_has_its_route() {
        assert!(matches!(get("/"), Some(Route::Asset(asset)) if asset.path == "/"));
        let file = |parts: &[&str]| {
            let parts = parts.iter().map(|&part| part.to_owned()).collect();
            Some(Route::Experiment(Named::File(parts)))
        };
        assert_eq!(get("/api/experiments/file/a/b%20c.toml"), file(&["a", "b c.toml"]));
        assert_eq!(get("/api/runs/7"), Some(Route::Run(7)));
        let compare = route(&Method::GET, "/api/compare", "first=1&second=2");
        assert_eq!(compare, Some(Route::Compare(1, 2)));
        assert_eq!(route(&Method::POST, "/api/runs", ""), Some(Route::Begin));
        assert!(matches!(get("/runs/7/ledger.json"), Some(Route::Result(7, _))));
    }

    #[test]
    fn no_path_leaves_the_folder() {
        for path in [
            "..",
            "../x",
            "a/../../x",
            "%2e%2e/x",
            "..%2fx",
            "a%2f..%2f..%2fx",
            ".git/config",
            "a//b",
            "",
            "/etc/passwd",
            "a%00b",
            "a%5c..%5cb",
            "%ff",
            "%",
            "%zz",
            "a/b/c/d/e/f/g/h/i",
        ] {
            assert_eq!(get(&format!("/api/experiments/file/{path}")), None, "{path}");
            let put = route(&Method::PUT, &format!("/api/experiments/file/{path}"), "");
            assert_eq!(put, None, "{path}");
        }
        assert_eq!(get("/runs/7/../../etc/passwd"), None);
        assert_eq!(get("/runs/7/run.json"), None);
        assert_eq!(get("/api/runs/-1"), None);
        assert_eq!(get(&format!("/{}", "a".repeat(TARGET_MAX))), None);
    }

    proptest! {
        /// Whatever the request, no name in it leads upwards or is hidden.
        #[test]
        fn any_path_stays_within(
            path in "(/api/experiments/(file|bundled))?(/|[.]{1,3}|%2[eEfF]|%00|[a-z%]|\\PC){0,24}",
            query in "\\PC{0,20}",
            method in prop_oneof![Just(Method::GET), Just(Method::PUT), Just(Method::DELETE)],
        ) {
            let names = match route(&method, &path, &query) {
                Some(Route::Experiment(Named::File(names)) | Route::Save(names)) => names,
                Some(Route::Experiment(Named::Bundled(name))) => vec![name],
                _ => return Ok(()),
            };
            let joined: PathBuf = names.iter().collect();
            let plain = joined.components().all(|part| matches!(part, Component::Normal(_)));
            prop_assert!(plain && joined.components().count() == names.len(), "{joined:?}");
            prop_assert!(names.iter().all(|name| !name.starts_with('.')));
        }

        #[test]
        fn names_in_links_round_trip(name in "[^./\\\\\\p{Cc}][^/\\\\\\p{Cc}]{0,20}") {
            let written: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let named = Named::Bundled(name);
            let path = format!("/api/experiments/bundled/{written}");
            prop_assert_eq!(get(&path), Some(Route::Experiment(named)));
        }
    }
}
