//! An audio device that listens: `audio.toml`, a thread for each client.
//!
//! ```toml
//! name = "desk"
//! listen = "127.0.0.1:8560"       # RTSP; sound goes by RTP, over UDP or in the connection
//! rate = 48000                    # samples of a channel in a second, both ways
//! channels = 1                    # or 2
//! speaker = "null"                # or file:PATH, program:LINE; see `sink`
//! microphone = "tone:440"         # or none, file:PATH, program:LINE; see `microphone`
//! delay = "60 ms"                 # of play-out: what packets may be late by
//! conceal = "silence"             # or "repeat": what is heard where a packet is missing
//! several = "mix"                 # or "refuse": what happens when several clients send
//! keys = "keys"                   # whose signatures policies must have
//!
//! [clients.owner]                 # see `access`
//! token = "a-long-secret"
//!
//! [clients.anyone]
//! policies = ["near"]
//!
//! [policies.near]
//! expression = "(in source 10.0.0.0/8)"
//! ```

use super::microphone::{self, Microphone, Source};
use super::playout::{Conceal, Settings};
use super::session::Session;
use super::speaker::{self, Several, Speaker};
use super::{Audio, MICROPHONE, SPEAKER, sink, wall};
use lastmeter_base::Quantity;
use lastmeter_device::access::{Access, Client, Table};
use lastmeter_device::account::Account;
use lastmeter_device::{link, rtsp};
use lastmeter_plugin::Kind;
use lastmeter_plugin::host::Host;
use lastmeter_plugin::setting::Setting;
use lastmeter_wire::wav::{CHANNELS_MAX, Format, RATES};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most clients at once.
pub const CLIENTS_MAX: usize = 64;
/// The longest delay of play-out.
pub const DELAY_MAX: Duration = Duration::from_secs(1);
const DELAY: Duration = Duration::from_millis(60);
const RATE: u32 = 48_000;
const STACK: usize = 512 << 10;

/// `audio.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// The name that clients show.
    pub name: Option<String>,
    /// The address for RTSP.
    pub listen: Option<SocketAddr>,
    /// Samples of a channel in a second.
    pub rate: Option<u32>,
    /// Samples of a frame.
    pub channels: Option<u16>,
    /// Where sound goes.
    pub speaker: Option<String>,
    /// Where sound comes from.
    pub microphone: Option<String>,
    /// Of play-out.
    pub delay: Option<String>,
    /// What is heard where a packet is missing: `silence` or `repeat`.
    pub conceal: Option<String>,
    /// What happens when several clients send.
    pub several: Several,
    /// The folder of keys: modules of policies must be signed with one of them.
    pub keys: Option<PathBuf>,
    /// Its clients.
    pub clients: BTreeMap<String, Client>,
    /// Their policies.
    pub policies: BTreeMap<String, Setting>,
}

/// A delay of play-out.
///
/// # Errors
/// If it is no time, or too long.
pub fn delay(text: &str) -> Result<Duration, String> {
    let parsed = lastmeter_base::Duration::parse(text).map_err(|error| error.to_string())?;
    let delay = Duration::from_secs_f64(parsed.as_secs_f64());
    match delay <= DELAY_MAX {
        true => Ok(delay),
        false => Err(format!("{text:?}: at most {} ms", DELAY_MAX.as_millis())),
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
    fn settings(&self) -> Result<Settings, String> {
        let (rate, channels) = (self.rate.unwrap_or(RATE), self.channels.unwrap_or(1));
        if !RATES.contains(&rate) {
            let (least, most) = RATES.into_inner();
            return Err(format!("rate: {rate}: from {least} to {most} samples a second"));
        }
        if !(1..=CHANNELS_MAX).contains(&channels) {
            return Err(format!("channels: {channels}: from 1 to {CHANNELS_MAX}"));
        }
        let delay = self.delay.as_deref().map_or(Ok(DELAY), delay);
        let conceal = match self.conceal.as_deref() {
            None | Some("silence") => Conceal::Silence,
            Some("repeat") => Conceal::Repeat,
            Some(other) => {
                return Err(format!("conceal: {other:?}: write \"silence\" or \"repeat\""));
            }
        };
        Ok(Settings {
            rate,
            channels,
            delay: delay.map_err(|why| format!("delay: {why}"))?,
            conceal,
        })
    }
    fn format(settings: Settings) -> Format {
        Format { rate: settings.rate, channels: settings.channels }
    }
    fn sink(&self, folder: &Path) -> Result<sink::Kind, String> {
        sink::Kind::named(self.speaker.as_deref().unwrap_or("null"), folder)
    }
    fn source(&self, folder: &Path, format: Format) -> Result<Source, String> {
        Source::named(self.microphone.as_deref().unwrap_or("none"), folder, format)
    }
    /// The device that it describes; files are in `folder`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audio(&self, folder: &Path, host: Arc<Host>) -> Result<Arc<Audio>, String> {
        let settings = self.settings()?;
        let format = Config::format(settings);
        self.sink(folder)?;
        self.source(folder, format)?;
        let (clients, policies) = (self.clients.clone(), self.policies.clone());
        let table = Table { clients, policies, ..Table::default() };
        let access = Access::of(table, self.keys.as_deref(), folder, Kind::Packet, host)?;
        Ok(Arc::new(Audio {
            name: self.name.clone().unwrap_or_else(|| "lastmeter".to_owned()),
            format,
            access,
            heard: Account::new("speaker", &SPEAKER, 1),
            said: Account::new("microphone", &MICROPHONE, 1),
            clients: Arc::default(),
            speaker: Speaker::new(settings, self.several),
            microphone: Microphone::default(),
            began: Instant::now(),
        }))
    }
}

/// An audio device that listens.
pub struct Server {
    /// The device.
    pub audio: Arc<Audio>,
    /// Its address, with the assigned port.
    pub address: SocketAddr,
}

impl Server {
    /// Listens, plays and captures on its own threads. `tell` is called with the reason when a client is given up.
    /// Files are in `folder`.
    ///
    /// # Errors
    /// If the address or the speaker's file cannot be used.
    pub fn start(
        config: &Config,
        folder: &Path,
        audio: Arc<Audio>,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Server, String> {
        let wanted = config.listen.ok_or("give `listen = \"127.0.0.1:8560\"`")?;
        if !wanted.ip().is_loopback() && config.clients.is_empty() {
            let right = "or [clients.anyone] to let anybody hear and be heard";
            return Err(format!("listen: {wanted}: add [clients.NAME] with a token, {right}"));
        }
        let place = |error| format!("listen: {wanted}: {error}");
        let listener = TcpListener::bind(wanted).map_err(place)?;
        let address = listener.local_addr().map_err(place)?;
        let tell = Arc::new(tell);
        speaker::start(&audio, config.sink(folder)?.open(audio.format)?);
        let told = tell.clone();
        let source = config.source(folder, audio.format)?;
        microphone::start(&audio, source, move |why| told(why));
        let own = audio.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                begin(&own, &tell, stream);
            }
        });
        Ok(Server { audio, address })
    }
}

/// Serves a client, unless there are too many.
fn begin(audio: &Arc<Audio>, tell: &Arc<impl Fn(&str) + Send + Sync + 'static>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let (own, tell) = (audio.clone(), tell.clone());
    link::serve(&audio.clients, CLIENTS_MAX, STACK, move || {
        let served = rtsp::first(&stream).and_then(|bytes| {
            let session = wall().as_nanos() as u32;
            rtsp::converse(stream, bytes, session, |link| Session::new(&own, link))
        });
        if let Err(error) = served {
            let left = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
            if !left.contains(&error.kind()) {
                tell(&format!("a client: {error}"));
            }
        }
    });
}
