//! A display and programs far from it: through TLS; an X screen that takes the size of its viewers; viewers that ask for
//! more than others.

use super::display::{Running, until, viewer, x_server};
use super::display_viewers::{certificate, free_port};
use super::{PROGRAM, has, said};
use lastmeter_device::display::viewer::Viewer;
use lastmeter_wire::rfb::{Message, encoding};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ChangeWindowAttributesAux, ConnectionExt};
use x11rb::wrapper::ConnectionExt as _;

const OWNER: &str = "the-owners-secret";

/// A display of 320 by 200 in a folder, and the addresses for viewers and programs.
fn start(folder: &Path, more: &str) -> (Running, String, String) {
    let [viewers, programs] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let text = format!(
        "size = '320x200'\nlisten = '{viewers}'\ncommands = '{programs}'\ninput = ['owner']\n\
         resize = ['owner']\n[clients.owner]\ntoken = '{OWNER}'\n{more}"
    );
    std::fs::write(folder.join("display.toml"), text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["display", "run", "display.toml"]).current_dir(folder).stdout(Stdio::null());
    let running = Running(command.spawn().unwrap());
    until("the display did not begin", || std::net::TcpStream::connect(&programs).ok());
    (running, viewers, programs)
}

fn feed(folder: &Path, programs: &str, screen: &str, more: &[&str]) -> Running {
    let mut command = Command::new(PROGRAM);
    command.args(["display", "feed", programs, "--token", OWNER, "--x", screen]).args(more);
    Running(command.current_dir(folder).stdout(Stdio::null()).spawn().unwrap())
}

/// The root window of an X screen, all of it of one colour.
fn coloured(screen: &str, colour: u32) -> (x11rb::rust_connection::RustConnection, u32) {
    let (x, number) = x11rb::connect(Some(screen)).unwrap();
    let root = x.setup().roots[number].root;
    let own = ChangeWindowAttributesAux::new().background_pixel(colour);
    x.change_window_attributes(root, &own).unwrap();
    x.clear_area(false, root, 0, 0, 0, 0).unwrap();
    x.sync().unwrap();
    (x, root)
}

#[test]
fn a_program_draws_and_hears_through_tls() {
    if !has("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path(), false);
    let tls = "[tls]\ncertificate = 'certificate.pem'\nkey = 'key.pem'\n";
    let (_display, viewers, programs) = start(folder.path(), tls);
    let draw = |trust: &[&str], colour: &str| -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(["display", "draw", &programs, "--token", OWNER]).args(trust);
        command.args(["fill", "0", "0", "320", "200", colour]).current_dir(folder.path());
        command.output().unwrap()
    };
    // Who does not go on, or goes on with nonsense, holds up nobody.
    let strangers =
        [&b"\x16"[..], b"\x16\x03\x01\x02\x00\x01\xff\xff\xff", b"LMFB", b""].map(|bytes| {
            let mut stream = std::net::TcpStream::connect(&programs).unwrap();
            stream.write_all(bytes).unwrap();
            stream
        });
    let mut seen = viewer(&viewers, Some(OWNER));
    for (trust, colour) in [(&["--trust", "certificate.pem"][..], 0x0010_2030), (&[], 0x0040_5060)]
    {
        assert!(said(&draw(trust, &format!("{colour:06x}")), 0).contains("drawn"));
        seen.update(false).unwrap();
        assert!(seen.pixels.iter().all(|pixel| *pixel == colour), "{trust:?}");
    }
    drop(strangers);
    // The certificate of somebody else.
    let other = tempfile::tempdir().unwrap();
    certificate(other.path(), false);
    let other = other.path().join("certificate.pem");
    let refused = said(&draw(&["--trust", other.to_str().unwrap()], "ffffff"), 2);
    assert!(refused.contains("certificate"), "{refused}");
    // Pixels one way and keys the other, at the same time.
    let Some((_server, screen)) = x_server() else { return };
    let (x, _) = coloured(&screen, 0x0070_8090);
    let _feed = feed(folder.path(), &programs, &screen, &["--trust", "certificate.pem"]);
    until("the X screen is shown", || {
        seen.update(false).unwrap();
        seen.pixels.iter().all(|pixel| *pixel == 0x0070_8090).then_some(())
    });
    seen.send(&Message::Key { down: true, key: 0x61 }).unwrap();
    until("the key comes back", || {
        let keys = x.query_keymap().unwrap().reply().unwrap().keys;
        keys.iter().any(|byte| *byte != 0).then_some(())
    });
}

/// Xtigervnc as an X server, and its name.
fn tiger(folder: &Path) -> Option<(Running, String)> {
    if !has("Xtigervnc") {
        return None;
    }
    let mut command = Command::new("Xtigervnc");
    command.args(["-displayfd", "1", "-geometry", "320x200", "-depth", "24", "-noreset"]);
    command.args(["-SecurityTypes", "None", "-localhost", "-rfbport", &free_port().to_string()]);
    command.current_dir(folder).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut number = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
    let screen = format!(":{}", number.trim());
    Some((Running(child), screen))
}

/// A viewer's wish for another size is that of the X screen, where its server can: Xvfb up to the size that it began
/// with, Xtigervnc any. Where it cannot, the display keeps the X screen's.
#[test]
fn an_x_screen_takes_the_size_of_a_viewer_n_09() {
    let folder = tempfile::tempdir().unwrap();
    let servers = [(x_server(), (320, 200)), (tiger(folder.path()), (500, 400))];
    for (server, largest) in servers {
        let Some((_server, screen)) = server else { continue };
        let (x, root) = coloured(&screen, 0x0011_2233);
        let (_display, viewers, programs) = start(folder.path(), "");
        let mut viewer = viewer(&viewers, Some(OWNER));
        let known = vec![encoding::ZRLE, encoding::EXTENDED_DESKTOP_SIZE];
        viewer.send(&Message::Encodings(known)).unwrap();
        for (more, wish) in [
            (&[][..], (200, 150)),
            (&[], (310, 190)),
            (&[], (500, 400)),
            (&["--keep-size"], (9, 9)),
        ] {
            // White, until the feed, which by then listens, shows the screen.
            let (w, h) = viewer.size;
            let mut fill = Command::new(PROGRAM);
            fill.args(["display", "draw", &programs, "--token", OWNER, "fill", "0", "0"]);
            said(&fill.args([&w.to_string(), &h.to_string(), "ffffff"]).output().unwrap(), 0);
            let _feed = feed(folder.path(), &programs, &screen, more);
            let shows = |viewer: &mut Viewer, what: &str, wanted: (u16, u16)| {
                until(&format!("{what}: {wanted:?} of {screen}"), || {
                    viewer.update(false).unwrap();
                    let now = x.get_geometry(root).unwrap().reply().unwrap();
                    // What is new on the screen is black in some servers.
                    x.clear_area(false, root, 0, 0, 0, 0).unwrap();
                    x.sync().unwrap();
                    let shown = viewer.pixels.iter().all(|pixel| *pixel == 0x0011_2233);
                    ((now.width, now.height) == wanted && viewer.size == wanted && shown)
                        .then_some(())
                });
            };
            let now = x.get_geometry(root).unwrap().reply().unwrap();
            shows(&mut viewer, "before", (now.width, now.height));
            viewer.send(&Message::SetSize { w: wish.0, h: wish.1, screens: 1 }).unwrap();
            let fits = (wish.0.min(largest.0), wish.1.min(largest.1));
            let wanted = if more.is_empty() { fits } else { (now.width, now.height) };
            shows(&mut viewer, "after", wanted);
        }
    }
}

/// What viewers of unequal appetite get: neither those that ask for all of the screen again and again nor one that
/// pauses keep another from its updates, and none gets nothing. A machine that has nothing left to share is told aloud.
#[test]
fn viewers_of_unequal_appetite_share_a_display_n_14() {
    let mut bench = Command::new(PROGRAM);
    bench.args(["display", "bench", "fair", "--quick", "--json"]);
    let output = bench.stderr(Stdio::null()).output().unwrap();
    let told = said(&output, 0);
    let lines: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |phase: &str, viewer: &str| -> Vec<&serde_json::Value> {
        lines.iter().filter(|it| it["phase"] == phase && it["viewer"] == viewer).collect()
    };
    let number = |line: &serde_json::Value, key: &str| line[key].as_f64().unwrap();
    let (alone, fast) = (of("alone", "fast")[0], of("together", "fast")[0]);
    let (greedy, dear) = (of("together", "greedy"), of("together", "dear"));
    let slow = [of("beside", "slow")[0], of("together", "slow")[0]];
    assert_eq!(slow.len() - 1 + greedy.len() + dear.len(), 9);
    // One that pauses for a fifth of a second has at most five a second, and the one at the beginning.
    assert!(slow.iter().all(|slow| number(slow, "value") < 7.0), "{told}");
    if number(alone, "value") < 20.0 {
        println!("SKIP: this machine is too busy to say who gets what of it: {alone}");
        return;
    }
    assert!(number(of("beside", "fast")[0], "share") > 0.5, "a slow one takes nothing: {told}");
    assert!(number(fast, "share") > 0.25, "{told}");
    // Those that ask for the same get about the same, and what is dear for the server is less.
    for alike in [&greedy, &dear] {
        let of = |key| alike.iter().map(move |line| number(line, key));
        let (least, most) = (of("value").fold(f64::MAX, f64::min), of("value").fold(0.0, f64::max));
        assert!(least > 0.0 && most < 8.0 * least, "{least} to {most}: {told}");
    }
    let cpu = |all: &[&serde_json::Value]| all.iter().map(|line| number(line, "cpu")).sum::<f64>();
    assert!(cpu(&dear) < 4.0 * cpu(&greedy), "{told}");
}
