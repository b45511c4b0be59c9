//! Where profiles and captures come from: files, which only the outermost program may open.

pub use crate::tap::Output;
pub use lastmeter_engine::site::Programs;

use crate::document::Override;
use crate::kinds::Registry;
use include_dir::{Dir, include_dir};
use std::io::Read;

/// Finds profiles by name, and opens the captures, traces and plugins that experiments name. Every method defaults to
/// [`Builtin`]'s.
pub trait Library: Sync {
    /// The text of a profile of `folder` (`hosts`, `adapters`, `links`, `switches`).
    ///
    /// # Errors
    /// If there is none; says why.
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        Builtin.profile(folder, name)
    }

    /// Opens a capture or a trace under the name used in the experiment.
    ///
    /// # Errors
    /// If it cannot be opened; says why.
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String> {
        Builtin.open(path)
    }

    /// The names of the profiles of `folder`, sorted.
    fn names(&self, folder: &str) -> Vec<String> {
        Builtin.names(folder)
    }

    /// What is set in the profile `hosts/NAME` or `adapters/NAME` before it is decoded.
    fn changes(&self, _profile: &str) -> &[Override] {
        &[]
    }

    /// The kinds that experiments can name.
    fn kinds(&self) -> &Registry {
        Registry::builtin()
    }

    /// What runs owners' programs (plugins) in models; `None` where there is no sandbox for them.
    fn programs(&self) -> Option<&dyn Programs> {
        None
    }

    /// Where to write a capture of `link`, on the first call; `None` if none is wanted, and on later calls, so that
    /// runs repeated with a change write nothing.
    fn tap(&self, _link: &str) -> Option<Output> {
        None
    }
}

static EXPERIMENTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");
static CAPTURES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../examples/captures");
static TRACES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../examples/traces");
static PLUGINS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../examples/plugins");
static PROFILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../profiles");

/// The profiles, captures and plugins built into the program; it opens no files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builtin;

impl Library for Builtin {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        let file = PROFILES.get_file(format!("{folder}/{name}.toml"));
        let text = file.and_then(|file| file.contents_utf8());
        text.map(str::to_owned).ok_or_else(|| format!("there is no profile `{name}` in {folder}"))
    }
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String> {
        // Bundled experiments name captures, traces and plugins as seen from their own folder.
        let folders = [("captures", &CAPTURES), ("traces", &TRACES), ("plugins", &PLUGINS)];
        let mut files = folders.into_iter().filter_map(|(name, folder)| {
            let rest = path.strip_prefix("../../examples/")?.strip_prefix(name)?;
            folder.get_file(rest.strip_prefix('/')?)
        });
        match files.next() {
            Some(file) => Ok(Box::new(file.contents())),
            None => Err("the program has no such built-in file".to_owned()),
        }
    }
    fn names(&self, folder: &str) -> Vec<String> {
        let files = PROFILES.get_dir(folder).into_iter().flat_map(|dir| dir.files());
        let mut names: Vec<String> = files
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "toml"))
            .filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned()))
            .collect();
        names.sort_unstable();
        names
    }
}

/// The text of a bundled experiment.
pub fn experiment(name: &str) -> Option<&'static str> {
    EXPERIMENTS.get_file(format!("{name}/experiment.toml"))?.contents_utf8()
}

/// The names of the bundled experiments that can be run, sorted.
pub fn experiments() -> Vec<String> {
    let names = EXPERIMENTS.dirs().filter_map(|folder| folder.path().to_str());
    let runs = |name: &&str| experiment(name).is_some();
    let mut names: Vec<String> = names.filter(runs).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// Whether this bundled experiment only compares a computation with published values: then it is reproduced, not
/// run.
pub fn is_reproduction(name: &str) -> bool {
    EXPERIMENTS.contains(format!("{name}/repro.toml"))
}

/// Every bundled text of experiments and profiles, with its path from the root of the repository.
pub fn texts() -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for (root, folder) in [("experiments", &EXPERIMENTS), ("profiles", &PROFILES)] {
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            folders.extend(folder.dirs());
            texts.extend(folder.files().filter_map(|file| {
                let path = format!("{root}/{}", file.path().to_str()?);
                Some((path, file.contents_utf8()?.to_owned()))
            }));
        }
    }
    texts
}
