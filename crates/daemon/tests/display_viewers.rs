//! A display in the viewers of others, each on an X screen of its own that is read back pixel by pixel: TigerVNC's and
//! GTK-VNC's. Those in a browser and in Python are tested there (`python/tests/test_display_viewers.py`).

use super::display::{Running, until, x_server_of};
use super::{PROGRAM, has};
use lastmeter_device::display::commands::Program;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::framebuffer::{ANSWERED, Header, Operation, status};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    ConfigureWindowAux, ConnectionExt, ImageFormat, InputFocus, MapState, Window,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// Of the viewers' X screen.
const SCREEN: (u16, u16) = (800, 600);
const TOKEN: &str = "the-owners-secret";
/// X's numbers of events that it is told to act out.
const KEY_PRESS: u8 = 2;
const KEY_RELEASE: u8 = 3;
const BUTTON_PRESS: u8 = 4;
const BUTTON_RELEASE: u8 = 5;
const MOTION: u8 = 6;

/// Noise, flat tiles and a gradient: something for each encoding.
fn picture((w, h): (u16, u16), seed: u32) -> Vec<u32> {
    let noise = |at: u32| at.wrapping_mul(0x9e37_79b1).rotate_left(15).wrapping_mul(0x85eb_ca77);
    let pixel = |x: u32, y: u32| match 3 * x / u32::from(w) {
        0 => noise(noise(x) ^ (y + seed)) >> 8,
        1 => (x / 8 * 40 % 256) << 16 | (y / 10 * 30 % 256) << 8 | (seed % 256),
        _ => (x % 256) << 16 | (y % 256) << 8 | ((x + y) % 256),
    };
    (0..u32::from(h)).flat_map(|y| (0..u32::from(w)).map(move |x| pixel(x, y))).collect()
}

/// A display that anyone may use, its viewers' port, a program that draws on it, and the events that it is told.
struct Shown {
    _run: Running,
    port: u16,
    program: Program<TcpStream>,
    events: Receiver<(Header, Vec<u8>)>,
    size: (u16, u16),
}

pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start(folder: &Path, anyone: bool, tls: bool) -> Shown {
    let (size, port, commands) = ((320, 200), free_port(), free_port());
    let (name, token) = if anyone { ("anyone", "") } else { ("owner", TOKEN) };
    let who = if anyone { String::new() } else { format!("token = '{TOKEN}'\n") };
    let tls = if tls { "[tls]\ncertificate = 'certificate.pem'\nkey = 'key.pem'\n" } else { "" };
    let text = format!(
        "size = '320x200'\nlisten = '127.0.0.1:{port}'\ncommands = '127.0.0.1:{commands}'\n\
         input = ['{name}']\nresize = ['{name}']\n[clients.{name}]\n{who}{tls}"
    );
    std::fs::write(folder.join("display.toml"), text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["display", "run", "display.toml"]).current_dir(folder).stdout(Stdio::null());
    let run = Running(command.spawn().unwrap());
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", commands)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Some(Program::greet(stream, token).unwrap())
    };
    let program = until("the display did not begin", connect);
    let mut listener = connect().unwrap();
    assert_eq!(listener.ask(Operation::LISTEN, Rect::default(), &[]).unwrap().0, status::DONE);
    let (sender, events) = channel();
    std::thread::spawn(move || {
        while let Ok(event) = listener.receive() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    Shown { _run: run, port, program, events, size }
}

impl Shown {
    /// Draws all of it.
    fn draw(&mut self, seed: u32) -> Vec<u32> {
        let pixels = picture(self.size, seed);
        let data: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
        let whole = Rect { x: 0, y: 0, w: self.size.0, h: self.size.1 };
        assert_eq!(self.program.ask(Operation::PUT, whole, &data).unwrap().0, status::DONE);
        pixels
    }
    /// Waits for an event.
    fn told(&self, what: &str, wanted: impl Fn(Operation, &Header, &[u8]) -> bool) -> Header {
        let mut others = Vec::new();
        loop {
            let next = self.events.recv_timeout(Duration::from_secs(30));
            let (header, data) = next.unwrap_or_else(|_| panic!("{what}; only {others:?}"));
            others.push((header, data.clone()));
            if wanted(Operation(header.operation.0 & !ANSWERED), &header, &data) {
                return header;
            }
        }
    }
}

/// The X screen that a viewer is on.
struct Desk {
    x: RustConnection,
    root: Window,
}

impl Desk {
    fn open(name: &str) -> Desk {
        let (x, number) = x11rb::connect(Some(name)).unwrap();
        let root = x.setup().roots[number].root;
        Desk { x, root }
    }
    fn pixels(&self) -> Vec<u32> {
        let (w, h) = SCREEN;
        let image = self.x.get_image(ImageFormat::Z_PIXMAP, self.root, 0, 0, w, h, !0).unwrap();
        let data = image.reply().unwrap().data;
        lastmeter_wire::framebuffer::pixels(&data).map(|pixel| pixel & 0x00ff_ffff).collect()
    }
    /// Waits until a picture is on it, each of its pixels as it should be, and says where.
    fn shows(&self, what: &str, picture: &[u32], size: (u16, u16)) -> (i16, i16) {
        let (w, h) = (usize::from(size.0), usize::from(size.1));
        let (wide, high) = (usize::from(SCREEN.0), usize::from(SCREEN.1));
        until(what, || {
            let seen = self.pixels();
            let places = (0..=high - h).flat_map(|y| (0..=wide - w).map(move |x| (x, y)));
            let same = |(x, y): &(usize, usize)| {
                let row = |row: usize| {
                    let at = (y + row) * wide + x;
                    seen[at..at + w] == picture[row * w..(row + 1) * w]
                };
                (0..h).all(row)
            };
            let found = places.clone().find(same);
            found.map(|(x, y)| (x as i16, y as i16))
        })
    }
    /// The largest visible window that is nobody's child.
    fn window(&self) -> Window {
        until("the viewer has a window", || {
            let children = self.x.query_tree(self.root).unwrap().reply().unwrap().children;
            let area = |window: &Window| {
                let attributes = self.x.get_window_attributes(*window).ok()?.reply().ok()?;
                let place = self.x.get_geometry(*window).ok()?.reply().ok()?;
                let area = u32::from(place.width) * u32::from(place.height);
                (attributes.map_state == MapState::VIEWABLE && area > 10_000).then_some(area)
            };
            children.into_iter().filter(|one| area(one).is_some()).max_by_key(area)
        })
    }
    fn act(&self, kind: u8, detail: u8) {
        self.x.xtest_fake_input(kind, detail, 0, self.root, 0, 0, 0).unwrap();
        self.x.sync().unwrap();
    }
    fn code(&self, symbol: u32) -> u8 {
        let (low, high) = (self.x.setup().min_keycode, self.x.setup().max_keycode);
        let mapping = self.x.get_keyboard_mapping(low, high - low + 1).unwrap().reply().unwrap();
        let at = mapping.keysyms.iter().position(|own| *own == symbol).unwrap();
        low + (at / usize::from(mapping.keysyms_per_keycode)) as u8
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Viewer {
    TigerVnc,
    /// With a menu above the picture.
    Gtk,
}

/// A viewer shows pictures exactly, tells keys and the pointer, and follows the display's size.
fn use_it(desk: &Desk, shown: &mut Shown, viewer: Viewer) {
    let first = shown.draw(1);
    let (left, top) = desk.shows("the picture, exactly", &first, shown.size);
    let next = shown.draw(2);
    assert_eq!(desk.shows("the next one, exactly", &next, shown.size), (left, top));
    // A key and a button, told with the symbol and the place that they had.
    let window = desk.window();
    desk.x.set_input_focus(InputFocus::POINTER_ROOT, window, x11rb::CURRENT_TIME).unwrap();
    // GTK takes the first motions as the pointer's arrival.
    until("the pointer", || {
        for (x, y) in [(5, 5), (37, 41)] {
            desk.x.xtest_fake_input(MOTION, 0, 0, desk.root, left + x, top + y, 0).unwrap();
            desk.x.sync().unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        let last = shown.events.try_iter().last()?.0;
        let kind = Operation(last.operation.0 & !ANSWERED);
        (kind == Operation::POINTER && (last.area.x, last.area.y) == (37, 41)).then_some(())
    });
    for (act, mask) in [(BUTTON_PRESS, 1), (BUTTON_RELEASE, 0)] {
        desk.act(act, 1);
        shown.told("a button", |kind, header, data| {
            let at = (header.area.x, header.area.y) == (37, 41);
            kind == Operation::POINTER && at && data[0] == mask
        });
    }
    let letter = desk.code(0x61);
    for (act, down) in [(KEY_PRESS, 1), (KEY_RELEASE, 0)] {
        desk.act(act, letter);
        shown.told("a key", |kind, _, data| {
            kind == Operation::KEY && data[0] == down && data[4..8] == [0, 0, 0, 0x61]
        });
    }
    if viewer == Viewer::TigerVnc {
        // The display's owner changes its size. GTK-VNC would at once ask for that of its window.
        let whole = Rect { x: 0, y: 0, w: 280, h: 230 };
        assert_eq!(shown.program.ask(Operation::RESIZE, whole, &[]).unwrap().0, status::DONE);
        shown.size = (whole.w, whole.h);
        let larger = shown.draw(3);
        desk.shows("another size, exactly", &larger, shown.size);
    }
    // The viewer's user changes its window's.
    let menu = top as u16 * u16::from(viewer == Viewer::Gtk);
    let size = ConfigureWindowAux::new().width(400).height(300 + u32::from(menu));
    desk.x.configure_window(window, &size).unwrap();
    desk.x.sync().unwrap();
    shown.told("the viewer's wish", |kind, header, _| {
        kind == Operation::SIZE && (header.area.w, header.area.h) == (400, 300)
    });
    shown.size = (400, 300);
    let largest = shown.draw(4);
    desk.shows("the viewer's size, exactly", &largest, shown.size);
}

#[test]
fn tigervncs_viewer_shows_each_pixel_in_each_encoding() {
    if !has("xtigervncviewer") {
        return;
    }
    let encodings = ["ZRLE", "Tight", "Hextile", "Raw"].map(|encoding| (encoding, false));
    // The last one inside of TLS, with the whole token.
    let encrypted = has("openssl").then_some(("ZRLE", true));
    for (encoding, tls) in encodings.into_iter().chain(encrypted) {
        let Some((_server, screen)) = x_server_of(SCREEN) else { return };
        let folder = tempfile::tempdir().unwrap();
        if tls {
            certificate(folder.path(), false);
        }
        let mut shown = start(folder.path(), false, tls);
        let mut command = Command::new("xtigervncviewer");
        // Without JPEG and without a hint over the picture.
        command.args(["-display", &screen, "-AutoSelect=0", "-FullColor=1", "-NoJPEG=1"]);
        command.args(["-MenuKey=", &format!("-PreferredEncoding={encoding}")]);
        match tls {
            true => command
                .args(["-SecurityTypes=X509Plain", "-X509CA=certificate.pem"])
                .env("VNC_USERNAME", "owner")
                .env("VNC_PASSWORD", TOKEN),
            false => command.arg("-SecurityTypes=VncAuth").env("VNC_PASSWORD", &TOKEN[..8]),
        };
        command.arg(format!("127.0.0.1::{}", shown.port)).current_dir(folder.path());
        command.env("HOME", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let _viewer = Running(command.spawn().unwrap());
        use_it(&Desk::open(&screen), &mut shown, Viewer::TigerVnc);
    }
}

/// A certificate of this host and its key: its own authority, as libnbd and QEMU want it, or none, as our clients do.
pub(crate) fn certificate(folder: &Path, authority: bool) {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    command.args(["-nodes", "-keyout", "key.pem", "-out", "certificate.pem"]);
    command.args(["-subj", "/CN=localhost"]);
    command.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    if !authority {
        command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    let done = command.current_dir(folder).stderr(Stdio::null()).status().unwrap();
    assert!(done.success());
}

/// It always asks for JPEG: each pixel is as it should be once the picture is still.
#[test]
fn gtk_vncs_viewer_shows_each_pixel() {
    if !has("gvncviewer") {
        return;
    }
    let Some((_server, screen)) = x_server_of(SCREEN) else { return };
    let folder = tempfile::tempdir().unwrap();
    // With a password it would open a window that asks for it.
    let mut shown = start(folder.path(), true, false);
    let mut command = Command::new("gvncviewer");
    // It counts displays from VNC's first port.
    command.arg(format!("127.0.0.1:{}", shown.port - 5900)).env("DISPLAY", &screen);
    command.env("HOME", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let _viewer = Running(command.spawn().unwrap());
    use_it(&Desk::open(&screen), &mut shown, Viewer::Gtk);
}
