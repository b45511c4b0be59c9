//! A receiver on the command line: it asks for frames, saves or counts them.

use crate::{Complaint, Report};
use lastmeter_device::camera::frame::Pixels;
use lastmeter_device::camera::pattern;
use lastmeter_device::camera::receiver::{Received, Receiver};
use lastmeter_device::camera::store::clock;
use lastmeter_wire::camera::{Code, Command, Format, Region, Shape};
use serde_json::json;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a receiver wants.
#[derive(clap::Args)]
pub(crate) struct Wanted {
    /// Where the camera's receivers ask: 127.0.0.1:8555
    address: SocketAddr,
    /// Who asks
    #[arg(long, default_value = "")]
    token: String,
    /// jpeg, grey or colour
    #[arg(long, default_value = "jpeg", value_parser = ["jpeg", "grey", "colour"])]
    format: String,
    /// The part of the frame: 320x240+100+50
    #[arg(long, value_parser = region)]
    region: Option<Region>,
    /// Scaled down to this: 160x120
    #[arg(long, value_parser = region)]
    size: Option<Region>,
    /// JPEG's quality, 1 to 100 [default: the camera's]
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    quality: u8,
    /// Scan lines between pauses; 0: no pauses
    #[arg(long, default_value_t = 0)]
    lines: u16,
    /// Microseconds of a pause
    #[arg(long, default_value_t = 0)]
    pause: u32,
    /// Packets in a burst; 0: all of them
    #[arg(long, default_value_t = 0)]
    burst: u16,
    /// Microseconds between bursts
    #[arg(long, default_value_t = 0)]
    gap: u32,
}

fn region(text: &str) -> Result<Region, String> {
    let parts: Result<Vec<u16>, _> = text.split(['x', '+']).map(str::parse).collect();
    match parts.as_deref() {
        Ok(&[w, h]) if w > 0 && h > 0 => Ok(Region { x: 0, y: 0, w, h }),
        Ok(&[w, h, x, y]) if w > 0 && h > 0 => Ok(Region { x, y, w, h }),
        _ => Err(format!("{text:?}: write 320x240, or with its corner 320x240+100+50")),
    }
}

impl Wanted {
    fn receiver(&self) -> Result<Receiver, Complaint> {
        let format = match self.format.as_str() {
            "grey" => Format::Grey,
            "colour" => Format::Colour,
            _ => Format::Jpeg,
        };
        let (lines, pause, burst, gap) = (self.lines, self.pause, self.burst, self.gap);
        let size = self.size.unwrap_or_default();
        let command = Command {
            format,
            region: self.region.unwrap_or_default(),
            width: size.w,
            height: size.h,
            quality: self.quality,
            shape: Shape { lines, pause, burst, gap, packet: 0 },
            token: self.token.clone().into_bytes(),
            ..Command::default()
        };
        Receiver::new(self.address, command).map_err(|error| self.place(&error))
    }
    fn place(&self, error: &dyn std::fmt::Display) -> Complaint {
        Complaint(format!("{}: {error}", self.address))
    }
}

#[derive(clap::Args)]
pub(crate) struct Ask {
    #[command(flatten)]
    wanted: Wanted,
    /// How many
    #[arg(long, default_value_t = 1)]
    frames: u32,
    /// Save here: a JPEG, PGM or PPM; a number is added where there are several
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Time to wait for a frame that was asked for.
const PATIENCE: Duration = Duration::from_secs(3);

/// The frame as a file: JPEG as it came, else in netpbm's formats.
fn file_of(frame: &Received) -> Vec<u8> {
    let kind = match frame.piece.format {
        Format::Jpeg => return frame.bytes.clone(),
        Format::Grey => "P5",
        Format::Colour => "P6",
    };
    let head = format!("{kind}\n{} {}\n255\n", frame.piece.width, frame.piece.height);
    [head.as_bytes(), &frame.bytes].concat()
}

pub(crate) fn ask(arguments: &Ask) -> Result<Report, Complaint> {
    let mut receiver = arguments.wanted.receiver()?;
    let (mut text, mut json) = (String::new(), Vec::new());
    for number in 0..arguments.frames.max(1) {
        receiver.command.frames = 1;
        receiver.ask(Code::Frames).map_err(|error| arguments.wanted.place(&error))?;
        let frame = receiver.next(PATIENCE).map_err(|error| arguments.wanted.place(&error))?;
        let frame = frame.ok_or_else(|| arguments.wanted.place(&"no frame comes"))?;
        let piece = frame.piece;
        text += &format!(
            "frame {}: {} by {}, {} bytes, {:.1} ms from capture until it could be sent\n",
            piece.frame,
            piece.width,
            piece.height,
            frame.bytes.len(),
            f64::from(piece.made) / 1e3,
        );
        json.push(json!({
            "frame": piece.frame, "clock": piece.clock, "width": piece.width,
            "height": piece.height, "bytes": frame.bytes.len(), "made": f64::from(piece.made) / 1e6,
        }));
        if let Some(path) = &arguments.out {
            let path = match arguments.frames {
                0 | 1 => path.clone(),
                _ => {
                    let end = path.extension().unwrap_or_default().to_string_lossy().into_owned();
                    path.with_extension(format!("{number}.{end}"))
                }
            };
            std::fs::write(&path, file_of(&frame))
                .map_err(|error| Complaint(format!("{}: {error}", path.display())))?;
        }
    }
    Ok(Report { text, json, good: true })
}

#[derive(clap::Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    wanted: Wanted,
    /// For how long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Frames a second, at most
    #[arg(long, default_value_t = 30.0)]
    rate: f64,
    /// Have the camera send at the rate, whether or not frames arrive (open loop)
    #[arg(long)]
    open: bool,
    /// Milliseconds of work for each frame, besides decoding
    #[arg(long, default_value_t = 0.0)]
    work: f64,
}

/// What was seen.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) frames: u64,
    pub(super) lost: u64,
    pub(super) denied: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Seconds from the time in the picture until it was decoded, in order of size.
    pub(super) latencies: Vec<f64>,
}

impl Seen {
    pub(super) fn latency(&self, share: f64) -> Option<f64> {
        let last = self.latencies.len().checked_sub(1)?;
        self.latencies.get((last as f64 * share).round() as usize).copied()
    }
}

/// Seconds since what a picture shows: by the time in it, or else the time that came with it.
fn age(pixels: &Pixels, sent: u64) -> f64 {
    let taken = pattern::read(pixels).map_or(sent, |(_, taken)| taken);
    clock().saturating_sub(taken) as f64 / 1e6
}

/// Receives for some seconds.
pub(super) fn receive(
    receiver: &mut Receiver,
    seconds: f64,
    rate: f64,
    open: bool,
    work: Duration,
) -> std::io::Result<Seen> {
    let (began, mut seen) = (Instant::now(), Seen::default());
    let length = Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
    let interval = Duration::from_secs_f64(1.0 / rate.clamp(0.001, 1000.0));
    let (mut due, mut renewed) = (Duration::ZERO, Duration::ZERO);
    let before = receiver.counts;
    receiver.command.frames = 1;
    receiver.command.millihertz = (rate * 1000.0).max(1.0) as u32;
    if open {
        receiver.ask(Code::Rate)?;
    }
    while began.elapsed() < length {
        let now = began.elapsed();
        if open && now > renewed + Duration::from_secs(2) {
            receiver.again()?;
            renewed = now;
        }
        if !open {
            std::thread::sleep(due.saturating_sub(now).min(length - now));
            // In step while frames come; anew after a pause.
            due = (due + interval).max(now);
            receiver.ask(Code::Frames)?;
        }
        let patience = if open { Duration::from_secs(1) } else { PATIENCE };
        match receiver.next(patience) {
            Ok(Some(frame)) => {
                let pixels = frame.pixels().map_err(std::io::Error::other)?;
                seen.latencies.push(age(&pixels, frame.piece.clock));
                std::thread::sleep(work);
            }
            Ok(None) => receiver.give_up(),
            Err(error) if error.kind() == ErrorKind::PermissionDenied && !open => seen.denied += 1,
            Err(error) => return Err(error),
        }
    }
    receiver.ask(Code::Stop)?;
    seen.seconds = began.elapsed().as_secs_f64();
    seen.frames = receiver.counts.frames - before.frames;
    seen.lost = receiver.counts.lost - before.lost;
    seen.bytes = receiver.counts.bytes - before.bytes;
    seen.latencies.sort_by(f64::total_cmp);
    Ok(seen)
}

pub(crate) fn watch(arguments: &Watch) -> Result<Report, Complaint> {
    let Watch { wanted, seconds, rate, open, work } = arguments;
    let mut receiver = wanted.receiver()?;
    let work = Duration::from_secs_f64((work / 1e3).clamp(0.0, 10.0));
    let seen = receive(&mut receiver, *seconds, *rate, *open, work);
    let seen = seen.map_err(|error| wanted.place(&error))?;
    if seen.frames == 0 && seen.denied == 0 {
        return Err(wanted.place(&"no frame comes"));
    }
    let (median, late) = (seen.latency(0.5), seen.latency(0.99));
    let milli =
        |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{:.1}", time * 1e3));
    let text = format!(
        "{} loop: {:.1} frames/s, {} lost, {} denied, {:.0} bytes/s; glass to glass {} ms in the \
         median, {} ms at the 99th percentile\n",
        if *open { "open" } else { "closed" },
        seen.frames as f64 / seen.seconds,
        seen.lost,
        seen.denied,
        seen.bytes as f64 / seen.seconds,
        milli(median),
        milli(late),
    );
    let json = json!({
        "open": open, "seconds": seen.seconds, "frames": seen.frames, "lost": seen.lost,
        "denied": seen.denied, "bytes": seen.bytes, "median": median, "p99": late,
    });
    Ok(Report { text, json: vec![json], good: true })
}
