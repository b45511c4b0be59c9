//! Who may say what runs: signatures, pins, revocations, versions that do not go back, and a line for each decision.
//!
//! Signatures are minisign's (<https://jedisct1.github.io/minisign/>): Ed25519 over the BLAKE2b hash of the module,
//! and over a trusted comment, here `lastmeter:request/1 NAME VERSION`. So a module cannot be passed off as another
//! one, or an old version as a new one. The program `minisign` makes and checks the same signatures.
//!
//! [`Trust::admit`] decides, in this order: the module's length, the signature's key (known, not revoked), the
//! signature, its comment (this name, this version), the hash (not revoked, the pinned one), the version (none older
//! than one that was admitted before, unless asked). Each decision is one [`Line`] of the audit log.
//!
//! Rows: D-48.

use crate::abi::INTERFACE;
use crate::host::{Hash, MODULE_LEN_MAX};
use crate::index::{Version, is_name};
use minisign::{KeyPair, PublicKey, PublicKeyBox, SecretKey, SecretKeyBox, SignatureBox};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Cursor;

/// The longest key or signature, as text.
pub const TEXT_LEN_MAX: usize = 4096;
/// The most keys of owners.
pub const KEYS_MAX: usize = 256;

/// A key of an owner.
#[derive(Clone)]
struct Key {
    owner: String,
    key: PublicKey,
}

/// The identifier of a key: eight bytes, printed as minisign prints them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 8]);

impl KeyId {
    fn of(bytes: &[u8]) -> Option<KeyId> {
        bytes.try_into().ok().map(KeyId)
    }
    /// From 16 hexadecimal digits.
    pub fn parse(text: &str) -> Option<KeyId> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = if is_hex { u64::from_str_radix(text, 16).ok()? } else { return None };
        Some(KeyId(number.to_le_bytes()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", u64::from_le_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is revoked and pinned, as the owner writes it: `trust.toml` beside the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Identifiers of keys that are not trusted any more.
    #[serde(default)]
    pub revoked_keys: Vec<String>,
    /// Hashes of modules that must not run.
    #[serde(default)]
    pub revoked_modules: Vec<String>,
    /// By the plugin's name.
    #[serde(default)]
    pub pins: BTreeMap<String, Pin>,
}

/// The only version of a plugin that may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Its version; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its hash; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// What was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The module's hash.
    pub hash: Hash,
    /// Whose key signed it.
    pub owner: String,
    /// The key.
    pub key: KeyId,
}

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds since 1970.
    pub at: u64,
    /// `load`, `refuse`, `unload`, `configure`, `rollback`.
    pub event: String,
    /// The plugin.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its hash, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The key's identifier, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// The keys and rules of a device's owner.
#[derive(Clone, Default)]
pub struct Trust {
    keys: BTreeMap<KeyId, Key>,
    revoked_keys: BTreeSet<KeyId>,
    revoked_modules: BTreeSet<Hash>,
    pins: BTreeMap<String, (Option<Version>, Option<Hash>)>,
    newest: BTreeMap<String, Version>,
}

/// The trusted comment of a signature.
pub fn comment(name: &str, version: Version) -> String {
    format!("{INTERFACE} {name} {version}")
}

impl Trust {
    /// Adds an owner's key, in minisign's format; returns its identifier.
    pub fn add_key(&mut self, owner: &str, text: &str) -> Result<KeyId, String> {
        if self.keys.len() >= KEYS_MAX {
            return Err(format!("more than {KEYS_MAX} keys"));
        }
        let key = public_key(text)?;
        let id = KeyId::of(key.keynum()).ok_or("the key has no identifier")?;
        self.keys.insert(id, Key { owner: owner.to_owned(), key });
        Ok(id)
    }
    /// Replaces what is revoked and pinned; without effect if something in it is wrong.
    pub fn set_rules(&mut self, rules: &Rules) -> Result<(), String> {
        let hash = |text: &String| {
            Hash::parse(text).ok_or(format!("{text:?} is no hash: 64 hexadecimal digits"))
        };
        let keys = rules.revoked_keys.iter().map(|text| {
            KeyId::parse(text).ok_or(format!("{text:?} is no key: 16 hexadecimal digits"))
        });
        let keys = keys.collect::<Result<_, String>>()?;
        let modules = rules.revoked_modules.iter().map(hash).collect::<Result<_, String>>()?;
        let mut pins = BTreeMap::new();
        for (name, pin) in &rules.pins {
            let version = pin.version.as_ref().map(|text| {
                Version::parse(text).ok_or(format!("pin of {name}: {text:?} is no version"))
            });
            let hash = pin.hash.as_ref().map(hash).transpose()?;
            pins.insert(name.clone(), (version.transpose()?, hash));
        }
        (self.revoked_keys, self.revoked_modules, self.pins) = (keys, modules, pins);
        Ok(())
    }
    /// The newest version of each plugin that was admitted; to be kept across restarts.
    pub fn newest(&self) -> impl Iterator<Item = (&str, Version)> {
        self.newest.iter().map(|(name, version)| (name.as_str(), *version))
    }
    /// Notes that a version was admitted before.
    pub fn note(&mut self, name: &str, version: Version) {
        let newest = self.newest.entry(name.to_owned()).or_insert(version);
        *newest = version.max(*newest);
    }
    /// Whether a module may run under this name, as this version; `rollback` allows one older than before. The error
    /// says why not.
    pub fn admit(
        &mut self,
        name: &str,
        version: Version,
        module: &[u8],
        signature: &str,
        rollback: bool,
    ) -> Result<Admitted, String> {
        if !is_name(name) {
            return Err(format!("{name:?} is no name: lower-case letters, digits and `-`"));
        }
        if module.len() > MODULE_LEN_MAX {
            return Err(format!("a module of {} bytes; at most {MODULE_LEN_MAX}", module.len()));
        }
        let (id, owner) = self.signer(module, &comment(name, version), signature)?;
        let hash = Hash::of(module);
        if self.revoked_modules.contains(&hash) {
            return Err(format!("the module {hash} is revoked"));
        }
        if let Some((pinned, pinned_hash)) = self.pins.get(name) {
            if pinned.is_some_and(|pinned| pinned != version) {
                let pinned = pinned.map(|version| version.to_string()).unwrap_or_default();
                return Err(format!("pinned to version {pinned}; this is {version}"));
            }
            if pinned_hash.is_some_and(|pinned| pinned != hash) {
                return Err(format!("pinned to another module; this is {hash}"));
            }
        }
        if let Some(newest) = self.newest.get(name).filter(|newest| version < **newest && !rollback)
        {
            return Err(format!("older than {newest}, which ran before; --rollback allows it"));
        }
        let owner = owner.to_owned();
        self.note(name, version);
        Ok(Admitted { hash, owner, key: id })
    }
    /// The owner who signed these bytes under a trusted comment, which says what they are; else why nobody did.
    pub fn check(&self, bytes: &[u8], comment: &str, signature: &str) -> Result<String, String> {
        self.signer(bytes, comment, signature).map(|(_, owner)| owner.to_owned())
    }
    fn signer(
        &self,
        bytes: &[u8],
        comment: &str,
        signature: &str,
    ) -> Result<(KeyId, &str), String> {
        let signature = signature_box(signature)?;
        let id = KeyId::of(signature.keynum()).ok_or("the signature names no key")?;
        if self.revoked_keys.contains(&id) {
            return Err(format!("key {id} is revoked"));
        }
        let unknown =
            || format!("signed with key {id}, which is none of the {} here", self.keys.len());
        let key = self.keys.get(&id).ok_or_else(unknown)?;
        minisign::verify(&key.key, &signature, Cursor::new(bytes), true, false, false)
            .map_err(|_| format!("the signature with {}'s key {id} does not fit", key.owner))?;
        let found = signature.trusted_comment().map_err(|error| error.to_string())?;
        match found == comment {
            true => Ok((id, &key.owner)),
            false => Err(format!("signed as {found:?}; it should be {comment:?}")),
        }
    }
}

/// The name and the version that a signature claims, which are true only once [`Trust::admit`] has checked it.
pub fn claimed(signature: &str) -> Option<(String, Version)> {
    let comment = signature_box(signature).ok()?.trusted_comment().ok()?;
    let (name, version) = comment.strip_prefix(INTERFACE)?.trim_start().split_once(' ')?;
    Some((name.to_owned(), Version::parse(version)?))
}

fn public_key(text: &str) -> Result<PublicKey, String> {
    let wrong = |error: minisign::PError| format!("not a public key of minisign: {error}");
    if text.len() > TEXT_LEN_MAX {
        return Err(format!("a key of {} bytes; at most {TEXT_LEN_MAX}", text.len()));
    }
    PublicKeyBox::from_string(text).and_then(PublicKeyBox::into_public_key).map_err(wrong)
}

fn signature_box(text: &str) -> Result<SignatureBox, String> {
    if text.len() > TEXT_LEN_MAX {
        return Err(format!("a signature of {} bytes; at most {TEXT_LEN_MAX}", text.len()));
    }
    let wrong = |error: minisign::PError| format!("not a signature of minisign: {error}");
    let signature = SignatureBox::from_string(text).map_err(wrong)?;
    if !signature.is_prehashed() {
        return Err("a signature in minisign's old format; sign without -l".to_owned());
    }
    Ok(signature)
}

/// A new pair of keys, as the texts of its public and its secret file. The secret key is protected by the file's
/// permissions alone, as with `minisign -G -W`.
pub fn new_keys(owner: &str) -> Result<(String, String), String> {
    let failed = |error: minisign::PError| format!("no key could be made: {error}");
    let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().map_err(failed)?;
    let public = pk.to_box().map_err(failed)?.into_string();
    let comment = format!("secret key of {owner} for lastmeter's plugins");
    Ok((public, sk.to_box(Some(&comment)).map_err(failed)?.into_string()))
}

/// Signs a module as this version of a plugin.
pub fn sign(
    secret: &str,
    password: Option<String>,
    name: &str,
    version: Version,
    module: &[u8],
) -> Result<String, String> {
    sign_as(secret, password, &comment(name, version), module)
}

/// Signs bytes under a trusted comment, which says what they are.
pub fn sign_as(
    secret: &str,
    password: Option<String>,
    comment: &str,
    bytes: &[u8],
) -> Result<String, String> {
    let wrong = |error: minisign::PError| format!("not a secret key of minisign: {error}");
    let secret = SecretKeyBox::from_string(secret).map_err(wrong)?;
    let key: SecretKey = match password {
        Some(password) => secret.into_secret_key(Some(password)),
        None => secret.into_unencrypted_secret_key(),
    }
    .map_err(wrong)?;
    let signature = minisign::sign(None, &key, Cursor::new(bytes), Some(comment), None);
    let failed = |error: minisign::PError| format!("it could not be signed: {error}");
    Ok(signature.map_err(failed)?.into_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: Version = Version(1, 2, 0);
    const MODULE: &[u8] = b"\0asm\x01\0\0\0";

    struct Owner {
        trust: Trust,
        secret: String,
        id: KeyId,
    }

    fn owner() -> Owner {
        let (public, secret) = new_keys("alice").unwrap();
        let mut trust = Trust::default();
        let id = trust.add_key("alice", &public).unwrap();
        Owner { trust, secret, id }
    }

    #[test]
    fn a_signed_module_is_admitted_as_what_it_was_signed_for_and_nothing_else() {
        let Owner { mut trust, secret, id } = owner();
        let signature = sign(&secret, None, "dscp", VERSION, MODULE).unwrap();
        let admitted = trust.admit("dscp", VERSION, MODULE, &signature, false).unwrap();
        assert_eq!((admitted.owner.as_str(), admitted.key), ("alice", id));
        let mut refused = |name, version, module: &[u8], signature: &str, word: &str| {
            let said = trust.admit(name, version, module, signature, false).unwrap_err();
            assert!(said.contains(word), "{said}");
        };
        refused("nat", VERSION, MODULE, &signature, "signed as");
        refused("dscp", Version(1, 3, 0), MODULE, &signature, "signed as");
        refused("dscp", VERSION, &MODULE[..7], &signature, "does not fit");
        refused("dscp", VERSION, b"\0asm\x01\0\0\x01", &signature, "does not fit");
        refused("dscp", VERSION, MODULE, "", "not a signature");
        refused("dscp", VERSION, MODULE, &"x".repeat(5000), "at most 4096");
        refused("../x", VERSION, MODULE, &signature, "is no name");
        refused("dscp", VERSION, &[0; MODULE_LEN_MAX + 1], &signature, "at most");
        let other = owner();
        let foreign = sign(&other.secret, None, "dscp", VERSION, MODULE).unwrap();
        refused("dscp", VERSION, MODULE, &foreign, "none of the 1 here");
        // Another key under a known identifier: the signature does not fit.
        let changed = signature.replace("dscp 1.2.0", "dscp 1.3.0");
        assert_ne!(changed, signature);
        refused("dscp", Version(1, 3, 0), MODULE, &changed, "does not fit");
    }

    #[test]
    fn revoked_pinned_and_older_ones_are_refused() {
        let Owner { mut trust, secret, id } = owner();
        let signed = |version| sign(&secret, None, "dscp", version, MODULE).unwrap();
        let (old, new) = (Version(1, 9, 0), Version(1, 10, 0));
        trust.admit("dscp", new, MODULE, &signed(new), false).unwrap();
        let said = trust.admit("dscp", old, MODULE, &signed(old), false).unwrap_err();
        assert!(said.contains("older than 1.10.0"), "{said}");
        trust.admit("dscp", old, MODULE, &signed(old), true).unwrap();
        let mut with = |rules: Rules, word: &str| {
            trust.set_rules(&rules).unwrap();
            let said = trust.admit("dscp", new, MODULE, &signed(new), false).unwrap_err();
            assert!(said.contains(word), "{said}");
        };
        with(Rules { revoked_keys: vec![id.to_string()], ..Rules::default() }, "is revoked");
        let hash = Hash::of(MODULE).to_string();
        with(Rules { revoked_modules: vec![hash], ..Rules::default() }, "module");
        let pin = |version: Option<&str>, hash: Option<String>| {
            let pin = Pin { version: version.map(str::to_owned), hash };
            Rules { pins: BTreeMap::from([("dscp".to_owned(), pin)]), ..Rules::default() }
        };
        with(pin(Some("1.9.0"), None), "pinned to version 1.9.0");
        with(pin(None, Some("0".repeat(64))), "pinned to another module");
        assert!(trust.set_rules(&pin(Some("x"), None)).is_err());
        trust.set_rules(&pin(Some("1.10.0"), None)).unwrap();
        trust.admit("dscp", new, MODULE, &signed(new), false).unwrap();
    }

    #[test]
    fn a_key_prints_as_it_is_read() {
        let id = KeyId([1, 2, 3, 4, 5, 6, 7, 0xf8]);
        assert_eq!(id.to_string(), "F807060504030201");
        assert_eq!(KeyId::parse(&id.to_string()), Some(id));
        assert_eq!(KeyId::parse("+807060504030201"), None);
    }
}
