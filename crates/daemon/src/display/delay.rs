//! `lastmeter bench display/delay`: the time from a key to its glyph, and to a scroll that it causes, on an X screen
//! that is read here, and on the same screen behind a display: the key goes from the viewer to the display, to X, to
//! the program; the glyph from X to the display, to the viewer (Netstation's demonstration, N-14; scrolls without a
//! copy, N-15).
//!
//! ```text
//! here:  key -> X -> program -> X -> pixel is read from X
//! away:  key -> viewer -> display -> feed -> X -> program -> X -> feed -> display -> viewer's pixel
//! ```

use super::bench::{Drawer, LINE, SIZE, Window, begun, bytes, colour, free_port, text};
use crate::measured::{Bench, Folder, line};
use crate::{Complaint, Report};
use lastmeter_base::Stream;
use lastmeter_device::display::viewer::Viewer;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::framebuffer::Operation;
use lastmeter_wire::rfb::{Message, encoding};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    ChangeWindowAttributesAux, ConnectionExt as _, EventMask, ImageFormat, InputFocus,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// The display's owner.
const TOKEN: &str = "the-owners-secret";
/// What VNC takes of it.
const PASSWORD: &str = "the-owne";
/// Keys of each measurement, at the least.
const KEYS_QUICK: usize = 5;
/// Symbols of the keys for a glyph and a scroll: a, s.
const GLYPH: u32 = 0x61;
const SCROLL: u32 = 0x73;
/// Where glyphs appear, one beside the other.
const GLYPHS: Rect = Rect { x: 0, y: 0, w: 8, h: 16 };
/// Where a scroll shows its number, in the last line.
const MARK: Rect = Rect { x: SIZE.0 - 32, y: SIZE.1 - LINE, w: 32, h: LINE };
/// Lines of text that come in turn.
const LINES: usize = 40;

/// A process that ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An X server without a screen of its own, and its name; `None` if it is not installed.
fn x_server() -> Result<Option<(Running, String)>, Complaint> {
    let mut command = Command::new("Xvfb");
    let (w, h) = SIZE;
    // It finds a number that nobody has, and says it.
    command.args(["-displayfd", "1", "-noreset", "-screen", "0", &format!("{w}x{h}x24")]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else { return Ok(None) };
    let said = child.stdout.take().ok_or("Xvfb has no output")?;
    let running = Running(child);
    let mut number = String::new();
    BufReader::new(said).read_line(&mut number)?;
    Ok(Some((running, format!(":{}", number.trim()))))
}

/// The code of the key with this symbol.
fn code(x: &RustConnection, symbol: u32) -> Result<u8, Complaint> {
    let (low, high) = (x.setup().min_keycode, x.setup().max_keycode);
    let mapping = x.get_keyboard_mapping(low, high - low + 1)?.reply()?;
    let per = usize::from(mapping.keysyms_per_keycode).max(1);
    let at = mapping.keysyms.iter().position(|own| *own == symbol);
    let at = at.ok_or(format!("no key has the symbol {symbol:#x}"))?;
    Ok(u8::try_from(usize::from(low) + at / per)?)
}

/// Where the glyph of a key appears.
fn glyph(number: usize) -> Rect {
    // An odd number of places, so that no glyph has the colour of the one before it there.
    let column = (number % (usize::from(SIZE.0 / GLYPHS.w) - 1)) as u16;
    Rect { x: column * GLYPHS.w, ..GLYPHS }
}

/// What is drawn there for a key.
fn filled(rect: Rect, number: usize) -> Vec<u8> {
    bytes(&vec![colour(number); usize::from(rect.w) * usize::from(rect.h)])
}

/// The program on the X screen: a glyph for one key, a scroll by a line for another. Ends with the X server.
fn program(screen: &str) -> Result<(), Complaint> {
    let mut window = Window::open(screen)?;
    let keys = ChangeWindowAttributesAux::new().event_mask(EventMask::KEY_PRESS);
    window.x.change_window_attributes(window.window, &keys)?;
    window.x.set_input_focus(InputFocus::POINTER_ROOT, window.window, x11rb::CURRENT_TIME)?;
    let scroll = code(&window.x, SCROLL)?;
    let mut random = Stream::new(1, "pictures");
    let (w, h) = SIZE;
    let lines: Vec<Vec<u8>> =
        (0..LINES).map(|_| bytes(&text(&mut random, w, LINE, 0x00d0_d0d0, 0))).collect();
    for (number, line) in lines.iter().enumerate() {
        window.put(Rect { x: 0, y: number as u16 * LINE, w, h: LINE }, line)?;
    }
    window.end()?;
    std::thread::spawn(move || {
        let mut number = 0;
        let mut act = |window: &mut Window, event: Event| -> Result<(), Complaint> {
            let Event::KeyPress(key) = event else { return Ok(()) };
            number += 1;
            if key.detail == scroll {
                window.copy(Rect { x: 0, y: 0, w, h: h - LINE }, (0, LINE))?;
                let bottom = Rect { x: 0, y: h - LINE, w, h: LINE };
                window.put(bottom, &lines[number % LINES])?;
                window.put(MARK, &filled(MARK, number))?;
            } else {
                window.put(glyph(number), &filled(glyph(number), number))?;
            }
            Ok(window.x.flush()?)
        };
        while let Ok(event) = window.x.wait_for_event() {
            if act(&mut window, event).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Who presses keys and looks.
trait Seat {
    /// Presses the key and lets it go.
    fn press(&mut self, symbol: u32) -> Result<(), Complaint>;
    /// Waits until a pixel has this colour.
    fn see(&mut self, at: (u16, u16), colour: u32) -> Result<(), Complaint>;
    /// Bytes that came so far.
    fn bytes(&self) -> u64;
}

/// At the X server itself.
struct Here {
    x: RustConnection,
    root: u32,
    /// Codes of the keys for a glyph and a scroll.
    codes: [u8; 2],
}

/// X's numbers of events that it is told to act out.
const KEY_PRESS: u8 = 2;
const KEY_RELEASE: u8 = 3;

impl Seat for Here {
    fn press(&mut self, symbol: u32) -> Result<(), Complaint> {
        let code = self.codes[usize::from(symbol == SCROLL)];
        for kind in [KEY_PRESS, KEY_RELEASE] {
            self.x.xtest_fake_input(kind, code, 0, self.root, 0, 0, 0)?;
        }
        Ok(self.x.flush()?)
    }
    fn see(&mut self, at: (u16, u16), colour: u32) -> Result<(), Complaint> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let (x, y) = (at.0 as i16, at.1 as i16);
            let image = self.x.get_image(ImageFormat::Z_PIXMAP, self.root, x, y, 1, 1, !0)?;
            let data = image.reply()?.data;
            if lastmeter_wire::framebuffer::pixels(&data).next().map(|it| it & 0xff_ffff)
                == Some(colour)
            {
                return Ok(());
            }
        }
        Err(Complaint("X does not show what was typed".to_owned()))
    }
    fn bytes(&self) -> u64 {
        0
    }
}

/// At a viewer.
struct Away(Viewer);

/// Who waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);

impl Seat for Away {
    fn press(&mut self, key: u32) -> Result<(), Complaint> {
        for down in [true, false] {
            self.0.send(&Message::Key { down, key })?;
        }
        Ok(())
    }
    fn see(&mut self, at: (u16, u16), colour: u32) -> Result<(), Complaint> {
        let place = usize::from(at.1) * usize::from(SIZE.0) + usize::from(at.0);
        while self.0.pixels[place] & 0xff_ffff != colour {
            self.0.update(true)?;
        }
        Ok(())
    }
    fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

/// Of a series of keys: seconds to what they draw, in the median and of the slowest tenth; bytes of each.
#[derive(Clone, Copy)]
struct Delay {
    median: f64,
    slow: f64,
    bytes: f64,
}

/// Types; `number` counts all keys since the program began, as the program does.
fn typed(
    seat: &mut dyn Seat,
    symbol: u32,
    number: &mut usize,
    bench: &Bench,
) -> Result<Delay, Complaint> {
    let (began, before) = (Instant::now(), seat.bytes());
    let mut all = Vec::new();
    while all.len() < KEYS_QUICK || began.elapsed().as_secs_f64() < bench.seconds {
        *number += 1;
        let rect = if symbol == SCROLL { MARK } else { glyph(*number) };
        let pressed = Instant::now();
        seat.press(symbol)?;
        seat.see((rect.x + rect.w / 2, rect.y + rect.h / 2), colour(*number))?;
        all.push(pressed.elapsed().as_secs_f64());
    }
    all.sort_by(f64::total_cmp);
    let bytes = (seat.bytes() - before) as f64 / all.len() as f64;
    Ok(Delay { median: all[all.len() / 2], slow: all[all.len() * 9 / 10], bytes })
}

fn socket(folder: &Path) -> String {
    folder.join("display.sock").to_string_lossy().into_owned()
}

/// A display, and the port of its viewers.
fn display(folder: &Path) -> Result<(Running, u16), Complaint> {
    let (w, h) = SIZE;
    let port = free_port()?;
    let file = folder.join("display.toml");
    let content = format!(
        "size = \"{w}x{h}\"\nlisten = \"127.0.0.1:{port}\"\nsocket = \"display.sock\"\n\
         input = [\"owner\"]\n[clients.owner]\ntoken = \"{TOKEN}\"\n"
    );
    std::fs::write(&file, content)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["display", "run"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    let running = Running(command.spawn()?);
    begun("lastmeterd display", || super::client::program(&socket(folder), TOKEN).map(drop))?;
    Ok((running, port))
}

fn feed(folder: &Path, screen: &str, copies: bool) -> Result<Running, Complaint> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["display", "feed"]).arg(folder.join("display.sock"));
    command.args(["--token", TOKEN, "--x", screen]);
    if !copies {
        command.arg("--no-copies");
    }
    Ok(Running(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?))
}

fn viewer(port: u16, copies: bool) -> Result<Viewer, Complaint> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut viewer = Viewer::connect(stream, Some(PASSWORD))?;
    let mut known = vec![encoding::TIGHT, encoding::ZRLE, encoding::HEXTILE];
    known.extend(copies.then_some(encoding::COPY));
    viewer.send(&Message::Encodings(known))?;
    viewer.update(false)?;
    Ok(viewer)
}

/// All pixels of the X screen.
fn pixels(x: &RustConnection, root: u32) -> Result<Vec<u32>, Complaint> {
    let (w, h) = SIZE;
    let image = x.get_image(ImageFormat::Z_PIXMAP, root, 0, 0, w, h, !0)?.reply()?.data;
    Ok(lastmeter_wire::framebuffer::pixels(&image).map(|pixel| pixel & 0xff_ffff).collect())
}

/// Waits until the viewer shows what X does, pixel by pixel.
fn same(viewer: &mut Viewer, wanted: &[u32]) -> Result<(), Complaint> {
    let is_same = |viewer: &Viewer| {
        viewer.pixels.iter().zip(wanted).all(|(seen, wanted)| seen & 0xff_ffff == *wanted)
    };
    while !is_same(viewer) {
        viewer.update(true).map_err(|why| format!("the viewer shows another picture ({why})"))?;
    }
    Ok(())
}

/// The same keys at both seats.
struct Row {
    name: &'static str,
    here: Delay,
    away: Delay,
}

fn measure(screen: &str, folder: &Path, bench: &Bench) -> Result<Vec<Row>, Complaint> {
    program(screen)?;
    let (x, number) = x11rb::connect(Some(screen))?;
    let root = x.setup().roots[number].root;
    x.sync()?;
    let mut count = 0;
    let codes = [code(&x, GLYPH)?, code(&x, SCROLL)?];
    let mut here = Here { x, root, codes };
    // Alone, before anybody else looks at the screen.
    let key = typed(&mut here, GLYPH, &mut count, bench)?;
    let scroll = typed(&mut here, SCROLL, &mut count, bench)?;
    let (_display, port) = display(folder)?;
    let mut rows = Vec::new();
    for copies in [true, false] {
        // Black, until the feed, which by then listens to keys, shows the screen.
        let whole = Rect { x: 0, y: 0, w: SIZE.0, h: SIZE.1 };
        super::client::program(&socket(folder), TOKEN)?.ask(Operation::FILL, whole, &[0; 4])?;
        let _feed = feed(folder, screen, copies)?;
        let mut seat = Away(viewer(port, copies)?);
        same(&mut seat.0, &pixels(&here.x, root)?)?;
        if copies {
            let away = typed(&mut seat, GLYPH, &mut count, bench)?;
            rows.push(Row { name: "delay-key", here: key, away });
        }
        let away = typed(&mut seat, SCROLL, &mut count, bench)?;
        let name = if copies { "delay-scroll" } else { "delay-scroll-without-copies" };
        rows.push(Row { name, here: scroll, away });
        same(&mut seat.0, &pixels(&here.x, root)?)?;
    }
    Ok(rows)
}

pub(super) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    let seconds = if quick { 0.1 } else { arguments.seconds };
    let bench = Bench { name: arguments.name.clone(), seconds, rounds: 1 };
    let Some((_server, screen)) = x_server()? else {
        return Err(Complaint("no Xvfb here: the package xvfb has it".to_owned()));
    };
    let folder = Folder::new(&std::env::temp_dir(), "display-delay")?;
    let rows = measure(&screen, folder.path(), &bench)?;
    let (mut text, mut json) = (String::new(), Vec::new());
    let columns = ["here ms", "slow tenth", "away ms", "slow tenth", "away/here", "bytes"];
    let _ = write!(text, "{:36}", "benchmark");
    columns.iter().for_each(|column| {
        let _ = write!(text, " {column:>11}");
    });
    text.push('\n');
    for Row { name, here, away } in rows {
        let name = format!("display/{name}");
        let [a, b, c, d] = [here.median, here.slow, away.median, away.slow].map(|it| it * 1e3);
        let (ratio, bytes) = (c / a, away.bytes);
        let _ = writeln!(
            text,
            "{name:36} {a:>11.3} {b:>11.3} {c:>11.3} {d:>11.3} {ratio:>11.1} {bytes:>11.0}"
        );
        let note = format!(
            "from a key to its pixels, in the median; slowest tenth {d:.3}, of the X screen itself \
             {b:.3}; {bytes:.0} bytes a key to the viewer"
        );
        let mut told = line(&name, c, "ms", Some(("X screen", a)), &note);
        told["higher_is_better"] = false.into();
        told["bytes"] = bytes.into();
        json.push(told);
    }
    Ok(Report { text, json, good: true })
}
