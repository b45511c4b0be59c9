//! A speaker and a microphone as their users see them: by the commands, by a sender that loses packets, and by ffmpeg
//! where it is installed; on this host, and over a network of namespaces where there are rights to make one.
//!
//! Rows: N-01.

use super::attempts::in_time;
use super::camera::{tried, until};
use super::router::ip;
use super::{PROGRAM, has, said};
use lastmeter_wire::requests::{response, server_port};
use lastmeter_wire::rtp::{emit_samples, header};
use lastmeter_wire::sdp::{DYNAMIC, Sound};
use lastmeter_wire::wav::{self, Format};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const OWNER: &str = "the-owners-secret";
const FORMAT: Format = Format { rate: 48_000, channels: 1 };
const CLIENTS: &str = "\
speaker = 'file:heard.wav'\nmicrophone = 'tone:1000'\ndelay = '300 ms'\n\
[clients.owner]\ntoken = 'the-owners-secret'\n\
[clients.guest]\ntoken = 'guest-of-this-house'\npolicies = ['nothing']\n\
[policies.nothing]\nexpression = '(deny)'\n";

/// A device, which ends with it.
struct Running {
    child: Child,
    address: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a device of a folder; `command` is the program, perhaps in a namespace.
fn begin(mut command: Command, folder: &Path, listen: &str, more: &str) -> Running {
    std::fs::write(folder.join("audio.toml"), format!("listen = '{listen}'\n{more}")).unwrap();
    command.args(["audio", "run", "audio.toml", "--ledger", "ledger.json"]);
    let mut child = command.current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    let (mut out, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
    out.read_line(&mut line).unwrap();
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let address = line.trim().trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
    let running = Running { child, address };
    until("it answers", || audio(folder, &["show", "audio.toml", "clients"]).status.success());
    running
}

fn start(folder: &Path, more: &str) -> Running {
    begin(Command::new(PROGRAM), folder, "127.0.0.1:0", more)
}

fn audio(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("audio").args(arguments).current_dir(folder).output().unwrap()
}

fn show(folder: &Path, which: &str) -> Value {
    let told = said(&audio(folder, &["show", "audio.toml", which, "--json"]), 0);
    serde_json::from_str(&told).unwrap()
}

/// The counters of a client, once none of its streams is heard any more.
fn counts(folder: &Path, client: &str) -> Value {
    let mut told = Value::Null;
    until("the stream is over", || {
        told = show(folder, "clients");
        told["playing"] == 0
    });
    told["clients"][client].clone()
}

/// Sound in which no place is like another, none of it silent.
fn noise(frames: usize) -> Vec<i16> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as i16 | 1
    };
    (0..frames).map(|_| next()).collect()
}

fn write_wav(path: &Path, format: Format, samples: &[i16]) {
    let mut bytes = wav::header(format, samples.len() as u32 * 2).to_vec();
    samples.iter().for_each(|sample| bytes.extend(sample.to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}

fn read_wav(path: &Path) -> Vec<i16> {
    let (format, samples) = wav::parse(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(format, FORMAT);
    samples
}

/// Where one sequence of samples is in another.
fn place(all: &[i16], wanted: &[i16]) -> Option<usize> {
    all.windows(wanted.len()).position(|window| window == wanted)
}

#[test]
fn n_01_what_is_played_is_heard_by_those_who_may() {
    tried(|| {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let running = start(folder, CLIENTS);
        assert!(said(&audio(folder, &["check", "audio.toml"]), 0).contains("guest, owner"));
        let sent = noise(48_000);
        write_wav(&folder.join("sent.wav"), FORMAT, &sent);
        let play = |token: &str| {
            audio(folder, &["play", &running.address, "sent.wav", "--token", token, "--json"])
        };
        let told: Value = serde_json::from_str(&said(&play(OWNER), 0)).unwrap();
        assert_eq!((&told["packets"], &told["frames"]), (&100.into(), &48_000.into()));
        let found = counts(folder, "owner");
        let come = found["packets"].as_u64().unwrap() + found["lost"].as_u64().unwrap();
        assert_eq!(come, 100, "each is accounted for: {found}");
        in_time!(found["played"] == 100 && found["concealed"] == 0, "{found}");
        let heard = read_wav(&folder.join("heard.wav"));
        let at = place(&heard, &sent).expect("the same samples");
        // Before it there is silence, for as long as the device waits for late packets.
        assert!(heard[..at].iter().chain(&heard[at + sent.len()..]).all(|sample| *sample == 0));
        let ledger = show(folder, "speaker");
        let path = &ledger["paths"][0];
        let names: Vec<&str> = path["stages"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["name"].as_str())
            .collect();
        assert_eq!(names, ["network", "policy", "buffer", "mix", "sink"]);
        assert_eq!(path["totals"]["delivered"]["packets"], 100, "{path:#}");
        assert_eq!(ledger["verdict"]["resource"], "buffer", "{:#}", ledger["verdict"]);
        let delay = path["totals"]["latency"]["mean"].as_f64().unwrap();
        in_time!((0.28..0.5).contains(&delay), "the delay of the file: {delay}");
        // Strangers, and somebody whose packets a policy drops.
        assert!(said(&play("another-secret"), 2).contains("denied: no client has this token"));
        assert!(
            said(&audio(folder, &["play", &running.address, "sent.wav"]), 2).contains("denied")
        );
        assert!(
            said(&audio(folder, &["record", &running.address, "--token", "x"]), 2)
                .contains("denied")
        );
        said(&play("guest-of-this-house"), 0);
        let path = &show(folder, "speaker")["paths"][0];
        assert_eq!(path["stages"][1]["drops"]["nothing"], 100, "{path:#}");
        // Another format is refused in words that help.
        write_wav(&folder.join("sent.wav"), Format { rate: 44_100, channels: 2 }, &sent);
        let refused = said(&play(OWNER), 2);
        assert!(refused.contains("L16/44100/2; the device takes L16/48000/1"), "{refused}");
    });
}

#[test]
fn n_01_a_microphone_is_open_while_somebody_listens() {
    tried(|| {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let running = start(folder, CLIENTS);
        let before = show(folder, "microphone");
        assert_eq!(before["paths"][0]["totals"]["delivered"]["packets"], 0, "nobody listens");
        let record = ["record", &running.address, "--token", OWNER, "--seconds", "1"];
        let record = [&record[..], &["--delay", "200 ms", "--out", "said.wav", "--json"]].concat();
        let told: Value = serde_json::from_str(&said(&audio(folder, &record), 0)).unwrap();
        in_time!(told["concealed"] == 0 && told["lost"] == 0, "{told}");
        let heard = read_wav(&folder.join("said.wav"));
        assert_eq!(heard.len(), 48_000);
        // A tone of 1 kHz has 1000 rising zeros a second, whichever samples are the first and last.
        let rising = heard.windows(2).filter(|two| two[0] < 0 && two[1] >= 0).count();
        assert!((999..=1001).contains(&rising), "{rising}");
        assert_eq!(told["loudest"], 16_383);
        assert_eq!(told["whole"], true, "the device says when it took the sound");
        // Its clock is this host's: a block of 10 ms, and what play-out waits.
        let delay = told["delay"].as_f64().unwrap();
        in_time!((0.2..0.35).contains(&delay), "{told}");
        until("it rests", || show(folder, "clients")["listeners"] == 0);
        // Whoever has a policy that drops all hears nothing.
        let deaf = ["record", &running.address, "--token", "guest-of-this-house"];
        assert!(said(&audio(folder, &deaf), 2).contains("no sound comes"));
        let sdp = said(&audio(folder, &["show", "audio.toml", "sdp"]), 0);
        assert!(sdp.contains("a=rtpmap:97 L16/48000/1"), "{sdp}");
    });
}

#[test]
fn n_01_a_recording_that_is_interrupted_keeps_what_was_heard() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let running = start(folder, CLIENTS);
    let record = ["record", &running.address, "--token", OWNER, "--seconds", "500", "--json"];
    let mut command = Command::new(PROGRAM);
    command.arg("audio").args(record).args(["--out", "said.wav"]).current_dir(folder);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    until("it hears", || show(folder, "clients")["listeners"] == 1);
    // It plays from 60 ms after the first packet on.
    std::thread::sleep(Duration::from_secs(1));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (seconds, samples) =
        (told["seconds"].as_f64().unwrap(), read_wav(&folder.join("said.wav")));
    assert!(seconds > 0.0 && seconds < 400.0, "{told}");
    assert_eq!(samples.len(), (seconds * 48_000.0).round() as usize);
}

/// A client that a test leads packet by packet.
struct Sender {
    stream: TcpStream,
    socket: UdpSocket,
    to: SocketAddr,
}

impl Sender {
    fn new(address: &str) -> Sender {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = address.parse().unwrap();
        let mut sender = Sender { stream, socket, to };
        let port = sender.socket.local_addr().unwrap().port();
        let sound = Sound { kind: DYNAMIC, rate: 48_000, channels: 1 }.lines(0);
        assert_eq!(sender.ask("ANNOUNCE", "", &sound).0, 200);
        let transport =
            format!("Transport: RTP/AVP;unicast;client_port={port}-{};mode=record\r\n", port + 1);
        let (status, transport) = sender.ask("SETUP", &transport, "");
        assert_eq!(status, 200);
        sender.to.set_port(server_port(&transport).unwrap());
        sender
    }
    /// The status of the answer, and its field `Transport`.
    fn ask(&mut self, method: &str, more: &str, body: &str) -> (u16, String) {
        let text = format!(
            "{method} rtsp://here/{OWNER} RTSP/1.0\r\nCSeq: 1\r\n{more}Content-Length: {}\r\n\r\n\
             {body}",
            body.len()
        );
        self.stream.write_all(text.as_bytes()).unwrap();
        let (mut bytes, mut block) = (Vec::new(), [0; 2048]);
        loop {
            if let Some((answer, _)) = response(&bytes).unwrap() {
                let transport = answer.header("transport").unwrap_or_default().to_owned();
                return (answer.status, transport);
            }
            let count = self.stream.read(&mut block).unwrap();
            assert!(count > 0, "the device has closed the connection");
            bytes.extend(&block[..count]);
        }
    }
    /// Sends packet `number` of some sound, of 10 ms, with another source if `source` is not 1.
    fn send(&self, number: usize, sound: &[i16], source: u32) {
        let (sequence, timestamp) = (65_500u16.wrapping_add(number as u16), number as u32 * 480);
        let start = u32::MAX - 4800;
        let mut packet =
            header(DYNAMIC, false, sequence, start.wrapping_add(timestamp), source).to_vec();
        emit_samples(&sound[number * 480..][..480], &mut packet);
        self.socket.send_to(&packet, self.to).unwrap();
    }
}

/// Packets that never come, that come late, twice, or from elsewhere: each is counted, and the rest is heard.
#[test]
fn n_01_what_is_lost_and_late_is_counted_and_concealed() {
    tried(|| {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let running = start(
            folder,
            "speaker = 'file:heard.wav'\nconceal = 'silence'\n\
            delay = '200 ms'\n[clients.owner]\ntoken = 'the-owners-secret'\n",
        );
        let sound = noise(480 * 100);
        let mut sender = Sender::new(&running.address);
        assert_eq!(sender.ask("PLAY", "", "").0, 455, "it announced sound of its own");
        assert_eq!(sender.ask("RECORD", "", "").0, 200);
        let (lost, late, twice) = ([20, 21, 40], [60, 61], [10, 11, 12]);
        let began = Instant::now();
        for number in 0..100 {
            let due = began + Duration::from_millis(10) * number as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if !lost.contains(&number) && !late.contains(&number) {
                sender.send(number, &sound, 1);
            }
            if twice.contains(&number) {
                sender.send(number, &sound, 1);
            }
            if number == 95 {
                // They were due 150 ms ago.
                late.iter().for_each(|number| sender.send(*number, &sound, 1));
                sender.send(number, &sound, 2);
            }
        }
        assert_eq!(sender.ask("TEARDOWN", "", "").0, 200);
        let found = counts(folder, "owner");
        let number = |key: &str| found[key].as_u64().unwrap();
        assert_eq!(number("packets"), 100, "97 and three of them twice: {found}");
        let sum = ["played", "late", "twice"].map(number).iter().sum::<u64>();
        in_time!(sum == 100 && number("restarts") == 0, "{found}");
        in_time!((number("lost"), number("late"), number("twice")) == (3, 2, 3), "{found}");
        in_time!(number("concealed") == 5 * 480, "{found}");
        let mut expected = sound.clone();
        for number in lost.iter().chain(&late) {
            expected[number * 480..][..480].fill(0);
        }
        let heard = read_wav(&folder.join("heard.wav"));
        in_time!(place(&heard, &expected).is_some(), "silence where nothing came");
        let path = &show(folder, "speaker")["paths"][0];
        assert_eq!(path["stages"][0]["drops"]["lost on the way"], 3, "{path:#}");
        assert_eq!(path["stages"][2]["drops"]["came too late"], 2, "{path:#}");
        assert_eq!(path["stages"][1]["drops"]["of another source"], 1, "{path:#}");
        let offered = path["totals"]["offered"]["packets"].as_u64();
        assert_eq!(offered, Some(95 + 3 + 2 + 3 + 1), "{path:#}");
    });
}

/// Two clients at once: their sum, limited; or the second is refused.
#[test]
fn n_01_several_clients_are_mixed_or_refused() {
    tried(|| {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let running = start(folder, CLIENTS);
        let sound = [vec![20_000; 480 * 30], vec![-20_000; 480 * 30]].concat();
        let mut senders = [Sender::new(&running.address), Sender::new(&running.address)];
        senders.iter_mut().for_each(|it| assert_eq!(it.ask("RECORD", "", "").0, 200));
        let began = Instant::now();
        for number in 0..60 {
            let due = began + Duration::from_millis(10) * number as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            senders.iter().for_each(|sender| sender.send(number, &sound, 1));
        }
        senders.iter_mut().for_each(|it| assert_eq!(it.ask("TEARDOWN", "", "").0, 200));
        let found = counts(folder, "owner");
        in_time!(found["played"] == 120 && found["concealed"] == 0, "{found}");
        let heard = read_wav(&folder.join("heard.wav"));
        let has = |wanted: i16| heard.iter().filter(|sample| **sample == wanted).count();
        // Both began within a block or a few of each other.
        in_time!(has(i16::MAX) > 480 * 20 && has(i16::MIN) > 480 * 20, "they were heard at once");
        let clipped = show(folder, "clients")["clipped"].as_u64().unwrap();
        assert_eq!(clipped as usize, has(i16::MAX) + has(i16::MIN));
        drop(running);
        let alone = format!("several = 'refuse'\n{CLIENTS}");
        let running = start(folder, &alone);
        let mut senders = [Sender::new(&running.address), Sender::new(&running.address)];
        assert_eq!(senders[0].ask("RECORD", "", "").0, 200);
        assert_eq!(senders[1].ask("RECORD", "", "").0, 453);
        assert_eq!(senders[0].ask("TEARDOWN", "", "").0, 200);
        until("the first is over", || show(folder, "clients")["playing"] == 0);
        assert_eq!(senders[1].ask("RECORD", "", "").0, 200);
    });
}

/// A stranger's program sends and hears: over UDP, and in the connection.
#[test]
fn n_01_ffmpeg_sends_and_hears() {
    if !has("ffmpeg") {
        return;
    }
    tried(|| {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let running = start(folder, CLIENTS);
        let sent = noise(48_000);
        write_wav(&folder.join("sent.wav"), FORMAT, &sent);
        let address = format!("rtsp://{}/{OWNER}", running.address);
        let ffmpeg = |arguments: &[&str]| {
            let mut command = Command::new("ffmpeg");
            command.args(["-nostdin", "-loglevel", "error", "-y"]).args(arguments);
            said(&command.current_dir(folder).output().unwrap(), 0)
        };
        for way in ["udp", "tcp"] {
            let before = read_wav(&folder.join("heard.wav")).len();
            ffmpeg(&[
                "-re",
                "-i",
                "sent.wav",
                "-c:a",
                "pcm_s16be",
                "-f",
                "rtsp",
                "-rtsp_transport",
                way,
                &address,
            ]);
            let found = counts(folder, "owner");
            in_time!(found["concealed"] == 0 && found["lost"] == 0, "{way}: {found}");
            let heard = read_wav(&folder.join("heard.wav"));
            // It may send its last packet in part, and has its own beginning.
            let middle = &sent[4800..43_200];
            in_time!(place(&heard[before..], middle).is_some(), "{way}: the same samples");
            ffmpeg(&["-rtsp_transport", way, "-i", &address, "-t", "0.5", "said.wav"]);
            let heard = read_wav(&folder.join("said.wav"));
            assert_eq!(heard.iter().max(), Some(&16_383), "{way}");
        }
        let wrong = ["-nostdin", "-i", &format!("rtsp://{}/wrong", running.address), "-f", "null"];
        let refused = Command::new("ffmpeg").args(wrong).arg("-").output().unwrap();
        assert!(String::from_utf8_lossy(&refused.stderr).contains("401"), "{refused:?}");
    });
}

/// A device and its client on two hosts, and a network between them that fails for a while.
struct Hosts([String; 3]);

impl Hosts {
    fn new() -> Option<Hosts> {
        let own = std::process::id();
        let hosts = Hosts(["device", "client", "switch"].map(|it| format!("lm-audio-{own}-{it}")));
        let [.., switch] = &hosts.0;
        let made = Command::new("ip").args(["netns", "add", switch]).output();
        if !made.is_ok_and(|output| output.status.success()) {
            println!("SKIP: no right to make network namespaces, or no `ip`");
            return None;
        }
        let bridge = ["-n", switch.as_str(), "link", "add", "br0", "type", "bridge"];
        if !Command::new("ip").args(bridge).output().is_ok_and(|output| output.status.success()) {
            println!("SKIP: the kernel has no bridges");
            return None;
        }
        ip(&format!("-n {switch} link set br0 up"));
        for (number, name) in hosts.0[..2].iter().enumerate() {
            ip(&format!("netns add {name}"));
            ip(&format!("link add e0 netns {name} type veth peer name p{number} netns {switch}"));
            ip(&format!("-n {switch} link set p{number} master br0 up"));
            ip(&format!("-n {name} addr add 10.4.0.{}/24 dev e0", number + 1));
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set e0 up"));
        }
        Some(hosts)
    }
    fn inside(&self, which: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[which], PROGRAM]);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

#[test]
fn n_01_sound_crosses_a_network_and_what_that_loses_is_counted() {
    let Some(hosts) = Hosts::new() else { return };
    tried(|| {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let running = begin(hosts.inside(0), folder, "10.4.0.1:8560", CLIENTS);
        let sent = noise(3 * 48_000);
        write_wav(&folder.join("sent.wav"), FORMAT, &sent);
        let play = || {
            let mut command = hosts.inside(1);
            command.args([
                "audio",
                "play",
                "10.4.0.1:8560",
                "sent.wav",
                "--token",
                OWNER,
                "--json",
            ]);
            command.current_dir(folder).stdout(Stdio::piped()).spawn().unwrap()
        };
        said(&play().wait_with_output().unwrap(), 0);
        let found = counts(folder, "owner");
        in_time!(found["played"] == 300 && found["concealed"] == 0, "{found}");
        assert!(place(&read_wav(&folder.join("heard.wav")), &sent).is_some(), "the same samples");
        // The device's port of the switch is down for a quarter of a second.
        let child = play();
        until("it plays again", || show(folder, "clients")["clients"]["owner"]["played"] != 300);
        ip(&format!("-n {} link set p0 down", hosts.0[2]));
        std::thread::sleep(Duration::from_millis(250));
        ip(&format!("-n {} link set p0 up", hosts.0[2]));
        said(&child.wait_with_output().unwrap(), 0);
        let found = counts(folder, "owner");
        let number = |key: &str| found[key].as_u64().unwrap();
        assert_eq!(number("packets") + number("lost"), 600, "each is accounted for: {found}");
        in_time!(number("lost") >= 20 && number("lost") < 200, "{found}");
        assert!(number("concealed") >= number("lost") * 480, "{found}");
        let drops = &show(folder, "speaker")["paths"][0]["stages"][0]["drops"];
        assert_eq!(drops["lost on the way"], number("lost"), "{drops}");
        let verdict = &show(folder, "speaker")["verdict"];
        assert_eq!(verdict["resource"], "network", "{verdict:#}");
        drop(running);
    });
}
