//! Who may use a device, and the owner's policies for each: read from the device's file.
//!
//! ```toml
//! [clients.alice]
//! token = "a long secret"            # whoever shows it is alice
//! certificate = "7B:87:..."          # or whoever has the certificate with this fingerprint (SHA-256)
//! policies = ["first half"]          # in front of every request of hers
//! number = 7                         # what policies see as the initiator or client; else counted
//!
//! [clients.anyone]                   # whoever shows nothing; without this entry they are refused
//! policies = ["read only"]
//!
//! [policies."read only"]
//! expression = "(read-only)"
//! ```
//!
//! Rows: N-03, N-20.

use crate::keys;
use crate::transfer::identity;
use lastmeter_base::Time;
use lastmeter_linux::files;
use lastmeter_plugin::Kind;
use lastmeter_plugin::chain::{Chain, POLICIES_MAX};
use lastmeter_plugin::host::{Host, MODULE_LEN_MAX};
use lastmeter_plugin::setting::Setting;
use lastmeter_plugin::trust::Trust;
use lastmeter_wire::certificate;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of those who show nothing.
pub const ANYONE: &str = "anyone";
/// A token shorter than this could be guessed.
pub const TOKEN_LEN_MIN: usize = 12;
/// The most clients that a file names.
pub const CLIENTS_MAX: usize = 100_000;

/// A client as the file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Client {
    /// Whoever shows it is this client.
    pub token: Option<String>,
    /// The fingerprint of a certificate (SHA-256, hexadecimal): whoever proves in TLS to have it is this client.
    pub certificate: Option<String>,
    /// Names of policies, in order.
    pub policies: Vec<String>,
    /// What policies see.
    pub number: Option<u32>,
}

/// What certificates of clients count for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificates {
    /// Nothing: the device has no TLS.
    #[default]
    Absent,
    /// Those whose fingerprints the file has are clients'.
    Pinned,
    /// Also those that an authority of the owner's has signed, and that have a client's name.
    Named,
}

/// The part of a device's file that says who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Table {
    /// By name.
    pub clients: BTreeMap<String, Client>,
    /// By name.
    pub policies: BTreeMap<String, Setting>,
    /// As the rest of the file has it.
    #[serde(skip)]
    pub certificates: Certificates,
}

/// The SHA-256 of a certificate.
type Fingerprint = [u8; 32];

/// Whose certificates are whose.
#[derive(Clone, Debug, Default)]
pub struct Certified {
    /// By their fingerprints.
    pinned: BTreeMap<Fingerprint, String>,
    /// Clients whom a signed certificate can name: those without one of their own.
    named: BTreeSet<String>,
}

impl Certified {
    /// Whether no certificate is anybody's.
    pub fn is_empty(&self) -> bool {
        self.pinned.is_empty() && self.named.is_empty()
    }
    /// Whether some are known by their fingerprints, whoever signed them.
    pub fn has_pinned(&self) -> bool {
        !self.pinned.is_empty()
    }
    /// Whose certificate it is by its fingerprint.
    pub fn pinned(&self, certificate: &[u8]) -> Option<&str> {
        let hash = ring::digest::digest(&ring::digest::SHA256, certificate);
        let fingerprint: Fingerprint = hash.as_ref().try_into().ok()?;
        self.pinned.get(&fingerprint).map(String::as_str)
    }
    /// Whose certificate it is, by its fingerprint or else its names, which somebody has verified.
    ///
    /// # Errors
    /// Why it is nobody's.
    pub fn client(&self, certificate: &[u8]) -> Result<&str, String> {
        if let Some(client) = self.pinned(certificate) {
            return Ok(client);
        }
        let names = certificate::names(certificate).map_err(|error| error.to_string())?;
        let mut clients = names.iter().filter_map(|name| self.named.get(*name)).map(String::as_str);
        match (clients.next(), clients.next()) {
            (Some(client), None) => Ok(client),
            (None, _) => Err(format!("a certificate of {names:?}: no client is called so")),
            (Some(one), Some(other)) => {
                Err(format!("a certificate of several clients: {one:?}, {other:?}"))
            }
        }
    }
}

/// Clients and policies that were checked.
#[derive(Clone)]
pub struct Access {
    table: Table,
    folder: PathBuf,
    kind: Kind,
    host: Arc<Host>,
    /// Whose signatures modules must have; `None`: they need none.
    trust: Option<Arc<Trust>>,
    /// Whose certificates are whose.
    pub certified: Certified,
}

impl Access {
    /// Checks each client and makes each chain once, so that a mistake is found when the device starts.
    /// Modules lie in `folder`.
    pub fn new(table: Table, folder: &Path, kind: Kind, host: Arc<Host>) -> Result<Access, String> {
        Access::signed(table, folder, kind, host, None)
    }
    /// The same, with modules that must be signed with one of the keys in a folder, if there is one.
    ///
    /// # Errors
    /// What is wrong with the file or the keys, or which module is not signed.
    pub fn signed(
        table: Table,
        folder: &Path,
        kind: Kind,
        host: Arc<Host>,
        keys: Option<&Path>,
    ) -> Result<Access, String> {
        let trust = keys.map(keys::read).transpose().map_err(|why| format!("keys: {why}"))?;
        if table.clients.len() > CLIENTS_MAX {
            return Err(format!("more than {CLIENTS_MAX} clients"));
        }
        let certified = certificates(&table)?;
        let mut tokens = BTreeMap::new();
        for (name, client) in &table.clients {
            if let Some(token) = &client.token {
                if token.len() < TOKEN_LEN_MIN {
                    return Err(format!(
                        "clients.{name}: a token has at least {TOKEN_LEN_MIN} characters"
                    ));
                }
                if let Some(other) = tokens.insert(token, name) {
                    return Err(format!("clients.{name}: its token is that of {other}"));
                }
            } else if name != ANYONE && client.certificate.is_none() {
                match table.certificates {
                    Certificates::Absent => {
                        return Err(format!("clients.{name}: give a `token`"));
                    }
                    Certificates::Pinned => {
                        return Err(format!("clients.{name}: give a `token` or `certificate`"));
                    }
                    Certificates::Named => {}
                }
            }
        }
        let trust = trust.map(Arc::new);
        let folder = folder.to_owned();
        let access = Access { table, folder, kind, host, trust, certified };
        for name in access.table.clients.keys() {
            access.chain(name, Time::from_ps(0)).map_err(|why| format!("clients.{name}: {why}"))?;
        }
        Ok(access)
    }
    /// As a device's file says, which lies in `folder`: everybody may do everything where it names neither clients nor
    /// policies.
    ///
    /// # Errors
    /// As [`Access::signed`].
    pub fn of(
        table: Table,
        keys: Option<&Path>,
        folder: &Path,
        kind: Kind,
        host: Arc<Host>,
    ) -> Result<Access, String> {
        if table.clients.is_empty() && table.policies.is_empty() {
            return Ok(Access::open(kind, host));
        }
        let keys = keys.map(|keys| folder.join(keys));
        Access::signed(table, folder, kind, host, keys.as_deref())
    }
    /// Everybody may do everything: a device without owner, for tests and measurements.
    pub fn open(kind: Kind, host: Arc<Host>) -> Access {
        let clients = BTreeMap::from([(ANYONE.to_owned(), Client::default())]);
        let table = Table { clients, ..Table::default() };
        let (folder, certified) = (PathBuf::new(), Certified::default());
        Access { table, folder, kind, host, trust: None, certified }
    }
    /// A client by its name.
    pub fn client(&self, name: &str) -> Option<&Client> {
        self.table.clients.get(name)
    }
    /// Names of all clients.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.table.clients.keys().map(String::as_str)
    }
    /// Whose token it is. Each token is compared in full, whatever it begins with.
    pub fn shown(&self, token: &str) -> Option<&str> {
        let same = |client: &Client| client.token.as_deref().is_some_and(|own| equal(own, token));
        self.table.clients.iter().fold(
            None,
            |found, (name, client)| {
                if same(client) { Some(name.as_str()) } else { found }
            },
        )
    }
    /// Whether some client has a token.
    pub fn has_tokens(&self) -> bool {
        self.table.clients.values().any(|client| client.token.is_some())
    }
    /// The client that a certificate is of, unless it also said to be somebody else: nothing, its name and its token
    /// agree with it.
    pub fn agreeing(&self, certified: &str, said: &str) -> Option<&str> {
        let (name, client) = self.table.clients.get_key_value(certified)?;
        let token = client.token.as_deref().is_some_and(|own| equal(own, said));
        (said.is_empty() || said == name || token).then_some(name)
    }
    /// Whose token it is, where a proof of it was shown and not the token. `proves` is asked about each.
    pub fn matching(&self, proves: impl Fn(&str) -> bool) -> Option<String> {
        let proved = |client: &Client| client.token.as_deref().is_some_and(&proves);
        let mut clients = self.table.clients.iter();
        clients.find(|(_, client)| proved(client)).map(|(name, _)| name.clone())
    }
    /// What policies see as the number of a client: its own, or its place among the names.
    pub fn number(&self, name: &str) -> u32 {
        let place = self.table.clients.keys().position(|own| own == name).unwrap_or(0);
        let own = self.client(name).and_then(|client| client.number);
        own.unwrap_or(u32::try_from(place).unwrap_or(u32::MAX))
    }
    /// A client's policies with memory of their own. A client without policies has an empty chain, which allows all.
    pub fn chain(&self, name: &str, now: Time) -> Result<Chain, String> {
        let client = self.client(name).ok_or(format!("nobody is called {name:?}"))?;
        let mut chain = Chain::default();
        for policy in &client.policies {
            let setting = self.table.policies.get(policy).ok_or_else(|| {
                let known: Vec<&str> = self.table.policies.keys().map(String::as_str).collect();
                format!("no policy is called {policy:?}; there are: {}", known.join(", "))
            })?;
            let mut setting = setting.clone();
            setting.name.get_or_insert(policy.clone());
            let seed = u64::from(self.number(name));
            let read = |file: &str| {
                let path = self.folder.join(file);
                let module = files::read(&path, MODULE_LEN_MAX)?;
                self.trust.as_ref().map_or(Ok(()), |trust| keys::admit(trust, &path, &module))?;
                Ok(module)
            };
            let made = setting.program(&self.host, self.kind, seed, now, &read)?;
            if !chain.push(Box::new(made)) {
                return Err(format!("more than {POLICIES_MAX} policies"));
            }
        }
        Ok(chain)
    }
}

/// Whose certificates are whose, as the file says.
fn certificates(table: &Table) -> Result<Certified, String> {
    let mut certified = Certified::default();
    for (name, client) in &table.clients {
        let key = format!("clients.{name}.certificate");
        match &client.certificate {
            None if name == ANYONE || table.certificates != Certificates::Named => {}
            None => {
                certified.named.insert(name.clone());
            }
            Some(_) if table.certificates == Certificates::Absent => {
                return Err(format!("{key}: certificates are shown in TLS, and there is no [tls]"));
            }
            Some(_) if name == ANYONE => {
                return Err(format!("{key}: who shows a certificate is not just anyone"));
            }
            Some(text) => {
                let fingerprint = identity::parse(&text.replace(':', "")).ok_or_else(|| {
                    let how = "openssl x509 -noout -fingerprint -sha256 -in FILE";
                    format!("{key}: {text:?} is no SHA-256 of 64 digits, as by `{how}`")
                })?;
                if let Some(other) = certified.pinned.insert(fingerprint, name.clone()) {
                    return Err(format!("{key}: it is that of {other}"));
                }
            }
        }
    }
    Ok(certified)
}

/// Compares all bytes, so that the time taken says nothing about where two texts differ.
fn equal(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_plugin::host::Limits;

    fn access(text: &str) -> Result<Access, String> {
        let host = Host::new(Limits { instances: 2, ..Limits::default() }).expect("a host");
        let table = toml::from_str(text).expect("a table");
        Access::new(table, Path::new("."), Kind::Block, Arc::new(host))
    }

    #[test]
    fn a_client_is_known_by_its_token() {
        let text = "[clients.alice]\ntoken = 'twelve or more'\npolicies = ['half']\n\
            [policies.half]\nexpression = '(within lba 0 8)'\n";
        let access = access(text).expect("checked");
        assert_eq!(access.shown("twelve or more"), Some("alice"));
        assert_eq!(access.shown("twelve or mora"), None);
        assert_eq!(access.shown(""), None);
        let chain = access.chain("alice", Time::from_ps(0)).expect("a chain");
        assert_eq!((chain.len(), chain.name(0)), (1, Some("half")));
        assert!(access.chain(ANYONE, Time::from_ps(0)).is_err(), "nobody said that anyone may");
    }

    #[test]
    fn mistakes_are_found_when_the_device_starts() {
        let wrong = |text: &str| access(text).err().expect("an error");
        assert!(wrong("[clients.a]\ntoken = 'short'").contains("at least 12"));
        assert!(wrong("[clients.a]").contains("clients.a: give a `token`"));
        let two = "[clients.a]\ntoken = 'twelve or more'\n[clients.b]\ntoken = 'twelve or more'";
        assert!(wrong(two).contains("clients.b: its token is that of a"));
        let none = "[clients.anyone]\npolicies = ['x']\n[policies.y]\nexpression = '(allow)'";
        assert!(wrong(none).contains("no policy is called \"x\"; there are: y"));
    }

    /// Names and fingerprints in certificates: each is one client's, and one that has its own is no other's.
    #[test]
    fn a_client_is_known_by_its_certificate_n_20() {
        let own = certificate::unsigned(&["carol"], &["bob"]);
        let hash = ring::digest::digest(&ring::digest::SHA256, &own);
        let fingerprint: Vec<String> =
            hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let fingerprint = fingerprint.join(":");
        let text = format!(
            "[clients.alice]\n[clients.bob]\ntoken = 'twelve or more'\n[clients.anyone]\n\
             [clients.carol]\ncertificate = '{fingerprint}'\n"
        );
        let host =
            || Arc::new(Host::new(Limits { instances: 2, ..Limits::default() }).expect("a host"));
        let access = |text: &str, certificates: Certificates| {
            let table = Table { certificates, ..toml::from_str(text).expect("a table") };
            Access::new(table, Path::new("."), Kind::Block, host())
        };
        let named = access(&text, Certificates::Named).expect("checked");
        let whose = |common: &[&str], alternative: &[&str]| {
            let certificate = certificate::unsigned(common, alternative);
            named.certified.client(&certificate).map(str::to_owned)
        };
        assert_eq!(whose(&["alice"], &[]).as_deref(), Ok("alice"));
        assert_eq!(
            whose(&["Alice Example"], &["alice@example.org", "alice"]).as_deref(),
            Ok("alice")
        );
        assert_eq!(whose(&["bob"], &["bob"]).as_deref(), Ok("bob"));
        assert!(whose(&["Alice"], &[]).is_err_and(|why| why.contains("no client is called so")));
        assert!(whose(&["anyone"], &[]).is_err(), "who shows a certificate is not just anyone");
        assert!(whose(&["alice"], &["bob"]).is_err_and(|why| why.contains("several clients")));
        // Carol has a certificate of her own: no other one is hers, and it is nobody else's.
        assert_eq!(named.certified.client(&own).as_deref(), Ok("carol"));
        assert!(whose(&["carol"], &[]).is_err());
        assert_eq!(named.agreeing("bob", ""), Some("bob"));
        assert_eq!(named.agreeing("bob", "bob"), Some("bob"));
        assert_eq!(named.agreeing("bob", "twelve or more"), Some("bob"));
        assert_eq!(named.agreeing("alice", "twelve or more"), None);
        assert_eq!(named.agreeing("carol", "anyone"), None);
        // Where no authority signs, names count for nothing.
        let wrong = |text: &str, certificates| access(text, certificates).err().expect("an error");
        let pinned = format!("[clients.carol]\ncertificate = '{fingerprint}'\n");
        let only = access(&pinned, Certificates::Pinned).expect("checked");
        assert_eq!(only.certified.client(&own).as_deref(), Ok("carol"));
        assert!(only.certified.client(&certificate::unsigned(&["carol"], &[])).is_err());
        assert!(
            wrong(&text, Certificates::Pinned).contains("alice: give a `token` or `certificate`")
        );
        assert!(wrong(&pinned, Certificates::Absent).contains("there is no [tls]"));
        let twice = format!("{pinned}[clients.dave]\ncertificate = '{fingerprint}'\n");
        let said = wrong(&twice, Certificates::Named);
        assert!(said.contains("clients.dave.certificate: it is that of carol"), "{said}");
        let short = pinned.replace(":", "").replacen("certificate = '", "certificate = '0", 1);
        assert!(wrong(&short, Certificates::Named).contains("is no SHA-256 of 64 digits"));
        let anyone = pinned.replace("carol", "anyone");
        assert!(wrong(&anyone, Certificates::Named).contains("not just anyone"));
    }
}
