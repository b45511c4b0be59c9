//! A display that listens: `display.toml`, a thread for each client.
//!
//! ```toml
//! name = "wall"
//! size = "1280x800"
//! listen = "127.0.0.1:5900"       # viewers, with RFB
//! commands = "127.0.0.1:5899"     # programs that draw, with framebuffer commands
//! socket = "display.sock"         # programs on this host
//! quality = 80                    # limit on JPEG quality
//! input = ["owner"]               # clients that get key and pointer events
//!
//! [regions]                       # clients' parts of the screen, if not all of it
//! guest = "320x200+100+80"
//!
//! [clients.owner]                 # see `access`
//! token = "a long secret"
//!
//! [clients.anyone]
//! policies = ["look"]
//!
//! [policies.look]
//! expression = "(= operation update)"
//! ```

use super::gate::{COMMAND_STAGES, Display, UPDATE_STAGES};
use super::screen::Screen;
use super::{commands, session};
use crate::access::{Access, Client, Table};
use crate::account::Account;
use crate::link::{Patient, Stream};
use lastmeter_plugin::Kind;
use lastmeter_plugin::host::Host;
use lastmeter_plugin::request::Rect;
use lastmeter_plugin::setting::Setting;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Limit on concurrent clients of each sort.
pub const CLIENTS_MAX: usize = 256;
/// Time that a program has to authenticate.
const PATIENCE: Duration = Duration::from_secs(15);
/// One command in this many is timed; all updates are.
const SAMPLE: u64 = 16;
/// The default limit on JPEG quality.
const QUALITY: u8 = 90;
/// A client's stack; its buffers are elsewhere.
const STACK: usize = 512 << 10;

/// `display.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// The name that viewers show.
    pub name: Option<String>,
    /// Width and height.
    pub size: Option<String>,
    /// The address for viewers.
    pub listen: Option<SocketAddr>,
    /// The address for programs.
    pub commands: Option<SocketAddr>,
    /// A Unix socket for programs.
    pub socket: Option<PathBuf>,
    /// The limit on JPEG quality.
    pub quality: Option<u8>,
    /// Clients that get key and pointer events.
    pub input: Vec<String>,
    /// Clients' parts of the screen.
    pub regions: BTreeMap<String, String>,
    /// The folder of keys: modules of policies must be signed with one of them.
    pub keys: Option<PathBuf>,
    /// Its clients.
    pub clients: BTreeMap<String, Client>,
    /// Their policies.
    pub policies: BTreeMap<String, Setting>,
}

/// `640x480` or `640x480+10+20`.
fn geometry(key: &str, text: &str) -> Result<Rect, String> {
    let wrong =
        || format!("{key}: {text:?} is no size: \"640x480\", or with its corner \"640x480+10+20\"");
    let mut parts = text.split('+');
    let (w, h) = parts.next().and_then(|size| size.split_once('x')).ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
    let (w, h) = (number(w)?, number(h)?);
    let corner = parts.map(number).collect::<Result<Vec<u16>, String>>()?;
    match (w, h, corner.as_slice()) {
        (0, ..) | (_, 0, _) => Err(wrong()),
        (w, h, []) => Ok(Rect { x: 0, y: 0, w, h }),
        (w, h, [x, y]) => Ok(Rect { x: *x, y: *y, w, h }),
        _ => Err(wrong()),
    }
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
    /// The display that it describes; the modules of policies are in `folder`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn display(&self, folder: &Path, host: Arc<Host>) -> Result<Arc<Display>, String> {
        let size = self.size.as_deref().ok_or("give its `size`: size = \"1280x800\"")?;
        let whole = geometry("size", size)?;
        if (whole.x, whole.y) != (0, 0) {
            return Err(format!("size: {size:?}: a screen has no corner"));
        }
        let table = Table { clients: self.clients.clone(), policies: self.policies.clone() };
        let access = Access::of(table, self.keys.as_deref(), folder, Kind::Framebuffer, host)?;
        let mut regions = BTreeMap::new();
        for (name, text) in &self.regions {
            let key = format!("regions.{name}");
            let region = geometry(&key, text)?;
            if access.client(name).is_none() {
                return Err(format!("{key}: there is no client of this name"));
            }
            if !region.within(whole) {
                return Err(format!("{key}: {text:?} is not on a screen of {size}"));
            }
            regions.insert(name.clone(), region);
        }
        if let Some(name) = self.input.iter().find(|name| access.client(name).is_none()) {
            return Err(format!("input: there is no client of the name {name:?}"));
        }
        let quality = self.quality.unwrap_or(QUALITY);
        if !(1..=100).contains(&quality) {
            return Err(format!("quality: {quality}: from 1 to 100"));
        }
        Ok(Arc::new(Display {
            name: self.name.clone().unwrap_or_else(|| "lastmeter".to_owned()),
            screen: Screen::new(whole.w, whole.h).map_err(|error| format!("size: {error}"))?,
            access,
            regions,
            input: self.input.clone(),
            quality,
            updates: Account::new("display", &UPDATE_STAGES, 1),
            commands: Account::new("display", &COMMAND_STAGES, SAMPLE),
            began: Instant::now(),
        }))
    }
}

/// A display that listens.
pub struct Server {
    /// The display.
    pub display: Arc<Display>,
    /// The address for viewers, with the assigned port.
    pub viewers: Option<SocketAddr>,
    /// The address for programs.
    pub programs: Option<SocketAddr>,
    /// Viewers and programs that are connected.
    pub clients: [Arc<AtomicUsize>; 2],
    socket: Option<PathBuf>,
}

impl Server {
    /// Listens, on its own threads. `tell` is called with the reason when a client is dropped.
    ///
    /// # Errors
    /// If an address cannot be used.
    pub fn start(
        config: &Config,
        folder: &Path,
        display: Arc<Display>,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Server, String> {
        if config.listen.is_none() && config.commands.is_none() && config.socket.is_none() {
            return Err("give `listen = \"127.0.0.1:5900\"` for viewers".to_owned());
        }
        for (key, address) in [("listen", config.listen), ("commands", config.commands)] {
            let Some(address) = address else { continue };
            if !address.ip().is_loopback() && config.clients.is_empty() {
                let right = "or [clients.anyone] to let anybody use the display";
                return Err(format!("{key}: {address}: add [clients.NAME] with a token, {right}"));
            }
        }
        let tell = Arc::new(tell);
        let clients = [Arc::<AtomicUsize>::default(), Arc::default()];
        let viewers = config.listen.map(|wanted| {
            let (display, tell) = (display.clone(), tell.clone());
            accept("listen", wanted, clients[0].clone(), move |stream| {
                if let Err(why) = session::serve(&display, stream) {
                    tell(&why);
                }
            })
        });
        let programs = config.commands.map(|wanted| {
            let (display, tell) = (display.clone(), tell.clone());
            accept("commands", wanted, clients[1].clone(), move |stream| {
                let writer = stream.try_clone();
                program(&display, &*tell, stream, writer);
            })
        });
        let socket = config.socket.as_ref().map(|path| folder.join(path));
        if let Some(path) = &socket {
            let place = |error| format!("socket: {}: {error}", path.display());
            if UnixStream::connect(path).is_err() {
                let _ = std::fs::remove_file(path);
            }
            let listener = UnixListener::bind(path).map_err(place)?;
            let (display, tell, clients) = (display.clone(), tell.clone(), clients[1].clone());
            let serve = Arc::new(move |stream: UnixStream| {
                let writer = stream.try_clone();
                program(&display, &*tell, stream, writer);
            });
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    begin(&clients, &serve, stream);
                }
            });
        }
        let (viewers, programs) = (viewers.transpose()?, programs.transpose()?);
        Ok(Server { display, viewers, programs, clients, socket })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn program<S: Stream>(
    display: &Display,
    tell: &impl Fn(&str),
    stream: S,
    writer: std::io::Result<S>,
) {
    let Ok(writer) = writer else { return };
    let chosen = Arc::<AtomicBool>::default();
    let reader = Patient::new(stream, Instant::now() + PATIENCE, chosen.clone());
    let ready = || chosen.store(true, Ordering::Relaxed);
    if let Err(why) = commands::serve(display, reader, writer, ready) {
        tell(&why);
    }
}

/// Listens; a thread for each client.
fn accept(
    key: &str,
    wanted: SocketAddr,
    clients: Arc<AtomicUsize>,
    serve: impl Fn(TcpStream) + Send + Sync + 'static,
) -> Result<SocketAddr, String> {
    let place = |error| format!("{key}: {wanted}: {error}");
    let listener = TcpListener::bind(wanted).map_err(place)?;
    let address = listener.local_addr().map_err(place)?;
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_nodelay(true);
            begin(&clients, &serve, stream);
        }
    });
    Ok(address)
}

/// A thread for a client, unless there are too many.
fn begin<S: Send + 'static>(
    clients: &Arc<AtomicUsize>,
    serve: &Arc<impl Fn(S) + Send + Sync + 'static>,
    stream: S,
) {
    if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
        clients.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (counted, serve) = (clients.clone(), serve.clone());
    let run = move || {
        serve(stream);
        counted.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().stack_size(STACK).spawn(run).is_err() {
        clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
