//! Plugins from code servers (D-48): fetched and verified before anything of a configuration applies.
//!
//! ```text
//! [plugins.NAME] server, version, keys --> index, signature, module --> owner's key --> RUN/modules/NAME.wasm
//! ```
//!
//! How a server is reached and whose keys count is for whoever starts the router ([`Functions`]). A module is fetched
//! when its entry is new or has changed; a port processor that is started again finds it in the folder of sockets,
//! which only the router's owner can write to. A control processor that is started again while the server is gone
//! verifies the module that it has, with its signature.

use crate::config::{Config, Remote, cached};
use lastmeter_linux::files;
use lastmeter_plugin::host::MODULE_LEN_MAX;
use lastmeter_plugin::trust::TEXT_LEN_MAX;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Fetches modules.
pub trait Functions: Send + Sync {
    /// Fetches and verifies a module; relative folders of keys are below `folder`.
    ///
    /// # Errors
    /// Why it is refused.
    fn fetch(&self, wanted: &Remote, folder: &Path) -> Result<Module, String>;
    /// Verifies a module that was fetched before.
    ///
    /// # Errors
    /// Why it is refused.
    fn verify(
        &self,
        wanted: &Remote,
        folder: &Path,
        code: Vec<u8>,
        signature: String,
    ) -> Result<Module, String>;
}

/// A module that may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its code.
    pub code: Vec<u8>,
    /// Its signature.
    pub signature: String,
    /// Its version.
    pub version: String,
    /// Who signed it.
    pub owner: String,
    /// Stages of fetching it, and how many nanoseconds each took.
    pub stages: Vec<(&'static str, u64)>,
}

/// A fetched module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) from: Remote,
    pub(super) version: String,
    pub(super) owner: String,
}

/// Fetches what a configuration names and `fetched` does not have; returns how long each stage took. With `kept`, what
/// was fetched in an earlier life will do if the server cannot be reached.
///
/// # Errors
/// Which plugin is refused, and why. Modules that other plugins run are left as they are.
pub(super) fn fetch(
    functions: &dyn Functions,
    config: &Config,
    (folder, run): (&Path, &Path),
    kept: bool,
    fetched: &mut BTreeMap<String, Fetched>,
) -> Result<Vec<(String, f64)>, String> {
    fetched.retain(|name, one| config.remotes.get(name) == Some(&one.from));
    let mut took = Vec::new();
    let mut modules = Vec::new();
    for (name, from) in &config.remotes {
        if fetched.contains_key(name) {
            continue;
        }
        let module = functions.fetch(from, folder).or_else(|why| {
            let old = kept.then(|| before(functions, from, folder, &run.join(cached(name))));
            old.flatten().ok_or(format!("plugins.{name}: {why}"))
        });
        let Module { code, signature, version, owner, stages } = module?;
        let stages = stages.iter();
        took.extend(stages.map(|(stage, ns)| (format!("{stage} {name}"), *ns as f64 / 1e9)));
        modules.push((name, code, signature));
        fetched.insert(name.clone(), Fetched { from: from.clone(), version, owner });
    }
    let began = Instant::now();
    for (name, code, signature) in &modules {
        let path = run.join(cached(name));
        let written = write(&path.with_extension("minisig"), signature.as_bytes());
        written
            .and_then(|()| write(&path, code))
            .map_err(|why| format!("plugins.{name}: {why}"))?;
    }
    if !modules.is_empty() {
        took.push(("store".to_owned(), began.elapsed().as_secs_f64()));
    }
    Ok(took)
}

/// The module that this router had, if it may still run.
fn before(functions: &dyn Functions, from: &Remote, folder: &Path, path: &Path) -> Option<Module> {
    let code = files::read(path, MODULE_LEN_MAX).ok()?;
    let signature = files::read(&path.with_extension("minisig"), TEXT_LEN_MAX).ok()?;
    functions.verify(from, folder, code, String::from_utf8(signature).ok()?).ok()
}

/// Writes a file whole, or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let place = |error: std::io::Error| format!("{}: {error}", path.display());
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(place)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, bytes).map_err(place)?;
    std::fs::rename(&beside, path).map_err(place)
}
