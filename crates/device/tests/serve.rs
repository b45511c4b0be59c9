//! A camera that listens, and those who look: a receiver, a browser's way, and ffmpeg's where it is installed.

use lastmeter_device::camera::encode::from_jpeg;
use lastmeter_device::camera::pattern::read;
use lastmeter_device::camera::receiver::Receiver;
use lastmeter_device::camera::server::{Config, Server};
use lastmeter_plugin::host::{Host, Limits};
use lastmeter_wire::camera::{Code, Command, Format, Shape};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

fn start(more: &str) -> Server {
    let text = format!("listen = '127.0.0.1:0'\nreceivers = '127.0.0.1:0'\n{more}");
    let config = Config::parse(&text).unwrap();
    let host = Arc::new(Host::new(Limits { instances: 4, ..Limits::default() }).unwrap());
    let camera = config.camera(Path::new("."), host).unwrap();
    Server::start(&config, Path::new("."), camera, |_| {}).unwrap()
}

fn receiver(server: &Server, command: Command) -> Receiver {
    let command = Command { frames: 1, ..command };
    Receiver::new(server.receivers.unwrap(), command).unwrap()
}

#[test]
fn a_receiver_gets_a_frame_for_each_question_and_nothing_else() {
    let server = start("size = '320x240'\nrate = 100\n");
    assert_eq!((server.camera.store.captured(), server.camera.packets.load(Relaxed)), (0, 0));
    let mut receiver = receiver(&server, Command::default());
    let mut last = 0;
    for _ in 0..5 {
        receiver.ask(Code::Frames).unwrap();
        let frame = receiver.next(PATIENCE).unwrap().unwrap();
        let pixels = frame.pixels().unwrap();
        assert_eq!((pixels.width, pixels.height), (320, 240));
        let (number, taken) = read(&pixels).unwrap();
        assert_eq!((number, taken), (frame.piece.frame, frame.piece.clock));
        assert!(number > last);
        last = number;
    }
    assert!(receiver.next(Duration::from_millis(100)).unwrap().is_none(), "nobody asked");
    assert_eq!((receiver.counts.frames, receiver.counts.lost), (5, 0));
    // The last one is accounted for when the receiver has told how it fared.
    receiver.ask(Code::Stop).unwrap();
    let began = Instant::now();
    while server.camera.account.done() < 5 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.camera.account.done(), 5);
}

#[test]
fn an_idle_room_costs_less_than_a_twentieth_and_a_frame_asked_for_after_a_pause_comes_at_once() {
    // A frame every two seconds, so that one which waited for its turn would be seen.
    let server = start("rate = 0.5\n");
    let sent = || server.camera.bytes.load(Relaxed);
    let mut receiver = receiver(&server, Command { width: 160, height: 120, ..Command::default() });
    let mut next = |width, height| {
        (receiver.command.width, receiver.command.height) = (width, height);
        let (before, asked) = (sent(), Instant::now());
        receiver.ask(Code::Frames).unwrap();
        receiver.next(PATIENCE).unwrap().unwrap();
        (sent() - before, asked.elapsed())
    };
    let (glance, _) = next(160, 120);
    std::thread::sleep(Duration::from_millis(4500));
    let (whole, took) = next(0, 0);
    assert!(took < Duration::from_secs(1), "it waited for its turn: {took:?}");
    // A glance a second beside 30 whole frames.
    assert!(glance * 20 <= whole * 30, "{glance} bytes, and {whole}");
}

#[test]
fn receivers_have_sizes_formats_and_regions_of_their_own() {
    let server = start("size = '320x240'\nrate = 100\ncolour = false\n");
    let mut small = receiver(&server, Command { width: 64, height: 48, ..Command::default() });
    let shape = Shape { lines: 10, pause: 1000, burst: 2, gap: 100, packet: 500 };
    let region = lastmeter_wire::camera::Region { x: 10, y: 20, w: 100, h: 50 };
    let part = Command { region, shape, format: Format::Grey, ..Command::default() };
    let mut part = receiver(&server, part);
    for receiver in [&mut small, &mut part] {
        receiver.ask(Code::Frames).unwrap();
    }
    let frame = small.next(PATIENCE).unwrap().unwrap();
    assert_eq!((frame.piece.width, frame.piece.height, frame.piece.format), (64, 48, Format::Jpeg));
    let frame = part.next(PATIENCE).unwrap().unwrap();
    assert_eq!((frame.piece.corner, frame.bytes.len()), ((10, 20), 100 * 50));
    // The certificate is joined after the last packet.
    let shaped = || server.camera.certificate.lock().unwrap().packets();
    let began = Instant::now();
    while shaped() == 0 && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(shaped() >= 4 * 3, "packets that were spread were timed");
    let mut outside =
        receiver(&server, Command { region: Default::default(), ..part.command.clone() });
    outside.command.region.w = 321;
    outside.command.region.h = 1;
    outside.ask(Code::Frames).unwrap();
    assert!(outside.next(PATIENCE).unwrap_err().to_string().contains("no such picture"));
}

/// With times for the kernel, which `fq` keeps where the interface has one; the loopback sends at once.
#[test]
fn frames_are_whole_where_the_kernel_is_to_space_them() {
    let server = start("size = '320x240'\ncolour = false\npacing = 'fq'\n");
    let shape = Shape { burst: 2, gap: 4000, packet: 4000, ..Shape::default() };
    let asked = Command { format: Format::Grey, shape, ..Command::default() };
    let mut receiver = receiver(&server, asked);
    receiver.ask(Code::Frames).unwrap();
    let frame = receiver.next(PATIENCE).unwrap().unwrap();
    assert!(read(&frame.pixels().unwrap()).is_some());
    assert!(Config::parse("pacing = 'never'").is_err());
}

#[test]
fn a_rate_comes_until_it_is_stopped() {
    let server = start("size = '160x120'\nrate = 50\n");
    let mut receiver = receiver(&server, Command { millihertz: 50_000, ..Command::default() });
    receiver.ask(Code::Rate).unwrap();
    for _ in 0..10 {
        assert!(receiver.next(PATIENCE).unwrap().is_some());
    }
    receiver.ask(Code::Stop).unwrap();
    // What was under way arrives; then nothing.
    while receiver.next(Duration::from_millis(300)).unwrap().is_some() {
        assert!(receiver.counts.frames < 40, "it goes on");
    }
}

const CLIENTS: &str = "size = '160x120'\nrate = 100\n\
    [clients.owner]\ntoken = 'the-owners-secret'\n\
    [clients.guest]\ntoken = 'guest-of-this-house'\npolicies = ['small']\n\
    [policies.small]\nexpression = '(crop 0 0 80 60)'\n\
    [clients.nobody]\ntoken = 'nobody-may-see-it'\npolicies = ['never']\n\
    [policies.never]\nexpression = '(< width 100)'\n";

#[test]
fn each_sees_what_its_owner_says() {
    let server = start(CLIENTS);
    for (token, wanted) in [("the-owners-secret", (160, 120)), ("guest-of-this-house", (80, 60))] {
        let token = token.as_bytes().to_vec();
        let mut receiver = receiver(&server, Command { token, ..Command::default() });
        receiver.ask(Code::Frames).unwrap();
        let piece = receiver.next(PATIENCE).unwrap().unwrap().piece;
        assert_eq!((piece.width, piece.height), wanted);
    }
    for token in ["nobody-may-see-it", "not-a-known-token", ""] {
        let token = token.as_bytes().to_vec();
        let mut receiver = receiver(&server, Command { token, ..Command::default() });
        receiver.ask(Code::Frames).unwrap();
        assert_eq!(receiver.next(PATIENCE).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    let ledger = server.camera.account.ledger("camera", "0", 0.0);
    assert_eq!(ledger.paths[0].stages[2].drops["never"], 1);
}

/// The head and the body of an answer.
fn get(server: &Server, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.viewers.unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes[end + 4..].to_vec())
}

#[test]
fn browsers_see_it_with_a_token() {
    let server = start(CLIENTS);
    let (head, body) = get(&server, "/the-owners-secret/frame.jpg?width=120&height=90");
    assert!(head.contains("200 OK") && head.contains("image/jpeg"), "{head}");
    assert_eq!(from_jpeg(&body).unwrap().width, 120);
    assert!(get(&server, "/frame.jpg").0.contains("401"));
    assert!(get(&server, "/nobody-may-see-it/frame.jpg").0.contains("403"));
    assert!(get(&server, "/the-owners-secret/frame.jpg?width=wide").0.contains("400"));
    assert!(get(&server, "/the-owners-secret/other").0.contains("404"));
    let page = get(&server, "/the-owners-secret/").1;
    assert!(
        String::from_utf8_lossy(&page).contains("src=\"/the-owners-secret/stream.mjpg?rate=100\"")
    );
    let (head, body) = get(&server, "/the-owners-secret/stream.mjpg?n=5");
    assert!(head.contains("multipart/x-mixed-replace"), "{head}");
    let text = String::from_utf8_lossy(&body);
    let number = |line: &str| line.strip_prefix("X-Frame: ")?.trim().parse::<u32>().ok();
    let numbers: Vec<u32> = text.lines().filter_map(number).collect();
    assert!(numbers.len() == 5 && numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[test]
fn ffmpeg_reads_it_over_tcp_and_udp_and_its_files_are_sources() {
    use std::process::Command;
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        println!("SKIP: no ffmpeg");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start("size = '320x240'\nrate = 20\n");
    let address = format!("rtsp://{}/?width=160&height=120", server.viewers.unwrap());
    for transport in ["tcp", "udp"] {
        let file = folder.path().join(format!("{transport}.avi"));
        let output = Command::new("ffmpeg")
            .args(["-nostdin", "-loglevel", "error", "-rtsp_transport", transport, "-i", &address])
            .args(["-frames:v", "10", "-c", "copy"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let output = Command::new("ffprobe")
            .args(["-loglevel", "error", "-count_frames", "-of", "csv=p=0", "-show_entries"])
            .arg("stream=codec_name,width,height,nb_read_frames")
            .arg(&file)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told.trim(), "mjpeg,160,120,10", "{transport}");
    }
    let file = folder.path().join("tcp.avi");
    let server = start(&format!("size = '160x120'\nsource = 'file:{}'\n", file.display()));
    let (head, body) = get(&server, "/frame.jpg");
    assert!(head.contains("200 OK"), "{head}");
    let pixels = from_jpeg(&body).unwrap();
    assert_eq!((pixels.width, pixels.height), (160, 120));
}
