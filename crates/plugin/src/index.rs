//! The index of a code server's folder, `index.toml`, and the names and versions in it.
//!
//! ```toml
//! [[plugin]]
//! name = "dscp"
//! version = "1.2.0"
//! kinds = ["packet"]
//! length = 1234
//! hash = "(64 hexadecimal digits: SHA-256)"
//! ```
//!
//! The module lies at `NAME/VERSION.wasm`, its signature at `NAME/VERSION.wasm.minisig`. The index is a convenience,
//! not to be trusted: what it says is checked against the signature.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest index.
pub const INDEX_LEN_MAX: usize = 1 << 20;
/// The longest name.
pub const NAME_LEN_MAX: usize = 64;

/// A version of a plugin: three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// From `1.2.3`.
    pub fn parse(text: &str) -> Option<Version> {
        let mut numbers = text.split('.').map(|number| {
            let is_plain = number.bytes().all(|byte| byte.is_ascii_digit())
                && (number == "0" || !number.starts_with('0'));
            if is_plain { number.parse().ok() } else { None }
        });
        let version = Version(numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Whether a plugin may have this name: lower-case letters, digits and `-`, beginning with a letter. It becomes a part
/// of a path.
pub fn is_name(name: &str) -> bool {
    name.len() <= NAME_LEN_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Where a module lies in a code server's folder.
pub fn path(name: &str, version: Version) -> String {
    format!("{name}/{version}.wasm")
}

/// One module of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Names of the kinds that it handles.
    pub kinds: Vec<String>,
    /// Length of the module in bytes.
    pub length: u64,
    /// SHA-256 of the module.
    pub hash: String,
}

/// What a code server offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// All of its modules.
    #[serde(default, rename = "plugin")]
    pub plugins: Vec<Entry>,
}

impl Index {
    /// Reads an index; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Index, String> {
        if text.len() > INDEX_LEN_MAX {
            return Err(format!("an index of {} bytes; at most {INDEX_LEN_MAX}", text.len()));
        }
        let index: Index = toml::from_str(text).map_err(|error| error.to_string())?;
        for entry in &index.plugins {
            let Entry { name, version, hash, .. } = entry;
            if !is_name(name) {
                return Err(format!("{name:?} is no name: lower-case letters, digits and `-`"));
            }
            if Version::parse(version).is_none() {
                return Err(format!("{name}: {version:?} is no version, as 1.2.0"));
            }
            if crate::host::Hash::parse(hash).is_none() {
                return Err(format!("{name} {version}: the hash has 64 hexadecimal digits"));
            }
        }
        Ok(index)
    }
    /// As text.
    pub fn emit(&self) -> String {
        toml::to_string(self).expect("an index can be written as TOML")
    }
    /// The newest version of a plugin.
    pub fn newest(&self, name: &str) -> Option<(Version, &Entry)> {
        let named = self.plugins.iter().filter(|entry| entry.name == name);
        named
            .filter_map(|entry| Some((Version::parse(&entry.version)?, entry)))
            .max_by_key(|(version, _)| *version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |text| Version::parse(text).unwrap();
        assert!(version("1.10.0") > version("1.9.9"));
        assert_eq!(version("1.2.3").to_string(), "1.2.3");
        for wrong in ["1.2", "1.2.3.4", "1.02.3", "1.-2.3", "+1.2.3", "1.2.x", "", "1.2.4294967296"]
        {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_name_is_no_path() {
        assert!(is_name("dscp") && is_name("tcp-mss-2"));
        for wrong in ["", "..", "a/b", "A", "1a", "a.b", &"a".repeat(65), "ä"] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let entry = |version: &str| Entry {
            name: "dscp".to_owned(),
            version: version.to_owned(),
            kinds: vec!["packet".to_owned()],
            length: 10,
            hash: "0".repeat(64),
        };
        let index = Index { plugins: vec![entry("1.10.0"), entry("1.9.0")] };
        assert_eq!(Index::parse(&index.emit()), Ok(index.clone()));
        assert_eq!(index.newest("dscp").unwrap().0, Version(1, 10, 0));
        let said = |change: fn(&mut Entry)| {
            let mut index = index.clone();
            change(&mut index.plugins[0]);
            Index::parse(&index.emit()).unwrap_err()
        };
        assert!(said(|entry| entry.name = "../x".to_owned()).contains("is no name"));
        assert!(said(|entry| entry.version = "1".to_owned()).contains("as 1.2.0"));
        assert!(said(|entry| entry.hash = "1".to_owned()).contains("64"));
        assert!(Index::parse("[[plugin]]\nname = \"x\"").is_err());
    }
}
