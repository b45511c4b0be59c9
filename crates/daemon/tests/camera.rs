//! A camera as its users see it: by HTTP, by its own protocol, and by ffmpeg where it is installed.

use super::attempts::{attempt, in_time};
use super::{PROGRAM, has, plugin, said};
use lastmeter_device::camera::encode::from_jpeg;
use lastmeter_device::camera::frame::{Layout, Pixels};
use lastmeter_device::camera::pattern::read;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt as _, CreateGCAux, Rectangle};
use x11rb::wrapper::ConnectionExt as _;

pub(super) const OWNER: &str = "the-owners-secret";
const GUEST: &str = "guest-of-this-house";

pub(super) struct Running {
    pub(super) child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    /// What the next line says at its end.
    fn address(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().trim_end_matches('/').rsplit([' ', '/']).next().unwrap().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A camera in a folder; the addresses of its viewers and of its receivers.
pub(super) fn start(folder: &Path, more: &str) -> (Running, String, String) {
    let text = format!("listen = '127.0.0.1:0'\nreceivers = '127.0.0.1:0'\n{more}");
    std::fs::write(folder.join("camera.toml"), text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["camera", "run", "camera.toml", "--ledger", "ledger.json"]);
    let mut child = command.current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut running = Running { child, out };
    let (viewers, receivers) = (running.address(), running.address());
    until("it answers", || camera(folder, &["show", "camera.toml", "traffic"]).status.success());
    (running, viewers, receivers)
}

/// Waits, however busy the machine is.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A test whose times a busy machine can spoil.
pub(super) fn tried(test: impl Fn()) {
    attempt(test).settle();
}

pub(super) fn camera(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("camera").args(arguments).current_dir(folder);
    command.output().unwrap()
}

fn show(folder: &Path, which: &str) -> Value {
    let said = said(&camera(folder, &["show", "camera.toml", which, "--json"]), 0);
    serde_json::from_str(&said).unwrap()
}

/// The head and the body of an answer.
pub(super) fn get(address: &str, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes[end + 4..].to_vec())
}

const CLIENTS: &str = "\
size = '320x240'\nrate = 50\n\
[clients.owner]\ntoken = 'the-owners-secret'\n\
[clients.guest]\ntoken = 'guest-of-this-house'\npolicies = ['first frames']\n\
[policies.'first frames']\nexpression = '(< width 100)'\n";

#[test]
fn frames_come_by_http_to_those_who_may_see_them() {
    let folder = tempfile::tempdir().unwrap();
    let (running, viewers, receivers) = start(folder.path(), CLIENTS);
    let before = show(folder.path(), "traffic");
    assert_eq!((&before["captured"], &before["bytes"]), (&0.into(), &0.into()), "nobody asked");
    let (head, body) = get(&viewers, &format!("/{OWNER}/frame.jpg"));
    assert!(head.contains("200 OK") && head.contains("image/jpeg"), "{head}");
    let pixels = from_jpeg(&body).unwrap();
    assert_eq!((pixels.width, pixels.height), (320, 240));
    assert!(read(&pixels).is_some(), "number and time are in the picture");
    assert!(get(&viewers, "/frame.jpg").0.contains("401"));
    assert!(get(&viewers, &format!("/{GUEST}/frame.jpg")).0.contains("403"));
    assert!(
        get(&viewers, &format!("/{OWNER}/frame.jpg?x=300&y=0&w=100&h=10"))
            .1
            .starts_with(b"a region")
    );
    assert!(get(&viewers, &format!("/{OWNER}/frame.jpg?width=wide")).0.contains("400"));
    let (head, body) = get(&viewers, &format!("/{OWNER}/stream.mjpg?n=5&width=160&height=120"));
    assert!(head.contains("multipart/x-mixed-replace"), "{head}");
    let numbers: Vec<u32> = String::from_utf8_lossy(&body)
        .lines()
        .filter_map(|line| line.strip_prefix("X-Frame: ")?.trim().parse().ok())
        .collect();
    assert!(numbers.len() == 5 && numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    // A receiver without a token, and one of a session that is not its own.
    assert!(said(&camera(folder.path(), &["ask", &receivers]), 2).contains("denied"));
    let traffic = show(folder.path(), "traffic");
    assert!(traffic["captured"].as_u64() <= Some(16), "only what was asked for: {traffic}");
    let ledger = show(folder.path(), "frames");
    let path = &ledger["paths"][0];
    assert_eq!(path["totals"]["delivered"]["packets"], 6, "{path:#}");
    assert_eq!(path["stages"][2]["drops"]["first frames"], 1, "{path:#}");
    said(&Command::new("kill").arg(running.child.id().to_string()).output().unwrap(), 0);
    until("the ledger is saved", || folder.path().join("ledger.json").exists());
}

#[test]
fn receivers_set_the_pace_and_what_limits_them_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_running, _, receivers) = start(folder.path(), "rate = 20\ncolour = false\n");
    let run = |arguments: &[&str]| -> Value {
        let head = [arguments[0], &receivers];
        let output = camera(folder.path(), &[&head, &arguments[1..], &["--json"]].concat());
        let told = said(&output, 0);
        serde_json::from_str(told.lines().next().unwrap()).unwrap()
    };
    run(&[
        "ask",
        "--format",
        "grey",
        "--size",
        "64x48",
        "--region",
        "320x240+10+10",
        "--out",
        "a.pgm",
    ]);
    let saved = std::fs::read(folder.path().join("a.pgm")).unwrap();
    assert!(saved.starts_with(b"P5\n64 48\n255\n") && saved.len() == 13 + 64 * 48);
    // As many as the source has: it is what limits them.
    tried(|| {
        let seen = run(&["watch", "--seconds", "2", "--rate", "100"]);
        let frames = seen["frames"].as_u64().unwrap();
        assert!(frames <= 45, "{seen}");
        in_time!(frames >= 20 && seen["lost"] == 0, "{seen}");
    });
    // A slow receiver gets what it can take, in either loop; in the closed one nothing is lost.
    tried(|| {
        let seen = run(&["watch", "--seconds", "2", "--rate", "100", "--work", "150"]);
        let frames = seen["frames"].as_u64().unwrap();
        assert!(frames <= 14, "{seen}");
        in_time!(frames >= 3 && seen["lost"] == 0, "{seen}");
    });
    // Shaped, with a certificate.
    let knobs = ["--lines", "48", "--pause", "2000", "--burst", "4", "--gap", "500"];
    run(&[&["watch", "--seconds", "1", "--format", "grey"][..], &knobs].concat());
    let shaping = show(folder.path(), "shaping");
    assert!(shaping["packets"].as_u64() > Some(100), "{shaping}");
    // Once nobody asks, nothing is captured or sent.
    let sent = || {
        let traffic = show(folder.path(), "traffic");
        (traffic["captured"].clone(), traffic["packets"].clone())
    };
    let mut last = sent();
    until("it rests", || {
        std::thread::sleep(Duration::from_millis(700));
        std::mem::replace(&mut last, sent()) == last
    });
}

/// What limits a camera with this file, after a receiver has watched it in this way.
fn limit(more: &str, arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let (_running, _, receivers) = start(folder.path(), more);
    let watch = [&["watch", &receivers, "--seconds", "1.5"][..], arguments].concat();
    said(&camera(folder.path(), &watch), 0);
    show(folder.path(), "frames")
}

#[test]
fn a_106_the_ledger_names_each_bottleneck() {
    let cases: [(&str, &str, &[&str]); 5] = [
        // The camera's 30 frames/s; here 8.
        ("source", "size = '160x120'\nrate = 8\n", &["--rate", "100"]),
        // The host's own timing.
        ("timing", "size = '160x120'\nrate = 500\n", &["--rate", "8"]),
        // The camera's CPU: a large picture of good quality, of which the receiver takes a small one.
        ("cpu", "size = '3200x2000'\nrate = 1000\n", &["--rate", "1000", "--size", "160x100"]),
        // The host's CPU.
        ("receiver", "size = '160x120'\nrate = 500\n", &["--rate", "500", "--work", "40"]),
        // And what the receiver asked for to spare its buffers.
        (
            "pacing",
            "size = '160x120'\nrate = 500\n",
            &["--format", "grey", "--lines", "10", "--pause", "10000", "--rate", "500"],
        ),
    ];
    for (limits, more, arguments) in cases {
        tried(|| {
            let ledger = limit(more, arguments);
            let stages = ledger["paths"][0]["stages"].as_array().unwrap();
            let names: Vec<&str> = stages.iter().filter_map(|it| it["name"].as_str()).collect();
            let all =
                ["capture", "convert", "policy", "encode", "shape", "network", "decode", "display"];
            assert_eq!(names, all);
            let verdict = &ledger["verdict"];
            in_time!(verdict["resource"] == limits, "it is {limits}: {verdict:#}");
        });
    }
}

#[test]
fn an_x_screen_is_a_source() {
    if !has_ffmpeg() {
        return;
    }
    let Some((_server, screen)) = super::display::x_server() else { return };
    let (x, number) = x11rb::connect(Some(&screen)).unwrap();
    let root = x.setup().roots[number].root;
    let context = x.generate_id().unwrap();
    x.create_gc(context, root, &CreateGCAux::new().foreground(0x00c0_4020)).unwrap();
    let part = Rectangle { x: 100, y: 50, width: 60, height: 40 };
    x.poly_fill_rectangle(root, context, &[part]).unwrap();
    x.sync().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let more = format!("source = 'x11:{screen}'\nsize = '320x200'\nrate = 10\n");
    let (_running, _, receivers) = start(folder.path(), &more);
    let asked = ["ask", &receivers, "--format", "colour", "--out", "screen.ppm"];
    until("the screen is captured", || camera(folder.path(), &asked).status.success());
    let saved = std::fs::read(folder.path().join("screen.ppm")).unwrap();
    let head = b"P6\n320 200\n255\n";
    assert!(saved.starts_with(head));
    let (pixels, _) = saved[head.len()..].as_chunks::<3>();
    for (at, pixel) in pixels.iter().enumerate() {
        let (x, y) = (at % 320, at / 320);
        let painted = (100..160).contains(&x) && (50..90).contains(&y);
        // The pointer is somewhere in the middle of the screen.
        if painted != (*pixel == [0xc0, 0x40, 0x20]) {
            assert!(x.abs_diff(160) < 24 && y.abs_diff(100) < 24, "at {x}, {y}: {pixel:?}");
        }
    }
}

/// A camera of this machine, where it has one.
#[test]
fn a_v4l2_camera_is_a_source() {
    let device = "/dev/video0";
    if !Path::new(device).exists() || !has_ffmpeg() {
        println!("SKIP: no {device}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = format!("source = 'v4l2:{device}'\nsize = '320x240'\n");
    let (_running, viewers, _) = start(folder.path(), &source);
    let (_, body) = get(&viewers, "/frame.jpg");
    let picture = from_jpeg(&body).unwrap();
    assert_eq!((picture.width, picture.height), (320, 240));
}

#[test]
fn a_51_frames_come_in_cells_and_what_a_small_buffer_loses_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (_running, _, receivers) = start(folder.path(), "rate = 20\ncolour = false\n");
    let run = |arguments: &[&str]| -> Value {
        let head = ["watch", &receivers, "--seconds", "1.5", "--cells", "--format", "grey"];
        let told = said(&camera(folder.path(), &[&head, arguments, &["--json"]].concat()), 0);
        serde_json::from_str(told.lines().next().unwrap()).unwrap()
    };
    // 28 cells every 240 us: a frame takes 58 ms.
    tried(|| {
        let seen = run(&["--lines", "16", "--burst", "28", "--gap", "240"]);
        in_time!(seen["frames"].as_u64() >= Some(3), "{seen}");
    });
    assert!(show(folder.path(), "shaping")["packets"].as_u64() > Some(300));
    // All at once, at a host that takes a packet in 200 us and has room for 256 cells.
    let slow = ["--toll", "200", "--buffer", "21845"];
    let output = camera(
        folder.path(),
        &[&["watch", &receivers, "--seconds", "1.5", "--cells", "--format", "grey"], &slow[..]]
            .concat(),
    );
    // It may lose every frame, which is an error.
    assert!(output.status.code() <= Some(2));
    let drops = &show(folder.path(), "frames")["paths"][0]["stages"][5]["drops"];
    assert!(drops["lost on the way"].as_u64() > Some(0), "{drops}");
}

#[test]
fn a_167_frames_come_as_application_data_units() {
    let folder = tempfile::tempdir().unwrap();
    let (_running, _, receivers) = start(folder.path(), "rate = 20\ncolour = false\n");
    // 240 fragments a frame, two every 240 us: a frame takes 29 ms.
    tried(|| {
        let head = ["watch", &receivers, "--seconds", "1.5", "--units", "--format", "grey"];
        let shape = ["--lines", "16", "--burst", "2", "--gap", "240", "--json"];
        let told = said(&camera(folder.path(), &[&head[..], &shape].concat()), 0);
        let seen: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
        in_time!(seen["frames"].as_u64() >= Some(3), "{seen}");
    });
    assert!(show(folder.path(), "shaping")["packets"].as_u64() > Some(3 * 238));
    // The picture is whole: its digits can be read.
    tried(|| {
        let head = ["ask", &receivers, "--units", "--format", "grey", "--out", "frame.pgm"];
        let shape = ["--lines", "16", "--burst", "2", "--gap", "240"];
        let asked = camera(folder.path(), &[&head[..], &shape].concat());
        in_time!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    });
    let saved = std::fs::read(folder.path().join("frame.pgm")).unwrap();
    let bytes = saved.strip_prefix(b"P5\n640 480\n255\n").unwrap().to_vec();
    let picture = Pixels { bytes, ..Pixels::new(Layout::Grey, 640, 480) };
    assert!(read(&picture).is_some());
}

#[test]
fn a_54_two_receivers_on_one_cpu_share_it() {
    if !has("taskset") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_running, _, receivers) = start(folder.path(), "size = '160x120'\nrate = 200\n");
    let watch = |seconds: &str| {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", PROGRAM, "--json", "camera", "watch", &receivers]);
        command.args(["--rate", "200", "--work", "10", "--seconds", seconds]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let rate = |child: Child| -> f64 {
        let told = said(&child.wait_with_output().unwrap(), 0);
        let seen: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
        in_time!(seen["lost"] == 0, "{seen}");
        seen["frames"].as_f64().unwrap() / seen["seconds"].as_f64().unwrap()
    };
    tried(|| {
        let alone = rate(watch("1.5"));
        let [one, other] = [watch("2"), watch("2")].map(rate);
        let share = |rate: f64| (0.3..0.7).contains(&(rate / alone));
        let words = format!("alone {alone:.1}, together {one:.1} and {other:.1} frames/s");
        in_time!(share(one) && share(other), "{words}");
    });
}

#[test]
fn h264_of_a_file_is_passed_through_to_those_whom_no_policy_guards() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-f", "lavfi", "-i"])
        .args(["testsrc=size=320x240:rate=25:duration=2", "-c:v", "libx264", "-g", "10"])
        .args(["-pix_fmt", "yuv420p", "film.mp4"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    if !made.status.success() {
        println!("SKIP: this ffmpeg does not encode H.264");
        return;
    }
    let more = format!("source = 'file:film.mp4'\n{CLIENTS}");
    let (_running, viewers, _) = start(folder.path(), &more);
    for transport in ["tcp", "udp"] {
        let file = folder.path().join(format!("{transport}.mp4"));
        let output = Command::new("ffmpeg")
            .args(["-nostdin", "-loglevel", "error", "-rtsp_transport", transport])
            .args([
                "-i",
                &format!("rtsp://{viewers}/{OWNER}/h264"),
                "-frames:v",
                "20",
                "-c",
                "copy",
            ])
            .arg(&file)
            .output();
        said(&output.unwrap(), 0);
        let output = Command::new("ffprobe")
            .args(["-loglevel", "error", "-count_packets", "-of", "csv=p=0", "-show_entries"])
            .arg("stream=codec_name,width,height,nb_read_packets")
            .arg(&file)
            .output();
        assert_eq!(said(&output.unwrap(), 0).trim(), "h264,320,240,20", "{transport}");
    }
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-i", &format!("rtsp://{viewers}/{GUEST}/h264")])
        .args(["-f", "null", "-"])
        .output();
    assert!(String::from_utf8_lossy(&output.unwrap().stderr).contains("403"));
}

#[test]
fn a_camera_that_announces_itself_is_found_and_another_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("door {}", std::process::id());
    let more = format!("name = '{name}'\nannounce = true\n[clients.owner]\ntoken = '{OWNER}'\n");
    let (_running, viewers, _) = start(folder.path(), &more);
    let silent = tempfile::tempdir().unwrap();
    let (_other, others, _) = start(silent.path(), "");
    tried(|| {
        let told = said(&camera(folder.path(), &["find", "--json"]), 0);
        let found = told.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let found: Vec<Value> = found.collect();
        assert!(found.iter().all(|it| it["address"] != others.as_str()), "{found:?}");
        let own = found.iter().find(|it| it["address"] == viewers.as_str());
        in_time!(own.is_some(), "{found:?}");
        let own = own.unwrap();
        assert_eq!((&own["name"], &own["needs_token"]), (&name.clone().into(), &true.into()));
    });
}

#[test]
fn policies_change_what_each_viewer_gets_and_must_be_signed_where_the_owner_says_so() {
    if !has("clang") || !has("wasm-ld") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    for name in ["scale", "watermark", "blur", "hours"] {
        let copy = folder.path().join(name);
        std::fs::create_dir(&copy).unwrap();
        for file in ["plugin.toml", "plugin.c"] {
            std::fs::copy(plugins.join(name).join(file), copy.join(file)).unwrap();
        }
        said(&plugin(folder.path(), &["build", name]), 0);
    }
    let text = format!(
        "keys = 'keys'\nsize = '320x240'\nquality = 95\n\
         [clients.owner]\ntoken = '{OWNER}'\n\
         [clients.small]\ntoken = 'small-pictures'\npolicies = ['small']\n\
         [clients.marked]\ntoken = 'marked-pictures'\npolicies = ['mark', 'blur']\n\
         [clients.night]\ntoken = 'nothing-at-night'\npolicies = ['day']\n\
         [policies.small]\nmodule = 'scale/scale.wasm'\nconfig = '160 120'\n\
         [policies.mark]\nmodule = 'watermark/watermark.wasm'\nconfig = '170 20'\n\
         [policies.blur]\nmodule = 'blur/blur.wasm'\nconfig = '0 0 320 100'\n\
         [policies.day]\nmodule = 'hours/hours.wasm'\nconfig = '6 22 82800'\n"
    );
    std::fs::write(folder.path().join("camera.toml"), &text).unwrap();
    said(&plugin(folder.path(), &["key", "owner", "--keys", "keys"]), 0);
    let told = said(&camera(folder.path(), &["check", "camera.toml"]), 2);
    assert!(told.contains("must be signed"), "{told}");
    for name in ["scale", "watermark", "blur", "hours"] {
        said(&plugin(folder.path(), &["sign", name, "--key", "owner.key"]), 0);
    }
    let (_running, viewers, _) = start(folder.path(), &text);
    let picture = |token: &str| {
        let (head, body) = get(&viewers, &format!("/{token}/frame.jpg"));
        from_jpeg(&body).map_err(|_| head)
    };
    let whole = picture(OWNER).unwrap();
    assert!(read(&whole).is_some());
    let small = picture("small-pictures").unwrap();
    assert_eq!((small.width, small.height), (160, 120));
    let marked = picture("marked-pictures").unwrap();
    assert!(read(&marked).is_none(), "the digits are blurred");
    // 170 is 10101010: each bar ten pixels wide, thick ones six.
    let at = |x: usize| marked.bytes[((240 - 10) * 320 + 320 - 84 + x) * 3];
    assert!(at(4) > 180 && at(14) < 80 && at(24) > 180 && at(34) < 80);
    // Its clock began at 23:00.
    assert!(picture("nothing-at-night").unwrap_err().contains("403"));
    // A module that is not the one that was signed.
    let module = folder.path().join("scale/scale.wasm");
    let mut bytes = std::fs::read(&module).unwrap();
    bytes.extend([0, 2, 1, b'x']);
    std::fs::write(&module, bytes).unwrap();
    let told = said(&camera(folder.path(), &["check", "camera.toml"]), 2);
    assert!(told.contains("does not fit"), "{told}");
}

pub(super) fn has_ffmpeg() -> bool {
    // ffmpeg knows -version only; that it runs is enough.
    has("ffmpeg") && has("ffprobe")
}

#[test]
fn mistakes_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = |text: &str| {
        std::fs::write(folder.path().join("camera.toml"), text).unwrap();
        said(&camera(folder.path(), &["check", "camera.toml"]), 2)
    };
    assert!(wrong("size = '640'").contains("write \"640x480\""));
    assert!(wrong("source = 'eye'").contains("v4l2:/dev/video0"));
    assert!(wrong("source = 'file:none.avi'").contains("none.avi"));
    assert!(wrong("rate = 0").contains("frames a second"));
    assert!(wrong("colour = 1").contains("colour"));
}
