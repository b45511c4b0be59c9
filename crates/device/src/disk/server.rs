//! A disk that listens: `disk.toml`, and a thread for each client.
//!
//! ```toml
//! file = "disk.img"            # or memory = true
//! size = "1 GiB"               # a missing file is created, sparse
//! block = 512                  # or 4096
//! listen = "127.0.0.1:10809"
//! socket = "disk.sock"         # a Unix socket, in addition or instead
//! read-only = false
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
use super::nbd::{self, Disk, End, STAGES};
use crate::access::{Access, Client, Table};
use crate::account::Account;
use crate::link::{Patient, Stream};
use lastmeter_base::{Bytes, Quantity};
use lastmeter_plugin::Kind;
use lastmeter_plugin::host::Host;
use lastmeter_plugin::setting::Setting;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufReader, BufWriter};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    /// Whether the disk is read-only for everybody.
    pub read_only: bool,
    /// Sizes of clients' disks.
    pub sizes: BTreeMap<String, String>,
    /// Its clients.
    pub clients: BTreeMap<String, Client>,
    /// Their policies.
    pub policies: BTreeMap<String, Setting>,
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
    /// The disk that it describes; files are in `folder`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn disk(&self, folder: &Path, host: Arc<Host>) -> Result<Arc<Disk>, String> {
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
        let table = Table { clients: self.clients.clone(), policies: self.policies.clone() };
        let access = match table.clients.is_empty() && table.policies.is_empty() {
            true => Access::open(Kind::Block, host),
            false => Access::new(table, folder, Kind::Block, host)?,
        };
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
        Ok(Arc::new(Disk { medium, access, sizes, account, began: Instant::now() }))
    }
}

/// A disk that listens.
pub struct Server {
    /// The disk.
    pub disk: Arc<Disk>,
    /// The listening address, with the assigned port.
    pub address: Option<SocketAddr>,
    /// Clients that are connected.
    pub clients: Arc<AtomicUsize>,
    socket: Option<PathBuf>,
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
        if config.listen.is_none() && config.socket.is_none() {
            return Err(
                "give `listen = \"127.0.0.1:10809\"` or `socket = \"disk.sock\"`".to_owned()
            );
        }
        let clients = Arc::<AtomicUsize>::default();
        let tell = Arc::new(tell);
        let mut address = None;
        if let Some(wanted) = config.listen {
            if !wanted.ip().is_loopback() && config.clients.is_empty() {
                let right = "or [clients.anyone] to let anybody use the disk";
                return Err(format!("listen: {wanted}: add [clients.NAME] with a token, {right}"));
            }
            let place = |error| format!("listen: {wanted}: {error}");
            let listener = TcpListener::bind(wanted).map_err(place)?;
            address = Some(listener.local_addr().map_err(place)?);
            let (disk, clients, tell) = (disk.clone(), clients.clone(), tell.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let _ = stream.set_nodelay(true);
                    let Ok(writer) = stream.try_clone() else { continue };
                    begin(&disk, &clients, &tell, stream, writer);
                }
            });
        }
        let socket = config.socket.as_ref().map(|path| folder.join(path));
        if let Some(path) = &socket {
            let place = |error| format!("socket: {}: {error}", path.display());
            if UnixStream::connect(path).is_err() {
                let _ = std::fs::remove_file(path);
            }
            let listener = UnixListener::bind(path).map_err(place)?;
            let (disk, clients, tell) = (disk.clone(), clients.clone(), tell.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let Ok(writer) = stream.try_clone() else { continue };
                    begin(&disk, &clients, &tell, stream, writer);
                }
            });
        }
        Ok(Server { disk, address, clients, socket })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// A thread for a client, unless there are too many.
fn begin<S: Stream>(
    disk: &Arc<Disk>,
    clients: &Arc<AtomicUsize>,
    tell: &Arc<impl Fn(&str) + Send + Sync + 'static>,
    stream: S,
    writer: S,
) {
    if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
        clients.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (disk, counted, tell) = (disk.clone(), clients.clone(), tell.clone());
    let session = move || {
        let chosen = Arc::<AtomicBool>::default();
        let reader = Patient::new(stream, Instant::now() + PATIENCE, chosen.clone());
        let mut reader = BufReader::with_capacity(BUFFER, reader);
        let mut writer = BufWriter::with_capacity(BUFFER, writer);
        let ready = || chosen.store(true, Ordering::Relaxed);
        if let End::Wrong(why) = nbd::serve(&disk, &mut reader, &mut writer, ready) {
            tell(&why);
        }
        counted.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().stack_size(STACK).spawn(session).is_err() {
        clients.fetch_sub(1, Ordering::Relaxed);
    }
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
