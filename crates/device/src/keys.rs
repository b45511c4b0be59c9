//! Keys of owners whose signatures a device trusts.
//!
//! ```text
//! KEYS/alice.pub     public keys, in minisign's format; the file's name is the owner
//! KEYS/trust.toml    what is revoked and pinned (optional)
//! ```

use lastmeter_linux::files;
use lastmeter_plugin::trust::{KEYS_MAX, Rules, TEXT_LEN_MAX, Trust, claimed};
use std::path::{Path, PathBuf};

/// The longest `trust.toml`.
const RULES_LEN_MAX: usize = 1 << 20;

fn text(path: &Path, most: usize) -> Result<String, String> {
    let bytes = files::read(path, most)?;
    String::from_utf8(bytes).map_err(|_| format!("{}: it is not text", path.display()))
}

/// Reads the folder.
///
/// # Errors
/// If there are no keys, or a file in it is wrong.
pub fn read(folder: &Path) -> Result<Trust, String> {
    let place = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut trust = Trust::default();
    let entries = std::fs::read_dir(folder).map_err(|error| place(folder, &error))?;
    let mut paths: Vec<PathBuf> =
        entries.take(16 * KEYS_MAX).filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "pub"));
    paths.sort();
    for path in &paths {
        let owner = path.file_stem().unwrap_or_default().to_string_lossy();
        let added = trust.add_key(&owner, &text(path, TEXT_LEN_MAX)?);
        added.map_err(|error| place(path, &error))?;
    }
    if paths.is_empty() {
        return Err(place(folder, &"no keys: `plugin key OWNER --keys` makes one"));
    }
    let path = folder.join("trust.toml");
    if path.exists() {
        let rules: Rules =
            toml::from_str(&text(&path, RULES_LEN_MAX)?).map_err(|error| place(&path, &error))?;
        trust.set_rules(&rules).map_err(|error| place(&path, &error))?;
    }
    Ok(trust)
}

/// Whether a module may run: its signature is in the file beside it, `NAME.wasm.minisig`.
///
/// # Errors
/// Why not.
pub fn admit(trust: &Trust, path: &Path, module: &[u8]) -> Result<(), String> {
    let beside = PathBuf::from(format!("{}.minisig", path.display()));
    let signature = text(&beside, TEXT_LEN_MAX)
        .map_err(|error| format!("it must be signed, as the file says with `keys`: {error}"))?;
    let (name, version) =
        claimed(&signature).ok_or(format!("{}: it names no plugin", beside.display()))?;
    let admitted = trust.clone().admit(&name, version, module, &signature, true);
    admitted.map(|_| ()).map_err(|error| format!("{}: {error}", beside.display()))
}
