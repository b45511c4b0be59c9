//! Viewers by RTSP (RFC 2326) with JPEG in RTP (RFC 2435), or with the H.264 of a file as it is (RFC 6184), interleaved
//! in the connection or over UDP to the address from which it comes.
//!
//! ```text
//! rtsp://HOST:PORT/TOKEN?width=320&rate=10
//! rtsp://HOST:PORT/TOKEN/h264
//! OPTIONS  DESCRIBE  SETUP  PLAY  PAUSE  GET_PARAMETER  TEARDOWN
//! ```
//!
//! Rows: A-51, A-121.

use super::gate::{Camera, Gate, stage};
use super::http::{Asked, asked};
use super::pace::{Next, Pace};
use super::pass::{KIND, Parameters, Pictures, Units};
use crate::rtsp::{Link, Talk, Way, converse, interleaved};
use lastmeter_wire::camera::Command;
use lastmeter_wire::camera::h264;
use lastmeter_wire::camera::rtp::{CLOCK, JPEG, RTP_LEN, Scan, header};
use lastmeter_wire::requests::Request;
use std::io::{self, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of an RTP packet: an Ethernet frame's without fragments.
const PACKET: usize = 1400;
const PATIENCE: Duration = Duration::from_millis(500);
const METHODS: &str = "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, GET_PARAMETER, TEARDOWN";

/// What is chosen with SETUP.
#[derive(Clone)]
struct Chosen {
    client: String,
    command: Command,
    way: Way,
    /// A file whose H.264 is passed through.
    file: Option<PathBuf>,
}

/// A session's player, which ends with it.
struct Player {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Player {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Session<'a> {
    camera: &'a Arc<Camera>,
    link: Link,
    chosen: Option<Chosen>,
    player: Option<Player>,
}

/// Serves a client whose first bytes are given.
pub(super) fn serve(camera: &Arc<Camera>, stream: TcpStream, bytes: Vec<u8>) -> io::Result<()> {
    let session = super::store::clock() as u32;
    converse(stream, bytes, session, |link| Session { camera, link, chosen: None, player: None })
}

impl Talk for Session<'_> {
    fn answer(&mut self, request: &Request<'_>) -> io::Result<bool> {
        let target = request.target.strip_suffix("/track").unwrap_or(request.target);
        let reply =
            |status: &str, more: &str, body: &str| self.link.reply(request, status, more, body);
        let session = self.link.session();
        match request.method {
            "OPTIONS" => reply("200 OK", &format!("Public: {METHODS}\r\n"), "")?,
            "DESCRIBE" => {
                if let Some((_, command, file)) = self.asked(request, target, &reply)? {
                    let video = match file.as_deref().map(Parameters::read).transpose() {
                        Ok(parameters) => parameters.map(|it| it.describe()),
                        Err(_) => {
                            reply("415 Unsupported Media Type", "", "")?;
                            return Ok(true);
                        }
                    };
                    let body = describe(self.camera, &command, video.as_deref(), target);
                    let base = format!("Content-Base: {target}/\r\n");
                    reply("200 OK", &format!("{base}Content-Type: application/sdp\r\n"), &body)?;
                }
            }
            "SETUP" => {
                let Some((client, command, file)) = self.asked(request, target, &reply)? else {
                    return Ok(true);
                };
                let Some((way, transport)) = self.link.way(request)? else {
                    reply("461 Unsupported Transport", "", "")?;
                    return Ok(true);
                };
                reply("200 OK", &format!("{session}Transport: {transport}\r\n"), "")?;
                let chosen = Chosen { client, command, way, file };
                (self.player, self.chosen) = (None, Some(chosen));
            }
            "PLAY" => {
                let Some(chosen) = &self.chosen else {
                    reply("455 Method Not Valid in This State", "", "")?;
                    return Ok(true);
                };
                reply("200 OK", &format!("{session}Range: npt=now-\r\n"), "")?;
                if self.player.is_none() {
                    self.player = Some(play(self.camera, chosen, &self.link.writer));
                }
            }
            "PAUSE" => {
                reply("200 OK", &session, "")?;
                self.player = None;
            }
            "GET_PARAMETER" | "SET_PARAMETER" => reply("200 OK", &session, "")?,
            "TEARDOWN" => {
                reply("200 OK", &session, "")?;
                return Ok(false);
            }
            _ => reply("501 Not Implemented", &format!("Public: {METHODS}\r\n"), "")?,
        }
        Ok(true)
    }
    fn is_interleaved(&self) -> bool {
        self.player.is_some()
            && matches!(&self.chosen, Some(it) if matches!(it.way, Way::Interleaved(_)))
    }
}

impl Session<'_> {
    /// Whose address it is and what it asks for, and the file if it is passed through; else it was answered.
    fn asked(
        &self,
        request: &Request<'_>,
        target: &str,
        reply: &dyn Fn(&str, &str, &str) -> io::Result<()>,
    ) -> io::Result<Option<(String, Command, Option<PathBuf>)>> {
        match asked(self.camera, request, target) {
            Ok(Asked { client: Ok(client), name: "h264", command }) => {
                let access = &self.camera.access;
                let is_free = access.client(client).is_some_and(|it| it.policies.is_empty());
                match &self.camera.file {
                    // Policies see frames, and would see none of it.
                    _ if !is_free => reply("403 Forbidden", "", "").map(|()| None),
                    None => reply("404 Not Found", "", "").map(|()| None),
                    Some(file) => Ok(Some((client.to_owned(), command, Some(file.clone())))),
                }
            }
            Ok(Asked { client: Ok(client), command, .. }) => {
                Ok(Some((client.to_owned(), command, None)))
            }
            Ok(_) => reply("401 Unauthorized", "", "").map(|()| None),
            Err(_) => reply("400 Bad Request", "", "").map(|()| None),
        }
    }
}

/// The description of the stream (SDP, RFC 8866).
fn describe(camera: &Camera, command: &Command, video: Option<&str>, target: &str) -> String {
    let rate = f64::from(command.millihertz) / 1000.0;
    let name: String = camera.name.chars().filter(|it| !it.is_control()).collect();
    let jpeg = format!("m=video 0 RTP/AVP 26\r\na=framerate:{rate}\r\n");
    let video = video.unwrap_or(&jpeg);
    format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns={name}\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
         a=control:*\r\n{video}a=control:{target}/track\r\n"
    )
}

/// Sends frames on a thread of its own.
fn play(camera: &Arc<Camera>, chosen: &Chosen, writer: &Arc<Mutex<TcpStream>>) -> Player {
    let ended = Arc::<AtomicBool>::default();
    let (told, camera, writer) = (ended.clone(), camera.clone(), writer.clone());
    let chosen = chosen.clone();
    let thread = std::thread::spawn(move || {
        let mut packets = Packets::new(&camera, &chosen.way, &writer);
        let sent = match &chosen.file {
            None => send(&mut packets, &chosen, &told),
            Some(file) => pass(&mut packets, file, &told),
        };
        if sent.is_err() {
            // The thread that reads ends, too.
            let writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = writer.shutdown(std::net::Shutdown::Both);
        }
    });
    Player { ended, thread: Some(thread) }
}

/// The packets of a stream, in order.
struct Packets<'a> {
    camera: &'a Camera,
    way: &'a Way,
    writer: &'a Mutex<TcpStream>,
    source: u32,
    sequence: u16,
}

impl<'a> Packets<'a> {
    fn new(camera: &'a Camera, way: &'a Way, writer: &'a Mutex<TcpStream>) -> Packets<'a> {
        Packets { camera, way, writer, source: super::store::clock() as u32, sequence: 0 }
    }
    fn send(&mut self, kind: u8, is_last: bool, time: u32, payload: &[u8]) -> io::Result<()> {
        let head = header(kind, is_last, self.sequence, time, self.source);
        let packet = [&head[..], payload].concat();
        self.sequence = self.sequence.wrapping_add(1);
        match self.way {
            Way::Udp(ports) => {
                // A client that does not listen yet is no reason to end.
                let _ = ports.data.send_to(&packet, ports.to);
            }
            Way::Interleaved(channel) => {
                let whole = interleaved(*channel, &packet);
                let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
                writer.write_all(&whole)?;
            }
        }
        self.camera.packets.fetch_add(1, Relaxed);
        self.camera.bytes.fetch_add(packet.len() as u64, Relaxed);
        Ok(())
    }
}

/// Passes a file's pictures on until the viewer leaves.
fn pass(packets: &mut Packets<'_>, file: &Path, ended: &AtomicBool) -> io::Result<()> {
    let camera = packets.camera;
    let (mut units, mut pictures) =
        (Units::open(file).map_err(io::Error::other)?, Pictures::default());
    while !ended.load(Relaxed) {
        let mut lap = camera.account.begin();
        let picture = loop {
            let unit = units.next().map_err(io::Error::other)?;
            if let Some(picture) = pictures.add(unit) {
                break picture;
            }
        };
        lap.served(stage::CAPTURE);
        let time = (u128::from(super::store::clock()) * u128::from(CLOCK) / 1_000_000) as u32;
        let last = picture.len() - 1;
        for (at, unit) in picture.iter().enumerate() {
            let mut payloads = h264::payloads(unit, PACKET - RTP_LEN).peekable();
            while let Some(payload) = payloads.next() {
                let is_last = at == last && payloads.peek().is_none();
                packets.send(KIND, is_last, time, &payload)?;
            }
        }
        lap.served(stage::NETWORK);
        camera.cycle.add(&lap, Duration::ZERO);
        camera.account.end(lap, picture.iter().map(|unit| unit.len() as u64).sum());
    }
    Ok(())
}

fn send(packets: &mut Packets<'_>, chosen: &Chosen, ended: &AtomicBool) -> io::Result<()> {
    let (camera, command) = (packets.camera, &chosen.command);
    let mut gate = Gate::new(camera, &chosen.client).map_err(io::Error::other)?;
    gate.by_rtp = true;
    let (began, mut last, mut rest) = (Instant::now(), None, Duration::ZERO);
    let mut pace = Pace::new(Duration::ZERO);
    pace.command(command, Duration::ZERO);
    while !ended.load(Relaxed) {
        pace.heard(began.elapsed());
        match pace.next(began.elapsed()) {
            Next::Idle(_) | Next::Over => return Ok(()),
            Next::Wait(left) => {
                let waits = Instant::now();
                std::thread::sleep(left.min(PATIENCE));
                rest += waits.elapsed();
                continue;
            }
            Next::Take => {}
        }
        let wanted = Instant::now();
        let Some(frame) = camera.store.next(last, PATIENCE).map_err(io::Error::other)? else {
            continue;
        };
        last = Some(frame.number);
        pace.took();
        let mut lap = camera.account.begin_at(Some(wanted));
        lap.served(stage::CAPTURE);
        let made = match gate.make(command, &frame, &mut lap) {
            Ok(made) => made,
            Err(refusal) => {
                camera.account.refuse(refusal.words());
                continue;
            }
        };
        let scan = Scan::of(&made.bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let time = (u128::from(frame.clock) * u128::from(CLOCK) / 1_000_000) as u32;
        for (payload, is_last) in scan.payloads(PACKET - RTP_LEN) {
            packets.send(JPEG, is_last, time, &payload)?;
        }
        lap.served(stage::NETWORK);
        camera.cycle.add(&lap, std::mem::take(&mut rest));
        camera.account.end(lap, made.bytes.len() as u64);
        pace.sent(began.elapsed());
    }
    Ok(())
}
