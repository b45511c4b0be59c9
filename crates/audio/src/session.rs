//! A client's connection: RTSP, with sound in RTP over UDP or between the requests.
//!
//! ```text
//! rtsp://HOST:PORT/TOKEN
//! ANNOUNCE, SETUP, RECORD: the client sends to the speaker       DESCRIBE, SETUP, PLAY: it hears the microphone
//! OPTIONS  PAUSE  GET_PARAMETER  TEARDOWN
//! ```
//!
//! Rows: N-01.

use super::gate::Gate;
use super::microphone::Block;
use super::outgoing::Outgoing;
use super::playout::Arrival;
use super::speaker::Stream;
use super::{Audio, DATAGRAM_MAX, packet, said, wall};
use lastmeter_device::access::ANYONE;
use lastmeter_device::rtsp::{Link, Ports, SILENCE, Talk, Way, interleaved};
use lastmeter_wire::requests::Request;
use lastmeter_wire::rtp::{self, Packet, Report};
use lastmeter_wire::sdp::Sound;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a thread looks whether its session is over.
const LOOK: Duration = Duration::from_millis(100);
/// The most datagrams that are taken after a session's end.
const REST_MAX: usize = 256;
const METHODS: &str =
    "OPTIONS, ANNOUNCE, DESCRIBE, SETUP, RECORD, PLAY, PAUSE, GET_PARAMETER, TEARDOWN";

/// The threads of a session, which end with it.
struct Threads {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    fn new() -> Threads {
        Threads { ended: Arc::default(), threads: Vec::new() }
    }
    fn add(&mut self, run: impl FnOnce(&AtomicBool) + Send + 'static) -> io::Result<()> {
        let ended = self.ended.clone();
        self.threads.push(std::thread::Builder::new().spawn(move || run(&ended))?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What a client sends.
struct Ear {
    audio: Arc<Audio>,
    client: String,
    sound: Sound,
    stream: Arc<Stream>,
    from: SocketAddr,
    to: SocketAddr,
    /// When it last sent anything.
    last: Mutex<Instant>,
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.stream.end();
    }
}

/// Where a stream comes from, once it has begun.
#[derive(Default)]
struct Latch {
    source: Option<u32>,
    from: Option<SocketAddr>,
}

impl Ear {
    fn is_alive(&self) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < SILENCE
    }
    /// A packet comes; if it is refused, the account says why.
    fn packet(&self, gate: &mut Gate, latch: &mut Latch, bytes: &mut [u8]) {
        if rtp::is_control(bytes) {
            return self.report(bytes);
        }
        let (at, clock) = (Instant::now(), wall());
        if let Err(why) = self.hear(gate, latch, bytes, at, clock) {
            self.audio.heard.refuse(&why);
        }
    }
    fn hear(
        &self,
        gate: &mut Gate,
        latch: &mut Latch,
        bytes: &mut [u8],
        at: Instant,
        wall: Duration,
    ) -> Result<(), String> {
        let found = Packet::parse(bytes).map_err(|_| "no RTP")?;
        let Packet { kind, sequence, timestamp, source, .. } = found;
        if kind != self.sound.kind {
            return Err("of another payload type".to_owned());
        }
        if *latch.source.get_or_insert(source) != source {
            return Err("of another source".to_owned());
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = at;
        gate.pass(bytes)?;
        let found = Packet::parse(bytes).map_err(|_| "no RTP")?;
        let samples = rtp::samples(found.payload).map_err(|_| "half a sample")?;
        if !samples.len().is_multiple_of(self.sound.channels.into()) {
            return Err("a part of a frame".to_owned());
        }
        let spent = at.elapsed();
        self.stream.receive(Arrival { sequence, timestamp, samples, wall, spent }, at);
        Ok(())
    }
    fn report(&self, bytes: &[u8]) {
        if let Ok(report) = Report::parse(bytes)
            && let Some(clock) = report.since_1970()
        {
            self.stream.report(clock, report.timestamp);
        }
    }
    fn gate(&self) -> Result<Gate, String> {
        Gate::new(&self.audio, &self.client, self.from, self.to)
    }
}

/// Takes datagrams of a client until its session is over.
fn datagrams(
    socket: &UdpSocket,
    ended: &AtomicBool,
    from: SocketAddr,
    mut take: impl FnMut(&mut Latch, &mut [u8]),
) {
    let (mut datagram, mut latch) = (vec![0; DATAGRAM_MAX], Latch::default());
    let _ = socket.set_read_timeout(Some(LOOK));
    // What had come before the end is still taken.
    let mut left = REST_MAX;
    while left > 0 {
        let is_over = ended.load(Relaxed);
        if is_over {
            left -= 1;
            let _ = socket.set_nonblocking(true);
        }
        match socket.recv_from(&mut datagram) {
            // Its address is the connection's; its port is that of its first packet.
            Ok((len, came)) if came.ip().to_canonical() == from.ip().to_canonical() => {
                if *latch.from.get_or_insert(came) == came {
                    take(&mut latch, &mut datagram[..len]);
                }
            }
            Ok(_) => {}
            Err(error) if is_over && error.kind() == ErrorKind::WouldBlock => return,
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::ConnectionRefused]
                    .contains(&error.kind()) => {}
            Err(_) => return,
        }
    }
}

/// A client.
pub(super) struct Session {
    audio: Arc<Audio>,
    link: Arc<Link>,
    client: Option<String>,
    sound: Option<Sound>,
    /// As SETUP chose it.
    way: Option<Way>,
    ear: Option<Arc<Ear>>,
    /// Of sound that comes in this connection.
    inside: Option<(Gate, Latch)>,
    threads: Option<Threads>,
}

impl Session {
    pub(super) fn new(audio: &Arc<Audio>, link: Link) -> Session {
        Session {
            audio: audio.clone(),
            link: Arc::new(link),
            client: None,
            sound: None,
            way: None,
            ear: None,
            inside: None,
            threads: None,
        }
    }
    /// Whose address it is.
    fn whose(&self, request: &Request<'_>) -> Option<String> {
        let access = &self.audio.access;
        let bearer = request.header("authorization").and_then(|it| it.strip_prefix("Bearer "));
        let token = bearer.map_or_else(|| token(request.target), str::trim);
        let client = if token.is_empty() { Some(ANYONE) } else { access.shown(token) };
        client.filter(|name| access.client(name).is_some()).map(str::to_owned)
    }
    /// The client of this connection, if it is the same that asks.
    fn admit(&mut self, request: &Request<'_>) -> io::Result<bool> {
        let found = self.whose(request);
        let is_same = self.client.is_none() || self.client == found;
        if found.is_none() || !is_same {
            let words = "no client has this token\n";
            self.link.reply(request, "401 Unauthorized", "", words)?;
            return Ok(false);
        }
        self.client = found;
        Ok(true)
    }
    fn announce(&mut self, request: &Request<'_>) -> io::Result<()> {
        let text = std::str::from_utf8(request.body).unwrap_or_default();
        let own = self.audio.sound();
        let found = Sound::parse(text).map_err(|error| error.to_string()).and_then(|sound| {
            let fits = (sound.rate, sound.channels) == (own.rate, own.channels);
            let words = format!("this is L16/{}/{}", sound.rate, sound.channels);
            if fits { Ok(sound) } else { Err(words) }
        });
        match found {
            Ok(sound) => {
                self.stop();
                (self.sound, self.way) = (Some(sound), None);
                self.link.reply(request, "200 OK", &self.link.session(), "")
            }
            Err(why) => {
                let words = format!("{why}; the device takes L16/{}/{}\n", own.rate, own.channels);
                self.link.reply(request, "415 Unsupported Media Type", "", &words)
            }
        }
    }
    fn setup(&mut self, request: &Request<'_>) -> io::Result<()> {
        let Some((way, transport)) = self.link.way(request)? else {
            return self.link.reply(request, "461 Unsupported Transport", "", "");
        };
        self.stop();
        self.way = Some(way);
        let mode = if self.sound.is_some() { ";mode=record" } else { "" };
        let more = format!("{}Transport: {transport}{mode}\r\n", self.link.session());
        self.link.reply(request, "200 OK", &more, "")
    }
    /// The client and how its packets travel, if both are known.
    fn ready(&self) -> Option<(String, Way)> {
        Some((self.client.clone()?, self.way.clone()?))
    }
    fn record(&mut self, request: &Request<'_>) -> io::Result<()> {
        let (Some((client, way)), Some(sound)) = (self.ready(), self.sound) else {
            return self.link.reply(request, "455 Method Not Valid in This State", "", "");
        };
        if self.ear.is_some() {
            return self.link.reply(request, "200 OK", &self.link.session(), "");
        }
        let stream = match self.audio.speaker.admit(&client) {
            Ok(stream) => stream,
            Err(why) => {
                self.audio.heard.refuse(&why);
                return self.link.reply(request, "453 Not Enough Bandwidth", "", &(why + "\n"));
            }
        };
        let (mut from, mut to) = self.link.addresses()?;
        if let Way::Udp(ports) = &way {
            (from, to) = (ports.to, SocketAddr::new(to.ip(), ports.number()?));
        }
        let (audio, last) = (self.audio.clone(), Mutex::new(Instant::now()));
        let ear = Arc::new(Ear { audio, client, sound, stream, from, to, last });
        match way {
            Way::Udp(ports) => self.threads = Some(hear(&ear, ports)?),
            Way::Interleaved(_) => {
                let gate = ear.gate().map_err(io::Error::other)?;
                self.inside = Some((gate, Latch::default()));
            }
        }
        self.ear = Some(ear);
        let more = format!("{}Range: npt=now-\r\n", self.link.session());
        self.link.reply(request, "200 OK", &more, "")
    }
    fn play(&mut self, request: &Request<'_>) -> io::Result<()> {
        let (Some((client, way)), None) = (self.ready(), self.sound) else {
            return self.link.reply(request, "455 Method Not Valid in This State", "", "");
        };
        let more = format!("{}Range: npt=now-\r\n", self.link.session());
        self.link.reply(request, "200 OK", &more, "")?;
        if self.threads.is_none() {
            let mut threads = Threads::new();
            let (audio, link) = (self.audio.clone(), self.link.clone());
            threads.add(move |ended| {
                let voice = Voice { audio: &audio, link: &link, way };
                if voice.speak(&client, ended).is_err() {
                    // The thread that reads ends, too.
                    let writer = link.writer.lock().unwrap_or_else(PoisonError::into_inner);
                    let _ = writer.shutdown(std::net::Shutdown::Both);
                }
            })?;
            self.threads = Some(threads);
        }
        Ok(())
    }
    fn stop(&mut self) {
        // First what feeds the stream.
        self.threads = None;
        (self.ear, self.inside) = (None, None);
    }
}

/// The token in an address: the first part of its path, unless that is the name of a track.
fn token(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => target.trim_start_matches('/'),
    };
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let first = path.split('/').next().unwrap_or("");
    if first == "track" || first.starts_with("streamid=") { "" } else { first }
}

/// Takes packets and reports of a client over UDP.
fn hear(ear: &Arc<Ear>, ports: Ports) -> io::Result<Threads> {
    let mut threads = Threads::new();
    let (own, socket, from) = (ear.clone(), ports.data, ports.to);
    threads.add(move |ended| {
        let Ok(mut gate) = own.gate() else { return };
        datagrams(&socket, ended, from, |latch, bytes| own.packet(&mut gate, latch, bytes));
    })?;
    let (own, socket) = (ear.clone(), ports.reports);
    threads.add(move |ended| datagrams(&socket, ended, from, |_, bytes| own.report(bytes)))?;
    Ok(threads)
}

impl Talk for Session {
    fn answer(&mut self, request: &Request<'_>) -> io::Result<bool> {
        let open = ["OPTIONS", "GET_PARAMETER", "SET_PARAMETER"].contains(&request.method);
        if !open && !self.admit(request)? {
            return Ok(true);
        }
        let session = self.link.session();
        match request.method {
            "OPTIONS" => {
                self.link.reply(request, "200 OK", &format!("Public: {METHODS}\r\n"), "")?;
            }
            "ANNOUNCE" => self.announce(request)?,
            "DESCRIBE" => {
                let target = request.target.trim_end_matches('/');
                let body = self.audio.describe(&format!("{target}/track"));
                let more = format!("Content-Base: {target}/\r\nContent-Type: application/sdp\r\n");
                self.link.reply(request, "200 OK", &more, &body)?;
            }
            "SETUP" => self.setup(request)?,
            "RECORD" => self.record(request)?,
            "PLAY" => self.play(request)?,
            "PAUSE" => {
                self.stop();
                self.link.reply(request, "200 OK", &session, "")?;
            }
            "GET_PARAMETER" | "SET_PARAMETER" => {
                self.link.reply(request, "200 OK", &session, "")?
            }
            "TEARDOWN" => {
                self.stop();
                self.link.reply(request, "200 OK", &session, "")?;
                return Ok(false);
            }
            _ => {
                let public = format!("Public: {METHODS}\r\n");
                self.link.reply(request, "501 Not Implemented", &public, "")?;
            }
        }
        Ok(true)
    }
    fn data(&mut self, channel: u8, bytes: &[u8]) {
        let Some(Way::Interleaved(own)) = self.way else { return };
        let (Some(ear), Some((gate, latch))) = (&self.ear, &mut self.inside) else { return };
        if channel == own.wrapping_add(1) {
            ear.report(bytes);
        } else if channel == own && bytes.len() <= DATAGRAM_MAX {
            ear.packet(gate, latch, &mut bytes.to_vec());
        }
    }
    fn is_interleaved(&self) -> bool {
        // One that sends is heard; what one that listens does not take ends the connection.
        let listens = self.ear.is_none() && self.threads.is_some();
        listens && matches!(self.way, Some(Way::Interleaved(_)))
    }
    fn is_alive(&self) -> bool {
        self.ear.as_ref().is_some_and(|ear| ear.is_alive())
    }
}

/// What a client hears.
struct Voice<'a> {
    audio: &'a Arc<Audio>,
    link: &'a Link,
    way: Way,
}

impl Voice<'_> {
    fn speak(&self, client: &str, ended: &AtomicBool) -> io::Result<()> {
        let audio = self.audio;
        let (peer, own) = self.link.addresses()?;
        let (from, to) = match &self.way {
            Way::Interleaved(_) => (own, peer),
            Way::Udp(ports) => (SocketAddr::new(own.ip(), ports.number()?), ports.to),
        };
        let mut gate = Gate::new(audio, client, from, to).map_err(io::Error::other)?;
        let (queue, kind) = (audio.microphone.listen(), audio.sound().kind);
        let mut outgoing = Outgoing::new(kind)?;
        let (channels, most) = (usize::from(audio.format.channels), packet(audio.format));
        while !ended.load(Relaxed) {
            let block: Arc<Block> = match queue.recv_timeout(LOOK) {
                Ok(block) => block,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the microphone gives no more sound"));
                }
            };
            if let Some(report) = outgoing.report(block.position, block.wall) {
                self.send(true, &report)?;
            }
            for (number, part) in block.samples.chunks(most).enumerate() {
                let mut lap = audio.said.begin_at(Some(block.taken));
                lap.served(said::CAPTURE);
                let frame = block.position + (number * most / channels) as u64;
                let mut whole = outgoing.packet(frame, part);
                let passes = gate.pass(&mut whole);
                lap.served(said::POLICY);
                if let Err(name) = passes {
                    audio.said.refuse(&name);
                    continue;
                }
                self.send(false, &whole)?;
                lap.served(said::NETWORK);
                audio.said.end(lap, outgoing.sent(part.len()));
            }
        }
        Ok(())
    }
    fn send(&self, is_report: bool, packet: &[u8]) -> io::Result<()> {
        match &self.way {
            Way::Udp(ports) => {
                // A client that does not listen yet is no reason to end.
                let _ = match is_report {
                    true => ports.reports.send_to(packet, ports.reports_to()),
                    false => ports.data.send_to(packet, ports.to),
                };
                Ok(())
            }
            Way::Interleaved(channel) => {
                let channel = channel + u8::from(is_report);
                self.link.write(&interleaved(channel, packet))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::token;

    #[test]
    fn a_token_is_the_first_part_of_a_path() {
        for (target, wanted) in [
            ("rtsp://a:1/a-long-secret", "a-long-secret"),
            ("rtsp://a:1/a-long-secret/streamid=0", "a-long-secret"),
            ("/a-long-secret/track?x=1", "a-long-secret"),
            ("rtsp://a:1", ""),
            ("rtsp://a:1/streamid=0", ""),
            ("rtsp://a/track", ""),
            ("*", "*"),
        ] {
            assert_eq!(token(target), wanted, "{target}");
        }
    }
}
