//! A camera that listens: `camera.toml`, a thread for each viewer.
//!
//! ```toml
//! name = "door"
//! source = "pattern"              # or file:PATH, v4l2:/dev/video0, x11::0; see `source`
//! size = "640x480"
//! rate = 30                       # frames a second
//! colour = true
//! quality = 80                    # limit on JPEG quality
//! listen = "127.0.0.1:8554"       # viewers, with HTTP and RTSP
//! receivers = "127.0.0.1:8555"    # receivers that set the pace, over UDP
//! pacing = "clock"                # or "fq": the kernel spaces packets, if the interface has that discipline
//! announce = false                # whether it is found by multicast DNS
//! keys = "keys"                   # whose signatures policies must have
//!
//! [clients.owner]                 # see `access`
//! token = "a-long-secret"
//!
//! [clients.anyone]
//! policies = ["seldom"]
//!
//! [policies.seldom]
//! module = "frame-rate.wasm"
//! config = "1"
//! ```

use super::cycle::Cycle;
use super::find::Announced;
use super::frame::{Layout, SIDE_MAX};
use super::gate::{Camera, STAGES};
use super::kernel::Pacing;
use super::store::Store;
use super::{http, rtsp, session, source};
use crate::access::{Access, Client, Table};
use crate::account::Account;
use crate::link;
use crate::transfer;
use lastmeter_plugin::Kind;
use lastmeter_plugin::host::Host;
use lastmeter_plugin::setting::Setting;
use lastmeter_wire::requests::{Item, parse};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most viewers by HTTP and RTSP.
pub const VIEWERS_MAX: usize = 64;
const STACK: usize = 512 << 10;
const QUALITY: u8 = 80;
const RATE: f64 = 30.0;

/// `camera.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// The name that viewers show.
    pub name: Option<String>,
    /// Where frames come from.
    pub source: Option<String>,
    /// Width and height.
    pub size: Option<String>,
    /// Frames a second.
    pub rate: Option<f64>,
    /// In colour, or grey.
    pub colour: Option<bool>,
    /// The limit on JPEG quality.
    pub quality: Option<u8>,
    /// The address for viewers.
    pub listen: Option<SocketAddr>,
    /// The address for receivers that set the pace.
    pub receivers: Option<SocketAddr>,
    /// Who spaces the packets of a frame.
    pub pacing: Pacing,
    /// Transfers with tickets, where they are offered.
    pub transfer: Option<transfer::Config>,
    /// Whether it answers who looks for cameras by multicast DNS.
    pub announce: bool,
    /// The folder of keys: modules of policies must be signed with one of them.
    pub keys: Option<PathBuf>,
    /// Its clients.
    pub clients: BTreeMap<String, Client>,
    /// Their policies.
    pub policies: BTreeMap<String, Setting>,
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
    fn size(&self) -> Result<(u16, u16), String> {
        let text = self.size.as_deref().unwrap_or("640x480");
        let side =
            |text: &str| text.trim().parse().ok().filter(|side| (8..=SIDE_MAX).contains(side));
        let sides = text.split_once('x').and_then(|(w, h)| Some((side(w)?, side(h)?)));
        sides.ok_or(format!("size: {text:?}: write \"640x480\", with sides from 8 to {SIDE_MAX}"))
    }
    /// The camera that it describes; files are in `folder`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn camera(&self, folder: &Path, host: Arc<Host>) -> Result<Arc<Camera>, String> {
        let (size, rate) = (self.size()?, self.rate.unwrap_or(RATE));
        if !(0.01..=1000.0).contains(&rate) {
            return Err(format!("rate: {rate}: from 0.01 to 1000 frames a second"));
        }
        let quality = self.quality.unwrap_or(QUALITY);
        if !(1..=100).contains(&quality) {
            return Err(format!("quality: {quality}: from 1 to 100"));
        }
        let (clients, policies) = (self.clients.clone(), self.policies.clone());
        let table = Table { clients, policies, ..Table::default() };
        let access = Access::of(table, self.keys.as_deref(), folder, Kind::Frame, host)?;
        let layout = if self.colour.unwrap_or(true) { Layout::Colour } else { Layout::Grey };
        let name = self.source.as_deref().unwrap_or("pattern");
        let source = source::open(name, folder, layout, size, rate)?;
        Ok(Arc::new(Camera {
            name: self.name.clone().unwrap_or_else(|| "lastmeter".to_owned()),
            store: Store::start(source, Duration::from_secs_f64(1.0 / rate)),
            size,
            rate,
            file: name.strip_prefix("file:").map(|path| folder.join(path)),
            access,
            quality,
            pacing: self.pacing,
            account: Account::new("camera", &STAGES, 1),
            cycle: Cycle::default(),
            certificate: std::sync::Mutex::default(),
            packets: 0.into(),
            bytes: 0.into(),
            viewers: Arc::default(),
            began: Instant::now(),
        }))
    }
}

/// A camera that listens.
pub struct Server {
    /// The camera.
    pub camera: Arc<Camera>,
    /// The address for viewers, with the assigned port.
    pub viewers: Option<SocketAddr>,
    /// The address for receivers.
    pub receivers: Option<SocketAddr>,
    /// Where it waits for tickets.
    pub transfers: Option<transfer::Listening>,
}

impl Server {
    /// Listens, on its own threads. `tell` is called with the reason when a viewer is given up. Files are in `folder`.
    ///
    /// # Errors
    /// If an address cannot be used.
    pub fn start(
        config: &Config,
        folder: &Path,
        camera: Arc<Camera>,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Server, String> {
        let serves = config.listen.is_some() || config.receivers.is_some();
        if !serves && config.transfer.is_none() {
            return Err("give `listen = \"127.0.0.1:8554\"` for viewers".to_owned());
        }
        for (key, address) in [("listen", config.listen), ("receivers", config.receivers)] {
            let Some(address) = address else { continue };
            if !address.ip().is_loopback() && config.clients.is_empty() {
                let right = "or [clients.anyone] to let anybody see what the camera sees";
                return Err(format!("{key}: {address}: add [clients.NAME] with a token, {right}"));
            }
        }
        let tell = Arc::new(tell);
        let (mut viewers, mut receivers) = (None, None);
        if let Some(wanted) = config.listen {
            let place = |error| format!("listen: {wanted}: {error}");
            let listener = TcpListener::bind(wanted).map_err(place)?;
            let address = listener.local_addr().map_err(place)?;
            viewers = Some(address);
            if config.announce {
                announce(&camera, address).map_err(|error| format!("announce: {error}"))?;
            }
            let (camera, tell) = (camera.clone(), tell.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    begin(&camera, &tell, stream);
                }
            });
        }
        if let Some(wanted) = config.receivers {
            let place = |error| format!("receivers: {wanted}: {error}");
            let socket = Arc::new(UdpSocket::bind(wanted).map_err(place)?);
            receivers = Some(socket.local_addr().map_err(place)?);
            config.pacing.begin(&socket).map_err(|error| format!("pacing: {error}"))?;
            let (camera, tell) = (camera.clone(), tell.clone());
            std::thread::spawn(move || session::serve(&camera, &socket, &*tell));
        }
        let transfers = config.transfer.as_ref().map(|transfer| {
            let tell = tell.clone();
            transfer.start(folder, camera.clone(), move |why| tell(why))
        });
        let transfers = transfers.transpose()?;
        Ok(Server { camera, viewers, receivers, transfers })
    }
}

/// Answers who looks for cameras.
fn announce(camera: &Camera, address: SocketAddr) -> std::io::Result<()> {
    let SocketAddr::V4(address) = address else {
        return Err(std::io::Error::other("an IPv4 address is announced; `listen` has another"));
    };
    if address.ip().is_unspecified() {
        return Err(std::io::Error::other("`listen` must name the address of an interface"));
    }
    let needs_token = camera.access.client(crate::access::ANYONE).is_none();
    Announced { name: camera.name.clone(), address, needs_token }.serve()
}

/// Serves a viewer, unless there are too many.
fn begin(
    camera: &Arc<Camera>,
    tell: &Arc<impl Fn(&str) + Send + Sync + 'static>,
    stream: TcpStream,
) {
    let _ = stream.set_nodelay(true);
    let (own, tell) = (camera.clone(), tell.clone());
    link::serve(&camera.viewers, VIEWERS_MAX, STACK, move || {
        if let Err(error) = viewer(&own, stream) {
            let left = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
            if !left.contains(&error.kind()) {
                tell(&format!("a viewer: {error}"));
            }
        }
    });
}

/// Reads the first request, which says how the viewer speaks.
fn viewer(camera: &Arc<Camera>, stream: TcpStream) -> std::io::Result<()> {
    let bytes = crate::rtsp::first(&stream)?;
    match parse(&bytes).map_err(|error| std::io::Error::other(error.to_string()))? {
        Some((Item::Request(request), _)) if !request.version.starts_with("RTSP/") => {
            http::serve(camera, &stream, &request)
        }
        Some((Item::Request(_), _)) => rtsp::serve(camera, stream, bytes),
        Some((Item::Data { .. }, _)) | None => Ok(()),
    }
}
