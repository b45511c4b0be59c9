//! A display that listens: `display.toml`, a thread for each client.
//!
//! ```toml
//! name = "wall"
//! size = "1280x800"
//! listen = "127.0.0.1:5900"       # viewers, with RFB
//! commands = "127.0.0.1:5899"     # programs that draw, with framebuffer commands
//! socket = "display.sock"         # programs on this host
//! datagrams = "127.0.0.1:5898"    # programs that draw, with DTP over UDP
//! web = "127.0.0.1:5800"          # viewers in a browser
//! pages = "/usr/share/novnc"      # the folder of noVNC
//! quality = 80                    # limit on JPEG quality; 0: no JPEG
//! adapt = { slow = "50 ms" }      # how it follows what a viewer's link carries: see `adapt`
//! input = ["owner"]               # clients that get key and pointer events, and set the cursor
//! resize = ["owner"]              # clients that may change the screen's size
//!
//! [tls]                           # VeNCrypt for viewers, https for browsers
//! certificate = "certificate.pem"
//! key = "key.pem"
//! clients = "authority.pem"       # clients' certificates that it has signed say who they are
//!
//! [regions]                       # clients' parts of the screen, if not all of it
//! guest = "320x200+100+80"
//! child = "100x50+10+10 in guest" # a part of another client's part
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

use super::gate::{COMMAND_STAGES, DEPTH_MAX, Display, Part, UPDATE_STAGES};
use super::screen::Screen;
use super::transport::Link;
use super::{adapt, commands, datagrams, session, web};
use crate::access::{Access, Client, Table};
use crate::account::Account;
use crate::duplex::{self, Duplex};
use crate::link::{self, Patient, Stream};
use crate::{tls, transfer};
use lastmeter_plugin::Kind;
use lastmeter_plugin::host::Host;
use lastmeter_plugin::request::Rect;
use lastmeter_plugin::setting::Setting;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Limit on concurrent clients of each sort.
pub const CLIENTS_MAX: usize = 256;
/// Time that a program has to authenticate.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes that are read of a program that is refused.
const REFUSED_MAX: u64 = 1024;
/// One command in this many is timed; all updates are.
const SAMPLE: u64 = 16;
/// The default limit on JPEG quality.
const QUALITY: u8 = 90;
/// Where Debian has noVNC.
const PAGES: &str = "/usr/share/novnc";
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
    /// The address for programs that speak DTP.
    pub datagrams: Option<SocketAddr>,
    /// The address for browsers.
    pub web: Option<SocketAddr>,
    /// The folder of noVNC.
    pub pages: Option<PathBuf>,
    /// Its certificate and key.
    pub tls: Option<tls::Files>,
    /// Transfers with tickets, where they are offered.
    pub transfer: Option<transfer::Config>,
    /// The limit on JPEG quality; 0 for no JPEG.
    pub quality: Option<u8>,
    /// How it follows what a viewer's link carries.
    pub adapt: adapt::Config,
    /// Clients that get key and pointer events, and set the cursor.
    pub input: Vec<String>,
    /// Clients that may change the screen's size.
    pub resize: Vec<String>,
    /// Clients' parts of the screen.
    pub regions: BTreeMap<String, String>,
    /// The folder of keys: modules of policies must be signed with one of them.
    pub keys: Option<PathBuf>,
    /// Its clients.
    pub clients: BTreeMap<String, Client>,
    /// Their policies.
    pub policies: BTreeMap<String, Setting>,
}

/// `640x480` or `640x480+10+20`; an error names the key.
///
/// # Errors
/// If it is neither.
pub fn geometry(key: &str, text: &str) -> Result<Rect, String> {
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
        let certificates = tls::Files::certificates(self.tls.as_ref());
        let (clients, policies) = (self.clients.clone(), self.policies.clone());
        let table = Table { clients, policies, certificates };
        let access = Access::of(table, self.keys.as_deref(), folder, Kind::Framebuffer, host)?;
        let regions = self.parts(&access, whole)?;
        for (key, names) in [("input", &self.input), ("resize", &self.resize)] {
            if let Some(name) = names.iter().find(|name| access.client(name).is_none()) {
                return Err(format!("{key}: there is no client of the name {name:?}"));
            }
        }
        let tls = self.tls.as_ref().map(|files| tls::server(files, folder, &access)).transpose()?;
        let quality = self.quality.unwrap_or(QUALITY);
        if quality > 100 {
            return Err(format!("quality: {quality}: from 1 to 100, or 0 for no JPEG"));
        }
        Ok(Arc::new(Display {
            name: self.name.clone().unwrap_or_else(|| "lastmeter".to_owned()),
            screen: Screen::new(whole.w, whole.h).map_err(|error| format!("size: {error}"))?,
            access,
            regions,
            input: self.input.clone(),
            resize: self.resize.clone(),
            tls,
            quality,
            adapt: self.adapt.settings()?,
            // Of a pixel that is sent raw: out of the screen, into the message; into the kernel.
            updates: Account::new("display", &UPDATE_STAGES, 1).passing(2, 2, 4).passing(3, 1, 2),
            // Of a pixel that is put: out of the kernel; into the screen.
            commands: Account::new("display", &COMMAND_STAGES, SAMPLE)
                .passing(0, 1, 2)
                .passing(2, 1, 2),
            began: Instant::now(),
        }))
    }
    /// Clients' parts of the screen, on the whole screen.
    fn parts(&self, access: &Access, whole: Rect) -> Result<BTreeMap<String, Part>, String> {
        let mut parts: BTreeMap<String, Part> = BTreeMap::new();
        // A part of a part is placed once the other one is.
        for _ in 0..DEPTH_MAX {
            for (name, text) in &self.regions {
                let key = format!("regions.{name}");
                if access.client(name).is_none() {
                    return Err(format!("{key}: there is no client of this name"));
                }
                let (own, of) = match text.split_once(" in ") {
                    Some((own, of)) => (own, Some(of.trim())),
                    None => (text.as_str(), None),
                };
                let region = geometry(&key, own)?;
                let outer = match of {
                    None => whole,
                    Some(of) => match parts.get(of) {
                        Some(part) => part.region,
                        None if self.regions.contains_key(of) => continue,
                        None => return Err(format!("{key}: {of:?} has no part of the screen")),
                    },
                };
                if !region.within(Rect { x: 0, y: 0, ..outer }) {
                    let of = of.map_or("a screen".to_owned(), |of| format!("{of}'s part"));
                    let (w, h) = (outer.w, outer.h);
                    return Err(format!("{key}: {text:?} is not on {of} of {w}x{h}"));
                }
                let region = Rect { x: region.x + outer.x, y: region.y + outer.y, ..region };
                parts.insert(name.clone(), Part { region, of: of.map(str::to_owned) });
            }
        }
        match self.regions.keys().find(|name| !parts.contains_key(*name)) {
            None => Ok(parts),
            Some(name) => Err(format!(
                "regions.{name}: parts lie in each other, or more than {DEPTH_MAX} deep"
            )),
        }
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
    /// The address for programs that speak DTP.
    pub datagrams: Option<SocketAddr>,
    /// The address for browsers.
    pub web: Option<SocketAddr>,
    /// Where it waits for tickets.
    pub transfers: Option<transfer::Listening>,
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
        let addresses = [
            ("listen", config.listen),
            ("commands", config.commands),
            ("datagrams", config.datagrams),
            ("web", config.web),
        ];
        let serves = config.socket.is_some() || config.transfer.is_some();
        if addresses.iter().all(|(_, it)| it.is_none()) && !serves {
            return Err("give `listen = \"127.0.0.1:5900\"` for viewers".to_owned());
        }
        for (key, address) in addresses {
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
                let served = Link::new(stream).and_then(|link| session::serve(&display, link));
                if let Err(why) = served {
                    tell(&why);
                }
            })
        });
        let pages = folder.join(config.pages.as_deref().unwrap_or(Path::new(PAGES)));
        let web = config.web.map(|wanted| {
            let (display, tell) = (display.clone(), tell.clone());
            accept("web", wanted, clients[0].clone(), move |stream| {
                let served = Link::new(stream);
                if let Err(why) = served.and_then(|link| web::serve(&display, &pages, link)) {
                    tell(&why);
                }
            })
        });
        let datagrams = config.datagrams.map(|wanted| {
            let place = |error| format!("datagrams: {wanted}: {error}");
            let socket = UdpSocket::bind(wanted).map_err(place)?;
            let address = socket.local_addr().map_err(place)?;
            let (display, tell) = (display.clone(), tell.clone());
            std::thread::spawn(move || {
                if let Err(why) = datagrams::serve(&display, &socket) {
                    tell(&why);
                }
            });
            Ok::<_, String>(address)
        });
        let programs = config.commands.map(|wanted| {
            let (display, tell) = (display.clone(), tell.clone());
            accept("commands", wanted, clients[1].clone(), move |stream| {
                if let Err(why) = connected(&display, &*tell, stream) {
                    tell(&why);
                }
            })
        });
        let transfers = config.transfer.as_ref().map(|transfer| {
            let tell = tell.clone();
            transfer.start(folder, display.clone(), move |why| tell(why))
        });
        let transfers = transfers.transpose()?;
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
                program(&display, &*tell, stream, writer, || Ok(None));
            });
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let serve = serve.clone();
                    link::serve(&clients, CLIENTS_MAX, STACK, move || serve(stream));
                }
            });
        }
        let (viewers, programs) = (viewers.transpose()?, programs.transpose()?);
        let (datagrams, web) = (datagrams.transpose()?, web.transpose()?);
        Ok(Server { display, viewers, programs, datagrams, web, transfers, clients, socket })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// A program that came over TCP. With a certificate it may begin TLS, and must if it is on another host.
fn connected(display: &Display, tell: &impl Fn(&str), stream: TcpStream) -> Result<(), String> {
    let ended = |error: std::io::Error| format!("a program did not say who it is: {error}");
    let Some(config) = &display.tls else {
        let writer = stream.try_clone();
        program(display, tell, stream, writer, || Ok(None));
        return Ok(());
    };
    if duplex::begins(&stream, PATIENCE).map_err(ended)? {
        let secured = Duplex::new(config, stream).map_err(ended)?;
        let shown = secured.clone();
        let certified = move || shown.shown(&display.access);
        program(display, tell, secured.clone(), Ok(secured), certified);
    } else if stream.is_local() {
        let writer = stream.try_clone();
        program(display, tell, stream, writer, || Ok(None));
    } else {
        // What it sent has to be read, or the answer is lost.
        let told = (&stream).write_all(&[commands::ENCRYPT]);
        let told = told.and_then(|()| stream.shutdown(Shutdown::Write));
        let rest = Patient::new(stream, Instant::now() + PATIENCE, Arc::default());
        let _ = told.and_then(|()| io::copy(&mut rest.take(REFUSED_MAX), &mut io::sink()));
        return Err("a program on another host came without TLS".to_owned());
    }
    Ok(())
}

fn program<S: Stream>(
    display: &Display,
    tell: &impl Fn(&str),
    stream: S,
    writer: std::io::Result<S>,
    certified: impl FnOnce() -> Result<Option<String>, String>,
) {
    let Ok(writer) = writer else { return };
    let chosen = Arc::<AtomicBool>::default();
    let reader = Patient::new(stream, Instant::now() + PATIENCE, chosen.clone());
    let ready = || chosen.store(true, Ordering::Relaxed);
    if let Err(why) = commands::serve(display, reader, writer, certified, ready) {
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
            let serve = serve.clone();
            link::serve(&clients, CLIENTS_MAX, STACK, move || serve(stream));
        }
    });
    Ok(address)
}

#[cfg(test)]
mod adapting;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod elsewhere;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tests;
