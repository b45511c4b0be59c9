//! A receiver on the command line: it asks for frames, saves or counts them.

use crate::sandbox::thread;
use crate::{Complaint, Report};
use lastmeter_device::camera::find::{Announced, find};
use lastmeter_device::camera::frame::Pixels;
use lastmeter_device::camera::pattern;
use lastmeter_device::camera::receiver::{Received, Receiver};
use lastmeter_device::camera::store::clock;
use lastmeter_wire::camera::{Carrier, Code, Command, Fared, Format, Piece, Region, Shape};
use serde_json::json;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
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
    /// Packets in a burst, or cells; 0: all of them
    #[arg(long, default_value_t = 0)]
    burst: u16,
    /// Microseconds between bursts
    #[arg(long, default_value_t = 0)]
    gap: u32,
    /// Bytes of a packet after UDP's header, up to 8972; 0: 1472, what Ethernet carries whole
    #[arg(long, default_value_t = 0)]
    packet: u16,
    /// In ATM cells, as the Vidboard sent them, 27 in a packet
    #[arg(long)]
    cells: bool,
    /// As application data units: each group of lines in fragments with one check, taken whole or not at all
    #[arg(long, conflicts_with = "cells")]
    units: bool,
    /// Let at most so many bytes wait in the socket, as the kernel counts them [default: the system's]
    #[arg(long)]
    buffer: Option<usize>,
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
            shape: Shape { lines, pause, burst, gap, packet: self.packet },
            carrier: match (self.cells, self.units) {
                (true, _) => Carrier::Cells,
                (false, true) => Carrier::Units,
                (false, false) => Carrier::Datagrams,
            },
            token: self.token.clone().into_bytes(),
            ..Command::default()
        };
        let receiver = Receiver::new(self.address, command).map_err(|error| self.place(&error))?;
        let limited = self.buffer.map_or(Ok(()), |bytes| receiver.buffer(bytes));
        limited.map_err(|error| self.place(&error))?;
        Ok(receiver)
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
    /// Milliseconds of CPU time for each frame, besides decoding: a program that looks at it
    #[arg(long, default_value_t = 0.0)]
    work: f64,
    /// Microseconds of CPU time for each packet: a host that receives slowly
    #[arg(long, default_value_t = 0.0)]
    toll: f64,
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
    /// Frames that came and that were lost, in each [`SPAN`].
    pub(super) spans: Vec<(u64, u64)>,
}

/// Time for which frames are counted together, in seconds.
pub(super) const SPAN: f64 = 0.5;

/// How frames are received.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) seconds: f64,
    /// Frames a second, at most.
    pub(super) rate: f64,
    /// Whether the camera sends at the rate, asked or not.
    pub(super) open: bool,
    /// CPU time for each frame.
    pub(super) work: Duration,
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

/// Uses this thread's CPU for so long.
pub(super) fn burn(work: Duration) {
    let until = thread() + work;
    while thread() < until {
        std::hint::spin_loop();
    }
}

/// Time after which a frame of which a part came is given up.
const GAP: Duration = Duration::from_millis(150);

/// Waits for the frame that was asked for: as long as none of it comes, or while more of it does.
fn wait(receiver: &mut Receiver, patience: Duration) -> std::io::Result<Option<Received>> {
    let (began, first) = (Instant::now(), receiver.counts.packets);
    let mut packets = first;
    loop {
        if let Some(frame) = receiver.next(GAP)? {
            return Ok(Some(frame));
        }
        if receiver.counts.packets == packets && packets > first {
            receiver.lose();
            return Ok(None);
        }
        if began.elapsed() >= patience {
            receiver.give_up();
            return Ok(None);
        }
        packets = receiver.counts.packets;
    }
}

/// Frames of the open loop that never came, by the times at which those that came were captured.
struct Missing {
    interval: f64,
    first: Option<Piece>,
    frames: u64,
    most: u64,
}

impl Missing {
    fn new(interval: Duration) -> Missing {
        Missing { interval: interval.as_secs_f64() * 1e6, first: None, frames: 0, most: 0 }
    }
    /// A frame comes; how many are missing so far.
    fn add(&mut self, piece: Piece) -> u64 {
        let first = *self.first.get_or_insert(piece);
        self.frames += 1;
        let since = piece.clock.saturating_sub(first.clock) as f64;
        // The camera says which turns it did not take.
        let turns = (since / self.interval).round() as u64;
        let due = turns.saturating_sub(piece.skipped.saturating_sub(first.skipped).into());
        self.most = self.most.max((due + 1).saturating_sub(self.frames));
        self.most
    }
}

/// Receives for some seconds.
pub(super) fn receive(receiver: &mut Receiver, manner: Manner) -> std::io::Result<Seen> {
    let Manner { seconds, rate, open, work } = manner;
    let (began, mut seen) = (Instant::now(), Seen::default());
    let length = Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
    let interval = Duration::from_secs_f64(1.0 / rate.clamp(0.001, 1000.0));
    let (mut due, mut renewed, mut lost) = (Duration::ZERO, Duration::ZERO, 0);
    let (before, mut missing) = (receiver.counts, Missing::new(interval));
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    receiver.command.frames = 1;
    receiver.command.millihertz = (rate * 1000.0).max(1.0) as u32;
    receiver.command.fared = Fared::default();
    if open {
        receiver.ask(Code::Rate)?;
    }
    while began.elapsed() < length {
        let now = began.elapsed();
        receiver.command.fared.lost = u32::try_from(lost).unwrap_or(u32::MAX);
        if open && now > renewed + Duration::from_secs(1) {
            receiver.again()?;
            renewed = now;
        }
        if !open {
            std::thread::sleep(due.saturating_sub(now).min(length - now));
            receiver.command.fared.rest = micros(began.elapsed() - now);
            // In step while frames come; anew after a pause.
            due = (due + interval).max(now);
            receiver.ask(Code::Frames)?;
        }
        let came = if open { receiver.next(GAP) } else { wait(receiver, PATIENCE) };
        match came {
            Ok(Some(frame)) => {
                if open {
                    lost = lost.max(missing.add(frame.piece));
                }
                let decoding = Instant::now();
                let pixels = frame.pixels().map_err(std::io::Error::other)?;
                seen.latencies.push(age(&pixels, frame.piece.clock));
                receiver.command.fared.decode = micros(decoding.elapsed());
                let showing = Instant::now();
                burn(work);
                receiver.command.fared.display = micros(showing.elapsed());
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied && !open => seen.denied += 1,
            Err(error) => return Err(error),
        }
        lost = lost.max(receiver.counts.lost - before.lost);
        let span = (began.elapsed().as_secs_f64() / SPAN) as usize;
        seen.spans.resize(seen.spans.len().max(span + 1), (0, 0));
        let (frames, known) =
            seen.spans[..span].iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        seen.spans[span] = (receiver.counts.frames - before.frames - frames, lost - known);
    }
    receiver.command.fared.lost = u32::try_from(lost).unwrap_or(u32::MAX);
    receiver.ask(Code::Stop)?;
    seen.seconds = began.elapsed().as_secs_f64();
    seen.frames = receiver.counts.frames - before.frames;
    seen.lost = lost;
    seen.bytes = receiver.counts.bytes - before.bytes;
    seen.latencies.sort_by(f64::total_cmp);
    Ok(seen)
}

pub(crate) fn watch(arguments: &Watch) -> Result<Report, Complaint> {
    let Watch { wanted, seconds, rate, open, work, toll } = arguments;
    let mut receiver = wanted.receiver()?;
    let work = Duration::from_secs_f64((work / 1e3).clamp(0.0, 10.0));
    let toll = Duration::from_secs_f64((toll / 1e6).clamp(0.0, 1.0));
    receiver.toll = (!toll.is_zero()).then(|| Box::new(move || burn(toll)) as Box<dyn Fn()>);
    let manner = Manner { seconds: *seconds, rate: *rate, open: *open, work };
    let seen = receive(&mut receiver, manner);
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
        "cpu": crate::sandbox::cpu().as_secs_f64(), "span": SPAN, "spans": seen.spans,
    });
    Ok(Report { text, json: vec![json], good: true })
}

#[derive(clap::Args)]
pub(crate) struct Find {
    /// The address of the interface on which to look: 127.0.0.1 finds those of this host
    #[arg(long, default_value = "127.0.0.1")]
    interface: Ipv4Addr,
    /// For how long to wait for answers
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

pub(crate) fn look(arguments: &Find) -> Result<Report, Complaint> {
    let patience = Duration::from_secs_f64(arguments.seconds.clamp(0.1, 60.0));
    let found = find(arguments.interface, patience)
        .map_err(|error| Complaint(format!("{}: {error}", arguments.interface)))?;
    let (mut text, mut json) = (String::new(), Vec::new());
    for Announced { name, address, needs_token } in &found {
        let token = if *needs_token { "; it wants a token" } else { "" };
        text += &format!("{name:?}: rtsp://{address}/ and http://{address}/{token}\n");
        json.push(json!({ "name": name, "address": address, "needs_token": needs_token }));
    }
    if found.is_empty() {
        text += "no camera answers; one with `announce = true` would\n";
    }
    Ok(Report { text, json, good: true })
}
