//! A display as its users see it: from the command line, and with an X screen on it where Xvfb is installed.

use super::{PROGRAM, has, said};
use lastmeter_device::display::viewer::Viewer;
use lastmeter_wire::rfb::Message;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    ConnectionExt, CreateGCAux, CreateWindowAux, Rectangle, WindowClass,
};
use x11rb::wrapper::ConnectionExt as _;

const OWNER: &str = "the-owners-secret";
const GUEST: &str = "guest-of-this-house";

pub(super) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries until it is there.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
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

fn viewer(address: &str, password: Option<&str>) -> Viewer {
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
    assert!(!folder.path().join("display.sock").exists(), "the socket goes with it");
}

/// An X server without a screen of its own, and its name.
pub(super) fn x_server() -> Option<(Running, String)> {
    if !has("Xvfb") {
        return None;
    }
    let mut command = Command::new("Xvfb");
    // It finds a number that nobody has, and says it.
    command.args(["-displayfd", "1", "-noreset", "-screen", "0", "320x200x24"]);
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
