//! Viewers by HTTP: a page, one frame, or MJPEG. A frame is captured when the last one is written, so a slow viewer
//! gets fewer frames and not older ones.
//!
//! ```text
//! GET /                                   a page that shows the stream
//! GET /frame.jpg?width=320&quality=60     one frame
//! GET /stream.mjpg?rate=5&x=0&y=0&w=320&h=240
//! GET /TOKEN/stream.mjpg                  or ?token=TOKEN, or Authorization: Bearer TOKEN
//! ```

use super::gate::{Camera, Gate, stage};
use super::pace::{Next, Pace};
use crate::access::ANYONE;
use lastmeter_wire::camera::{Code, Command, Format, Region};
use lastmeter_wire::requests::Request;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes that wait in the kernel: about a frame.
const BUFFER: usize = 128 << 10;
/// The longest time to take a frame.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// The longest time without a frame from the source.
const PATIENCE: Duration = Duration::from_secs(2);
const BOUNDARY: &str = "frame-of-lastmeter";
const PAGE: &str = include_str!("page.html");
/// Rates that the page offers, besides the camera's own.
const RATES: [f64; 3] = [1.0, 5.0, 15.0];

/// Text in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page that shows the stream of an address, at a host that the viewer named.
fn page(camera: &Camera, target: &str, asked: &Command, host: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = path.trim_end_matches('/');
    let others: Vec<&str> =
        query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("rate=")).collect();
    let with = |rate: f64| [&[&*format!("rate={rate}")], &others[..]].concat().join("&");
    let rates = RATES.iter().copied().filter(|rate| *rate < camera.rate);
    let mut links = String::new();
    for rate in rates.chain([camera.rate]) {
        let is_chosen = (rate * 1000.0) as u32 == asked.millihertz;
        let current = if is_chosen { " aria-current=\"true\"" } else { "" };
        let target = escaped(&format!("{path}/?{}", with(rate)));
        links += &format!("<a href=\"{target}\"{current}>{rate} frames/s</a>");
    }
    let stream = format!("{path}/stream.mjpg?{}", with(f64::from(asked.millihertz) / 1000.0));
    let side = |asked: u16, own: u16| if asked == 0 { own } else { asked }.to_string();
    PAGE.replace("WIDTH", &side(asked.width, camera.size.0))
        .replace("HEIGHT", &side(asked.height, camera.size.1))
        .replace("LINKS", &links)
        .replace("STREAM", &escaped(&stream))
        .replace("HOST", &escaped(&format!("{host}{path}")))
        // Last: it is the owner's, and may hold such words.
        .replace("NAME", &escaped(&camera.name))
}

/// What an address asks for: whose it is, the name of what is wanted, and how.
pub(super) struct Asked<'a> {
    pub(super) client: Result<&'a str, ()>,
    pub(super) name: &'a str,
    pub(super) command: Command,
}

/// Reads the address of a request.
pub(super) fn asked<'a>(
    camera: &'a Camera,
    request: &'a Request<'_>,
    target: &'a str,
) -> Result<Asked<'a>, String> {
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => target.trim_start_matches('/'),
    };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let path = path.trim_matches('/');
    let (mut token, name) = match path.rsplit_once('/') {
        Some((token, name)) => (token, name),
        // A word alone may be either.
        None if camera.access.shown(path).is_some() => (path, ""),
        None => ("", path),
    };
    let rate = (camera.rate * 1000.0) as u32;
    let mut command = Command { code: Code::Rate, millihertz: rate, ..Command::default() };
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let wrong = || format!("{key}={value}: a number is wanted");
        let number = || value.parse::<u16>().map_err(|_| wrong());
        match key {
            "token" => token = value,
            "rate" => {
                let rate = value.parse::<f64>().ok().filter(|rate| *rate > 0.0 && *rate <= 1000.0);
                command.millihertz = (rate.ok_or_else(wrong)? * 1000.0).max(1.0) as u32;
            }
            "n" => {
                (command.code, command.frames) = (Code::Frames, number()?.into());
            }
            "width" => command.width = number()?,
            "height" => command.height = number()?,
            "x" => command.region.x = number()?,
            "y" => command.region.y = number()?,
            "w" => command.region.w = number()?,
            "h" => command.region.h = number()?,
            "quality" => command.quality = number()?.min(100) as u8,
            _ => return Err(format!("{key}: rate, n, width, height, x, y, w, h, quality, token")),
        }
    }
    if command.region.w == 0 && command.region != Region::default() {
        return Err("a region has x, y, w and h".to_owned());
    }
    if let Some(bearer) = request.header("authorization").and_then(|it| it.strip_prefix("Bearer "))
    {
        token = bearer.trim();
    }
    let client = if token.is_empty() { Some(ANYONE) } else { camera.access.shown(token) };
    let client = client.filter(|name| camera.access.client(name).is_some()).ok_or(());
    command.format = Format::Jpeg;
    Ok(Asked { client, name, command })
}

fn say(mut stream: &TcpStream, status: &str, kind: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

/// Answers one request.
pub(super) fn serve(camera: &Camera, stream: &TcpStream, request: &Request<'_>) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIME))?;
    let plain = |status: &str, words: &str| {
        say(stream, status, "text/plain; charset=utf-8", format!("{words}\n").as_bytes())
    };
    if request.method != "GET" {
        return plain("405 Method Not Allowed", "only GET");
    }
    let asked = match asked(camera, request, request.target) {
        Ok(asked) => asked,
        Err(why) => return plain("400 Bad Request", &why),
    };
    let Ok(client) = asked.client else {
        return plain("401 Unauthorized", "show a token: /TOKEN/stream.mjpg");
    };
    match asked.name {
        "" => {
            let host = request.header("host").unwrap_or("");
            let page = page(camera, request.target, &asked.command, host);
            say(stream, "200 OK", "text/html; charset=utf-8", page.as_bytes())
        }
        "frame.jpg" => {
            let once = Command { code: Code::Frames, frames: 1, ..asked.command };
            stream_to(camera, stream, client, &once, false)
        }
        "stream.mjpg" => stream_to(camera, stream, client, &asked.command, true),
        _ => plain("404 Not Found", "/stream.mjpg, /frame.jpg, or / for a page"),
    }
}

/// Writes frames until the viewer leaves.
fn stream_to(
    camera: &Camera,
    mut stream: &TcpStream,
    client: &str,
    command: &Command,
    is_many: bool,
) -> io::Result<()> {
    let plain =
        |status: &str, why: &str| say(stream, status, "text/plain; charset=utf-8", why.as_bytes());
    rustix::net::sockopt::set_socket_send_buffer_size(stream, BUFFER)?;
    let mut gate = match Gate::new(camera, client) {
        Ok(gate) => gate,
        Err(why) => return plain("500 Internal Server Error", &why),
    };
    let (began, mut last, mut rest) = (Instant::now(), None, Duration::ZERO);
    let mut pace = Pace::new(Duration::ZERO);
    pace.command(command, Duration::ZERO);
    if is_many {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary={BOUNDARY}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n--{BOUNDARY}\r\n"
        );
        stream.write_all(head.as_bytes())?;
    }
    loop {
        pace.heard(began.elapsed());
        let wanted = Instant::now();
        match pace.next(began.elapsed()) {
            Next::Idle(_) | Next::Over => return Ok(()),
            Next::Wait(left) => {
                std::thread::sleep(left);
                rest += wanted.elapsed();
                if !is_open(stream) {
                    return Ok(());
                }
                continue;
            }
            Next::Take => {}
        }
        let frame = match camera.store.next(last, PATIENCE) {
            Ok(Some(frame)) => frame,
            Ok(None) => continue,
            Err(why) if is_many => return Err(io::Error::other(why)),
            Err(why) => return plain("503 Service Unavailable", &why),
        };
        last = Some(frame.number);
        pace.took();
        let mut lap = camera.account.begin_at(Some(wanted));
        lap.served(stage::CAPTURE);
        let made = match gate.make(command, &frame, &mut lap) {
            Ok(made) => made,
            Err(refusal) => {
                camera.account.refuse(refusal.words());
                if !is_many {
                    return plain("403 Forbidden", refusal.words());
                }
                if !is_open(stream) {
                    return Ok(());
                }
                continue;
            }
        };
        let seconds = made.frame.clock as f64 / 1e6;
        let bytes = if is_many {
            let head = format!(
                "Content-Type: image/jpeg\r\nContent-Length: {}\r\nX-Timestamp: {seconds:.6}\r\n\
                 X-Frame: {}\r\n\r\n",
                made.bytes.len(),
                made.frame.number,
            );
            // The boundary behind a frame tells viewers that it is complete.
            [head.as_bytes(), &made.bytes, format!("\r\n--{BOUNDARY}\r\n").as_bytes()].concat()
        } else {
            say(stream, "200 OK", "image/jpeg", &made.bytes)?;
            Vec::new()
        };
        stream.write_all(&bytes)?;
        lap.served(stage::NETWORK);
        camera.packets.fetch_add(1, Relaxed);
        camera.bytes.fetch_add(made.bytes.len().max(bytes.len()) as u64, Relaxed);
        camera.cycle.add(&lap, std::mem::take(&mut rest));
        camera.account.end(lap, made.bytes.len() as u64);
        pace.sent(began.elapsed());
    }
}

/// Whether the viewer is still there: it has nothing to say, so what can be read is its end.
fn is_open(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return false;
    }
    let peeked = stream.peek(&mut [0]);
    let back = stream.set_nonblocking(false).is_ok();
    back && match peeked {
        Ok(count) => count > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}
