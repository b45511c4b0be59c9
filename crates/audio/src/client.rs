//! A client of an audio device: it sends sound to the speaker, or hears the microphone.
//!
//! ```text
//! publish   ANNOUNCE, SETUP, RECORD; packets by the client's clock; TEARDOWN
//! listen    DESCRIBE, SETUP, PLAY; packets into a play-out of its own; TEARDOWN
//! ```

use super::outgoing::Outgoing;
use super::playout::{Arrival, Conceal, Counts, Playout, Settings};
use super::{DATAGRAM_MAX, block, packet, time, wall};
use lastmeter_device::rtsp::Ports;
use lastmeter_wire::requests::{HEAD_MAX, response, server_port};
use lastmeter_wire::rtp::{self, Packet, Report};
use lastmeter_wire::sdp::{DYNAMIC, Sound};
use lastmeter_wire::wav::Format;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time that a device has to answer, and to send the first sound.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two signs of life.
const ALIVE: Duration = Duration::from_secs(25);
/// The most datagrams that are taken before what is due is played.
const AT_ONCE: usize = 256;

/// A session with a device.
pub struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
    target: String,
    number: u32,
    session: Option<String>,
    ports: Ports,
    kind: u8,
    /// What goes over it.
    pub format: Format,
}

/// What was heard.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Channels in turn.
    pub samples: Vec<i16>,
    /// How long they last.
    pub seconds: f64,
    /// What became of packets.
    pub counts: Counts,
    /// From when sound was taken until it was played, in seconds, on average.
    pub delay: f64,
    /// The part of it in which packets were on their way.
    pub network: f64,
    /// Whether the device said when sound was taken; else it is counted from the fastest packet.
    pub is_whole: bool,
}

impl Client {
    /// To the speaker.
    ///
    /// # Errors
    /// If there is no device, or it refuses.
    pub fn publish(address: SocketAddr, token: &str, format: Format) -> io::Result<Client> {
        let mut client = Client::open(address, token, format)?;
        let sound = Sound { kind: DYNAMIC, rate: format.rate, channels: format.channels };
        let body = format!("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\n{}", sound.lines(0));
        client.ask("ANNOUNCE", "Content-Type: application/sdp\r\n", &body)?;
        client.setup(";mode=record")?;
        client.ask("RECORD", "", "")?;
        Ok(client)
    }
    /// From the microphone.
    ///
    /// # Errors
    /// If there is no device, or it refuses.
    pub fn listen(address: SocketAddr, token: &str) -> io::Result<Client> {
        let mut client = Client::open(address, token, Format { rate: 0, channels: 0 })?;
        let text = client.ask("DESCRIBE", "Accept: application/sdp\r\n", "")?.1;
        let sound = Sound::parse(&text).map_err(|error| io::Error::other(error.to_string()))?;
        let Sound { kind, rate, channels } = sound;
        if !lastmeter_wire::wav::RATES.contains(&rate) || !(1..=2).contains(&channels) {
            return Err(io::Error::other(format!("it has L16/{rate}/{channels}")));
        }
        (client.kind, client.format) = (kind, Format { rate, channels });
        client.setup("")?;
        client.ask("PLAY", "", "")?;
        Ok(client)
    }
    fn open(address: SocketAddr, token: &str, format: Format) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let ports = Ports::open(stream.local_addr()?.ip(), address)?;
        let target = format!("rtsp://{address}/{token}");
        let (bytes, session) = (Vec::new(), None);
        Ok(Client { stream, bytes, target, number: 0, session, ports, kind: DYNAMIC, format })
    }
    /// The fields that SETUP answers, and the body.
    fn ask(&mut self, method: &str, more: &str, body: &str) -> io::Result<(String, String)> {
        self.number += 1;
        let session = self.session.as_ref().map(|session| format!("Session: {session}\r\n"));
        let text = format!(
            "{method} {} RTSP/1.0\r\nCSeq: {}\r\n{}{more}Content-Length: {}\r\n\r\n{body}",
            self.target,
            self.number,
            session.unwrap_or_default(),
            body.len()
        );
        self.stream.write_all(text.as_bytes())?;
        let wrong = |error| io::Error::other(format!("it speaks no RTSP: {error}"));
        let mut block = [0; 4096];
        loop {
            let Some((answer, len)) = response(&self.bytes).map_err(wrong)? else {
                let count = self.stream.read(&mut block)?;
                if count == 0 || self.bytes.len() > 2 * HEAD_MAX {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.bytes.extend(&block[..count]);
                continue;
            };
            let body = String::from_utf8_lossy(answer.body).into_owned();
            let said = match body.trim() {
                "" => answer.reason.to_owned(),
                words => words.to_owned(),
            };
            match answer.status {
                200 => {}
                401 => {
                    let words = format!("denied: {said}");
                    return Err(io::Error::new(ErrorKind::PermissionDenied, words));
                }
                status => return Err(io::Error::other(format!("refused ({status}): {said}"))),
            }
            if let Some(session) = answer.header("session") {
                self.session = session.split(';').next().map(str::to_owned);
            }
            let transport = answer.header("transport").unwrap_or_default().to_owned();
            self.bytes.drain(..len);
            return Ok((transport, body));
        }
    }
    fn setup(&mut self, mode: &str) -> io::Result<()> {
        let port = u32::from(self.ports.number()?);
        let more = format!("Transport: RTP/AVP;unicast;client_port={port}-{}{mode}\r\n", port + 1);
        let target = format!("{}/track", self.target);
        let whole = std::mem::replace(&mut self.target, target);
        let answered = self.ask("SETUP", &more, "");
        self.target = whole;
        let port = server_port(&answered?.0).ok_or(io::Error::other("it names no port"))?;
        self.ports.to.set_port(port);
        Ok(())
    }
    /// Ends the session.
    ///
    /// # Errors
    /// If the device does not answer.
    pub fn close(mut self) -> io::Result<()> {
        self.ask("TEARDOWN", "", "").map(|_| ())
    }

    /// Sends samples by this host's clock, so that each packet leaves when its first sample is due; how many packets.
    ///
    /// # Errors
    /// If the device cannot be reached.
    pub fn send(&mut self, samples: &[i16]) -> io::Result<u32> {
        let Format { rate, channels } = self.format;
        let mut outgoing = Outgoing::new(self.kind)?;
        let (began, clock, len) = (Instant::now(), wall(), packet(self.format));
        let mut packets = 0;
        for (number, part) in samples.chunks(len).enumerate() {
            let frames = (number * len / usize::from(channels)) as u64;
            let due = began + time(frames, rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if let Some(report) = outgoing.report(frames, clock + time(frames, rate)) {
                self.ports.reports.send_to(&report, self.ports.reports_to())?;
            }
            self.ports.data.send_to(&outgoing.packet(frames, part), self.ports.to)?;
            outgoing.sent(part.len());
            packets += 1;
        }
        Ok(packets)
    }

    /// Hears so long, from the first sound on, through a play-out of its own, or until it is told to end.
    ///
    /// # Errors
    /// If no sound comes.
    pub fn hear(
        &mut self,
        length: Duration,
        delay: Duration,
        conceal: Conceal,
        ended: &AtomicBool,
    ) -> io::Result<Heard> {
        let Format { rate, channels } = self.format;
        let settings = Settings { rate, channels, delay, conceal };
        let frames = block(self.format);
        let mut out = vec![0; frames * usize::from(self.format.channels)];
        let wanted = settings.frames(length) * usize::from(self.format.channels);
        let (mut playout, mut samples) = (Playout::new(settings), Vec::new());
        let (began, mut count, mut alive) = (Instant::now(), 0u64, Instant::now());
        let (mut played, mut delay, mut network) = (0u64, 0.0, 0.0);
        self.ports.reports.set_nonblocking(true)?;
        while samples.len() < wanted && !ended.load(Relaxed) {
            // First what has come: this thread may be late itself.
            self.ports.data.set_nonblocking(true)?;
            let mut room = AT_ONCE;
            while room > 0 && self.take(&mut playout, began)? {
                room -= 1;
            }
            let due = began + time((count + 1) * frames as u64, self.format.rate);
            let left = due.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                self.ports.data.set_nonblocking(false)?;
                self.ports.data.set_read_timeout(Some(left))?;
                self.take(&mut playout, began)?;
                continue;
            }
            count += 1;
            let now = due.saturating_duration_since(began);
            playout.pull(&mut out, now, |one| {
                played += 1;
                network += one.network.as_secs_f64();
                delay += (one.network + one.held).as_secs_f64();
            });
            if playout.is_playing() {
                let room = (wanted - samples.len()).min(out.len());
                samples.extend(&out[..room]);
            } else if now > PATIENCE && samples.is_empty() {
                return Err(io::Error::new(ErrorKind::TimedOut, "no sound comes"));
            }
            if alive.elapsed() > ALIVE {
                self.ask("GET_PARAMETER", "", "")?;
                alive = Instant::now();
            }
        }
        let mean = |sum: f64| sum / played.max(1) as f64;
        let (delay, network, is_whole) = (mean(delay), mean(network), playout.is_whole);
        let seconds = samples.len() as f64 / f64::from(rate) / f64::from(channels);
        Ok(Heard { samples, seconds, counts: playout.counts, delay, network, is_whole })
    }
    /// Takes a report, and a datagram, if one comes in time; whether one came.
    fn take(&self, playout: &mut Playout, began: Instant) -> io::Result<bool> {
        let mut bytes = [0; DATAGRAM_MAX];
        let mut next = |socket: &UdpSocket| match socket.recv_from(&mut bytes) {
            Ok((len, from)) if from.ip() == self.ports.to.ip() => Ok(Some(bytes[..len].to_vec())),
            Ok(_) => Ok(None),
            Err(error) => match error.kind() {
                // A signal ends a wait, too.
                ErrorKind::WouldBlock
                | ErrorKind::TimedOut
                | ErrorKind::Interrupted
                | ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(error),
            },
        };
        if let Some(bytes) = next(&self.ports.reports)?
            && let Ok(report) = Report::parse(&bytes)
            && let Some(clock) = report.since_1970()
        {
            playout.report(clock, report.timestamp);
        }
        let Some(bytes) = next(&self.ports.data)? else { return Ok(false) };
        let Ok(found) = Packet::parse(&bytes) else { return Ok(true) };
        if found.kind != self.kind || rtp::is_control(&bytes) {
            return Ok(true);
        }
        let Ok(samples) = rtp::samples(found.payload) else { return Ok(true) };
        let Packet { sequence, timestamp, .. } = found;
        let arrival = Arrival { sequence, timestamp, samples, wall: wall(), spent: Duration::ZERO };
        playout.receive(arrival, began.elapsed());
        Ok(true)
    }
}
