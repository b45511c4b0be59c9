//! Answers to requests: from the parsed request to the response, without sockets.

use super::events::CheckJob;
use super::guard::{Guard, Refused};
use super::route::{Asset, Named, ResultFile, Route, parameter, route};
use super::runs::{RunRequest, Runs};
use super::shelf::{Shelf, TEXT_MAX, title_of};
use super::view;
use hyper::{Method, Request, StatusCode};
use lastmeter_lab::kinds::Registry;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::schema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Longer bodies are refused: a text, with some room for its JSON.
pub(super) const BODY_MAX: usize = 2 * TEXT_MAX;

/// The server's state.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) guard: Guard,
    pub(super) shelf: Shelf,
    pub(super) runs: Arc<Runs>,
}

/// A response.
#[derive(Debug)]
pub(super) enum Answer {
    Asset(&'static Asset),
    Json(StatusCode, Value),
    /// The schema and the kinds, as text that never changes.
    Words(&'static str),
    File(PathBuf, &'static ResultFile),
    /// A redirect to the page, with this cookie.
    Welcome(String),
    Plain(StatusCode, &'static str),
    /// The result of checking a text.
    Check(CheckJob),
    /// An event stream for as long as somebody listens, following this run.
    Events(Option<u64>),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    pub(super) words: String,
}

impl Fault {
    pub(super) fn new(status: StatusCode, words: impl Into<String>) -> Fault {
        Fault { status, words: words.into() }
    }
}

/// A text to run, check or save.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    /// `bundled/NAME` or `file/PATH`; not needed where the URL has it.
    #[serde(default)]
    experiment: String,
    text: String,
    #[serde(default)]
    note: String,
    #[serde(default)]
    quick: bool,
    /// The hash of the text that was edited.
    #[serde(default)]
    base: Option<String>,
}

const NO_TOKEN: &str =
    "This page requires a token: open the link that `lastmeter serve` printed.\n";
const WRONG_HOST: &str = "This is not a name of this server: open the link that it printed.\n";
const FOREIGN: &str = "Only the page itself may request this.\n";

/// Answers a request whose body is read and is no longer than [`BODY_MAX`].
pub(super) fn answer(site: &Site, request: &Request<Vec<u8>>) -> Answer {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let given = parameter(query, "token").filter(|_| path == "/");
    match site.guard.check(request, given.as_deref()) {
        Ok(()) => {}
        Err(Refused::Host) => return Answer::Plain(StatusCode::MISDIRECTED_REQUEST, WRONG_HOST),
        Err(Refused::Token) => return Answer::Plain(StatusCode::UNAUTHORIZED, NO_TOKEN),
        Err(Refused::Foreign) => return Answer::Plain(StatusCode::FORBIDDEN, FOREIGN),
    }
    // The token moves from the URL to a cookie, to stay out of bookmarks and history.
    if let Some(cookie) = given.and_then(|given| site.guard.cookie_for(&given)) {
        return Answer::Welcome(cookie);
    }
    let Some(route) = route(request.method(), path, query) else {
        let elsewhere = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
        let exists = elsewhere.iter().any(|method| route_exists(method, path, query));
        return match exists {
            true => fault(&Fault::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")),
            false => fault(&Fault::new(StatusCode::NOT_FOUND, "not found")),
        };
    };
    fulfil(site, route, request.body()).unwrap_or_else(|problem| fault(&problem))
}

fn route_exists(method: &Method, path: &str, query: &str) -> bool {
    route(method, path, query).is_some()
}

fn fault(fault: &Fault) -> Answer {
    Answer::Json(fault.status, json!({ "fault": fault.words }))
}

fn fulfil(site: &Site, route: Route, body: &[u8]) -> Result<Answer, Fault> {
    let Site { shelf, runs, .. } = site;
    let value = match route {
        Route::Asset(asset) => return Ok(Answer::Asset(asset)),
        Route::Words => return Ok(Answer::Words(words())),
        Route::Events(run) => return Ok(Answer::Events(run)),
        Route::Result(id, result) => {
            let path = runs.store.path(runs.record(id)?.id).join(result.name);
            if !path.is_file() {
                return Err(Fault::new(StatusCode::NOT_FOUND, "this run has no such file"));
            }
            return Ok(Answer::File(path, result));
        }
        Route::Experiments => shelf.list(),
        Route::Experiment(named) => {
            let found = shelf.read(&named)?;
            json!({ "text": found.text, "hash": found.hash })
        }
        Route::Save(parts) => {
            let Body { text, base, .. } = read(body)?;
            json!({ "hash": shelf.save(&parts, &text, base.as_deref())? })
        }
        Route::Check => {
            let Body { experiment, text, .. } = read(body)?;
            let named = named(&experiment)?;
            let within = shelf.library(&named).within().cloned();
            let (name, memory) = (title_of(&named), runs.memory());
            return Ok(Answer::Check(CheckJob { name, text, within, memory }));
        }
        Route::Runs => json!(runs.list()),
        Route::Begin => {
            let Body { experiment, text, note, quick, .. } = read(body)?;
            let request = RunRequest { named: named(&experiment)?, text, note, quick };
            json!({ "id": runs.begin(request, shelf)? })
        }
        Route::Run(id) => json!(runs.record(id)?),
        Route::Stop(id) => {
            runs.stop(id)?;
            json!({})
        }
        Route::Forget(id) => {
            runs.forget(id)?;
            json!({})
        }
        Route::View { run, paths, resources } => {
            let ledger = ledger(runs, run)?;
            view::view(&ledger, paths, resources)
        }
        Route::Points(id) => {
            runs.record(id)?;
            runs.store.course(id)
        }
        Route::Compare(first, second) => {
            let (one, other) = (ledger(runs, first)?, ledger(runs, second)?);
            let names = [format!("run {first}"), format!("run {second}")];
            view::comparison([&names[0], &names[1]], [&one, &other])
        }
    };
    Ok(Answer::Json(StatusCode::OK, value))
}

fn ledger(runs: &Runs, id: u64) -> Result<Arc<lastmeter_ledger::Ledger>, Fault> {
    runs.record(id)?;
    runs.store.ledger(id).map_err(|words| Fault::new(StatusCode::NOT_FOUND, words))
}

fn read(body: &[u8]) -> Result<Body, Fault> {
    let body: Body = serde_json::from_slice(body).map_err(|error| {
        Fault::new(StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}"))
    })?;
    match body.text.len() > TEXT_MAX {
        true => Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "the text is too long")),
        false => Ok(body),
    }
}

/// An experiment's name in a body.
fn named(key: &str) -> Result<Named, Fault> {
    let bad = || Fault::new(StatusCode::BAD_REQUEST, "this is not the name of an experiment");
    // The same rules as for the names in links.
    let path = format!("/api/experiments/{}", key.replace('%', "%25"));
    match route(&Method::GET, &path, "") {
        Some(Route::Experiment(named)) => Ok(named),
        _ => Err(bad()),
    }
}

/// What experiments can contain: schema, kinds, and the names of profiles.
fn words() -> &'static str {
    static WORDS: OnceLock<String> = OnceLock::new();
    WORDS.get_or_init(|| {
        let kinds = Registry::builtin().list_json();
        let mut profiles: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let pages = kinds["kinds"].as_array().into_iter().flatten();
        let params = pages.filter_map(|page| page["parameters"].as_array()).flatten();
        for param in params {
            if let Some(folder) = param["kind"].as_str().and_then(|k| k.strip_prefix("profile of "))
            {
                profiles.entry(folder.to_owned()).or_insert_with(|| Builtin.names(folder));
            }
        }
        let words = json!({
            "schema": schema::experiment(Registry::builtin()),
            "kinds": kinds["kinds"],
            "profiles": profiles,
            "version": env!("CARGO_PKG_VERSION"),
        });
        words.to_string()
    })
}
