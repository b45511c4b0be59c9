//! What a host of the live run does: it sends its flows, each packet when it is due, or shows the one that it receives.
//!
//! ```text
//! plan.json --> send: film, cross traffic --UDP--> receive: decoder, PSNR --> HOST.json
//! ```
//!
//! All hosts are on this machine, so its monotonic clock is the time of all of them.

use crate::Complaint;
use lastmeter_base::Duration;
use lastmeter_wave::Picture;
use lastmeter_wave::decoder::{Decoder, Shown};
use lastmeter_wave::sequence::Sequence;
use lastmeter_wave::stream::{Film, HEADERS_LEN, Judge, Options, PORT, mask, renumbered};
use lastmeter_wire::wave;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

/// The longest plan.
const PLAN_LEN_MAX: usize = 1 << 20;
/// The longest datagram.
const DATAGRAM_LEN_MAX: usize = 2048;
/// What a receiver may have in its socket.
const BUFFER_LEN: usize = 4 << 20;
/// How long a host waits for the others, in ns.
const PATIENCE: u64 = 120_000_000_000;
/// How long receivers wait for what is under way at the end.
const LAST: std::time::Duration = std::time::Duration::from_millis(700);

#[derive(clap::Args)]
pub(crate) struct Part {
    /// The plan that `live` wrote
    plan: PathBuf,
    /// The host
    host: String,
}

/// Who sends what, and when.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    /// How long the run lasts in ns.
    pub(super) length: u64,
    pub(super) flows: Vec<Flow>,
}

/// A flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Flow {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) address: Ipv4Addr,
    /// The port that it comes from, which is its own.
    pub(super) port: u16,
    /// From the beginning of the run, in ns.
    pub(super) start: u64,
    pub(super) stop: u64,
    pub(super) what: What,
}

impl Flow {
    pub(super) fn is_video(&self) -> bool {
        matches!(self.what, What::Video(_))
    }
}

/// What a flow consists of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// A film.
    Video(Video),
    /// Packets of `len` bytes, from the IP header on, every `gap` ns.
    Cross { len: u64, gap: u64 },
}

/// As [`Options`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Video {
    panning: bool,
    frames: u32,
    size: (u8, u8),
    rate: u64,
    step: u8,
    code_len: usize,
    spread: u64,
}

impl Video {
    pub(super) fn new(options: &Options) -> Video {
        let Options { sequence, frames, size, rate, step, code_len, spread } = *options;
        let panning = sequence == Sequence::Panning;
        Video { panning, frames, size, rate, step, code_len, spread }
    }
    pub(super) fn options(&self) -> Options {
        let Video { panning, frames, size, rate, step, code_len, spread } = *self;
        let sequence = if panning { Sequence::Panning } else { Sequence::TalkingHead };
        Options { sequence, frames, size, rate, step, code_len, spread }
    }
}

/// A packet of a film that was sent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sent {
    /// The number of its frame.
    pub(super) frame: u32,
    /// Its tag, which no other packet of the frame has.
    pub(super) tag: u32,
    /// When, from the beginning of the run, in ns.
    pub(super) at: u64,
    /// Its length from the IP header on.
    pub(super) len: u64,
}

/// A frame that was shown.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) frame: u32,
    pub(super) psnr: f64,
    pub(super) bands: u64,
    /// Something came of it, but not all of the lowest bands.
    pub(super) broken: bool,
}

/// What a host has to say at its end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Log {
    /// By flow: what was sent.
    pub(super) sent: BTreeMap<String, Vec<Sent>>,
    /// The latest departure after its time, in ns.
    pub(super) late: u64,
    /// What arrived.
    pub(super) arrived: Vec<Sent>,
    /// What was shown.
    pub(super) shown: Vec<Seen>,
    /// Frames that were the original.
    pub(super) exact: u64,
}

/// The monotonic clock in ns.
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What a host wrote at its end.
pub(super) fn log_of(folder: &Path, host: &str) -> PathBuf {
    folder.join(format!("{host}.json"))
}

/// The file by which a host says that it is ready.
pub(super) fn ready_of(folder: &Path, host: &str) -> PathBuf {
    folder.join(format!("{host}.ready"))
}

/// The file with the beginning of the run, on the monotonic clock in ns.
pub(super) fn start_of(folder: &Path) -> PathBuf {
    folder.join("start")
}

pub(crate) fn part(arguments: &Part) -> Result<crate::Report, Complaint> {
    let Part { plan, host } = arguments;
    let folder = plan.parent().unwrap_or(Path::new("."));
    let plan: Plan = serde_json::from_slice(&lastmeter_linux::files::read(plan, PLAN_LEN_MAX)?)?;
    let mut log = Log::default();
    let received = plan.flows.iter().filter(|flow| flow.to == *host);
    let (videos, cross): (Vec<&Flow>, Vec<&Flow>) = received.partition(|flow| flow.is_video());
    // Nobody reads what crosses; but somebody must be there, or errors come back.
    let sinks = cross.iter().map(|flow| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, flow.port)));
    let sinks = sinks.collect::<Result<Vec<_>, _>>()?;
    let schedule = Schedule::new(&plan, host)?;
    let screen = videos.first().and_then(|flow| match &flow.what {
        What::Video(video) => Some(Screen::new(video.options())),
        What::Cross { .. } => None,
    });
    let screen = screen.transpose()?;
    std::fs::write(ready_of(folder, host), [])?;
    let start = begins(folder)?;
    match screen {
        Some(screen) => screen.show(start, start + plan.length, &mut log),
        None => schedule.send(start, &mut log),
    }
    sleep_until(start + plan.length);
    drop(sinks);
    std::fs::write(log_of(folder, host), serde_json::to_vec(&log)?)?;
    Ok(crate::Report { text: String::new(), json: vec![json!({ "late": log.late })], good: true })
}

/// Waits until somebody says when the run begins.
fn begins(folder: &Path) -> Result<u64, Complaint> {
    let until = now() + PATIENCE;
    while now() < until {
        if let Ok(text) = std::fs::read_to_string(start_of(folder)) {
            return Ok(text.trim().parse()?);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Err(Complaint("nobody said when to begin".to_owned()))
}

fn sleep_until(at: u64) {
    let now = now();
    if at > now {
        std::thread::sleep(std::time::Duration::from_nanos(at - now));
    }
}

/// A packet that will be sent.
struct Due {
    at: u64,
    flow: usize,
    /// Its frame and its place in it; of cross traffic, nothing.
    place: Option<(u32, usize)>,
}

/// All that a host sends.
struct Schedule<'a> {
    flows: Vec<(&'a Flow, UdpSocket, Arc<Film>)>,
    due: Vec<Due>,
}

impl<'a> Schedule<'a> {
    fn new(plan: &'a Plan, host: &str) -> Result<Schedule<'a>, Complaint> {
        let mut schedule = Schedule { flows: Vec::new(), due: Vec::new() };
        let mut films: Vec<(Options, Arc<Film>)> = Vec::new();
        for flow in plan.flows.iter().filter(|flow| flow.from == host) {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, flow.port))?;
            let to = if flow.is_video() { PORT } else { flow.port };
            socket.connect((flow.address, to))?;
            let film = match &flow.what {
                What::Video(video) => film_of(&video.options(), &mut films),
                What::Cross { .. } => Arc::default(),
            };
            plan_flow(plan, flow, &film, schedule.flows.len(), &mut schedule.due);
            schedule.flows.push((flow, socket, film));
        }
        schedule.due.sort_by_key(|due| due.at);
        Ok(schedule)
    }

    fn send(&self, start: u64, log: &mut Log) {
        for &Due { at, flow, place } in &self.due {
            sleep_until(start + at);
            let sent_at = now().saturating_sub(start);
            log.late = log.late.max(sent_at.saturating_sub(at));
            let (Flow { name, what, .. }, socket, film) = &self.flows[flow];
            let bytes = match (place, what) {
                (Some((frame, place)), _) => {
                    renumbered(&film[frame as usize % film.len()][place], frame)
                }
                (None, What::Cross { len, .. }) => {
                    vec![0; (*len as usize).saturating_sub(HEADERS_LEN)]
                }
                (None, What::Video(_)) => continue,
            };
            // What the kernel has no room for is lost like anything else.
            let _ = socket.send(&bytes);
            if let Some((frame, _)) = place {
                let (tag, len) = (tag(&bytes), (bytes.len() + HEADERS_LEN) as u64);
                let sent = Sent { frame, tag, at: sent_at, len };
                log.sent.entry(name.clone()).or_default().push(sent);
            }
        }
    }
}

/// The film of these options, made once.
fn film_of(options: &Options, films: &mut Vec<(Options, Arc<Film>)>) -> Arc<Film> {
    if let Some((_, film)) = films.iter().find(|(known, _)| known == options) {
        return Arc::clone(film);
    }
    let film = Arc::new(options.film());
    films.push((*options, Arc::clone(&film)));
    film
}

/// When each packet of a flow is due.
fn plan_flow(plan: &Plan, flow: &Flow, film: &Film, number: usize, all: &mut Vec<Due>) {
    let stop = flow.stop.min(plan.length);
    match &flow.what {
        What::Cross { gap, .. } => {
            let times = (flow.start..stop).step_by((*gap).max(1) as usize);
            all.extend(times.map(|at| Due { at, flow: number, place: None }));
        }
        What::Video(video) => {
            let options = video.options();
            let begins = |frame: u32| flow.start + ns(options.begins(frame));
            for frame in (0..).take_while(|&frame| begins(frame) < stop) {
                let packets = &film[(frame % options.frames) as usize];
                let due = |place| flow.start + ns(options.due(frame, packets, place));
                let places = (0..packets.len()).filter(|&place| due(place) < stop);
                all.extend(places.map(|place| Due {
                    at: due(place),
                    flow: number,
                    place: Some((frame, place)),
                }));
            }
        }
    }
}

fn ns(time: Duration) -> u64 {
    time.as_ps() / 1000
}

fn tag(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |tag| u32::from_be_bytes(*tag))
}

/// A receiver's screen, and its socket.
struct Screen {
    socket: UdpSocket,
    decoder: Decoder,
    judge: Judge,
}

impl Screen {
    fn new(options: Options) -> Result<Screen, Complaint> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        socket.set_read_timeout(Some(std::time::Duration::from_millis(100)))?;
        // What is not root has what the system gives.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_LEN);
        let pictures: Vec<Picture> = (0..options.frames).map(|at| options.picture(at)).collect();
        let judge = Judge::of(options, &pictures);
        let decoder = Decoder::new(options.size.0, options.size.1);
        Ok(Screen { socket, decoder, judge })
    }

    fn show(self, start: u64, end: u64, log: &mut Log) {
        let Screen { socket, mut decoder, mut judge } = self;
        let mut shown = Vec::new();
        let end = end + LAST.as_nanos() as u64;
        let (give, take) = mpsc::channel::<(u64, Vec<u8>)>();
        std::thread::scope(|scope| {
            // A decoder that is busy must not be why something is lost.
            scope.spawn(move || {
                let mut bytes = [0; DATAGRAM_LEN_MAX];
                while now() < end {
                    let Ok(len) = socket.recv(&mut bytes) else { continue };
                    let _ = give.send((now().saturating_sub(start), bytes[..len].to_vec()));
                }
            });
            for (at, bytes) in take {
                let Ok(piece) = wave::Packet::parse(&bytes) else { continue };
                let len = (bytes.len() + HEADERS_LEN) as u64;
                log.arrived.push(Sent { frame: piece.frame, tag: tag(&bytes), at, len });
                decoder.take(&piece, &mut shown);
                judged(&mut judge, &mut shown, log);
            }
        });
        shown.extend(decoder.finish());
        judged(&mut judge, &mut shown, log);
        log.exact = judge.exact;
    }
}

fn judged(judge: &mut Judge, shown: &mut Vec<Shown>, log: &mut Log) {
    for shown in shown.drain(..) {
        let broken = judge.broken;
        let psnr = judge.see(&shown);
        let broken = judge.broken > broken;
        log.shown.push(Seen { frame: shown.frame, psnr, bands: mask(&shown), broken });
    }
}
