//! `lastmeter bench camera`: glass to glass by the time in the picture, beside the same pictures through ffmpeg and
//! through GStreamer as MJPEG; the traffic of a receiver that looks now and then, as a share of a constant stream, and
//! how soon it has the stream when something happens; and what [`super::loops`] and [`super::sizes`] measure.

use super::client::{Manner, Seen, receive};
use super::relay::relayed;
use super::{loops, sizes};
use crate::measured::{Folder, line};
use crate::{Complaint, Report};
use lastmeter_device::camera::encode::from_jpeg;
use lastmeter_device::camera::frame::Layout;
use lastmeter_device::camera::pattern::{Pattern, read};
use lastmeter_device::camera::receiver::Receiver;
use lastmeter_device::camera::store::clock;
use lastmeter_wire::camera::{Code, Command as Asked};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
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
    /// Draw both loops at a slowed receiver, as a page
    #[arg(long)]
    chart: Option<PathBuf>,
}

/// A program that is ended with its measurement.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A camera in a process of its own, and the address of its receivers; `more` is added to its file.
pub(super) fn camera(folder: &Path, more: &str) -> Result<(Running, SocketAddr), Complaint> {
    let (w, h) = SIZE;
    camera_as(folder, "camera", &format!("{w}x{h}"), RATE, more)
}

/// As [`camera`], of another name, size and rate.
pub(super) fn camera_as(
    folder: &Path,
    name: &str,
    size: &str,
    rate: f64,
    more: &str,
) -> Result<(Running, SocketAddr), Complaint> {
    let address = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let file = folder.join(format!("{name}.toml"));
    let text = format!("size = \"{size}\"\nrate = {rate}\nreceivers = \"{address}\"\n{more}");
    std::fs::write(&file, text)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["camera", "run"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    Ok((Running(command.spawn()?), address))
}

/// A camera begins within this time; on a busy machine that takes seconds.
const BEGINS: Duration = Duration::from_secs(30);

/// A receiver of a camera that may just have begun.
pub(super) fn receiver(address: SocketAddr, command: Asked) -> Result<Receiver, Complaint> {
    let began = Instant::now();
    let mut receiver = Receiver::new(address, command)?;
    receiver.command.frames = 1;
    loop {
        let came =
            receiver.ask(Code::Frames).and_then(|()| receiver.next(Duration::from_millis(200)));
        match came {
            Ok(Some(_)) => return Ok(receiver),
            _ if began.elapsed() > BEGINS => {
                return Err(Complaint("the camera did not begin".to_owned()));
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Pictures of the pattern on their way into an `ffmpeg`, which is ended with them.
pub(super) struct Feeder {
    running: Running,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Feeder {
    pub(super) fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        drop(self.running);
        let _ = self.thread.join();
    }
}

/// Starts `ffmpeg` with this output, and feeds it. `None` if it is not installed.
pub(super) fn fed(
    output: &[&str],
    (w, h): (u16, u16),
    rate: f64,
) -> Result<Option<Feeder>, Complaint> {
    let mut command = Command::new("ffmpeg");
    command
        .args(["-loglevel", "error", "-fflags", "nobuffer", "-probesize", "32"])
        .args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", &format!("{w}x{h}")])
        .args(["-r", &rate.to_string(), "-i", "pipe:0"])
        .args(output);
    feed(command, (w, h), rate)
}

/// Starts a program, and feeds it raw pictures. `None` if it is not installed.
fn feed(mut command: Command, (w, h): (u16, u16), rate: f64) -> Result<Option<Feeder>, Complaint> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(child) = command.spawn() else { return Ok(None) };
    let mut running = Running(child);
    let mut input = running.0.stdin.take().ok_or("ffmpeg has no input")?;
    let ended = Arc::<AtomicBool>::default();
    let told = ended.clone();
    let thread = std::thread::spawn(move || {
        let (pattern, began) = (Pattern::new(Layout::Colour, w, h), Instant::now());
        for number in 0u32.. {
            let due = began + Duration::from_secs_f64(f64::from(number) / rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let pixels = pattern.draw(number, clock());
            if told.load(Ordering::Relaxed) || input.write_all(&pixels.bytes).is_err() {
                return;
            }
        }
    });
    Ok(Some(Feeder { running, ended, thread }))
}

/// The same pictures, encoded and served by ffmpeg. `None` if it is not installed.
fn ffmpeg(seconds: f64) -> Result<Option<Seen>, Complaint> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let to = format!("http://127.0.0.1:{port}/");
    let output = ["-q:v", "4", "-flush_packets", "1", "-f", "mpjpeg", "-listen", "1", &to];
    let Some(feeder) = fed(&output, SIZE, RATE)? else { return Ok(None) };
    let seen = view(port, seconds);
    feeder.end();
    seen.map(Some)
}

/// The same pictures, encoded and served by GStreamer. `None` if it, or a part of it, is not installed.
fn gstreamer(seconds: f64) -> Result<Option<Seen>, Complaint> {
    let elements = ["fdsrc", "rawvideoparse", "jpegenc", "multipartmux", "tcpserversink"];
    let knows = |element: &&str| {
        let mut command = Command::new("gst-inspect-1.0");
        command.arg(element).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !elements.iter().all(knows) {
        return Ok(None);
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (w, h) = SIZE;
    let pipeline = format!(
        "fdsrc fd=0 blocksize={} ! rawvideoparse width={w} height={h} format=rgb \
         framerate={RATE}/1 ! videoconvert ! jpegenc quality=80 ! multipartmux boundary=frame ! \
         tcpserversink host=127.0.0.1 port={port} sync=false",
        usize::from(w) * usize::from(h) * 3,
    );
    let mut command = Command::new("gst-launch-1.0");
    command.arg("-q").args(pipeline.split_whitespace());
    let Some(feeder) = feed(command, SIZE, RATE)? else { return Ok(None) };
    let seen = view(port, seconds);
    feeder.end();
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
            return Err(Complaint("the streamer ended".to_owned()));
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
            let taken =
                read(&pixels).ok_or("the digits in the streamer's picture cannot be read")?.1;
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
    let (mut text, mut json) = (String::new(), Vec::new());
    if wanted("camera/closed-loop") {
        loops::slowed(folder.path(), seconds, arguments.chart.as_deref(), &mut text, &mut json)?;
    }
    if wanted("camera/shaping") {
        loops::shaping(folder.path(), seconds / 5.0, &mut text, &mut json)?;
    }
    if wanted("camera/sizes") {
        sizes::sizes(folder.path(), seconds / 5.0, &mut text, &mut json)?;
    }
    if wanted("camera/together") {
        sizes::together(folder.path(), seconds / 2.0, &mut text, &mut json)?;
    }
    if wanted("camera/packets") {
        sizes::packets(folder.path(), seconds / 5.0, &mut text, &mut json)?;
    }
    let needs_camera = ["glass-to-glass", "idle", "wake"].map(|name| format!("camera/{name}"));
    if !needs_camera.iter().any(|name| wanted(name)) {
        return finish(text, json);
    }
    let (_camera, address) = camera(folder.path(), "")?;
    let mut receiver = receiver(address, Asked::default())?;
    let manner = Manner { seconds, rate: RATE, open: true, work: Duration::ZERO };
    let whole = receive(&mut receiver, manner)?;
    let latency = |seen: &Seen, share| seen.latency(share).ok_or(Complaint("no frame came".into()));
    if wanted("camera/glass-to-glass") {
        let (median, late) = (latency(&whole, 0.5)?, latency(&whole, 0.99)?);
        let peer = ffmpeg(seconds)?;
        let other = peer.as_ref().map(|seen| latency(seen, 0.5)).transpose()?;
        let third = gstreamer(seconds)?;
        let chain = relayed(seconds, SIZE, RATE)?;
        let words = |name: &str, seen: &Option<Seen>| match seen {
            Some(seen) => Ok(format!(
                "{name} {:.1} and {:.1} ms",
                latency(seen, 0.5)? * 1e3,
                latency(seen, 0.99)? * 1e3
            )),
            None => Ok::<_, Complaint>(format!("{name} not installed")),
        };
        let third_words = words("GStreamer (MJPEG)", &third)?;
        let relayed = words("ffmpeg, an RTSP relay (rtsp-server-perl) and ffmpeg", &chain)?;
        let at_most = peer.as_ref().map(|seen| latency(seen, 0.99)).transpose()?.unwrap_or(0.0);
        let note = format!(
            "{}x{} at {RATE} frames/s: {:.1} frames/s came, {} lost, 99th percentile {:.1} ms; \
             ffmpeg (MJPEG by HTTP) {:.1} ms; {third_words}; {relayed}",
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
        row["late"] = late.into();
        row["gstreamer"] = third.as_ref().and_then(|seen| seen.latency(0.5)).into();
        row["relayed"] = chain.as_ref().and_then(|seen| seen.latency(0.5)).into();
        let beside = other.map_or("not installed".to_owned(), |it| format!("{:.1} ms", it * 1e3));
        text += &format!("camera/glass-to-glass {:.1} ms, ffmpeg {beside}; {note}\n", median * 1e3);
        json.push(row);
    }
    if wanted("camera/idle") {
        // Who looks whether something happens needs a small picture a second.
        receiver.command = Asked { width: 160, height: 120, ..receiver.command.clone() };
        let manner = Manner { rate: 1.0, open: false, ..manner };
        let idle = receive(&mut receiver, manner)?;
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
    if wanted("camera/wake") {
        let row = wake(&mut receiver, if quick { 5 } else { 20 })?;
        text += &format!("camera/wake {:.1} ms; {}\n", ms(&row["value"]), words(&row["note"]));
        json.push(row);
    }
    finish(text, json)
}

fn ms(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN) * 1e3
}

fn words(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn finish(text: String, json: Vec<Value>) -> Result<Report, Complaint> {
    if json.is_empty() && text.is_empty() {
        let known = "glass-to-glass, idle, wake, closed-loop, shaping, sizes, together, packets";
        return Err(Complaint(format!("no benchmark of this name: {known}")));
    }
    Ok(Report { text, json, good: true })
}

/// From a room where nothing happens: the time from asking for the full rate until the first whole frame is there, and
/// whether the following ones come at the rate.
fn wake(receiver: &mut Receiver, times: usize) -> Result<Value, Complaint> {
    const FOLLOWING: u32 = 5;
    let (mut first, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..times {
        receiver.command = Asked { width: 160, height: 120, frames: 1, ..receiver.command.clone() };
        receiver.ask(Code::Frames)?;
        receiver.next(Duration::from_secs(1))?.ok_or("no frame came")?;
        std::thread::sleep(Duration::from_millis(217));
        receiver.command = Asked { width: 0, height: 0, ..receiver.command.clone() };
        receiver.command.millihertz = (RATE * 1e3) as u32;
        let asked = Instant::now();
        receiver.ask(Code::Rate)?;
        receiver.next(Duration::from_secs(1))?.ok_or("no frame came")?;
        first.push(asked.elapsed().as_secs_f64());
        let began = Instant::now();
        for _ in 0..FOLLOWING {
            receiver.next(Duration::from_secs(1))?.ok_or("no frame came")?;
        }
        steps.push(began.elapsed().as_secs_f64() / f64::from(FOLLOWING));
        receiver.ask(Code::Stop)?;
        while receiver.next(Duration::from_millis(50))?.is_some() {}
    }
    first.sort_by(f64::total_cmp);
    steps.sort_by(f64::total_cmp);
    let (median, worst) = (first[times / 2], first[times - 1]);
    let note = format!(
        "from asking until the first frame of {}x{}, {times} times; at most {:.1} ms; a frame \
         time is {:.1} ms; the next ones {:.1} ms apart",
        SIZE.0,
        SIZE.1,
        worst * 1e3,
        1e3 / RATE,
        steps[times / 2] * 1e3,
    );
    let mut row = line("camera/wake", median, "s", None, &note);
    row["higher_is_better"] = false.into();
    Ok(row)
}
