//! A disk that listens: `disk.toml`, and a thread for each client.
//!
//! ```toml
//! file = "disk.img"            # or memory = true
//! size = "1 GiB"               # a missing file is created, sparse
//! block = 512                  # or 4096
//! listen = "127.0.0.1:10809"
//! socket = "disk.sock"         # a Unix socket, in addition or instead
//! datagrams = "127.0.0.1:10808" # NBD's requests in transactions over UDP, an experiment
//! read-only = false
//!
//! [tls]                        # NBD in TLS: for clients of other hosts the only way
//! certificate = "disk.pem"
//! key = "disk.key"
//! clients = "authority.pem"    # clients' certificates that it has signed say who they are
//!
//! [iscsi]
//! listen = "127.0.0.1:3260"
//! name = "iqn.2026-11.local.lastmeter:disk"
//! secret = "of the target"     # for initiators that ask who it is (mutual CHAP)
//!
//! [sizes]                      # disk sizes of clients, if not the size of the medium
//! alice = "4 MiB"
//!
//! [clients.alice]              # see `access`
//! token = "a long secret"
//! policies = ["first part"]
//!
//! [policies."first part"]
//! expression = "(within lba 0 8192)"
//! ```
//!
//! Rows: N-31.

use super::medium::Medium;
use super::nbd::Encryption;
use super::scsi::Unit;
use super::timing::Timing;
use super::{Disk, End, STAGES, datagrams, iscsi, nbd};
use crate::access::{Access, Client, TOKEN_LEN_MIN, Table};
use crate::account::Account;
use crate::link::{self, Patient, Stream, unpredictable};
use crate::{tls, transfer};
use lastmeter_base::{Bytes, Quantity};
use lastmeter_plugin::Kind;
use lastmeter_plugin::host::Host;
use lastmeter_plugin::setting::Setting;
use rustls::ServerConfig;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufReader, BufWriter};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Limit on concurrent clients.
pub const CLIENTS_MAX: usize = 1024;
/// Time that a client has for option negotiation.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// One request in this many is timed.
const SAMPLE: u64 = 16;
/// Bytes of a session's buffers.
const BUFFER: usize = 256 << 10;
/// A session's stack; its buffers are elsewhere.
const STACK: usize = 256 << 10;

/// What makes a model for a disk of so many bytes.
pub type Fit<'a> = &'a dyn Fn(u64) -> Result<Box<dyn Timing>, String>;

/// `disk.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// The file of the blocks.
    pub file: Option<PathBuf>,
    /// Whether blocks are kept in memory, and lost at the end.
    pub memory: bool,
    /// The size of the disk.
    pub size: Option<String>,
    /// Bytes of a block.
    pub block: Option<u32>,
    /// The address for clients.
    pub listen: Option<SocketAddr>,
    /// A Unix socket.
    pub socket: Option<PathBuf>,
    /// The address for transactions over UDP.
    pub datagrams: Option<SocketAddr>,
    /// Whether the disk is read-only for everybody.
    pub read_only: bool,
    /// TLS for NBD.
    pub tls: Option<tls::Files>,
    /// Transfers with tickets, where they are offered.
    pub transfer: Option<transfer::Config>,
    /// iSCSI, where it is offered.
    pub iscsi: Option<Iscsi>,
    /// Sizes of clients' disks.
    pub sizes: BTreeMap<String, String>,
    /// The folder of keys: modules of policies must be signed with one of them.
    pub keys: Option<PathBuf>,
    /// Its clients.
    pub clients: BTreeMap<String, Client>,
    /// Their policies.
    pub policies: BTreeMap<String, Setting>,
}

/// The target's name, unless the owner gives it one.
const TARGET: &str = "iqn.2026-11.local.lastmeter:disk";

/// The part about iSCSI.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Iscsi {
    /// The address for initiators.
    pub listen: Option<SocketAddr>,
    /// The target's name.
    pub name: Option<String>,
    /// The target's own secret.
    pub secret: Option<String>,
}

impl Iscsi {
    fn check(&self) -> Result<(), String> {
        let name = self.name.as_deref().unwrap_or(TARGET);
        let known = ["iqn.", "eui.", "naa."].iter().any(|kind| name.starts_with(kind));
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:".contains(c);
        let fits = name.len() <= lastmeter_wire::iscsi::text::NAME_MAX && name.chars().all(plain);
        if !known || !fits {
            return Err(format!("iscsi.name: {name:?} is no name such as {TARGET:?}"));
        }
        if self.secret.as_ref().is_some_and(|secret| secret.len() < TOKEN_LEN_MIN) {
            return Err(format!("iscsi.secret: it has at least {TOKEN_LEN_MIN} characters"));
        }
        Ok(())
    }
}

fn bytes(key: &str, text: &str) -> Result<u64, String> {
    let parsed = Bytes::parse(text).map_err(|error| format!("{key}: {error}"))?;
    Ok(parsed.0)
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
    /// What TLS needs, if it has a certificate, for the clients of `access`.
    ///
    /// # Errors
    /// Which file cannot be used.
    pub fn encryption(
        &self,
        folder: &Path,
        access: &Access,
    ) -> Result<Option<Arc<ServerConfig>>, String> {
        self.tls.as_ref().map(|files| tls::server(files, folder, access)).transpose()
    }
    /// The disk that it describes; files are in `folder`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn disk(&self, folder: &Path, host: Arc<Host>) -> Result<Arc<Disk>, String> {
        self.disk_like(folder, host, None)
    }
    /// The same, with a medium that takes as long as a model's; `fit` makes it for so many bytes.
    ///
    /// # Errors
    /// What is wrong.
    pub fn disk_like(
        &self,
        folder: &Path,
        host: Arc<Host>,
        fit: Option<Fit<'_>>,
    ) -> Result<Arc<Disk>, String> {
        let size = self.size.as_deref().map(|text| bytes("size", text)).transpose()?;
        let block = self.block.unwrap_or(512);
        let medium = match (&self.file, self.memory) {
            (Some(file), false) => {
                let path = folder.join(file);
                Medium::file(&path, size, block, self.read_only)
                    .map_err(|error| format!("file: {}: {error}", path.display()))?
            }
            (None, true) => {
                let size = size.ok_or("memory: give its `size`: size = \"64 MiB\"")?;
                Medium::memory(size, block).map_err(|error| format!("memory: {error}"))?
            }
            _ => return Err("give `file = \"disk.img\"` or `memory = true`".to_owned()),
        };
        let medium = match fit {
            Some(fit) => {
                let model = fit(medium.size())?;
                medium.timed(model)
            }
            None => medium,
        };
        let certificates = tls::Files::certificates(self.tls.as_ref());
        let (clients, policies) = (self.clients.clone(), self.policies.clone());
        let table = Table { clients, policies, certificates };
        let access = Access::of(table, self.keys.as_deref(), folder, Kind::Block, host)?;
        let mut sizes = BTreeMap::new();
        for (name, text) in &self.sizes {
            let key = format!("sizes.{name}");
            let wanted = bytes(&key, text)?;
            if access.client(name).is_none() {
                return Err(format!("{key}: there is no client of this name"));
            }
            if !wanted.is_multiple_of(block.into()) || wanted == 0 {
                return Err(format!("{key}: no number of blocks of {block} bytes"));
            }
            sizes.insert(name.clone(), wanted);
        }
        let account = Account::new("disk", &STAGES, SAMPLE);
        let iscsi = self.iscsi.clone().unwrap_or_default();
        iscsi.check()?;
        let name = iscsi.name.as_deref().unwrap_or(TARGET);
        let path = self.file.as_ref().map_or(folder.to_owned(), |file| folder.join(file));
        let identity = format!("{name} {}", path.canonicalize().unwrap_or(path).display());
        let (unit, secret) = (Unit::new(name, &identity), iscsi.secret);
        Ok(Arc::new(Disk { medium, access, sizes, unit, secret, account, began: Instant::now() }))
    }
}

/// A disk that listens.
pub struct Server {
    /// The disk.
    pub disk: Arc<Disk>,
    /// The address for NBD, with the assigned port.
    pub address: Option<SocketAddr>,
    /// The address for iSCSI, with the assigned port.
    pub portal: Option<SocketAddr>,
    /// The address for transactions over UDP, with the assigned port.
    pub datagrams: Option<SocketAddr>,
    /// Where it waits for tickets.
    pub transfers: Option<transfer::Listening>,
    /// Clients that are connected.
    pub clients: Arc<AtomicUsize>,
    socket: Option<PathBuf>,
}

/// What the threads of clients share.
struct Shared {
    disk: Arc<Disk>,
    clients: Arc<AtomicUsize>,
    /// Connections so far.
    number: AtomicU64,
    tell: Arc<dyn Fn(&str) + Send + Sync>,
    tls: Option<Arc<ServerConfig>>,
}

impl Server {
    /// Listens, on its own threads. `tell` is called with the reason when a session ends abnormally.
    ///
    /// # Errors
    /// If an address cannot be used.
    pub fn start(
        config: &Config,
        folder: &Path,
        disk: Arc<Disk>,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Server, String> {
        let initiators = config.iscsi.as_ref().map(|iscsi| {
            let right = "iscsi: give `listen = \"127.0.0.1:3260\"`";
            iscsi.listen.ok_or(right.to_owned())
        });
        let initiators = initiators.transpose()?;
        let serves = config.listen.is_some() || config.socket.is_some() || initiators.is_some();
        if !serves && config.datagrams.is_none() && config.transfer.is_none() {
            let right =
                "`listen = \"127.0.0.1:10809\"`, `socket = \"disk.sock\"`, [iscsi] or [transfer]";
            return Err(format!("give {right}"));
        }
        let clients = Arc::<AtomicUsize>::default();
        let number = AtomicU64::new(0);
        let tls = config.encryption(folder, &disk.access)?;
        let shared = Shared { disk, clients, number, tell: Arc::new(tell), tls };
        let shared = Arc::new(shared);
        let secured = !config.clients.is_empty();
        let address = config
            .listen
            .map(|wanted| listen("listen", wanted, secured, &shared, nbd_session))
            .transpose()?;
        let portal = initiators
            .map(|wanted| listen("iscsi.listen", wanted, secured, &shared, iscsi_session))
            .transpose()?;
        let datagrams = config.datagrams.map(|wanted| {
            may_listen("datagrams", wanted, secured)?;
            let place = |error| format!("datagrams: {wanted}: {error}");
            datagrams::listen(&shared.disk, wanted, &shared.tell).map_err(place)
        });
        let datagrams = datagrams.transpose()?;
        let socket = config.socket.as_ref().map(|path| folder.join(path));
        if let Some(path) = &socket {
            let place = |error| format!("socket: {}: {error}", path.display());
            if UnixStream::connect(path).is_err() {
                let _ = std::fs::remove_file(path);
            }
            let listener = UnixListener::bind(path).map_err(place)?;
            let shared = shared.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let Ok(writer) = stream.try_clone() else { continue };
                    begin(&shared, stream, writer, nbd_session);
                }
            });
        }
        let transfers = config.transfer.as_ref().map(|transfer| {
            let tell = shared.tell.clone();
            transfer.start(folder, shared.disk.clone(), move |why| tell(why))
        });
        let transfers = transfers.transpose()?;
        let (disk, clients) = (shared.disk.clone(), shared.clients.clone());
        Ok(Server { disk, address, portal, datagrams, transfers, clients, socket })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// How a client is served.
type Session<S> = fn(&Shared, &mut Reading<S>, S, &dyn Fn()) -> End;
type Reading<S> = BufReader<Patient<S>>;

/// A disk without clients is for this host only.
fn may_listen(key: &str, wanted: SocketAddr, secured: bool) -> Result<(), String> {
    if !wanted.ip().is_loopback() && !secured {
        let right = "or [clients.anyone] to let anybody use the disk";
        return Err(format!("{key}: {wanted}: add [clients.NAME] with a token, {right}"));
    }
    Ok(())
}

/// Listens for clients of a protocol; the address, with the assigned port.
fn listen(
    key: &str,
    wanted: SocketAddr,
    secured: bool,
    shared: &Arc<Shared>,
    session: Session<TcpStream>,
) -> Result<SocketAddr, String> {
    may_listen(key, wanted, secured)?;
    let place = |error| format!("{key}: {wanted}: {error}");
    let listener = TcpListener::bind(wanted).map_err(place)?;
    let address = listener.local_addr().map_err(place)?;
    let shared = shared.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_nodelay(true);
            let Ok(writer) = stream.try_clone() else { continue };
            begin(&shared, stream, writer, session);
        }
    });
    Ok(address)
}

fn nbd_session<S: Stream + AsFd>(
    shared: &Shared,
    reader: &mut Reading<S>,
    writer: S,
    ready: &dyn Fn(),
) -> End {
    let encryption = match shared.tls.clone() {
        None => Encryption::Absent,
        Some(config) if writer.is_local() => Encryption::Offered(config),
        Some(config) => Encryption::Required(config),
    };
    let mut writer = BufWriter::with_capacity(BUFFER, writer);
    nbd::serve(&shared.disk, reader, &mut writer, &encryption, ready)
}

fn iscsi_session(
    shared: &Shared,
    reader: &mut Reading<TcpStream>,
    mut writer: TcpStream,
    ready: &dyn Fn(),
) -> End {
    let connection = || -> Result<_, String> {
        let portal = writer.local_addr().map_err(|error| error.to_string())?.to_string();
        let stream = writer.try_clone().map_err(|error| error.to_string())?;
        // What it still sends is read no more, and the thread ends.
        let close = Box::new(move || {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
        let number = shared.number.fetch_add(1, Ordering::Relaxed);
        let (challenge, clients) = (unpredictable()?, shared.clients.clone());
        Ok(iscsi::serve::Connection { portal, challenge, number, clients, close })
    };
    match connection() {
        Ok(connection) => iscsi::serve::serve(&shared.disk, reader, &mut writer, connection, ready),
        Err(why) => End::Wrong(why),
    }
}

/// Serves a client, unless there are too many.
fn begin<S: Stream>(shared: &Arc<Shared>, stream: S, writer: S, session: Session<S>) {
    let own = shared.clone();
    link::serve(&shared.clients, CLIENTS_MAX, STACK, move || {
        let chosen = Arc::<AtomicBool>::default();
        let reader = Patient::new(stream, Instant::now() + PATIENCE, chosen.clone());
        let mut reader = BufReader::with_capacity(BUFFER, reader);
        let ready = || chosen.store(true, Ordering::Relaxed);
        if let End::Wrong(why) = session(&own, &mut reader, writer, &ready) {
            (own.tell)(&why);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_clients_is_not_offered_to_the_network() {
        use lastmeter_plugin::host::Limits;
        let text = "memory = true\nsize = '4 KiB'\nlisten = '0.0.0.0:0'";
        let config = Config::parse(text).expect("sound");
        let host = Host::new(Limits { instances: 1, ..Limits::default() }).expect("a host");
        let disk = config.disk(Path::new("."), Arc::new(host)).expect("a disk");
        let wrong = Server::start(&config, Path::new("."), disk, |_| ()).err().expect("refused");
        assert!(wrong.contains("clients.NAME"), "{wrong}");
    }
}
