//! For those who write plugins: new, build, check, test.

use super::source::{self, Source};
use super::{Complaint, Report, Ticking, kind, read, read_text, write};
use lastmeter_plugin::Kind;
use lastmeter_plugin::cases::{CASES_LEN_MAX, Cases};
use lastmeter_plugin::host::{Limits, MODULE_LEN_MAX};
use lastmeter_plugin::index::is_name;
use lastmeter_plugin::instance::{Fail, Instance};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct New {
    /// Its name, and that of the new folder: lower-case letters, digits and `-`
    name: String,
    /// What it decides about: packet, block, framebuffer or frame
    #[arg(long, value_parser = kind, default_value = "packet")]
    kind: Kind,
    /// The language of its source: c or rust
    #[arg(long, value_parser = ["c", "rust"], default_value = "c")]
    lang: String,
}

/// Source in C, source in Rust, cases.
fn template(kind: Kind) -> [&'static str; 3] {
    match kind {
        Kind::Packet => [
            include_str!("../../templates/packet.c"),
            include_str!("../../templates/packet.rs"),
            include_str!("../../templates/packet.toml"),
        ],
        Kind::Block => [
            include_str!("../../templates/block.c"),
            include_str!("../../templates/block.rs"),
            include_str!("../../templates/block.toml"),
        ],
        Kind::Framebuffer => [
            include_str!("../../templates/framebuffer.c"),
            include_str!("../../templates/framebuffer.rs"),
            include_str!("../../templates/framebuffer.toml"),
        ],
        Kind::Frame => [
            include_str!("../../templates/frame.c"),
            include_str!("../../templates/frame.rs"),
            include_str!("../../templates/frame.toml"),
        ],
    }
}

pub(crate) fn new(arguments: &New) -> Result<Report, Complaint> {
    let New { name, kind, lang } = arguments;
    if !is_name(name) {
        return Err(Complaint(format!("{name:?} is no name: lower-case letters, digits and `-`")));
    }
    let folder = PathBuf::from(name);
    if folder.exists() {
        return Err(Complaint(format!("{name} exists already")));
    }
    let [c, rust, cases] = template(*kind);
    let (end, text, interface, file) = match lang.as_str() {
        "c" => ("c", c, source::HEADER, "lastmeter.h"),
        _ => ("rs", rust, source::MODULE, "lastmeter.rs"),
    };
    let manifest = format!(
        "name = \"{name}\"\nversion = \"0.1.0\"\nkind = \"{}\"\nsource = \"plugin.{end}\"\n",
        kind.name()
    );
    write(&folder.join("plugin.toml"), manifest.as_bytes())?;
    write(&folder.join(format!("plugin.{end}")), text.replace("NAME", name).as_bytes())?;
    write(&folder.join(file), interface.as_bytes())?;
    write(&folder.join("cases.toml"), cases.as_bytes())?;
    Ok(Report {
        text: format!(
            "{name}/plugin.{end}   the source\n{name}/cases.toml   what it should do\n\
             Next: lastmeter plugin build {name}\n"
        ),
        json: vec![json!({ "folder": name, "source": format!("{name}/plugin.{end}") })],
        good: true,
    })
}

#[derive(clap::Args)]
pub(crate) struct Build {
    /// A plugin's folder, or a source: .c, .rs, .lisp or .wat
    source: PathBuf,
    /// For a source: what it decides about
    #[arg(long, value_parser = kind)]
    kind: Option<Kind>,
    /// For a source: where the module goes [default: beside it]
    #[arg(long, short)]
    out: Option<PathBuf>,
}

pub(crate) fn build(arguments: &Build) -> Result<Report, Complaint> {
    let Build { source: path, kind, out } = arguments;
    let (out, kind) = if path.is_dir() {
        let source = Source::read(path)?;
        (source.build()?, source.kind)
    } else {
        let out = out.clone().unwrap_or_else(|| path.with_extension("wasm"));
        let kind =
            kind.ok_or("what does it decide about? --kind packet, block, framebuffer or frame")?;
        source::compile(path, kind, &out)?;
        (out, kind)
    };
    examine(&out, Some(kind))
}

#[derive(clap::Args)]
pub(crate) struct Check {
    /// The module
    module: PathBuf,
    /// What it has to decide about
    #[arg(long, value_parser = kind)]
    kind: Option<Kind>,
}

pub(crate) fn check(arguments: &Check) -> Result<Report, Complaint> {
    examine(&arguments.module, arguments.kind)
}

/// Loads a module, and says what it is or why it is refused.
fn examine(path: &Path, kind: Option<Kind>) -> Result<Report, Complaint> {
    let bytes = read(path, MODULE_LEN_MAX)?;
    let sandbox = Ticking::new(Limits { instances: 2, ..Limits::default() })?;
    let shown = path.display();
    Ok(match sandbox.host.load(&stem(path), &bytes, kind) {
        Ok(class) => {
            let description = class.description;
            let (kinds, batch, wanted) =
                (description.kinds, description.batch(), description.wanted);
            let (hash, len) = (class.hash, bytes.len());
            Report {
                text: format!(
                    "{shown}: {kinds}, {len} bytes; batches of {batch} requests with {wanted} \
                     bytes of data each\n"
                ),
                json: vec![json!({
                    "module": path, "good": true, "kinds": kinds.to_string(), "length": len,
                    "batch": batch, "wanted": wanted, "hash": hash.to_string(),
                })],
                good: true,
            }
        }
        Err(refusal) => Report {
            text: format!("{shown} is refused: {refusal}\n"),
            json: vec![json!({ "module": path, "good": false, "why": refusal.to_string() })],
            good: false,
        },
    })
}

pub(super) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

#[derive(clap::Args)]
pub(crate) struct Test {
    /// A plugin's folder, or a module
    module: PathBuf,
    /// The requests and their verdicts [default: cases.toml in the folder]
    cases: Option<PathBuf>,
    /// For a module: what it decides about
    #[arg(long, value_parser = kind)]
    kind: Option<Kind>,
}

pub(crate) fn test(arguments: &Test) -> Result<Report, Complaint> {
    let Test { module, cases, kind } = arguments;
    let (module, cases, kind) = if module.is_dir() {
        let source = Source::read(module)?;
        let cases = cases.clone().unwrap_or_else(|| source.folder.join("cases.toml"));
        (source.module(), cases, source.kind)
    } else {
        let cases = cases.clone().ok_or("which cases? plugin test MODULE CASES.toml")?;
        let kind =
            kind.ok_or("what does it decide about? --kind packet, block, framebuffer or frame")?;
        (module.clone(), cases, kind)
    };
    let bytes = read(&module, MODULE_LEN_MAX)?;
    let text = read_text(&cases, CASES_LEN_MAX)?;
    let place = |error| Complaint(format!("{}: {error}", cases.display()));
    let parsed = Cases::parse(&text).map_err(place)?;
    let sandbox = Ticking::new(Limits { instances: 2, ..Limits::default() })?;
    let class = sandbox.host.load(&stem(&module), &bytes, Some(kind))?;
    let begin = lastmeter_base::Time::from_ps(0);
    let config = parsed.config.as_bytes();
    let mut instance = Instance::new(class, &stem(&module), config, Fail::Closed, 1, begin)?;
    let mut wrong = parsed.run(&mut instance, kind).map_err(place)?;
    if let Some(failure) = instance.last_failure() {
        wrong.push(format!("the plugin failed: {failure}"));
    }
    let (log, _) = instance.take_log();
    let count = parsed.cases.len();
    let mut text: String = wrong.iter().map(|line| format!("wrong: {line}\n")).collect();
    text.extend(log.iter().map(|line| format!("log: {line}\n")));
    let verdict = if wrong.is_empty() { "all as they should be" } else { "not as they should be" };
    text.push_str(&format!("{count} cases: {verdict}\n"));
    Ok(Report {
        text,
        json: vec![json!({ "cases": count, "wrong": wrong, "log": log })],
        good: wrong.is_empty(),
    })
}
