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
use lastmeter_wire::camera::Command;
use lastmeter_wire::camera::h264;
use lastmeter_wire::camera::rtp::{CLOCK, JPEG, RTP_LEN, Scan, header};
use lastmeter_wire::camera::text::{HEAD_MAX, Item, Request, Transport, parse};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of an RTP packet: an Ethernet frame's without fragments.
const PACKET: usize = 1400;
/// Time after which a client that says nothing is given up, unless frames are interleaved: then its connection tells.
const SILENCE: Duration = Duration::from_secs(65);
/// The longest time to take a frame.
const WRITE_TIME: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_millis(500);
const METHODS: &str = "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, GET_PARAMETER, TEARDOWN";

/// Where frames go.
#[derive(Clone)]
enum Way {
    Interleaved(u8),
    Udp(Arc<UdpSocket>, SocketAddr),
}

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

struct Talk<'a> {
    camera: &'a Arc<Camera>,
    writer: Arc<Mutex<TcpStream>>,
    chosen: Option<Chosen>,
    player: Option<Player>,
    session: String,
}

/// Serves a client whose first bytes are given.
pub(super) fn serve(camera: &Arc<Camera>, stream: TcpStream, mut bytes: Vec<u8>) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIME))?;
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, 128 << 10)?;
    let mut reader = stream.try_clone()?;
    let session = format!("{:08x}", super::store::clock() as u32);
    let writer = Arc::new(Mutex::new(stream));
    let mut talk = Talk { camera, writer, chosen: None, player: None, session };
    let mut block = [0; 4096];
    loop {
        let wrong = |error| io::Error::other(format!("RTSP: {error}"));
        while let Some((item, len)) = parse(&bytes).map_err(wrong)? {
            let goes_on = match item {
                Item::Request(request) => talk.answer(&request)?,
                Item::Data { .. } => true,
            };
            if !goes_on {
                return Ok(());
            }
            bytes.drain(..len);
        }
        let is_interleaved = talk.player.is_some()
            && matches!(&talk.chosen, Some(it) if matches!(it.way, Way::Interleaved(_)));
        reader.set_read_timeout((!is_interleaved).then_some(SILENCE))?;
        let count = reader.read(&mut block)?;
        if count == 0 || bytes.len() > HEAD_MAX + (1 << 16) {
            return Ok(());
        }
        bytes.extend(&block[..count]);
    }
}

impl Talk<'_> {
    /// Answers a request; false if it was the last.
    fn answer(&mut self, request: &Request<'_>) -> io::Result<bool> {
        let target = request.target.strip_suffix("/track").unwrap_or(request.target);
        let number = request.header("cseq").filter(|text| text.len() <= 10).unwrap_or("0");
        let reply = |status: &str, more: &str, body: &str| {
            let length = match body.len() {
                0 => String::new(),
                len => format!("Content-Length: {len}\r\n"),
            };
            let text = format!("RTSP/1.0 {status}\r\nCSeq: {number}\r\n{more}{length}\r\n{body}");
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.write_all(text.as_bytes())
        };
        let session = format!("Session: {};timeout=60\r\n", self.session);
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
                let Some((way, transport)) = self.way(request)? else {
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
                    self.player = Some(play(self.camera, chosen, &self.writer));
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
    /// How frames travel, and the answer that says so.
    fn way(&self, request: &Request<'_>) -> io::Result<Option<(Way, String)>> {
        let chosen = request.header("transport").and_then(Transport::choose);
        let peer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).peer_addr()?;
        Ok(match chosen {
            None => None,
            Some(Transport::Interleaved(channel)) => {
                let text =
                    format!("RTP/AVP/TCP;unicast;interleaved={channel}-{}", u16::from(channel) + 1);
                Some((Way::Interleaved(channel), text))
            }
            Some(Transport::Udp(port)) => {
                let own =
                    self.writer.lock().unwrap_or_else(PoisonError::into_inner).local_addr()?;
                let socket = UdpSocket::bind((own.ip(), 0))?;
                let from = socket.local_addr()?.port();
                let ports = format!("client_port={port}-{}", u32::from(port) + 1);
                let text = format!("RTP/AVP;unicast;{ports};server_port={from}-{from}");
                Some((Way::Udp(Arc::new(socket), SocketAddr::new(peer.ip(), port)), text))
            }
        })
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
            Way::Udp(socket, to) => {
                // A client that does not listen yet is no reason to end.
                let _ = socket.send_to(&packet, to);
            }
            Way::Interleaved(channel) => {
                let len = (packet.len() as u16).to_be_bytes();
                let whole = [&[b'$', *channel, len[0], len[1]][..], &packet].concat();
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
