//! `lastmeter bench camera`: glass to glass by the time in the picture, beside the same pictures through ffmpeg as
//! MJPEG by HTTP; and the traffic of a receiver that looks now and then, as a share of a constant stream.

use super::client::{Seen, receive};
use crate::measured::{Folder, line};
use crate::{Complaint, Report};
use lastmeter_device::camera::encode::from_jpeg;
use lastmeter_device::camera::frame::Layout;
use lastmeter_device::camera::pattern::{Pattern, read};
use lastmeter_device::camera::receiver::Receiver;
use lastmeter_device::camera::store::clock;
use lastmeter_wire::camera::Command as Asked;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SIZE: (u16, u16) = (640, 480);
const RATE: f64 = 30.0;

#[derive(clap::Args)]
pub(crate) struct Bench {
    /// Only benchmarks whose name contains this
    name: Option<String>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
}

/// A program that is ended with its measurement.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn camera(folder: &Path) -> Result<(Running, SocketAddr), Complaint> {
    let address = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let file = folder.join("camera.toml");
    let (w, h) = SIZE;
    let text = format!("size = \"{w}x{h}\"\nrate = {RATE}\nreceivers = \"{address}\"\n");
    std::fs::write(&file, text)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["camera", "run"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    Ok((Running(command.spawn()?), address))
}

/// A receiver of a camera that may just have begun.
fn receiver(address: SocketAddr, command: Asked) -> Result<Receiver, Complaint> {
    let began = Instant::now();
    let mut receiver = Receiver::new(address, command)?;
    receiver.command.frames = 1;
    loop {
        let came = receiver
            .ask(lastmeter_wire::camera::Code::Frames)
            .and_then(|()| receiver.next(Duration::from_millis(200)));
        match came {
            Ok(Some(_)) => return Ok(receiver),
            _ if began.elapsed() > Duration::from_secs(10) => {
                return Err(Complaint("the camera did not begin".to_owned()));
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The same pictures, encoded and served by ffmpeg. `None` if it is not installed.
fn ffmpeg(seconds: f64) -> Result<Option<Seen>, Complaint> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (w, h) = SIZE;
    let mut command = Command::new("ffmpeg");
    command
        .args(["-loglevel", "error", "-fflags", "nobuffer", "-probesize", "32"])
        .args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", &format!("{w}x{h}")])
        .args(["-r", &RATE.to_string(), "-i", "pipe:0", "-q:v", "4", "-flush_packets", "1"])
        .args(["-f", "mpjpeg", "-listen", "1", &format!("http://127.0.0.1:{port}/")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(child) = command.spawn() else { return Ok(None) };
    let mut running = Running(child);
    let mut input = running.0.stdin.take().ok_or("ffmpeg has no input")?;
    let ended = Arc::<AtomicBool>::default();
    let told = ended.clone();
    let feeder = std::thread::spawn(move || {
        let (pattern, began) = (Pattern::new(Layout::Colour, w, h), Instant::now());
        for number in 0u32.. {
            let due = began + Duration::from_secs_f64(f64::from(number) / RATE);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let pixels = pattern.draw(number, clock());
            if told.load(Ordering::Relaxed) || input.write_all(&pixels.bytes).is_err() {
                return;
            }
        }
    });
    let seen = view(port, seconds);
    ended.store(true, Ordering::Relaxed);
    drop(running);
    let _ = feeder.join();
    seen.map(Some)
}

/// Reads MJPEG by HTTP: what lies between the marks of a JPEG's beginning and end.
fn view(port: u16, seconds: f64) -> Result<Seen, Complaint> {
    let began = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) if began.elapsed() > Duration::from_secs(10) => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let (mut seen, mut bytes, mut block) = (Seen::default(), Vec::new(), vec![0; 1 << 16]);
    let mut first = None;
    // What gathered until the viewer came is not counted: a second goes by.
    let warm = Duration::from_secs(1);
    loop {
        let count = stream.read(&mut block)?;
        if count == 0 {
            return Err(Complaint("ffmpeg ended".to_owned()));
        }
        bytes.extend_from_slice(&block[..count]);
        let find = |from: usize, mark: [u8; 2]| {
            bytes[from..].windows(2).position(|pair| pair == mark).map(|at| at + from)
        };
        let Some(start) = find(0, [0xff, 0xd8]) else { continue };
        let Some(end) = find(start, [0xff, 0xd9]) else { continue };
        let pixels = from_jpeg(&bytes[start..end + 2])?;
        let began = *first.get_or_insert_with(Instant::now);
        if began.elapsed() > warm {
            let taken = read(&pixels).ok_or("the digits in ffmpeg's picture cannot be read")?.1;
            seen.latencies.push(clock().saturating_sub(taken) as f64 / 1e6);
            seen.frames += 1;
            seen.bytes += (end + 2 - start) as u64;
        }
        bytes.drain(..end + 2);
        seen.seconds = began.elapsed().saturating_sub(warm).as_secs_f64();
        if seen.seconds > seconds {
            seen.latencies.sort_by(f64::total_cmp);
            return Ok(seen);
        }
    }
}

pub(crate) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    let seconds = if quick { 2.0 } else { arguments.seconds };
    let wanted = |name: &str| arguments.name.as_ref().is_none_or(|part| name.contains(part));
    let folder = Folder::new(&std::env::temp_dir(), "camera")?;
    let (_camera, address) = camera(folder.path())?;
    let (mut text, mut json) = (String::new(), Vec::new());
    let mut receiver = receiver(address, Asked::default())?;
    let whole = receive(&mut receiver, seconds, RATE, true, Duration::ZERO)?;
    let latency = |seen: &Seen, share| seen.latency(share).ok_or(Complaint("no frame came".into()));
    if wanted("camera/glass-to-glass") {
        let (median, late) = (latency(&whole, 0.5)?, latency(&whole, 0.99)?);
        let peer = ffmpeg(seconds)?;
        let other = peer.as_ref().map(|seen| latency(seen, 0.5)).transpose()?;
        let at_most = peer.as_ref().map(|seen| latency(seen, 0.99)).transpose()?.unwrap_or(0.0);
        let note = format!(
            "{}x{} at {RATE} frames/s: {:.1} frames/s came, {} lost, 99th percentile {:.1} ms; \
             ffmpeg (MJPEG by HTTP) {:.1} ms",
            SIZE.0,
            SIZE.1,
            whole.frames as f64 / whole.seconds,
            whole.lost,
            late * 1e3,
            at_most * 1e3,
        );
        let mut row =
            line("camera/glass-to-glass", median, "s", other.map(|it| ("ffmpeg", it)), &note);
        row["higher_is_better"] = false.into();
        let beside = other.map_or("not installed".to_owned(), |it| format!("{:.1} ms", it * 1e3));
        text += &format!("camera/glass-to-glass {:.1} ms, ffmpeg {beside}; {note}\n", median * 1e3);
        json.push(row);
    }
    if wanted("camera/idle") {
        // Who looks whether something happens needs a small picture a second.
        receiver.command = Asked { width: 160, height: 120, ..receiver.command.clone() };
        let idle = receive(&mut receiver, seconds, 1.0, false, Duration::ZERO)?;
        let rate = |seen: &Seen| seen.bytes as f64 / seen.seconds;
        let share = rate(&idle) / rate(&whole).max(1.0);
        let note = format!(
            "one frame of 160x120 a second, {:.0} bytes/s; the constant stream {:.0} bytes/s; \
             the same quality",
            rate(&idle),
            rate(&whole),
        );
        let mut row = line("camera/idle", share, "share of a constant stream", None, &note);
        row["higher_is_better"] = false.into();
        text += &format!("camera/idle {share:.4} of a constant stream; {note}\n");
        json.push(row);
    }
    if json.is_empty() {
        return Err(Complaint("no benchmark of this name: glass-to-glass, idle".to_owned()));
    }
    Ok(Report { text, json, good: true })
}
