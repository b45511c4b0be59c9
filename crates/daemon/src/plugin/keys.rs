//! Owners' keys on disk: key, sign, and the folder of keys that a device trusts.
//!
//! ```text
//! KEYS/alice.pub     public keys, in minisign's format; the file's name is the owner
//! KEYS/trust.toml    what is revoked and pinned (optional)
//! KEYS/state.toml    the newest version of each plugin that ran; written by us
//! KEYS/audit.jsonl   a line for each load, configuration, unload and refusal; only ever appended to
//! ```

use super::source::Source;
use super::{Complaint, Report, Ticking, read, read_text, seconds, write};
use lastmeter_plugin::Kind;
use lastmeter_plugin::host::{Limits, MODULE_LEN_MAX};
use lastmeter_plugin::index::{self, Entry, INDEX_LEN_MAX, Index, Version, is_name};
use lastmeter_plugin::trust::{self, Line, TEXT_LEN_MAX, Trust};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The longest `trust.toml` and `state.toml`.
const RULES_LEN_MAX: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Make {
    /// The owner's name; the files are OWNER.pub and OWNER.key
    owner: String,
    /// The folder of the public key
    #[arg(long, default_value = ".")]
    keys: PathBuf,
    /// The folder of the secret key
    #[arg(long, default_value = ".")]
    secret: PathBuf,
}

pub(crate) fn make(arguments: &Make) -> Result<Report, Complaint> {
    let Make { owner, keys, secret } = arguments;
    if !is_name(owner) {
        return Err(Complaint(format!("{owner:?} is no name: lower-case letters, digits and `-`")));
    }
    let (public, secret) = (keys.join(format!("{owner}.pub")), secret.join(format!("{owner}.key")));
    for path in [&public, &secret] {
        if path.exists() {
            return Err(Complaint(format!("{} exists already", path.display())));
        }
    }
    let (public_text, secret_text) = trust::new_keys(owner)?;
    write_secret(&secret, &secret_text)?;
    write(&public, public_text.as_bytes())?;
    Ok(Report {
        text: format!(
            "{}   give this one to devices\n{}   keep this one: whoever has it can sign\n",
            public.display(),
            secret.display()
        ),
        json: vec![json!({ "public": public, "secret": secret })],
        good: true,
    })
}

/// Readable for its owner only.
fn write_secret(path: &Path, text: &str) -> Result<(), Complaint> {
    use std::os::unix::fs::OpenOptionsExt;
    let place = |error| Complaint(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(place)?;
    }
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(place)
}

#[derive(clap::Args)]
pub(crate) struct Sign {
    /// A plugin's folder, or a module
    module: PathBuf,
    /// The owner's secret key; a password is taken from LASTMETER_KEY_PASSWORD
    #[arg(long)]
    key: PathBuf,
    /// For a module: the plugin's name
    #[arg(long)]
    name: Option<String>,
    /// The version [default: that of the folder]
    #[arg(long)]
    version: Option<String>,
    /// A code server's folder, to which the module, its signature and a line of the index are added
    #[arg(long)]
    into: Option<PathBuf>,
}

pub(crate) fn sign(arguments: &Sign) -> Result<Report, Complaint> {
    let Sign { module, key, name, version, into } = arguments;
    let folder = if module.is_dir() { Some(Source::read(module)?) } else { None };
    let given = version
        .as_deref()
        .map(|text| Version::parse(text).ok_or(format!("{text:?} is no version, as 1.2.0")));
    let version = given.transpose()?.or(folder.as_ref().map(|source| source.version));
    let name = name.clone().or(folder.as_ref().map(|source| source.name.clone()));
    let path = folder.as_ref().map_or_else(|| module.clone(), Source::module);
    let (Some(version), Some(name)) = (version, name) else {
        return Err(Complaint("a module needs --name and --version".to_owned()));
    };
    if !is_name(&name) {
        return Err(Complaint(format!("{name:?} is no name: lower-case letters, digits and `-`")));
    }
    let bytes = read(&path, MODULE_LEN_MAX)?;
    // What would be refused everywhere is not worth a signature.
    let sandbox = Ticking::new(Limits { instances: 1, ..Limits::default() })?;
    let class = sandbox.host.load(&name, &bytes, None);
    let class = class.map_err(|refusal| format!("{}: {refusal}", path.display()))?;
    let secret = read_text(key, TEXT_LEN_MAX)?;
    let password = std::env::var("LASTMETER_KEY_PASSWORD").ok();
    let signature = trust::sign(&secret, password, &name, version, &bytes)?;
    let target = match into {
        Some(folder) => folder.join(index::path(&name, version)),
        None => path.clone(),
    };
    let mut beside = target.clone().into_os_string();
    beside.push(".minisig");
    let beside = PathBuf::from(beside);
    if let Some(folder) = into {
        if target.exists() && read(&target, MODULE_LEN_MAX)? != bytes {
            let shown = target.display();
            return Err(Complaint(format!("{shown} is another module; give it a new version")));
        }
        write(&target, &bytes)?;
        let kinds = class.description.kinds;
        let named = Kind::ALL.into_iter().filter(|kind| kinds.has(*kind));
        let entry = Entry {
            name: name.clone(),
            version: version.to_string(),
            kinds: named.map(|kind| kind.name().to_owned()).collect(),
            length: bytes.len() as u64,
            hash: class.hash.to_string(),
        };
        write(&beside, signature.as_bytes())?;
        enter(&folder.join("index.toml"), entry)?;
    } else {
        write(&beside, signature.as_bytes())?;
    }
    Ok(Report {
        text: format!("{}   the signature of {name} {version}\n", beside.display()),
        json: vec![json!({
            "name": name, "version": version.to_string(), "hash": class.hash.to_string(),
            "signature": beside,
        })],
        good: true,
    })
}

/// Adds a module to an index, or replaces it.
fn enter(path: &Path, entry: Entry) -> Result<(), Complaint> {
    let mut index = Index::default();
    if path.exists() {
        let place = |error| Complaint(format!("{}: {error}", path.display()));
        index = Index::parse(&read_text(path, INDEX_LEN_MAX)?).map_err(place)?;
    }
    let is_other = |other: &Entry| (&other.name, &other.version) != (&entry.name, &entry.version);
    index.plugins.retain(is_other);
    index.plugins.push(entry);
    write(path, index.emit().as_bytes())
}

/// The folder of keys that a device trusts.
pub(super) struct Keys {
    folder: PathBuf,
    pub(super) trust: Trust,
}

impl Keys {
    pub(super) fn read(folder: &Path) -> Result<Keys, Complaint> {
        let place = |path: &Path, error: String| Complaint(format!("{}: {error}", path.display()));
        let mut trust = lastmeter_device::keys::read(folder).map_err(Complaint)?;
        let path = folder.join("state.toml");
        if path.exists() {
            let newest: BTreeMap<String, String> =
                toml::from_str(&read_text(&path, RULES_LEN_MAX)?)
                    .map_err(|error| place(&path, error.to_string()))?;
            for (name, version) in newest {
                let version = Version::parse(&version)
                    .ok_or_else(|| place(&path, format!("{version:?} is no version")))?;
                trust.note(&name, version);
            }
        }
        Ok(Keys { folder: folder.to_owned(), trust })
    }
    /// Keeps the newest versions across restarts.
    pub(super) fn save(&self) -> Result<(), Complaint> {
        let newest: BTreeMap<&str, String> =
            self.trust.newest().map(|(name, version)| (name, version.to_string())).collect();
        write(&self.folder.join("state.toml"), toml::to_string(&newest)?.as_bytes())
    }
    /// Appends a line to the audit log.
    pub(super) fn audit(&self, mut line: Line) -> Result<(), Complaint> {
        line.at = seconds();
        let path = self.folder.join("audit.jsonl");
        let place = |error| Complaint(format!("{}: {error}", path.display()));
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let text = format!("{}\n", serde_json::to_string(&line)?);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(place)
    }
}
