//! A display as its users see it: from the command line, and with an X screen on it where Xvfb is installed.

use super::{PROGRAM, has, said};
use lastmeter_device::display::viewer::Viewer;
use lastmeter_wire::rfb::{Message, encoding};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::randr::{ConnectionExt as _, Rotation};
use x11rb::protocol::xproto::{
    ConnectionExt, CreateGCAux, CreateWindowAux, Rectangle, WindowClass,
};
use x11rb::wrapper::ConnectionExt as _;

const OWNER: &str = "the-owners-secret";
const GUEST: &str = "guest-of-this-house";

pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries until it is there.
pub(super) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(made) = attempt() {
            return made;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A display in a folder, with the port of its viewers.
fn start(folder: &Path) -> (Running, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "size = '320x200'\nlisten = '127.0.0.1:{port}'\nsocket = 'display.sock'\ninput = ['owner']\n\
         resize = ['owner']\n\
         [regions]\nguest = '100x50+200+100'\n\
         [clients.owner]\ntoken = '{OWNER}'\n[clients.guest]\ntoken = '{GUEST}'\n\
         [clients.anyone]\npolicies = ['look']\n\
         [policies.look]\nexpression = '(= operation update)'\n"
    );
    std::fs::write(folder.join("display.toml"), text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["display", "run", "display.toml", "--ledger", "ledger.json"]);
    let child = command.current_dir(folder).stdout(Stdio::null()).spawn();
    let running = Running(child.unwrap());
    let address = format!("127.0.0.1:{port}");
    until("the display did not begin", || {
        std::os::unix::net::UnixStream::connect(folder.join("display.sock")).ok()
    });
    (running, address)
}

fn display(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("display").args(arguments).current_dir(folder).output().unwrap()
}

pub(super) fn viewer(address: &str, password: Option<&str>) -> Viewer {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    Viewer::connect(stream, password).unwrap()
}

#[test]
fn it_is_drawn_on_and_seen_as_its_owner_says() {
    let folder = tempfile::tempdir().unwrap();
    let (display_run, address) = start(folder.path());
    let draw = |token: &str, what: &[&str]| {
        let head = ["draw", "./display.sock", "--token", token];
        display(folder.path(), &[&head[..], what].concat())
    };
    assert!(said(&draw(OWNER, &["fill", "0", "0", "320", "200", "203040"]), 0).contains("drawn"));
    assert!(said(&draw(GUEST, &["fill", "0", "0", "100", "50", "ff8000"]), 0).contains("drawn"));
    let outside = said(&draw(GUEST, &["fill", "0", "0", "101", "50", "ffffff"]), 1);
    assert!(outside.contains("not on the screen, which is 100 by 50"), "{outside}");
    let denied = said(&draw("", &["fill", "0", "0", "1", "1", "ffffff"]), 1);
    assert!(denied.contains("a policy denies it"), "{denied}");
    assert!(
        said(&draw("nobody", &["copy", "0", "0", "1", "1", "5", "5"]), 2).contains("no such token")
    );
    said(&display(folder.path(), &["shot", &address, "all.png"]), 0);
    // The picture, put elsewhere.
    said(&draw(OWNER, &["fill", "0", "0", "320", "200", "000000"]), 0);
    said(&draw(OWNER, &["put", "0", "0", "all.png"]), 0);
    let mut seen = viewer(&address, None);
    seen.update(false).unwrap();
    for (at, pixel) in seen.pixels.iter().enumerate() {
        let (x, y) = (at % 320, at / 320);
        let guests = (200..300).contains(&x) && (100..150).contains(&y);
        assert_eq!(*pixel, if guests { 0x00ff_8000 } else { 0x0020_3040 }, "at {x}, {y}");
    }
    let shown = said(&display(folder.path(), &["show", "display.toml", "commands"]), 0);
    assert!(shown.contains("1 look, 1 outside of the client's screen"), "{shown}");
    Command::new("kill").arg(display_run.0.id().to_string()).status().unwrap();
    until("the ledger was not saved", || {
        let text = std::fs::read_to_string(folder.path().join("ledger.json")).ok()?;
        text.contains("\"encode\"").then_some(())
    });
    let socket = folder.path().join("display.sock");
    until("the socket did not go with it", || (!socket.exists()).then_some(()));
}

/// An X server without a screen of its own, and its name.
pub(super) fn x_server() -> Option<(Running, String)> {
    x_server_of((320, 200))
}

/// The same, of another size.
pub(super) fn x_server_of((w, h): (u16, u16)) -> Option<(Running, String)> {
    if !has("Xvfb") {
        return None;
    }
    let mut command = Command::new("Xvfb");
    // It finds a number that nobody has, and says it.
    command.args(["-displayfd", "1", "-noreset", "-screen", "0", &format!("{w}x{h}x24")]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut number = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
    let screen = format!(":{}", number.trim());
    Some((Running(child), screen))
}

#[test]
fn an_x_screen_is_shown_its_scrolls_are_copies_and_keys_come_back() {
    let Some((_server, screen)) = x_server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_display, address) = start(folder.path());
    let mut command = Command::new(PROGRAM);
    command.args(["display", "feed", "./display.sock", "--token", OWNER, "--x", &screen]);
    command.args(["--seconds", "5", "--json"]).current_dir(folder.path());
    let feed = command.stdout(Stdio::piped()).spawn().unwrap();
    let (x, number) = x11rb::connect(Some(&screen)).unwrap();
    let root = x.setup().roots[number].root;
    let (window, context) = (x.generate_id().unwrap(), x.generate_id().unwrap());
    let own = CreateWindowAux::new().override_redirect(1).background_pixel(0x0010_2030);
    x.create_window(0, window, root, 0, 0, 320, 200, 0, WindowClass::INPUT_OUTPUT, 0, &own)
        .unwrap();
    x.create_gc(context, window, &CreateGCAux::new().graphics_exposures(0)).unwrap();
    x.map_window(window).unwrap();
    x.sync().unwrap();
    let mut seen = viewer(&address, Some(OWNER));
    let mut shows = |what: &str, at: usize, colour: u32| {
        let mut first = true;
        until(what, || {
            // Nothing comes unless something changes: all of it is asked for.
            let _ = std::mem::take(&mut first);
            seen.update(false).unwrap();
            (seen.pixels[at] == colour).then_some(())
        });
    };
    shows("the window is shown", 0, 0x0010_2030);
    // Lines that all differ, then a scroll.
    for line in 0..200u16 {
        x.change_gc(
            context,
            &x11rb::protocol::xproto::ChangeGCAux::new().foreground(u32::from(line) * 300),
        )
        .unwrap();
        let part = Rectangle { x: 0, y: line as i16, width: 300, height: 1 };
        x.poly_fill_rectangle(window, context, &[part]).unwrap();
    }
    x.sync().unwrap();
    shows("the lines are shown", 199 * 320, 199 * 300);
    x.copy_area(window, window, context, 0, 16, 0, 0, 320, 184).unwrap();
    x.sync().unwrap();
    shows("the scroll is shown", 0, 16 * 300);
    // The symbol of the letter a.
    seen.send(&Message::Key { down: true, key: 0x61 }).unwrap();
    until("the key comes back", || {
        let keys = x.query_keymap().unwrap().reply().unwrap().keys;
        keys.iter().any(|byte| *byte != 0).then_some(())
    });
    seen.send(&Message::Key { down: false, key: 0x61 }).unwrap();
    let told = said(&feed.wait_with_output().unwrap(), 0);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert!(told["copies"].as_u64() >= Some(1), "{told}");
}

/// What a terminal asks of its X server, while text scrolls and without: packets, answers that are waited for, bits.
#[test]
fn a_terminals_packets_and_answers_are_counted_n_08() {
    if !has("xterm") {
        return;
    }
    let Some((_server, screen)) = x_server() else { return };
    let profile = |what: &str| -> serde_json::Value {
        let mut command = Command::new(PROGRAM);
        command.args(["display", "profile", "--x", &screen, "--json", "--", "xterm", "-e"]);
        let told = command.args(["sh", "-c", what]).stderr(Stdio::null()).output().unwrap();
        assert!(told.status.success());
        serde_json::from_slice(&told.stdout).unwrap()
    };
    for what in ["sleep 0.5", "seq 1 2000; sleep 0.5"] {
        let told = profile(what);
        assert_eq!(told["program"], "xterm");
        // It asks for atoms, fonts and colours when it begins, and waits for each.
        for part in ["packets", "answers", "bits"] {
            let [peak, mean] = ["peak", "mean"].map(|key| told[key][part].as_f64().unwrap());
            assert!(mean > 0.0 && peak >= mean, "{part}: {told}");
        }
    }
}

/// The cursor of an X screen is drawn by viewers, exactly as X has it, and is no part of the picture; the display takes
/// the X screen's size.
#[test]
fn an_x_screens_cursor_and_size_are_the_viewers_n_09() {
    let Some((_server, screen)) = x_server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_display, address) = start(folder.path());
    let mut command = Command::new(PROGRAM);
    command.args(["display", "feed", "./display.sock", "--token", OWNER, "--x", &screen]);
    let feed = command.current_dir(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let _feed = Running(feed);
    let (x, number) = x11rb::connect(Some(&screen)).unwrap();
    let root = x.setup().roots[number].root;
    // A cursor of 16 by 8: two colours in stripes, and a corner where nothing is seen.
    let (w, h, hot) = (16u16, 8u16, (3u16, 5u16));
    let seen = |column: u16, row: u16| column + row >= 6;
    let bright = |column: u16, row: u16| (column * 3 + row) % 4 < 2;
    let bits = |bit: &dyn Fn(u16, u16) -> bool| -> u32 {
        let (pixmap, context) = (x.generate_id().unwrap(), x.generate_id().unwrap());
        x.create_pixmap(1, pixmap, root, w, h).unwrap();
        let points = CreateGCAux::new().foreground(0);
        x.create_gc(context, pixmap, &points).unwrap();
        let all = Rectangle { x: 0, y: 0, width: w, height: h };
        x.poly_fill_rectangle(pixmap, context, &[all]).unwrap();
        let one = x11rb::protocol::xproto::ChangeGCAux::new().foreground(1);
        x.change_gc(context, &one).unwrap();
        let set = (0..h).flat_map(|row| (0..w).map(move |column| (column, row)));
        let set = set.filter(|(column, row)| bit(*column, *row));
        let set: Vec<Rectangle> = set
            .map(|(column, row)| Rectangle { x: column as i16, y: row as i16, width: 1, height: 1 })
            .collect();
        x.poly_fill_rectangle(pixmap, context, &set).unwrap();
        pixmap
    };
    let (shape, mask) = (bits(&bright), bits(&seen));
    let cursor = x.generate_id().unwrap();
    x.create_cursor(cursor, shape, mask, 0xffff, 0x8080, 0, 0, 0x2020, 0xffff, hot.0, hot.1)
        .unwrap();
    let own = x11rb::protocol::xproto::ChangeWindowAttributesAux::new()
        .cursor(cursor)
        .background_pixel(0x0011_2233);
    x.change_window_attributes(root, &own).unwrap();
    x.clear_area(false, root, 0, 0, 0, 0).unwrap();
    x.warp_pointer(x11rb::NONE, root, 0, 0, 0, 0, 100, 60).unwrap();
    x.sync().unwrap();
    let mut viewer = viewer(&address, None);
    viewer.send(&Message::Encodings(vec![encoding::ZRLE, encoding::CURSOR])).unwrap();
    let places = (0..h).flat_map(|row| (0..w).map(move |column| (column, row)));
    let colour = |(column, row): (u16, u16)| {
        seen(column, row).then(|| if bright(column, row) { 0x00ff_8000 } else { 0x0000_20ff })
    };
    let expected = Some((w, h, hot, places.map(colour).collect::<Vec<Option<u32>>>()));
    until("the cursor is the viewer's", || {
        viewer.update(false).unwrap();
        (viewer.pointer == expected && viewer.pixels[0] == 0x0011_2233).then_some(())
    });
    assert!(viewer.pixels.iter().all(|pixel| *pixel == 0x0011_2233), "it is not in the picture");
    // The screen becomes smaller: so does the display, and what the viewer sees.
    let resources = x.randr_get_screen_resources(root).unwrap().reply().unwrap();
    for crtc in resources.crtcs {
        let (now, off) = (resources.config_timestamp, x11rb::NONE);
        x.randr_set_crtc_config(crtc, 0, now, 0, 0, off, Rotation::ROTATE0, &[]).unwrap();
    }
    x.randr_set_screen_size(root, 200, 150, 50, 40).unwrap();
    x.sync().unwrap();
    let known = vec![encoding::ZRLE, encoding::CURSOR, encoding::DESKTOP_SIZE];
    viewer.send(&Message::Encodings(known)).unwrap();
    until("the display has the size of the X screen", || {
        viewer.update(false).unwrap();
        let all = viewer.pixels.iter().all(|pixel| *pixel == 0x0011_2233);
        (viewer.size == (200, 150) && all).then_some(())
    });
}

/// A key to its glyph, and a scroll, at the X screen and at a viewer far from it; scrolls as copies take fewer bytes.
#[test]
fn keys_and_scrolls_are_timed_here_and_away_n_14_n_15() {
    if !has("Xvfb") {
        return;
    }
    let mut bench = Command::new(PROGRAM);
    bench.args(["display", "bench", "delay", "--quick", "--json"]);
    let told = said(&bench.output().unwrap(), 0);
    let lines: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line["bench"].as_str().unwrap()).collect();
    let all = ["delay-key", "delay-scroll", "delay-scroll-without-copies"];
    assert_eq!(names, all.map(|name| format!("display/{name}")));
    for line in &lines {
        let [away, here] = ["value", "peer_value"].map(|key| line[key].as_f64().unwrap());
        assert!(here > 0.0 && away > 0.0, "{line}");
        assert_eq!(line["peer"], "X screen");
    }
    let bytes = |at: usize| lines[at]["bytes"].as_f64().unwrap();
    assert!(bytes(0) > 0.0 && bytes(1) * 4.0 < bytes(2), "copies: {told}");
}
