//! `lastmeter bench display`: updates that a viewer gets for each second of the server's CPU, for text that scrolls,
//! pages and a film, beside Xtigervnc with the same pictures and the same viewer; the same as CPU time for a million
//! pixels; bytes; and the time from drawing to the viewer's picture.
//!
//! Rows: N-14.

use super::client::{Connection, program};
use crate::measured::{Bench, Folder, cpu_of, line};
use crate::{Complaint, Report};
use lastmeter_base::Stream;
use lastmeter_device::display::commands::Program;
use lastmeter_device::display::viewer::Viewer;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::framebuffer::Operation;
use lastmeter_wire::rfb::{Message, encoding};
use serde_json::json;
use std::fmt::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::{
    ConnectionExt as _, CreateGCAux, CreateWindowAux, ImageFormat, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// Width and height of the screen.
pub(super) const SIZE: (u16, u16) = (1024, 768);
/// Height of a line of text.
pub(super) const LINE: u16 = 16;
/// The corner that shows which step the screen is at.
const MARK: Rect = Rect { x: SIZE.0 - 32, y: SIZE.1 - 32, w: 32, h: 32 };
/// Quality 8 of 9, which viewers ask for on a local network.
const QUALITY: i32 = encoding::QUALITY_0 + 8;
/// What Xtigervnc makes of that: this quality of JPEG, and the colour of each pixel. So does our display above 90.
const PEERS_QUALITY: u8 = 92;

/// Someone who draws.
pub(super) trait Drawer {
    fn put(&mut self, at: Rect, pixels: &[u8]) -> Result<(), Complaint>;
    fn copy(&mut self, to: Rect, from: (u16, u16)) -> Result<(), Complaint>;
    /// Returns once all of it is drawn.
    fn end(&mut self) -> Result<(), Complaint>;
}

impl Drawer for Program<Box<dyn Connection>> {
    fn put(&mut self, at: Rect, pixels: &[u8]) -> Result<(), Complaint> {
        self.add(Operation::PUT, at, pixels);
        Ok(())
    }
    fn copy(&mut self, to: Rect, from: (u16, u16)) -> Result<(), Complaint> {
        self.add(Operation::COPY, to, &[from.0.to_be_bytes(), from.1.to_be_bytes()].concat());
        Ok(())
    }
    fn end(&mut self) -> Result<(), Complaint> {
        self.ask(Operation::SYNC, Rect::default(), &[])?;
        Ok(())
    }
}

/// A window that fills an X screen.
pub(super) struct Window {
    pub(super) x: RustConnection,
    pub(super) window: u32,
    context: u32,
}

impl Window {
    pub(super) fn open(screen: &str) -> Result<Window, Complaint> {
        let (x, number) = x11rb::connect(Some(screen))?;
        let root = x.setup().roots[number].clone();
        let (window, context) = (x.generate_id()?, x.generate_id()?);
        let own = CreateWindowAux::new().override_redirect(1).background_pixel(0);
        let (class, (w, h)) = (WindowClass::INPUT_OUTPUT, SIZE);
        x.create_window(0, window, root.root, 0, 0, w, h, 0, class, 0, &own)?;
        x.create_gc(context, window, &CreateGCAux::new().graphics_exposures(0))?;
        x.map_window(window)?;
        x.sync()?;
        Ok(Window { x, window, context })
    }
}

impl Drawer for Window {
    fn put(&mut self, at: Rect, pixels: &[u8]) -> Result<(), Complaint> {
        let (x, y) = (at.x as i16, at.y as i16);
        let format = ImageFormat::Z_PIXMAP;
        self.x.put_image(format, self.window, self.context, at.w, at.h, x, y, 0, 24, pixels)?;
        Ok(())
    }
    fn copy(&mut self, to: Rect, from: (u16, u16)) -> Result<(), Complaint> {
        let [x, y, to_x, to_y] = [from.0, from.1, to.x, to.y].map(|at| at as i16);
        let (window, context) = (self.window, self.context);
        self.x.copy_area(window, window, context, x, y, to_x, to_y, to.w, to.h)?;
        Ok(())
    }
    fn end(&mut self) -> Result<(), Complaint> {
        self.x.sync()?;
        Ok(())
    }
}

pub(super) fn bytes(pixels: &[u32]) -> Vec<u8> {
    pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect()
}

/// Lines of text: glyphs of 8 by 16 in two colours, words and gaps.
pub(super) fn text(random: &mut Stream, w: u16, h: u16, ink: u32, paper: u32) -> Vec<u32> {
    let glyphs: Vec<[u8; 16]> = (0..60)
        .map(|_| {
            std::array::from_fn(
                |row| if (3..13).contains(&row) { random.bits() as u8 & 0x7e } else { 0 },
            )
        })
        .collect();
    let (columns, rows) = (usize::from(w / 8), usize::from(h / LINE));
    let mut pixels = vec![paper; usize::from(w) * usize::from(h)];
    for row in 0..rows {
        let len = columns / 3 + random.below(columns as u64 * 2 / 3) as usize;
        for column in 0..len {
            if random.below(6) == 0 {
                continue;
            }
            let glyph = &glyphs[random.below(60) as usize];
            for (line, bits) in glyph.iter().enumerate() {
                for at in (0..8).filter(|at| bits >> at & 1 != 0) {
                    pixels[(row * 16 + line) * usize::from(w) + column * 8 + at] = ink;
                }
            }
        }
    }
    pixels
}

/// Something like a photograph: smooth, with a little noise.
fn photograph(random: &mut Stream, w: u16, h: u16, at: f64) -> Vec<u32> {
    let (wide, high) = (f64::from(w), f64::from(h));
    let mut pixels = Vec::with_capacity(usize::from(w) * usize::from(h));
    for y in 0..h {
        for x in 0..w {
            let (x, y) = (f64::from(x) / wide, f64::from(y) / high);
            let noise = random.below(8) as f64;
            let part = |a: f64, b: f64| {
                let wave = (a * x + at).sin() + (b * y - at).cos() + (7.0 * x * y + at).sin();
                (120.0 + 40.0 * wave + noise).clamp(0.0, 255.0) as u32
            };
            pixels.push(part(9.0, 4.0) << 16 | part(5.0, 11.0) << 8 | part(3.0, 6.0));
        }
    }
    pixels
}

/// What is drawn, step by step.
enum Work {
    Scroll(Vec<Vec<u8>>),
    Whole(Rect, Vec<Vec<u8>>),
}

impl Work {
    fn new(name: &str) -> Work {
        let mut random = Stream::new(1, "pictures");
        let (w, h) = SIZE;
        match name {
            "scroll" | "scroll-without-copies" => {
                let line = |_| bytes(&text(&mut random, w, LINE, 0x00d0_d0d0, 0));
                Work::Scroll((0..40).map(line).collect())
            }
            "page" => {
                let page = |number: u32| {
                    let mut pixels = text(&mut random, w, h, 0x0020_2020, 0x00ff_ffff);
                    let photograph = photograph(&mut random, 320, 240, f64::from(number));
                    for (row, part) in photograph.chunks_exact(320).enumerate() {
                        let start = (100 + row) * usize::from(w) + 600;
                        pixels[start..start + 320].copy_from_slice(part);
                    }
                    pixels[..usize::from(w) * 64].fill(0x0030_5090 + number);
                    bytes(&pixels)
                };
                Work::Whole(Rect { x: 0, y: 0, w, h }, (0..4).map(page).collect())
            }
            _ => {
                let frame =
                    |number| bytes(&photograph(&mut random, 640, 480, f64::from(number) * 0.2));
                Work::Whole(Rect { x: 64, y: 64, w: 640, h: 480 }, (0..8).map(frame).collect())
            }
        }
    }
    fn step(&self, drawer: &mut dyn Drawer, number: usize) -> Result<(), Complaint> {
        let (w, h) = SIZE;
        match self {
            Work::Scroll(lines) => {
                let up = Rect { x: 0, y: 0, w, h: h - LINE };
                drawer.copy(up, (0, LINE))?;
                let bottom = Rect { x: 0, y: h - LINE, w, h: LINE };
                drawer.put(bottom, &lines[number % lines.len()])?;
            }
            Work::Whole(at, pictures) => drawer.put(*at, &pictures[number % pictures.len()])?,
        }
        let mark = vec![colour(number); usize::from(MARK.w) * usize::from(MARK.h)];
        drawer.put(MARK, &bytes(&mark))?;
        drawer.end()
    }
    /// Pixels that a step draws or copies.
    fn pixels(&self) -> f64 {
        let of = |rect: Rect| f64::from(rect.w) * f64::from(rect.h);
        let own = match self {
            Work::Scroll(_) => of(Rect { x: 0, y: 0, w: SIZE.0, h: SIZE.1 }),
            Work::Whole(at, _) => of(*at),
        };
        own + of(MARK)
    }
}

/// The mark's colour at a step: coarse, so that JPEG does not hide it.
pub(super) fn colour(number: usize) -> u32 {
    let part = |at: usize| ((number >> (2 * at) & 3) * 64 + 32) as u32;
    part(2) << 16 | part(1) << 8 | part(0)
}

fn shows(viewer: &Viewer, number: usize) -> bool {
    let at =
        usize::from(MARK.y + MARK.h / 2) * usize::from(SIZE.0) + usize::from(MARK.x + MARK.w / 2);
    let (seen, wanted) = (viewer.pixels[at], colour(number));
    let near = |at: u32| (seen >> at & 255).abs_diff(wanted >> at & 255) < 25;
    [0, 8, 16].into_iter().all(near)
}

/// A server that is measured.
pub(super) struct Peer {
    name: &'static str,
    pub(super) child: Child,
    pub(super) viewers: u16,
    pub(super) drawer: Box<dyn Drawer>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn free_port() -> Result<u16, Complaint> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

pub(super) fn begun<T>(
    name: &str,
    mut try_it: impl FnMut() -> Result<T, Complaint>,
) -> Result<T, Complaint> {
    let began = Instant::now();
    loop {
        match try_it() {
            Ok(made) => return Ok(made),
            Err(Complaint(why)) if began.elapsed() > Duration::from_secs(10) => {
                return Err(Complaint(format!("{name} did not begin: {why}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

pub(super) fn own(folder: &Path) -> Result<Peer, Complaint> {
    let (w, h) = SIZE;
    let viewers = free_port()?;
    let file = folder.join("display.toml");
    let socket = folder.join("display.sock");
    let text = format!(
        "size = \"{w}x{h}\"\nlisten = \"127.0.0.1:{viewers}\"\nsocket = \"display.sock\"\n\
         quality = {PEERS_QUALITY}\n"
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["display", "run"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn()?;
    let path = socket.to_string_lossy().into_owned();
    let drawer = begun("lastmeterd display", || program(&path, ""))?;
    Ok(Peer { name: "lastmeter", child, viewers, drawer: Box::new(drawer) })
}

/// `None` if it is not installed.
fn tiger(folder: &Path) -> Result<Option<Peer>, Complaint> {
    let viewers = free_port()?;
    let number = (70..90).find(|number| !Path::new(&format!("/tmp/.X11-unix/X{number}")).exists());
    let screen = format!(":{}", number.ok_or("no free X screen from :70 on")?);
    let mut command = Command::new("Xtigervnc");
    let (w, h) = SIZE;
    command
        .args([&screen, "-geometry", &format!("{w}x{h}"), "-depth", "24"])
        .args(["-SecurityTypes", "None", "-localhost", "-rfbport", &viewers.to_string()])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(child) = command.spawn() else { return Ok(None) };
    let window = begun("Xtigervnc", || Window::open(&screen))?;
    Ok(Some(Peer { name: "Xtigervnc", child, viewers, drawer: Box::new(window) }))
}

/// What a viewer got.
struct Got {
    /// Steps for each second of the server's CPU.
    per_cpu: f64,
    /// Steps a second.
    rate: f64,
    /// Bytes a step.
    bytes: f64,
    /// Seconds from drawing to the viewer's picture, in the median and of the slowest tenth.
    latency: f64,
    slow: f64,
}

impl Got {
    /// The server's CPU time for a million pixels, in milliseconds.
    fn cpu_ms(&self, pixels: f64) -> f64 {
        1e9 / (self.per_cpu * pixels)
    }
}

fn measure(peer: &mut Peer, work: &Work, copies: bool, bench: &Bench) -> Result<Got, Complaint> {
    let stream = TcpStream::connect(("127.0.0.1", peer.viewers))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut viewer = Viewer::connect(stream, None)?;
    let mut known = vec![encoding::TIGHT, encoding::ZRLE, encoding::HEXTILE, QUALITY];
    known.extend(copies.then_some(encoding::COPY));
    viewer.send(&Message::Encodings(known))?;
    viewer.update(false)?;
    let mut all = Vec::new();
    let mut number = 0;
    for _ in 0..bench.rounds {
        let (before, began, bytes) = (cpu_of(peer.child.id()), Instant::now(), viewer.bytes);
        let (mut latencies, first) = (Vec::new(), number);
        while began.elapsed().as_secs_f64() < bench.seconds {
            number += 1;
            let drawn = Instant::now();
            work.step(&mut *peer.drawer, number)?;
            while !shows(&viewer, number) {
                viewer.update(true)?;
            }
            latencies.push(drawn.elapsed().as_secs_f64());
        }
        let steps = (number - first) as f64;
        let cpu = (cpu_of(peer.child.id()) - before).max(0.01);
        latencies.sort_by(f64::total_cmp);
        all.push(Got {
            per_cpu: steps / cpu,
            rate: steps / began.elapsed().as_secs_f64(),
            bytes: (viewer.bytes - bytes) as f64 / steps,
            latency: latencies[latencies.len() / 2],
            slow: latencies[latencies.len() * 9 / 10],
        });
    }
    all.sort_by(|a, b| a.per_cpu.total_cmp(&b.per_cpu));
    let middle = all.len() / 2;
    Ok(all.swap_remove(middle))
}

pub(crate) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    if arguments.name.as_ref().is_some_and(|name| name.contains("delay")) {
        return super::delay::bench(arguments, quick);
    }
    if arguments.name.as_ref().is_some_and(|name| name.contains("fair")) {
        return super::fair::bench(arguments, quick);
    }
    let bench = Bench {
        name: arguments.name.clone(),
        seconds: if quick { 0.5 } else { arguments.seconds },
        rounds: if quick { 1 } else { arguments.rounds.max(1) },
    };
    let folder = Folder::new(&std::env::temp_dir(), "display")?;
    let mut own = own(folder.path())?;
    let mut peer = tiger(folder.path())?;
    let (mut text, mut json) = (String::new(), Vec::new());
    let columns =
        ["updates/CPU s", "ratio", "CPU ms/Mpixel", "updates/s", "ms", "slow tenth", "bytes"];
    let _ = write!(text, "{:29} {:10}", "benchmark", "server");
    columns.iter().for_each(|column| {
        let _ = write!(text, " {column:>13}");
    });
    text.push('\n');
    // The second one is what Netstation found to be slow: a display that cannot copy (N-15).
    for name in ["scroll", "scroll-without-copies", "page", "film"] {
        let full = format!("display/{name}");
        if bench.name.as_ref().is_some_and(|part| !full.contains(part.as_str())) {
            continue;
        }
        let (work, copies) = (Work::new(name), name != "scroll-without-copies");
        let ours = measure(&mut own, &work, copies, &bench)?;
        let theirs = peer.as_mut().map(|peer| measure(peer, &work, copies, &bench));
        let theirs = theirs.transpose()?;
        let pixels = work.pixels();
        let ratio = theirs.as_ref().map(|theirs| ours.per_cpu / theirs.per_cpu);
        let beside = peer.as_ref().map(|peer| peer.name).zip(theirs.as_ref());
        for (at, (server, got)) in
            [Some((own.name, &ours)), beside].into_iter().flatten().enumerate()
        {
            let [name, ratio] = match at {
                0 => [full.clone(), ratio.map_or("-".to_owned(), |it| format!("{it:.2}"))],
                _ => [String::new(), String::new()],
            };
            let (cpu, ms, slow) = (got.cpu_ms(pixels), got.latency * 1e3, got.slow * 1e3);
            let _ = writeln!(
                text,
                "{name:29} {server:10} {:>13.0} {ratio:>13} {cpu:>13.2} {:>13.0} {ms:>13.2} \
                 {slow:>13.2} {:>13.0}",
                got.per_cpu, got.rate, got.bytes
            );
        }
        let told = |got: &Got| {
            json!({
                "cpu_ms_per_mpixel": got.cpu_ms(pixels), "updates_per_second": got.rate,
                "glass_to_glass_ms": got.latency * 1e3, "slow_tenth_ms": got.slow * 1e3,
                "bytes": got.bytes,
            })
        };
        let note = format!(
            "{:.2} ms of CPU a million pixels, {:.2} ms from drawing to the viewer, {:.0} bytes",
            ours.cpu_ms(pixels),
            ours.latency * 1e3,
            ours.bytes
        );
        let other = beside.map(|(name, theirs)| (name, theirs.per_cpu));
        let mut result = line(&full, ours.per_cpu, "updates per CPU s", other, &note);
        result["own"] = told(&ours);
        result["beside"] = theirs.as_ref().map(told).into();
        json.push(result);
    }
    if json.is_empty() {
        return Err(Complaint(
            "no benchmark of this name: scroll, scroll-without-copies, page, film, delay, fair"
                .to_owned(),
        ));
    }
    Ok(Report { text, json, good: true })
}
